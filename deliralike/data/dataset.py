"""The dataset classes: arrays to learn from, arrays held out, and the names of the classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deliralike.data.batching import permutation
from deliralike.errors import SettingError, listed
from deliralike.nn.start import Shape
from deliralike.tables import html_table


class Samples(NamedTuple):
    """Inputs and their labels, sample by sample along the first axis.

    It is a pair: ``samples[0]`` are all inputs; one sample is ``samples.take(0)``.
    """

    inputs: np.ndarray
    labels: np.ndarray

    def __repr__(self) -> str:
        return f"Samples(inputs: {_array_text(self.inputs)}, labels: {_array_text(self.labels)})"

    def take(self, indices: np.ndarray | slice | int) -> "Samples":
        """Return some of the samples, in the order of `indices`, or one without the first axis."""
        return Samples(self.inputs[indices], self.labels[indices])


@dataclass(frozen=True, repr=False)
class Dataset:
    """Labelled images, volumes or signals, split into a part to learn from and a held-out part.

    Attributes:
        name: The name that the dataset was loaded by.
        train: Samples to learn from.
        held_out: Samples to evaluate on.
        classes: The name of each label, in the labels' order.
        task: The task of the labels, one of the zoo's tasks.
        remarks: How a table or a folder was understood.
        transforms: The usual transforms of training samples, by name as settings have them.
        groups: The patient of each sample, those of `train` first; folds do not divide them.
        columns: The columns of a table that are the inputs, in their order; none of other data.

    Shapes:
        Inputs ``(samples, channels, ...)``, float32 in [0, 1]; labels int64, ``(samples,)`` or for
        segmentation ``(samples, ...)``.
    """

    name: str
    train: Samples
    held_out: Samples
    classes: tuple[str, ...]
    task: str = "classification"
    remarks: tuple[str, ...] = ()
    transforms: tuple[Mapping[str, Any], ...] = ()
    groups: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Dataset({self.description})"

    @property
    def description(self) -> str:
        """One line of what the data are: classes, numbers of samples, and remarks."""
        named = listed(map(repr, self.classes)) if self.remarks else ""
        kind = "targets" if self.task == "regression" else "classes"
        classes = f"{len(self.classes)} {kind} {named}".rstrip()
        remarks = "".join(f"; {remark}" for remark in self.remarks)
        return (
            f"{self.name!r}, {self.task}, {classes}: {len(self.train.labels)} samples to train on "
            f"and {len(self.held_out.labels)} held out, of shape {self.sample_shape}{remarks}"
        )

    def _repr_html_(self) -> str:
        """Return a table for a notebook: the classes, with their samples in either part."""
        columns = ("class", "labels in train", "labels held out")
        rows = []
        for label, name in enumerate(self.classes):
            counts = [
                np.count_nonzero(part.labels == label)
                for part in (self.train, self.held_out)
            ]
            rows.append((name, *counts))
        return html_table(columns, rows, right=columns[1:], caption=repr(self))

    @property
    def sample_shape(self) -> Shape:
        """The shape of one input: channels first."""
        return self.train.inputs.shape[1:]

    @property
    def channels(self) -> int:
        """The number of channels of an input."""
        return self.sample_shape[0]


def _array_text(value: Any) -> str:
    """Return the type and the shape of an array, and the value of anything else."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"{value.dtype} {value.shape}"
    return repr(value)


def stratified_split(
    samples: Samples, held_out: float = 0.2, seed: int = 0
) -> tuple[Samples, Samples]:
    """Split samples so that every class gives the same fraction to the held-out part.

    Args:
        held_out: The fraction of each class that is held out, rounded to whole samples; above 0 and
            below 1. One sample of each class is left to learn from. Where every class rounds to
            none, the fraction of all samples is held out, at most one of a class.
        seed: The seed of the split, which is the same everywhere.

    Returns:
        The samples to learn from and those held out, each in their original order.

    Raises:
        SettingError: The fraction makes no sense, or no class has two samples.

    Example:
        >>> samples = Samples(np.zeros((10, 1)), np.array([0, 1] * 5))
        >>> learn, judge = stratified_split(samples, held_out=0.2)
        >>> len(learn.labels), sorted(judge.labels.tolist())
        (8, [0, 1])
    """
    check_fraction(held_out)
    count = len(samples.labels)
    places: list[int] = []
    first_of_classes = []
    for label in np.unique(samples.labels):
        members = np.flatnonzero(samples.labels == label)
        order = permutation(len(members), seed, f"data/split/{label}")
        to_hold_out = min(round(held_out * len(members)), len(members) - 1)
        places.extend(members[order[:to_hold_out]])
        if len(members) > 1:
            first_of_classes.append(members[order[0]])
    if not places:
        if not first_of_classes:
            raise SettingError(
                f"{count} samples cannot be split by classes, each of which has one sample"
            )
        drawn = permutation(len(first_of_classes), seed, "data/split")
        some = drawn[: max(1, round(held_out * count))]
        places = [first_of_classes[place] for place in some]
    return _divided(samples, places)


def random_split(
    samples: Samples, held_out: float, seed: int
) -> tuple[Samples, Samples]:
    """Split samples at random, whatever their labels: those to learn from, and those held out.

    Both are in their original order.

    Raises:
        SettingError: The fraction is not between 0 and 1.
    """
    return _divided(samples, held_out_places(len(samples.labels), held_out, seed))


def _divided(
    samples: Samples, held_out: Sequence[int] | np.ndarray
) -> tuple[Samples, Samples]:
    is_held_out = np.zeros(len(samples.labels), dtype=bool)
    is_held_out[held_out] = True
    return samples.take(~is_held_out), samples.take(is_held_out)


def held_out_places(count: int, held_out: float, seed: int) -> np.ndarray:
    """Return which of so many are held out, at random: the fraction of them, and one at least.

    Raises:
        SettingError: The fraction is not between 0 and 1.
    """
    check_fraction(held_out)
    return permutation(count, seed, "data/split")[: max(1, round(held_out * count))]


def check_fraction(held_out: float) -> None:
    """Raise an error if the held-out fraction is not between 0 and 1."""
    if not 0 < held_out < 1:
        raise SettingError(f"held_out is a fraction between 0 and 1, not {held_out!r}")
