"""How a unit of one side lies in its partner: by values, else by what names say of layouts."""

from __future__ import annotations

import math

import numpy as np

from deliralike.weights.matching.layouts import (
    Transform,
    equal_under,
    flattenings,
    transforms,
)
from deliralike.weights.matching.pairing import ROLES, Side
from deliralike.weights.matching.parts import Shape, Unit, join, last

Layout = tuple[Transform, tuple[Transform, ...]]  # and others that would do as well


def layout(reference: Side, unit: Unit, candidate: Side, other: Unit) -> Layout:
    """How a unit lies in another one: by values, else by convolutions, else by names."""
    return (
        _by_values(reference, unit, candidate, other)
        or by_convolutions(reference, unit, candidate, other)
        or _by_names(unit, other)
    )


def _by_values(
    reference: Side, unit: Unit, candidate: Side, other: Unit
) -> Layout | None:
    found = same_layout(reference, unit, candidate, other)
    if found is None or not is_telling(reference.value(unit)):
        return None
    return found, ()


def by_convolutions(
    reference: Side, unit: Unit, candidate: Side, other: Unit
) -> Layout | None:
    """Between sides of which one has the channels last, pixels may be flattened otherwise.

    Of a file with the channels last `deliralike.weights.foreign_layouts` says so.
    """
    if reference.channels_last == candidate.channels_last:
        return None
    if candidate.channels_last and not candidate.kinds:
        is_general = len(unit.shape) == 2 < len(other.shape)
        return _general(unit, other) if is_general else None
    matrix = reference.tensors.get(join(unit.layer, "weight"))
    if unit.shape != other.shape or matrix is None or len(matrix.shape) != 2:
        return None
    as_it_is = transforms(unit.shape, other.shape)[0]
    before, after = _matrices(reference, unit)
    # of several heads
    beside = [shape for shape in before if shape[1:] != unit.shape[1:]]
    if len(unit.shape) == 2 and beside and len(beside[0]) > 2:
        columns = flattenings(unit.shape, beside[0][:1])[::-1]
        if columns:
            first = columns[candidate.channels_last]
            return first, (columns[reference.channels_last], as_it_is)
    if after and len(after[0]) > 2:  # the output becomes a picture
        rows = flattenings(unit.shape, after[0][:2], axis=0)[:2]
        if rows:
            return as_it_is, rows
    return None


def _by_names(unit: Unit, other: Unit) -> Layout:
    options = transforms(unit.shape, other.shape)
    first = options[0]
    layout = _known_layout(unit)
    other_layout = _known_layout(other)
    turned = [option for option in options if option.turned]
    if layout != other_layout and turned:
        first = turned[0]
    is_known = layout is not None and other_layout is not None
    if len(options) == 1 or is_known or len(unit.shape) < 2:
        return first, ()
    return first, _others(first, options)


def same_layout(
    reference: Side, unit: Unit, candidate: Side, other: Unit
) -> Transform | None:
    """Return the transform under which two units hold the same values.

    None without one.
    """
    options = transforms(unit.shape, other.shape)
    return equal_under(reference.value(unit), candidate.value(other), options)


def is_telling(value: np.ndarray) -> bool:
    """Whether a tensor's values are numbers and not all the same."""
    if value.size < 2 or not np.isfinite(value).all():
        return False
    return bool(np.ptp(value.astype(np.float64)) > 0)


def _general(unit: Unit, other: Unit) -> Layout | None:
    """How a matrix lies in a file's kernel of more axes: those of inputs before those of outputs.

    The file was read as if it were a convolution, so that its last two axes are the first ones.
    """
    options = transforms(unit.shape, other.shape)
    read = np.arange(math.prod(other.shape)).reshape(other.shape)
    kernel = np.moveaxis(read, (0, 1), (-1, -2))
    matrix = kernel.reshape(unit.shape[::-1]).T
    for option in options:
        if np.array_equal(option.inverse.apply(read), matrix):
            return option, _others(option, options)
    return None


def _others(chosen: Transform, options: tuple[Transform, ...]) -> tuple[Transform, ...]:
    """Return the transforms that move numbers otherwise than the chosen one."""
    return tuple(each for each in options if each.effect != chosen.effect)


def _matrices(side: Side, unit: Unit) -> tuple[list[Shape], list[Shape]]:
    """The shapes of the weights before a tensor, from the nearest on, and behind it."""
    before: list[Shape] = []
    after: list[Shape] = []
    found = before
    for name, shape in side.shapes.items():
        if name == unit.source:
            found = after
        elif len(shape) > 1:
            found.append(shape)
    return before[::-1], after


def _known_layout(unit: Unit) -> str | None:
    """What a tensor's name says of its layout; None where it says nothing."""
    leaf = last(unit.source)
    # flax's and Keras's word, where no known layer gives PyTorch's layout
    if leaf == "kernel":
        return "in, out"
    has_common_name = not unit.whole or unit.name != unit.source
    # every framework has a row of a table for each word
    if has_common_name or leaf in (*ROLES, "embedding"):
        return "out, in"
    # w and weights are kept in both ways
    return "out, in" if "weight" in leaf and leaf != "weights" else None
