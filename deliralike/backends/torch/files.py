"""PyTorch's weight files: read without running what they contain, written for ``torch.load``."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deliralike.backends.torch.file_formats.archives import Pickles, Zip, opened
from deliralike.backends.torch.file_formats.pickles import TYPES, Other, Storage, Tensor
from deliralike.errors import WeightFileError, reason
from deliralike.weights import refuse_expansion

# Where trainers keep the weights: Lightning, PyTorch's tutorials, timm and torchvision, nnU-Net;
# then averaged ones.
_NESTED_UNDER = (
    "state_dict",
    "model_state_dict",
    "model",
    "network_weights",
    "state_dict_ema",
    "model_ema",
    "ema",
)
TOP = "(top level)"  # the place of tensors that stand beside a nested state
_WANTED = "wanted what torch.save(model.state_dict(), path) writes"


def read(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Read the tensors by name, as arrays that own their storage.

    Nothing that the file names is imported or called.

    Returns:
        A state for each usual key of the checkpoint that holds one, by key; ``""`` where the file
        is a plain state.

    Raises:
        WeightFileError: The file is damaged or hostile, or contains something else than tensors by
            name.
    """
    try:
        with opened(path) as archive:
            states = _states(path, archive.value, set())
            tensors = chain.from_iterable(state.values() for state in states.values())
            refuse_expansion(path, sum(tensor.nbytes for tensor in tensors))
            return _arrays(archive, states)
    except WeightFileError:
        raise
    except Exception as error:
        raise WeightFileError(
            f"{path} looks like a PyTorch checkpoint, but the safe loader refuses it: "
            f"{reason(error)}; {_WANTED}"
        ) from error


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write a plain dict of tensors, which ``torch.load(weights_only=True)`` reads."""
    tensors = {}
    for name, array in state.items():
        tensors[name] = torch.from_numpy(np.require(array, requirements=["WRITEABLE"]))
    # given an open file, PyTorch does not write the file's name into it
    with path.open("wb") as file:
        torch.save(tensors, file)


_States = dict[str, dict[str, Tensor]]


def _states(path: Path, loaded: Any, visited: set[int]) -> _States:
    """Return the tensors by name, also out of a checkpoint that holds other objects beside them.

    Args:
        visited: The identities of the dicts on the way here: a hostile file may nest dicts in
            themselves.
    """
    if not isinstance(loaded, dict) or not loaded or id(loaded) in visited:
        raise WeightFileError(
            f"{path} holds {_kind(loaded)} in place of tensors by name; {_WANTED}"
        )
    visited.add(id(loaded))
    nested = [key for key in _NESTED_UNDER if isinstance(loaded.get(key), dict)]
    if not nested:
        return _own_states(path, loaded) or {"": _tensors(path, loaded)}
    states: _States = {}
    problems = []
    for key in nested:
        try:
            inner_states = _states(path, loaded[key], visited)
        except (
            WeightFileError
        ) as error:  # the settings of a model may stand under "model"
            problems.append(error)
            continue
        for inner_key, state in inner_states.items():
            states[f"{key}.{inner_key}".strip(".")] = state
    if not states:
        raise problems[0]
    return states | _other_states(path, loaded, nested)


def _own_states(path: Path, loaded: Mapping[Any, Any]) -> _States:
    """Return the states under a script's own keys; none where there are tensors beside them.

    Scripts save ``{"net": net.state_dict(), "epoch": 3}``.
    """
    for value in loaded.values():
        if _is_tensor(value) and getattr(value, "shape", None) != ():
            return {}
    return _other_states(path, loaded, [])


def _other_states(path: Path, loaded: Mapping[Any, Any], nested: list[str]) -> _States:
    """Return the tensors of a checkpoint that are not under a usual key.

    They may be a part of the network, so none is left out.
    """
    states = {}
    single = {}
    for key, value in loaded.items():
        if key in nested:
            continue
        if isinstance(value, Tensor) and value.shape:
            single[key] = value
        elif isinstance(value, dict) and value and _are_tensors_by_name(value):
            states[str(key)] = _tensors(path, value)
    if single:
        states[TOP] = _tensors(path, single)
    return states


def _are_tensors_by_name(value: Mapping[Any, Any]) -> bool:
    are_named = all(isinstance(name, str) for name in value)
    return are_named and all(isinstance(tensor, Tensor) for tensor in value.values())


def _tensors(path: Path, loaded: Mapping[Any, Any]) -> dict[str, Tensor]:
    problems = []
    for name, value in loaded.items():
        if not isinstance(name, str) or not _is_tensor(value):
            problems.append(f"{name!r} ({_kind(value)})")
    if problems:
        raise WeightFileError(
            f"{path} holds things that are not tensors by name, such as "
            f"{', '.join(problems[:4])}; {_WANTED}"
        )
    for name, value in loaded.items():
        if not isinstance(value, Tensor):
            raise WeightFileError(
                f"{path}: {name!r} is a tensor that NumPy cannot hold ({value.name}); {_WANTED}"
            )
    return dict(loaded)


def _is_tensor(value: Any) -> bool:
    if isinstance(value, Other):
        return value.name.startswith(_KINDS_OF_TENSORS)
    return isinstance(value, Tensor)


_KINDS_OF_TENSORS = ("torch.Tensor", "torch._utils._rebuild")


def _kind(value: Any) -> str:
    if isinstance(value, Other):
        return f"a {value.name}"
    if isinstance(value, dict):
        return "a dict" if value else "an empty dict"
    return f"a {type(value).__name__}"


def _arrays(
    archive: Zip | Pickles, states: _States
) -> dict[str, dict[str, np.ndarray]]:
    """Read the tensors as arrays; each storage is read once, and released before the next."""
    by_storage: dict[Storage, list[tuple[str, str, Tensor]]] = {}
    # filled with None first, for the order of names
    arrays: dict[str, dict[str, Any]] = {}
    for key, state in states.items():
        arrays[key] = dict.fromkeys(state)
        for name, tensor in state.items():
            by_storage.setdefault(tensor.storage, []).append((key, name, tensor))
    for storage, tensors in by_storage.items():
        content = archive.read(storage)
        for key, name, tensor in tensors:
            arrays[key][name] = _array(content, tensor, archive.order)
    return arrays


def _array(content: bytes, tensor: Tensor, order: str) -> np.ndarray:
    dtype = np.dtype(order + TYPES[tensor.kind])
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    offset = tensor.offset * dtype.itemsize if tensor.nbytes else 0
    stored = np.ndarray(tensor.shape, dtype, content, offset, strides)
    if tensor.kind == "bool":
        return np.array(stored != 0)
    if tensor.kind == "bfloat16":  # the upper half of a float32
        return np.array((stored.astype(np.uint32) << 16).view(np.float32))
    return stored.astype(dtype.newbyteorder("="))
