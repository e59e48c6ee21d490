"""Checks of losses: denominators, class weights, ignored labels."""

from __future__ import annotations

import warnings

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    build_network,
    native,
    refused,
    values,
)
from deliralike.conformance.suite.nets import Moved
from deliralike.conformance.suite.rows import functions
from deliralike.errors import IndexRangeError, ShapeError

_LOGITS, _LABELS = values(5, 3), np.array([2, 0, 1, 1, 0])
_SOME = np.array([2, -100, 1, 1, -100])
_WEIGHT = np.array([0.5, 2.0, 1.25])
_FAR = np.array([[900.0, -900.0], [-900.0, 900.0]])
_X, _Y = values(4, 3), values(4, 3, seed=1)
_SHARE = np.random.default_rng(3).uniform(size=(4, 3))
_REGIONS = np.arange(16).reshape(2, 2, 4) % 3
_ONE_HOT = np.moveaxis(np.eye(3)[_REGIONS], -1, 1)
_POSITIVE = values(2, 3, 2, 4, low=0.5)
_PARTS = _POSITIVE / _POSITIVE.sum(1, keepdims=True)

for _name, *_arguments in (
    ("cross_entropy", _LOGITS, _LABELS),
    ("cross_entropy with class weights", _LOGITS, _LABELS, _WEIGHT),
    ("cross_entropy with ignored labels", _LOGITS, _SOME),
    ("cross_entropy of scores far apart", _FAR, np.array([1, 1])),
    ("cross_entropy with smoothed labels", _LOGITS, _SOME, None, -100, "mean", 0.1),
    ("cross_entropy of each", _LOGITS, _SOME, None, -100, "none"),
):
    functions("losses", "L1", (_name, None, *_arguments))
functions(
    "losses",
    "L1",
    (
        "bce_with_logits of scores far apart",
        None,
        _FAR,
        np.eye(2)[::-1],
    ),
    (
        "bce_with_logits with weights",
        None,
        _X,
        _SHARE,
        _WEIGHT,
        _WEIGHT[::-1],
    ),
    ("mse_loss", lambda x, y: ((x - y) ** 2).mean(), _X, _Y),
    ("l1_loss", lambda x, y: np.abs(x - y).mean(), _X, _Y),
    ("dice_loss", None, _PARTS, _ONE_HOT),
)
functions(
    "losses",
    "L0",
    ("one_hot", lambda y, x: _ONE_HOT, _REGIONS, _X),
    call=lambda nn, y, x: nn.one_hot(y, 3, like=x),
)


@check("losses", "L7")
def all_labels_ignored(backend: Backend) -> None:
    """The mean over nothing is 0 and moves nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says so
        found = backend.gradients(
            lambda net, x, y: net.nn.cross_entropy(x, y),
            build_network(backend, Moved),
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
