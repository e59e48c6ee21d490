"""Mixed precision on PyTorch by ``torch.autocast``.

Sums, exponentials and losses of `nn` are computed in float32, on CPUs too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from deliralike.backends.torch import arrays
from deliralike.backends.torch.functional import TorchFunctions
from deliralike.nn.arguments import EXACT, autocast

_HALF_TYPES = (torch.bfloat16, torch.float16)
_KERNELS = ("lstm", "gru")  # autocast has rules for these kernels


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Enable autocast to a type on every kind of device that is present."""
    kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    with ExitStack() as contexts:
        for kind in kinds:
            contexts.enter_context(
                torch.autocast(kind, dtype=arrays.find_dtype(precision))
            )
        yield


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
