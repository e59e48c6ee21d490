"""What the installed wheel can do where nothing but what it asks for is installed. `make package`
runs it there.

It is run by the interpreter of that environment in isolated mode, so neither pytest nor the source
tree is in reach.
"""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import deliralike
from deliralike.errors import BackendUnavailable

SOURCE = Path(__file__).resolve().parents[1] / "deliralike"
FRAMEWORKS = {"torch", "chainer", "jax", "flax", "optax"}
#: Where something may be missing, and what.
EXTRAS = {
    "deliralike.backends.": FRAMEWORKS,
    "deliralike.parallel.processes.mpi": {"mpi4py"},
    "deliralike.parallel.mpi": {"mpi4py"},  # its old path
    "deliralike.conformance.suite.": {"pytest"},
}


def installed_whole():
    """Every file of the package is in the wheel, and it is the wheel that was imported."""
    there = Path(deliralike.__file__).parent
    assert there != SOURCE, f"deliralike was imported from {there}, not from the wheel"
    missing = [path for path in listed(SOURCE) if not (there / path).exists()]
    assert not missing, f"the wheel lacks {missing}"


#: What tools leave in the source folder, and their settings.
OF_TOOLS = {"__pycache__", ".ruff_cache", "ruff.toml"}


def listed(folder):
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if OF_TOOLS.isdisjoint(path.parts)]


def imports():
    """A module needs no more than the wheel asks for, but for those of `EXTRAS`."""
    wrong, count = {}, 0
    for module in pkgutil.walk_packages(
        deliralike.__path__, "deliralike.", onerror=lambda name: None
    ):
        if module.name == "deliralike.__main__":
            continue
        try:
            importlib.import_module(module.name)
            count += 1
        except ModuleNotFoundError as error:
            if not any(
                module.name.startswith(start) and error.name in names
                for start, names in EXTRAS.items()
            ):
                wrong[module.name] = str(error)
    assert not wrong, wrong
    loaded = FRAMEWORKS & set(sys.modules)
    assert not loaded, f"this environment has {loaded}"
    return count


def says_what_is_missing():
    """A network on a backend that is not there is refused with the command that installs it."""
    for name in ("torch", "chainer", "jax"):
        try:
            deliralike.zoo.build("lenet", backend=name)
        except BackendUnavailable as error:
            assert "pip install" in str(error), error
        else:
            raise AssertionError(f"{name} was built without its framework")


def commands():
    for words in (["--version"], ["backends"], ["zoo"], ["zoo", "resnet18"], ["settings", "mlp"]):
        subprocess.run(
            [Path(sys.executable).with_name("deliralike"), *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    installed_whole()
    print(f"package: {imports()} modules can be imported without a framework")
    says_what_is_missing()
    commands()
