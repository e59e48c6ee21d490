"""heat's name for networks in several processes whose updates follow the mean of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deliralike import backends
from deliralike.compat.heat.binding import bound
from deliralike.compat.heat.communication import Communication, sanitize_comm
from deliralike.compat.heat.optim.daso import DASO
from deliralike.compat.heat.optim.dp_optimizer import DataParallelOptimizer
from deliralike.errors import ArgumentError
from deliralike.parallel.gradient_averaging import (
    BUCKET,
    GradientAveragingNetwork,
    optimizer_over,
)


class DataParallel(GradientAveragingNetwork):
    """A network in several processes, which average their gradients.

    Each process computes on its own batch; updates follow the mean of the gradients.

    All processes start with the root's weights and buffers; nothing is initialized again, and no
    random state changes. Weights and checkpoints are those of the given network, under the same
    names. It is a ``torch.nn.Module``: it may be subclassed, moved, and be a part of others.

    Args:
        module: A network of PyTorch, native or written once.
        comm: ``ht.MPI_WORLD``, a communicator of mpi4py's, or what `deliralike.join` gives, over
            any engine.
        optimizer: One optimizer, or several, over the network's parameters.
        blocking_parameter_updates: Whether backward waits for the sum of each bucket of gradients;
            otherwise the sums are in flight during backward. Either way gradients are means when
            backward is done, ``step`` updates at once, and the updates are the same.
        wire: ``"bfloat16"`` sends gradients of float32 in half the bytes; they are sent in their
            own type when None.
        bucket_bytes: The number of bytes of gradients that share a message.

    Attributes:
        comm: The communicator of all processes.
        blocking_parameter_updates: Whether backward waits for each sum.

    Raises:
        ArgumentError: An optimizer or the communicator has the wrong type.
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
        if module is None:
            return object.__new__(cls)
        return object.__new__(bound(cls, backends.of(module).gradient_averaging()))

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
        """Distribute the network; every process makes the call."""
        wrappers: list[Any] = [optimizer]
        if isinstance(optimizer, list | tuple):
            wrappers = list(optimizer)
        _check_optimizers(wrappers)
        network = backends.wrap(module)
        optimizers = [
            optimizer_over(network, each.torch_optimizer) for each in wrappers
        ]
        blocking = blocking_parameter_updates
        if any(each.blocking_parameter_updates for each in wrappers):
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
        for each, abstract in zip(wrappers, optimizers, strict=True):
            each.bind(self, abstract)

    @property
    def blocking_parameter_updates(self) -> bool:
        """Whether backward waits for each sum."""
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
