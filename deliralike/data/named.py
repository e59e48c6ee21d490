"""Where datasets are found by name. A package that a dataset comes from is imported when it is loaded, not before."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike.data.dataset import Dataset, Samples, stratified_split
from deliralike.errors import DataUnavailable, UnknownName, suggestion


def load(name: str, *, held_out: float = 0.2, seed: int = 0) -> Dataset:
    """The dataset of that name, split into a part to learn from and a part held out.

    Args:
        held_out: The fraction of each class that is held out.
        seed: Which samples are held out.

    Raises:
        UnknownName: There is no such dataset; the nearest names are given.
        DataUnavailable: The package that it comes with is not installed; the message says how to install it.

    Example:
        >>> digits = load("digits")
        >>> digits.train.inputs.shape, digits.held_out.inputs.shape, digits.classes[:3]
        ((1438, 1, 8, 8), (359, 1, 8, 8), ('0', '1', '2'))
    """
    if name not in _READERS:
        raise UnknownName(f"there is no dataset {name!r}. {suggestion(name, _READERS)}")
    samples, classes = _READERS[name]()
    train, judged = stratified_split(samples, held_out, seed)
    return Dataset(name, train, judged, classes)


def known() -> list[str]:
    """The names of all datasets.

    Example:
        >>> known()
        ['digits']
    """
    return sorted(_READERS)


def _digits() -> tuple[Samples, tuple[str, ...]]:
    """1,797 handwritten digits of 8x8 pixels with 17 grey levels. Source: Alpaydin and Kaynak 1998, UCI."""
    raw = _package("sklearn.datasets", "digits").load_digits()
    inputs = (raw.images[:, np.newaxis] / 16.0).astype(np.float32)
    return Samples(inputs, raw.target.astype(np.int64)), tuple(str(name) for name in raw.target_names)


def _package(module: str, dataset: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataUnavailable(
            f"dataset {dataset!r} comes with the package 'scikit-learn', which cannot be imported here ({error}): "
            f"pip install 'deliralike[data]'"
        ) from error


_READERS: dict[str, Callable[[], tuple[Samples, tuple[str, ...]]]] = {"digits": _digits}
