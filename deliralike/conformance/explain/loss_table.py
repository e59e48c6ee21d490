"""The conventions that people write losses by, all in functions of `nn`.

A formula of a loss reads ``own``, from `nn` and what is given to the loss, and ``before``, which the
prediction goes through first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.arguments import called, names
from deliralike.conformance.explain.convention import (
    POSITIVE,
    Arguments,
    Change,
    Convention,
    Formula,
    changing,
    rules,
    setting,
    values,
)

_IGNORED = -100
OF_LABELS = ("cross_entropy", "focal_loss")
OF_ELEMENTS = {
    "mse_loss": "squared error",
    "l1_loss": "absolute error",
    "huber_loss": "Huber loss with delta=1",
    "smooth_l1_loss": "smooth L1 loss with beta=1",
    "bce_with_logits": "binary cross-entropy of logits",
    "binary_cross_entropy": "binary cross-entropy of probabilities",
    "binary_focal_loss": "focal loss",
}
LOSSES = (*OF_LABELS, *OF_ELEMENTS, "dice_loss", "tversky_loss")
BEFORE: Mapping[str, Change] = {
    "": lambda nn, x: x,
    "softmax": lambda nn, x: nn.softmax(x, 1),
    "sigmoid": lambda nn, x: nn.sigmoid(x),
    "log_softmax": lambda nn, x: nn.log_softmax(x, 1),
}


def conventions(kind: str, given: Arguments) -> Iterator[Convention]:
    """What other code has in the place of a loss."""
    reduction = given.get("reduction", "mean")
    ways = {"sum": "sum instead of mean", "mean": "mean instead of sum"}
    yield rules(
        "",
        {words: {"reduction": way} for way, words in ways.items() if way != reduction},
    )
    if kind in OF_LABELS:
        yield from _of_labels(kind, given)
    elif kind in OF_ELEMENTS:
        yield from _of_elements(kind, given)
    if np.ndim(given[names(kind)[0]]) > 1:
        twice = "{0} of the scores first ({0} twice, where the loss has its own)"
        yield values(
            "before", {twice.format(name): way for name, way in BEFORE.items() if name}
        )


def _owns(ways: Mapping[str, Formula]) -> Convention:
    return values("own", ways)


def _reduced(kind: str, divisor: float, nn: Any, given: Arguments) -> Any:
    """The sum over a number."""
    return called(kind, nn, given, reduction="sum") * (1.0 / divisor)


# Whole-number labels
# -----------------------------------------------------------------------------


def _of_labels(kind: str, given: Arguments) -> Iterator[Convention]:
    target, weight = given["target"], given.get("weight")
    if target.dtype.kind not in "iu":
        yield _SMOOTHING
        return
    classes = given[names(kind)[0]].shape[1]
    counted = target != given["ignore_index"]
    divisors = {}
    if weight is not None:
        words = "class weights by count: divided by the number of labels instead of the sum of "
        divisors[f"{words}their weights"] = counted.sum()
        yield rules("", {"class weights missing": {"weight": None}})
    if not counted.all():
        words = "ignored labels in the denominator: divided by the number of all labels"
        divisors[words] = counted.size
    if target.ndim > 1:
        divisors["divided by the batch size alone (sum over positions)"] = len(target)
    yield _owns(
        {words: partial(_reduced, kind, count) for words, count in divisors.items()}
    )
    labels = {}
    if given["ignore_index"] in range(classes):
        labels["ignored labels counted as those of any other class"] = target
    elif not counted.all():
        last = "ignored labels counted as the last class (index -1 wraps)"
        labels[last] = np.where(counted, target, classes - 1)
    for by in (1, -1):
        shifted = np.where(counted, (target + by) % classes, _IGNORED)
        labels[f"labels off by one ({by:+d})"] = shifted
    yield Convention("", labels, changing(_other_target))
    smoothing = given.get("label_smoothing")
    if smoothing:
        words = f"no label smoothing instead of {smoothing:g}"
        yield rules("", {words: {"label_smoothing": 0.0}})
    else:  # they have none
        yield _owns(_LOGS)
    yield _SMOOTHING
    if kind == "focal_loss":
        yield setting("gamma", (2.0, 1.0, 0.5), free=True, power=POSITIVE)


def _other_target(nn: Any, given: Arguments, target: np.ndarray) -> Arguments:
    return {
        "target": nn.constant(target, like=given["target"]),
        "ignore_index": _IGNORED,
    }


_SMOOTHING = setting("label_smoothing", (0.1, 0.05, 0.2), free=True, power=POSITIVE)


def _of_logs(change: Change, nn: Any, given: Arguments) -> Any:
    """The negative logarithm of a label's probability, or what is taken for that."""
    return called("nll_loss", nn, {**given, "x": change(nn, given["logits"])})


_LOGS = {
    "log_softmax and softmax: probabilities without their logarithm": partial(
        _of_logs, BEFORE["softmax"]
    ),
    "softmax missing: the negative logit": partial(_of_logs, BEFORE[""]),
    "sigmoid instead of softmax": partial(_of_logs, lambda nn, x: -nn.softplus(-x)),
}


# Targets of the prediction's shape
# -----------------------------------------------------------------------------


def _other_kind(kind: str, other: str, nn: Any, given: Arguments) -> Any:
    """Another loss of the same prediction and target."""
    (x, *_), (first, *_) = names(kind), names(other)
    return called(other, nn, {**given, first: given[x], "weight": None})


def _root(kind: str, nn: Any, given: Arguments) -> Any:
    return nn.sqrt(called(kind, nn, given))


def _of_elements(kind: str, given: Arguments) -> Iterator[Convention]:
    target, usual = given["target"], OF_ELEMENTS[kind]
    ways: dict[str, Formula] = {"root of the mean": partial(_root, kind)}
    if target.ndim > 1:
        words = "sum over each sample, mean over the batch"
        ways[words] = partial(_reduced, kind, len(target))
    for other, words in OF_ELEMENTS.items():
        if other != kind:
            ways[f"{words} instead of {usual}"] = partial(_other_kind, kind, other)
    yield _owns(ways)
    how: dict[str, Any] = {"free": True, "power": POSITIVE}
    for name in ("alpha", "beta", "gamma", "delta"):
        if given.get(name) is not None:
            yield setting(name, (0.25, 0.5, 0.75, 1.0, 2.0), **how)
    for name in ("pos_weight", "weight"):
        if given.get(name) is not None:
            yield rules("", {f"{name} missing": {name: None}})
