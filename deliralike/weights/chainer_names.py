"""Chainer's names: ``a/b/W`` for our ``a.b.weight``, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

SNAPSHOT = "updater/model:main/"  # where chainer.training.extensions.snapshot keeps the model
_LEAVES = {
    "W": "weight",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "avg_mean": "running_mean",
    "avg_var": "running_var",
    "N": "num_batches_tracked",
}
_BUFFERS = {"running_mean": "avg_mean", "running_var": "avg_var", "num_batches_tracked": "N"}
_OF_NORMS = {"weight": "gamma", "bias": "beta"}
_OF_OTHERS = {"weight": "W", "bias": "b"}


def neutral(names: list[str]) -> dict[str, str]:
    """Chainer's names in neutral form; any others as they are."""
    if any("." in name for name in names):
        return {name: name for name in names}
    return {name: _neutral_name(name) for name in names}


def renamed(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A neutral state under Chainer's names."""
    names = chainers(state)
    return {names[name]: value for name, value in state.items()}


def chainers(state: Mapping[str, Any]) -> dict[str, str]:
    """Neutral names as those that Chainer's own links save; what they have no name for keeps its own.

    Example:
        >>> chainers({"a.fc.weight": np.ones((2, 3)), "a.bn.weight": np.ones(2), "a.bn.running_var": np.ones(2)})
        {'a.fc.weight': 'a/fc/W', 'a.bn.weight': 'a/bn/gamma', 'a.bn.running_var': 'a/bn/avg_var'}
    """
    return {name: _chainers_name(name, state) for name in state}


def _neutral_name(name: str) -> str:
    *path, leaf = name.strip("/").split("/")
    return ".".join([*path, _LEAVES.get(leaf, leaf)])


def _chainers_name(name: str, state: Mapping[str, Any]) -> str:
    *path, leaf = name.split(".")
    beside = state.get(".".join([*path, "weight"]))
    leaves = _BUFFERS | (_OF_NORMS if beside is not None and np.ndim(beside) == 1 else _OF_OTHERS)
    return "/".join([*path, leaves.get(leaf, leaf)])
