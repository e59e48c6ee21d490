"""Conventions of embeddings: the padding row, its gradient, and the scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deliralike.conformance.explain import changes
from deliralike.conformance.explain.convention import (
    Arguments,
    Known,
    output,
    setting,
    told,
    values,
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
    """Everything that is known to go wrong in an embedding."""
    index, (count, width) = (
        np.asarray(given["index"]).astype(np.int64),
        given["weight"].shape,
    )
    padding = given.get("padding_idx")
    padding = None if padding is None else padding % count
    root = math.sqrt(width)
    scales = {f"times sqrt({width})": changes.times(root)}
    found = [output("rows scaled:", scales)]
    if padding is not None:
        found.append(
            values("padding", {"is not zero": None}, "gradient of the padding row")
        )
    rows = [int(row) for row in np.unique(index)]
    found.append(setting("padding", rows, "padding_idx", usual=padding))
    return told(_rows, {"padding": padding}), found
