"""Conventions of convolution, pooling and resizing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deliralike.conformance.explain import changes
from deliralike.conformance.explain.arguments import called
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    array,
    changing,
    instead,
    rules,
    setting,
    values,
)
from deliralike.conformance.kinds import Named
from deliralike.nn import geometry
from deliralike.nn.geometry import Pads

_MODES = {"constant": "zeros"} | {
    mode: f"{mode} padding" for mode in geometry.PADDING_INDEX
}


# Padding by itself, before windows that have none
# -----------------------------------------------------------------------------


def _before(nn: Any, given: Arguments, how: tuple[Any, ...]) -> Arguments:
    """What is padded by a rule, and no padding of the formula's own."""
    own = {"padding": 0, "padding_mode": "zeros", "ceil_mode": False}
    return {"x": nn.pad(given["x"], *how), **own}


_PADDED = changing(_before)


def _paddings(
    given: Arguments, pads: Pads, window: Sequence[Sequence[int]]
) -> dict[str, Pads]:
    """Other padding by its words; SAME is TensorFlow's."""
    same = tuple(map(_same, given["x"].shape[2:], *window))
    found = {f"asymmetric SAME {same}": same}
    for other in range(4):
        found[str(other)] = ((other, other),) * len(pads)
    return {words: other for words, other in found.items() if other != pads}


def _same(n: int, k: int, s: int, d: int) -> tuple[int, int]:
    """The least padding that gives ``ceil(size / stride)`` windows; an odd element goes after."""
    total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
    return total // 2, total - total // 2


# Convolution
# -----------------------------------------------------------------------------


def _settings(given: Arguments) -> tuple[Any, Any, Any, Pads]:
    """Kernel, strides, dilations and paddings of a convolution, for each axis."""
    kernel = given["weight"].shape[2:]
    stride, dilation = (
        geometry.per_axis(given[name], len(kernel), name)
        for name in ("stride", "dilation")
    )
    pads = geometry.conv_padding(given["padding"], kernel, stride, dilation)
    return kernel, stride, dilation, pads


def convolved(nn: Any, given: Arguments) -> Any:
    """A convolution, also of an input that is padded by another rule than with zeros."""
    mode = given.get("padding_mode", "zeros")
    if mode != "zeros":
        given = {**given, **_before(nn, given, (_settings(given)[-1], mode))}
    return called("conv", nn, given)


def convolution(given: Arguments) -> list[Convention]:
    """Paddings, kernels, dilations, strides and orders of channels."""
    weight = given["weight"]
    kernel, stride, dilation, pads = _settings(given)
    others = _paddings(given, pads, (kernel, stride, dilation))
    padded = {words: (other,) for words, other in others.items()}
    modes = {}
    if np.any(pads):
        modes = {words: (pads, mode) for mode, words in _MODES.items()}
    mode = given.get("padding_mode", "zeros")
    return [
        Convention("padding", padded, _PADDED, pads),
        array("kernel", "weight", {"flipped": changes.flipped(*range(2, weight.ndim))}),
        Convention("padding mode", modes, _PADDED, _MODES.get(mode, mode)),
        setting("stride", (1, 2, 3, 4), usual=stride[0]),
        setting("dilation", (1, 2, 3), usual=dilation[0]),
    ]


def transposed_convolution(given: Arguments) -> list[Convention]:
    """Kernels not flipped, and other settings."""
    n = given["weight"].ndim - 2
    turned = changes.flipped(*range(2, n + 2))
    found = [array("transposed kernel", "weight", {"not flipped": turned})]
    for name in ("output_padding", "padding", "stride"):
        usual = geometry.per_axis(given[name], n, name)[0]
        found.append(
            setting(name, (1, 2, 3) if name == "stride" else (0, 1, 2, 3), usual=usual)
        )
    return found


# Pooling
# -----------------------------------------------------------------------------


def _pool_paddings(given: Arguments) -> tuple[Pads, dict[str, Pads]]:
    """The padding of a pooling with what the rule for its last window adds, and others."""
    size, ceil = given["x"].shape[2:], given["ceil_mode"]
    kernel, stride, padding = (
        given[name] for name in ("kernel_size", "stride", "padding")
    )
    dilation = given.get("dilation", 1)
    settings = geometry.pool_settings(len(size), kernel, stride, padding, dilation)
    kernel, stride, _, dilation = settings

    def pads(ceil: bool) -> Pads:
        return tuple(map(geometry.pool_pads, size, *settings, [ceil] * len(size)))

    usual, cover = pads(ceil), tuple(map(_cover, size, *settings))
    found = {
        f"ceil_mode={not ceil} (the rule for the last window)": pads(not ceil),
        "cover_all: the last window may start in the padding (ceil rule)": cover,
    }
    return usual, found | _paddings(given, usual, (kernel, stride, dilation))


def _cover(n: int, k: int, s: int, p: int, d: int) -> tuple[int, int]:
    """Chainer's rule for one axis: every element is in some window."""
    reach = d * (k - 1) + 1
    count = (n + 2 * p - reach + s - 1) // s + 1
    return p, max(p, (count - 1) * s + reach - n - p)


def pooling(name: str, given: Arguments) -> list[Convention]:
    """Padding, rounding, divisors and window rules; `name` is that of the function."""
    pads, others = _pool_paddings(given)
    is_average = name == "avg_pool"
    empty = 0.0 if is_average else -np.inf
    wide = {words: (other, "constant", empty) for words, other in others.items()}
    own = [
        Convention("padding", wide, _PADDED, pads),
        setting("kernel_size", range(1, 6)),
        setting("stride", range(1, 6)),
    ]
    zeros = Convention(
        "max-pool padded with", {"zeros": (pads,)}, _PADDED, "minus infinity"
    )
    if not is_average:
        ceil = given["ceil_mode"]
        average = {
            "average": _other_pool("avg_pool", ceil, True),
            "average (padding excluded)": _other_pool("avg_pool", ceil, False),
        }
        return [zeros, instead("pooling", average, usual="maximum"), *own]
    flag, words = given["count_include_pad"], ("excluding padding", "including padding")
    usual = f"{words[flag]} (count_include_pad)"
    return [
        values(
            "count_include_pad", {words[not flag]: not flag}, "average", usual=usual
        ),
        instead("pooling", {"maximum": _other_pool("max_pool")}, usual="average"),
        *own,
    ]


def _other_pool(function: str, *settings: Any) -> Formula:
    """A pooling with the same windows, and settings of its own."""

    def pooled(nn: Any, given: Arguments) -> Any:
        windows = (given[one] for one in ("x", "kernel_size", "stride", "padding"))
        return getattr(nn, function)(*windows, *settings)

    return pooled


def adaptive(name: str, given: Arguments) -> list[Convention]:
    """The other pooling, or sums; `name` is that of the function."""
    kinds = {"adaptive_avg_pool": "average", "adaptive_max_pool": "maximum"}
    usual = kinds.pop(name)
    ((other, words),) = kinds.items()
    size = given["output_size"]
    return [
        instead(
            "pooling",
            {words: lambda nn, given: getattr(nn, other)(given["x"], size)},
            usual=usual,
        )
    ]


# Resizing
# -----------------------------------------------------------------------------

# How else `nn` resizes, by words for it.
_RESIZINGS: Mapping[str, Named] = {
    "nearest neighbours (floor)": {"mode": "nearest", "align_corners": None},
    "linear, align_corners=False": {"mode": "linear", "align_corners": False},
    "linear, align_corners=True": {"mode": "linear", "align_corners": True},
    "nearest-exact (half-pixel centres)": {
        "mode": "nearest-exact",
        "align_corners": None,
    },
    "linear with antialiasing": {
        "mode": "linear",
        "align_corners": False,
        "antialias": True,
    },
    "bicubic": {"mode": "bicubic", "align_corners": False},
}


def interpolate(given: Arguments) -> list[Convention]:
    """Positions and kernels of resizing."""
    usual = "nearest neighbours (floor)"
    if given["mode"] != "nearest":
        usual = f"linear, align_corners={bool(given['align_corners'])}"
    return [rules("resizing", _RESIZINGS, usual=usual)]
