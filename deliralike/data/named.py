"""Datasets by name. The package of a dataset is imported when the dataset is loaded, not before."""

from pathlib import Path
from typing import Any

import numpy as np

from deliralike.data.dataset import Dataset, Samples, stratified_split
from deliralike.data.packages import needed
from deliralike.data.user_data import kind, load_user_data
from deliralike.errors import refuse_unknown, refuse_unknown_settings
from deliralike.setting_types import refuse_other_types
from deliralike.terminal import warn

_NAMES = ("digits",)


def load(name: str, *, held_out: float = 0.2, seed: int = 0, **options: Any) -> Dataset:
    """Return the dataset of that name, split into a part to learn from and a held-out part.

    Nothing is downloaded: the data come with a package, or are your own.

    Args:
        name: One of `known`, or data of your own: a function ``"module:function"`` or
            ``"file.py:function"``, a folder of pictures, an archive ``.npz`` or a table ``.csv``;
            see `deliralike.data.user_data`.
        held_out: The fraction of each class that is held out.
        seed: Which samples are held out.
        options: Settings of data of your own: ``size=16``.

    Raises:
        UnknownName: There is no such dataset; the nearest names are given.
        ArgumentError: The dataset has no such option.
        SettingError: Data of your own are not there, or hold something else; or an option is of
            another type.
        DataUnavailable: The package that it comes with is not installed; the message says how to
            install it.

    Example:
        >>> digits = load("digits")
        >>> digits.train.inputs.shape, digits.held_out.inputs.shape, digits.classes[:3]
        ((1438, 1, 8, 8), (359, 1, 8, 8), ('0', '1', '2'))
    """
    refuse_other_types(name, load, {"held_out": held_out, "seed": seed})
    if name not in _NAMES and kind(name):
        return load_user_data(name, held_out=held_out, seed=seed, **options)
    refuse_unknown(name, _NAMES, f"there is no dataset {name!r}")
    if Path(name).is_dir():
        warn(
            f"{name!r} is the dataset that comes with a package, and not the folder of that name "
            f"here, which is './{name}'"
        )
    refuse_unknown_settings(f"dataset {name!r}", options, ("held_out", "seed"))
    return _digits(held_out, seed)


def known() -> list[str]:
    """Return the names of all datasets.

    Example:
        >>> known()
        ['digits']
    """
    return list(_NAMES)


def _digits(held_out: float, seed: int) -> Dataset:
    """Return 1,797 handwritten digits of 8x8 pixels with 17 grey levels.

    Source: Alpaydin and Kaynak 1998, UCI.
    """
    shipped = needed(
        "sklearn.datasets",
        package="scikit-learn",
        extra="data",
        purpose="dataset 'digits'",
    )
    raw = shipped.load_digits()
    inputs = (raw.images[:, np.newaxis] / 16.0).astype(np.float32)
    samples = Samples(inputs, raw.target.astype(np.int64))
    train, evaluated = stratified_split(samples, held_out, seed)
    classes = tuple(str(name) for name in raw.target_names)
    return Dataset("digits", train, evaluated, classes)
