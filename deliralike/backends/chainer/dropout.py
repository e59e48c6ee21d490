"""Chainer's own dropout by given factors in the place of masks, for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays, unstable
from deliralike.backends.chainer.arrays import F, chainer
from deliralike.backends.replaced_functions import wrapped_by_name

_Factors = Callable[..., np.ndarray]


def override_dropout_masks(factors: _Factors) -> AbstractContextManager[None]:
    """Let Chainer's own functions of dropout multiply by given factors; see `Backend`."""
    return wrapped_by_name(
        {
            (F, "dropout"): partial(_dropout, factors),
            (F, "gaussian"): partial(_gaussian, factors),
            unstable.recurrent_dropout(): partial(_recurrent_dropout, factors),
        }
    )


def _dropout(
    factors: _Factors, original: Any, x: Any, ratio: float = 0.5, **keywords: Any
) -> Any:
    if not chainer.config.train or ratio == 0.0 or keywords:
        return original(x, ratio, **keywords)
    return x * _like(x, factors(tuple(x.shape), ratio))


def _gaussian(
    factors: _Factors,
    original: Any,
    mean: Any,
    ln_var: Any,
    *,
    eps: Any = None,
    **keywords: Any,
) -> Any:
    if eps is None:
        eps = _like(mean, factors(tuple(mean.shape), None, "normal"))
    return original(mean, ln_var, eps=eps, **keywords)


def _recurrent_dropout(
    factors: _Factors, original: Any, xs: Sequence[Any], ratio: float
) -> Sequence[Any]:
    """One factor for all steps between two layers, as other frameworks have one mask."""
    if not chainer.config.train or ratio == 0.0:
        return original(xs, ratio)
    shape = (sum(map(len, xs)), *xs[0].shape[1:])
    factor = float(factors(shape, ratio).flat[0])
    return [x * factor for x in xs]


def _like(x: Any, values: np.ndarray) -> Any:
    """Return values on the device of an array, in its type."""
    return arrays.array_module(x).asarray(values, dtype=x.dtype)
