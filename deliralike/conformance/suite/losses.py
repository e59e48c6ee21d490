"""Checks of losses: denominators, class weights, ignored labels."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.cases import add
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import agree, gradients, native, refused, values
from deliralike.errors import IndexRangeError, ShapeError

_add = partial(add, "losses")
_LOGITS, _LABELS = values(5, 3), np.array([2, 0, 1, 1, 0])
_SOME = np.array([2, -100, 1, 1, -100])
_WEIGHT = np.array([0.5, 2.0, 1.25])
_X, _Y = values(4, 3), values(4, 3, seed=1)
_SHARE = np.random.default_rng(3).uniform(size=(4, 3))
_VOLUME, _REGIONS = values(2, 3, 2, 4), np.random.default_rng(4).integers(0, 3, (2, 2, 4))
_ONE_HOT = np.moveaxis(np.eye(3)[_REGIONS], -1, 1)

_add(
    "cross_entropy",
    lambda nn, x, y: nn.cross_entropy(x, y),
    formulas.cross_entropy,
    _LOGITS,
    _LABELS,
)
_add(
    "cross_entropy with class weights",
    lambda nn, x, y, w: nn.cross_entropy(x, y, w),
    formulas.cross_entropy,
    _LOGITS,
    _LABELS,
    _WEIGHT,
)
_add(
    "cross_entropy with ignored labels",
    lambda nn, x, y: nn.cross_entropy(x, y),
    formulas.cross_entropy,
    _LOGITS,
    _SOME,
)
_add(
    "cross_entropy with weights and ignored labels",
    lambda nn, x, y, w: nn.cross_entropy(x, y, w),
    formulas.cross_entropy,
    _LOGITS,
    _SOME,
    _WEIGHT,
)
_add(
    "cross_entropy with smoothed labels",
    lambda nn, x, y: nn.cross_entropy(x, y, label_smoothing=0.1),
    lambda x, y: formulas.cross_entropy(x, y, smoothing=0.1),
    _LOGITS,
    _SOME,
)
_add(
    "cross_entropy of pixels",
    lambda nn, x, y: nn.cross_entropy(x, y),
    formulas.cross_entropy,
    _VOLUME,
    _REGIONS,
)
_add(
    "cross_entropy, summed and each",
    lambda nn, x, y: (
        nn.cross_entropy(x, y, reduction="sum"),
        nn.cross_entropy(x, y, reduction="none"),
    ),
    lambda x, y: (
        formulas.cross_entropy(x, y) * 5,
        np.array([formulas.cross_entropy(x[i : i + 1], y[i : i + 1]) for i in range(5)]),
    ),
    _LOGITS,
    _LABELS,
)
_add(
    "bce_with_logits",
    lambda nn, x, t: nn.bce_with_logits(x, t),
    lambda x, t: formulas.binary_cross_entropy(x, t).mean(),
    _X,
    _SHARE,
)
_add("mse_loss", lambda nn, x, y: nn.mse_loss(x, y), lambda x, y: ((x - y) ** 2).mean(), _X, _Y)
_add("l1_loss", lambda nn, x, y: nn.l1_loss(x, y), lambda x, y: np.abs(x - y).mean(), _X, _Y)
_add(
    "focal_loss",
    lambda nn, x, y: nn.focal_loss(x, y),
    lambda x, y: (
        -np.mean([(1.0 - p) ** 2 * np.log(p) for p in formulas.softmax(x, 1)[np.arange(5), y]])
    ),
    _LOGITS,
    _LABELS,
)
_add(
    "dice_loss",
    lambda nn, x, t: nn.dice_loss(nn.softmax(x, 1), t),
    lambda x, t: formulas.dice(formulas.softmax(x, 1), t),
    _VOLUME,
    _ONE_HOT,
)
_add(
    "kl_divergence",
    lambda nn, x, t: nn.kl_divergence(nn.log_softmax(x, 1), t, reduction="sum"),
    lambda x, t: (t * (np.log(t) - formulas.log_softmax(x, 1))).sum(),
    _X,
    _SHARE,
)
_add(
    "kl_gaussian",
    lambda nn, m, v: nn.kl_gaussian(m, v),
    lambda m, v: 0.5 * (m * m + np.exp(v) - 1.0 - v).mean(),
    _X,
    _Y,
)
_add(
    "one_hot",
    lambda nn, y, x: nn.one_hot(y, 3, like=x),
    lambda y, x: np.moveaxis(np.eye(3)[y], -1, 1),
    _REGIONS,
    _X,
    differentiable=False,
)


_add(
    "cross_entropy with another ignored label",
    lambda nn, x, y: nn.cross_entropy(x, y, ignore_index=1),
    lambda x, y: formulas.cross_entropy(x, y, ignore=1),
    _LOGITS,
    _LABELS,
)
_add(
    "bce_with_logits with weights",
    lambda nn, x, t, w, p: nn.bce_with_logits(x, t, w, p),
    lambda x, t, w, p: (
        w * (p * t * formulas.softplus(-x) + (1.0 - t) * formulas.softplus(x))
    ).mean(),
    _X,
    _SHARE,
    _WEIGHT,
    _WEIGHT[::-1],
)
_add(
    "binary_focal_loss",
    lambda nn, x, t: nn.binary_focal_loss(x, t),
    lambda x, t: (
        formulas.binary_cross_entropy(x, t)
        * (t * formulas.sigmoid(-x) + (1.0 - t) * formulas.sigmoid(x)) ** 2
        * (0.25 * t + 0.75 * (1.0 - t))
    ).mean(),
    _X,
    _SHARE,
)
_add(
    "generalized_dice_loss",
    lambda nn, x, t: nn.generalized_dice_loss(nn.softmax(x, 1), t),
    lambda x, t: formulas.generalized_dice(formulas.softmax(x, 1), t),
    _VOLUME,
    _ONE_HOT,
)
_add(
    "tversky_loss",
    lambda nn, x, t: nn.tversky_loss(nn.softmax(x, 1), t, 0.3, 0.7),
    lambda x, t: formulas.tversky(formulas.softmax(x, 1), t, 0.3, 0.7),
    _VOLUME,
    _ONE_HOT,
)
_add(
    "boundary_loss",
    lambda nn, x, d: nn.boundary_loss(x, d, include_background=False),
    lambda x, d: (x * d)[:, 1:].mean(),
    _VOLUME,
    values(2, 3, 2, 4, seed=2),
)
_add(
    "deep_supervision",
    lambda nn, x, y, t: nn.deep_supervision(nn.mse_loss, [x, y], t),
    lambda x, y, t: (2.0 * ((x - t) ** 2).mean() + ((y - t[..., ::2, ::2]) ** 2).mean()) / 3.0,
    _VOLUME,
    values(2, 3, 1, 2),
    values(2, 3, 2, 4, seed=3),
)
_KINDS = ("non-saturating", "least-squares", "hinge", "wasserstein")
_add(
    "discriminator_loss",
    lambda nn, r, f: tuple(nn.discriminator_loss(r, f, kind) for kind in _KINDS),
    lambda r, f: (
        (formulas.softplus(-r) + formulas.softplus(f)).mean(),
        0.5 * ((r - 1.0) ** 2 + f**2).mean(),
        (np.maximum(0.0, 1.0 - r) + np.maximum(0.0, 1.0 + f)).mean(),
        (f - r).mean(),
    ),
    _X,
    _Y,
)
_add(
    "generator_loss",
    lambda nn, f: tuple(nn.generator_loss(f, kind) for kind in _KINDS),
    lambda f: (formulas.softplus(-f).mean(), 0.5 * ((f - 1.0) ** 2).mean(), -f.mean(), -f.mean()),
    _X,
)


def _slope(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The gradient of ``sum(tanh(x @ w))`` with respect to x."""
    return (1.0 - np.tanh(x @ w) ** 2) @ w.T


def _penalty(x: np.ndarray, y: np.ndarray, mix: np.ndarray, w: np.ndarray) -> float:
    slope = _slope(mix[:, None] * x + (1.0 - mix[:, None]) * y, w)
    return float(((np.sqrt((slope**2).sum(1)) - 1.0) ** 2).mean())


_add(
    "gradient_penalty",
    lambda nn, x, y, mix, w: nn.gradient_penalty(lambda at: nn.tanh(nn.matmul(at, w)), x, y, mix),
    _penalty,
    _X,
    _Y,
    _SHARE[:, 0],
    values(3, 2),
    needs=("double_backward",),
)
_add(
    "r1_penalty",
    lambda nn, x, w: nn.r1_penalty(lambda at: nn.tanh(nn.matmul(at, w)), x),
    lambda x, w: 0.5 * (_slope(x, w) ** 2).sum(1).mean(),
    _X,
    values(3, 2),
    needs=("double_backward",),
)


@check("losses", "L7")
def all_labels_ignored(backend: Backend) -> None:
    """The mean over nothing is 0 and moves nothing."""
    labels = np.full(5, -100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says so
        value = backend.nn.cross_entropy(native(backend, _LOGITS), native(backend, labels))
        found = gradients(backend, lambda nn, x, y: nn.cross_entropy(x, y), _LOGITS, labels).inputs[
            0
        ]
    agree("cross_entropy of ignored labels alone", backend.numpy(value), np.array(0.0))
    agree("its gradient", found, np.zeros((5, 3)))


@check("losses", "L7")
def labels_out_of_range(backend: Backend) -> None:
    """A label that is no class is refused where labels are available, and so are unfit shapes."""
    logits = native(backend, _LOGITS)
    with refused("labels of another shape", ShapeError):
        backend.nn.cross_entropy(logits, native(backend, np.zeros((5, 1), np.int64)))
    if backend.nn.concrete(native(backend, _LABELS)) is not None:
        for bad in (-1, 3):
            with refused(f"label {bad} of three classes", IndexRangeError):
                backend.nn.cross_entropy(logits, native(backend, np.array([0, 1, 2, bad, 0])))


@check("losses", "L7")
def confident_and_wrong(backend: Backend) -> None:
    """Scores far apart give a large loss and finite gradients; nothing overflows."""
    scores = np.array([[900.0, -900.0], [-900.0, 900.0]])
    value = gradients(backend, lambda nn, x, y: nn.cross_entropy(x, y), scores, np.array([1, 1]))
    agree("cross_entropy of scores 1800 apart", np.array(value.loss), np.array(900.0))
    agree("its gradient", value.inputs[0], np.array([[0.5, -0.5], [0.0, 0.0]]))
    binary = gradients(
        backend,
        lambda nn, x, t: nn.bce_with_logits(x, t),
        scores,
        np.array([[0.0, 1.0], [1.0, 0.0]]),
    )
    agree("bce_with_logits of scores 900 from zero", np.array(binary.loss), np.array(900.0))
