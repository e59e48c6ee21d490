"""The names under which batches that are dicts hold inputs and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deliralike.network.closure import INPUT, LABEL, entry

INPUTS = (INPUT, "inputs", "input", "x", "X", "images", "image", "img", "pixel_values", "input_ids")
LABELS = (LABEL, "labels", "y", "target", "targets", "mask", "masks")


def inputs_and_label(batch: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the inputs and the label of a batch; of several names the first of `INPUTS` counts.

    Raises:
        BatchError: The batch has none of the names.

    Example:
        >>> inputs_and_label({"image": "a picture", "label": "its class", "idx": 3})
        ('a picture', 'its class')
    """
    return entry(batch, _name(batch, INPUTS)), entry(batch, _name(batch, LABELS))


def only_inputs(batch: Mapping[str, Any]) -> Any:
    """Return the inputs of a batch that may have no label."""
    return entry(batch, _name(batch, INPUTS))


def _name(batch: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((name for name in names if name in batch), names[0])
