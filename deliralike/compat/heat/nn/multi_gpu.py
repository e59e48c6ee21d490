"""heat's name for networks that `deliralike.compat.heat.optim.DASO` trains.

Each process has a network of its own.
"""

from __future__ import annotations

from typing import Any

from deliralike import backends
from deliralike.compat.heat.binding import bound
from deliralike.compat.heat.optim.daso import DASO, communicator
from deliralike.errors import ArgumentError, SettingError


class DataParallelMultiGPU:
    """A network that `DASO` trains in several processes.

    Gradients are averaged within nodes, parameters between nodes.

    All processes start with the weights of the first one; no random state changes. Attributes that
    this class does not have are those of the network: ``train()``, ``parameters()``,
    ``state_dict()`` … Around a network of PyTorch it is a ``torch.nn.Module``.

    Attributes:
        module: The given network.
        comm: The communicator of all processes.
    """

    def __new__(
        cls, module: Any = None, *args: Any, **kwargs: Any
    ) -> DataParallelMultiGPU:
        """Return an object of this class and of the backend's class that holds networks.

        The backend is that of the given network.
        """
        if module is None:
            return object.__new__(cls)
        holder = backends.of(module).holder
        return object.__new__(bound(cls, holder))  # type: ignore[arg-type]

    def __init__(self, module: Any, optimizer: DASO, comm: Any = None) -> None:
        """Give a network to an optimizer; every process makes the call.

        Args:
            module: A network of PyTorch or Chainer, or one written once on such a backend.
            optimizer: The optimizer over the network's parameters.
            comm: The communicator of the optimizer, which is also the default.

        Raises:
            ArgumentError: The optimizer is no `DASO`.
            SettingError: The optimizer works over another number of processes.
            CapabilityError: The network's gradients are not kept beside its parameters, as on JAX.
        """
        if not isinstance(optimizer, DASO):
            raise ArgumentError(
                f"DataParallelMultiGPU takes a DASO optimizer, and {optimizer!r} is none"
            )
        if comm is not None:
            size = communicator(comm).size
            if size != optimizer.comm.size:
                raise SettingError(
                    f"the network is to be over {size} processes, and its optimizer is over "
                    f"{optimizer.comm.size}: give both the same comm"
                )
        super().__init__(module)  # type: ignore[call-arg]
        self.comm = optimizer.comm
        optimizer.set_model(module)
