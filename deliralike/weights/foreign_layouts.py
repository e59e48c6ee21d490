"""What a file with the channels last leaves open: arrays whose meaning their shapes do not tell.

Kernels lie in a file as their framework defines them. Two things follow from what feeds the layer,
or from a setting, and neither is in the file: the order in which pixels and channels were
flattened, and whether the kernel of a transposed convolution is turned around.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike.errors import StateError, listed
from deliralike.network.core import NetworkCore, unwrap
from deliralike.terminal import log
from deliralike.weights.matching.layouts import flattenings
from deliralike.weights.matching.naming import bare
from deliralike.weights.reading import Contents

_MOST_SHOWN = 4
_KINDS = ("conv", "linear")


@dataclass(frozen=True)
class Doubt:
    """An array that may lie otherwise than its shape says.

    Attributes:
        words: What is not known.
        usual: Returns the array as the framework's usual layout gives it.
    """

    words: str
    usual: Callable[[np.ndarray], np.ndarray]


def doubts(network: Any, contents: Contents) -> dict[str, Doubt]:
    """Return what is not known of a file's arrays in a network, by the network's names.

    Nothing is open in a file with the channels first, and in the network of a framework's own,
    which means by a layout what its file does.
    """
    is_native = not isinstance(unwrap(network), NetworkCore)
    if not contents.channels_last or is_native:
        return {}
    kinds = {path: bare(type(block).__name__) for path, block in network.named_blocks()}
    shapes = {}
    for name, slot in network.neutral_slots().items():
        kind = kinds.get(name.rpartition(".")[0], "")
        if name.endswith("weight") and kind.startswith(_KINDS):
            shapes[name] = (kind, tuple(slot.shape))
    found = _columns(shapes) | _rows(shapes)
    for name, (kind, _) in shapes.items():
        if kind.startswith("convtranspose"):
            found[name] = Doubt(
                "flax turns it around unless transpose_kernel is set", _turned
            )
    return found


def settled(
    network: Any,
    contents: Contents,
    state: Mapping[str, Any],
    guess: bool,
    kernels: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Return a state under the network's names with what is open as the framework usually has it.

    Args:
        guess: Whether this is done, and logged for each array.
        kernels: Arrays as they lie in the file, where those of the state were matched by shape.

    Raises:
        StateError: Something is open, and nothing is guessed.
    """
    found = {}
    for name, doubt in doubts(network, contents).items():
        if name in state:
            found[name] = doubt
    source = contents.kind
    if found and not guess:
        doubted = [f"{name} ({doubt.words})" for name, doubt in found.items()]
        raise StateError(
            f"{source} does not say how some arrays lie, and nothing was loaded: "
            f"{listed(doubted, _MOST_SHOWN)}. Take what the framework does usually by "
            "guess=True in weights.load or zoo.load, and compare outputs with those of the original"
        )
    usual = dict(state)
    in_file = {**state, **(kernels or {})}
    for name, doubt in found.items():
        words = f"{source}: a guess, {name} is taken as usual: {doubt.words}"
        log(logging.WARNING, words)
        usual[name] = doubt.usual(np.asarray(in_file[name]))
    return usual


Shapes = Mapping[str, tuple[str, tuple[int, ...]]]


def _columns(shapes: Shapes) -> dict[str, Doubt]:
    """Return the matrices behind a convolution that may take its pixels in an order of their own.

    A matrix that takes as many numbers as the one before it gives is fed by that one, as far as
    shapes tell.
    """
    found = {}
    channels = former = 0
    flattened: set[int] = set()
    for name, (kind, shape) in shapes.items():
        if len(shape) > 2:
            channels = shape[kind.startswith("convtranspose")]
            former = 0
            flattened.clear()
            continue
        rows, columns = shape
        follows = columns == former
        former = rows
        if channels and columns > channels and columns % channels == 0:
            if follows and columns not in flattened:
                continue
            flattened.add(columns)
            usual = (
                np.asarray if follows else partial(_swapped, channels=channels, axis=1)
            )
            found[name] = Doubt(
                f"its {columns} inputs may be pixels of {channels} channels", usual
            )
        elif columns == channels:
            channels = 0  # its pixels were averaged
    return found


def _rows(shapes: Shapes) -> dict[str, Doubt]:
    """Return the matrices, and their biases, in front of a convolution of fewer channels."""
    found = {}
    former = ""
    for name, (kind, shape) in shapes.items():
        if len(shape) > 2 and former:
            channels = shape[not kind.startswith("convtranspose")]
            rows = shapes[former][1][0]
            if rows > channels > 1 and rows % channels == 0:
                doubt = Doubt(
                    f"its {rows} outputs may be pixels of {channels} channels",
                    partial(_swapped, channels=channels, axis=0),
                )
                found[former] = doubt
                found[f"{former.removesuffix('weight')}bias"] = doubt
        former = name if len(shape) == 2 else ""
    return found


def _swapped(array: np.ndarray, channels: int, axis: int) -> np.ndarray:
    """Return an array with an axis of pixels and channels turned to channels and pixels."""
    changes = flattenings(array.shape, [channels], axis)
    return changes[1].apply(array) if changes else array


def _turned(array: np.ndarray) -> np.ndarray:
    """Return the kernel of a transposed convolution of flax, which came as ``(out, in, *size)``."""
    sizes = tuple(range(2, array.ndim))
    return np.ascontiguousarray(np.flip(array.swapaxes(0, 1), sizes))
