"""Networks in several processes whose updates follow the mean of gradients, under heat's name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from deliralike import backends
from deliralike.compat.heat.binding import bound
from deliralike.compat.heat.communication import Communication, sanitize_comm
from deliralike.compat.heat.optim.daso import DASO
from deliralike.compat.heat.optim.dp_optimizer import DataParallelOptimizer
from deliralike.errors import ArgumentError, SettingError
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.layerwise import BUCKET, LayerwiseNetwork


class DataParallel(LayerwiseNetwork):
    """A network in several processes, which average their gradients.

    Each process computes on its own batch; updates follow the mean of the gradients.

    All processes start with the root's weights and buffers; nothing is initialised again, and no
    random state changes. Weights and checkpoints are those of the given network, under the same
    names. Around a network of PyTorch it is a ``torch.nn.Module``: it may be subclassed, moved, and
    be a part of others.

    Args:
        module: A network of PyTorch, Chainer or JAX, native or written once.
        comm: ``ht.MPI_WORLD``, a communicator of mpi4py's, or what `deliralike.join` gives, over
            any engine.
        optimizer: One, or several, over the network's parameters.
        blocking_parameter_updates: Whether gradients are averaged when backward is done, and
            ``step`` updates at once. Else their sums go on while backward does and after it,
            ``step`` notes the update with the settings of that time, and it is made when the next
            forward pass reaches the parameters: the same updates. Several optimizers, or one that
            does not hold exactly the network's parameters, always block.
        wire: ``"bfloat16"`` sends gradients of float32 in half the bytes; in their own type when
            None.
        bucket_bytes: How many bytes of gradients share a message.

    Attributes:
        comm: The communicator of all processes.
        blocking_parameter_updates: Whether nothing is left under way after a step.

    Raises:
        ArgumentError: Something is not what is wanted here.
        SettingError: An optimizer is over another network.
        CapabilityError: The backend has no such networks.

    Example:
        >>> import torch
        >>> from deliralike.parallel import SingleProcess
        >>> linear = torch.nn.Linear(3, 2)
        >>> optimizer = DataParallelOptimizer(torch.optim.SGD(linear.parameters(), lr=0.1))
        >>> network = DataParallel(linear, SingleProcess(), optimizer)
        >>> network(torch.ones(4, 3)).sum().backward()
        >>> optimizer.step()
        >>> list(network.state_dict())
        ['weight', 'bias']
        >>> isinstance(network, DataParallel), isinstance(network, torch.nn.Module)
        (True, True)
    """

    def __new__(cls, module: Any = None, *args: Any, **kwargs: Any) -> DataParallel:
        """Return an object of this class and of the backend's class of such networks.

        The backend is that of the given network.
        """
        kind = cls if module is None else bound(cls, backends.wrap(module).backend.layerwise())
        return object.__new__(kind)

    def __init__(
        self,
        module: Any,
        comm: Any,
        optimizer: DataParallelOptimizer | Sequence[DataParallelOptimizer],
        blocking_parameter_updates: bool = False,
        *,
        wire: str | None = None,
        bucket_bytes: int = BUCKET,
    ) -> None:
        """Every process makes the call."""
        given: list[Any] = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
        _check_optimizers(given)
        network = backends.wrap(module)
        optimizers = [_over(network, each.torch_optimizer) for each in given]
        blocking = blocking_parameter_updates or any(
            each.blocking_parameter_updates for each in given
        )
        if not blocking and (why := _why_blocking(network, optimizers)):
            warnings.warn(f"updates are blocking, since {why}", stacklevel=2)
            blocking = True
        communication = sanitize_comm(comm)
        super().__init__(
            network,
            module,
            communication.processes,
            blocking=blocking,
            wire=wire,
            bucket_bytes=bucket_bytes,
        )
        self.comm: Communication = communication
        for each, inside in zip(given, optimizers, strict=True):
            each.bind(self, inside)

    @property
    def blocking_parameter_updates(self) -> bool:
        """Whether each update is made in ``step``."""
        return self.blocking


def _check_optimizers(optimizers: Sequence[Any]) -> None:
    for each in optimizers:
        if isinstance(each, DASO):
            raise ArgumentError(
                "optimizer: DASO came, which goes with ht.nn.DataParallelMultiGPU(module, "
                "optimizer)"
            )
        if not isinstance(each, DataParallelOptimizer):
            raise ArgumentError(
                f"optimizer: {type(each).__name__} came, wanted ht.optim.DataParallelOptimizer(...)"
            )


def _over(network: Any, optimizer: Any) -> AbstractOptimizer:
    """An abstract optimizer over the network."""
    if not isinstance(optimizer, AbstractOptimizer):
        return network.backend.wrap_optimizer(optimizer, network)
    held, own = (
        {id(slot.native) for slot in each.neutral_slots().values() if slot.is_parameter}
        for each in (optimizer.network, network)
    )
    if held != own:
        raise SettingError(
            "the optimizer is over another network than the one that is given with it"
        )
    return optimizer


def _why_blocking(network: Any, optimizers: Sequence[AbstractOptimizer]) -> str:
    """Why updates cannot wait for the next forward pass; empty if they can."""
    if len(optimizers) > 1:
        return (
            f"there are {len(optimizers)} optimizers, of which each may change what the others "
            "look at"
        )
    held = optimizers[0].holds()
    slots = {name: slot for name, slot in network.neutral_slots().items() if slot.is_parameter}
    natives = {id(slots[name].native) for name in held if name in slots}
    missing = [
        name for name, slot in slots.items() if slot.trainable and id(slot.native) not in natives
    ]
    strangers = [name for name in held if name not in slots]
    if missing:
        return f"the optimizer does not hold these parameters of the network: {', '.join(missing)}"
    if strangers:
        return f"the optimizer holds {len(strangers)} parameters that are not the network's"
    return ""
