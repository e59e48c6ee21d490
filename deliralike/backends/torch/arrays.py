"""Tensors: to and from NumPy, devices, types, and the settings that decide their precision."""

from typing import Any

import numpy as np
import torch

from deliralike.errors import DtypeError, suggestion

DTYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
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
        value = torch.from_numpy(np.array(value, order="C"))  # a copy: tensors never alias the caller's array
        return value.to(device=device, dtype=None if name is None else dtype(name))
    return value.to(device=device, dtype=None if name is None else dtype(name))


def numpy(value: torch.Tensor) -> np.ndarray:
    """A NumPy array that owns its storage; bfloat16, which NumPy lacks, becomes float32."""
    value = value.detach()
    value = value.float() if value.dtype == torch.bfloat16 else value
    return np.array(value.cpu().numpy())


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
