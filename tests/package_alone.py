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

COMMAND = Path(sys.executable).with_name("deliralike")
SOURCE = Path(__file__).resolve().parents[1] / "deliralike"
FRAMEWORKS = {"torch", "chainer", "jax", "flax", "optax"}
#: Where something may be missing, and what.
EXTRAS = {
    "deliralike.backends.": FRAMEWORKS,
    "deliralike.parallel.processes.mpi": {"mpi4py"},
    "deliralike.conformance.suite.": {"pytest"},
    "deliralike.port": {"libcst"},
}


def installed():
    """It is the wheel that was imported; what it holds is checked by tests/packaged.py."""
    there = Path(deliralike.__file__).parent
    assert there != SOURCE, f"deliralike was imported from {there}, not from the wheel"


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
            assert "pip install" in str(error) and f"deliralike[{name}]" in str(
                error
            ), error
        else:
            raise AssertionError(f"{name} was built without its framework")


def commands_say_what_is_missing():
    """A command that needs a framework, or data, ends with the command that installs them."""
    for words, extra in (
        (["train", "mlp"], "data"),
        (["compare", "mlp"], "torch"),
    ):
        ended = subprocess.run([COMMAND, *words], capture_output=True, text=True)
        assert ended.returncode != 0 and "Traceback" not in ended.stderr, ended
        assert f"deliralike[{extra}" in ended.stdout + ended.stderr, ended


def commands():
    for words in (
        ["--version"],
        ["backends"],
        ["zoo"],
        ["zoo", "resnet18"],
        ["settings", "mlp"],
    ):
        subprocess.run([COMMAND, *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    installed()
    print(f"package: {imports()} modules can be imported without a framework")
    says_what_is_missing()
    commands()
    commands_say_what_is_missing()
