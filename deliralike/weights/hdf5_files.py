"""Keras's weights: ``save_weights("x.weights.h5")`` of Keras 3, and the older ``.h5`` with its list of layers."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import BackendUnavailable, WeightFileError
from deliralike.weights import trees
from deliralike.weights.expansion import refuse_expansion
from deliralike.weights.fitting import natural

BEGINNING = b"\x89HDF"
IN_ARCHIVE = "model.weights.h5"  # in a whole model, ``x.keras``
_MISSING = "is an HDF5 file, and reading it needs the package 'h5py': pip install 'deliralike[hdf5]'"
_DEEPEST = 100
_NORM = ("gamma", "beta", "moving_mean", "moving_variance")


def read(path: Path, content: BytesIO | None = None) -> tuple[dict[str, np.ndarray], str]:
    """The state, with a layer's own name before each of its arrays, and what the order tells; see `Contents`.

    Args:
        content: What is read instead, where the file lies within another one.

    Raises:
        WeightFileError: It is no file of Keras, or holds a layer whose arrays have no name here.
        BackendUnavailable: h5py is not installed.
    """
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError as error:
        raise BackendUnavailable(f"{path} {_MISSING}") from error
    with h5py.File(path if content is None else content, "r") as file:
        root = file.get("model_weights", file)
        by_layers = "layer_names" in root.attrs
        found = _by_list(root) if by_layers else _by_tree(h5py, root)
        if not found:
            raise WeightFileError(f"{path} is an HDF5 file without layers of Keras: wanted what save_weights writes")
        for place, dataset in found.items():
            if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "biuf" or _elsewhere(dataset, file):
                raise WeightFileError(f"{path}: {'.'.join(place)!r} is no array of numbers")
        refuse_expansion(path, sum(dataset.nbytes for dataset in found.values()))
        state = trees.neutral({place: dataset[()] for place, dataset in found.items()})
        return state, "all" if by_layers else "kind"


def _elsewhere(dataset: Any, file: Any) -> bool:
    """Whether an array lies in another file, which nobody asked to be read."""
    return bool(dataset.external or dataset.is_virtual or dataset.file.filename != file.filename)


def _by_list(root: Any) -> dict[trees.Path, Any]:
    """The older files: layers in their order, each with a list of the names of its weights."""
    found = {}
    for layer in map(_text, root.attrs["layer_names"]):
        for name in map(_text, root[layer].attrs["weight_names"]):
            leaf = name.rpartition("/")[2].partition(":")[0]
            found[(*layer.split("."), _depthwise(layer, leaf, root[layer][name]))] = root[layer][name]
    return found


def _by_tree(h5py: Any, root: Any) -> dict[trees.Path, Any]:
    """Keras 3: a group for each layer, numbered among those of its class, with its arrays by number."""
    groups = {name: node for name, node in _nodes(h5py, root) if _is_variables(h5py, name, node)}
    names = {name: str(group.attrs.get("name", "")) for name, group in groups.items()}
    unique = len(set(names.values())) == len(names) and all(names.values())
    found = {}
    for name in sorted(groups, key=natural):
        path = [part for part in name.split("/")[:-1] if part != "layers"]
        arrays = [groups[name][number] for number in sorted(groups[name], key=int)]
        layer = path[-1] if path else ""
        for leaf, array in zip(_words(layer, arrays), arrays, strict=True):
            found[(*(names[name].split(".") if unique else path), _depthwise(layer, leaf, array))] = array
    return found


def _nodes(h5py: Any, root: Any) -> Iterator[tuple[str, Any]]:
    """Every group and array below, each once, whatever links there are.

    The library's own walk takes minutes where groups lie thousands deep.
    """
    todo, seen = deque([("", root, 0)]), {root.id}
    while todo:
        path, group, depth = todo.popleft()
        if depth > _DEEPEST:
            raise ValueError(f"groups are nested more than {_DEEPEST} deep, which no network of Keras is")
        for name in group:
            if isinstance(group.get(name, getlink=True), h5py.HardLink) and (node := group[name]).id not in seen:
                seen.add(node.id)
                yield f"{path}{name}", node
                if isinstance(node, h5py.Group):
                    todo.append((f"{path}{name}/", node, depth + 1))


def _is_variables(h5py: Any, name: str, node: Any) -> bool:
    return name.rpartition("/")[2] == "vars" and isinstance(node, h5py.Group) and len(node) > 0


def _words(layer: str, arrays: list[Any]) -> tuple[str, ...]:
    """What the numbered arrays of a layer are, which the file does not say."""
    axes = [array.ndim for array in arrays]
    if axes == [1, 1, 1, 1] and "batch_normalization" in layer:
        return _NORM
    if axes in ([1, 1], [1]) and "normalization" in layer and "batch" not in layer:
        return _NORM[: len(axes)]
    if "embedding" in layer and axes == [2]:
        return ("embeddings",)
    if axes[0] >= 2 and axes[1:] in ([], [1]) and ("conv" in layer or "dense" in layer) and "separable" not in layer:
        return ("kernel", "bias")[: len(axes)]
    shapes = [array.shape for array in arrays]
    raise WeightFileError(f"the layer {layer!r} of Keras with arrays of shapes {shapes} has no counterpart here")


def _depthwise(layer: str, leaf: str, array: Any) -> str:
    """A depthwise kernel goes by that name, whatever the layer is called; in old files it has it already."""
    return "depthwise_kernel" if leaf == "kernel" and "depthwise" in layer and array.ndim > 2 else leaf


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
