"""Predictions of a run's network for the samples that were held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import Dataset
from deliralike.network.closure import PREDICTION
from deliralike.training.evaluation import predict
from deliralike.training.experiment.building import loaders
from deliralike.training.experiment.parts import scaling_of
from deliralike.training.experiment.settings import Settings
from deliralike.training.metrics.evidence import concatenate


def predict_held_out(
    network: Any, settings: Settings, dataset: Dataset
) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs for all held-out samples of a run that `load_run` has loaded.

    Returns:
        The outputs, and the labels as the run's transforms leave them; measured targets of a table
        in its units, both.

    Shapes:
        ``(samples, classes)`` and ``(samples,)``, for segmentation ``(samples, classes, ...)`` and
        ``(samples, ...)``.

    Raises:
        BatchError: The outputs differ in shape.
    """
    _, held_out = loaders(settings, dataset)
    outputs: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for batch in held_out.batches(0):
        outputs.extend(map(main_output, predict(network, batch.inputs)))
        labels.append(batch.labels)
    restored = restorer(settings)
    return restored(concatenate(outputs)), restored(concatenate(labels))


def restorer(settings: Settings) -> Callable[[Any], Any]:
    """Return what brings outputs and labels into the units of the table.

    They are left as they are where the run has not scaled its targets.
    """
    scaling = scaling_of(settings.held_out_transforms)
    return (lambda values: values) if scaling is None else scaling.restored


def main_output(outputs: Any) -> np.ndarray:
    """Return the prediction among a network's outputs: the one called "pred", or the first."""
    if isinstance(outputs, Mapping) and PREDICTION in outputs:
        return outputs[PREDICTION]
    return next(iter(nest.leaves(outputs)))
