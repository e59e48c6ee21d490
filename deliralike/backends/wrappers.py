"""Recognise networks that only wrap another one: over devices, processes, or by a user's class."""

from __future__ import annotations

from typing import Any, TypeVar

from deliralike import backends
from deliralike.errors import ArgumentError, UnknownName

Class = TypeVar("Class", bound=type)

_registered: list[type] = []


def register_model_wrapper(wrapper: Class) -> Class:
    """Register a class as a wrapper of networks and return it; usable as a decorator.

    Raises:
        ArgumentError: The argument is no class.

    Example:
        >>> import torch
        >>> @register_model_wrapper
        ... class Logged(torch.nn.Module):
        ...     def __init__(self, module):
        ...         super().__init__()
        ...         self.module = module
        >>> is_model_wrapper(Logged(torch.nn.Linear(3, 2)))
        True
    """
    if not isinstance(wrapper, type):
        raise ArgumentError(f"register_model_wrapper wants a class, not {wrapper!r}")
    if wrapper not in _registered:
        _registered.append(wrapper)
    return wrapper


def is_model_wrapper(network: Any) -> bool:
    """Return whether a network is replicated, distributed, sharded, or of a registered class.

    A network that holds such networks and no trainable parameter beside them counts too: a GAN
    whose parts are all wrapped, for example. PyTorch's ``DataParallel``,
    ``DistributedDataParallel`` and modules from ``fully_shard`` are wrappers. An object that is no
    network of any backend is a wrapper only if its class was registered.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(3, 2)
        >>> is_model_wrapper(layer), is_model_wrapper(torch.nn.DataParallel(layer))
        (False, True)
        >>> is_model_wrapper(torch.nn.ModuleList([torch.nn.DataParallel(layer), torch.nn.ReLU()]))
        True
    """
    if isinstance(network, tuple(_registered)):
        return True
    try:
        backend = backends.of(network)
    except UnknownName:
        return False
    kinds = (*_registered, *backend.wrappers())
    return isinstance(network, kinds) or _holds_wrappers_only(
        backend.wrap(network), kinds
    )


def _holds_wrappers_only(network: Any, kinds: tuple[type, ...]) -> bool:
    if network.parallelism.is_replicated:
        return True
    paths = [path for path, block in network.named_blocks() if isinstance(block, kinds)]
    paths += network.parallelism.replicated_blocks()
    if not paths:
        return False
    prefixes = tuple(f"{path}." if path else "" for path in paths)
    for name, slot in network.neutral_slots().items():
        if slot.trainable and not name.startswith(prefixes):
            return False
    return True
