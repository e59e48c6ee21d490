"""The names under which batches that are dicts hold inputs and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deliralike.errors import BatchError, suggestion
from deliralike.network.closure import INPUT, LABEL

INPUTS = (
    INPUT,
    "inputs",
    "input",
    "x",
    "X",
    "images",
    "image",
    "img",
    "pixel_values",
    "input_ids",
)
LABELS = (LABEL, "labels", "y", "target", "targets", "mask", "masks")


def inputs_and_label(batch: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the inputs and the label of a batch; of several names the first of `INPUTS` counts.

    Raises:
        BatchError: The batch has none of the names.

    Example:
        >>> inputs_and_label({"image": "a picture", "label": "its class", "idx": 3})
        ('a picture', 'its class')
    """
    return _entry(batch, INPUTS), _entry(batch, LABELS)


def only_inputs(batch: Mapping[str, Any]) -> Any:
    """Return the inputs of a batch that may have no label."""
    return _entry(batch, INPUTS)


def _entry(batch: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if name in batch:
            return batch[name]
    raise BatchError(
        f"the batch has no {names[0]!r}. {suggestion(names[0], batch)} Usual names are "
        f"{', '.join(names[1:])}; a network with a train_step of its own gets the whole batch"
    )
