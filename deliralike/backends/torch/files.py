"""PyTorch's own weight files, read with the safe loader only, and written so that it reads them."""

import argparse
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deliralike.backends.torch import arrays
from deliralike.errors import WeightFileError
from deliralike.weights import refuse_expansion

# Where trainers keep the weights: Lightning, PyTorch's tutorials, timm and torchvision, nnU-Net; then averaged ones.
_NESTED_UNDER = ("state_dict", "model_state_dict", "model", "network_weights",
                 "state_dict_ema", "model_ema", "ema")  # fmt: skip
# What checkpoints hold beside the weights; making one of these runs nothing.
_HARMLESS = [argparse.Namespace, np.dtype, np._core.multiarray.scalar, *(type(np.dtype(k)) for k in "?bhilqBHILQefd")]
_ADVICE = ("Weights only load failed", "(1)", "(2)", "Check the documentation")  # to read the file unsafely
_WANTED = "wanted what torch.save(model.state_dict(), path) writes"


def read(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """The tensors by name, as arrays that own their storage; no code of the file is run.

    Returns:
        A state for each usual key of the checkpoint that holds one, by key; ``""`` where the file is a plain state.

    Raises:
        WeightFileError: The safe loader refuses the file, or there is something else than tensors by name in it.
    """
    states = _states(path, _load(path))
    tensors = [tensor for state in states.values() for tensor in state.values()]
    refuse_expansion(path, sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    return {key: {name: _array(path, name, tensor) for name, tensor in state.items()} for key, state in states.items()}


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write a plain dict of tensors, which ``torch.load(weights_only=True)`` reads."""
    tensors = {
        name: torch.from_numpy(array if array.flags.writeable else array.copy()) for name, array in state.items()
    }
    with path.open("wb") as file:  # given an open file, PyTorch does not write the file's name into it
        torch.save(tensors, file)


def _load(path: Path) -> Any:
    with warnings.catch_warnings(), torch.serialization.safe_globals(_HARMLESS):
        warnings.simplefilter("ignore")  # about old storages: the file's age is not the user's fault
        try:
            if _mappable(path):
                return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            with path.open("rb") as file:
                return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001 - a hostile file may make the loader fail in any way
            raise WeightFileError(
                f"{path} looks like a PyTorch checkpoint, but the safe loader refuses it: {_reason(error)}; {_WANTED}"
            ) from None


def _mappable(path: Path) -> bool:
    """Whether the tensors lie in the file as they are; and under ``.safetensors`` PyTorch would go by the suffix."""
    if path.suffix == ".safetensors" or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


def _reason(error: Exception) -> str:
    """What is wrong with the file, without PyTorch's advice to read it unsafely."""
    lines = [line.strip() for line in str(error).replace("WeightsUnpickler error:", "\n").splitlines()]
    useful = [line.split(". ")[0] for line in lines if line and not line.startswith(_ADVICE)]
    return useful[0][:200] if useful else type(error).__name__


def _states(path: Path, loaded: Any) -> dict[str, dict[str, torch.Tensor]]:
    """The tensors by name, also out of a checkpoint that holds them beside other things."""
    if not isinstance(loaded, Mapping) or not loaded:
        raise WeightFileError(f"{path} holds {_kind(loaded)} in place of tensors by name; {_WANTED}")
    nested = [key for key in _NESTED_UNDER if isinstance(loaded.get(key), Mapping)]
    if not nested:
        return {"": _tensors(path, loaded)}
    found: dict[str, dict[str, torch.Tensor]] = {}
    problems = []
    for key in nested:
        try:
            found |= {f"{key}.{inner}".strip("."): state for inner, state in _states(path, loaded[key]).items()}
        except WeightFileError as error:  # the settings of a model may stand under "model"
            problems.append(error)
    if not found:
        raise problems[0]
    return found


def _tensors(path: Path, loaded: Mapping[Any, Any]) -> dict[str, torch.Tensor]:
    strange = {name: value for name, value in loaded.items() if not (isinstance(name, str) and torch.is_tensor(value))}
    if strange:
        shown = ", ".join(f"{name!r} ({_kind(value)})" for name, value in list(strange.items())[:4])
        raise WeightFileError(f"{path} holds things that are not tensors by name, such as {shown}; {_WANTED}")
    return dict(loaded)


def _kind(value: Any) -> str:
    return "an empty dict" if isinstance(value, Mapping) and not value else f"a {type(value).__name__}"


def _array(path: Path, name: str, tensor: torch.Tensor) -> np.ndarray:
    try:
        return arrays.numpy(tensor)
    except (TypeError, RuntimeError) as error:
        raise WeightFileError(f"{path}: {name!r} is a tensor that NumPy cannot hold ({error}); {_WANTED}") from None
