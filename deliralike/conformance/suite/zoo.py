"""Checks of small zoo networks: names and shapes as outlined, and gradients along directions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike import zoo
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import Check, register
from deliralike.conformance.suite.comparing import agree, dtype_of, equal, native, values

_STEP = 1e-4  # along a direction of length one
_LIMIT = 1e-6
_TOKENS = np.random.default_rng(0).integers(1, 9, (2, 5))
_WIDE = {"vocab_size": 9, "num_classes": 3}
MODELS: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "mlp": ({"in_features": 5, "out_features": 3, "hidden": (4,)}, values(3, 5)),
    "unet": ({"features": (2, 3, 2)}, values(2, 1, 5, 7)),
    "gru_classifier": (
        {**_WIDE, "in_features": 3, "hidden_size": 4, "bidirectional": True},
        _TOKENS,
    ),
    "transformer_classifier": (
        {**_WIDE, "d_model": 4, "nhead": 2, "num_layers": 1, "dim_feedforward": 6, "dropout": 0.0},
        _TOKENS,
    ),
}


def _built(backend: Backend, name: str, seed: int = 1) -> Any:
    return zoo.build(name, backend=backend, seed=seed, dtype=dtype_of(backend), **MODELS[name][0])


def _as_outlined(name: str) -> Callable[[Backend], None]:
    def function(backend: Backend) -> None:
        settings, x = MODELS[name]
        network = _built(backend, name)
        outline = zoo.outline(name, x.shape[1:], **settings)
        sizes = {
            path: math.prod(slot.shape)
            for path, slot in network.neutral_slots().items()
            if slot.is_parameter
        }
        equal(f"{name}: number of parameters", sum(sizes.values()), outline.parameters)
        for row in outline.rows:
            own = sum(size for path, size in sizes.items() if path.rpartition(".")[0] == row.name)
            equal(f"{name}: parameters of {row.name!r}", own, row.parameters)
        output = backend.numpy(network.eval()(native(backend, x)))
        equal(f"{name}: shape of outputs", output.shape, (len(x), *outline.output[1:]))
        equal(f"{name}: finite outputs", bool(np.isfinite(output).all()), True)

    return function


def _scalar(network: Any, x: Any) -> Any:
    """A sum of outputs with random weights."""
    y, nn = network(x), network.nn
    weights = np.random.default_rng(3).standard_normal(tuple(y.shape))
    return nn.sum(y * nn.constant(weights, like=y))


def _slopes(name: str) -> Callable[[Backend], None]:
    """Check the gradient against finite differences of the outputs, along two random directions."""

    def function(backend: Backend) -> None:
        network, x = _built(backend, name), MODELS[name][1]
        found = backend.gradients(_scalar, network, x).parameters
        start = network.neutral_state()

        def at(direction: dict[str, np.ndarray], by: int) -> float:
            network.load_neutral_state(
                start | {key: start[key] + by * _STEP * d for key, d in direction.items()}
            )
            with backend.evaluating():
                return backend.number(_scalar(network, native(backend, x)))

        for seed in (0, 1):
            direction = _direction(
                {key: g.shape for key, g in found.items() if g is not None}, seed
            )
            slope = sum(float((found[key] * d).sum()) for key, d in direction.items())
            moved = [at(direction, by) for by in (-2, -1, 1, 2)]
            wanted = (moved[0] - 8.0 * moved[1] + 8.0 * moved[2] - moved[3]) / (12.0 * _STEP)
            agree(
                f"{name}: slope of the outputs along random direction {seed}",
                np.array(slope),
                np.array(wanted),
                _LIMIT,
            )

    return function


def _direction(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Random arrays of a joint length of one."""
    rng = np.random.default_rng(seed)
    drawn = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    length = math.sqrt(sum(float((array**2).sum()) for array in drawn.values()))
    return {name: array / length for name, array in drawn.items()}


for _name in MODELS:
    register(Check("zoo", "L0", f"{_name} as outlined", _as_outlined(_name)))
    register(Check("zoo", "L1", f"gradient of {_name}", _slopes(_name), ("float64",)))
