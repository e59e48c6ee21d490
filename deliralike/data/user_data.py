"""Data of one's own by name: a function, a folder of pictures or an ``.npz`` archive."""

from __future__ import annotations

import inspect
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import own_code
from deliralike.data.array_guessing import (
    INPUTS,
    LABELS,
    as_dataset,
    first_present,
)
from deliralike.data.dataset import Dataset
from deliralike.data.folders import image_folder
from deliralike.errors import SettingError, refuse_unknown_settings
from deliralike.weights.inflate import refuse_expansion

# Names of parts in folders and archives, as they are in use.
TRAIN = ("train", "training")
HELD_OUT = ("held_out", "val", "valid", "validation", "dev", "test", "testing")
ARCHIVE = ".npz"
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
    if path.suffix == ARCHIVE:
        return ARCHIVE
    return "folder" if "/" in name or path.is_dir() else ""


def load_user_data(
    name: str, *, held_out: float = 0.2, seed: int = 0, **options: Any
) -> Dataset:
    """Return the dataset that a function makes, or that a file or a folder holds.

    Args:
        name: ``"package.module:function"`` or ``"file.py:function"``, a folder with a subfolder for
            each class, or an archive ``.npz``. What holds a part for training and one for
            validation (folders or arrays) is taken as it is split.
        held_out: The fraction that is held out where the data are not split.
        seed: Which samples are held out.
        options: Of a function: its arguments. Of pictures: ``size``, ``mode`` and ``classes`` as
            `image_folder` has them. Of an archive: ``classes``, as `as_dataset` has it.

    Raises:
        SettingError: There is no such file, or it does not hold inputs and class numbers.
        ArgumentError: There is no such option.
        BatchError: A picture is damaged.
    """
    path = Path(name).expanduser()
    if own_code.is_name(name):
        made, classes = _of_code(name, options, held_out, seed)
    elif not path.exists():
        raise SettingError(f"there is no {name!r}, looked for in {str(Path.cwd())!r}")
    elif path.is_dir():
        refuse_unknown_settings(name, options, ("size", "mode", "classes"))
        made, classes = _in_folder(name, path, options)
    elif not path.is_file():
        raise SettingError(f"{name!r} is no file, and no folder")
    elif path.suffix == ARCHIVE:
        refuse_unknown_settings(name, options, ("classes",))
        made, classes = _in_archive(name, path), options.get("classes")
    else:
        raise SettingError(
            f"{name!r}: data are a folder of pictures, a file {ARCHIVE}, or code, module:function, "
            "which may read a table"
        )
    return as_dataset(made, name, held_out=held_out, seed=seed, classes=classes)


def _of_code(
    name: str, options: Mapping[str, Any], held_out: float, seed: int
) -> tuple[Any, Sequence[str] | None]:
    """Return what an object of the user's is, or a function makes, and its classes if it has them.

    A function gets `held_out` and `seed` if it takes them.
    """
    made = own_code.load(name)
    if callable(made):
        taken = inspect.signature(made).parameters
        arguments = {"held_out": held_out, "seed": seed}
        arguments = {key: value for key, value in arguments.items() if key in taken}
        if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
            refuse_unknown_settings(name, options, taken)
        made = made(**{**options, **arguments})
    classes = getattr(made, "classes", None)
    return made, classes if isinstance(classes, list | tuple) else None


def _in_folder(
    name: str, path: Path, options: Mapping[str, Any]
) -> tuple[Any, Sequence[str]]:
    """Return the pictures of a folder, or of the two parts in it, and their classes."""
    subfolders = {one.name.lower(): one for one in path.iterdir() if one.is_dir()}
    train = first_present(TRAIN, subfolders)
    held_out = first_present(HELD_OUT, subfolders)
    if train is None or held_out is None:
        folder = image_folder(path, **options)
        return folder, folder.classes
    first = image_folder(subfolders[train], **options)
    second = image_folder(subfolders[held_out], **options)
    if first.classes != second.classes:
        raise SettingError(
            f"{name!r}: the classes to learn are {first.classes}, and those held out "
            f"{second.classes}: both need the same subfolders, or classes=[...]"
        )
    return (first, second), first.classes


def _in_archive(name: str, path: Path) -> Any:
    """Return the inputs and labels in an archive of NumPy, of two parts if it has them."""
    try:
        with zipfile.ZipFile(path) as members:
            size = sum(member.file_size for member in members.infolist())
        refuse_expansion(path, size, allowed=_ALWAYS_ALLOWED)
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            whole = _pair(names)
            pairs = [whole] if whole else [_part(names, TRAIN), _part(names, HELD_OUT)]
            parts = []
            for pair in filter(None, pairs):
                parts.append([_read(name, archive, each) for each in pair])
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
    if not parts or pairs[0] is None:
        raise SettingError(
            f"{name!r} holds {names}: wanted are arrays such as {INPUTS[0]} and {LABELS[0]}, "
            "x_train and y_train, also with x_test and y_test, or train_images, train_labels, "
            "val_images and val_labels"
        )
    return tuple(parts) if len(parts) > 1 else parts[0]


def _read(name: str, archive: Any, member: str) -> np.ndarray:
    try:
        return archive[member]
    except ValueError as error:
        raise SettingError(
            f"{name!r}: {member!r} cannot be read ({error}): reading objects may run code, so "
            f"save numbers or texts, np.savez(path, {member}=np.asarray(..., dtype=str))"
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
