"""Checks of small zoo networks: names and shapes as outlined, and gradients along directions."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike import zoo
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    dtype_of,
    equal,
    native,
    output,
    values,
)
from deliralike.conformance.suite.rows import fourth_order, weighted_sum

_TOKENS = np.random.default_rng(0).integers(1, 9, (2, 5))
_WIDE = {"vocab_size": 9, "num_classes": 3}
_RECURRENT = {"in_features": 3, "hidden_size": 4, "bidirectional": True}
_ATTENTION = {"d_model": 4, "nhead": 2, "num_layers": 1, "dim_feedforward": 6, "dropout": 0.0}


def _scalar(network: Any, x: Any) -> Any:
    """A sum of outputs with random weights."""
    y = network(x)
    weights = np.random.default_rng(3).standard_normal(tuple(y.shape))
    return weighted_sum(network.nn, [y], [weights])


for _name, _settings, _x in (
    ("unet", {"features": (2, 3, 2)}, values(2, 1, 5, 7)),
    ("gru_classifier", _WIDE | _RECURRENT, _TOKENS),
    ("transformer_classifier", _WIDE | _ATTENTION, _TOKENS),
):

    def _built(backend: Backend, name: str = _name, settings: Any = _settings) -> Any:
        return zoo.build(name, backend=backend, seed=1, dtype=dtype_of(backend), **settings)

    @check("zoo", "L0", name=f"{_name} as outlined")
    def as_outlined(
        backend: Backend,
        name: str = _name,
        settings: Any = _settings,
        x: Any = _x,
        built: Any = _built,
    ) -> None:
        """As many parameters and outputs of the shape that the outline says."""
        network, outline = built(backend), zoo.outline(name, x.shape[1:], **settings)
        equal(f"{name}: number of parameters", network.count_parameters(), outline.parameters)
        found = output(backend, network.eval(), x)
        equal(f"{name}: shape of outputs", found.shape, (len(x), *outline.output[1:]))

    @check("zoo", "L1", "float64", name=f"gradient of {_name}")
    def slope(backend: Backend, name: str = _name, x: Any = _x, built: Any = _built) -> None:
        """The gradient equals finite differences of the outputs, along a random direction."""
        network, rng = built(backend), np.random.default_rng(0)
        found = backend.gradients(_scalar, network, x).parameters
        start = network.neutral_state()
        gradients = {key: g for key, g in found.items() if g is not None}
        direction = {key: rng.standard_normal(g.shape) for key, g in gradients.items()}

        def moved(by: float) -> float:
            state = {key: start[key] + by * step for key, step in direction.items()}
            network.load_neutral_state(state, strict=False)
            with backend.evaluating():
                return backend.number(_scalar(network, native(backend, x)))

        slope = sum(np.vdot(gradients[key], step) for key, step in direction.items())
        agree(f"{name}: slope in a random direction", slope, fourth_order(moved, 1e-5), 1e-6)
