"""Checks of small zoo networks: names and shapes as outlined, and gradients along directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike import zoo
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import Check, register
from deliralike.conformance.suite.comparing import (
    agree,
    dtype_of,
    equal,
    native,
    output,
    true,
    values,
)
from deliralike.conformance.suite.rows import fourth_order, weighted_sum

_TOKENS = np.random.default_rng(0).integers(1, 9, (2, 5))
_WIDE = {"vocab_size": 9, "num_classes": 3}
_MODELS: dict[str, tuple[dict[str, Any], np.ndarray]] = {
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


def _built(backend: Backend, name: str) -> Any:
    return zoo.build(name, backend=backend, seed=1, dtype=dtype_of(backend), **_MODELS[name][0])


def _as_outlined(name: str) -> Callable[[Backend], None]:
    settings, x = _MODELS[name]

    def function(backend: Backend) -> None:
        network = _built(backend, name)
        outline = zoo.outline(name, x.shape[1:], **settings)
        equal(f"{name}: number of parameters", network.count_parameters(), outline.parameters)
        found = output(backend, network.eval(), x)
        equal(f"{name}: shape of outputs", found.shape, (len(x), *outline.output[1:]))
        true(f"{name}: the outputs are finite", np.isfinite(found).all())

    return function


def _scalar(network: Any, x: Any) -> Any:
    """A sum of outputs with random weights."""
    y = network(x)
    weights = np.random.default_rng(3).standard_normal(tuple(y.shape))
    return weighted_sum(network.nn, [y], [weights])


def _slope(name: str) -> Callable[[Backend], None]:
    """Check the gradient against finite differences of the outputs, along a random direction."""
    x = _MODELS[name][1]

    def function(backend: Backend) -> None:
        network = _built(backend, name)
        found = backend.gradients(_scalar, network, x).parameters
        start = network.neutral_state()
        rng = np.random.default_rng(0)
        gradients = {key: g for key, g in found.items() if g is not None}
        direction = {key: rng.standard_normal(g.shape) for key, g in gradients.items()}

        def moved(by: float) -> float:
            state = {key: start[key] + by * step for key, step in direction.items()}
            network.load_neutral_state(start | state)
            with backend.evaluating():
                return backend.number(_scalar(network, native(backend, x)))

        slope = sum((gradients[key] * step).sum() for key, step in direction.items())
        agree(f"{name}: slope in a random direction", slope, fourth_order(moved, 1e-5), 1e-6)

    return function


for _name in _MODELS:
    register(Check("zoo", "L0", f"{_name} as outlined", _as_outlined(_name)))
    register(Check("zoo", "L1", f"gradient of {_name}", _slope(_name), ("float64",)))
