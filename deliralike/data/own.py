"""Data of one's own by name: a function, a folder of pictures, an ``.npz`` archive or a CSV."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import own_code
from deliralike.data.batching import permutation
from deliralike.data.dataset import Dataset, Samples, check_fraction, stratified_split
from deliralike.data.folders import image_folder, listed_pictures
from deliralike.errors import SettingError, refuse_unknown_settings

# Names of arrays in archives, and of columns in tables, as they are in use.
_INPUTS = ("inputs", "x", "X", "images", "data")
_LABELS = ("labels", "y", "targets", "target", "masks")
_PATHS = ("path", "file", "filename", "image")
_CLASSES = ("label", "class", "target")
_TRAIN = ("train", "training")
_HELD_OUT = ("held_out", "val", "valid", "validation", "test", "testing")
_ROWS = ((*_INPUTS, "image", "img", "pixel_values"), (*_LABELS, "label"))
_CHANNELS = (1, 3, 4)


def is_own(name: str) -> bool:
    """Return whether a name is that of code, a file or a folder.

    Example:
        >>> is_own("my_data.py:make"), is_own("scans.npz"), is_own("./pictures"), is_own("digits")
        (True, True, True, False)
    """
    path = Path(name)
    is_path = path.suffix in _FILES or "/" in name or path.is_dir()
    return own_code.is_name(name) or is_path


def load_own(name: str, *, held_out: float = 0.2, seed: int = 0, **options: Any) -> Dataset:
    """Return the dataset that a function makes, or that a file or a folder holds.

    Args:
        name: ``"package.module:function"`` or ``"file.py:function"``, a folder with a subfolder for
            each class, an archive ``.npz``, or a table ``.csv`` with the columns ``path`` and
            ``label``. What holds a part for training and one for validation (folders, arrays, or a
            column ``split``) is taken as it is split.
        held_out: The fraction that is held out where the data are not split.
        seed: Which samples are held out.
        options: Of a function: its arguments. Of pictures: ``size``, ``mode`` and ``classes`` as
            `image_folder` has them.

    Raises:
        SettingError: There is no such file, or it does not hold inputs and class numbers.
        ArgumentError: There is no such option.
        BatchError: A picture is damaged.
    """
    splitting = {"held_out": held_out, "seed": seed}
    if own_code.is_name(name):
        return _from_function(name, splitting, options)
    path = Path(name).expanduser()
    if not path.exists():
        raise SettingError(f"there is no {name!r}, looked for in {str(Path.cwd())!r}")
    if path.is_dir():
        return _from_folder(name, path, splitting, options)
    if path.suffix not in _FILES:
        raise SettingError(
            f"{name!r}: data are a folder of pictures, a file {' or '.join(_FILES)}, or code, "
            "module:function"
        )
    return _FILES[path.suffix](name, path, splitting, options)


def as_dataset(made: Any, name: str, *, held_out: float = 0.2, seed: int = 0) -> Dataset:
    """Return what people call a dataset as one.

    Args:
        made: A `Dataset`; a pair of inputs and labels; a pair of such pairs, to learn from and held
            out; or something indexable that gives an input and a label.
        name: The name that the dataset gets.
        held_out, seed: The part that is held out where there is one alone.

    Shapes:
        Inputs ``(samples, channels, ...)``. Bytes are pictures: they are scaled to [0, 1], a grey
        one without a channel gets one, and channels that come last are moved to the front. Labels
        ``(samples,)``, or ``(samples, ...)`` for segmentation, are class numbers from 0.

    Raises:
        SettingError: It is something else, or labels are no class numbers.

    Example:
        >>> inputs = np.zeros((10, 28, 28), np.uint8)
        >>> dataset = as_dataset((inputs, np.arange(10) % 2), "mine")
        >>> dataset.train.inputs.shape, dataset.held_out.inputs.shape, dataset.classes
        ((8, 1, 28, 28), (2, 1, 28, 28), ('0', '1'))
    """
    if isinstance(made, Dataset):
        return replace(made, name=name)
    parts = made if _are_parts(made) else (made,)
    samples = [_samples(part, name) for part in parts]
    classes = _classes([each.labels for each in samples], name)
    numbered = [Samples(one.inputs, _numbers(one.labels, classes, name)) for one in samples]
    task = "classification" if numbered[0].labels.ndim == 1 else "segmentation"
    if len(numbered) == 1:
        numbered = list(_split(numbered[0], held_out, seed))
    return Dataset(name, numbered[0], numbered[1], classes, task)


# Where data come from -----------------------------------------------------------------------------


def _from_function(name: str, splitting: Mapping[str, Any], options: Mapping[str, Any]) -> Dataset:
    function = own_code.load(name)
    if not callable(function):
        return as_dataset(function, name, **splitting)
    taken = inspect.signature(function).parameters
    is_open = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    if not is_open:
        refuse_unknown_settings(name, options, taken)
    own = {key: value for key, value in splitting.items() if key in taken}
    return as_dataset(function(**own, **options), name, **splitting)


def _from_folder(
    name: str, path: Path, splitting: Mapping[str, Any], options: Mapping[str, Any]
) -> Dataset:
    refuse_unknown_settings(name, options, ("size", "mode", "classes"))
    subfolders = {one.name.lower(): one for one in path.iterdir() if one.is_dir()}
    parts = [_first(subfolders, names) for names in (_TRAIN, _HELD_OUT)]
    if None in parts:
        folder = image_folder(path, **options)
        return _named(as_dataset(folder, name, **splitting), folder.classes)
    folders = [image_folder(part, **options) for part in parts if part is not None]
    if folders[0].classes != folders[1].classes:
        raise SettingError(
            f"{name!r}: the classes to learn are {folders[0].classes}, and those held out "
            f"{folders[1].classes}: both need the same subfolders, or classes=[...]"
        )
    return _named(as_dataset(tuple(folders), name), folders[0].classes)


def _named(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    return replace(dataset, classes=tuple(classes))


def _from_archive(
    name: str, path: Path, splitting: Mapping[str, Any], options: Mapping[str, Any]
) -> Dataset:
    refuse_unknown_settings(name, options, ())
    with np.load(path, allow_pickle=False) as archive:
        names = list(archive.files)
        whole = _pair(names, "")
        parts = [_part(names, words) for words in (_TRAIN, _HELD_OUT)]
        if whole is None and None in parts:
            raise SettingError(
                f"{name!r} holds {names}: wanted are arrays such as {_INPUTS[0]} and {_LABELS[0]}, "
                "x_train, y_train, x_test and y_test, or train_images, train_labels, val_images "
                "and val_labels"
            )
        chosen = [whole] if whole is not None else parts
        arrays = [tuple(archive[key] for key in pair or ()) for pair in chosen]
    made = arrays[0] if len(arrays) == 1 else tuple(arrays)
    return as_dataset(made, name, **splitting)


def _part(names: Sequence[str], words: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the inputs and labels of a part, which its words say."""
    found = (_pair(names, word) for word in words)
    return next((pair for pair in found if pair is not None), None)


def _pair(names: Sequence[str], word: str) -> tuple[str, str] | None:
    for inputs in _INPUTS:
        for labels in _LABELS:
            for form in ("{0}_{1}", "{1}_{0}") if word else ("{0}",):
                pair = form.format(inputs, word), form.format(labels, word)
                if all(one in names for one in pair):
                    return pair
    return None


def _from_table(
    name: str, path: Path, splitting: Mapping[str, Any], options: Mapping[str, Any]
) -> Dataset:
    refuse_unknown_settings(name, options, ("size", "mode"))
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0]) if rows else []
    of_path = next((one for one in columns if one.lower() in _PATHS), None)
    of_label = next((one for one in columns if one.lower() in _CLASSES), None)
    if of_path is None or of_label is None:
        raise SettingError(
            f"{name!r} has the columns {columns}: wanted are one of {_PATHS}, one of {_CLASSES}, "
            "and split (train, val) where the data are split"
        )
    classes = sorted({row[of_label] for row in rows})
    splits = [row.get("split", "").strip().lower() for row in rows]
    words = [next((word for word in group if word in splits), "") for group in (_TRAIN, _HELD_OUT)]
    parts = []
    for word in words if all(words) else ("",):
        of_part = [row for row, split in zip(rows, splits, strict=True) if word in ("", split)]
        files = [path.parent / row[of_path] for row in of_part]
        numbers = [classes.index(row[of_label]) for row in of_part]
        parts.append(listed_pictures(files, numbers, classes, **options))
    made = parts[0] if len(parts) == 1 else tuple(parts)
    return _named(as_dataset(made, name, **splitting), classes)


_FILES = {".csv": _from_table, ".npz": _from_archive}


# Arrays -------------------------------------------------------------------------------------------


def _are_parts(made: Any) -> bool:
    """Whether it is a pair of parts; a pair of inputs and labels is one part."""
    if isinstance(made, Samples) or not isinstance(made, tuple | list) or len(made) != 2:
        return False
    return all(isinstance(part, tuple | list) or _is_indexable(part) for part in made)


def _is_indexable(made: Any) -> bool:
    """Whether it gives samples by their number, and is no array."""
    if isinstance(made, Mapping):
        return False
    return hasattr(made, "__getitem__") and hasattr(made, "__len__") and not hasattr(made, "shape")


def _is_rows(part: Any) -> bool:
    """Whether it is a list of samples; a list of two arrays is inputs and labels."""
    return isinstance(part, list) and all(isinstance(one, Mapping | tuple) for one in part)


def _samples(part: Any, name: str) -> Samples:
    if _is_rows(part) or (not isinstance(part, tuple | list) and _is_indexable(part)):
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
    return Samples(_pictures(inputs), labels)


def _stacked(samples: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """All samples of something indexable."""
    every = [_pair_of(samples[number], name) for number in range(len(samples))]
    inputs, labels = ([np.asarray(one[place]) for one in every] for place in (0, 1))
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
        chosen = [next((key for key in keys if key in sample), None) for keys in _ROWS]
        if None not in chosen:
            return sample[chosen[0]], sample[chosen[1]]
    elif len(sample) == 2:
        return sample[0], sample[1]
    kind = f"a row with {[*sample]}" if isinstance(sample, Mapping) else f"{len(sample)} values"
    raise SettingError(
        f"{name!r} has samples of {kind}: wanted are an input and a label, or names such as "
        "'image' and 'label'"
    )


def _pictures(inputs: np.ndarray) -> np.ndarray:
    """Bytes as pictures (channels first, in [0, 1]); floats in single precision."""
    if inputs.dtype.kind == "f":
        return inputs.astype(np.float32)
    if inputs.dtype != np.uint8:
        return inputs.astype(np.float32) if inputs.dtype.kind == "b" else inputs
    if inputs.ndim == 3:
        inputs = inputs[:, np.newaxis]
    elif inputs.ndim == 4 and inputs.shape[-1] in _CHANNELS and inputs.shape[1] not in _CHANNELS:
        inputs = np.moveaxis(inputs, -1, 1)
    return np.ascontiguousarray(inputs, dtype=np.float32) / np.float32(255)


def _classes(labels: Sequence[np.ndarray], name: str) -> tuple[str, ...]:
    """The names of the classes: texts in their order, or the numbers from 0 to the largest."""
    every = np.concatenate([np.ravel(one) for one in labels])
    if every.dtype.kind in "US":
        return tuple(str(each) for each in np.unique(every))
    if every.dtype.kind not in "iub":
        raise SettingError(
            f"{name!r} has labels of type {every.dtype}: wanted are class numbers (for one-hot "
            "rows labels.argmax(1)). Targets that are measured have a loss of their own: "
            "Trainer(network, optimizer, losses=...)"
        )
    if every.min() < 0:
        raise SettingError(f"{name!r} has the label {every.min()}: class numbers begin at 0")
    return tuple(str(number) for number in range(int(every.max()) + 1))


def _numbers(labels: np.ndarray, classes: Sequence[str], name: str) -> np.ndarray:
    if labels.dtype.kind in "US":
        places = {text: number for number, text in enumerate(classes)}
        return np.array([places[str(text)] for text in labels], np.int64)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    is_one_hot = labels.ndim == 2 and labels.shape[1] > 1 and (labels.sum(1) == 1).all()
    if is_one_hot and len(classes) <= 2:
        raise SettingError(
            f"{name!r} has one-hot labels {labels.shape}: wanted are class numbers, "
            "labels.argmax(1)"
        )
    return labels.astype(np.int64)


def _split(samples: Samples, held_out: float, seed: int) -> tuple[Samples, Samples]:
    """Split samples: of each class the same fraction; of pictures of labels a fraction of all."""
    if samples.labels.ndim == 1:
        return stratified_split(samples, held_out, seed)
    check_fraction(held_out)
    order = permutation(len(samples.labels), seed, "data/split")
    count = max(1, round(held_out * len(order)))
    return samples.take(np.sort(order[count:])), samples.take(np.sort(order[:count]))


def _first(found: Mapping[str, Path], names: Sequence[str]) -> Path | None:
    return next((found[name] for name in names if name in found), None)
