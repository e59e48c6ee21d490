"""HDF5 files of Keras and Chainer.

They are ``x.weights.h5`` of Keras 3, the older ``.h5`` with its list of layers, and Chainer's
``serializers.save_hdf5``, whose names are those of its ``.npz`` files.
"""

from __future__ import annotations

import importlib
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import BackendUnavailable, WeightFileError
from deliralike.weights import chainer_names, trees
from deliralike.weights.inflate import refuse_expansion

BEGINNING = b"\x89HDF"
IN_ARCHIVE = "model.weights.h5"  # in a whole model, ``x.keras``
_MISSING = (
    "is an HDF5 file, and reading it needs the package 'h5py': "
    "pip install 'deliralike[hdf5]'"
)
_DEEPEST = 100
_OF_KERAS = "names and layouts taken for Keras's"
_NORM = ("gamma", "beta", "moving_mean", "moving_variance")


@dataclass(frozen=True)
class Hdf5Weights:
    """The weights in an HDF5 file.

    Attributes:
        state: The arrays by neutral names.
        order: The meaning of their order; see `Contents`.
        of_keras: Whether the file is Keras's; otherwise it is Chainer's.
        notes: In words, what was guessed.
    """

    state: dict[str, np.ndarray]
    order: str
    of_keras: bool
    notes: tuple[str, ...]


def read(path: Path, content: BytesIO | None = None) -> Hdf5Weights:
    """Read a file of Keras, where the name of each array begins with its layer's, or of Chainer.

    Args:
        content: The content to read instead, where the file lies within another one.

    Raises:
        WeightFileError: It holds no arrays, or a layer whose arrays have no name here.
        BackendUnavailable: h5py is not installed.
    """
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError as error:
        raise BackendUnavailable(f"{path} {_MISSING}") from error
    with h5py.File(path if content is None else content, "r") as file:
        root = file.get("model_weights", file)
        if "layer_names" in root.attrs:
            datasets = _by_list(root)
            order = "all"
        else:
            datasets = _by_tree(h5py, root)
            order = "kind"
        of_keras = bool(datasets)
        if not of_keras:
            datasets = _all(h5py, root)
        if not datasets:
            raise WeightFileError(
                f"{path} is an HDF5 file without arrays: wanted what Keras's save_weights or "
                "Chainer's save_hdf5 writes"
            )
        for place, dataset in datasets.items():
            if not _is_numbers(h5py, dataset) or _is_elsewhere(dataset, file):
                raise WeightFileError(
                    f"{path}: {'.'.join(place)!r} is no array of numbers"
                )
        refuse_expansion(path, sum(dataset.nbytes for dataset in datasets.values()))
        arrays = {place: dataset[()] for place, dataset in datasets.items()}
    if of_keras:
        return Hdf5Weights(trees.neutral(arrays), order, of_keras, (_OF_KERAS,))
    paths = ["/".join(place) for place in arrays]
    names, notes = chainer_names.neutral(paths)
    state = {}
    for path_in_file, array in zip(paths, arrays.values(), strict=True):
        if path_in_file in names:
            state[names[path_in_file]] = np.asarray(array)
    return Hdf5Weights(state, "", of_keras, notes)


def _is_numbers(h5py: Any, dataset: Any) -> bool:
    return isinstance(dataset, h5py.Dataset) and dataset.dtype.kind in "biuf"


def _is_elsewhere(dataset: Any, file: Any) -> bool:
    """Return whether an array lies in another file, which the user has not asked to read."""
    return bool(
        dataset.external or dataset.is_virtual or dataset.file.filename != file.filename
    )


def _by_list(root: Any) -> dict[trees.Path, Any]:
    """Return the arrays of an older file: layers in order, each with a list of weight names."""
    datasets = {}
    for layer in _each_once(root.attrs["layer_names"]):
        group = root[layer]
        for name in _each_once(group.attrs["weight_names"]):
            leaf = name.rpartition("/")[2].partition(":")[0]
            dataset = group[name]
            place = (*layer.split("."), _leaf_name(layer, leaf, dataset))
            if place in datasets:  # such as the two directions of a recurrent layer
                raise ValueError(f"the layer {layer!r} has two arrays {leaf!r}")
            datasets[place] = dataset
    return datasets


def _each_once(values: Any) -> list[str]:
    """Return the names in a list; one that repeats them is no list of Keras's."""
    names = [_text(value) for value in values]
    if len(set(names)) != len(names):
        raise ValueError("a list of its names has one of them twice")
    return names


def _by_tree(h5py: Any, root: Any) -> dict[trees.Path, Any]:
    """Return the arrays of Keras 3: a group for each layer, numbered within its class."""
    groups = {}
    layer_names = {}
    for place, node in _nodes(h5py, root):
        if _is_variables(h5py, place, node):
            groups[place] = node
            layer_names[place] = str(node.attrs.get("name", ""))
    distinct = set(layer_names.values())
    are_unique = len(distinct) == len(groups) and "" not in distinct
    datasets = {}
    for place in sorted(groups, key=_natural):
        group = groups[place]
        arrays = [group[number] for number in sorted(group, key=int)]
        path = _layer_path(place)
        layer = path[-1] if path else ""
        if are_unique:
            path = layer_names[place].split(".")
        for leaf, array in zip(_leaves(layer, arrays), arrays, strict=True):
            datasets[*path, _leaf_name(layer, leaf, array)] = array
    return datasets


def _all(h5py: Any, root: Any) -> dict[trees.Path, Any]:
    """Return every array by its path; Chainer writes an empty one for None."""
    datasets = {}
    for path, node in _nodes(h5py, root):
        if isinstance(node, h5py.Dataset) and node.shape is not None:
            datasets[tuple(path.split("/"))] = node
    return datasets


def _layer_path(place: str) -> list[str]:
    """Return the path of the layer that has its variables at a place in the file."""
    parts = place.split("/")[:-1]
    return [part for part in parts if part != "layers"]


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
                f"groups are nested more than {_DEEPEST} deep, which no network of Keras is"
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


def _is_variables(h5py: Any, name: str, node: Any) -> bool:
    leaf = name.rpartition("/")[2]
    return leaf == "vars" and isinstance(node, h5py.Group) and len(node) > 0


def _leaves(layer: str, arrays: list[Any]) -> tuple[str, ...]:
    """Return the names of a layer's numbered arrays, which the file does not hold."""
    axes = [array.ndim for array in arrays]
    if axes == [1, 1, 1, 1] and "batch_normalization" in layer:
        return _NORM
    if axes in ([1, 1], [1]) and "normalization" in layer and "batch" not in layer:
        return _NORM[: len(axes)]
    if "embedding" in layer and axes == [2]:
        return ("embeddings",)
    has_kernel = ("conv" in layer or "dense" in layer) and "separable" not in layer
    if has_kernel and axes[0] >= 2 and axes[1:] in ([], [1]):
        return ("kernel", "bias")[: len(axes)]
    shapes = [array.shape for array in arrays]
    raise WeightFileError(
        f"the layer {layer!r} of Keras with arrays of shapes {shapes} has no counterpart here"
    )


def _leaf_name(layer: str, leaf: str, array: Any) -> str:
    """Return the name of an array: old files call a depthwise kernel so, new ones ``kernel``."""
    if leaf == "kernel" and "depthwise" in layer and array.ndim > 2:
        return "depthwise_kernel"
    return leaf


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers within texts by value."""
    parts = re.split(r"(\d+)", text)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
