"""Predictions of a run's network for the samples that were held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import Dataset
from deliralike.network.closure import PREDICTION
from deliralike.training.evaluation import concatenate, predict
from deliralike.training.experiment.building import loaders
from deliralike.training.experiment.settings import Settings


def predict_held_out(
    network: Any, settings: Settings, dataset: Dataset
) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs for all held-out samples of a run that `load_run` has loaded.

    Returns:
        The outputs, and the labels as the run's transforms leave them.

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
    return concatenate(outputs), concatenate(labels)


def main_output(outputs: Any) -> np.ndarray:
    """Return the prediction among a network's outputs: the one called "pred", or the first."""
    if isinstance(outputs, Mapping) and PREDICTION in outputs:
        return outputs[PREDICTION]
    return next(iter(nest.leaves(outputs)))
