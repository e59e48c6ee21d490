"""The confusion matrix: how often each class is predicted as each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.training.metrics.scores import ClassMetric, counted_by_row


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix(ClassMetric):
    """The number of labels of each class that were predicted as each class.

    The figures are called ``"true/predicted"``. All are NaN where a score is NaN.

    Args:
        classes: Names of the classes; their numbers when not given.
        normalise: Give fractions of the true class instead of counts; NaN for a class without
            labels.
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel
            only.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> ConfusionMatrix(classes=["cat", "dog"])(np.eye(2)[[0, 1, 1]], np.array([0, 1, 0]))
        {'cat/cat': 1.0, 'cat/dog': 1.0, 'dog/cat': 0.0, 'dog/dog': 1.0}
    """

    name = "confusion"
    higher_is_better = True
    pads = True  # nothing is added to a cell
    normalise: bool = False

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """Return the cells of the matrix and the numbers that each sample adds to them.

        A sample with one label has one cell, other samples have all cells.
        """
        batch = self.labelled(outputs, targets)
        cells = batch.labels * batch.classes + batch.predicted()
        adds = batch.counted.astype(np.float64)
        if cells.shape[1] != 1:
            adds = counted_by_row(cells, batch.classes**2, adds)
            cells = np.broadcast_to(np.arange(batch.classes**2), adds.shape)
        adds[batch.nan] = np.nan
        return {
            "cells": cells,
            "adds": adds,
            "classes": np.full(len(cells), batch.classes),
        }

    def compute(self, evidence: Any) -> dict[str, float]:
        """Return the matrix, cell by cell."""
        matrix = self.matrix(evidence)
        names = self.class_names(len(matrix))
        figures = {}
        for i, true in enumerate(names):
            for j, predicted in enumerate(names):
                figures[f"{true}/{predicted}"] = float(matrix[i, j])
        return figures

    def matrix(self, evidence: Any) -> np.ndarray:
        """Return the matrix as an array: row = true class, column = predicted class."""
        classes = int(evidence["classes"][0])
        cells = evidence["cells"].ravel()
        adds = evidence["adds"].ravel()
        matrix = np.bincount(cells, adds, classes**2).reshape(classes, classes)
        if np.isnan(matrix).any():
            return np.full_like(matrix, np.nan)
        if not self.normalise:
            return matrix
        with np.errstate(invalid="ignore"):  # a class without labels
            return matrix / matrix.sum(axis=1, keepdims=True)
