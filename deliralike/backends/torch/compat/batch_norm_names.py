"""The names of the package Synchronized-BatchNorm-PyTorch that are not those of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    """The module with PyTorch's batch norms replaced by synchronised ones, in place; for a batch
    norm another one.

    A ``torch.nn.DataParallel`` becomes a `DataParallelWithCallback` of the converted module over
    the same devices. Classes derived from PyTorch's batch norms are left alone.

    Better than the original: parameters, buffers and hooks stay the same objects, so an optimizer
    made before goes on; a layer that stands in two places still does.

    Example:
        >>> model = convert_model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
        >>> type(model[1]).__name__
        'SynchronizedBatchNorm1d'
    """
    if isinstance(module, torch.nn.DataParallel):
        output, dim = (
            getattr(module, "output_device", None),
            getattr(module, "dim", 0),
        )  # without GPUs it has neither
        return DataParallelWithCallback(
            convert_model(module.module), module.device_ids or None, output, dim
        )
    converted = {each: _converted(each) for each in module.modules() if type(each) in _SYNCHRONISED}
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            parent._modules[name] = converted.get(child, child)  # type: ignore[arg-type]
    return converted.get(module, module)


@contextmanager
def patch_sync_batchnorm() -> Iterator[None]:
    """For a ``with`` block, ``torch.nn.BatchNorm1d``, ``2d`` and ``3d`` are the synchronised ones,
    in all threads.

    Example:
        >>> with patch_sync_batchnorm():
        ...     layer = torch.nn.BatchNorm2d(3)
        >>> type(layer).__name__, torch.nn.BatchNorm2d.__name__
        ('SynchronizedBatchNorm2d', 'BatchNorm2d')
    """
    names = {original.__name__: getattr(torch.nn, original.__name__) for original in _SYNCHRONISED}
    try:
        for original, synchronised in _SYNCHRONISED.items():
            setattr(torch.nn, original.__name__, synchronised)
        yield
    finally:
        for name, before in names.items():
            setattr(torch.nn, name, before)


def _converted(layer: torch.nn.Module) -> torch.nn.Module:
    kind = _SYNCHRONISED[type(layer)]
    made = object.__new__(kind)
    vars(made).update(vars(layer))
    return made
