"""PyTorch's own weight files, read without a loader that runs anything, and written so that PyTorch
reads them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deliralike.backends.torch.file_formats.archives import Archive, opened
from deliralike.backends.torch.file_formats.pickles import TYPES, Other, Storage, Tensor
from deliralike.errors import WeightFileError
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
    """The tensors by name, as arrays that own their storage; nothing that the file names is
    imported or called.

    Returns:
        A state for each usual key of the checkpoint that holds one, by key; ``""`` where the file
        is a plain state.

    Raises:
        WeightFileError: The file is damaged or hostile, or there is something else than tensors by
            name in it.
    """
    try:
        with opened(path) as archive:
            states = _states(path, archive.value, set())
            refuse_expansion(
                path, sum(tensor.nbytes for state in states.values() for tensor in state.values())
            )
            return _arrays(archive, states)
    except WeightFileError:
        raise
    except Exception as error:
        raise WeightFileError(
            f"{path} looks like a PyTorch checkpoint, but the safe loader refuses it: "
            f"{str(error)[:300] or type(error).__name__}; {_WANTED}"
        ) from error


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write a plain dict of tensors, which ``torch.load(weights_only=True)`` reads."""
    tensors = {
        name: torch.from_numpy(array if array.flags.writeable else array.copy())
        for name, array in state.items()
    }
    with path.open(
        "wb"
    ) as file:  # given an open file, PyTorch does not write the file's name into it
        torch.save(tensors, file)


_States = dict[str, dict[str, Tensor]]


def _states(path: Path, loaded: Any, seen: set[int]) -> _States:
    """The tensors by name, also out of a checkpoint that holds them beside other things.

    Args:
        seen: The dicts that were looked at, by identity: a hostile file may nest them in
            themselves.
    """
    if not isinstance(loaded, dict) or not loaded or id(loaded) in seen:
        raise WeightFileError(
            f"{path} holds {_kind(loaded)} in place of tensors by name; {_WANTED}"
        )
    seen.add(id(loaded))
    nested = [key for key in _NESTED_UNDER if isinstance(loaded.get(key), dict)]
    if not nested:
        return {"": _tensors(path, loaded)}
    found: _States = {}
    problems = []
    for key in nested:
        try:
            found |= {
                f"{key}.{inner}".strip("."): state
                for inner, state in _states(path, loaded[key], seen).items()
            }
        except WeightFileError as error:  # the settings of a model may stand under "model"
            problems.append(error)
    if not found:
        raise problems[0]
    return found | _beside(path, loaded, nested)


def _beside(path: Path, loaded: Mapping[Any, Any], nested: list[str]) -> _States:
    """What else holds tensors by name in a checkpoint, which may be a part of the network: nothing
    is left out.
    """
    others = {key: value for key, value in loaded.items() if key not in nested}
    found = {}
    for key, value in others.items():
        if (
            isinstance(value, dict)
            and value
            and all(isinstance(each, Tensor) for each in value.values())
        ):
            found[str(key)] = _tensors(path, value)
    single = {
        key: value for key, value in others.items() if isinstance(value, Tensor) and value.shape
    }
    return found | ({TOP: _tensors(path, single)} if single else {})


def _tensors(path: Path, loaded: Mapping[Any, Any]) -> dict[str, Tensor]:
    strange = {
        name: value
        for name, value in loaded.items()
        if not (isinstance(name, str) and _is_tensor(value))
    }
    if strange:
        shown = ", ".join(f"{name!r} ({_kind(value)})" for name, value in list(strange.items())[:4])
        raise WeightFileError(
            f"{path} holds things that are not tensors by name, such as {shown}; {_WANTED}"
        )
    for name, value in loaded.items():
        if not isinstance(value, Tensor):
            raise WeightFileError(
                f"{path}: {name!r} is a tensor that NumPy cannot hold ({value.name}); {_WANTED}"
            )
    return dict(loaded)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (
        isinstance(value, Other) and value.name.startswith(_KINDS_OF_TENSORS)
    )


_KINDS_OF_TENSORS = ("torch.Tensor", "torch._utils._rebuild")


def _kind(value: Any) -> str:
    if isinstance(value, Other):
        return f"a {value.name}"
    return "an empty dict" if isinstance(value, dict) and not value else f"a {type(value).__name__}"


def _arrays(archive: Archive, states: _States) -> dict[str, dict[str, np.ndarray]]:
    """The tensors as arrays; each storage is read once, and let go before the next."""
    by_storage: dict[Storage, list[tuple[str, str, Tensor]]] = {}
    for key, state in states.items():
        for name, tensor in state.items():
            by_storage.setdefault(tensor.storage, []).append((key, name, tensor))
    found: dict[str, dict[str, np.ndarray]] = {key: {} for key in states}
    for storage, tensors in by_storage.items():
        content = archive.read(storage)
        for key, name, tensor in tensors:
            found[key][name] = _array(content, tensor, archive.order)
    return {key: {name: found[key][name] for name in state} for key, state in states.items()}


def _array(content: bytes, tensor: Tensor, order: str) -> np.ndarray:
    dtype = np.dtype(TYPES[tensor.kind]).newbyteorder(order)
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    offset = tensor.offset * dtype.itemsize if tensor.nbytes else 0
    stored = np.ndarray(tensor.shape, dtype, content, offset, strides)
    if tensor.kind == "bool":
        return np.array(stored != 0)
    if tensor.kind == "bfloat16":  # the upper half of a float32
        return np.array((stored.astype(np.uint32) << 16).view(np.float32))
    return stored.astype(dtype.newbyteorder("="))
