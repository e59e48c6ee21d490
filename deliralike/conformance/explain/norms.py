"""Conventions of norms: epsilons, axes, variances, and which statistics are used and moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from deliralike.conformance.explain import changes, one_pass
from deliralike.conformance.explain.activations import HOST
from deliralike.conformance.explain.axes import POSITIVE
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Known,
    array,
    instead,
    rules,
    setting,
    told,
    values,
)
from deliralike.conformance.explain.enumeration import divisors, short_decimals, subsets
from deliralike.conformance.kinds import Arrays, Axes, Named, Shape

ROOT = "root of a variance"
EPSILONS = (1e-3, 1e-6, 1e-5, 2e-5, 1e-4, 1e-8, 1e-2, 0.0)

# How the deviation is made of the variance and epsilon; the usual way is ``sqrt(var + eps)``.
_DEVIATIONS: Named = {
    "": lambda nn, var, eps: nn.sqrt(var + eps),
    "outside": lambda nn, var, eps: nn.sqrt(var) + eps,
    "floor": lambda nn, var, eps: nn.sqrt(nn.where(var > eps, var, eps)),
    "variance": lambda nn, var, eps: var + eps,
    "none": lambda nn, var, eps: 1.0,
}
_EPS = {
    "outside of the root (added to the deviation: std + eps)": "outside",
    "as the least variance (a floor: max(var, eps))": "floor",
}
_VARIANCE = {
    "unbiased in the normalisation (unbiased variance)": {"correction": 1},
    "not centred (mean of squares)": {"variance": "uncentred"},
}
_MEAN = {"not subtracted (RMS norm, not centred)": False}
_SQUARE = {"the variance instead of its root": "variance"}
_DIVISOR = {**_SQUARE, "one: not divided by the standard deviation": "none"}
_RUNNING = ("running_mean", "running_var")
_ROUNDING = {"mean and variance in float32": "float32"}
_GRADIENT = {"through the batch statistics (mean and variance)": True}


def _rules(given: Arguments) -> list[Convention]:
    """What holds of every norm; the first three also together."""
    return [
        _eps(given.get("eps")),
        values("deviation", _EPS, "eps", joins="variance"),
        rules("variance", _VARIANCE, joins="variance"),
        values("centred", _MEAN, "mean"),
        values("deviation", _DIVISOR, "divisor"),
        values("short", _ROUNDING, "computed with"),
        values("constant", _GRADIENT, "no gradient"),
        *one_pass.conventions(given),
    ]


def _eps(usual: float | None) -> Convention:
    return setting("eps", EPSILONS, free=True, axis=POSITIVE, usual=usual)


def statistics(nn: Any, x: Any, given: Arguments) -> tuple[Any, Any]:
    """Mean and variance over ``axes``, by the rules that are given."""
    axes = tuple(given["axes"])
    mean = nn.mean(x, axes, keepdim=True)
    if given.get("variance") == "uncentred" or not given.get("centred", True):
        var = nn.mean(x * x, axes, keepdim=True)
    else:
        count, centred = math.prod(x.shape[axis] for axis in axes), x - mean
        divisor = max(count - given.get("correction", 0), 1e-30)
        var = nn.sum(centred * centred, axes, keepdim=True) * (1.0 / divisor)
    if given.get("error") is not None:
        var = var + nn.constant(given["error"], like=x)
    if given.get("short"):
        mean, var = (nn.cast(nn.cast(value, given["short"]), x) for value in (mean, var))
    if given.get("constant"):
        mean, var = nn.stop_gradient(mean), nn.stop_gradient(var)
    return mean, var


def divided(nn: Any, x: Any, mean: Any, var: Any, given: Arguments) -> Any:
    """What is normalised: centred and divided by the deviation."""
    difference = x - mean if given.get("centred", True) else x
    return difference / _deviation(nn, var, given)


def _deviation(nn: Any, var: Any, given: Arguments) -> Any:
    return _DEVIATIONS[given.get("deviation", "")](nn, var, given["eps"])


def _affine(nn: Any, y: Any, given: Arguments) -> Any:
    """Scaled and shifted by what is learned, which is of shape ``(width,)`` or ``learned``."""
    shape = given.get("learned")
    weight, bias = (_broadcast(nn, given.get(name), shape) for name in ("weight", "bias"))
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def _broadcast(nn: Any, array: Any, shape: Shape | None) -> Any:
    return array if array is None or shape is None else nn.reshape(array, shape)


def _own(nn: Any, given: Arguments) -> Any:
    """A norm without running statistics; ``split`` is the shape in which its axes are counted."""
    x = given["x"]
    part = nn.reshape(x, given["split"]) if "split" in given else x
    y = divided(nn, part, *statistics(nn, part, given), given)
    return _affine(nn, nn.reshape(y, tuple(x.shape)), given)


def _per_channel(rank: int) -> Shape:
    return (1, -1) + (1,) * (rank - 2)


def _over(usual: Sequence[int], rank: int, names: Mapping[Any, str]) -> Convention:
    """Other axes to take the statistics over."""
    others = [axes for axes in subsets(rank) if axes != tuple(usual)]
    named = {names[axes]: axes for axes in others if axes in names}
    for axes in others:
        if axes not in names:
            named[f"over axes {axes} instead of {tuple(usual)}"] = axes
    return values("axes", named, "normalised")


def layer_norm(given: Arguments) -> Known:
    """Layer norm, over the last axes."""
    rank = len(given["x"].shape)
    axes = tuple(range(rank - len(given["normalized_shape"]), rank))
    usual = {"axes": axes}
    return told(_own, usual), [*_rules({**given, **usual}), _over(axes, rank, {})]


def group_norm(given: Arguments) -> Known:
    """Group norm, over the channels of a group and all positions."""
    x, groups = given["x"], given["num_groups"]
    samples, channels = x.shape[:2]
    learned = _per_channel(x.ndim)

    def split(count: int) -> dict[str, Any]:
        return {"split": (samples, count, -1), "axes": (2,)}

    def dealt(count: int) -> dict[str, Any]:
        """Channel c belongs to group c % count."""
        return {"split": (samples, channels // count, count, -1), "axes": (1, 3)}

    usual = {"learned": learned, **split(groups)}
    counts = divisors(channels)
    in_turn = {str(count): dealt(count) for count in counts}
    own = [
        rules("groups", {count: split(count) for count in counts}, usual=groups),
        rules("channels dealt to the groups in turn (interleaved), groups", in_turn),
    ]
    whole = {f"over axes {axes}": {"split": x.shape, "axes": axes} for axes in subsets(x.ndim)}
    return told(_own, usual), [*own, *_rules({**given, **usual}), rules("normalised", whole)]


def instance_norm(given: Arguments) -> Known:
    """Instance norm without running statistics, over all positions of a channel."""
    rank = len(given["x"].shape)
    axes = tuple(range(2, rank))
    usual = {"axes": axes, "learned": _per_channel(rank)}
    names = {
        (0, *axes): "by batch statistics instead of those of each sample",
        (1, *axes): "over the channels too (layer norm instead of instance norm)",
    }
    return told(_own, usual), [*_rules({**given, **usual}), _over(axes, rank, names)]


# Running statistics
# -----------------------------------------------------------------------------


def _batch_norm(nn: Any, given: Arguments) -> Any:
    """Batch norm by the rules that are given, which are the usual ones where nothing is."""
    if given["moves"]:
        _move(nn, given)
    if given["source"] == "batch":
        return _own(nn, given)
    return _with_stored_statistics(nn, given)


def _with_stored_statistics(nn: Any, given: Arguments) -> Any:
    """By statistics that are given under the names in ``stored``."""
    mean, var = (nn.reshape(given[name], given["learned"]) for name in given["stored"])
    return _affine(nn, divided(nn, given["x"], mean, var, given), given)


def _move(nn: Any, given: Arguments) -> None:
    """Write the running statistics after the call, which are those of the channels."""
    x, after, share = given["x"], given["after"], given["momentum"]
    biased = {**given, "axes": given["channel"], "correction": 0, "constant": True}
    mean, var = (nn.reshape(one, (-1,)) for one in statistics(nn, x, biased))
    if share is None:  # a plain average
        share = 1.0 / (nn.cast(given["num_batches_tracked"], mean) + 1.0)
    count = math.prod(x.shape) // x.shape[1]
    if not given.get("biased"):
        var = var * (count / max(count - 1, 1e-30))
    for name, new in zip(_RUNNING, (mean, var), strict=True):
        for _ in range(given.get("times", 1)):
            after[name] = after.get(name, given[name]) * (1.0 - share) + new * share


def batch_norm(given: Arguments) -> Known:
    """Batch norm with or without running statistics."""
    x, training = given["x"], given["training"]
    tracked = given.get("running_mean") is not None and given.get("track_running_stats", True)
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
        found += _source(training)
        found += _moving(given) if training else _stored(*_RUNNING)
    return told(_batch_norm, usual), [*found, *further, _over(axes, x.ndim, names)]


def _source(training: bool) -> list[Convention]:
    """Which statistics are used, and whether the running ones move."""
    batch, running = {"source": "batch"}, {"source": "running"}
    moving, resting = {"moves": True}, {"moves": False}
    if not training:
        used = {
            "in evaluation": {**batch, **resting},
            "in evaluation, and running ones updated": {**batch, **moving},
        }
        moved = {"updated in evaluation": moving}
        return [rules("batch statistics", used), rules("running statistics", moved)]
    known = {
        "never updated (not moved, momentum=0)": resting,
        "frozen: used in training, none moved": {**running, **resting},
        "used in training, though moved": running,
        "updated twice": {"times": 2},
    }
    return [rules("running statistics", known)]


def _moving(given: Arguments) -> list[Convention]:
    """How the running statistics move."""
    momentum = given["momentum"]
    other = {"biased instead of unbiased": True}
    if given.get("biased"):
        other = {"unbiased instead of biased": False}
    stored = values("biased", other, "running variance", joins="moves")
    how: dict[str, Any] = {"free": True, "axis": POSITIVE, "joins": "moves"}
    if momentum is None:
        starts = (0.01, 0.1, 0.9)
        return [setting("momentum", starts, usual="a plain average", **how), stored]
    average = {"None (a plain average)": 1.0 / (float(given.get("num_batches_tracked", 0)) + 1.0)}
    swapped = f"{momentum:.10g} (swapped: the weight of the old value)"
    return [
        setting("momentum", (1.0 - momentum,), usual=swapped, joins="moves"),
        setting("momentum", average),
        setting("momentum", (0.01, 1.0 - momentum, 1.0), **how),
        stored,
    ]


def _stored(mean: str, var: str) -> list[Convention]:
    """What is made of stored statistics, by the names that they are given under."""
    variance = {
        "taken for the standard deviation": changes.squared,
        "left out (ignored)": changes.ones,
    }
    zero = {"left out (ignored)": changes.times(0.0)}
    return [array("variance", var, variance), array("mean", mean, zero)]


def batch_norm_function(given: Arguments) -> Known:
    """The function of `nn` that is given its statistics."""
    names = ("mean", "var")
    usual = {"learned": _per_channel(given["x"].ndim), "stored": names}
    eps = [_eps(given.get("eps")), values("deviation", _EPS, "eps")]
    return told(_with_stored_statistics, usual), [*eps, *_stored(*names)]


# Norms without a mean
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
    weights = {name: given[one].reshape(learned) for name, one in own.items()}
    tried = product(_likely_axes(x.ndim), (True, False), ("", "outside"))
    for axes, centred, deviation in tried:
        usual: dict[str, Any] = {"axes": axes, "centred": centred, "deviation": deviation}
        eps = eps_of(x, given["usual"], weights, usual)
        if eps is not None:
            return _by_hand({**usual, "eps": eps, "learned": learned, "x": x}, own)
    return None


def _by_hand(usual: dict[str, Any], own: Mapping[str, str]) -> Known:
    """The formula of a norm whose axes and epsilon are known, with what else it may be.

    `own` gives its names of weight and bias.
    """

    def formula(nn: Any, given: Arguments) -> Any:
        return _own(nn, {**usual, **given, **{name: given[one] for name, one in own.items()}})

    centred, axes = usual["centred"], usual["axes"]
    other = "left in (RMS norm, not centred)" if centred else "subtracted (layer norm)"
    found = [*_rules(usual), values("centred", {other: not centred}, "mean")]
    if usual["deviation"]:
        inside = {"under the root instead of outside of it": ""}
        found.append(values("deviation", inside, "eps", joins="variance"))
    if "weight" in own:
        plus = {"one plus what is learned": changes.plus(1.0)}
        found.append(array("scale", own["weight"], plus))
    return formula, [*found, _over(axes, usual["x"].ndim, {})]


def _is_shift(name: str) -> bool:
    return any(word in name for word in ("bias", "beta", "shift"))


def _learned(x: np.ndarray, weights: Sequence[np.ndarray]) -> Shape | None:
    """The shape in which weights are along the last axis or along the channels, or None."""
    last = (1,) * (x.ndim - 1) + (-1,)
    for shape, width in ((last, x.shape[-1]), (_per_channel(x.ndim), x.shape[1])):
        if all(one.shape in ((width,), (width, *(1,) * (x.ndim - 2))) for one in weights):
            return shape
    return None


def _likely_axes(rank: int) -> list[Axes]:
    """What norms are taken over: the features, or of pictures the channels, positions, samples."""
    pictures = [(1,), tuple(range(1, rank)), tuple(range(2, rank)), (0, *range(2, rank))]
    return [(rank - 1,), *(pictures if rank > 2 else [(0,)])]


def eps_of(x: np.ndarray, y: np.ndarray, weights: Arrays, how: Arguments) -> float | None:
    """The epsilon with which a norm gives an output; None without one.

    Args:
        weights: What is learned, ``weight`` and ``bias``, as far as it is.
        how: The ``axes`` of its statistics, whether it is ``centred``, and its ``deviation``.
    """
    axes, weight, bias = how["axes"], weights.get("weight", 1.0), weights.get("bias", 0.0)
    centre = x - x.mean(axes, keepdims=True) if how["centred"] else x
    var = np.square(centre).mean(axes, keepdims=True)
    with np.errstate(all="ignore"):
        deviation = centre * weight / (y - bias)
        left = deviation - np.sqrt(var) if how["deviation"] else np.square(deviation) - var
        eps = float(np.nanmedian(left))
        for plain in (0.0, *short_decimals(eps, 7)):
            root = _DEVIATIONS[how["deviation"]](HOST, var, plain)
            if np.allclose(centre / root * weight + bias, y, rtol=1e-9, atol=1e-12):
                return plain
    return None


def root(given: Arguments) -> Known:
    """The root of a variance and an epsilon, or one over it, of a norm that is written out."""
    return _root, [
        _eps(given["eps"]),
        values("deviation", _EPS, "eps"),
        values("deviation", _SQUARE, "divisor"),
    ]


def _root(nn: Any, given: Arguments) -> Any:
    deviation = _deviation(nn, given["x"], given)
    return 1.0 / deviation if given["inverse"] else deviation


def normalize(given: Arguments) -> Known:
    """Division by the L2 norm along an axis."""
    return _normalize, [
        setting("dim", range(given["x"].ndim)),
        instead("divisor", {"sum of magnitudes (L1)": _by_magnitudes}),
    ]


def _normalize(nn: Any, given: Arguments) -> Any:
    return nn.normalize(given["x"], dim=given["dim"], eps=given["eps"])


def _by_magnitudes(nn: Any, given: Arguments) -> Any:
    return given["x"] / nn.sum(nn.abs(given["x"]), given["dim"], keepdim=True)
