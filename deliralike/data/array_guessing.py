"""Inputs and labels as people keep them: pairs of arrays, parts, rows, bytes, texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike.data.dataset import Dataset, Samples, random_split, stratified_split
from deliralike.data.source import is_indexable
from deliralike.errors import SettingError, listed
from deliralike.network.batch_names import inputs_and_label
from deliralike.terminal import warn

INPUTS = ("inputs", "x", "X", "images", "data")  # names of arrays, as they are in use
LABELS = ("labels", "y", "targets", "target", "masks")
_CHANNELS = (1, 3, 4)
_FEW = 20  # numbers that are classes without a doubt
_SAMPLES_OF_A_CLASS = 5  # on average; fewer are in doubt


def as_dataset(
    source: Any,
    name: str,
    *,
    held_out: float = 0.2,
    seed: int = 0,
    classes: int | Sequence[str] | None = None,
) -> Dataset:
    """Return what people call a dataset as one.

    Args:
        source: A `Dataset`; a pair of inputs and labels; a pair of such pairs, to learn from and
            held out; or something indexable that gives an input and a label.
        name: The name that the dataset gets.
        held_out, seed: The part that is held out where there is one alone.
        classes: The names of the classes in the order of their numbers, or how many there are; if
            not given, the texts that occur, or the numbers from 0 to the largest.

    Shapes:
        Inputs ``(samples, channels, ...)``. Bytes are pictures: they are scaled to [0, 1], a grey
        one without a channel gets one, and channels that come last are moved to the front. Labels
        ``(samples,)``, or ``(samples, ...)`` for segmentation, are class numbers from 0.

    Raises:
        SettingError: It is something else, or labels are no class numbers; or it is in doubt
            whether they are: most numbers to the largest do not occur, or there are more than 20,
            and fewer than 5 samples of each.

    Example:
        >>> inputs = np.zeros((10, 28, 28), np.uint8)
        >>> dataset = as_dataset((inputs, np.arange(10) % 2), "mine")
        >>> dataset.train.inputs.shape, dataset.held_out.inputs.shape, dataset.classes
        ((8, 1, 28, 28), (2, 1, 28, 28), ('0', '1'))
    """
    if isinstance(source, Dataset):
        return replace(source, name=name)
    # A pair of inputs and labels is one part.
    is_pair = isinstance(source, tuple | list) and len(source) == 2
    parts = source if is_pair and all(map(_is_dataset, source)) else (source,)
    samples = [_samples(part, name) for part in parts]
    names = class_names([part.labels for part in samples], name, classes)
    numbered = [
        Samples(part.inputs, class_numbers(part.labels, names, name))
        for part in samples
    ]
    task = "classification" if numbered[0].labels.ndim == 1 else "segmentation"
    if len(numbered) == 1:
        # Of each class the same fraction; of pictures of labels a fraction of all.
        split = stratified_split if task == "classification" else random_split
        numbered = [*split(numbered[0], held_out, seed)]
    train, judge = numbered
    return Dataset(name, train, judge, names, task)


def _is_dataset(source: Any) -> bool:
    """Whether it gives samples by their number, and is no array."""
    return (
        is_indexable(source)
        and not isinstance(source, Mapping)
        and not hasattr(source, "shape")
    )


def _is_rows(part: Any) -> bool:
    """Whether it gives samples; a list of two arrays is inputs and labels."""
    if isinstance(part, list):
        return all(isinstance(one, Mapping | tuple) for one in part)
    return not isinstance(part, tuple) and _is_dataset(part)


def _samples(part: Any, name: str) -> Samples:
    if _is_rows(part):
        part = _stacked(part, name)
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise SettingError(
            f"{name!r} made a {type(part).__name__}: wanted is a Dataset, inputs and labels, or "
            "two such pairs, to learn from and held out"
        )
    inputs, labels = (np.asarray(each) for each in part)
    if inputs.ndim < 2 or len(inputs) != len(labels):
        raise SettingError(
            f"{name!r} has inputs {inputs.shape} and labels {labels.shape}: wanted is one label, "
            "or one picture of labels, for each input"
        )
    if inputs.dtype.kind == "f" and _seems_to_end_in_channels(inputs):
        channels, height, width = inputs.shape[1:]
        warn(
            f"{name!r} has pictures of {channels} channels and size {height} x {width}: where the "
            "channels come last, move them, inputs.transpose(0, 3, 1, 2)"
        )
    return Samples(as_inputs(inputs), _texts(labels))


def _texts(labels: np.ndarray) -> np.ndarray:
    """Return labels that are objects, as pandas keeps texts, as an array of texts."""
    if labels.dtype.kind == "O" and all(
        isinstance(label, str) for label in labels.flat
    ):
        return labels.astype(str)
    return labels


def _stacked(samples: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """All samples of something indexable."""
    pairs = [_pair_of(samples[number], name) for number in range(len(samples))]
    inputs = [np.asarray(one) for one, _ in pairs]
    labels = [np.asarray(one) for _, one in pairs]
    shapes = sorted({one.shape for one in inputs})
    if len(shapes) != 1:
        raise SettingError(
            f"{name!r} has samples of {len(shapes)} shapes, such as {shapes[0]} and {shapes[-1]}: "
            "pictures need size=... (--set data.size=64)"
        )
    return np.stack(inputs), np.stack(labels)


def _pair_of(sample: Any, name: str) -> tuple[Any, Any]:
    """The input and the label of a sample, which may be a row with names."""
    if isinstance(sample, Mapping):
        return inputs_and_label(sample)
    if len(sample) != 2:
        raise SettingError(
            f"{name!r} has samples of {len(sample)} values: wanted are an input and a label, or "
            "names such as 'image' and 'label'"
        )
    return sample[0], sample[1]


def as_inputs(inputs: np.ndarray) -> np.ndarray:
    """Bytes as pictures (channels first, in [0, 1]); floats in single precision."""
    if inputs.dtype.kind in "fb":
        return inputs.astype(np.float32)
    if inputs.dtype != np.uint8:
        return inputs
    if inputs.ndim == 3:
        inputs = inputs[:, np.newaxis]
    elif _seems_to_end_in_channels(inputs):
        inputs = np.moveaxis(inputs, -1, 1)
    return np.ascontiguousarray(inputs, dtype=np.float32) / np.float32(255)


def _seems_to_end_in_channels(inputs: np.ndarray) -> bool:
    """Return whether the last axis of pictures has a usual number of channels, not the first."""
    shape = inputs.shape
    return len(shape) == 4 and shape[-1] in _CHANNELS and shape[1] not in _CHANNELS


def class_names(
    labels: Sequence[np.ndarray],
    name: str,
    classes: int | Sequence[str] | None = None,
    by_value: bool = False,
) -> tuple[str, ...]:
    """Return the names of the classes that labels have; see `as_dataset`.

    Args:
        by_value: Whether whole numbers are the names of the classes, as in a table, and need not
            begin at 0.

    Raises:
        SettingError: It is in doubt what the labels are.
    """
    if classes is not None and not isinstance(classes, int):
        return tuple(map(str, classes))
    values = _different_labels(labels, name)
    are_names = by_value or values.dtype.kind in "US"
    count = len(values) if are_names else int(values[-1]) + 1
    if classes is None and values.dtype.kind not in "US":
        _refuse_measured(labels, values, count, name)
    if are_names and classes in (None, count):
        return tuple(map(str, values))
    if classes is not None:
        return tuple(map(str, range(classes)))
    _refuse_gaps(values, count, name)
    return tuple(map(str, range(count)))


def _different_labels(labels: Sequence[np.ndarray], name: str) -> np.ndarray:
    """Return the texts, or the whole numbers, that occur among labels, in order."""
    if not sum(map(len, labels)):
        raise SettingError(f"{name!r} has no sample")
    for each in labels:
        if each.dtype.kind not in "USiub":
            raise SettingError(
                f"{name!r} has labels of type {each.dtype}: wanted are class numbers (for one-hot "
                "rows labels.argmax(1)). Targets that are measured have a loss of their own: "
                "Trainer(network, optimizer, losses=...), of a table --target COLUMN"
            )
    values = np.unique(np.concatenate([np.unique(each) for each in labels]))
    return values if values.dtype.kind in "US" else values.astype(np.int64)


def _refuse_measured(
    labels: Sequence[np.ndarray], values: np.ndarray, count: int, name: str
) -> None:
    """Raise an error if there are as many different labels as a measured quantity has."""
    samples = sum(map(len, labels))
    is_one_each = labels[0].size == len(labels[0])
    if is_one_each and _FEW < len(values) > samples / _SAMPLES_OF_A_CLASS:
        raise SettingError(
            f"{name!r} has {len(values)} different labels in {samples} samples, "
            f"{listed(values, 5)}: targets that are measured have a loss of their own, "
            "Trainer(network, optimizer, losses=...), of a table --target COLUMN. If they are "
            "class numbers, say so: "
            f"classes={count} (--set data.classes={count})"
        )


def _refuse_gaps(values: np.ndarray, count: int, name: str) -> None:
    """Raise an error if class numbers begin below 0, or leave most numbers to the largest out."""
    if values[0] < 0:
        raise SettingError(
            f"{name!r} has the label {values[0]}: class numbers begin at 0"
        )
    if count > 2 * len(values) + 1:
        raise SettingError(
            f"{name!r} has the labels {listed(values, 5)}, which are {len(values)} of the numbers "
            f"from 0 to {values[-1]}: number them without gaps, "
            f"np.unique(labels, return_inverse=True)[1], or say classes={count} (--set "
            f"data.classes={count})"
        )


def class_numbers(labels: np.ndarray, classes: Sequence[str], name: str) -> np.ndarray:
    """Return labels, texts or the places of classes, as places.

    Raises:
        SettingError: A label is no class.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind in "US":
        values, inverse = np.unique(labels, return_inverse=True)
        places = {text: number for number, text in enumerate(classes)}
        numbers = np.array([places.get(str(value), -1) for value in values], np.int64)
        _refuse_others(values[numbers < 0], classes, name)
        return numbers[inverse].reshape(labels.shape)
    is_row = labels.ndim == 2 and labels.shape[1] > 1 and labels.max() <= 1
    if is_row and (labels.sum(1) == 1).all():
        raise SettingError(
            f"{name!r} has one-hot labels {labels.shape}: wanted are class numbers, "
            "labels.argmax(1)"
        )
    _refuse_others(labels[(labels < 0) | (labels >= len(classes))], classes, name)
    return labels.astype(np.int64)


def renumbered(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """Return a dataset whose labels are the places of their names among other classes.

    Raises:
        SettingError: One of its classes is not among them.
    """
    if dataset.classes == tuple(classes):
        return dataset
    places = class_numbers(np.array(dataset.classes, dtype=str), classes, dataset.name)
    train, held_out = (
        Samples(part.inputs, places[part.labels])
        for part in (dataset.train, dataset.held_out)
    )
    return replace(dataset, train=train, held_out=held_out, classes=tuple(classes))


def _refuse_others(labels: np.ndarray, classes: Sequence[str], name: str) -> None:
    if len(labels):
        raise SettingError(
            f"{name!r} has the label {str(labels[0])!r}, which is none of the {len(classes)} "
            f"classes {listed(classes)}"
        )
