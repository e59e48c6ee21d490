"""Chainer's own dropout by given factors in the place of masks, for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays, unstable
from deliralike.backends.chainer.arrays import F, chainer
from deliralike.backends.replaced_functions import replaced_by_name

_Factors = Callable[..., np.ndarray]


@contextmanager
def override_dropout_masks(factors: _Factors) -> Iterator[None]:
    """Let Chainer's own functions of dropout multiply by given factors; see `Backend`."""
    steps = unstable.recurrent_dropout()
    replacements = {
        (F, "dropout"): _dropout(F.dropout, factors),
        (F, "gaussian"): _gaussian(F.gaussian, factors),
        steps: _recurrent_dropout(getattr(*steps), factors),
    }
    with replaced_by_name(replacements):
        yield


def _dropout(original: Callable[..., Any], factors: _Factors) -> Callable[..., Any]:
    def dropout(x: Any, ratio: float = 0.5, **keywords: Any) -> Any:
        if not chainer.config.train or ratio == 0.0 or keywords:
            return original(x, ratio, **keywords)
        xp = arrays.array_module(arrays.raw(x))
        return x * xp.asarray(factors(tuple(x.shape), ratio), dtype=x.dtype)

    return dropout


def _gaussian(original: Callable[..., Any], factors: _Factors) -> Callable[..., Any]:
    def gaussian(mean: Any, ln_var: Any, *, eps: Any = None, **keywords: Any) -> Any:
        if eps is None:
            xp = arrays.array_module(arrays.raw(mean))
            given = factors(tuple(mean.shape), None, "normal")
            eps = xp.asarray(given, dtype=mean.dtype)
        return original(mean, ln_var, eps=eps, **keywords)

    return gaussian


def _recurrent_dropout(
    original: Callable[..., Any], factors: _Factors
) -> Callable[..., Any]:
    """One factor for all steps between two layers, as other frameworks have one mask."""

    def dropout_sequence(xs: Sequence[Any], ratio: float) -> Sequence[Any]:
        if not chainer.config.train or ratio == 0.0:
            return original(xs, ratio)
        shape = (sum(map(len, xs)), *xs[0].shape[1:])
        factor = float(factors(shape, ratio).flat[0])
        return [x * factor for x in xs]

    return dropout_sequence
