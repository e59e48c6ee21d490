"""Conventions of norms: epsilons, axes, variances, and which statistics are used and moved."""

from __future__ import annotations

import math
from typing import Any

from deliralike.conformance.explain.convention import (
    POSITIVE,
    Arguments,
    Convention,
    Known,
    changing,
    rules,
    setting,
    values,
    with_usual,
)
from deliralike.conformance.explain.enumeration import divisors
from deliralike.conformance.kinds import Named, Shape

EPSILONS = (1e-3, 1e-6, 1e-5, 2e-5, 1e-4, 1e-8, 1e-2, 0.0)

# How the deviation is made of the variance and epsilon; the usual way is ``sqrt(var + eps)``.
_DEVIATIONS: Named = {
    "": lambda nn, var, eps: nn.sqrt(var + eps),
    "outside": lambda nn, var, eps: nn.sqrt(var) + eps,
    "floor": lambda nn, var, eps: nn.sqrt(nn.where(var > eps, var, eps)),
}
_EPS = {
    "outside of the root (added to the deviation: std + eps)": "outside",
    "as the least variance (a floor: max(var, eps))": "floor",
}
_VARIANCE = {
    "unbiased in the normalisation (unbiased variance)": {"correction": 1},
    "not centred (mean of squares)": {"uncentred": True},
}
_RUNNING = ("running_mean", "running_var")


def _eps(given: Arguments) -> list[Convention]:
    eps = setting("eps", EPSILONS, free=True, power=POSITIVE, usual=given.get("eps"))
    return [eps, values("deviation", _EPS, "eps")]


def _rules(given: Arguments) -> list[Convention]:
    """What holds of every norm; the first three also together."""
    gradient = {"through the batch statistics (mean and variance)": True}
    return [
        *_eps(given),
        rules("variance", _VARIANCE),
        values("centred", {"not subtracted (RMS norm, not centred)": False}, "mean"),
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
    shape = given.get("learned")
    weight, bias = given.get("weight"), given.get("bias")
    if weight is not None:
        y = y * _in_shape(nn, weight, shape)
    if bias is not None:
        y = y + _in_shape(nn, bias, shape)
    return y


def _in_shape(nn: Any, x: Any, shape: Any) -> Any:
    return x if shape is None else nn.reshape(x, shape)


def _without_running_statistics(nn: Any, given: Arguments) -> Any:
    """A norm without running statistics; ``split`` is the shape in which its axes are counted."""
    x = given["x"]
    part = nn.reshape(x, given["split"]) if "split" in given else x
    y = _normalised(nn, part, *statistics(nn, part, given), given)
    return _affine(nn, nn.reshape(y, tuple(x.shape)), given)


def _per_channel(rank: int) -> Shape:
    return (1, -1) + (1,) * (rank - 2)


def layer_norm(given: Arguments) -> Known:
    """Layer norm, over the last axes."""
    rank = given["x"].ndim
    axes = tuple(range(rank - len(given["normalized_shape"]), rank))
    usual = {"axes": axes}
    return with_usual(_without_running_statistics, usual), _rules(given)


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
    return with_usual(_without_running_statistics, usual), [
        counts,
        *_rules(given),
    ]


def instance_norm(given: Arguments) -> Known:
    """Instance norm without running statistics, over all positions of a channel."""
    rank = given["x"].ndim
    axes = tuple(range(2, rank))
    usual = {"axes": axes, "learned": _per_channel(rank)}
    others = {"by batch statistics instead of those of each sample": (0, *axes)}
    table = [*_rules(given), values("axes", others, "normalised")]
    return with_usual(_without_running_statistics, usual), table


# Running statistics
# -----------------------------------------------------------------------------


def _batch_norm(nn: Any, given: Arguments) -> Any:
    """Batch norm by the rules that are given, which are the usual ones where nothing is."""
    if given["moves"]:
        _move(nn, given)
    if given["source"] == "batch":
        return _without_running_statistics(nn, given)
    return _with_stored_statistics(nn, given)


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
    others = {
        "by the statistics of each sample (instance norm)": tuple(range(2, x.ndim)),
        "by all channels of each sample (layer norm)": tuple(range(1, x.ndim)),
        "over the batch axis alone": (0,),
    }
    eps, *further = _rules(given)
    found = [eps]
    if tracked:
        found += _moving(given) if training else _evaluating()
    over = values("axes", others, "normalised")
    return with_usual(_batch_norm, usual), [*found, *further, over]


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
    how: dict[str, Any] = {"free": True, "power": POSITIVE}
    table = [
        rules("running statistics", used),
        values("biased", biased, "running variance"),
    ]
    if momentum is None:
        how["usual"] = "a plain average"
        return [*table, setting("momentum", (0.01, 0.1, 0.9), **how)]
    swapped = f"{momentum:.10g} (swapped: the weight of the old value)"
    return [
        *table,
        setting("momentum", (1.0 - momentum,), usual=swapped),
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
    return with_usual(_with_stored_statistics, usual), _eps(given)
