"""Mistakes of losses: denominators, weights, ignored labels, smoothing, overlaps and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.fixtures import CLASS_WEIGHTS, IGNORED, SMOOTHING
from tests.planted.fixtures import weighted_cross_entropy as right
from tests.planted.planting import with_loss

Loss = Callable[..., Any]

# Cross-entropy with class weights and ignored labels
# -----------------------------------------------------------------------------


def _log_softmax(nn: Any, logits: Any) -> Any:
    return nn.log_softmax(logits, 1)


def _weighted_mean(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    """The right one: divided by the weights of the labels that count."""
    return nn.sum(losses * weights * kept) / nn.sum(weights * kept)


def _weighted(
    reduce: Callable[..., Any] = _weighted_mean,
    log_p: Callable[[Any, Any], Any] = _log_softmax,
    weight: Callable[[Any, Any], Any] = lambda nn, weight: weight,
    ignored: int = IGNORED,
    taken: Callable[[Any], Any] = lambda label: label,
) -> Loss:
    """Cross-entropy with one part of another kind.

    Args:
        reduce: From `nn`, the losses, their weights and whether they count, to a scalar.
        log_p: From scores to logarithms of probabilities.
        weight: Of the classes.
        ignored: The label that does not count; what is ignored by right counts as class 0 with
            another one.
        taken: The class whose probability is taken for a label.
    """

    def loss(network: Any, x: Any, target: Any) -> Any:
        nn, logits = network.nn, network(x)
        label = nn.where(target != IGNORED, target, target * 0)
        kept = nn.cast(target != ignored, logits)
        weights = nn.select(weight(nn, nn.constant(CLASS_WEIGHTS, like=logits)), label, 0)
        found = nn.select_along(log_p(nn, logits), nn.expand_dims(taken(label), 1), 1)[:, 0]
        return reduce(nn, -found, weights, kept)

    return loss


def _by_count(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    return nn.sum(losses * weights * kept) / nn.sum(kept)


def _by_batch(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    """Ignored labels count in the denominator."""
    return nn.mean(losses * weights * kept)


def _ignored_weigh(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    """Ignored labels count in the denominator with the weight of class 0."""
    return nn.sum(losses * weights * kept) / nn.sum(weights)


def _summed(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    return nn.sum(losses * weights * kept)


def _gradient_of_sum(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    """The value of the mean with the gradient of the sum."""
    total, mean = _summed(nn, losses, weights, kept), _weighted_mean(nn, losses, weights, kept)
    return total + nn.stop_gradient(mean - total)


def _half_gradient(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    """The value is right, the gradient half of the right one."""
    mean = _weighted_mean(nn, losses, weights, kept)
    return 0.5 * mean + nn.stop_gradient(0.5 * mean)


def _softmax_first(nn: Any, logits: Any) -> Any:
    return nn.log_softmax(nn.softmax(logits, 1), 1)


def _sigmoids(nn: Any, logits: Any) -> Any:
    return -nn.softplus(-logits)


def _plus_small(nn: Any, logits: Any) -> Any:
    return nn.log(nn.softmax(logits, 1) + 1e-6)


def _temperature(nn: Any, logits: Any) -> Any:
    return nn.log_softmax(logits * 0.5, 1)


def _options(**options: Any) -> Loss:
    """The loss of `nn` with other settings."""

    def loss(network: Any, x: Any, target: Any) -> Any:
        logits = network(x)
        weight = network.nn.constant(options.get("weight", CLASS_WEIGHTS), like=logits)
        return network.nn.cross_entropy(
            logits, target, **{"ignore_index": IGNORED, **options, "weight": weight}
        )

    return loss


def _no_weights(network: Any, x: Any, target: Any) -> Any:
    return network.nn.cross_entropy(network(x), target, ignore_index=IGNORED)


def _focal(network: Any, x: Any, target: Any) -> Any:
    logits = network(x)
    return network.nn.focal_loss(
        logits, target, 1.0, network.nn.constant(CLASS_WEIGHTS, like=logits), IGNORED
    )


def _with_decay(network: Any, x: Any, target: Any) -> Any:
    """With a penalty on the last layer's weights."""
    return right(network, x, target) + 1e-3 * network.nn.sum(network.fc.weight * network.fc.weight)


# Cross-entropy of maps, without weights
# -----------------------------------------------------------------------------


def _of_maps(reduce: Callable[[Any, Any], Any]) -> Loss:
    def loss(network: Any, x: Any, target: Any) -> Any:
        return reduce(network.nn, network.nn.cross_entropy(network(x), target, reduction="none"))

    return loss


# Smoothed labels
# -----------------------------------------------------------------------------


def _smoothed(spread: Callable[[int], tuple[float, float]]) -> Loss:
    """Cross-entropy with shares of the label itself, and of the sum of all classes' logarithms."""

    def loss(network: Any, x: Any, target: Any) -> Any:
        nn, log_p = network.nn, network.nn.log_softmax(network(x), 1)
        own = nn.select_along(log_p, nn.expand_dims(target, 1), 1)[:, 0]
        label, every = spread(log_p.shape[1])
        return -nn.mean(label * own + every * nn.sum(log_p, 1))

    return loss


# Dice and cross-entropy
# -----------------------------------------------------------------------------


def _dice(nn: Any, p: Any, target: Any) -> Any:
    """The right one."""
    return nn.dice_loss(p, target)


def _dice_and_entropy(
    dice: Callable[[Any, Any, Any], Any] = _dice,
    weights: tuple[float, float] = (1.0, 1.0),
    activate: Callable[[Any, Any], Any] = lambda nn, logits: nn.softmax(logits, 1),
) -> Loss:
    def loss(network: Any, x: Any, target: Any) -> Any:
        nn, logits = network.nn, network(x)
        regions = nn.one_hot(target, logits.shape[1], like=logits)
        entropy = nn.cross_entropy(logits, target)
        return weights[0] * dice(nn, activate(nn, logits), regions) + weights[1] * entropy

    return loss


def _soft_dice(
    dims: tuple[int, ...] = (2, 3),
    smooth: float = 1e-5,
    top: float = 2.0,
    squared: bool = False,
    in_top: bool = True,
    finish: Callable[[Any, Any], Any] = lambda nn, dice: nn.mean(1.0 - dice),
) -> Callable[[Any, Any, Any], Any]:
    """The soft Dice loss with other settings."""

    def dice(nn: Any, p: Any, target: Any) -> Any:
        sizes = nn.sum(p * p if squared else p, dims) + nn.sum(target, dims)
        return finish(nn, (top * nn.sum(p * target, dims) + smooth * in_top) / (sizes + smooth))

    return dice


def _jaccard(nn: Any, p: Any, target: Any) -> Any:
    overlap = nn.sum(p * target, (2, 3))
    union = nn.sum(p, (2, 3)) + nn.sum(target, (2, 3)) - overlap
    return nn.mean(1.0 - (overlap + 1e-5) / (union + 1e-5))


# Several tasks
# -----------------------------------------------------------------------------


def _tasks(
    squares: Callable[..., Any] = lambda nn, y, t: nn.mse_loss(y, t),
    absolute: Callable[..., Any] = lambda nn, y, t: nn.l1_loss(y, t),
    binary: Callable[..., Any] = lambda nn, y, t: nn.bce_with_logits(y, t),
    focal: Callable[..., Any] = lambda nn, y, t: nn.binary_focal_loss(y, t),
) -> Loss:
    """The losses of several tasks, of which one is another."""

    def loss(network: Any, x: Any, numbers: Any, flags: Any) -> Any:
        nn, y = network.nn, network(x)
        regression = squares(nn, y[:, :2], numbers) + absolute(nn, y[:, 1:3], numbers)
        return regression + binary(nn, y[:, 2:5], flags) + focal(nn, y[:, 3:6], flags)

    return loss


def _huber(nn: Any, y: Any, t: Any) -> Any:
    size = nn.abs(y - t)
    return nn.mean(nn.where(size < 1.0, 0.5 * size * size, size - 0.5))


def _row_sums(nn: Any, y: Any, t: Any) -> Any:
    return nn.mean(nn.sum((y - t) * (y - t), 1))


def _lone_sigmoid(nn: Any, y: Any, t: Any) -> Any:
    """The sigmoid twice."""
    return nn.bce_with_logits(nn.sigmoid(y), t)


def _positives_alone(nn: Any, y: Any, t: Any) -> Any:
    return nn.mean(t * nn.softplus(-y))


def _focal_of_target(nn: Any, y: Any, t: Any) -> Any:
    """What is classified well counts more."""
    hit = t * nn.sigmoid(y) + (1.0 - t) * nn.sigmoid(-y)
    alpha = 0.25 * t + 0.75 * (1.0 - t)
    return nn.mean(nn.bce_with_logits(y, t, reduction="none") * hit * hit * alpha)


def _focal_cut(nn: Any, y: Any, t: Any) -> Any:
    """The focal weight takes no gradient."""
    missed = nn.stop_gradient(t * nn.sigmoid(-y) + (1.0 - t) * nn.sigmoid(y))
    alpha = 0.25 * t + 0.75 * (1.0 - t)
    return nn.mean(nn.bce_with_logits(y, t, reduction="none") * missed * missed * alpha)


def _weights_of_three(nn: Any, y: Any) -> Any:
    return nn.constant(CLASS_WEIGHTS[:3], like=y)


def _mistake(
    kind: str, name: str, loss: Loss, place: tuple[str, ...], cause: tuple[str, ...], fixture: str
) -> Mistake:
    return Mistake(f"{kind}: {name}", "loss", with_loss(loss), ("loss", *place), cause, fixture)


def _entropy(name: str, loss: Loss, *cause: str) -> Mistake:
    return _mistake("cross-entropy", name, loss, ("cross_entropy",), cause, "pooling")


def _maps(name: str, reduce: Callable[[Any, Any], Any], *cause: str) -> Mistake:
    return _mistake(
        "cross-entropy of maps", name, _of_maps(reduce), ("cross_entropy",), cause, "tied"
    )


def _smooth(name: str, spread: Callable[[int], tuple[float, float]], *cause: str) -> Mistake:
    return _mistake("smoothing", name, _smoothed(spread), ("cross_entropy",), cause, "residual")


def _overlap(name: str, loss: Loss, *cause: str) -> Mistake:
    return _mistake("dice", name, loss, ("dice_loss", "cross_entropy"), cause, "unet")


def _of_tasks(kind: str, name: str, loss: Loss, *cause: str) -> Mistake:
    return _mistake(kind, name, loss, (kind,), cause, "tasks")


MISTAKES = [
    _entropy(
        "class weights divided by count", _weighted(_by_count), "count", "number", "denominator"
    ),
    _entropy(
        "ignored labels in the denominator", _weighted(_by_batch), "ignored", "batch", "denominator"
    ),
    _entropy(
        "ignored labels in the denominator with a weight",
        _weighted(_ignored_weigh),
        "ignored",
        "denominator",
    ),
    _entropy("sum for mean", _options(reduction="sum"), "sum"),
    _entropy("sum for mean, by hand", _weighted(_summed), "sum"),
    _entropy("no weights", _no_weights, "weight"),
    _entropy("weights squared", _weighted(weight=lambda nn, w: w * w), "weight", "square"),
    _entropy("roots of weights", _weighted(weight=lambda nn, w: nn.sqrt(w)), "weight", "root"),
    _entropy("inverse weights", _weighted(weight=lambda nn, w: 1.0 / w), "weight", "inverse"),
    _entropy("ignored labels are class 0", _weighted(ignored=-7), "ignore"),
    _entropy(
        "labels off by one", _weighted(taken=lambda label: (label + 1) % 5), "label", "off by one"
    ),
    _entropy("smoothing 0.1", _options(label_smoothing=0.1), "smoothing"),
    _entropy("smoothing 0.033, which nobody has", _options(label_smoothing=0.033), "smoothing"),
    _entropy("softmax twice", _weighted(log_p=_softmax_first), "softmax", "twice"),
    _entropy("sigmoids for softmax", _weighted(log_p=_sigmoids), "sigmoid"),
    _entropy("1e-6 added to probabilities", _weighted(log_p=_plus_small), "eps", "1e-06", "added"),
    _entropy("temperature 2", _weighted(log_p=_temperature), "temperature", "scale"),
    _entropy("focal", _focal, "focal", "gamma"),
    _entropy("gradient of the sum", _weighted(_gradient_of_sum), "gradient"),
    _entropy("gradient halved", _weighted(_half_gradient), "gradient"),
    _entropy("weights of the last layer penalised", _with_decay, "penalty", "decay", "weight"),
    _maps(
        "mean over the batch of sums", lambda nn, losses: nn.mean(nn.sum(losses, 1)), "sum", "mean"
    ),
    _maps(
        "sum over the batch of means", lambda nn, losses: nn.sum(nn.mean(losses, 1)), "sum", "mean"
    ),
    _maps("sum", lambda nn, losses: nn.sum(losses), "sum"),
    _maps(
        "root of the mean square",
        lambda nn, losses: nn.sqrt(nn.mean(losses * losses)),
        "root",
        "square",
    ),
    _maps("last element left out", lambda nn, losses: nn.mean(losses[:, :-1]), "last", "left out"),
    _smooth("none", lambda k: (1.0, 0.0), "smoothing"),
    _smooth(
        "over the other classes",
        lambda k: (1.0 - SMOOTHING - SMOOTHING / (k - 1), SMOOTHING / (k - 1)),
        "other",
        "smoothing",
    ),
    _smooth("0.2", lambda k: (0.8, 0.2 / k), "smoothing"),
    _overlap("smooth 1", _dice_and_entropy(_soft_dice(smooth=1.0)), "smooth"),
    _overlap("squares in the denominator", _dice_and_entropy(_soft_dice(squared=True)), "square"),
    _overlap("over the whole batch", _dice_and_entropy(_soft_dice((0, 2, 3))), "batch"),
    _overlap(
        "no background",
        _dice_and_entropy(lambda nn, p, t: nn.dice_loss(p, t, include_background=False)),
        "background",
    ),
    _overlap("no factor of two", _dice_and_entropy(_soft_dice(top=1.0)), "two", "factor"),
    _overlap(
        "sum for mean", _dice_and_entropy(_soft_dice(finish=lambda nn, d: nn.sum(1.0 - d))), "sum"
    ),
    _overlap(
        "negative, not one minus",
        _dice_and_entropy(_soft_dice(finish=lambda nn, d: -nn.mean(d))),
        "one",
        "constant",
        "negative",
    ),
    _overlap("Jaccard", _dice_and_entropy(_jaccard), "jaccard", "Jaccard", "IoU"),
    _overlap(
        "sigmoid for softmax", _dice_and_entropy(activate=lambda nn, x: nn.sigmoid(x)), "sigmoid"
    ),
    _overlap("of scores", _dice_and_entropy(activate=lambda nn, x: x), "softmax", "scores"),
    _overlap("half of each", _dice_and_entropy(weights=(0.5, 0.5)), "weight", "half", "factor"),
    _overlap("alone", _dice_and_entropy(weights=(1.0, 0.0)), "weight", "cross"),
    _of_tasks(
        "mse_loss",
        "halved",
        _tasks(lambda nn, y, t: 0.5 * nn.mse_loss(y, t)),
        "half",
        "factor",
        "0.5",
    ),
    _of_tasks("mse_loss", "sum", _tasks(lambda nn, y, t: nn.mse_loss(y, t, "sum")), "sum"),
    _of_tasks("mse_loss", "mean of sums", _tasks(_row_sums), "sum", "factor"),
    _of_tasks("mse_loss", "its root", _tasks(lambda nn, y, t: nn.sqrt(nn.mse_loss(y, t))), "root"),
    _of_tasks("mse_loss", "Huber", _tasks(_huber), "huber", "Huber", "smooth"),
    _of_tasks(
        "mse_loss",
        "gradient halved",
        _tasks(lambda nn, y, t: nn.mse_loss(y * 0.5 + nn.stop_gradient(y * 0.5), t)),
        "gradient",
    ),
    _of_tasks("l1_loss", "sum", _tasks(absolute=lambda nn, y, t: nn.l1_loss(y, t, "sum")), "sum"),
    _of_tasks(
        "l1_loss", "squares", _tasks(absolute=lambda nn, y, t: nn.mse_loss(y, t)), "mse", "square"
    ),
    _of_tasks("l1_loss", "Huber", _tasks(absolute=_huber), "huber", "Huber", "smooth"),
    _of_tasks(
        "bce_with_logits",
        "sum",
        _tasks(binary=lambda nn, y, t: nn.bce_with_logits(y, t, reduction="sum")),
        "sum",
    ),
    _of_tasks("bce_with_logits", "sigmoid twice", _tasks(binary=_lone_sigmoid), "sigmoid", "twice"),
    _of_tasks("bce_with_logits", "positives alone", _tasks(binary=_positives_alone), "positive"),
    _of_tasks(
        "bce_with_logits",
        "positives weighted",
        _tasks(
            binary=lambda nn, y, t: nn.bce_with_logits(y, t, pos_weight=_weights_of_three(nn, y))
        ),
        "pos_weight",
        "weight",
    ),
    _of_tasks(
        "bce_with_logits",
        "all weighted",
        _tasks(binary=lambda nn, y, t: nn.bce_with_logits(y, t, _weights_of_three(nn, y))),
        "weight",
    ),
    _of_tasks(
        "bce_with_logits",
        "targets inverted",
        _tasks(binary=lambda nn, y, t: nn.bce_with_logits(y, 1.0 - t)),
        "invert",
        "target",
    ),
    _of_tasks(
        "bce_with_logits",
        "squares",
        _tasks(binary=lambda nn, y, t: nn.mse_loss(nn.sigmoid(y), t)),
        "square",
        "mse",
    ),
    _of_tasks(
        "binary_focal_loss",
        "gamma 1",
        _tasks(focal=lambda nn, y, t: nn.binary_focal_loss(y, t, gamma=1.0)),
        "gamma",
    ),
    _of_tasks(
        "binary_focal_loss",
        "alpha of negatives",
        _tasks(focal=lambda nn, y, t: nn.binary_focal_loss(y, t, alpha=0.75)),
        "alpha",
    ),
    _of_tasks(
        "binary_focal_loss",
        "no alpha",
        _tasks(focal=lambda nn, y, t: nn.binary_focal_loss(y, t, alpha=None)),
        "alpha",
    ),
    _of_tasks(
        "binary_focal_loss",
        "what is classified well",
        _tasks(focal=_focal_of_target),
        "focal",
        "well",
        "invert",
    ),
    _of_tasks(
        "binary_focal_loss", "no gradient of the weight", _tasks(focal=_focal_cut), "gradient"
    ),
]
