"""Conventions of norms: epsilons, axes, variances, and which statistics are used and moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from deliralike.conformance.explain import changes
from deliralike.conformance.explain.axes import POSITIVE
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Known,
    array,
    changing,
    rules,
    setting,
    told,
    values,
)
from deliralike.conformance.explain.enumeration import divisors, short_decimals, subsets
from deliralike.conformance.kinds import Axes, Named, Shape

EPSILONS = (1e-3, 1e-6, 1e-5, 2e-5, 1e-4, 1e-8, 1e-2, 0.0)

# How the deviation is made of the variance and epsilon; the usual way is ``sqrt(var + eps)``.
_DEVIATIONS: Named = {
    "": lambda nn, var, eps: nn.sqrt(var + eps),
    "outside": lambda nn, var, eps: nn.sqrt(var) + eps,
    "floor": lambda nn, var, eps: nn.sqrt(nn.where(var > eps, var, eps)),
    "variance": lambda nn, var, eps: var + eps,
}
_EPS = {
    "outside of the root (added to the deviation: std + eps)": "outside",
    "as the least variance (a floor: max(var, eps))": "floor",
}
_VARIANCE = {
    "unbiased in the normalisation (unbiased variance)": {"correction": 1},
    "not centred (mean of squares)": {"uncentred": True},
}
_SQUARE = {"the variance instead of its root": "variance"}
_RUNNING = ("running_mean", "running_var")


def _eps(given: Arguments) -> list[Convention]:
    eps = setting("eps", EPSILONS, free=True, axis=POSITIVE, usual=given.get("eps"))
    return [eps, values("deviation", _EPS, "eps")]


def _rules(given: Arguments) -> list[Convention]:
    """What holds of every norm; the first three also together."""
    gradient = {"through the batch statistics (mean and variance)": True}
    return [
        *_eps(given),
        rules("variance", _VARIANCE),
        values("centred", {"not subtracted (RMS norm, not centred)": False}, "mean"),
        values("deviation", _SQUARE, "divisor"),
        values("constant", gradient, "no gradient"),
    ]


def statistics(nn: Any, x: Any, given: Arguments) -> tuple[Any, Any]:
    """Mean and variance over ``axes``, by the rules that are given."""
    axes = tuple(given["axes"])
    mean = nn.mean(x, axes, keepdim=True)
    centred = (
        x if given.get("uncentred") or not given.get("centred", True) else x - mean
    )
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = max(count - given.get("correction", 0), 1e-30)
    var = nn.sum(centred * centred, axes, keepdim=True) * (1.0 / divisor)
    if given.get("constant"):
        mean, var = nn.stop_gradient(mean), nn.stop_gradient(var)
    return mean, var


def _normalised(nn: Any, x: Any, mean: Any, var: Any, given: Arguments) -> Any:
    """Centred, and divided by the deviation."""
    difference = x - mean if given.get("centred", True) else x
    return difference / _DEVIATIONS[given.get("deviation", "")](nn, var, given["eps"])


def _affine(nn: Any, y: Any, given: Arguments) -> Any:
    """Scaled and shifted by what is learned, which is of shape ``(width,)`` or ``learned``."""
    shape, weight, bias = given.get("learned"), given.get("weight"), given.get("bias")
    if weight is not None:
        y = y * (weight if shape is None else nn.reshape(weight, shape))
    if bias is not None:
        y = y + (bias if shape is None else nn.reshape(bias, shape))
    return y


def _own(nn: Any, given: Arguments) -> Any:
    """A norm without running statistics; ``split`` is the shape in which its axes are counted."""
    x = given["x"]
    part = nn.reshape(x, given["split"]) if "split" in given else x
    y = _normalised(nn, part, *statistics(nn, part, given), given)
    return _affine(nn, nn.reshape(y, tuple(x.shape)), given)


def _per_channel(rank: int) -> Shape:
    return (1, -1) + (1,) * (rank - 2)


def _over(
    usual: Sequence[int], rank: int, names: Mapping[Any, str] | None = None
) -> Convention:
    """Other axes to take the statistics over."""
    named = {}
    for axes in subsets(rank):
        words = f"over axes {axes} instead of {tuple(usual)}"
        if axes != tuple(usual):
            named[(names or {}).get(axes, words)] = axes
    return values("axes", named, "normalised")


def layer_norm(given: Arguments) -> Known:
    """Layer norm, over the last axes."""
    rank = given["x"].ndim
    axes = tuple(range(rank - len(given["normalized_shape"]), rank))
    usual = {"axes": axes}
    return told(_own, usual), [*_rules({**given, **usual}), _over(axes, rank)]


def group_norm(given: Arguments) -> Known:
    """Group norm, over the channels of a group and all positions."""
    x, groups = given["x"], given["num_groups"]
    samples, channels = x.shape[:2]

    def split(count: int) -> dict[str, Any]:
        return {"split": (samples, count, -1), "axes": (2,)}

    usual = {"learned": _per_channel(x.ndim), **split(groups)}
    counts = rules(
        "groups", {count: split(count) for count in divisors(channels)}, usual=groups
    )
    whole = {
        f"over axes {axes}": {"split": x.shape, "axes": axes}
        for axes in subsets(x.ndim)
    }
    table = [counts, *_rules({**given, **usual}), rules("normalised", whole)]
    return told(_own, usual), table


def instance_norm(given: Arguments) -> Known:
    """Instance norm without running statistics, over all positions of a channel."""
    rank = given["x"].ndim
    axes = tuple(range(2, rank))
    usual = {"axes": axes, "learned": _per_channel(rank)}
    names = {(0, *axes): "by batch statistics instead of those of each sample"}
    return told(_own, usual), [*_rules({**given, **usual}), _over(axes, rank, names)]


# Running statistics
# -----------------------------------------------------------------------------


def _batch_norm(nn: Any, given: Arguments) -> Any:
    """Batch norm by the rules that are given, which are the usual ones where nothing is."""
    if given["moves"]:
        _move(nn, given)
    return (_own if given["source"] == "batch" else _with_stored_statistics)(nn, given)


def _with_stored_statistics(nn: Any, given: Arguments) -> Any:
    """By statistics that are given under the names in ``stored``."""
    mean, var = (nn.reshape(given[name], given["learned"]) for name in given["stored"])
    return _affine(nn, _normalised(nn, given["x"], mean, var, given), given)


def _move(nn: Any, given: Arguments) -> None:
    """Write the running statistics after the call, which are those of the channels."""
    x, after, share = given["x"], given["after"], given["momentum"]
    count = math.prod(x.shape) // x.shape[1]
    biased = {**given, "axes": given["channel"], "correction": 0, "constant": True}
    mean, var = statistics(nn, x, biased)
    if not given.get("biased"):
        var = var * (count / max(count - 1, 1e-30))
    if share is None:  # a plain average
        share = 1.0 / (nn.cast(given["num_batches_tracked"], x) + 1.0)
    for name, new in zip(_RUNNING, (mean, var), strict=True):
        for _ in range(given.get("times", 1)):
            old = after.get(name, given[name])
            after[name] = old * (1.0 - share) + nn.reshape(new, (-1,)) * share


def batch_norm(given: Arguments) -> Known:
    """Batch norm with or without running statistics."""
    x, training = given["x"], given["training"]
    tracked = given.get("running_mean") is not None and given.get(
        "track_running_stats", True
    )
    axes = (0, *range(2, x.ndim))
    usual: dict[str, Any] = {
        "axes": axes,
        "channel": axes,
        "learned": _per_channel(x.ndim),
        "stored": _RUNNING,
        "moves": training and tracked,
        "source": "batch" if training or not tracked else "running",
    }
    names = {
        tuple(range(2, x.ndim)): "by the statistics of each sample (instance norm)",
        tuple(range(1, x.ndim)): "by all channels of each sample (layer norm)",
        (0,): "over the batch axis alone",
    }
    eps, *further = _rules({**given, **usual})
    found = [eps]
    if tracked:
        found += _moving(given) if training else _evaluating()
    return told(_batch_norm, usual), [*found, *further, _over(axes, x.ndim, names)]


def _evaluating() -> list[Convention]:
    """What is used, and whether it moves, where training is over."""
    used = {
        "in evaluation": {"source": "batch"},
        "in evaluation, and running ones updated": {"source": "batch", "moves": True},
    }
    moved = {"updated in evaluation": {"moves": True}}
    return [
        rules("batch statistics", used),
        rules("running statistics", moved),
    ]


def _moving(given: Arguments) -> list[Convention]:
    """Which statistics are used in training, and how the running ones move."""
    momentum = given["momentum"]
    running, resting = {"source": "running"}, {"moves": False}
    used = {
        "never updated (not moved, momentum=0)": resting,
        "frozen: used in training, none moved": {**running, **resting},
        "used in training, though moved": running,
        "updated twice": {"times": 2},
    }
    biased = {"biased instead of unbiased": True}
    if given.get("biased"):
        biased = {"unbiased instead of biased": False}
    how: dict[str, Any] = {"free": True, "axis": POSITIVE}
    table = [
        rules("running statistics", used),
        values("biased", biased, "running variance"),
    ]
    if momentum is None:
        how["usual"] = "a plain average"
        return [*table, setting("momentum", (0.01, 0.1, 0.9), **how)]
    average = {
        "None (a plain average)": 1.0
        / (float(given.get("num_batches_tracked", 0)) + 1.0)
    }
    swapped = f"{momentum:.10g} (swapped: the weight of the old value)"
    return [
        *table,
        setting("momentum", (1.0 - momentum,), usual=swapped),
        setting("momentum", average),
        setting("momentum", (0.01, 1.0 - momentum, 1.0), **how),
        Convention(
            "running variance biased; momentum", (0.01, 0.1), _biased, momentum, **how
        ),
    ]


_biased = changing(lambda nn, given, value: {"momentum": value, "biased": True})


def batch_norm_function(given: Arguments) -> Known:
    """The function of `nn` that is given its statistics."""
    names = ("mean", "var")
    usual = {"learned": _per_channel(given["x"].ndim), "stored": names}
    return told(_with_stored_statistics, usual), _eps(given)


# Norms that are written by hand
# -----------------------------------------------------------------------------


def written_by_hand(given: Arguments) -> Known | None:
    """A norm in a class of its own, as its output shows; None where it is none.

    Its axes, its epsilon and where that is added are read off the output; weights are known by
    their sizes and their number: a scale alone, or a scale and a shift.
    """
    x, names = given["x"], sorted(given["parameters"], key=_is_shift)
    own = dict(zip(("weight", "bias"), names, strict=False))
    learned = _learned(x, [given[name] for name in names])
    if len(names) > 2 or learned is None:
        return None

    def formula(nn: Any, given: Arguments) -> Any:
        return _own(
            nn, {**usual, **given, **{name: given[one] for name, one in own.items()}}
        )

    for axes, centred, deviation in product(
        _likely_axes(x.ndim), (True, False), ("", "outside")
    ):
        usual = {
            "axes": axes,
            "centred": centred,
            "deviation": deviation,
            "learned": learned,
        }
        eps = _eps_of({**given, **usual}, own)
        if eps is not None:
            usual["eps"] = eps
            return formula, _of_hand({**usual, "x": x}, own)
    return None


def _of_hand(usual: dict[str, Any], own: Mapping[str, str]) -> list[Convention]:
    """What else a norm may be whose axes and epsilon are known; `own` gives its names."""
    centred = usual["centred"]
    other = "left in (RMS norm, not centred)" if centred else "subtracted (layer norm)"
    found = [*_rules(usual), values("centred", {other: not centred}, "mean")]
    if usual["deviation"]:
        inside = {"under the root instead of outside of it": ""}
        found.append(values("deviation", inside, "eps"))
    if "weight" in own:
        plus = {"one plus what is learned": changes.plus(1.0)}
        found.append(array("scale", own["weight"], plus))
    return [*found, _over(usual["axes"], usual["x"].ndim)]


def _is_shift(name: str) -> bool:
    return any(word in name for word in ("bias", "beta", "shift"))


def _learned(x: np.ndarray, weights: Sequence[np.ndarray]) -> Shape | None:
    """The shape in which weights are along the last axis or along the channels, or None."""
    last = (1,) * (x.ndim - 1) + (-1,)
    for shape, width in ((last, x.shape[-1]), (_per_channel(x.ndim), x.shape[1])):
        if all(
            one.shape in ((width,), (width, *(1,) * (x.ndim - 2))) for one in weights
        ):
            return shape
    return None


def _likely_axes(rank: int) -> list[Axes]:
    """What norms are taken over: the features, or of pictures the channels, positions, samples."""
    pictures = [
        (1,),
        tuple(range(1, rank)),
        tuple(range(2, rank)),
        (0, *range(2, rank)),
    ]
    return [(rank - 1,), *(pictures if rank > 2 else [(0,)])]


def _eps_of(given: Arguments, own: Mapping[str, str]) -> float | None:
    """The epsilon with which a norm gives the usual output; None without one."""
    x, y, axes, how = given["x"], given["usual"], given["axes"], given["deviation"]
    weights = {name: given[one].reshape(given["learned"]) for name, one in own.items()}
    bias = weights.get("bias", 0.0)
    centre = x - x.mean(axes, keepdims=True) if given["centred"] else x
    scaled, var = (
        centre * weights.get("weight", 1.0),
        np.square(centre).mean(axes, keepdims=True),
    )
    with np.errstate(all="ignore"):
        deviation = scaled / (y - bias)
        left = deviation - np.sqrt(var) if how else np.square(deviation) - var
        eps = float(np.nanmedian(left))
        for plain in (0.0, *short_decimals(eps, 7)):
            divisor = _DEVIATIONS[how](np, var, plain)
            if np.allclose(scaled / divisor + bias, y, rtol=1e-9, atol=1e-12):
                return plain
    return None


def normalize(given: Arguments) -> Known:
    """Division by the L2 norm along an axis."""

    def usual(nn: Any, given: Arguments) -> Any:
        return nn.normalize(given["x"], dim=given["dim"], eps=given["eps"])

    return usual, [setting("dim", range(given["x"].ndim))]
