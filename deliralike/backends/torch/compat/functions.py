"""The functions of ``torch.nn.parallel`` with their signatures: scatter, gather, replicate,
parallel_apply.

Devices are numbers of GPUs, names or ``torch.device``; CPUs count, and one may stand several times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from deliralike import nest
from deliralike.backends.torch.network import AbstractTorchNetwork
from deliralike.backends.torch.replicas.copies import Copied, Likeness
from deliralike.backends.torch.replicas.lazy import has_lazy
from deliralike.backends.torch.replicas.sums import sum_of_graphs
from deliralike.backends.torch.replicas.thread_context import (
    carried,
    current_device,
    named,
    sharing_threads,
)
from deliralike.errors import ArgumentError, StateError
from deliralike.parallel import gather as gather_nests
from deliralike.parallel.batches.scatter import split_batch
from deliralike.parallel.replicas.context import Replica, entered
from deliralike.parallel.replicas.rendezvous import Rendezvous
from deliralike.parallel.replicas.run_in_threads import side_by_side


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """The shares of a nest, one for each device, fewer where there are fewer samples.

    Better than PyTorch's: shares differ by at most one sample and none is empty; dataclasses,
    defaultdicts, deques and namedtuples keep their types; tensors that disagree on the batch size
    are an error that names both.

    Example:
        >>> [len(share["x"]) for share in scatter({"x": torch.ones(5, 2)}, ["cpu", "cpu", "cpu"])]
        [2, 2, 1]
    """
    return split_batch(
        inputs, [named(device) for device in target_gpus], dim, None, AbstractTorchNetwork.backend
    ).nests


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """The shares of positional and keyword arguments.

    Better than PyTorch's: both are shared out by one count of samples.

    Example:
        >>> inputs, kwargs = scatter_kwargs((torch.ones(3, 2),), {"mask": torch.ones(3)}, ["cpu", "cpu"])
        >>> len(inputs[0][0]), len(kwargs[0]["mask"]), len(inputs[1][0])
        (2, 2, 1)
    """
    places = [named(device) for device in target_gpus]
    shares = split_batch(
        (inputs, kwargs or {}), places, dim, None, AbstractTorchNetwork.backend, "arguments"
    ).nests
    return tuple(args for args, _ in shares), tuple(keywords for _, keywords in shares)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The replicas' outputs as one nest on a device; -1 is the CPU.

    Better than PyTorch's: tensors without axes become a vector without a warning; None, numbers and
    strings are returned when all agree; outputs that are built differently are an error that names
    the place.

    Example:
        >>> gather([{"y": torch.ones(2)}, {"y": torch.zeros(1)}], "cpu")["y"]
        tensor([1., 1., 0.])
    """
    return gather_nests(outputs, dim, named(target_device), backend=AbstractTorchNetwork.backend)


def replicate(
    network: torch.nn.Module, devices: Sequence[Any], detach: bool = False
) -> list[torch.nn.Module]:
    """The module for each device; gradients of all of them land on the module given.

    The first is the module itself where it is on that device. The others are copies, whose
    parameters are differentiable copies of the module's, as are other tensors that take a gradient,
    and whose buffers are their own.

    Better than PyTorch's: CPU devices work; ``parameters()`` of a replica is not empty; what the
    first one sets on itself stays; lists of modules or parameters kept in attributes are copied
    with them.

    Args:
        detach: Leave out the way back: gradients do not reach the module.

    Raises:
        SettingError: The module, or a block of it, is replicated by `deliralike.DataParallel`.
        StateError: A parameter has no shape yet.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> first, second = replicate(layer, ["cpu", "cpu"])
        >>> second(torch.ones(1, 2)).sum().backward()
        >>> layer.weight.grad
        tensor([[1., 1.]])
    """
    AbstractTorchNetwork.backend.wrap(network).parallelism.refuse_replicas()
    if has_lazy(network):
        raise StateError(
            "replicate: a parameter of the module has no shape yet: call the module on a batch "
            "first"
        )
    first, *others = [torch.device(named(device)) for device in devices]
    replicas = [_replica(network, place, detach) for place in others]
    at_home = not detach and _is_on(network, first)
    return [network if at_home else _replica(network, first, detach), *replicas]


def parallel_apply(
    modules: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module on its own arguments, side by side in threads; the results in order.

    Better than PyTorch's: the CPU's threads are shared out among the modules; grad and inference
    mode, autocast and default device of the caller hold; an error keeps its type and object, tells
    its replica, and ends the others.

    Raises:
        ArgumentError: There is not the same number of everything.

    Example:
        >>> double, triple = torch.nn.Identity(), torch.nn.Flatten()
        >>> [y.shape for y in parallel_apply([double, triple], [torch.ones(2, 3, 1), (torch.ones(2, 3, 1),)])]
        [torch.Size([2, 3, 1]), torch.Size([2, 3])]
    """
    return apply_shares(modules, inputs, kwargs_tup, devices, 0)


def apply_shares(
    modules: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None,
    devices: Sequence[Any] | None,
    dim: int,
) -> list[Any]:
    """`parallel_apply` with the axis that counts samples."""
    count = len(modules)
    keywords = [{} for _ in modules] if kwargs_tup is None else kwargs_tup
    places = (
        [_device_of(module, share) for module, share in zip(modules, inputs, strict=False)]
        if devices is None
        else [named(device) for device in devices]
    )
    if not len(inputs) == len(keywords) == len(places) == count:
        raise ArgumentError(
            f"parallel_apply: {count} modules, {len(inputs)} inputs, {len(keywords)} kwargs and "
            f"{len(places)} devices: wanted as many of each"
        )
    arguments = [share if isinstance(share, list | tuple) else (share,) for share in inputs]
    sizes = tuple(
        _samples((args, kwargs), dim) for args, kwargs in zip(arguments, keywords, strict=True)
    )
    rendezvous, settings = Rendezvous(count), carried(places)
    replicas = [
        Replica(index, place, sizes, rendezvous, partial(sum_of_graphs, rendezvous, index))
        for index, place in enumerate(places)
    ]

    def job(replica: Replica) -> Any:
        with ExitStack() as stack:
            for context in (current_device(replica.device), settings(), entered(replica)):
                stack.enter_context(context)
            return modules[replica.index](*arguments[replica.index], **keywords[replica.index])

    with sharing_threads(count, places):
        return side_by_side([partial(job, replica) for replica in replicas], replicas, rendezvous)


def _replica(network: torch.nn.Module, place: torch.device, detach: bool) -> torch.nn.Module:
    replica = Likeness(partial(_copy, place, detach)).follow(network)
    for module in replica.modules():
        vars(module)["_is_replica"] = (
            True  # so that PyTorch warns of zero_grad, which would clear nothing
        )
    return replica


def _copy(
    place: torch.device, detach: bool, tensor: torch.Tensor, before: torch.Tensor | None
) -> torch.Tensor:
    if detach or not tensor.requires_grad:
        return tensor.detach().to(place, copy=True)
    return Copied.apply(tensor, place)


def _is_on(network: torch.nn.Module, place: torch.device) -> bool:
    return all(
        tensor.device == place
        for tensors in (network.parameters(), network.buffers())
        for tensor in tensors
    )


def _device_of(module: Any, share: Any) -> str:
    tensors = [leaf for leaf in nest.leaves(share) if isinstance(leaf, torch.Tensor)]
    return (
        str(tensors[0].device)
        if tensors
        else str(next((p.device for p in module.parameters()), "cpu"))
    )


def _samples(arguments: Any, dim: int) -> int:
    """The samples of a share, by its first tensor that has axes."""
    leaves = (
        leaf for leaf in nest.leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.dim()
    )
    return next((leaf.shape[dim] for leaf in leaves), 0)
