"""Mixed precision on PyTorch by ``torch.autocast``.

Sums, exponentials and losses of `nn` are computed in float32, on CPUs too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from deliralike.backends.torch import arrays
from deliralike.backends.torch.functional import TorchFunctions
from deliralike.context import context_value
from deliralike.nn.arguments import EXACT, autocast

_HALF_TYPES = (torch.bfloat16, torch.float16)
_is_guarded: ContextVar[bool] = ContextVar("deliralike_torch_guarded", default=False)
_KERNELS = ("lstm", "gru")  # autocast has rules for these kernels


@contextmanager
def computing_in(precision: str, device: str | None = None) -> Iterator[None]:
    """Enable autocast to a type on a device; on every kind that is present if none is named."""
    dtype = arrays.find_dtype(precision)
    kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    if device is not None:
        kinds = [torch.device(device).type]
    with ExitStack() as contexts:
        for kind in kinds:
            contexts.enter_context(torch.autocast(kind, dtype=dtype))
        if "cpu" in kinds:
            contexts.enter_context(_Float32WhereShortIsWrong(dtype))
            contexts.enter_context(context_value(_is_guarded, True))
        yield


def guard_again() -> AbstractContextManager[Any]:
    """Return a context for a second pass or another thread: what this one does in float32."""
    if _is_guarded.get():
        return _Float32WhereShortIsWrong(torch.get_autocast_dtype("cpu"))
    return nullcontext()


class _Float32WhereShortIsWrong(TorchFunctionMode):
    """Compute in float32 what a CPU does wrong in a shorter type, for native layers too.

    In bfloat16 some of oneDNN's convolutions give what was in memory before: gradients of a filter
    that reaches over its data, and outputs of several filters for each channel alone. In float16
    it has no LSTM (PyTorch 2.13).
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if _WRONG_ON_CPUS.get(func) != self.dtype:
            return func(*args, **kwargs)
        x = args[0] if args else kwargs["input"]
        if not x.is_cpu or x.dtype not in (torch.float32, *_HALF_TYPES):
            return func(*args, **kwargs)
        wide_args = [_widened(value) for value in args]
        wide_kwargs = {name: _widened(value) for name, value in kwargs.items()}
        with torch.autocast("cpu", enabled=False):
            result = func(*wide_args, **wide_kwargs)
        if isinstance(result, tuple):
            return tuple(tensor.to(self.dtype) for tensor in result)
        return result.to(self.dtype)


def _widened(value: Any) -> Any:
    """Return short tensors in float32, in lists and tuples too; anything else as it is."""
    if isinstance(value, list | tuple):
        return type(value)([_widened(each) for each in value])
    if isinstance(value, torch.Tensor) and value.dtype in _HALF_TYPES:
        return value.float()
    return value


_CONVOLUTIONS = (
    torch.conv1d,
    torch.conv2d,
    torch.conv3d,
    torch.conv_transpose1d,
    torch.conv_transpose2d,
    torch.conv_transpose3d,
)
_WRONG_ON_CPUS = {
    torch.lstm: torch.float16,
    **dict.fromkeys(_CONVOLUTIONS, torch.bfloat16),
}


def all_finite(values: Sequence[torch.Tensor]) -> bool:
    """Return whether no tensor holds a NaN or an infinity; waits for the device once."""
    if not values:
        return True
    checks = []
    for value in values:
        dense = value.coalesce().values() if value.is_sparse else value
        checks.append(dense.isfinite().all())
    return bool(torch.stack(checks).all())


def _cast(value: Any, dtype: str) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in _HALF_TYPES:
        return value.to(arrays.find_dtype(dtype))
    return value


for _name in EXACT:
    if _name not in _KERNELS:
        _function = getattr(TorchFunctions, _name)
        setattr(
            TorchFunctions,
            _name,
            autocast(_function, arrays.autocast, _cast, dtype="float32"),
        )
