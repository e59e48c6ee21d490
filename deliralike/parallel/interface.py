"""The interface by which a backend offers replicas and networks in several processes."""

from __future__ import annotations

from typing import Any, ClassVar

from deliralike.errors import CapabilityError
from deliralike.network.base import AbstractNetwork
from deliralike.parallel.gradient_averaging import GradientAveragingNetwork
from deliralike.parallel.processes.group import ProcessGroup, RankInfo
from deliralike.parallel.processes.network import DistributedNetwork
from deliralike.parallel.replicas.network import ReplicaSettings, ReplicatedNetwork


class Holder:
    """An object that calls its ``module``, and has the module's attributes besides its own.

    Attributes:
        module: The network that was given.
    """

    module: Any

    def __init__(self, module: Any) -> None:
        """Take a network, and change nothing of it."""
        vars(self)["module"] = module

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Return the outputs of `forward`."""
        return self.forward(*inputs, **keywords)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Return the network's outputs."""
        return self.module(*inputs, **keywords)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the network.

        Raises:
            AttributeError: It has none of that name.
        """
        if name == "module":  # a copy that is being made does not have it yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def __repr__(self) -> str:
        """Return the class with the network."""
        return f"{type(self).__name__}({self.module!r})"


class Processes:
    """Networks over several devices and processes; backends override what they have.

    Attributes:
        name: The name by which users choose the backend.
        holder: The class of a native network that holds another one, calls it, and has its names.
    """

    name: ClassVar[str]
    holder: ClassVar[type[Holder]] = Holder

    def replicate(
        self, network: AbstractNetwork, settings: ReplicaSettings
    ) -> ReplicatedNetwork:
        """Return a network as several replicas, with its weights and the random state unchanged.

        Raises:
            CapabilityError: The backend has no replicated networks.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no replicated networks: use one device"
        )

    def join(self, timeout: float, rank_info: RankInfo | None = None) -> ProcessGroup:
        """Return the processes that the framework's own runtime connects; see `deliralike.join`.

        Args:
            timeout: Seconds.
            rank_info: The rank of this process; None takes it from the framework's own launcher.

        Raises:
            CapabilityError: The framework has no such runtime.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no runtime of its own for several processes: use MPI"
        )

    def is_connected(self) -> bool:
        """Return whether the user's program has connected processes by the framework's runtime."""
        return False

    def distribute(
        self,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
    ) -> DistributedNetwork:
        """Return a network that trains in several processes, with the root's weights in all.

        Raises:
            CapabilityError: The backend has no such networks.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no networks that train in several processes: use one "
            "process"
        )

    def shard(
        self, network: AbstractNetwork, processes: ProcessGroup, **keywords: Any
    ) -> AbstractNetwork:
        """Return a network whose parameters, gradients and optimizer states are sharded.

        Raises:
            CapabilityError: The backend has no fully sharded networks.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no fully sharded networks: DistributedDataParallel keeps "
            "the whole network in each process"
        )

    def gradient_averaging(self) -> type[GradientAveragingNetwork]:
        """Return the class of networks that average their gradients in buckets.

        Raises:
            CapabilityError: The backend has no such networks.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no networks that average gradients in buckets: use "
            f"deliralike.DistributedDataParallel"
        )

    def loader_of(self, source: Any, seed: int, processes: ProcessGroup) -> Any:
        """Return an iterator of the framework's own as a `data.Loader` of the same data.

        Anything else is returned as it is.

        Args:
            seed: The key of the order of the samples.
            processes: The processes that share the data.
        """
        return source
