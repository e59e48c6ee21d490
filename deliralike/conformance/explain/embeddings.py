"""Conventions of embeddings: the padding row, its gradient, and the scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    Arguments,
    Known,
    setting,
    values,
    with_usual,
)


def _rows(nn: Any, given: Arguments) -> Any:
    """The looked-up rows, without a gradient at the padding's."""
    index, weight, padding = given["index"], given["weight"], given["padding"]
    found = nn.select(weight, index % weight.shape[0], 0)
    if padding is None:
        return found
    here = nn.broadcast_to(nn.expand_dims(index == padding, -1), found.shape)
    return nn.where(here, nn.stop_gradient(found), found)


def embedding(given: Arguments) -> Known:
    """The gradient of the padding row, and which row that is."""
    padding, found = given.get("padding_idx"), []
    if padding is not None:
        padding = padding % given["weight"].shape[0]
        words = "gradient of the padding row"
        found.append(values("padding", {"is not zero": None}, words))
    rows = [int(row) for row in np.unique(given["index"])]
    found.append(setting("padding", rows, "padding_idx", usual=padding))
    return with_usual(_rows, {"padding": padding}), found
