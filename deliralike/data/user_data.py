"""Data of one's own by name: a function, a folder of pictures, an ``.npz`` archive or a CSV."""

from __future__ import annotations

import inspect
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import own_code
from deliralike.data.array_guessing import (
    INPUTS,
    LABELS,
    as_dataset,
    as_inputs,
    class_names,
    class_numbers,
)
from deliralike.data.dataset import Dataset, Samples, random_split
from deliralike.data.folders import (
    AnySize,
    image_folder,
    listed_pictures,
    subfolder_called,
)
from deliralike.data.mask_folders import IMAGES, MASKS, MaskFolder
from deliralike.data.table_files import HELD_OUT, TRAIN, read_table
from deliralike.errors import (
    SettingError,
    listed,
    refuse_unknown_settings,
    refuse_unknown_word,
)
from deliralike.setting_types import refuse_other_types
from deliralike.weights.inflate import refuse_expansion

_TASKS = ("classification", "segmentation")
_ALWAYS_ALLOWED = 2**31  # bytes of arrays in an archive


def kind(name: str) -> str:
    """Return whether a name is that of code, a folder or a file; empty for none of them.

    Example:
        >>> kind("my_data.py:make"), kind("scans.npz"), kind("./pictures"), kind("digits")
        ('code', '.npz', 'folder', '')
    """
    if own_code.is_name(name):
        return "code"
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix in _FILES:
        return suffix
    return "folder" if "/" in name or path.is_dir() else ""


def load_user_data(
    name: str, *, held_out: float = 0.2, seed: int = 0, **options: Any
) -> Dataset:
    """Return the dataset that a function makes, or that a file or a folder holds.

    Args:
        name: ``"package.module:function"`` or ``"file.py:function"``, a folder with a subfolder for
            each class, or with ``images`` and ``masks``, or one of nnU-Net's; an archive ``.npz``,
            or a table ``.csv`` with a column ``label`` and one ``path``, or else columns of
            numbers, which are the inputs. What holds a part for training and one for validation
            (folders, arrays, or a column ``split``) is taken as it is split. Rows without a label
            are left out.
        held_out: The fraction that is held out where the data are not split.
        seed: Which samples are held out.
        options: Of a function: its arguments. Of pictures: ``size``, ``mode`` and ``classes`` as
            `image_folder` has them, and ``task``. Of pictures with masks: ``size``, ``mode``,
            ``values``, ``classes`` and ``spacing`` as `MaskFolder.dataset` has them. Of an archive
            or a table: ``classes``, as `as_dataset` has it; of a table ``label``, the column of the
            labels, or ``target``, the columns of what is measured, for regression.

    Raises:
        SettingError: There is no such file, or it does not hold inputs and class numbers.
        ArgumentError: There is no such option.
        BatchError: A picture is damaged.
    """
    request = _Request(name, held_out, seed, options)
    if own_code.is_name(name):
        return _from_function(request)
    refuse_other_types(name, _options, options)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_folder(request, path)
    if not path.is_file():
        raise SettingError(
            f"there is no {name!r}, looked for in {str(Path.cwd())!r}: no file, and no folder"
        )
    read = _FILES.get(path.suffix.lower())
    if read is None:
        raise SettingError(
            f"{name!r}: data are a folder of pictures, a file {' or '.join(_FILES)}, or code, "
            "module:function"
        )
    return read(request, path)


def _options(
    *,
    task: str | None,
    size: AnySize | None,
    mode: str | None,
    classes: int | Sequence[str] | None,
    values: Sequence[int | str] | None,
    spacing: float | Sequence[float] | None,
    label: str | None,
    target: str | Sequence[str],
) -> None:
    """Take what files and folders have as options, for the types of these."""


@dataclass(frozen=True)
class _Request:
    """The arguments of `load_user_data`."""

    name: str
    held_out: float
    seed: int
    options: Mapping[str, Any]

    def dataset(
        self, parts: Sequence[Any], classes: int | Sequence[str] | None = None
    ) -> Dataset:
        """Return the dataset of samples to learn from and held out, or of samples to be split."""
        source = parts[0] if len(parts) == 1 else tuple(parts)
        return as_dataset(
            source, self.name, held_out=self.held_out, seed=self.seed, classes=classes
        )

    def refuse_options_but(self, known: Iterable[str]) -> None:
        """Raise an error if there are other options than these."""
        refuse_unknown_settings(self.name, self.options, known)


def _from_function(request: _Request) -> Dataset:
    function = own_code.load(request.name)
    if not callable(function):
        return request.dataset([function])
    taken = inspect.signature(function).parameters
    is_open = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    if not is_open:
        request.refuse_options_but(taken)
    arguments = dict(request.options)
    for key in ("held_out", "seed"):
        if key in taken:
            arguments[key] = getattr(request, key)
    return request.dataset([function(**arguments)])


def _from_folder(request: _Request, path: Path) -> Dataset:
    options = dict(request.options)
    task = options.pop("task", None)
    train = subfolder_called(path, TRAIN)
    held_out = subfolder_called(path, HELD_OUT)
    parts = [train, held_out] if train and held_out else []
    masked = None if task == "classification" else MaskFolder.find(path, parts)
    if _is_segmentation(request.name, masked, task):
        assert masked is not None
        request.refuse_options_but(
            ("task", "size", "mode", "values", "classes", "spacing")
        )
        split = masked.split(request.held_out, request.seed)
        return split.dataset(request.name, **options)
    request.refuse_options_but(("task", "size", "mode", "classes"))
    folders = [image_folder(part, **options) for part in parts or [path]]
    first, last = folders[0].classes, folders[-1].classes
    if first != last:
        raise SettingError(
            f"{request.name!r}: the classes to learn are {first}, and those held out {last}: both "
            "need the same subfolders, or classes=[...]"
        )
    return request.dataset(folders, first)


def _is_segmentation(name: str, masked: MaskFolder | None, task: str | None) -> bool:
    """Return whether a folder holds pictures with masks.

    Raises:
        SettingError: It could mean two things; or it is no folder for the task.
    """
    if task is not None:
        refuse_unknown_word("task", task, _TASKS)
    if masked is None:
        if task == "segmentation":
            raise SettingError(
                f"folder {name!r} has no subfolders images/ and masks/ (or one of {IMAGES} and one "
                f"of {MASKS}), and no imagesTr/, labelsTr/ and dataset.json"
            )
        return False
    missing = []
    if masked.unpaired:
        files = listed(map(str, masked.unpaired), 3)
        missing.append(f"{files} without a partner of that name")
    missing += [f"another subfolder {other!r}" for other in masked.others]
    if not sum(map(len, masked.parts)):
        missing.append("no picture with a mask")
    if not missing or (task == "segmentation" and not masked.unpaired):
        return True
    if task == "segmentation":
        raise SettingError(f"folder {name!r} has {missing[0]}")
    command = f"deliralike train NETWORK --data {name} --set data.task="
    raise SettingError(
        f"folder {name!r} could mean two things, as it has {', '.join(missing)}. Pictures with "
        f"masks: {command}segmentation. A class of pictures in each subfolder: "
        f"{command}classification"
    )


def _from_archive(request: _Request, path: Path) -> Dataset:
    request.refuse_options_but(("classes",))
    with _opened(path, request.name) as archive:
        names = archive.files
        train = _pair(names, ("", *TRAIN))
        parts = []
        for pair in (train, _pair(names, HELD_OUT)):
            if pair is not None:
                parts.append([_read(request.name, archive, name) for name in pair])
    if train is None:
        raise SettingError(
            f"{request.name!r} holds {names}: wanted are arrays such as {INPUTS[0]} and "
            f"{LABELS[0]}, x_train and y_train, also with x_test and y_test, or train_images, "
            "train_labels, val_images and val_labels"
        )
    return request.dataset(parts, request.options.get("classes"))


def unlabelled_inputs(path: Path) -> np.ndarray:
    """Return the inputs of an archive, as those of a dataset are.

    Raises:
        SettingError: It cannot be read, or has no array of a usual name.
    """
    with _opened(path, str(path)) as archive:
        for name in INPUTS:
            if name in archive.files:
                return as_inputs(_read(str(path), archive, name))
        raise SettingError(
            f"{str(path)!r} holds {archive.files}: wanted is an array called one of {INPUTS}"
        )


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Any]:
    """Open an archive of arrays; what makes it unreadable is an error that says so."""
    try:
        with zipfile.ZipFile(path) as members:
            size = sum(member.file_size for member in members.infolist())
        refuse_expansion(path, size, allowed=_ALWAYS_ALLOWED)
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except (
        zipfile.BadZipFile,
        zlib.error,
        OSError,
        EOFError,
        NotImplementedError,
    ) as error:
        raise SettingError(
            f"{name!r} cannot be read ({error}): an archive is written by np.savez"
        ) from error


def _read(source: str, archive: Any, name: str) -> np.ndarray:
    try:
        return archive[name]
    except ValueError as error:
        raise SettingError(
            f"{source!r}: {name!r} cannot be read ({error}): reading objects may run code, "
            f"so save numbers or texts, np.savez(path, {name}=np.asarray(..., dtype=str))"
        ) from error


def _pair(names: Sequence[str], words: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the inputs and labels of a part, which has one of these words."""
    forms = ("{0}_{1}", "{1}_{0}")
    for word, inputs, labels, form in product(words, INPUTS, LABELS, forms):
        of_inputs = form.format(inputs, word).strip("_")
        of_labels = form.format(labels, word).strip("_")
        if of_inputs in names and of_labels in names:
            return of_inputs, of_labels
    return None


def _from_table(request: _Request, path: Path) -> Dataset:
    if "target" in request.options:
        return _measured(request, path)
    table = read_table(path, request.name, request.options.get("label"))
    labels = table.labels()
    classes = class_names(
        labels, request.name, request.options.get("classes"), by_value=True
    )
    numbered = [
        class_numbers(each.astype(str), classes, request.name) for each in labels
    ]
    if table.path is None:
        request.refuse_options_but(("label", "classes", "target"))
        parts: list[Any] = list(zip(table.inputs(), numbered, strict=True))
    else:
        request.refuse_options_but(("label", "classes", "size", "mode"))
        of_pictures = dict(request.options)
        for key in ("label", "classes"):
            of_pictures.pop(key, None)
        parts = []
        for rows, numbers in zip(table.parts, numbered, strict=True):
            files = [path.parent / row[table.path] for row in rows]
            parts.append(listed_pictures(files, numbers, classes, **of_pictures))
    dataset = request.dataset(parts, classes)
    remarks = table.remarks
    if table.columns:
        remarks = (*remarks, "learned with columns scaled to mean 0 and deviation 1")
    return replace(dataset, remarks=remarks, columns=table.columns)


def _measured(request: _Request, path: Path) -> Dataset:
    """Return the dataset of a table with columns of measured targets, for regression."""
    request.refuse_options_but(("target",))
    targets = request.options["target"]
    names = targets.split(",") if isinstance(targets, str) else list(targets)
    table = read_table(path, request.name, targets=names)
    if table.path is not None:
        raise SettingError(
            f"{request.name!r}: measured targets are learned from columns of numbers, and the "
            f"column {table.path!r} names pictures: give arrays of them, (pictures, targets), to a "
            "Trainer"
        )
    parts = [
        Samples(inputs, measured)
        for inputs, measured in zip(table.inputs(), table.measured(), strict=True)
    ]
    if len(parts) == 1:
        parts = [*random_split(parts[0], request.held_out, request.seed)]
    remarks = (
        f"measured targets, columns {listed(names)}",
        *table.remarks[1:],
        "learned with inputs and targets scaled to mean 0 and deviation 1",
    )
    train, judge = parts
    return Dataset(
        request.name,
        train,
        judge,
        tuple(names),
        "regression",
        remarks,
        columns=table.columns,
    )


_FILES = {".csv": _from_table, ".npz": _from_archive}
