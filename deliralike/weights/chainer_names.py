"""Conversion between Chainer's names (``a/b/W``) and neutral names (``a.b.weight``)."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from deliralike.errors import StateError

_SNAPSHOT = (
    "updater/model:main/"  # where chainer.training.extensions.snapshot keeps the model
)
_BESIDE_MODEL = ("updater/", "extensions/", "extension_triggers/", "stop_trigger/", "_")
_OF_NORMS = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "avg_mean",
    "running_var": "avg_var",
    "num_batches_tracked": "N",
}
_OF_OTHERS = _OF_NORMS | {"weight": "W", "bias": "b"}
LEAVES = {
    chainers_leaf: leaf
    for leaf, chainers_leaf in (*_OF_NORMS.items(), *_OF_OTHERS.items())
}


def neutral(names: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a neutral name for each of Chainer's names, and notes on what was done.

    Names that are not Chainer's stay as they are; so do names of which two would become one. Of a
    trainer's snapshot the model is taken.

    Example:
        >>> neutral(["fc/W", "fc/b"])
        ({'fc/W': 'fc.weight', 'fc/b': 'fc.bias'}, ("names taken for Chainer's, such as 'fc/W' for
        'fc.weight'",))
        >>> neutral(["W", "gamma"])
        ({'W': 'W', 'gamma': 'gamma'}, ())
    """
    bare, notes = _of_snapshot(names)
    if any("." in name for name in bare.values()):
        return bare, notes
    neutral_names = {}
    example = ""
    for name in _by_number(bare):
        bare_name = bare[name]
        neutral_names[name] = _neutral_name(bare_name)
        if not example and neutral_names[name] != bare_name:
            example = name
    are_unique = len(set(neutral_names.values())) == len(neutral_names)
    if not example or not are_unique:
        return bare, notes
    note = (
        f"names taken for Chainer's, such as {example!r} for {neutral_names[example]!r}"
    )
    return neutral_names, (*notes, note)


def _by_number(names: Collection[str]) -> list[str]:
    """Return names with those that differ in a last number in its order, in the same places.

    A link has a set of parameters, whose order in a file differs from run to run.

    Example:
        >>> _by_number(["0/w1", "0/b1", "0/w0", "0/b0"])
        ['0/w0', '0/b0', '0/w1', '0/b1']
    """
    groups = defaultdict(list)
    stems = [name.rstrip("0123456789") for name in names]
    for stem, name in zip(stems, names, strict=True):
        groups[stem].append(name)
    rising = {}
    for stem, group in groups.items():
        rising[stem] = iter(sorted(group, key=lambda name: (len(name), name)))
    return [next(rising[stem]) for stem in stems]


def _of_snapshot(names: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the names of a snapshot's model without their prefix, and notes.

    If the names are not those of a trainer's snapshot, all are returned as they are.
    """
    bare = {}
    others = []
    for name in names:
        if name.startswith(_SNAPSHOT):
            bare[name] = name.removeprefix(_SNAPSHOT)
        else:
            others.append(name)
    if not bare or not all(map(_is_beside_model, others)):
        return {name: name for name in names}, ()
    if not others:
        return bare, ()
    note = (
        f"a snapshot of Chainer's trainer: its model was taken, and {len(others)} other entries "
        "left aside"
    )
    return bare, (note,)


def _is_beside_model(name: str) -> bool:
    return name.startswith(_BESIDE_MODEL) and not name.startswith("updater/model:")


def renamed(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a neutral state under the names that Chainer's own links save; others stay.

    Raises:
        StateError: Two names would become one.

    Example:
        >>> state = {"a.fc.weight": np.ones((2, 3)), "bn.weight": np.ones(2), "bn.bias": np.ones(2)}
        >>> list(renamed(state))
        ['a/fc/W', 'bn/gamma', 'bn/beta']
    """
    neutral_of: dict[str, str] = {}
    for name in state:
        chainers_name = _chainers_name(name, state)
        first = neutral_of.setdefault(chainers_name, name)
        if first != name:
            raise StateError(
                f"{first!r} and {name!r} would both be {chainers_name!r} under Chainer's names"
            )
    return {chainers_name: state[name] for chainers_name, name in neutral_of.items()}


def _neutral_name(name: str) -> str:
    *path, leaf = name.strip("/").split("/")
    return ".".join([*path, LEAVES.get(leaf, leaf)])


def _chainers_name(name: str, state: Mapping[str, Any]) -> str:
    *path, leaf = name.split(".")
    weight, bias, statistic = (
        ".".join([*path, each]) for each in ("weight", "bias", "running_var")
    )
    is_vector = weight in state and np.ndim(state[weight]) == 1
    # A PReLU has a vector alone.
    is_norm = statistic in state or (is_vector and bias in state)
    names = _OF_NORMS if is_norm else _OF_OTHERS
    return "/".join([*path, names.get(leaf, leaf)])
