"""Functions of one's own that drop, such as stochastic depth: told by what they do to ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deliralike import backends

_RATE = 0.25
_SHAPE = (64, 3, 4, 4)
_DRAWS = re.compile(r"\b(rand|bernoulli_?)\(")


def dropping_layer(function: Callable[..., Any], framework: str) -> str | None:
    """The layer of `nn` that drops what ``function(x, rate)`` does in training, or None."""
    names = list(inspect.signature(function).parameters)
    if len(names) < 2 or _DRAWS.search(inspect.getsource(function)) is None:
        return None
    backend = backends.get(framework)
    ones = backend.array(np.ones(_SHAPE, np.float32))
    training = {name: True for name in names if name == "training"}
    with backend.undisturbed():
        try:
            kept = np.asarray(backend.numpy(function(ones, _RATE, **training)))
        except Exception:  # noqa: BLE001 - it takes other arguments
            return None
    values = {0.0, float(np.float32(1.0 / (1.0 - _RATE)))}
    if kept.shape != _SHAPE or set(np.unique(kept).tolist()) != values:
        return None
    by_channel = kept[:, :, :1, :1]
    if (kept == kept[:, :1, :1, :1]).all():
        return "DropPath"
    return "Dropout2d" if (kept == by_channel).all() else "Dropout"


def arguments_of_drop(
    function: Callable[..., Any], args: tuple[str, ...], kwargs: Mapping[str, str]
) -> dict[str, str]:
    """The source of ``input``, ``p`` and ``training`` in a call of such a function."""
    parameters = inspect.signature(function).parameters
    given = {name: repr(one.default) for name, one in parameters.items()}
    given |= dict(zip(parameters, args, strict=False)) | dict(kwargs)
    x, rate = list(parameters)[:2]
    training = given.get(
        "training", "self.training"
    )  # else it is called in training alone
    return {"input": given[x], "p": given[rate], "training": training}
