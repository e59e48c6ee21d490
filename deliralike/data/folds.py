"""Folds for cross-validation: scikit-learn's, seeded, as plain indices into all samples."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data.packages import needed
from deliralike.data.source import readable, subset
from deliralike.errors import SettingError


@dataclass(frozen=True)
class Fold:
    """Which samples to learn from, and which are held out: rising indices into all samples.

    Example:
        >>> Fold(np.array([0, 2]), np.array([1])).of({"x": np.array([10, 11, 12])})
        ({'x': array([10, 12])}, {'x': array([11])})
    """

    train: np.ndarray
    held_out: np.ndarray

    def of(self, samples: Any) -> tuple[Any, Any]:
        """Return both parts of these samples: arrays are copied, a dataset is read on demand."""
        return subset(samples, self.train), subset(samples, self.held_out)


def folds(
    samples: Any,
    k: int = 5,
    *,
    labels: Sequence[Any] | np.ndarray | None = None,
    groups: Sequence[Any] | np.ndarray | None = None,
    seed: int = 0,
    shuffle: bool = True,
) -> list[Fold]:
    """Split samples into k parts, each of which is held out once.

    The parts are disjoint and cover everything. They are those of scikit-learn's ``KFold``,
    ``StratifiedKFold``, ``GroupKFold`` or ``StratifiedGroupKFold`` with ``random_state=seed``, as
    labels and groups are given.

    Args:
        samples: The number of samples, or a dataset that holds them.
        labels: The class of each sample: each part gets the same proportions.
        groups: The group of each sample (a patient, a place): no group is in two parts.
        seed: The seed of the shuffle, taken modulo 2**32.
        shuffle: Whether samples are shuffled before; if not, parts consist of neighbours.

    Raises:
        SettingError: k is below 2 or above the number of samples, of groups, or of samples of a
            class; labels or groups are not one for each sample, or labels are no classes.
        DataUnavailable: scikit-learn is not installed.

    Example:
        >>> [fold.held_out.tolist() for fold in folds(5, 2, shuffle=False)]
        [[0, 1, 2], [3, 4]]
    """
    if isinstance(samples, int | np.integer):
        count = int(samples)
    else:
        count = readable(samples).samples
    try:
        splitter = _splitter(k, labels is not None, groups is not None, seed, shuffle)
        with warnings.catch_warnings(action="error", category=UserWarning):
            parts = list(splitter.split(np.zeros(count), labels, groups))
    except (ValueError, UserWarning) as error:
        raise SettingError(f"{count} samples in k={k!r} folds: {error}") from error
    return [Fold(train, held_out) for train, held_out in parts]


def _splitter(k: int, stratified: bool, grouped: bool, seed: int, shuffle: bool) -> Any:
    selection = needed(
        "sklearn.model_selection",
        package="scikit-learn",
        extra="data",
        purpose="splitting into folds",
    )
    name = "KFold"
    if grouped:
        name = f"Group{name}"
    if stratified:
        name = f"Stratified{name}"
    random_state = seed % 2**32 if shuffle else None
    return getattr(selection, name)(k, shuffle=shuffle, random_state=random_state)
