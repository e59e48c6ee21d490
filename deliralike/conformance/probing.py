"""A batch and a loss for any network: what a comparison runs on when the user brings none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.findings import has_floats
from deliralike.conformance.kinds import Shape
from deliralike.network.base import AbstractNetwork
from deliralike.nn import start


def distance_loss(network: AbstractNetwork, *inputs: Any) -> Any:
    """The mean squared distance of each output of a network from normal numbers, added up.

    The numbers are drawn by the output's path and shape alone, and are the same for each sample. So
    the loss fits every network that gives floating arrays in any nest, depends on each of them, and
    is a mean over the batch.
    """
    return _distance(network, network(*inputs))  # type: ignore[operator]


def distance_loss_by_name(network: AbstractNetwork, inputs: Mapping[str, Any]) -> Any:
    """The loss `distance_loss` of a network that is called with inputs by name."""
    return _distance(network, network(**inputs))  # type: ignore[operator]


def _distance(network: AbstractNetwork, outputs: Any) -> Any:
    nn, terms = network.backend.nn, []
    for path, output in nest.leaves_with_paths(outputs, "output"):
        if has_floats(output):
            target = nn.constant(_drawn(path, tuple(output.shape[1:])), output)
            terms.append(nn.mean((output - target) * (output - target)))
    return sum(terms[1:], start=terms[0])


def _drawn(path: str, shape: Shape) -> np.ndarray:
    return np.random.Generator(
        np.random.Philox(key=start.key(0, path))
    ).standard_normal(shape)
