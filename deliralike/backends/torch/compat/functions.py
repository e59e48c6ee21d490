"""The functions of ``torch.nn.parallel``: scatter, gather, replicate and parallel_apply.

Devices are numbers of GPUs, names or ``torch.device``; CPUs are allowed, and a device may occur
several times. Only this backend has this file, as the names and signatures are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch

from deliralike import nest
from deliralike.backends.torch.network import AbstractTorchNetwork
from deliralike.backends.torch.replicas.copies import Copied, StructureCopy
from deliralike.backends.torch.replicas.lazy import has_lazy
from deliralike.backends.torch.replicas.sums import sum_of_graphs
from deliralike.backends.torch.replicas.thread_context import (
    current_device,
    device_name,
    divided_threads,
    thread_context,
)
from deliralike.errors import ArgumentError, StateError
from deliralike.parallel import gather as gather_nests
from deliralike.parallel.batches.scatter import split_batch
from deliralike.parallel.replicas.context import Replica, entered
from deliralike.parallel.replicas.rendezvous import Rendezvous
from deliralike.parallel.replicas.run_in_threads import run_in_threads


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """Return the shares of a nest, one for each device, fewer where there are fewer samples.

    Better than PyTorch's: shares differ by at most one sample and none is empty; dataclasses,
    defaultdicts, deques and namedtuples keep their types; tensors that disagree on the batch size
    are an error that names both.

    Example:
        >>> [len(share["x"]) for share in scatter({"x": torch.ones(5, 2)}, ["cpu", "cpu", "cpu"])]
        [2, 2, 1]
    """
    devices = [device_name(device) for device in target_gpus]
    return split_batch(inputs, devices, dim, None, AbstractTorchNetwork.backend).nests


def scatter_kwargs(
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    target_gpus: Sequence[Any],
    dim: int = 0,
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Return the shares of positional and keyword arguments.

    Better than PyTorch's: both are split by one count of samples.

    Example:
        >>> cpus = ["cpu", "cpu"]
        >>> inputs, kwargs = scatter_kwargs((torch.ones(3, 2),), {"mask": torch.ones(3)}, cpus)
        >>> len(inputs[0][0]), len(kwargs[0]["mask"]), len(inputs[1][0])
        (2, 2, 1)
    """
    devices = [device_name(device) for device in target_gpus]
    arguments = (inputs, kwargs or {})
    shares = split_batch(
        arguments, devices, dim, None, AbstractTorchNetwork.backend, root="arguments"
    ).nests
    return tuple(args for args, _ in shares), tuple(keywords for _, keywords in shares)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Return the replicas' outputs as one nest on a device; -1 is the CPU.

    Better than PyTorch's: tensors without axes become a vector without a warning; None, numbers and
    strings are returned when all agree; outputs that differ in structure are an error that names
    the path.

    Example:
        >>> gather([{"y": torch.ones(2)}, {"y": torch.zeros(1)}], "cpu")["y"]
        tensor([1., 1., 0.])
    """
    return gather_nests(
        outputs, dim, device_name(target_device), backend=AbstractTorchNetwork.backend
    )


def replicate(
    network: torch.nn.Module, devices: Sequence[Any], detach: bool = False
) -> list[torch.nn.Module]:
    """Return a module for each device; the gradients of all of them reach the given module.

    The first is the given module itself where it is on the first device. The others are copies:
    their parameters, and other tensors that take a gradient, are differentiable copies of the
    module's, and their buffers are their own.

    Better than PyTorch's: CPU devices work; ``parameters()`` of a replica is not empty; attributes
    that the first one sets on itself stay; lists of modules or parameters in attributes are copied
    too.

    Args:
        detach: Detach the copies: gradients do not reach the module.

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
    first, *others = [torch.device(device_name(device)) for device in devices]
    copies = [_replica(network, device, detach) for device in others]
    if not detach and _is_on(network, first):
        return [network, *copies]
    return [_replica(network, first, detach), *copies]


def parallel_apply(
    modules: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module on its own arguments, each in a thread, and return the results in order.

    Better than PyTorch's: the CPU's threads are divided among the modules; grad and inference mode,
    autocast and default device of the caller hold; an error keeps its type and object, names its
    replica, and ends the others.

    Raises:
        ArgumentError: The numbers of modules, inputs, keywords and devices differ.

    Example:
        >>> modules = torch.nn.Identity(), torch.nn.Flatten()
        >>> x = torch.ones(2, 3, 1)
        >>> [y.shape for y in parallel_apply(modules, [x, (x,)])]
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
    """Call `parallel_apply`'s modules; `dim` is the axis that counts samples."""
    count = len(modules)
    keywords = [{} for _ in modules] if kwargs_tup is None else kwargs_tup
    if devices is None:
        names = [
            _device_of(module, share)
            for module, share in zip(modules, inputs, strict=False)
        ]
    else:
        names = [device_name(device) for device in devices]
    if not len(inputs) == len(keywords) == len(names) == count:
        raise ArgumentError(
            f"parallel_apply: {count} modules, {len(inputs)} inputs, {len(keywords)} kwargs and "
            f"{len(names)} devices: wanted as many of each"
        )
    arguments = [
        share if isinstance(share, list | tuple) else (share,) for share in inputs
    ]
    sizes = tuple(
        _samples(share, dim) for share in zip(arguments, keywords, strict=True)
    )
    rendezvous = Rendezvous(count)
    settings = thread_context(names)

    def run(replica: Replica) -> Any:
        index = replica.index
        with current_device(replica.device), settings(), entered(replica):
            return modules[index](*arguments[index], **keywords[index])

    replicas = []
    for index, name in enumerate(names):
        all_sum = partial(sum_of_graphs, rendezvous, index)
        replicas.append(Replica(index, name, sizes, rendezvous, all_sum))
    jobs = [partial(run, replica) for replica in replicas]
    with divided_threads(count, names):
        return run_in_threads(jobs, replicas, rendezvous)


def _replica(
    network: torch.nn.Module, device: torch.device, detach: bool
) -> torch.nn.Module:
    replica = StructureCopy(partial(_copy, device, detach)).follow(network)
    for module in replica.modules():
        # so that PyTorch warns of zero_grad, which would clear nothing
        vars(module)["_is_replica"] = True
    return replica


def _copy(
    device: torch.device,
    detach: bool,
    tensor: torch.Tensor,
    former: torch.Tensor | None,
) -> torch.Tensor:
    if detach or not tensor.requires_grad:
        return tensor.detach().to(device, copy=True)
    return Copied.apply(tensor, device)


def _is_on(network: torch.nn.Module, device: torch.device) -> bool:
    tensors = chain(network.parameters(), network.buffers())
    return all(tensor.device == device for tensor in tensors)


def _device_of(module: Any, share: Any) -> str:
    for leaf in nest.leaves(share):
        if isinstance(leaf, torch.Tensor):
            return str(leaf.device)
    for parameter in module.parameters():
        return str(parameter.device)
    return "cpu"


def _samples(arguments: Any, dim: int) -> int:
    """Return the samples of a share, by its first tensor that has axes."""
    for leaf in nest.leaves(arguments):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return leaf.shape[dim]
    return 0
