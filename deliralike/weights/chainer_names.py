"""Chainer's names: ``a/b/W`` for our ``a.b.weight``, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.errors import StateError

_SNAPSHOT = "updater/model:main/"  # where chainer.training.extensions.snapshot keeps the model
_BESIDE_MODEL = ("updater/", "extensions/", "extension_triggers/", "stop_trigger/", "_")
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


def neutral(names: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Chainer's names with their neutral forms, and notes on what was done; any other names as they are.

    Of a trainer's snapshot the model is taken. Names of which two would become one are not Chainer's.

    Example:
        >>> neutral(["fc/W", "fc/b"])
        ({'fc/W': 'fc.weight', 'fc/b': 'fc.bias'}, ("names taken for Chainer's, such as 'fc/W' for 'fc.weight'",))
        >>> neutral(["W", "gamma"])
        ({'W': 'W', 'gamma': 'gamma'}, ())
    """
    bare, notes = _of_snapshot(names)
    if any("." in name for name in bare.values()):
        return bare, notes
    found = {name: _neutral_name(rest) for name, rest in bare.items()}
    changed = [name for name in bare if found[name] != bare[name]]
    if not changed or len(set(found.values())) < len(found):
        return bare, notes
    return found, (*notes, f"names taken for Chainer's, such as {changed[0]!r} for {found[changed[0]]!r}")


def _of_snapshot(names: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The model's names in a trainer's snapshot without what precedes them, and notes; all names where this is none."""
    model = [name for name in names if name.startswith(_SNAPSHOT)]
    beside = [name for name in names if name not in set(model)]
    strange = [name for name in beside if not name.startswith(_BESIDE_MODEL) or name.startswith("updater/model:")]
    if not model or strange:
        return {name: name for name in names}, ()
    note = f"a snapshot of Chainer's trainer: its model was taken, and {len(beside)} other entries left aside"
    return {name: name.removeprefix(_SNAPSHOT) for name in model}, (note,) if beside else ()


def renamed(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A neutral state under Chainer's names.

    Raises:
        StateError: Two names would become one.
    """
    names = chainers(state)
    theirs: dict[str, str] = {}
    for name, other in names.items():
        if theirs.setdefault(other, name) != name:
            raise StateError(f"{theirs[other]!r} and {name!r} would both be {other!r} under Chainer's names")
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
