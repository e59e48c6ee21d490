"""Mixed precision on PyTorch: ``torch.autocast``, and sums, exponentials and losses of `nn` in
float32 on CPUs too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from deliralike.backends.torch import arrays
from deliralike.backends.torch.functional import TorchFunctions
from deliralike.optim.precision import EXACT, autocast

_SHORT = (torch.bfloat16, torch.float16)
_KERNELS = ("lstm", "gru")  # autocast knows these as a whole


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Let PyTorch cast, on every kind of device that there is."""
    with ExitStack() as contexts:
        for kind in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            contexts.enter_context(torch.autocast(kind, dtype=arrays.dtype(precision)))
        yield


def all_finite(values: Sequence[torch.Tensor]) -> bool:
    """Whether no tensor holds a NaN or an infinity; waits for the device once."""
    dense = [value.coalesce().values() if value.is_sparse else value for value in values]
    return bool(torch.stack([value.isfinite().all() for value in dense]).all()) if dense else True


def _current() -> str | None:
    return "on" if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda") else None


def _cast(value: Any, dtype: str) -> Any:
    return (
        value.to(arrays.dtype(dtype))
        if isinstance(value, torch.Tensor) and value.dtype in _SHORT
        else value
    )


for _name in (name for name in EXACT if name not in _KERNELS):
    setattr(
        TorchFunctions,
        _name,
        autocast(getattr(TorchFunctions, _name), _current, _cast, dtype="float32"),
    )
