"""The variance behind a candidate's outputs: in one pass, E[x²] - E[x]², it has rounding errors.

These depend on the order of sums, which no other framework repeats, so that running the formula
does not give the candidate's numbers where the mean is far from zero. Their size is known, and with
them the outputs come out exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.norms import affine, standardised
from deliralike.conformance.explain.variant import Call, Variant
from deliralike.conformance.findings import Accused

_ROUNDINGS = 64.0  # so many of the mean's square there may be
_PRECISIONS = {"": 2.0**-53, " in float32": 2.0**-24}


def error(
    x: np.ndarray,
    y: np.ndarray,
    weight: Any,
    bias: Any,
    eps: float,
    shape: Sequence[int],
    dims: tuple[int, ...],
) -> tuple[str, np.ndarray] | None:
    """Return a cause and the error of each variance.

    None where rounding in one pass does not explain it.

    Args:
        x: What is normalised.
        y: The candidate's output.
        weight, bias: Numbers, or arrays that broadcast to them.
        eps: Of the reference.
        shape, dims: The shape to bring them to, and the axes of it that statistics are taken over.
    """
    if x.shape != y.shape:
        return None
    given, came = x.reshape(shape), (y - bias).reshape(shape)
    mean, var = given.mean(dims, keepdims=True), given.var(dims, keepdims=True)
    centred = (given - mean) * np.broadcast_to(weight, x.shape).reshape(shape)
    with np.errstate(all="ignore"):
        scale = (came * centred).sum(dims, keepdims=True) / np.square(centred).sum(
            dims, keepdims=True
        )
        off = 1.0 / np.square(scale) - eps - var
    for words, precision in _PRECISIONS.items():
        if (np.abs(off) <= _ROUNDINGS * precision * (np.square(mean) + var)).all():
            return f"one-pass variance E[x²] - E[x]²{words} (rounding errors of that size)", off
    return None


def variants(accused: Accused, settings: Mapping[str, Any]) -> Iterator[Variant]:
    """For norms without running statistics."""
    x, y = (np.asarray(each) for each in (accused.args[0], accused.candidate.outputs))
    of_groups: tuple[int, ...] = tuple(x.shape)
    learned: tuple[int, ...] | None = (1, -1) + (1,) * (x.ndim - 2)
    if accused.kind == "LayerNorm":
        rank = (
            np.ndim(accused.state["weight"])
            if "weight" in accused.state
            else np.size(settings["normalized_shape"])
        )
        dims, learned = tuple(range(x.ndim - rank, x.ndim)), None
    elif accused.kind == "GroupNorm":
        of_groups, dims = (x.shape[0], settings["num_groups"], -1), (2,)
    else:
        dims = tuple(range(2, x.ndim))
    weight, bias = (
        accused.state.get(name, usual) for name, usual in (("weight", 1.0), ("bias", 0.0))
    )
    if learned is not None:
        weight, bias = (
            np.reshape(each, learned) if np.ndim(each) else each for each in (weight, bias)
        )
    if (found := error(x, y, weight, bias, settings["eps"], of_groups, dims)) is not None:
        cause, off = found
        yield Variant(
            cause, partial(_normalised, shape=of_groups, dims=dims, off=off, learned=learned)
        )


def _normalised(
    call: Call,
    shape: tuple[int, ...],
    dims: tuple[int, ...],
    off: np.ndarray,
    learned: tuple[int, ...] | None,
) -> Any:
    nn, x = call.nn, call.args[0]
    y = standardised(nn, nn.reshape(x, shape), dims, call.settings["eps"], error=off)
    return affine(nn, nn.reshape(y, tuple(x.shape)), dict(call.weights), learned)
