"""Mixed precision on PyTorch by ``torch.autocast``.

Sums, exponentials and losses of `nn` are computed in float32, on CPUs too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from deliralike import nest
from deliralike.backends.torch import arrays
from deliralike.backends.torch.functional import TorchFunctions
from deliralike.context import context_value
from deliralike.nn.arguments import EXACT, autocast
from deliralike.nn.geometry import per_axis

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
        if func is torch.lstm and self._shortens(args[0], torch.float16):
            args = nest.map_where(_is_short, torch.Tensor.float, args)
            with torch.autocast("cpu", enabled=False):
                result = func(*args, **kwargs)
            return tuple(tensor.to(self.dtype) for tensor in result)
        if func in _CONVOLUTIONS:
            given = dict(zip(_CONVOLUTIONS[func], args, strict=False)) | kwargs
            both = (given["input"], given["weight"])
            is_short = all(self._shortens(each, torch.bfloat16) for each in both)
            if is_short and _may_be_wrong(given, func in _TRANSPOSED):
                for name in ("input", "weight", "bias"):
                    if given.get(name) is not None:
                        given[name] = given[name].float()
                with torch.autocast("cpu", enabled=False):
                    return func(**given).to(self.dtype)
        return func(*args, **kwargs)

    def _shortens(self, x: torch.Tensor, dtype: torch.dtype) -> bool:
        """Return whether this is the type in force, and an array on a CPU is cast to it."""
        is_cast = x.dtype == torch.float32 or x.dtype in _HALF_TYPES
        return self.dtype == dtype and x.is_cpu and is_cast


def _may_be_wrong(given: Mapping[str, Any], is_transposed: bool) -> bool:
    """Return whether oneDNN may compute a convolution wrongly in bfloat16."""
    x, weight = given["input"], given["weight"]
    axes = weight.dim() - 2
    groups = given.get("groups", 1)
    channels, outputs = x.shape[-axes - 1], weight.shape[0]
    if is_transposed:
        outputs = weight.shape[1] * groups
    if 1 < groups == channels < outputs:
        return True
    dilation = per_axis(given.get("dilation", 1), axes, "dilation")
    stride = per_axis(given.get("stride", 1), axes, "stride")
    padding = given.get("padding", 0)
    is_named = isinstance(padding, str)
    pads = per_axis(0 if is_named else padding, axes, "padding")
    for size, width, gap, step, pad in zip(
        x.shape[-axes:], weight.shape[2:], dilation, stride, pads, strict=True
    ):
        reach = gap * (width - 1)
        padded = reach if is_named else 2 * pad
        if reach + padded + step > size:
            return True
    return False


def _is_short(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _HALF_TYPES


_TRANSPOSED = (
    torch.conv_transpose1d,
    torch.conv_transpose2d,
    torch.conv_transpose3d,
)
_FIRST = ("input", "weight", "bias", "stride", "padding")
# the arguments of each convolution, in their order
_CONVOLUTIONS = {
    torch.conv1d: (*_FIRST, "dilation", "groups"),
    torch.conv2d: (*_FIRST, "dilation", "groups"),
    torch.conv3d: (*_FIRST, "dilation", "groups"),
    **dict.fromkeys(_TRANSPOSED, (*_FIRST, "output_padding", "groups", "dilation")),
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
