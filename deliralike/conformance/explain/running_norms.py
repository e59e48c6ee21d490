"""Conventions of layers with running statistics: which are used, moved, and differentiated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain import norms, one_pass
from deliralike.conformance.explain.norms import EPSILONS, affine, standardised
from deliralike.conformance.explain.variant import Call, Variant, fitted, number
from deliralike.conformance.findings import Accused


def _statistics(nn: Any, x: Any, one_pass: bool = False) -> tuple[Any, Any, int]:
    """The batch's mean and biased variance of each channel, and over how many values."""
    dims = tuple(d for d in range(len(x.shape)) if d != 1)
    mean = nn.mean(x, dims)
    var = nn.mean(x * x, dims) - mean * mean if one_pass else nn.var(x, dims)
    return mean, var, math.prod(x.shape) // x.shape[1]


def batch_norm_layer(
    call: Call,
    *,
    eps: float | None = None,
    momentum: float | None = None,
    batch: bool | None = None,
    update: bool | None = None,
    correction: int = 0,
    running_correction: int = 1,
    times: int = 1,
    one_pass: bool = False,
    constant: str = "",
    how: str = "",
    only: str = "",
    momentum_of: str = "",
    error: Any = None,
    running_factor: float = 1.0,
    mixed: float = 0.0,
    first: int = 0,
    short: str = "",
) -> Any:
    """Batch normalisation under conventions of its own.

    Args:
        call: The call.
        eps, momentum: Instead of the settings'.
        batch: Whether to normalise by the batch's statistics.
        update: Whether to move the running ones.
        correction, running_correction: 1 for the unbiased variance in the normalisation, in the
            running statistics.
        times: How often the running statistics are moved.
        one_pass: The variance as E[x²] - E[x]².
        constant: Which of ``"mean var"`` get no gradient.
        how: ``"outside"`` for std + eps; ``"updated"`` to normalise by the running statistics after
            their update; ``"std"`` for a running standard deviation; ``"no decay"`` to add to the
            old value; ``"squared"`` to divide by the variance.
        only: Which running statistic alone is moved.
        momentum_of: Which running statistic alone has the other momentum.
        error: Added to the variance of each channel.
        running_factor: What the batch's variance is multiplied with in the running one.
        mixed: The share of the running statistics in what is normalised by.
        first: The statistics of so many samples only; 0 for all.
        short: A floating type that the batch's statistics are rounded to.
    """
    nn, w, x, s = call.nn, call.weights, call.args[0], call.settings
    eps = s["eps"] if eps is None else eps
    tracked = s.get("track_running_stats", True)
    batch = (call.training or not tracked) if batch is None else batch
    update = call.training if update is None else update
    mean, var, count = _statistics(nn, x[:first] if first else x, one_pass)
    var = var if error is None else var + nn.constant(error, like=x)
    mean, var = (nn.cast(nn.cast(value, short), x) if short else value for value in (mean, var))
    if tracked and update:
        usual = s["momentum"]
        if usual is None:  # a plain average
            usual = 1.0 / (nn.cast(w["num_batches_tracked"], mean) + 1.0)
        for _ in range(times):
            factor = 1.0 if how == "std" else running_factor * count / (count - running_correction)
            for name, value in (
                ("mean", mean),
                ("var", (nn.sqrt(var) if "std" in how else var) * factor),
            ):
                if only and name != only:
                    continue
                share = momentum if momentum is not None and momentum_of in ("", name) else usual
                before = call.after.get(f"running_{name}", w[f"running_{name}"])
                kept = 1.0 if how == "no decay" else 1.0 - share
                call.after[f"running_{name}"] = before * kept + nn.stop_gradient(value) * share
    if not batch:
        mean, var = w["running_mean"], w["running_var"]
    elif mixed:
        mean = mean * (1.0 - mixed) + w["running_mean"] * mixed
        var = var * (1.0 - mixed) + w["running_var"] * mixed
    elif how == "updated":
        mean, var = call.after["running_mean"], call.after["running_var"]
    else:
        var = var * (count / (count - correction))
        mean = nn.stop_gradient(mean) if "mean" in constant else mean
        var = nn.stop_gradient(var) if "var" in constant else var
    if how == "squared":
        var = var * var
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
        yield Variant(
            "running statistics never updated (not moved, momentum=0)", partial(make, update=False)
        )
        yield Variant("running statistics updated twice", partial(make, times=2))
        yield Variant("running statistics updated three times", partial(make, times=3))
        yield Variant(
            "running statistics moved by a plain average (momentum=None)",
            partial(make, momentum=average),
        )
        if momentum is not None:
            yield Variant(
                _momentum(momentum),
                lambda call, value: make(call, momentum=value),
                (1.0 - momentum, 0.01, 0.1),
                0.0,
                2.0,
            )
        else:
            yield Variant(
                lambda value: f"momentum={number(value)} instead of a plain average",
                lambda call, value: make(call, momentum=value),
                (0.1, 0.9),
            )
        yield Variant(
            "running variance biased instead of unbiased", partial(make, running_correction=0)
        )
        yield Variant("normalised with the unbiased variance", partial(make, correction=1))
        yield Variant(
            "normalised with the unbiased variance, running variance biased",
            partial(make, correction=1, running_correction=0),
        )
        yield Variant(
            "frozen: running statistics used in training, none moved",
            partial(make, batch=False, update=False),
        )
        yield Variant(
            "running statistics used in training, though moved", partial(make, batch=False)
        )
        yield Variant(
            "no gradient through the batch statistics", partial(make, constant="mean var")
        )
        yield Variant("no gradient through the batch mean", partial(make, constant="mean"))
        yield Variant("no gradient through the batch variance", partial(make, constant="var"))
        yield Variant("one-pass variance E[x²] - E[x]²", partial(make, one_pass=True))
        yield Variant("mean and variance in float32", partial(make, short="float32"))
        yield Variant(
            "the running mean alone is updated, the running variance not",
            partial(make, only="mean"),
        )
        yield Variant(
            "the running variance alone is updated, the running mean not", partial(make, only="var")
        )
        yield Variant("running standard deviation instead of variance", partial(make, how="std"))
        yield Variant(
            "running variance holds the corrected standard deviation",
            partial(make, how="corrected std"),
        )
        yield Variant(
            "normalised by the running statistics after their update", partial(make, how="updated")
        )
        yield Variant(
            "running statistics without decay (the old value is kept whole)",
            partial(make, how="no decay"),
        )
        yield from _parts_of_the_batch(np.shape(accused.args[0])[0])
        for name in ("mean", "var"):
            yield Variant(
                f"momentum={{}} for the running {name} alone",
                partial(_one_momentum, make, name),
                (0.9, 0.01),
            )
        yield Variant(
            "momentum swapped and running variance biased",
            lambda call: make(call, momentum=1.0 - (momentum or 0.1), running_correction=0),
        )
        yield Variant(
            "momentum={} and a biased running variance",
            lambda call, value: make(call, momentum=value, running_correction=0),
            (0.01, 0.9),
        )
        yield from _other_variance(accused, eps)
    else:
        yield Variant("batch statistics in evaluation", partial(make, batch=True, update=False))
        yield Variant(
            "batch statistics in evaluation, and running ones updated",
            partial(make, batch=True, update=True),
        )
        yield Variant("running statistics updated in evaluation", partial(make, update=True))
        yield Variant(
            "unbiased batch statistics in evaluation", partial(make, batch=True, correction=1)
        )
        yield Variant("running variance taken for the standard deviation", _squared_variance)
        yield Variant("running mean ignored", partial(_without, name="running_mean", to=0.0))
        yield Variant("running variance ignored", partial(_without, name="running_var", to=1.0))
    yield Variant(
        "eps outside of the root (added to the deviation: std + eps)", partial(make, how="outside")
    )
    yield Variant(
        "divided by the variance instead of its root (eps added to its square)",
        partial(make, how="squared"),
    )
    yield Variant("shifted before scaled: weight * (x + bias)", _shifted_first)
    yield Variant(
        "eps={} outside of the root",
        lambda call, value: make(call, eps=value, how="outside"),
        EPSILONS,
        0.0,
    )
    yield Variant(
        "instance norm (statistics of each sample) instead of batch norm",
        partial(_other_axes, dims="instance"),
    )
    yield Variant(
        "layer norm (all channels of each sample) instead of batch norm",
        partial(_other_axes, dims="layer"),
    )
    yield Variant("normalised over the batch axis alone", partial(_other_axes, dims="batch"))
    yield Variant("normalised over all axes at once", partial(_other_axes, dims="all"))
    yield Variant("mean not subtracted", partial(_other_axes, dims="channel", centred=False))
    yield Variant(
        "not divided by the standard deviation",
        partial(_other_axes, dims="channel", how="no division"),
    )
    for cause, rule in (
        ("divided by the variance instead of its root", "no root"),
        ("eps as the least variance (a floor: max(var, eps))", "maximum"),
    ):
        yield Variant(cause, partial(_other_axes, dims="channel", how=rule))
        yield Variant(f"{cause}; eps={{}}", partial(_by_rule, rule), (0.0, 1e-3), 0.0)
    for axes in norms.axes_of(np.ndim(accused.args[0])):
        yield Variant(
            f"statistics over axes {axes} instead of batch and positions",
            partial(_other_axes, dims=axes),
        )


def _parts_of_the_batch(samples: int) -> Iterator[Variant]:
    """Statistics of a part of the batch, and those that are corrected or mixed by a number."""
    make = batch_norm_layer
    for parts in (2, 3, 4):
        if samples % parts == 0 and samples > parts:
            name = "half" if parts == 2 else f"one of {parts} parts"
            yield Variant(
                f"statistics of the first {name} of the batch",
                partial(make, first=samples // parts),
            )
            yield Variant(
                f"statistics of each {name} of the batch by itself (local batch norm)",
                partial(_ghost, parts=parts),
            )
    if samples > 1:
        yield Variant(
            "running variance corrected by the number of samples instead of values",
            partial(make, running_correction=0, running_factor=samples / (samples - 1)),
        )
    yield Variant(
        "batch variance times {} in the running one",
        lambda call, value: make(call, running_factor=value),
        (1.0, 0.5),
    )
    yield Variant(
        "normalised by batch and running statistics mixed, {} of the running statistics",
        lambda call, value: make(call, mixed=value),
        (0.5, 0.9, 0.1),
    )


def _other_variance(accused: Accused, eps: float) -> Iterator[Variant]:
    """The variance of each channel as the candidate's outputs tell it."""
    x, y = np.asarray(accused.args[0]), np.asarray(accused.candidate.outputs)
    if x.ndim < 2:
        return
    axes, shape = tuple(d for d in range(x.ndim) if d != 1), (1, -1) + (1,) * (x.ndim - 2)
    weight, bias = (
        np.reshape(accused.state.get(name, usual * np.ones(x.shape[1])), shape)
        for name, usual in (("weight", 1.0), ("bias", 0.0))
    )
    if (found := one_pass.error(x, y, weight, bias, eps, x.shape, axes)) is not None:
        cause, off = found
        yield Variant(cause, partial(batch_norm_layer, error=off.ravel()))


def _momentum(usual: float) -> Any:
    def cause(value: float) -> str:
        swapped = (
            " (swapped: the weight of the old value)" if abs(value - (1.0 - usual)) < 1e-9 else ""
        )
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


def _shifted_first(call: Call) -> Any:
    w = call.weights
    return batch_norm_layer(call.but(weights={**w, "bias": w["bias"] * w["weight"]}))


def _ghost(call: Call, parts: int) -> Any:
    """Each part of the batch by its own statistics; running ones as they should be."""
    batch_norm_layer(call)
    size = call.args[0].shape[0] // parts
    pieces = [call.args[0][i * size : (i + 1) * size] for i in range(parts)]
    return call.nn.concatenate(
        [batch_norm_layer(call.but(args=(piece,), after={})) for piece in pieces], 0
    )


def _by_rule(rule: str, call: Call, eps: float) -> Any:
    return _other_axes(call, "channel", eps=eps, how=rule)


def _other_axes(
    call: Call, dims: str | tuple[int, ...], eps: float | None = None, **rule: Any
) -> Any:
    """Normalised over other axes; the running statistics as they should be."""
    batch_norm_layer(call)
    x, rank = call.args[0], len(call.args[0].shape)
    named = {
        "instance": tuple(range(2, rank)),
        "layer": tuple(range(1, rank)),
        "batch": (0,),
        "all": tuple(range(rank)),
        "channel": (0, *range(2, rank)),
    }
    over = named[dims] if isinstance(dims, str) else dims
    y = standardised(call.nn, x, over, call.settings["eps"] if eps is None else eps, **rule)
    return affine(call.nn, y, dict(call.weights), (1, -1) + (1,) * (rank - 2))


def instance_norm_layer(call: Call, eps: float | None = None, **rule: Any) -> Any:
    """Instance normalisation without running statistics."""
    nn, x, s = call.nn, call.args[0], call.settings
    y = standardised(nn, x, tuple(range(2, len(x.shape))), s["eps"] if eps is None else eps, **rule)
    return affine(nn, y, dict(call.weights), (1, -1) + (1,) * (len(x.shape) - 2))


def instance_norm(settings: Mapping[str, Any], rank: int) -> Iterator[Variant]:
    """Epsilon, rules and axes, for an input of so many axes."""
    for cause, formula, *search in norms.ruled(instance_norm_layer, settings["eps"]):
        yield Variant(cause, formula, *search)
    usual = tuple(range(2, rank))
    named = {
        (0, *usual): "batch statistics instead of those of each sample",
        (1, *usual): "layer norm instead of instance norm (over the channels too)",
    }
    for dims in norms.axes_of(rank):
        cause = named.get(dims, f"normalised over axes {dims} instead of {usual}")
        yield Variant(cause, partial(_over, dims=dims))


def _over(call: Call, dims: Sequence[int]) -> Any:
    y = standardised(call.nn, call.args[0], dims, call.settings["eps"])
    return affine(call.nn, y, dict(call.weights), (1, -1) + (1,) * (len(call.args[0].shape) - 2))
