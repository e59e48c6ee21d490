"""Networks of which each process has one, under heat's name; `deliralike.heat.daso.DASO` keeps them together."""

from __future__ import annotations

from typing import Any

from deliralike.errors import ArgumentError, SettingError
from deliralike.heat.daso import DASO, communicator


class DataParallelMultiGPU:
    """A network that `DASO` trains: within nodes by averaged gradients, between them by averaged parameters.

    All processes start with the weights of the first one; no random state changes. What is not said here is the
    network's: ``train()``, ``parameters()``, ``state_dict()`` …

    Attributes:
        module: The network itself.
        comm: The communicator of all processes.
    """

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
            raise ArgumentError(f"DataParallelMultiGPU takes a DASO optimizer, and {optimizer!r} is none")
        if comm is not None and (size := communicator(comm).size) != optimizer.comm.size:
            raise SettingError(f"the network is to be over {size} processes, and its optimizer is over "
                               f"{optimizer.comm.size}: give both the same comm")  # fmt: skip
        self.module = module
        self.comm = optimizer.comm
        optimizer.set_model(module)

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """The network's outputs."""
        return self.module(*inputs, **keywords)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """The network's outputs."""
        return self(*inputs, **keywords)

    def __getattr__(self, name: str) -> Any:
        """What the network has."""
        if name == "module":  # which a copy does not have yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def __repr__(self) -> str:
        """With the network."""
        return f"{type(self).__name__}({self.module!r})"
