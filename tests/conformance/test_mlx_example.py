"""The example of a backend in a package of its own, `examples/mlx`, where MLX is not installed:
MLX's names have NumPy's functions behind them. `make example-mlx` runs it on MLX itself."""

import ast
import importlib
import re
import sys
import tokenize
import tomllib
from pathlib import Path

import numpy as np
import pytest

from deliralike import zoo
from deliralike.conformance.suite.nets import Contained, Moving, Small, Tied
from deliralike.nn.primitives import Primitives
from tests.conformance import mlx_on_numpy
from tests.conformance.guide import GUIDE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mlx"
FILES = sorted((EXAMPLE / "deliralike_mlx").glob("*.py"))


@pytest.fixture(scope="module")
def backend():
    with pytest.MonkeyPatch.context() as patch:
        for name, module in mlx_on_numpy.modules().items():
            patch.setitem(sys.modules, name, module)
        patch.syspath_prepend(EXAMPLE)
        target = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
        module, _, attribute = target["entry-points"]["deliralike.backends"][
            "mlx"
        ].partition(":")
        yield getattr(importlib.import_module(module), attribute)
        for name in [name for name in sys.modules if name.startswith(module)]:
            del sys.modules[name]


def test_it_has_every_abstract_method_and_its_name(backend):
    """Without one of them neither the backend nor its functions could be made."""
    assert backend.name == "mlx"
    assert not type(backend).__abstractmethods__
    functions = set(vars(type(backend.nn)))
    assert Primitives.__abstractmethods__ <= functions


@pytest.mark.parametrize(
    ("name", "settings", "shape"),
    [
        ("lenet", {"image_size": 16}, (1, 16, 16)),
        ("resnet8", {}, (1, 9, 9)),
        ("unet", {"features": (4, 4, 6, 6, 8, 4)}, (1, 32, 32)),
        ("lstm_classifier", {"hidden_size": 5}, None),
        ("deit_tiny_patch16_224", {"image_size": 32, "num_layers": 2}, (3, 32, 32)),
    ],
)
def test_outputs_of_networks_of_the_zoo_are_pytorchs(backend, name, settings, shape):
    networks = [
        zoo.build(name, backend=each, dtype="float64", seed=1, **settings).eval()
        for each in ("torch", backend)
    ]
    generator = np.random.default_rng(0)
    if shape is None:
        inputs = [
            entry.draw(generator, 3, "float64")
            for entry in zoo.find(name).inputs_for(**settings)
        ]
    else:
        inputs = [generator.normal(size=(3, *shape))]
    wanted, found = (
        network.backend.to_numpy(network(*network.backend.prepare(inputs, network)))
        for network in networks
    )
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [Contained, Moving, Small, Tied])
def test_names_kinds_and_start_values_are_pytorchs(backend, kind):
    wanted, found = (
        kind.on(each, seed=3, dtype="float64")() for each in ("torch", backend)
    )
    state = found.neutral_state()
    assert list(state) == list(wanted.neutral_state())
    np.testing.assert_equal(state, wanted.neutral_state())
    slots = found.neutral_slots()
    for name, slot in wanted.neutral_slots().items():
        assert slots[name].is_parameter == slot.is_parameter
        assert slots[name].trainable == slot.trainable


def test_it_imports_only_what_the_guide_names():
    missing = set()
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == (
                "deliralike"
            ):
                names = {node.module, *(name.name for name in node.names)}
                missing |= {
                    name for name in names if not re.search(rf"\b{name}\b", GUIDE)
                }
    assert not missing


def test_it_is_as_long_as_the_guide_says():
    count = 0
    for file in FILES:
        with file.open("rb") as lines:
            tokens = tokenize.tokenize(lines.readline)
            count += sum(token.type == tokenize.NEWLINE for token in tokens)
    assert f"{count} logical lines" in GUIDE
