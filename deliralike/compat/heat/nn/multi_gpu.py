"""Networks of which each process has one, under heat's name.

`deliralike.compat.heat.optim.DASO` keeps them in agreement.
"""

from __future__ import annotations

from typing import Any

from deliralike import backends
from deliralike.compat.heat.binding import bound
from deliralike.compat.heat.optim.daso import DASO, communicator
from deliralike.errors import ArgumentError, SettingError


class DataParallelMultiGPU:
    """A network that `DASO` trains in several processes.

    Within nodes gradients are averaged, between nodes parameters are.

    All processes start with the weights of the first one; no random state changes. What is not said
    here is the network's: ``train()``, ``parameters()``, ``state_dict()`` … Around a network of
    PyTorch it is a ``torch.nn.Module``.

    Attributes:
        module: The network itself.
        comm: The communicator of all processes.
    """

    def __new__(cls, module: Any = None, *args: Any, **kwargs: Any) -> DataParallelMultiGPU:
        """Return an object of this class and of the backend's class that holds networks.

        The backend is that of the given network.
        """
        kind = cls if module is None else bound(cls, backends.wrap(module).backend.holder)  # type: ignore[arg-type]
        return object.__new__(kind)

    def __init__(self, module: Any, optimizer: DASO, comm: Any = None) -> None:
        """Give a network to an optimizer; every process makes the call.

        Args:
            module: A network of PyTorch or Chainer, or one written once on such a backend.
            optimizer: Over the network's parameters.
            comm: The processes of the optimizer, which are taken when None.

        Raises:
            ArgumentError: The optimizer is no `DASO`.
            SettingError: The optimizer works over other processes.
            CapabilityError: The network's gradients are not kept beside its parameters, as on JAX.
        """
        if not isinstance(optimizer, DASO):
            raise ArgumentError(
                f"DataParallelMultiGPU takes a DASO optimizer, and {optimizer!r} is none"
            )
        if comm is not None and (size := communicator(comm).size) != optimizer.comm.size:
            raise SettingError(
                f"the network is to be over {size} processes, and its optimizer is over "
                f"{optimizer.comm.size}: give both the same comm"
            )
        super().__init__(module)  # type: ignore[call-arg]
        self.comm = optimizer.comm
        optimizer.set_model(module)
