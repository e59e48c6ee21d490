"""What editors and type checkers know of a user's file: `self.nn`, `Net.on`, `zoo.build`."""

import json
import os
import subprocess
import sys

import jedi
import pytest

from tests.docs.pages import ROOT, examples
from tests.typed import interface

HEAD = """\
from typing import assert_type

from deliralike import summary, zoo
from deliralike.backends.chainer import AbstractChainerNetwork
from deliralike.backends.jax import AbstractJaxNetwork
from deliralike.backends.torch import AbstractTorchNetwork
from deliralike.nn import Array
"""
ANNOTATED = {
    "def __init__(self, classes):": "def __init__(self, classes: int) -> None:",
    "def forward(self, x):": "def forward(self, x: Array) -> Array:",
}
# Where a checker must object, a comment says so: that it is of use is checked, too.
MORE = """
class Outer(Network):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.blocks = self.nn.ModuleList([Classifier(classes=width) for _ in range(2)])
        self.act = self.nn.ReLU(inplace=True)
        self.nn.Conv2d("three", 8, 3)  # type: ignore[arg-type]
        self.nn.LayerNorm(8, epsilon=0.1)  # type: ignore[call-arg]

    def forward(self, x: Array) -> Array:
        for block in self.blocks:
            x = self.act(block(x))
        return self.nn.softmax(x, dim="last")  # type: ignore[arg-type]


def native(network: AbstractTorchNetwork) -> None: ...


network = Outer.on("torch", seed=3)(width=4)
assert_type(network, Outer)
assert_type(network.count_parameters(), int)
assert_type(Classifier.on("jax")(10), Classifier)
native(network)
print(network.parameters(), network(np.ones(3)))
Outer.on("jax")(depth=3)  # type: ignore[call-arg]
assert_type(zoo.build("resnet18", backend="torch", num_classes=10), AbstractTorchNetwork)
assert_type(zoo.build("resnet18", backend="chainer"), AbstractChainerNetwork)
assert_type(zoo.build("resnet18", backend="jax"), AbstractJaxNetwork)
assert_type(summary(network, (8,)).parameters, int)
"""

MYPY = """\
[mypy]
strict = true
[mypy-torch.*,chainer.*,chainermn.*,cupy.*,jax.*,jaxlib.*,flax.*,optax.*]
follow_imports = skip
ignore_missing_imports = true
"""


@pytest.fixture(scope="module")
def user_file(tmp_path_factory):
    """README's examples with types, as one file."""
    text = "\n\n".join(block.text for block, _ in examples(ROOT / "README.md"))
    for plain, annotated in ANNOTATED.items():
        assert plain in text
        text = text.replace(plain, annotated)
    path = tmp_path_factory.mktemp("typed") / "user.py"
    path.write_text(f"{HEAD}\n{text}\n{MORE}")
    return path


def checker(*command, cwd):
    """The output of a type checker that finds this package as an installed one."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_a_file_with_the_examples_of_the_readme_passes_mypy_in_its_strict_mode(
    user_file, request
):
    settings = user_file.with_name("mypy.ini")
    settings.write_text(MYPY)
    cache = str(request.config.cache.mkdir("mypy"))
    result = checker(
        "mypy",
        "--config-file",
        settings,
        "--cache-dir",
        cache,
        user_file.name,
        cwd=user_file.parent,
    )
    assert result.stdout.startswith("Success"), result.stdout + result.stderr


def test_a_file_with_the_examples_of_the_readme_passes_pyright(user_file):
    pytest.importorskip("basedpyright", reason="pyright's engine is not installed")
    settings = {
        "typeCheckingMode": "standard",
        "reportUnnecessaryTypeIgnoreComment": True,
        "include": [user_file.name],
        "extraPaths": [str(ROOT)],
    }
    user_file.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    result = checker(
        "basedpyright", "--pythonpath", sys.executable, cwd=user_file.parent
    )
    assert result.returncode == 0, result.stdout + result.stderr


NET = """\
from deliralike import Network

class Net(Network):
    def __init__(self, classes: int) -> None:
        super().__init__()
        nn = self.nn
"""
COMPLETED = {
    "a layer": (
        "        nn.Conv2d(",
        "Conv2d(in_channels: int, out_channels: int, kernel_size",
    ),
    "a made layer": ("        nn.SiLU(", "SiLU(inplace: bool=False)"),
    "a function": ("        self.nn.softmax(", "softmax(x: Array, dim: int"),
    "a network": ('Net.on("torch")(', "Net(classes: int)"),
}


@pytest.fixture(scope="module", autouse=True)
def cache_of_one_process(tmp_path_factory):
    """jedi reads a half-written file where two processes share its cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            jedi.settings, "cache_directory", str(tmp_path_factory.mktemp("jedi"))
        )
        yield


@pytest.mark.xdist_group("jedi")
@pytest.mark.parametrize("what", COMPLETED)
def test_an_editor_shows_the_arguments_of(what):
    line, shown = COMPLETED[what]
    script = jedi.Script(f"{NET}{line}\n", project=jedi.Project(ROOT))
    [signature] = script.get_signatures(len(NET.splitlines()) + 1, len(line))
    assert signature.to_string().startswith(shown)


@pytest.mark.xdist_group("jedi")
def test_an_editor_completes_the_names_of_layers_and_functions():
    line = "        nn.Conv"
    script = jedi.Script(f"{NET}{line}\n", project=jedi.Project(ROOT))
    names = {
        name.name for name in script.complete(len(NET.splitlines()) + 1, len(line))
    }
    assert {"Conv1d", "Conv2d", "ConvTranspose3d", "conv2d"} <= names


def test_the_types_of_nn_are_those_of_the_code():
    assert interface.PATH.read_text() == interface.written(), (
        "deliralike/nn/interface.pyi is out of date: make types"
    )
