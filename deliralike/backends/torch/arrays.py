"""Tensors: to and from NumPy, devices, types, and the settings that decide their precision."""

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from deliralike.errors import DtypeError, suggestion

DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    )
}


def dtype(name: str) -> torch.dtype:
    """The torch type of a name."""
    if name not in DTYPES:
        raise DtypeError(f"backend 'torch' has no type {name!r}. {suggestion(name, DTYPES)}")
    return DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a torch type: ``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def tensor(value: Any, name: str | None = None, device: Any = None) -> torch.Tensor:
    """A tensor that owns its storage."""
    if not isinstance(value, torch.Tensor):
        value = torch.from_numpy(
            np.array(value, order="C")
        )  # a copy: tensors never alias the caller's array
        return value.to(device=device, dtype=None if name is None else dtype(name))
    return value.to(device=device, dtype=None if name is None else dtype(name))


def numpy(value: torch.Tensor) -> np.ndarray:
    """A NumPy array that owns its storage; bfloat16, which NumPy lacks, becomes float32.

    Of a tensor that is spread over processes it is the whole, and every process makes the call.
    """
    value = value.detach()
    value = value.full_tensor() if is_spread(value) else value
    value = value.float() if value.dtype == torch.bfloat16 else value
    return np.array(value.cpu().numpy())


def is_spread(value: torch.Tensor) -> bool:
    """Whether it is a ``DTensor``, whose package takes long to import."""
    return hasattr(value, "full_tensor")


def like(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A tensor in the type and on the device of another; this process's part of it where the other
    one is spread.
    """
    value = value.to(other.device, other.dtype)
    if not is_spread(other):
        return value
    spread: Any = other
    whole = type(spread).from_local(value, spread.device_mesh, run_check=False)
    return whole.redistribute(placements=spread.placements)


def split(
    value: torch.Tensor, sizes: Sequence[int], dim: int, devices: Sequence[Any]
) -> Sequence[torch.Tensor]:
    """Pieces of a tensor; each is a view of its own, which may be changed in place."""
    # Not torch.split: its views are several outputs of one function, which autograd lets no one
    # change in place.
    cuts, stays = _plan(sizes, devices, value.device)
    pieces = value.tensor_split(cuts, dim) if cuts else (value,)
    return (
        pieces
        if stays
        else [moved(piece, device) for piece, device in zip(pieces, devices, strict=False)]
    )


def concatenate(values: Sequence[torch.Tensor], dim: int, device: Any = None) -> torch.Tensor:
    """Tensors one after another; one tensor alone as it is."""
    values = _together(values, device)
    return values[0] if len(values) == 1 else torch.cat(values, dim)


def concatenate_all(
    columns: Sequence[Sequence[torch.Tensor]], dim: int, device: Any = None
) -> list[torch.Tensor]:
    """`concatenate` of each column; where all tensors are at home, one call each."""
    home = device if device is None else _device(device)
    places = {value.device for column in columns for value in column}
    if (
        len(places) > 1
        or (home is not None and places != {home})
        or not columns
        or len(columns[0]) == 1
    ):
        return [concatenate(column, dim, device) for column in columns]
    return [torch.cat(column, dim) for column in columns]


def stack(values: Sequence[torch.Tensor], device: Any = None) -> torch.Tensor:
    """Tensors along a new first axis."""
    return torch.stack(_together(values, device))


def moved(value: torch.Tensor, device: Any) -> torch.Tensor:
    """A tensor on a device; itself where it is there, and without waiting where it comes from
    pinned memory.
    """
    place = _device(device)
    return (
        value
        if value.device == place
        else value.to(place, non_blocking=place.type == "cuda" and value.is_pinned())
    )


def _together(values: Sequence[torch.Tensor], device: Any) -> Sequence[torch.Tensor]:
    place = values[0].device if device is None else _device(device)
    for value in values:
        if value.device != place:
            return [moved(value, place) for value in values]
    return values


_device = cache(torch.device)


@lru_cache
def _plan(
    sizes: tuple[int, ...], devices: tuple[Any, ...], place: torch.device
) -> tuple[tuple[int, ...], bool]:
    """Where to cut, and whether all pieces stay where the tensor is."""
    return tuple(accumulate(sizes[:-1])), all(
        _device(device) == place for device in devices[: len(sizes)]
    )


def devices() -> list[str]:
    """``"cpu"``, then every accelerator present."""
    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]


def precision() -> dict[str, str]:
    """What decides the precision of float32 results."""
    return {
        "float64": "on",
        "TF32 products": "on" if torch.backends.cuda.matmul.allow_tf32 else "off",
        "TF32 convolutions": "on" if torch.backends.cudnn.allow_tf32 else "off",
        "float32 products": torch.get_float32_matmul_precision(),
    }
