"""The interface of the ways in which a network computes in parallel.

`Single`, which a plain network has, is the base class of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Protocol

from deliralike.errors import CapabilityError, SettingError
from deliralike.network import unregistered_modules
from deliralike.network.anomalies import Anomalies, anomalies_of
from deliralike.optim.loss import Loss, LossFunction, count_samples, value_of
from deliralike.parallel.processes.group import ProcessGroup, SingleProcess

Hooks = tuple[list[Any], list[Any]]


class UpdateState(Protocol):
    """The attributes of an optimizer that a network's parallelism reads at an update."""

    steps: int
    loss_scale: Any


class Single:
    """Single is the parallelism of a network that computes once, in one process.

    Optimizers, training and evaluation call ``network.parallelism`` for everything that depends on
    replicas and processes. This class serves networks without any, its subclasses serve the others.

    The object is a view: it holds nothing but the network, and each access to the attribute creates
    a new one. So a copy of a network never refers to the network that it was copied from.

    Attributes:
        network: The network.
        is_replicated: Whether the network consists of replicas, in this process or in several ones.
        evaluation_is_collective: Whether every process makes each call of the network in
            evaluation, too.
    """

    is_replicated: ClassVar[bool] = False
    evaluation_is_collective: ClassVar[bool] = False

    def __init__(self, network: Any) -> None:
        """Refer to a network, which does not change."""
        self.network = network

    @property
    def processes(self) -> ProcessGroup:
        """The processes that the network trains in."""
        return SingleProcess()

    @property
    def replica_count(self) -> int:
        """The number of replicas in this process."""
        return 1

    @property
    def state_is_collective(self) -> bool:
        """Return whether each call that reads or writes the state is made by every process."""
        return False

    @property
    def updates_locally(self) -> bool:
        """Return whether processes may have different parameters between updates.

        They may differ until `synchronize` is called.
        """
        return False

    # Losses
    # ----------------------------------------------------------------------------------------------

    def adapt_loss(self, loss: Loss) -> Loss:
        """Return the loss that an optimizer over this network computes for a given one."""
        return loss

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """Return the result of a per-replica loss on the whole batch."""
        return loss.whole(self.network, *batch)

    def forward_backward(
        self, loss: Loss, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Return the result of `compute_loss` after the backward pass from its value.

        Args:
            backward: ``backward(value)`` runs the native backward pass.
        """
        result = self.compute_loss(loss, *batch)
        backward(value_of(result))
        return result

    def find_anomalies(self, loss_function: LossFunction, *batch: Any) -> Anomalies:
        """Return the result of `detect_anomalous_params`, without restoring the state."""
        network = self.network
        arrays = network.backend.prepare(batch, network)
        gradients = network.backend.gradients(loss_function, network, *arrays)
        return anomalies_of(gradients.parameters)

    # Updates
    # ----------------------------------------------------------------------------------------------

    def update_hooks(self) -> Hooks:
        """Return the hooks that an optimizer calls before and after each update: none here.

        Raises:
            CapabilityError: A block within is replicated by itself, and the backend cannot keep it
                in step.
        """
        path = next(self.replicated_blocks(), "")
        if path:
            raise CapabilityError(
                f"the block {path!r} of {type(self.network).__name__} is replicated by itself, and "
                "an optimizer over the whole network would not keep its replicas in step: "
                "replicate the whole, DataParallel(network, devices)"
            )
        return [], []

    def update_context(
        self, optimizer: UpdateState, loss: Loss
    ) -> AbstractContextManager[Loss]:
        """Return a block in which an optimizer makes an update of this network.

        It may also add a micro-batch to one.

        Returns:
            A context that yields the loss to compute for the given one.
        """
        return nullcontext(loss)

    def no_sync(self) -> AbstractContextManager[Any]:
        """Return a block whose gradients are not yet all-reduced over processes.

        They are added up in each process first.
        """
        return nullcontext()

    def local_gradients(self) -> AbstractContextManager[Any]:
        """Return a block in which gradients are those of the samples of this process.

        Nothing is done to them.
        """
        return nullcontext()

    def empty_share(self) -> AbstractContextManager[Any]:
        """Return a block in which this process has no samples: its batch does not count."""
        return nullcontext()

    def share_sizes(self, sizes: Sequence[int]) -> AbstractContextManager[Any]:
        """Return a block in which each process has as many samples of a batch as `sizes` says."""
        return nullcontext()

    def count_samples(self, batch: Any) -> int:
        """Return the number of samples in a batch that an optimizer is given."""
        return count_samples(batch)

    def replica_gradients(self) -> Iterator[dict[str, Any]]:
        """Return the gradients in each replica but the root: none."""
        return iter(())

    def forget_gradients(self) -> None:
        """Drop the gradients that backward has left in the parameters, where frameworks do so."""

    def train_over(self, processes: ProcessGroup) -> None:
        """Let updates follow another process group from now on.

        Nothing changes where the network is in one process.
        """

    # Parameters and buffers
    # ------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Make the parameters of all processes equal where they may differ.

        Every process makes the call.
        """

    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica: there are none."""

    def copy_state(self) -> None:
        """Copy all parameters and buffers from the root to the other replicas: there are none."""

    # Replicas of replicas
    # --------------------------------------------------------------------------------------------

    def replicated_blocks(self) -> Iterator[str]:
        """Yield the paths of blocks that are replicated networks themselves."""
        for path, block in self.network.named_blocks():
            if is_replicated(block):
                yield path

    def refuse_unregistered(self) -> None:
        """Refuse a network that holds a layer or parameter which would not be trained.

        Raises:
            ConstructionError: Names the path, the layer, and what to do.
        """
        unregistered_modules.refuse_unregistered(
            self.network, dict(self.network.named_blocks())
        )

    def refuse_replicas(self, verb: str = "replicate") -> None:
        """Refuse a network whose replicas, or those of a block of it, would not be kept in step.

        Args:
            verb: What was to be done with the network.

        Raises:
            SettingError: The network is replicated, or has a block that is.
        """
        if self.is_replicated:
            raise SettingError(
                f"the network is replicated already: {verb} what it was made from, network.root"
            )
        path = next(self.replicated_blocks(), None)
        if path is not None:
            raise SettingError(
                f"the block {path!r} of the network is replicated already: {verb} the network with "
                f"what that block was made from, network.{path}.root"
            )


def is_replicated(block: Any) -> bool:
    """Return whether a block, native or not, is a replicated network."""
    parallelism = getattr(type(block), "_parallelism", Single)
    return issubclass(parallelism, Single) and parallelism.is_replicated
