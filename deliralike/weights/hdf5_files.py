"""HDF5 files of Chainer's ``save_hdf5``, read without running code from them."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import BackendUnavailable, WeightFileError
from deliralike.weights import chainer_names
from deliralike.weights.inflate import refuse_expansion

BEGINNING = b"\x89HDF"
_MISSING = (
    "is an HDF5 file, and reading it needs the package 'h5py': "
    "pip install 'deliralike[hdf5]'"
)
_DEEPEST = 100


def read(path: Path) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Return the arrays of a file by neutral names, and notes on what was done.

    Raises:
        WeightFileError: The file has no arrays, or something that is none.
        BackendUnavailable: The package h5py is missing.
    """
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError as error:
        raise BackendUnavailable(f"{path} {_MISSING}") from error
    with h5py.File(path, "r") as file:
        datasets = {}
        for name, node in _nodes(h5py, file):
            if isinstance(node, h5py.Dataset) and node.shape is not None:
                datasets[name] = node  # Chainer writes an empty one for None
        if not datasets:
            raise WeightFileError(
                f"{path} is an HDF5 file without arrays: wanted what Chainer's save_hdf5 writes"
            )
        for name, dataset in datasets.items():
            if dataset.dtype.kind not in "biuf" or _is_elsewhere(dataset, file):
                raise WeightFileError(f"{path}: {name!r} is no array of numbers")
        refuse_expansion(path, sum(dataset.nbytes for dataset in datasets.values()))
        arrays = {name: np.asarray(dataset[()]) for name, dataset in datasets.items()}
    names, notes = chainer_names.neutral(list(arrays))
    return {neutral: arrays[name] for name, neutral in names.items()}, notes


def _is_elsewhere(dataset: Any, file: Any) -> bool:
    """Return whether an array lies in another file, which the user has not asked to read."""
    return bool(
        dataset.external or dataset.is_virtual or dataset.file.filename != file.filename
    )


def _nodes(h5py: Any, root: Any) -> Iterator[tuple[str, Any]]:
    """Yield every group and array below the root, each once, whatever links there are.

    The library's own walk takes minutes where groups lie thousands deep.
    """
    todo = deque([("", root, 0)])
    visited = {root.id}
    while todo:
        path, group, depth = todo.popleft()
        if depth > _DEEPEST:
            raise ValueError(
                f"groups are nested more than {_DEEPEST} deep, which no network is"
            )
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            node = group[name]
            if node.id in visited:
                continue
            visited.add(node.id)
            yield f"{path}{name}", node
            if isinstance(node, h5py.Group):
                todo.append((f"{path}{name}/", node, depth + 1))
