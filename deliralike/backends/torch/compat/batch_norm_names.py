"""The functions of the package Synchronized-BatchNorm-PyTorch, by their names there.

Only this backend has this file, as the package is one for PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from deliralike.backends.torch.compat.data_parallel import (
    ReplicationCallbackDataParallel,
    exec_data_parallel_replication_callback,
)
from deliralike.backends.torch.replicas.batch_norm import (
    SynchronizedBatchNorm1d,
    SynchronizedBatchNorm2d,
    SynchronizedBatchNorm3d,
)

DataParallelWithCallback = ReplicationCallbackDataParallel
execute_replication_callbacks = exec_data_parallel_replication_callback

_SYNCHRONISED: dict[type, type] = {
    torch.nn.BatchNorm1d: SynchronizedBatchNorm1d,
    torch.nn.BatchNorm2d: SynchronizedBatchNorm2d,
    torch.nn.BatchNorm3d: SynchronizedBatchNorm3d,
}


def convert_model(module: torch.nn.Module) -> torch.nn.Module:
    """Replace PyTorch's batch norms in a module by synchronised ones, in place; return the module.

    A batch norm itself is not changed: its synchronised counterpart is returned. For a
    ``torch.nn.DataParallel`` the result is a `DataParallelWithCallback` of the converted module
    over the same devices. Subclasses of PyTorch's batch norms are left alone.

    Better than the original: parameters, buffers and hooks stay the same objects, so an existing
    optimizer remains valid; a layer that occurs twice still does.

    Example:
        >>> layers = torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)
        >>> type(convert_model(torch.nn.Sequential(*layers))[1]).__name__
        'SynchronizedBatchNorm1d'
    """
    if isinstance(module, torch.nn.DataParallel):
        # without GPUs PyTorch's DataParallel has neither of the two
        output_device = getattr(module, "output_device", None)
        dim = getattr(module, "dim", 0)
        inner = convert_model(module.module)
        return DataParallelWithCallback(
            inner, module.device_ids or None, output_device, dim
        )
    counterparts: dict[Any, torch.nn.Module] = {}
    for layer in module.modules():
        if type(layer) in _SYNCHRONISED:
            counterparts[layer] = _synchronised(layer)
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            parent._modules[name] = counterparts.get(child, child)
    return counterparts.get(module, module)


@contextmanager
def patch_sync_batchnorm() -> Iterator[None]:
    """Replace ``torch.nn.BatchNorm1d``, ``2d`` and ``3d`` by the synchronised ones.

    The replacement holds in all threads, until the end of the ``with`` block.

    Example:
        >>> with patch_sync_batchnorm():
        ...     layer = torch.nn.BatchNorm2d(3)
        >>> type(layer).__name__, torch.nn.BatchNorm2d.__name__
        ('SynchronizedBatchNorm2d', 'BatchNorm2d')
    """
    replacements = {original.__name__: kind for original, kind in _SYNCHRONISED.items()}
    former = {name: getattr(torch.nn, name) for name in replacements}
    try:
        for name, kind in replacements.items():
            setattr(torch.nn, name, kind)
        yield
    finally:
        for name, kind in former.items():
            setattr(torch.nn, name, kind)


def _synchronised(layer: torch.nn.Module) -> torch.nn.Module:
    """Return a synchronised layer that shares all attributes of a batch norm."""
    counterpart: torch.nn.Module = object.__new__(_SYNCHRONISED[type(layer)])
    vars(counterpart).update(vars(layer))
    return counterpart
