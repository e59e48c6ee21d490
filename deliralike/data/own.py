"""Data of one's own by name: a function, a folder of pictures, an ``.npz`` archive or a CSV."""

from __future__ import annotations

import csv
import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import own_code
from deliralike.data.dataset import Dataset
from deliralike.data.folders import image_folder, listed_pictures
from deliralike.data.own_arrays import INPUTS, LABELS, as_dataset, first_present
from deliralike.errors import SettingError, refuse_unknown_settings

# Names of folders, of parts of archives, and of columns in tables, as they are in use.
_PATHS = ("path", "file", "filename", "image")
_CLASSES = ("label", "labels", "class", "target", "y")
_SPLIT = "split"
_TRAIN = ("train", "training")
_HELD_OUT = ("held_out", "val", "valid", "validation", "test", "testing")


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
            each class, an archive ``.npz``, or a table ``.csv`` with a column ``label`` and one
            ``path``, or else columns of numbers, which are the inputs. What holds a part for
            training and one for validation (folders, arrays, or a column ``split``) is taken as it
            is split.
        held_out: The fraction that is held out where the data are not split.
        seed: Which samples are held out.
        options: Of a function: its arguments. Of pictures: ``size``, ``mode`` and ``classes`` as
            `image_folder` has them.

    Raises:
        SettingError: There is no such file, or it does not hold inputs and class numbers.
        ArgumentError: There is no such option.
        BatchError: A picture is damaged.
    """
    request = _Request(name, held_out, seed, options)
    if own_code.is_name(name):
        return _from_function(request)
    path = Path(name).expanduser()
    if not path.exists():
        raise SettingError(f"there is no {name!r}, looked for in {str(Path.cwd())!r}")
    if path.is_dir():
        return _from_folder(request, path)
    if path.suffix not in _FILES:
        raise SettingError(
            f"{name!r}: data are a folder of pictures, a file {' or '.join(_FILES)}, or code, "
            "module:function"
        )
    return _FILES[path.suffix](request, path)


@dataclass(frozen=True)
class _Request:
    """The arguments of `load_own`."""

    name: str
    held_out: float
    seed: int
    options: Mapping[str, Any]

    def of_parts(self, parts: Sequence[Any], classes: Sequence[str] = ()) -> Dataset:
        """Return the dataset of samples to learn from and held out, or of samples to be split."""
        return self.dataset(tuple(parts) if len(parts) > 1 else parts[0], classes)

    def dataset(self, made: Any, classes: Sequence[str] = ()) -> Dataset:
        """Return what was read as a dataset, whose classes may have names."""
        dataset = as_dataset(made, self.name, held_out=self.held_out, seed=self.seed)
        if classes:
            return replace(dataset, classes=tuple(classes))
        return dataset

    def refuse_options_but(self, known: Iterable[str]) -> None:
        """Raise an error if there are other options than these."""
        refuse_unknown_settings(self.name, self.options, known)


def _from_function(request: _Request) -> Dataset:
    function = own_code.load(request.name)
    if not callable(function):
        return request.dataset(function)
    taken = inspect.signature(function).parameters
    is_open = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    if not is_open:
        request.refuse_options_but(taken)
    arguments = dict(request.options)
    for key in ("held_out", "seed"):
        if key in taken:
            arguments[key] = getattr(request, key)
    return request.dataset(function(**arguments))


def _from_folder(request: _Request, path: Path) -> Dataset:
    options = request.options
    request.refuse_options_but(("size", "mode", "classes"))
    subfolders = {one.name.lower(): one for one in path.iterdir() if one.is_dir()}
    train = first_present(_TRAIN, subfolders)
    held_out = first_present(_HELD_OUT, subfolders)
    if train is None or held_out is None:
        folder = image_folder(path, **options)
        return request.dataset(folder, folder.classes)
    first = image_folder(subfolders[train], **options)
    second = image_folder(subfolders[held_out], **options)
    if first.classes != second.classes:
        raise SettingError(
            f"{request.name!r}: the classes to learn are {first.classes}, and those held out "
            f"{second.classes}: both need the same subfolders, or classes=[...]"
        )
    return request.dataset((first, second), first.classes)


def _from_archive(request: _Request, path: Path) -> Dataset:
    request.refuse_options_but(())
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files
        pairs = [_pair(names)] if _pair(names) else [_part(names, _TRAIN), _part(names, _HELD_OUT)]
        parts = [[_read(request, archive, name) for name in pair] for pair in pairs if pair]
    if not parts or pairs[0] is None:
        raise SettingError(
            f"{request.name!r} holds {names}: wanted are arrays such as {INPUTS[0]} and "
            f"{LABELS[0]}, x_train and y_train, also with x_test and y_test, or train_images, "
            "train_labels, val_images and val_labels"
        )
    return request.of_parts(parts)


def _read(request: _Request, archive: Any, name: str) -> np.ndarray:
    try:
        return archive[name]
    except ValueError as error:
        raise SettingError(
            f"{request.name!r}: {name!r} cannot be read ({error}), since reading objects may run "
            f"code: save numbers or texts, np.savez(path, {name}=np.asarray(..., dtype=str))"
        ) from error


def _part(names: Sequence[str], words: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the inputs and labels of a part, which its words say."""
    pairs = (_pair(names, word) for word in words)
    return next((pair for pair in pairs if pair is not None), None)


def _pair(names: Sequence[str], word: str = "") -> tuple[str, str] | None:
    """Return the names of inputs and labels among others; those with a word, if it is given."""
    forms = ("{0}_{1}", "{1}_{0}") if word else ("{0}",)
    for inputs, labels, form in product(INPUTS, LABELS, forms):
        of_inputs = form.format(inputs, word)
        of_labels = form.format(labels, word)
        if of_inputs in names and of_labels in names:
            return of_inputs, of_labels
    return None


def _from_table(request: _Request, path: Path) -> Dataset:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0]) if rows else []
    of_path = _column(columns, _PATHS)
    of_label = _column(columns, _CLASSES)
    if of_label is None:
        raise SettingError(
            f"{request.name!r} has the columns {columns}: wanted is one of {_CLASSES}, one of "
            f"{_PATHS} or columns of numbers, and {_SPLIT} (train, val) where the data are split"
        )
    _refuse_uneven_rows(request.name, rows, columns)
    if of_path is None:
        request.refuse_options_but(())
        return request.of_parts([_numbers(request.name, part, of_label) for part in _split(rows)])
    request.refuse_options_but(("size", "mode"))
    classes = sorted({row[of_label] for row in rows})
    parts = []
    for part in _split(rows):
        files = [path.parent / row[of_path] for row in part]
        numbers = [classes.index(row[of_label]) for row in part]
        parts.append(listed_pictures(files, numbers, classes, **request.options))
    return request.of_parts(parts, classes)


def _split(rows: Sequence[Mapping[str, str]]) -> list[list[Mapping[str, str]]]:
    """Return the rows to learn from and those held out, if the table says so; else all rows."""
    parts: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        parts[row.get(_SPLIT, "").strip().lower()].append(row)
    train = first_present(_TRAIN, parts)
    held_out = first_present(_HELD_OUT, parts)
    if train is None or held_out is None:
        return [list(rows)]
    return [parts[train], parts[held_out]]


def _numbers(
    name: str, rows: Sequence[Mapping[str, str]], of_label: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of a table, a row for each sample, and the labels.

    All columns count but those of the labels, of the split, and the nameless one that pandas writes
    before the others.
    """
    columns = [column for column in rows[0] if column not in (of_label, _SPLIT, "")]
    if not columns:
        raise SettingError(f"{name!r} has the column {of_label!r} alone: inputs are lacking")
    features = []
    for column in columns:
        try:
            features.append(np.array([row[column] for row in rows], np.float32))
        except ValueError as error:
            raise SettingError(
                f"{name!r}: column {column!r} holds something else than numbers ({error}): take it "
                f"out, or write numbers. A column of pictures is called one of {_PATHS}"
            ) from error
    labels = np.array([row[of_label] for row in rows])
    for kind in (np.int64, np.float64):
        with suppress(ValueError):
            labels = labels.astype(kind)
            break
    return np.stack(features, axis=1), labels


def _refuse_uneven_rows(name: str, rows: Iterable[Mapping[Any, Any]], columns: list[str]) -> None:
    """Refuse a table in which a row has fewer or more cells than there are columns."""
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise SettingError(
                f"{name!r}: row {number} below the header, {[*row.values()]}, does not have one "
                f"cell for each of the columns {columns}"
            )


def _column(columns: Sequence[str], words: Sequence[str]) -> str | None:
    return next((column for column in columns if column.lower() in words), None)


_FILES = {".csv": _from_table, ".npz": _from_archive}
