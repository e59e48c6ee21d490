"""Conventions of normalisation: epsilons, groups, axes, variances; and the statistics of batch norm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from deliralike.conformance.explain.calls import Bound
from deliralike.conformance.explain.variant import Call, Variant, fitted, instead, number
from deliralike.conformance.findings import Accused

EPSILONS = (2e-5, 1e-3, 1e-6, 1e-5, 1e-4, 1e-8, 1e-2, 0.1)


def standardised(nn: Any, x: Any, dims: Sequence[int], eps: float, correction: int = 0, centred: bool = True,
                 how: str = "") -> Any:  # fmt: skip
    """Mean 0 and variance 1 over some axes, by one of several rules."""
    mean = nn.mean(x, tuple(dims), keepdim=True)
    count = math.prod(x.shape[d] for d in dims)
    difference = x - mean
    if how == "one pass":
        var = nn.mean(x * x, tuple(dims), keepdim=True) - mean * mean
    elif how == "uncentred variance":
        var = nn.mean(x * x, tuple(dims), keepdim=True)
    else:
        var = nn.sum(difference * difference, tuple(dims), keepdim=True) * (1.0 / (count - correction))
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


RULES: dict[str, dict[str, Any]] = {
    "unbiased variance in the normalisation instead of the biased one": {"correction": 1},
    "eps outside of the root (std + eps)": {"how": "outside"},
    "eps as the least variance (max(var, eps))": {"how": "maximum"},
    "mean not subtracted (RMS norm)": {"centred": False},
    "variance not centred (mean of squares)": {"how": "uncentred variance"},
    "one-pass variance E[x²] - E[x]²": {"how": "one pass"},
    "divided by the variance instead of its root": {"how": "no root"},
    "not divided by the standard deviation": {"how": "no division"},
    "no gradient through the mean and variance": {"how": "constant statistics"},
}


def _affine(nn: Any, y: Any, b: Bound, shape: Sequence[int] | None = None) -> Any:
    weight, bias = (b.get(name) for name in ("weight", "bias"))
    if shape is not None:
        weight, bias = (None if one is None else nn.reshape(one, tuple(shape)) for one in (weight, bias))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def layer_norm(b: Bound) -> Iterator[tuple]:
    """Epsilon, rules, and other axes."""
    rank, n = len(b["x"].shape), len(tuple(b["normalized_shape"])) if not isinstance(b["normalized_shape"], int) else 1
    usual = tuple(range(rank - n, rank))

    def made(nn: Any, b: Bound, eps: float | None = None, dims: Sequence[int] = usual, **rule: Any) -> Any:
        return _affine(nn, standardised(nn, b["x"], dims, b["eps"] if eps is None else eps, **rule), b)

    yield fitted("eps", b["eps"]), lambda nn, b, value: made(nn, b, value), EPSILONS, 0.0
    for cause, rule in RULES.items():
        yield cause, partial(made, **rule)
    yield "eps={} outside of the root", lambda nn, b, value: made(nn, b, value, how="outside"), EPSILONS, 0.0
    for dims in _axes(rank):
        if dims != usual:
            yield f"normalised over axes {dims} instead of {usual}", partial(made, dims=dims)


def _axes(rank: int) -> list[tuple[int, ...]]:
    return [dims for count in range(1, rank + 1) for dims in combinations(range(rank), count)]


def group_norm(b: Bound) -> Iterator[tuple]:
    """Epsilon, groups, rules, and other axes."""
    x = b["x"]
    rank, channels, groups = len(x.shape), x.shape[1], b["num_groups"]
    shape = (1, -1) + (1,) * (rank - 2)

    def made(nn: Any, b: Bound, eps: float | None = None, groups: int = groups, turn: bool = False, **rule: Any) -> Any:
        x = b["x"]
        if turn:  # channel c belongs to group c % groups
            split = nn.reshape(x, (x.shape[0], channels // groups, groups, -1))
            dims: tuple[int, ...] = (1, 3)
        else:
            split, dims = nn.reshape(x, (x.shape[0], groups, -1)), (2,)
        y = standardised(nn, split, dims, b["eps"] if eps is None else eps, **rule)
        return _affine(nn, nn.reshape(y, tuple(x.shape)), b, shape)

    yield fitted("eps", b["eps"]), lambda nn, b, value: made(nn, b, value), EPSILONS, 0.0
    for other in [g for g in range(1, channels + 1) if channels % g == 0 and g != groups]:
        yield instead("groups", other, groups) + f" (num_groups={other})", partial(made, groups=other)
        yield (
            f"channels per group {groups} taken for the number of groups"
            if channels // groups == other
            else (f"groups={other}, channels dealt in turn"),
            partial(made, groups=other, turn=True),
        )
    yield "channels dealt to the groups in turn", partial(made, turn=True)
    for cause, rule in RULES.items():
        yield cause, partial(made, **rule)
    yield "eps={} outside of the root", lambda nn, b, value: made(nn, b, value, how="outside"), EPSILONS, 0.0
    for dims in _axes(rank):
        yield (
            f"normalised over axes {dims} instead of groups of channels",
            lambda nn, b, dims=dims: _affine(nn, standardised(nn, b["x"], dims, b["eps"]), b, shape),
        )


def batch_norm_function(b: Bound) -> Iterator[tuple]:
    """The function with given statistics."""

    def made(nn: Any, b: Bound, **changes: Any) -> Any:
        return nn.batch_norm(**{**b, **changes})

    yield fitted("eps", b["eps"]), lambda nn, b, value: made(nn, b, eps=value), EPSILONS, 0.0
    yield (
        "eps outside of the root (std + eps)",
        lambda nn, b: made(nn, b, var=(nn.sqrt(b["var"]) + b["eps"]) * (nn.sqrt(b["var"]) + b["eps"]), eps=0.0),
    )
    yield (
        "batch statistics instead of the given ones",
        lambda nn, b: nn.batch_norm_train(b["x"], b["weight"], b["bias"], b["eps"])[0],
    )
    yield "variance taken for the standard deviation", lambda nn, b: made(nn, b, var=b["var"] * b["var"])
    yield "mean ignored", lambda nn, b: made(nn, b, mean=b["mean"] * 0.0)
    yield "variance ignored", lambda nn, b: made(nn, b, var=b["var"] * 0.0 + 1.0)


# Layers with running statistics --------------------------------------------------------------------------------------


def _statistics(nn: Any, x: Any, one_pass: bool = False) -> tuple[Any, Any, int]:
    """The batch's mean and biased variance of each channel, and over how many values."""
    dims = tuple(d for d in range(len(x.shape)) if d != 1)
    mean = nn.mean(x, dims)
    var = nn.mean(x * x, dims) - mean * mean if one_pass else nn.var(x, dims)
    return mean, var, math.prod(x.shape) // x.shape[1]


def batch_norm_layer(call: Call, *, eps: float | None = None, momentum: float | None = None, batch: bool | None = None,
                     update: bool | None = None, correction: int = 0, running_correction: int = 1, times: int = 1,
                     one_pass: bool = False, constant: str = "", how: str = "", only: str = "",
                     momentum_of: str = "", error: Any = None) -> Any:  # fmt: skip
    """Batch normalisation under conventions of its own.

    Args:
        call: The call.
        eps, momentum: Instead of the settings'.
        batch: Whether to normalise by the batch's statistics.
        update: Whether to move the running ones.
        correction, running_correction: 1 for the unbiased variance in the normalisation, in the running statistics.
        times: How often the running statistics are moved.
        one_pass: The variance as E[x²] - E[x]².
        constant: Which of ``"mean var"`` get no gradient.
        how: ``"outside"`` for std + eps; ``"updated"`` to normalise by the running statistics after their update;
            ``"std"`` for a running standard deviation.
        only: Which running statistic alone is moved.
        momentum_of: Which running statistic alone has the other momentum.
        error: Added to the variance of each channel.
    """
    nn, w, x, s = call.nn, call.weights, call.args[0], call.settings
    eps = s["eps"] if eps is None else eps
    tracked = s.get("track_running_stats", True)
    batch = (call.training or not tracked) if batch is None else batch
    update = call.training if update is None else update
    mean, var, count = _statistics(nn, x, one_pass)
    var = var if error is None else var + nn.constant(error, like=x)
    if tracked and update:
        usual = s["momentum"]
        if usual is None:  # a plain average
            usual = 1.0 / (nn.cast(w["num_batches_tracked"], mean) + 1.0)
        for _ in range(times):
            for name, value in (("mean", mean), ("var", var * (count / (count - running_correction)))):
                if only and name != only:
                    continue
                share = momentum if momentum is not None and momentum_of in ("", name) else usual
                value = nn.sqrt(value) if how == "std" and name == "var" else value
                before = call.after.get(f"running_{name}", w[f"running_{name}"])
                call.after[f"running_{name}"] = before * (1.0 - share) + nn.stop_gradient(value) * share
    if not batch:
        mean, var = w["running_mean"], w["running_var"]
    elif how == "updated":
        mean, var = call.after["running_mean"], call.after["running_var"]
    else:
        var = var * (count / (count - correction))
        mean = nn.stop_gradient(mean) if "mean" in constant else mean
        var = nn.stop_gradient(var) if "var" in constant else var
    if how == "outside":
        root = nn.sqrt(var) + eps
        var, eps = root * root, 0.0
    return nn.batch_norm(x, mean, var, w.get("weight"), w.get("bias"), eps)


def batch_norm(accused: Accused, settings: Any) -> Iterator[Variant]:
    """Epsilons, momenta, and which statistics are used, moved and differentiated."""
    make, training = batch_norm_layer, accused.training
    eps, momentum = settings["eps"], settings.get("momentum")
    average = 1.0 / (float(accused.state.get("num_batches_tracked", 0)) + 1.0)
    yield Variant(fitted("eps", eps), lambda call, value: make(call, eps=value), EPSILONS, 0.0)
    if training:
        yield Variant("running statistics never updated", partial(make, update=False))
        yield Variant("running statistics updated twice", partial(make, times=2))
        yield Variant("running statistics updated three times", partial(make, times=3))
        yield Variant("running statistics moved by a plain average (momentum=None)", partial(make, momentum=average))
        if momentum is not None:
            yield Variant(_momentum(momentum), lambda call, value: make(call, momentum=value),
                          (1.0 - momentum, 0.01, 0.1), 0.0, 2.0)  # fmt: skip
        else:
            yield Variant(lambda value: f"momentum={number(value)} instead of a plain average",
                          lambda call, value: make(call, momentum=value), (0.1, 0.9))  # fmt: skip
        yield Variant("running variance biased instead of unbiased", partial(make, running_correction=0))
        yield Variant("normalised with the unbiased variance", partial(make, correction=1))
        yield Variant("normalised with the unbiased variance, running variance biased",
                      partial(make, correction=1, running_correction=0))  # fmt: skip
        yield Variant(
            "frozen: running statistics used in training, none moved", partial(make, batch=False, update=False)
        )
        yield Variant("running statistics used in training, though moved", partial(make, batch=False))
        yield Variant("no gradient through the batch statistics", partial(make, constant="mean var"))
        yield Variant("no gradient through the batch mean", partial(make, constant="mean"))
        yield Variant("no gradient through the batch variance", partial(make, constant="var"))
        yield Variant("one-pass variance E[x²] - E[x]²", partial(make, one_pass=True))
        yield Variant("only the running mean is updated", partial(make, only="mean"))
        yield Variant("only the running variance is updated", partial(make, only="var"))
        yield Variant("running standard deviation instead of variance", partial(make, how="std"))
        yield Variant("normalised by the running statistics after their update", partial(make, how="updated"))
        for name in ("mean", "var"):
            yield Variant(f"momentum={{}} for the running {name} alone",
                          partial(_one_momentum, make, name), (0.9, 0.01))  # fmt: skip
        yield Variant("momentum swapped and running variance biased",
                      lambda call: make(call, momentum=1.0 - (momentum or 0.1), running_correction=0))  # fmt: skip
        yield Variant("momentum={} and a biased running variance",
                      lambda call, value: make(call, momentum=value, running_correction=0), (0.01, 0.9))  # fmt: skip
        yield from _other_variance(accused, eps)
    else:
        yield Variant("batch statistics in evaluation", partial(make, batch=True, update=False))
        yield Variant(
            "batch statistics in evaluation, and running ones updated", partial(make, batch=True, update=True)
        )
        yield Variant("running statistics updated in evaluation", partial(make, update=True))
        yield Variant("unbiased batch statistics in evaluation", partial(make, batch=True, correction=1))
        yield Variant("running variance taken for the standard deviation", _squared_variance)
        yield Variant("running mean ignored", partial(_without, name="running_mean", to=0.0))
        yield Variant("running variance ignored", partial(_without, name="running_var", to=1.0))
    yield Variant("eps outside of the root (std + eps)", partial(make, how="outside"))
    yield Variant("eps={} outside of the root", lambda call, value: make(call, eps=value, how="outside"), EPSILONS, 0.0)
    yield Variant(
        "instance norm (statistics of each sample) instead of batch norm", partial(_other_axes, dims="instance")
    )
    yield Variant("layer norm (all channels of each sample) instead of batch norm", partial(_other_axes, dims="layer"))
    yield Variant("normalised over the batch axis alone", partial(_other_axes, dims="batch"))
    yield Variant("normalised over all axes at once", partial(_other_axes, dims="all"))
    yield Variant("mean not subtracted", partial(_other_axes, dims="channel", centred=False))
    yield Variant("not divided by the standard deviation", partial(_other_axes, dims="channel", how="no division"))
    yield Variant("divided by the variance instead of its root", partial(_other_axes, dims="channel", how="no root"))


def _other_variance(accused: Accused, eps: float) -> Iterator[Variant]:
    """The variance of each channel as the candidate's outputs tell it: rounding errors of one pass have that size."""
    x, y = np.asarray(accused.args[0]), np.asarray(accused.candidate.outputs)
    if x.shape != y.shape or x.ndim < 2:
        return
    axes, shape = tuple(d for d in range(x.ndim) if d != 1), (1, -1) + (1,) * (x.ndim - 2)
    weight = np.asarray(accused.state.get("weight", np.ones(x.shape[1])))
    bias = np.asarray(accused.state.get("bias", np.zeros(x.shape[1])))
    mean, var = x.mean(axes), x.var(axes)
    centred = (x - mean.reshape(shape)) * weight.reshape(shape)
    with np.errstate(all="ignore"):
        scale = ((y - bias.reshape(shape)) * centred).sum(axes) / np.square(centred).sum(axes)
        error = 1.0 / np.square(scale) - eps - var
    if not np.isfinite(error).all():
        return
    for name, precision in (("", 2.0**-53), (" in float32", 2.0**-24)):
        if (np.abs(error) <= 64.0 * precision * (np.square(mean) + var)).all():
            cause = f"one-pass variance E[x²] - E[x]²{name} (rounding errors of that size)"
            yield Variant(cause, partial(batch_norm_layer, error=error))
            return


def _momentum(usual: float) -> Any:
    def cause(value: float) -> str:
        swapped = " (swapped: the weight of the old value)" if abs(value - (1.0 - usual)) < 1e-9 else ""
        return f"momentum={number(value)} instead of {number(usual)}{swapped}"

    return cause


def _one_momentum(make: Any, name: str, call: Call, value: float) -> Any:
    return make(call, momentum=value, momentum_of=name)


def _squared_variance(call: Call) -> Any:
    var = call.weights["running_var"]
    return batch_norm_layer(call.but(weights={**call.weights, "running_var": var * var}))


def _without(call: Call, name: str, to: float) -> Any:
    ignored = call.weights[name] * 0.0 + to
    return batch_norm_layer(call.but(weights={**call.weights, name: ignored}))


def _other_axes(call: Call, dims: str, **rule: Any) -> Any:
    """Normalised over other axes; the running statistics as they should be."""
    batch_norm_layer(call)
    x, rank = call.args[0], len(call.args[0].shape)
    over = {
        "instance": tuple(range(2, rank)),
        "layer": tuple(range(1, rank)),
        "batch": (0,),
        "all": tuple(range(rank)),
        "channel": (0, *range(2, rank)),
    }[dims]
    y = standardised(call.nn, x, over, call.settings["eps"], **rule)
    return _affine(call.nn, y, dict(call.weights), (1, -1) + (1,) * (rank - 2))


def instance_norm_layer(call: Call, eps: float | None = None, **rule: Any) -> Any:
    """Instance normalisation without running statistics."""
    nn, x, s = call.nn, call.args[0], call.settings
    y = standardised(nn, x, tuple(range(2, len(x.shape))), s["eps"] if eps is None else eps, **rule)
    return _affine(nn, y, dict(call.weights), (1, -1) + (1,) * (len(x.shape) - 2))


def instance_norm(settings: Any) -> Iterator[Variant]:
    """Epsilon, rules and axes."""
    make = instance_norm_layer
    yield Variant(fitted("eps", settings["eps"]), lambda call, value: make(call, eps=value), EPSILONS, 0.0)
    for cause, rule in RULES.items():
        yield Variant(cause, partial(make, **rule))
    yield Variant("eps={} outside of the root", lambda call, value: make(call, eps=value, how="outside"), EPSILONS, 0.0)

    def over(call: Call, dims: Any) -> Any:
        rank = len(call.args[0].shape)
        y = standardised(call.nn, call.args[0], dims(rank), call.settings["eps"])
        return _affine(call.nn, y, dict(call.weights), (1, -1) + (1,) * (rank - 2))

    yield Variant("batch statistics instead of those of each sample", partial(over, dims=lambda r: (0, *range(2, r))))
    yield Variant("layer norm instead of instance norm", partial(over, dims=lambda r: tuple(range(1, r))))
    yield Variant("normalised over the channels", partial(over, dims=lambda r: (1,)))
