"""Mutants of transferred weights: layouts, orders, names, precision, ties and missing tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.planted import Mistake
from tests.planted.planting import Plant, State, on_copy, with_weights

Change = Callable[[np.ndarray], np.ndarray]


def _changed(name: str, change: Change) -> Plant:
    """One tensor is changed."""
    return with_weights(lambda state: state | {name: np.ascontiguousarray(change(state[name]))})


def _all_changed(change: Change) -> Plant:
    """All floating tensors are changed."""
    return with_weights(
        lambda state: {n: change(v) if v.dtype.kind == "f" else v for n, v in state.items()}
    )


def _exchanged(first: str, second: str) -> Plant:
    """Two tensors, or the tensors of two blocks, are exchanged."""

    def change(state: State) -> State:
        pairs = [
            (name, second + name.removeprefix(first)) for name in state if name.startswith(first)
        ]
        swapped = {one: state[two] for one, two in pairs} | {two: state[one] for one, two in pairs}
        return state | swapped

    return with_weights(change)


def _copied(source: str, target: str) -> Plant:
    """One tensor was taken over twice, the other never."""
    return with_weights(lambda state: state | {target: state[source]})


def _blocks(*order: int) -> Change:
    """Blocks of rows in another order."""
    return lambda value: np.concatenate([np.split(value, len(order))[block] for block in order])


def _rounded(dtype: str) -> Change:
    return lambda value: value.astype(dtype).astype(value.dtype)


def _short_mantissa(value: np.ndarray) -> np.ndarray:
    """bfloat16: the upper half of a float32."""
    bits = value.astype(np.float32).view(np.uint32)
    return ((bits + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32).astype(value.dtype)


def _eight_bits(value: np.ndarray) -> np.ndarray:
    """One of 255 steps between the smallest and the largest."""
    largest = np.abs(value).max(initial=1e-12)
    return np.round(value / largest * 127.0) * (largest / 127.0)


def _one_off(value: np.ndarray) -> np.ndarray:
    """The first element is off by a millionth."""
    value = value.copy()
    value.flat[0] *= 1.0 + 1e-6
    return value


def _one_zero(value: np.ndarray) -> np.ndarray:
    value = value.copy()
    value.flat[-1] = 0.0
    return value


def _untied(network: Any) -> None:
    """The head's table has the same values, and is its own."""
    network.head = copy.deepcopy(network.head)


def _frozen(network: Any) -> None:
    network.set_trainable("square.weight", False)


def _weight(
    name: str, parameter: str, plant: Plant, *cause: str, fixture: str, place: Sequence[str] = ()
) -> Mistake:
    block = parameter.rpartition(".")[0]
    return Mistake(
        f"{parameter}: {name}", "weights", plant, (parameter, block, *place), cause, fixture
    )


def _one(name: str, parameter: str, change: Change, *cause: str, fixture: str) -> Mistake:
    return _weight(name, parameter, _changed(parameter, change), *cause, fixture=fixture)


def _every(name: str, change: Change, *cause: str) -> Mistake:
    places = ("weight", "bias", "running", "conv", "norm", "fc", "grouped")
    return Mistake(
        f"all weights: {name}", "weights", _all_changed(change), places, cause, "convolutional"
    )


MISTAKES = [
    _one("transposed", "square.weight", lambda v: v.T, "transpos", fixture="tied"),
    _one(
        "rows in the reverse order",
        "fc.weight",
        lambda v: v[::-1],
        "order",
        "permut",
        "revers",
        "rows",
        fixture="convolutional",
    ),
    _one(
        "two rows exchanged",
        "fc.weight",
        lambda v: v[[1, 0, 2, 3, 4]],
        "order",
        "permut",
        "rows",
        fixture="convolutional",
    ),
    _one(
        "columns in NHWC order",
        "fc.weight",
        lambda v: v.reshape(5, 6, 3, 2).transpose(0, 2, 3, 1).reshape(5, 36),
        "order",
        "permut",
        "NHWC",
        "columns",
        fixture="convolutional",
    ),
    _one(
        "rows in the reverse order",
        "fc.bias",
        lambda v: v[::-1],
        "order",
        "permut",
        "revers",
        fixture="convolutional",
    ),
    _one("flipped", "conv.weight", lambda v: v[:, :, ::-1, ::-1], "flip", fixture="convolutional"),
    _one(
        "kernels transposed",
        "conv.weight",
        lambda v: v.swapaxes(2, 3),
        "transpos",
        fixture="convolutional",
    ),
    _one(
        "channels in BGR",
        "conv.weight",
        lambda v: v[:, ::-1],
        "order",
        "permut",
        "channel",
        "BGR",
        "revers",
        fixture="convolutional",
    ),
    _one(
        "input and output channels exchanged",
        "up.weight",
        lambda v: v.swapaxes(0, 1),
        "transpos",
        "channel",
        fixture="resizing",
    ),
    _one("flipped", "up.weight", lambda v: v[:, :, ::-1, ::-1], "flip", fixture="resizing"),
    _one(
        "reshaped, not transposed",
        "square.weight",
        lambda v: v.reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4),
        "order",
        "permut",
        "reshap",
        fixture="tied",
    ),
    _one("zero", "conv.bias", np.zeros_like, "zero", fixture="convolutional"),
    _one("zero", "fc.bias", np.zeros_like, "zero", fixture="convolutional"),
    _one("ones", "norm.weight", np.ones_like, "one", "start", "fresh", fixture="convolutional"),
    _one("zero", "norm.bias", np.zeros_like, "zero", "start", "fresh", fixture="convolutional"),
    _one(
        "forgotten",
        "norm.running_mean",
        np.zeros_like,
        "zero",
        "start",
        "fresh",
        fixture="convolutional",
    ),
    _one(
        "forgotten",
        "norm.running_var",
        np.ones_like,
        "one",
        "start",
        "fresh",
        fixture="convolutional",
    ),
    _one("its root", "norm.running_var", np.sqrt, "root", "deviation", fixture="convolutional"),
    _one("its inverse", "norm.running_var", lambda v: 1.0 / v, "inverse", fixture="convolutional"),
    _one("the sign", "fc.weight", lambda v: -v, "sign", "factor", "scale", fixture="convolutional"),
    _one(
        "a thousandth more",
        "fc.weight",
        lambda v: v * 1.001,
        "factor",
        "scale",
        fixture="convolutional",
    ),
    _one(
        "a millionth of one element", "grouped.weight", _one_off, "element", fixture="convolutional"
    ),
    _one("one element zero", "fc.weight", _one_zero, "element", fixture="convolutional"),
    _one(
        "noise of 1e-7",
        "conv.weight",
        lambda v: v + 1e-7 * np.cos(np.arange(v.size)).reshape(v.shape),
        "noise",
        "round",
        fixture="convolutional",
    ),
    _one(
        "groups exchanged",
        "grouped.weight",
        _blocks(1, 0),
        "order",
        "permut",
        "group",
        fixture="convolutional",
    ),
    _one(
        "rows moved on by one",
        "embedding.weight",
        lambda v: np.roll(v, 1, 0),
        "order",
        "permut",
        "shift",
        "rows",
        fixture="attention",
    ),
    _one(
        "its padding row zero",
        "embedding.weight",
        lambda v: np.vstack([v[:1] * 0.0, v[1:]]),
        "zero",
        "padding",
        "row",
        fixture="recurrent",
    ),
    _one(
        "queries and keys exchanged",
        "attention.in_proj_weight",
        _blocks(1, 0, 2),
        "order",
        "permut",
        "block",
        fixture="attention",
    ),
    _one(
        "heads interleaved",
        "attention.in_proj_weight",
        lambda v: v.reshape(3, 2, 3, 6).swapaxes(1, 2).reshape(18, 6),
        "order",
        "permut",
        "interleav",
        fixture="attention",
    ),
    _one("zero", "attention.in_proj_bias", np.zeros_like, "zero", fixture="attention"),
    _one("transposed", "attention.out_proj.weight", lambda v: v.T, "transpos", fixture="attention"),
    _one(
        "gates i, f, o, g",
        "lstm.weight_hh_l0",
        _blocks(0, 1, 3, 2),
        "order",
        "permut",
        "gate",
        "block",
        fixture="recurrent",
    ),
    _one(
        "gates g, i, f, o",
        "lstm.weight_ih_l0",
        _blocks(2, 0, 1, 3),
        "order",
        "permut",
        "gate",
        "block",
        fixture="recurrent",
    ),
    _one(
        "gates interleaved",
        "lstm.weight_ih_l0_reverse",
        lambda v: v.reshape(4, 3, -1).swapaxes(0, 1).reshape(12, -1),
        "order",
        "permut",
        "interleav",
        "gate",
        fixture="recurrent",
    ),
    _one(
        "gates z, r, n",
        "gru.weight_ih_l0",
        _blocks(1, 0, 2),
        "order",
        "permut",
        "gate",
        "block",
        fixture="recurrent",
    ),
    _one(
        "forget gate's one more",
        "lstm.bias_ih_l0",
        lambda v: v + np.repeat([0.0, 1.0, 0.0, 0.0], 3),
        "bias",
        "forget",
        "one",
        fixture="recurrent",
    ),
    _one(
        "weight norm's scale lost",
        "square.weight",
        lambda v: v / np.linalg.norm(v, axis=1, keepdims=True),
        "norm",
        "scale",
        fixture="tied",
    ),
    _weight(
        "exchanged with the bias",
        "norm.running_mean",
        _exchanged("norm.running_mean", "norm.bias"),
        "exchanged",
        "swapped",
        fixture="convolutional",
    ),
    _weight(
        "exchanged with other",
        "square.weight",
        _exchanged("square.weight", "other.weight"),
        "exchanged",
        "swapped",
        "other",
        fixture="tied",
        place=("other",),
    ),
    _weight(
        "both tensors exchanged with other",
        "square.bias",
        _exchanged("square.", "other."),
        "exchanged",
        "swapped",
        "other",
        fixture="tied",
        place=("other",),
    ),
    _weight(
        "other's",
        "square.weight",
        _copied("other.weight", "square.weight"),
        "other",
        "copy",
        "twice",
        fixture="tied",
    ),
    _weight(
        "exchanged with bn2",
        "block2.bn1.weight",
        _exchanged("block2.bn1.", "block2.bn2."),
        "exchanged",
        "swapped",
        "bn2",
        fixture="residual",
        place=("bn2",),
    ),
    _weight(
        "exchanged with that of the hidden state",
        "gru.bias_ih_l0",
        _exchanged("gru.bias_ih_l0", "gru.bias_hh_l0"),
        "exchanged",
        "swapped",
        fixture="recurrent",
        place=("gru",),
    ),
    _weight(
        "directions exchanged",
        "lstm.weight_hh_l0",
        _exchanged("lstm.weight_hh_l0_reverse", "lstm.weight_hh_l0"),
        "exchanged",
        "swapped",
        "direction",
        fixture="recurrent",
    ),
    _weight(
        "untied",
        "head.weight",
        on_copy(_untied),
        "tied",
        "gradient",
        fixture="tied",
        place=("embedding",),
    ),
    _weight(
        "frozen",
        "square.weight",
        on_copy(_frozen),
        "frozen",
        "gradient",
        "trainable",
        fixture="tied",
    ),
    _every("rounded to float32", _rounded("float32"), "float32", "round"),
    _every("rounded to float16", _rounded("float16"), "float16", "round"),
    _every("rounded to bfloat16", _short_mantissa, "bfloat16", "round"),
    _every("in eight bits", _eight_bits, "8", "quanti", "round"),
]
