"""The interface of a framework's replicas and processes."""

from __future__ import annotations

from typing import Any, ClassVar

from deliralike.errors import CapabilityError
from deliralike.network.base import AbstractNetwork
from deliralike.parallel.layerwise import LayerwiseNetwork
from deliralike.parallel.processes.group import ProcessGroup, RankInfo
from deliralike.parallel.processes.network import DistributedNetwork
from deliralike.parallel.replicas.holder import Holder
from deliralike.parallel.replicas.network import ReplicaSettings, ReplicatedNetwork


class Processes:
    """Networks over several devices and processes; what a backend lacks, it inherits from here.

    Attributes:
        name: What users call the backend.
        holder: The class of a native network that holds another one, calls it, and has its names.
    """

    name: ClassVar[str]
    holder: ClassVar[type[Holder]] = Holder

    def prepare_process(self, devices: int = 1, quickly: bool = False) -> None:
        """Apply settings that a framework reads when it starts.

        Once something was computed it is too late, and the settings are then left alone.

        Args:
            devices: How many CPU devices replicas are to find, where a CPU can be split into
                several.
            quickly: Whether all of the process is like `compiling_quickly`, single operations too.
        """

    def replicate(self, network: AbstractNetwork, settings: ReplicaSettings) -> ReplicatedNetwork:
        """A network as several replicas; its weights and the random state stay as they are."""
        raise CapabilityError(f"backend {self.name!r} has no replicated networks: use one device")

    def join(self, timeout: float, rank_info: RankInfo | None = None) -> ProcessGroup:
        """The processes that the framework's own runtime connects; see `deliralike.join`.

        Args:
            timeout: Seconds.
            rank_info: Which of them this is; what the framework's own launcher says when None.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no runtime of its own for several processes: use MPI"
        )

    def is_connected(self) -> bool:
        """Return whether the framework's own runtime already connects several processes.

        The connection is one that the user's program has made.
        """
        return False

    def distribute(
        self,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
        takes_whole: bool,
    ) -> DistributedNetwork:
        """A network that trains in several processes; all of them start with the root's weights."""
        raise CapabilityError(
            f"backend {self.name!r} has no networks that train in several processes: use one "
            "process"
        )

    def shard(
        self, network: AbstractNetwork, processes: ProcessGroup, **keywords: Any
    ) -> AbstractNetwork:
        """A network whose parameters, gradients and optimizer states are spread over processes."""
        raise CapabilityError(
            f"backend {self.name!r} has no fully sharded networks: DistributedDataParallel keeps "
            "the whole network in each process"
        )

    def layerwise(self) -> type[LayerwiseNetwork]:
        """Return the class of networks whose updates wait until they are needed.

        The gradients of these networks are averaged.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no networks whose updates wait for other processes: use "
            f"deliralike.DistributedDataParallel"
        )

    def loader_of(self, source: Any, seed: int, processes: ProcessGroup) -> Any:
        """Return an iterator of the framework's own as a `data.Loader` of the same data.

        Anything else is returned as it is.

        Args:
            seed: Keys the order of the samples.
            processes: Those that train with it together.
        """
        return source
