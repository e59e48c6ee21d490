"""Functions that drop, such as stochastic depth: recognised by what they do to ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from deliralike import backends

_RATE = 0.25
_SHAPE = (64, 3, 4, 4)
_DRAWS = re.compile(r"\b(rand|bernoulli_?)\(")


@cache
def dropping_layer(function: Callable[..., Any], framework: str) -> str | None:
    """The layer of `nn` that drops what ``function(x, rate)`` does in training, or None."""
    names = list(inspect.signature(function).parameters)
    if len(names) < 2 or _DRAWS.search(inspect.getsource(function)) is None:
        return None
    backend = backends.get(framework)
    ones = backend.array(np.ones(_SHAPE, np.float32))
    training = {"training": True} if "training" in names else {}
    with backend.preserve_global_state():
        try:
            outputs = np.asarray(backend.numpy(function(ones, _RATE, **training)))
        except Exception:  # noqa: BLE001 - it takes other arguments
            return None
    values = np.array([0.0, 1.0 / (1.0 - _RATE)], np.float32)
    if outputs.shape != _SHAPE or not np.array_equal(np.unique(outputs), values):
        return None
    if (outputs == outputs[:, :1, :1, :1]).all():
        return "DropPath"
    if (outputs == outputs[:, :, :1, :1]).all():
        return "Dropout2d"
    return "Dropout"


def arguments_of_drop(
    function: Callable[..., Any], args: tuple[str, ...], kwargs: Mapping[str, str]
) -> dict[str, str]:
    """The source of ``input``, ``p`` and ``training`` in a call of such a function."""
    parameters = inspect.signature(function).parameters
    given = {name: repr(one.default) for name, one in parameters.items()}
    given |= dict(zip(parameters, args, strict=False)) | dict(kwargs)
    x, rate = list(parameters)[:2]
    # One without that argument is called in training alone.
    training = given.get("training", "self.training")
    return {"input": given[x], "p": given[rate], "training": training}
