"""Nests of arrays that a network is given or gives: copied, exchanged, weighted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.findings import has_floats, is_array, is_floating
from deliralike.conformance.kinds import Shape
from deliralike.network.base import AbstractNetwork

Arrays = list[
    Any
]  # the leaves of a nest that are arrays, None in the places of the others


class SlotName(str):
    """In the place of an argument that is a parameter or buffer of the network: its name."""

    __slots__ = ()


class Setting:
    """A plain argument of a native function: one leaf, whatever it is.

    Settings show in what a function gives. They are not compared, as an axis is another one where
    channels are last, and they have no part in how arrays are matched. (It is no dataclass, which
    would be a nest.)
    """

    def __init__(self, value: Any) -> None:
        """Hold a value."""
        self.value = value


def bare(values: Any) -> Any:
    """Return a nest with plain values in the place of settings."""
    return nest.map(
        lambda leaf: leaf.value if isinstance(leaf, Setting) else leaf, values
    )


def copied(network: AbstractNetwork, values: Any) -> Any:
    """A nest with copies of its arrays, which code that writes in place leaves alone."""
    backend = network.backend
    slot_names = slot_names_by_id(network)

    def leaf(value: Any) -> Any:
        if id(value) in slot_names:
            return slot_names[id(value)]
        return backend.copied(value) if backend.is_array(value) else value

    return nest.map(leaf, values)


def slot_names_by_id(network: AbstractNetwork) -> dict[int, SlotName]:
    """The parameters and buffers of a network by identity."""
    return {
        id(slot.native): SlotName(name)
        for name, slot in network.neutral_slots().items()
    }


def changed(
    network: AbstractNetwork,
    values: Any,
    arrays: Arrays,
    change: Callable[[Any, Any], Any],
) -> Any:
    """Return a nest with ``change(leaf, array)`` where there is an array.

    A nest of another structure stays as it is.
    """
    leaves, structure = nest.flatten(values)
    if len(leaves) != len(arrays):
        return values
    slot_names = slot_names_by_id(network)
    for place, array in enumerate(arrays):
        if array is not None and id(leaves[place]) not in slot_names:
            leaves[place] = change(leaves[place], array)
    return nest.unflatten(structure, leaves)


def same_objects(network: AbstractNetwork, values: Any) -> Shape:
    """Return for each leaf the position of the first leaf that is the same array.

    A plain value has its own position.
    """
    first: dict[int, int] = {}
    found = []
    for position, leaf in enumerate(nest.leaves(values)):
        if network.backend.is_array(leaf):
            position = first.setdefault(id(leaf), position)
        found.append(position)
    return tuple(found)


def tied(values: Any, same: Shape) -> Any:
    """Return a nest in which leaves that should be one object are one.

    A nest of another structure stays as it is.
    """
    leaves, structure = nest.flatten(values)
    if len(leaves) != len(same):
        return values
    return nest.unflatten(structure, [leaves[position] for position in same])


def instead(own: Any, given: Any) -> Any:
    """Return a given array in the place of another; a floating one as a new array.

    So code may write into it in place.

    One with more or fewer axes is reshaped, as where one side flattens before a layer and the other
    within it. Where that cannot be, its own stays: what follows could not go on with the given one.
    """
    shape = tuple(getattr(own, "shape", ()))
    if len(shape) != len(given.shape):
        if len(shape) == 2 < len(given.shape) and shape[0] == given.shape[0]:
            given = given.reshape((shape[0], -1))
        elif shape and _have_like_shapes(own, given):
            given = given.reshape(shape)
        else:
            return own
    return given + 0.0 if has_floats(given) else given


def weighted(network: AbstractNetwork, values: Any, weights: Arrays) -> Any:
    """Return the sum of a nest's arrays times weights.

    It is 0.0 where there are none, or weights of other sizes.
    """
    nn, slot_names = network.backend.nn, slot_names_by_id(network)
    leaves = nest.leaves(values)
    if len(leaves) != len(weights):
        return 0.0
    total: Any = None
    for x, weight in zip(leaves, weights, strict=True):
        if weight is None or id(x) in slot_names or not _have_like_shapes(x, weight):
            continue
        part = nn.sum(x * nn.stop_gradient(weight.reshape(x.shape)))
        total = part if total is None else total + part
    return 0.0 if total is None else total


def _have_like_shapes(own: Any, given: Any) -> bool:
    """Whether two arrays have one shape, or as many elements on more or fewer axes."""
    expected, actual = tuple(getattr(own, "shape", ())), tuple(given.shape)
    return expected == actual or (
        len(expected) != len(actual) and math.prod(expected) == math.prod(actual)
    )


def scalar(network: AbstractNetwork, output: Any, weight: Arrays | None) -> Any:
    """What a run is differentiated by: the output itself, or its sum with weights."""
    return output if weight is None else weighted(network, output, weight)


def arrays_of(values: Any) -> Arrays:
    """The leaves of a nest of NumPy arrays, without what is no array."""
    return [leaf if is_array(leaf) else None for leaf in nest.leaves(values)]


def weights_of(cotangent: Any) -> Arrays | None:
    """The same of a cotangent, if there is one."""
    return None if cotangent is None else arrays_of(cotangent)


def zeros_of(values: Any) -> Arrays:
    """Zeros like the floating arrays of a nest."""
    return [
        np.zeros_like(leaf) if is_floating(leaf) else None
        for leaf in nest.leaves(values)
    ]
