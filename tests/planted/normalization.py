"""Mistakes of norms: epsilon, variance, running statistics, groups and axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings

# Batch norm, step by step
# -----------------------------------------------------------------------------


def _own(norm: Any, x: Any) -> tuple[Any, Any]:
    """The batch's own mean and biased variance."""
    dims = (0, *range(2, len(x.shape)))
    return norm.nn.mean(x, dims), norm.nn.var(x, dims, correction=0)


def _running(norm: Any, x: Any) -> tuple[Any, Any]:
    return norm.running_mean, norm.running_var


def _normalised(norm: Any, x: Any, mean: Any, var: Any) -> Any:
    return norm.nn.batch_norm(x, mean, var, norm.weight, norm.bias, norm.eps)


def _moved(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm._update(mean, var, count)


def _left(norm: Any, mean: Any, var: Any, count: int) -> None:
    """Nothing moves."""


def _count(x: Any) -> int:
    """How many values each channel has."""
    return math.prod(x.shape) // x.shape[1]


Statistics = Callable[[Any, Any], tuple[Any, Any]]


def _batch_norm(
    in_training: Statistics = _own,
    in_evaluation: Statistics = _running,
    normalise: Callable[..., Any] = _normalised,
    move: Callable[..., None] = _moved,
    always: bool = False,
    first: bool = False,
) -> Plant:
    """Batch norm with one step of another kind.

    Args:
        in_training, in_evaluation: The mean and variance that are normalised by.
        normalise: How.
        move: How the running statistics follow those of the batch.
        always: Whether they do so in evaluation as well.
        first: Whether they do so before anything is normalised.
    """

    def forward(self, x):
        def follow():
            if self.training or always:
                move(self, *_own(self, x), _count(x))

        if first:
            follow()
        y = normalise(self, x, *(in_training if self.training else in_evaluation)(self, x))
        if not first:
            follow()
        return y

    return with_methods("norm", forward=forward)


def _unbiased(norm: Any, x: Any) -> tuple[Any, Any]:
    mean, var = _own(norm, x)
    return mean, var * (_count(x) / (_count(x) - 1))


def _cut(norm: Any, x: Any) -> tuple[Any, Any]:
    mean, var = _own(norm, x)
    return norm.nn.stop_gradient(mean), norm.nn.stop_gradient(var)


def _variance_cut(norm: Any, x: Any) -> tuple[Any, Any]:
    mean, var = _own(norm, x)
    return mean, norm.nn.stop_gradient(var)


def _mean_cut(norm: Any, x: Any) -> tuple[Any, Any]:
    dims = (0, 2, 3)
    mean = norm.nn.stop_gradient(norm.nn.mean(x, dims))
    centred = x - norm.nn.reshape(mean, (1, -1, 1, 1))
    return mean, norm.nn.mean(centred * centred, dims)


def _by_deviation(norm: Any, x: Any, mean: Any, var: Any) -> Any:
    per_channel = (
        norm.nn.reshape(v, (1, -1, 1, 1)) for v in (mean, norm.nn.sqrt(var), norm.weight, norm.bias)
    )
    mean, deviation, weight, bias = per_channel
    return (x - mean) / deviation * weight + bias


def _by_deviation_plus_eps(norm: Any, x: Any, mean: Any, var: Any) -> Any:
    return _by_deviation(norm, x, mean, (norm.nn.sqrt(var) + norm.eps) ** 2)


def _by_variance(norm: Any, x: Any, mean: Any, var: Any) -> Any:
    return norm.nn.batch_norm(x, mean, var * var, norm.weight, norm.bias, norm.eps)


def _affine(weight: Callable[[Any], Any], bias: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda norm, x, mean, var: norm.nn.batch_norm(
        x, mean, var, weight(norm), bias(norm), norm.eps
    )


def _weight(norm: Any) -> Any:
    return norm.weight


def _bias(norm: Any) -> Any:
    return norm.bias


def _shifted_before_scaled(norm: Any, x: Any, mean: Any, var: Any) -> Any:
    """``weight * (x + bias)``."""
    return norm.nn.batch_norm(x, mean, var, norm.weight, norm.bias * norm.weight, norm.eps)


def _moved_biased(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm._update(mean, var * ((count - 1) / count), count)


def _moved_twice(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm._update(mean, var, count)
    norm._update(mean, var, count)


def _moved_deviation(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm._update(mean, norm.nn.sqrt(var), count)


def _only_mean_moved(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm._update(mean, norm.running_var * ((count - 1) / count), count)


def _only_variance_moved(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm._update(norm.running_mean, var, count)


def _replaced(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm.running_mean, norm.running_var = norm.nn.stop_gradient(mean), norm.nn.stop_gradient(var)


def _per_sample(norm: Any, x: Any) -> Any:
    """Statistics of each sample, as in instance norm."""
    return norm.nn.group_norm(x, x.shape[1], norm.weight, norm.bias, norm.eps)


def _over_channels(norm: Any, x: Any) -> Any:
    """Statistics of each position over the channels: the axis of NHWC."""
    mean = norm.nn.mean(x, 1, keepdim=True)
    y = (x - mean) / norm.nn.sqrt(norm.nn.var(x, 1, keepdim=True, correction=0) + norm.eps)
    return y * norm.nn.reshape(norm.weight, (1, -1, 1, 1)) + norm.nn.reshape(
        norm.bias, (1, -1, 1, 1)
    )


def _over_batch_only(norm: Any, x: Any) -> Any:
    """Statistics of each channel and position over the batch alone."""
    mean = norm.nn.mean(x, 0, keepdim=True)
    y = (x - mean) / norm.nn.sqrt(norm.nn.var(x, 0, keepdim=True, correction=0) + norm.eps)
    return y * norm.nn.reshape(norm.weight, (1, -1, 1, 1)) + norm.nn.reshape(
        norm.bias, (1, -1, 1, 1)
    )


def _in_training(normalise: Callable[[Any, Any], Any]) -> Plant:
    return _batch_norm(
        normalise=lambda norm, x, mean, var: (
            normalise(norm, x) if norm.training else _normalised(norm, x, mean, var)
        )
    )


def _batch(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"batch norm: {name}", "batch norm", plant, ("norm",), cause)


_BATCH_NORM = [
    _batch("eps 2e-5", with_settings("norm", eps=2e-5), "eps"),
    _batch("eps 1e-3", with_settings("norm", eps=1e-3), "eps"),
    _batch("eps 1e-6", with_settings("norm", eps=1e-6), "eps"),
    _batch("eps 3.7e-4, which no framework has", with_settings("norm", eps=3.7e-4), "eps"),
    _batch("no eps", _batch_norm(normalise=_by_deviation), "eps"),
    _batch(
        "eps added to the deviation",
        _batch_norm(normalise=_by_deviation_plus_eps),
        "eps",
        "deviation",
    ),
    _batch("divided by the variance", _batch_norm(normalise=_by_variance), "variance"),
    _batch("momentum of the old value", with_settings("norm", momentum=0.9), "momentum"),
    _batch("momentum 0.01", with_settings("norm", momentum=0.01), "momentum"),
    _batch(
        "momentum 0.23, which no framework has", with_settings("norm", momentum=0.23), "momentum"
    ),
    _batch(
        "momentum None, a plain average",
        with_settings("norm", momentum=None),
        "momentum",
        "average",
    ),
    _batch("running variance biased", _batch_norm(move=_moved_biased), "biased"),
    _batch("normalised unbiased", _batch_norm(_unbiased), "unbiased"),
    _batch("frozen in training", _batch_norm(_running, move=_left), "frozen", "running statistics"),
    _batch(
        "running statistics used in training, and moved",
        _batch_norm(_running),
        "running statistics",
        "frozen",
    ),
    _batch(
        "running statistics moved first, then used",
        _batch_norm(_running, first=True),
        "running statistics",
    ),
    _batch("batch statistics in evaluation", _batch_norm(in_evaluation=_own), "batch statistics"),
    _batch("running statistics move in evaluation", _batch_norm(always=True), "evaluation"),
    _batch(
        "running statistics do not move",
        _batch_norm(move=_left),
        "momentum=0",
        "not moved",
        "frozen",
        "not updated",
    ),
    _batch(
        "running statistics move twice", _batch_norm(move=_moved_twice), "twice", "momentum=0.19"
    ),
    _batch("running variance holds deviations", _batch_norm(move=_moved_deviation), "deviation"),
    _batch(
        "running mean alone moves",
        _batch_norm(move=_only_mean_moved),
        "running_var",
        "running variance",
    ),
    _batch(
        "running variance alone moves",
        _batch_norm(move=_only_variance_moved),
        "running_mean",
        "running mean",
    ),
    _batch(
        "running statistics are the last batch's",
        _batch_norm(move=_replaced),
        "momentum=1",
        "biased",
        "last",
    ),
    _batch("no gradient through the statistics", _batch_norm(_cut), "gradient"),
    _batch("no gradient through the variance", _batch_norm(_variance_cut), "gradient"),
    _batch("no gradient through the mean", _batch_norm(_mean_cut), "gradient"),
    _batch(
        "scale is weight + 1",
        _batch_norm(normalise=_affine(lambda n: n.weight + 1.0, _bias)),
        "weight",
        "scale",
    ),
    _batch(
        "no scale",
        _batch_norm(normalise=_affine(lambda n: n.weight * 0.0 + 1.0, _bias)),
        "weight",
        "scale",
    ),
    _batch(
        "no shift", _batch_norm(normalise=_affine(_weight, lambda n: n.bias * 0.0)), "bias", "shift"
    ),
    _batch(
        "scale takes no gradient",
        _batch_norm(normalise=_affine(lambda n: n.nn.stop_gradient(n.weight), _bias)),
        "gradient",
    ),
    _batch(
        "shift of the other sign",
        _batch_norm(normalise=_affine(_weight, lambda n: -n.bias)),
        "bias",
        "shift",
        "sign",
    ),
    _batch("shifted before scaled", _batch_norm(normalise=_shifted_before_scaled), "shift", "bias"),
    _batch(
        "statistics of each sample", _in_training(_per_sample), "sample", "instance", "axis", "axes"
    ),
    _batch(
        "statistics over the channels", _in_training(_over_channels), "axis", "axes", "channels"
    ),
    _batch(
        "statistics over the batch alone",
        _in_training(_over_batch_only),
        "axis",
        "axes",
        "position",
    ),
]

# Norms of each sample
# -----------------------------------------------------------------------------


def _standardised(
    nn: Any,
    x: Any,
    dims: tuple[int, ...],
    eps: float,
    *,
    correction: int = 0,
    outside: bool = False,
    centred: bool = True,
) -> Any:
    """Mean 0 and variance 1 over some axes; each setting is a mistake."""
    shifted = x - nn.mean(x, dims, keepdim=True) if centred else x
    count = math.prod([x.shape[d] for d in dims])
    var = nn.sum(shifted * shifted, dims, keepdim=True) * (1.0 / (count - correction))
    return shifted / (nn.sqrt(var) + eps if outside else nn.sqrt(var + eps))


def _scaled(norm: Any, y: Any) -> Any:
    """By one weight and bias for each channel."""
    shape = (1, -1) + (1,) * (len(y.shape) - 2)
    return y * norm.nn.reshape(norm.weight, shape) + norm.nn.reshape(norm.bias, shape)


def _group_norm(**mistakes: Any) -> Plant:
    def forward(self, x):
        grouped = self.nn.reshape(x, (x.shape[0], self.num_groups, -1))
        y = _standardised(self.nn, grouped, (2,), self.eps, **mistakes)
        return _scaled(self, self.nn.reshape(y, tuple(x.shape)))

    return with_methods("group", forward=forward)


def _interleaved_groups(self, x):
    """Group channels 0 and 3, 1 and 4: the order of a reshape to (channels per group, groups)."""
    batch, channels, *size = x.shape
    split = self.nn.reshape(x, (batch, channels // self.num_groups, self.num_groups, -1))
    return _scaled(
        self,
        self.nn.reshape(_standardised(self.nn, split, (1, 3), self.eps), (batch, channels, *size)),
    )


def _groups_over_batch(self, x):
    """Each group over the whole batch."""
    grouped = self.nn.reshape(x, (x.shape[0], self.num_groups, -1))
    return _scaled(
        self, self.nn.reshape(_standardised(self.nn, grouped, (0, 2), self.eps), tuple(x.shape))
    )


def _groups_by_position(self, x):
    """Each group at each position by itself."""
    batch, channels, *size = x.shape
    split = self.nn.reshape(x, (batch, self.num_groups, channels // self.num_groups, *size))
    return _scaled(
        self, self.nn.reshape(_standardised(self.nn, split, (2,), self.eps), tuple(x.shape))
    )


def _group_unscaled(self, x):
    return self.nn.group_norm(x, self.num_groups, None, None, self.eps)


def _instance_norm(**mistakes: Any) -> Plant:
    def forward(self, x):
        return _scaled(self, _standardised(self.nn, x, (2, 3), self.eps, **mistakes))

    return with_methods("instance", forward=forward)


def _instance_over_batch(self, x):
    return _scaled(self, _standardised(self.nn, x, (0, 2, 3), self.eps))


def _instance_over_rows(self, x):
    return _scaled(self, _standardised(self.nn, x, (3,), self.eps))


def _instance_over_all(self, x):
    return _scaled(self, _standardised(self.nn, x, (1, 2, 3), self.eps))


def _instance_unscaled(self, x):
    return self.nn.group_norm(x, self.num_features, None, None, self.eps)


def _layer_norm(path: str, dims: tuple[int, ...], **mistakes: Any) -> Plant:
    def forward(self, x):
        return _standardised(self.nn, x, dims, self.eps, **mistakes) * self.weight + self.bias

    return with_methods(path, forward=forward)


def _layer_affine(weight: Callable[[Any], Any], bias: Callable[[Any], Any]) -> Plant:
    def forward(self, x):
        return self.nn.layer_norm(x, self.normalized_shape, None, None, self.eps) * weight(
            self
        ) + bias(self)

    return with_methods("norm", forward=forward)


def _layer_cut(self, x):
    """Mean and variance take no gradient."""
    mean, var = self.nn.mean(x, -1, keepdim=True), self.nn.var(x, -1, keepdim=True, correction=0)
    cut = self.nn.stop_gradient
    return (x - cut(mean)) / self.nn.sqrt(cut(var) + self.eps) * self.weight + self.bias


def _unit(length: Callable[[Any, Any], Any]) -> Plant:
    """Vectors divided by another length."""
    return with_methods("", unit=lambda self, x: x / length(self.nn, x))


def _euclidean(nn: Any, x: Any, dim: int = 1) -> Any:
    return nn.sqrt(nn.sum(x * x, dim, keepdim=True))


def _group(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"group norm: {name}", "group norm", plant, ("group",), cause, "normalized")


def _instance(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(
        f"instance norm: {name}", "instance norm", plant, ("instance",), cause, "normalized"
    )


def _layer(
    name: str, plant: Plant, *cause: str, place: str = "norm", fixture: str = "attention"
) -> Mistake:
    return Mistake(f"layer norm: {name}", "layer norm", plant, (place,), cause, fixture)


def _length(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(
        f"normalize: {name}", "normalize", plant, ("normalize", "Normalized"), cause, "normalized"
    )


_OTHERS = [
    _group("eps 1e-6", with_settings("group", eps=1e-6), "eps"),
    _group("eps 7e-4, which no framework has", with_settings("group", eps=7e-4), "eps"),
    _group("one group", with_settings("group", num_groups=1), "groups"),
    _group(
        "groups and channels per group exchanged", with_settings("group", num_groups=2), "groups"
    ),
    _group("as many groups as channels", with_settings("group", num_groups=6), "groups"),
    _group(
        "groups of every third channel",
        with_methods("group", forward=_interleaved_groups),
        "groups",
        "interleaved",
    ),
    _group("unbiased", _group_norm(correction=1), "unbiased"),
    _group("eps added to the deviation", _group_norm(outside=True), "eps", "deviation"),
    _group("not centred", _group_norm(centred=False), "centred", "mean"),
    _group(
        "statistics over the batch",
        with_methods("group", forward=_groups_over_batch),
        "batch",
        "axes",
        "axis",
    ),
    _group(
        "statistics of each position",
        with_methods("group", forward=_groups_by_position),
        "position",
        "axes",
        "axis",
    ),
    _group(
        "no scale and shift",
        with_methods("group", forward=_group_unscaled),
        "weight",
        "scale",
        "affine",
    ),
    _instance("eps 1e-3", with_settings("instance", eps=1e-3), "eps"),
    _instance("unbiased", _instance_norm(correction=1), "unbiased"),
    _instance("eps added to the deviation", _instance_norm(outside=True), "eps", "deviation"),
    _instance(
        "statistics over the batch",
        with_methods("instance", forward=_instance_over_batch),
        "batch",
        "axes",
        "axis",
    ),
    _instance(
        "statistics of each row",
        with_methods("instance", forward=_instance_over_rows),
        "row",
        "axes",
        "axis",
    ),
    _instance(
        "statistics over the channels too",
        with_methods("instance", forward=_instance_over_all),
        "channels",
        "axes",
        "axis",
        "groups",
    ),
    _instance(
        "no scale and shift",
        with_methods("instance", forward=_instance_unscaled),
        "weight",
        "scale",
        "affine",
    ),
    _layer("eps 1e-6", with_settings("norm", eps=1e-6), "eps"),
    _layer("eps 1e-12", with_settings("norm", eps=1e-12), "eps"),
    _layer(
        "eps added to the deviation", _layer_norm("norm", (2,), outside=True), "eps", "deviation"
    ),
    _layer("unbiased", _layer_norm("norm", (2,), correction=1), "unbiased"),
    _layer(
        "unbiased, eps added to the deviation",
        _layer_norm("norm", (2,), correction=1, outside=True),
        "unbiased",
    ),
    _layer(
        "not centred", _layer_norm("norm", (2,), centred=False), "centred", "mean", "rms", "RMS"
    ),
    _layer("over the tokens", _layer_norm("norm", (1,)), "axis", "axes", "tokens"),
    _layer("over tokens and channels", _layer_norm("norm", (1, 2)), "axis", "axes", "tokens"),
    _layer(
        "scale is weight + 1", _layer_affine(lambda n: n.weight + 1.0, _bias), "weight", "scale"
    ),
    _layer("no scale", _layer_affine(lambda n: n.weight * 0.0 + 1.0, _bias), "weight", "scale"),
    _layer("no shift", _layer_affine(_weight, lambda n: n.bias * 0.0), "bias", "shift"),
    _layer(
        "no gradient through the statistics", with_methods("norm", forward=_layer_cut), "gradient"
    ),
    _layer(
        "over the last axis of two",
        _layer_norm("layer", (2,)),
        "axis",
        "axes",
        place="layer",
        fixture="normalized",
    ),
    _layer(
        "over the first axis of two",
        _layer_norm("layer", (1,)),
        "axis",
        "axes",
        place="layer",
        fixture="normalized",
    ),
    _length("eps 1e-5 added", _unit(lambda nn, x: _euclidean(nn, x) + 1e-5), "eps"),
    _length(
        "eps 1e-12 in the root",
        _unit(lambda nn, x: nn.sqrt(nn.sum(x * x, 1, keepdim=True) + 1e-12)),
        "eps",
    ),
    _length("over the batch", _unit(lambda nn, x: _euclidean(nn, x, 0)), "axis", "dim"),
    _length(
        "by the sum of absolute values",
        _unit(lambda nn, x: nn.sum(nn.abs(x), 1, keepdim=True)),
        "absolute",
        "L1",
        "norm",
    ),
    _length("by the square", _unit(lambda nn, x: nn.sum(x * x, 1, keepdim=True)), "square", "root"),
    _length(
        "by the mean square", _unit(lambda nn, x: nn.sqrt(nn.mean(x * x, 1, keepdim=True))), "mean"
    ),
    _length(
        "no gradient through the length",
        _unit(lambda nn, x: nn.stop_gradient(_euclidean(nn, x))),
        "gradient",
    ),
]

MISTAKES = [*_BATCH_NORM, *_OTHERS]
