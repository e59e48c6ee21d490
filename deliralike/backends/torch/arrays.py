"""Tensors: to and from NumPy, devices, types, and the settings that decide their precision."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from deliralike.errors import DtypeError, suggestion
from deliralike.nest.containers import register_named_tuple

register_named_tuple(PackedSequence)  # its __new__ wants tensors, and may sort

DTYPES: Mapping[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


def find_dtype(name: str) -> torch.dtype:
    """Return PyTorch's type of a name.

    Raises:
        DtypeError: There is no type of that name.
    """
    if name not in DTYPES:
        raise DtypeError(
            f"backend 'torch' has no type {name!r}. {suggestion(name, DTYPES)}"
        )
    return DTYPES[name]


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type: ``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def refuse_host_array(value: Any, where: str) -> None:
    """Refuse an array of NumPy in the place of a tensor.

    Raises:
        DtypeError: It is one.
    """
    if isinstance(value, np.ndarray):
        raise DtypeError(
            f"{where}: got an array of NumPy, wanted a tensor: "
            "network.backend.prepare((x,), network) makes one of the network's type and device, "
            "and deliralike.training.predict(network, x) takes arrays"
        )


def tensor(value: Any, dtype: str | None = None, device: Any = None) -> torch.Tensor:
    """Return a tensor of a value, in a type and on a device; it never aliases a NumPy array.

    A copy to a GPU goes on beside what the GPU computes, and nobody waits for it on the host.
    """
    if not isinstance(value, torch.Tensor):
        value = torch.from_numpy(np.array(value, order="C"))
    home = value.device if device is None else _device(device)
    wanted = value.dtype if dtype is None else find_dtype(dtype)
    if value.device == home and value.dtype == wanted:
        return value
    if home.type == "cuda" and value.is_cpu and not value.requires_grad:
        return _copied_ahead(value.to(dtype=wanted), home)
    return value.to(device=home, dtype=wanted)


def _copied_ahead(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Begin to copy a tensor to a GPU; what is computed there from now on waits for the copy."""
    stream, current = _copy_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(stream):
        copy = value.pin_memory().to(device, non_blocking=True)
    current.wait_stream(stream)
    copy.record_stream(
        current
    )  # its memory is not taken again before `current` has used it
    return copy


@cache
def _copy_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)


def numpy(array: torch.Tensor) -> np.ndarray:
    """Return a NumPy array that owns its storage; bfloat16, which NumPy lacks, becomes float32.

    For a ``DTensor`` it is the whole array, and every process must make the call. A sparse tensor
    becomes dense, a nested one is padded with zeros.
    """
    array = array.detach()
    if array.is_nested:
        array = torch.nested.to_padded_tensor(array, 0.0)
    elif array.layout != torch.strided:
        array = array.to_dense()
    if is_distributed(array):
        array = array.full_tensor()
    if array.dtype == torch.bfloat16:
        array = array.float()
    return np.array(array.cpu().numpy())


def numbers(values: Sequence[Any]) -> list[float]:
    """Return scalars as numbers; those of one accelerator in one transfer."""
    if any(map(_is_accelerated, values)):
        kinds = {
            (each.device, each.dtype) if isinstance(each, torch.Tensor) else None
            for each in values
        }
        if len(kinds) == 1:
            return torch.stack([each.reshape(()) for each in values]).tolist()
    return list(map(_number, values))


def _number(value: Any) -> float:
    if is_distributed(value):
        value = numpy(value)
    return float(value)


def _is_accelerated(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and not value.is_cpu
        and not is_distributed(value)
    )


def takes_gradient(value: Any) -> bool:
    """Return whether a value is a tensor that gradients are taken for."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def is_distributed(value: Any) -> bool:
    """Return whether a tensor is a ``DTensor``, without the slow import of its package."""
    return hasattr(value, "full_tensor")


def like(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type and on the device of another one.

    Where the other one is a ``DTensor`` the result is one too, with the same placements.
    """
    value = value.to(other.device, other.dtype)
    if not is_distributed(other):
        return value
    distributed: Any = other
    whole = type(distributed).from_local(
        value, distributed.device_mesh, run_check=False
    )
    return whole.redistribute(placements=distributed.placements)


def split(
    array: torch.Tensor, sizes: Sequence[int], dim: int, devices: Sequence[Any]
) -> list[torch.Tensor]:
    """Split a tensor into views, one on each device; each may be changed in place."""
    pieces = list(_pieces(array, sizes, dim))
    if _all_at_home(tuple(devices[: len(sizes)]), array.device):
        return pieces
    return [
        to_device(piece, device) for piece, device in zip(pieces, devices, strict=False)
    ]


def _pieces(
    value: torch.Tensor, sizes: Sequence[int], dim: int
) -> Sequence[torch.Tensor]:
    """Return views of some sizes, each with a version of its own.

    What one replica changes in place is then no change of what another one keeps for backward. A
    tensor in a graph has one version with its views.
    """
    if len(sizes) == 1:
        return [value]
    if not value.requires_grad:
        return value.unsafe_split_with_sizes(sizes, dim)
    # Views that are several outputs of one function may not be changed in place.
    return value.tensor_split(tuple(accumulate(sizes[:-1])), dim)


def concatenate(
    values: Sequence[torch.Tensor], dim: int, device: Any = None
) -> torch.Tensor:
    """Concatenate tensors on a device; a single tensor is returned as it is."""
    values = _on_one_device(values, device)
    return values[0] if len(values) == 1 else torch.cat(values, dim)


def concatenate_all(
    columns: Sequence[Sequence[torch.Tensor]], dim: int, device: Any = None
) -> list[torch.Tensor]:
    """Concatenate each column; where all tensors are on the device, without a check of each."""
    target = None if device is None else _device(device)
    if columns and len(columns[0]) > 1 and target in (None, columns[0][0].device):
        with suppress(
            RuntimeError
        ):  # they are on several devices, or do not fit: raised below
            joined = list(map(torch.cat, columns, repeat(dim)))
            if target is None or {*map(_DEVICE, joined)} == {target}:
                return joined
    return [concatenate(column, dim, device) for column in columns]


def stack(values: Sequence[torch.Tensor], device: Any = None) -> torch.Tensor:
    """Stack tensors along a new first axis."""
    return torch.stack(_on_one_device(values, device))


def add(
    total: torch.Tensor | None, addition: torch.Tensor, device: str
) -> torch.Tensor:
    """Return a sum on a device, in the storage of the total where that can be."""
    if total is None:
        return addition.to(device, copy=True)
    addition = to_device(addition, device)
    if total.is_sparse and not addition.is_sparse:
        return addition + total  # a dense one cannot be added to a sparse one in place
    return total.add_(addition)


def to_device(value: torch.Tensor, device: Any) -> torch.Tensor:
    """Return a tensor on a device: itself where it is there, else a copy.

    A copy from pinned memory to a GPU does not wait.
    """
    target = _device(device)
    if value.device == target:
        return value
    return value.to(target, non_blocking=target.type == "cuda" and value.is_pinned())


def _on_one_device(
    values: Sequence[torch.Tensor], device: Any
) -> Sequence[torch.Tensor]:
    target = values[0].device if device is None else _device(device)
    for value in values:
        if value.device != target:
            return [to_device(value, target) for value in values]
    return values


_device = cache(torch.device)
name_of_device = cache(str)
_DEVICE = attrgetter("device")


@lru_cache
def _all_at_home(devices: tuple[Any, ...], home: torch.device) -> bool:
    return all(_device(device) == home for device in devices)


def devices() -> list[str]:
    """Return ``"cpu"``, then the names of all GPUs."""
    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]


def precision() -> dict[str, str]:
    """Return the settings that decide the precision of float32 results."""
    return {
        "float64": "on",
        "TF32 products": "on" if torch.backends.cuda.matmul.allow_tf32 else "off",
        "TF32 convolutions": "on" if torch.backends.cudnn.allow_tf32 else "off",
        "float32 products": torch.get_float32_matmul_precision(),
    }


def autocast() -> str | None:
    """Return ``"on"`` where ``torch.autocast`` is, on CPUs or GPUs; None elsewhere."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return "on"
    return None
