"""Conventions of normalisation: epsilons, groups, axes and variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from deliralike.conformance.explain.calls import Bound
from deliralike.conformance.explain.variant import fitted, instead

EPSILONS = (2e-5, 1e-3, 1e-6, 1e-5, 1e-4, 1e-8, 1e-2, 0.1)


def standardised(
    nn: Any,
    x: Any,
    dims: Sequence[int],
    eps: float,
    correction: int = 0,
    centred: bool = True,
    how: str = "",
    error: Any = None,
) -> Any:
    """Return an array of mean 0 and variance 1 over some axes, by one of several rules.

    `error` is added to each variance.
    """
    mean = nn.mean(x, tuple(dims), keepdim=True)
    count = math.prod(x.shape[d] for d in dims)
    difference = x - mean
    if how == "one pass":
        var = nn.mean(x * x, tuple(dims), keepdim=True) - mean * mean
    elif how == "uncentred variance":
        var = nn.mean(x * x, tuple(dims), keepdim=True)
    else:
        var = nn.sum(difference * difference, tuple(dims), keepdim=True) * (
            1.0 / (count - correction)
        )
    if error is not None:
        var = var + nn.constant(error, like=x)
    if how == "float32 statistics":
        mean, var = (nn.cast(nn.cast(value, "float32"), x) for value in (mean, var))
        difference = x - mean
    if how == "constant statistics":
        mean, var = nn.stop_gradient(mean), nn.stop_gradient(var)
        difference = x - mean
    if not centred:
        difference, var = x, nn.mean(x * x, tuple(dims), keepdim=True)
    if how == "outside":
        return difference / (nn.sqrt(var) + eps)
    if how == "maximum":
        return difference / nn.sqrt(nn.where(var > eps, var, eps))
    if how == "no root":
        return difference / (var + eps)
    if how == "no division":
        return difference
    return difference / nn.sqrt(var + eps)


_HOW: dict[str, dict[str, Any]] = {
    "eps outside of the root (added to the deviation: std + eps)": {"how": "outside"},
    "eps as the least variance (a floor: max(var, eps))": {"how": "maximum"},
    "mean not subtracted (RMS norm, not centred)": {"centred": False},
    "variance not centred (mean of squares)": {"how": "uncentred variance"},
    "divided by the variance instead of its root": {"how": "no root"},
}
RULES: dict[str, dict[str, Any]] = {
    "unbiased variance in the normalisation instead of the biased one": {"correction": 1},
    **_HOW,
    **{f"unbiased variance; {cause}": {"correction": 1, **rule} for cause, rule in _HOW.items()},
    "one-pass variance E[x²] - E[x]²": {"how": "one pass"},
    "mean and variance in float32": {"how": "float32 statistics"},
    "not divided by the standard deviation": {"how": "no division"},
    "no gradient through the mean and variance": {"how": "constant statistics"},
}


def ruled(make: Callable[..., Any], eps: float) -> Iterator[tuple]:
    """Yield another epsilon, another rule, and both.

    `make` takes the arguments of its call, then ``eps`` and the rule.
    """
    yield fitted("eps", eps), partial(_with_eps, make, {}), EPSILONS, 0.0
    for cause, rule in RULES.items():
        yield cause, partial(make, **rule)
    for cause, rule in RULES.items():
        if not any(word in cause for word in ("gradient", "not divided", "float32")):
            yield (
                f"{cause}; {fitted('eps', eps)}",
                partial(_with_eps, make, rule),
                (0.0, *EPSILONS),
                0.0,
            )


def _with_eps(make: Callable[..., Any], rule: dict[str, Any], *given: Any) -> Any:
    return make(*given[:-1], eps=given[-1], **rule)


def affine(nn: Any, y: Any, b: Bound, shape: Sequence[int] | None = None) -> Any:
    """Scaled and shifted by what is learned, brought to a shape."""
    weight, bias = (b.get(name) for name in ("weight", "bias"))
    if shape is not None:
        weight, bias = (
            None if one is None else nn.reshape(one, tuple(shape)) for one in (weight, bias)
        )
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def axes_of(rank: int) -> list[tuple[int, ...]]:
    """Every choice of axes."""
    return [dims for count in range(1, rank + 1) for dims in combinations(range(rank), count)]


def layer_norm(b: Bound) -> Iterator[tuple]:
    """Epsilon, rules, and other axes."""
    rank = len(b["x"].shape)
    usual = tuple(range(rank - len(b["normalized_shape"]), rank))

    def made(
        nn: Any, b: Bound, eps: float | None = None, dims: Sequence[int] = usual, **rule: Any
    ) -> Any:
        return affine(
            nn, standardised(nn, b["x"], dims, b["eps"] if eps is None else eps, **rule), b
        )

    yield from ruled(made, b["eps"])
    for dims in axes_of(rank):
        if dims != usual:
            yield f"normalised over axes {dims} instead of {usual}", partial(made, dims=dims)


def group_norm(b: Bound) -> Iterator[tuple]:
    """Epsilon, groups, rules, and other axes."""
    rank, channels, groups = len(b["x"].shape), b["x"].shape[1], b["num_groups"]
    shape = (1, -1) + (1,) * (rank - 2)

    def made(
        nn: Any,
        b: Bound,
        eps: float | None = None,
        groups: int = groups,
        how_split: str = "",
        **rule: Any,
    ) -> Any:
        x = b["x"]
        size: tuple[int, ...] = (x.shape[0], groups, -1)
        dims: tuple[int, ...] = (2,)
        if how_split == "in turn":  # channel c belongs to group c % groups
            size, dims = (x.shape[0], channels // groups, groups, -1), (1, 3)
        elif how_split == "batch":
            dims = (0, 2)
        elif how_split == "position":
            size, dims = (x.shape[0], groups, channels // groups, -1), (2,)
        y = standardised(nn, nn.reshape(x, size), dims, b["eps"] if eps is None else eps, **rule)
        return affine(nn, nn.reshape(y, tuple(x.shape)), b, shape)

    for other in [g for g in range(1, channels + 1) if channels % g == 0 and g != groups]:
        yield (
            f"{instead('groups', other, groups)} (num_groups={other})",
            partial(made, groups=other),
        )
        yield (
            f"groups={other} of channels dealt in turn (interleaved)",
            partial(made, groups=other, how_split="in turn"),
        )
    yield "channels dealt to the groups in turn (interleaved)", partial(made, how_split="in turn")
    yield from ruled(made, b["eps"])
    yield (
        "statistics of each group over the batch too (other axes)",
        partial(made, how_split="batch"),
    )
    yield (
        "statistics of each group at each position by itself (other axes)",
        partial(made, how_split="position"),
    )
    for dims in axes_of(rank):
        yield (
            f"normalised over axes {dims} instead of groups of channels",
            partial(_over, dims=dims, shape=shape),
        )


def _over(nn: Any, b: Bound, dims: Sequence[int], shape: Sequence[int]) -> Any:
    return affine(nn, standardised(nn, b["x"], dims, b["eps"]), b, shape)


def batch_norm_function(b: Bound) -> Iterator[tuple]:
    """The function with given statistics."""

    def made(nn: Any, b: Bound, **changes: Any) -> Any:
        return nn.batch_norm(**{**b, **changes})

    yield fitted("eps", b["eps"]), lambda nn, b, value: made(nn, b, eps=value), EPSILONS, 0.0
    yield (
        "eps outside of the root (std + eps)",
        lambda nn, b: made(
            nn, b, var=(nn.sqrt(b["var"]) + b["eps"]) * (nn.sqrt(b["var"]) + b["eps"]), eps=0.0
        ),
    )
    yield (
        "batch statistics instead of the given ones",
        lambda nn, b: nn.batch_norm_train(b["x"], b["weight"], b["bias"], b["eps"])[0],
    )
    yield (
        "variance taken for the standard deviation",
        lambda nn, b: made(nn, b, var=b["var"] * b["var"]),
    )
    yield "mean ignored", lambda nn, b: made(nn, b, mean=b["mean"] * 0.0)
    yield "variance ignored", lambda nn, b: made(nn, b, var=b["var"] * 0.0 + 1.0)
