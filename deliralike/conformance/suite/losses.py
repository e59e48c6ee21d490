"""Checks of losses: denominators, class weights, ignored labels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import agree, made, native, refused, values
from deliralike.conformance.suite.nets import Moved
from deliralike.conformance.suite.rows import functions
from deliralike.errors import IndexRangeError, ShapeError

_LOGITS, _LABELS = values(5, 3), np.array([2, 0, 1, 1, 0])
_SOME = np.array([2, -100, 1, 1, -100])
_WEIGHT = np.array([0.5, 2.0, 1.25])
_FAR = np.array([[900.0, -900.0], [-900.0, 900.0]])
_X, _Y, _W = values(4, 3), values(4, 3, seed=1), values(3, 2)
_SHARE = np.random.default_rng(3).uniform(size=(4, 3))
_VOLUME, _REGIONS = values(2, 3, 2, 4), np.arange(16).reshape(2, 2, 4) % 3
_ONE_HOT = np.moveaxis(np.eye(3)[_REGIONS], -1, 1)
_PARTS = formulas.softmax(_VOLUME, 1)

for _name, *_arguments in (
    ("cross_entropy", _LOGITS, _LABELS),
    ("cross_entropy with class weights", _LOGITS, _LABELS, _WEIGHT),
    ("cross_entropy with ignored labels", _LOGITS, _SOME),
    ("cross_entropy with weights and ignored labels", _LOGITS, _SOME, _WEIGHT),
    ("cross_entropy of scores far apart", _FAR, np.array([1, 1])),
    ("cross_entropy of pixels", _VOLUME, _REGIONS),
    ("cross_entropy with another ignored label", _LOGITS, _LABELS, None, 1),
    ("cross_entropy with smoothed labels", _LOGITS, _SOME, None, -100, 0.1),
    ("cross_entropy, summed", _LOGITS, _LABELS, None, -100, 0.0, "sum"),
    ("cross_entropy of each", _LOGITS, _SOME, None, -100, 0.0, "none"),
):
    functions("losses", "L1", (_name, formulas.cross_entropy, *_arguments))
functions(
    "losses",
    "L1",
    ("bce_with_logits of scores far apart", formulas.bce_with_logits, _FAR, np.eye(2)[::-1]),
    ("bce_with_logits", formulas.bce_with_logits, _X, _SHARE),
    ("bce_with_logits with weights", formulas.bce_with_logits, _X, _SHARE, _WEIGHT, _WEIGHT[::-1]),
    ("mse_loss", lambda x, y: ((x - y) ** 2).mean(), _X, _Y),
    ("l1_loss", lambda x, y: np.abs(x - y).mean(), _X, _Y),
    ("focal_loss", formulas.focal_loss, _LOGITS, _LABELS),
    ("binary_focal_loss", formulas.binary_focal_loss, _X, _SHARE),
    ("dice_loss", formulas.dice_loss, _PARTS, _ONE_HOT),
    ("generalized_dice_loss", formulas.generalized_dice_loss, _PARTS, _ONE_HOT),
    ("tversky_loss", formulas.tversky_loss, _PARTS, _ONE_HOT, 0.3, 0.7),
    ("boundary_loss", lambda x, d, *_: (x * d)[:, 1:].mean(), _VOLUME, _PARTS, False),
    (
        "kl_divergence",
        lambda x, t, *_: (t * (np.log(t) - x)).sum(),
        formulas.log_softmax(_X, 1),
        _SHARE,
        1,
        "sum",
    ),
    ("kl_gaussian", lambda m, v: 0.5 * (m * m + np.exp(v) - 1.0 - v).mean(), _X, _Y),
)
functions(
    "losses",
    "L0",
    ("one_hot", lambda y, x: _ONE_HOT, _REGIONS, _X),
    call=lambda nn, y, x: nn.one_hot(y, 3, like=x),
)
functions(
    "losses",
    "L1",
    (
        "deep_supervision",
        lambda x, y, t: (2.0 * ((x - t) ** 2).mean() + ((y - t[..., ::2, ::2]) ** 2).mean()) / 3.0,
        _VOLUME,
        values(2, 3, 1, 2),
        _PARTS,
    ),
    call=lambda nn, x, y, t: nn.deep_supervision(nn.mse_loss, [x, y], t),
)
_plus, _relu = formulas.softplus, formulas.relu
for _kind, _discriminator, _generator in (
    (
        "non-saturating",
        lambda r, f, _: (_plus(-r) + _plus(f)).mean(),
        lambda f, _: _plus(-f).mean(),
    ),
    (
        "least-squares",
        lambda r, f, _: 0.5 * ((r - 1.0) ** 2 + f**2).mean(),
        lambda f, _: 0.5 * ((f - 1.0) ** 2).mean(),
    ),
    ("hinge", lambda r, f, _: (_relu(1.0 - r) + _relu(1.0 + f)).mean(), lambda f, _: -f.mean()),
    ("wasserstein", lambda r, f, _: (f - r).mean(), lambda f, _: -f.mean()),
):
    functions(
        "losses",
        "L1",
        (f"discriminator_loss, {_kind}", _discriminator, _X, _Y, _kind),
        (f"generator_loss, {_kind}", _generator, _X, _kind),
    )


def slope(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The gradient of ``sum(tanh(x @ w))`` with respect to x."""
    return (1.0 - np.tanh(x @ w) ** 2) @ w.T


def _penalty(x: np.ndarray, y: np.ndarray, mix: np.ndarray, w: np.ndarray) -> float:
    mixed = mix[:, None] * x + (1.0 - mix[:, None]) * y
    return ((np.linalg.norm(slope(mixed, w), axis=1) - 1.0) ** 2).mean()


def _critic(nn: Any, w: Any) -> Any:
    return lambda at: nn.tanh(nn.matmul(at, w))


functions(
    "losses",
    "L1",
    ("gradient_penalty", _penalty, _X, _Y, _SHARE[:, 0], _W),
    call=lambda nn, x, y, mix, w: nn.gradient_penalty(_critic(nn, w), x, y, mix),
    needs=("double_backward",),
)
functions(
    "losses",
    "L1",
    ("r1_penalty", lambda x, w: 0.5 * (slope(x, w) ** 2).sum(1).mean(), _X, _W),
    call=lambda nn, x, w: nn.r1_penalty(_critic(nn, w), x),
    needs=("double_backward",),
)


@check("losses", "L7")
def all_labels_ignored(backend: Backend) -> None:
    """The mean over nothing is 0 and moves nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says so
        found = backend.gradients(
            lambda net, x, y: net.nn.cross_entropy(x, y),
            made(backend, Moved),
            _LOGITS,
            np.full(5, -100),
        )
    agree("cross_entropy of ignored labels alone", found.loss, 0.0)
    agree("its gradient", found.inputs[0], np.zeros((5, 3)))


@check("losses", "L7")
def labels_out_of_range(backend: Backend) -> None:
    """A label that is no class is refused where labels are available, and so are unfit shapes."""
    nn, logits = backend.nn, native(backend, _LOGITS)
    with refused("labels of another shape", ShapeError):
        nn.cross_entropy(logits, native(backend, np.zeros((5, 1), np.int64)))
    for bad in (-1, 3):
        labels = native(backend, np.array([0, 1, 2, bad, 0]))
        if nn.concrete(labels) is not None:
            with refused(f"label {bad} of three classes", IndexRangeError):
                nn.cross_entropy(logits, labels)
