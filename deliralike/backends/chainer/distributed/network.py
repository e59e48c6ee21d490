"""A Chainer network that trains in several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from deliralike.backends.chainer.arrays import chainer, chainermn
from deliralike.backends.chainer.distributed.manual_backward import without_backward
from deliralike.backends.chainer.optimizer import Part
from deliralike.backends.chainer.replicas.network import (
    ChainerReplicas,
    DataParallelChainerNetwork,
)
from deliralike.errors import CapabilityError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import Loss
from deliralike.parallel.processes.loss_exchange import LossExchange
from deliralike.parallel.processes.network import (
    DistributedNetwork,
    ProcessState,
    ReplicasOverProcesses,
)
from deliralike.parallel.replicas.context import current


@dataclass(eq=False)
class ChainerProcessState(ProcessState):
    """The state of a distributed Chainer network besides its weights.

    Attributes:
        communicator: The communicator of ChainerMN that adds gradients, if one does.
    """

    communicator: Any = None


class ChainerReplicasOverProcesses(ReplicasOverProcesses, ChainerReplicas):
    """The computations of a Chainer network in several processes."""

    state_class = ChainerProcessState

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the outputs of this process's share."""
        outputs = super().call(args, kwargs)
        if current() is not None or not self.state.weighs:
            return outputs
        return self._without_backward(outputs)

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """Return the loss of the whole batch; in evaluation that of this process's own batch."""
        result = super().compute_loss(loss, *batch)
        if not self.network.training or not self.state.weighs:
            return result
        return self._without_backward(result)

    def _without_backward(self, outputs: Any) -> Any:
        if not chainer.config.enable_backprop:
            return outputs
        return without_backward(outputs)

    # Gradients that ChainerMN adds
    # ------------------------------------------------------------

    def reduce_in_backward(self) -> None:  # type: ignore[override]
        """Let ChainerMN add the gradients at the end of each backward pass.

        It calls ``multi_node_mean_grad`` at every update whose gradients are of one backward pass;
        with micro-batches the gradients are added when the update is made.

        Raises:
            CapabilityError: The processes are not those of ChainerMN.
        """
        if not hasattr(self.processes, "communicator_for"):
            raise CapabilityError(
                f"{self.processes}: ChainerMN adds gradients over its own processes alone: "
                "deliralike.join('chainermn')"
            )
        self.reduce_by(self.processes.communicator_for(self.network.device_name))

    def reduce_by(self, communicator: Any) -> None:
        """Let a communicator of ChainerMN add the gradients; it connects the same processes."""
        self.state.communicator = communicator

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Return whether a communicator adds the gradients, instead of the process group.

        A process without samples contributes zeros.
        """
        return self.state.communicator is not None and self.state.syncs

    def reduce(
        self,
        part: Callable[[Any], Any],
        share: Any,
        backward: Callable[[Any], None],
        exchange: LossExchange,
    ) -> Any:
        """Compute this process's part of a loss, and its own gradients by backward.

        ChainerMN will take the mean of the gradients over processes.
        """
        weighted = part(share)
        backward(weighted * self.processes.count)
        return weighted

    def forward_backward(
        self, loss: Loss, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Run forward and backward on this process's share.

        Where ChainerMN adds gradients, they are those of the whole batch afterwards.
        """
        result = super().forward_backward(loss, backward, *batch)
        if self.reduces(()):
            self._mean_gradients()
        return result

    def _mean_gradients(self) -> None:
        """Take the mean over processes in place.

        A parameter that no process has used keeps None.
        """
        parameters = _initialized(self.network.root)
        is_used = [parameter.grad is not None for parameter in parameters.values()]
        used = self.processes.all_gather_object(
            "which parameters have gradients", is_used
        )
        for parameter, *in_processes in zip(parameters.values(), *used, strict=True):
            if any(in_processes):
                parameter.grad = _own_gradient(parameter)
        self.state.communicator.multi_node_mean_grad(Part(parameters), zero_fill=False)
        self.state.reduced = frozenset(parameters)

    def may_synchronise(self) -> bool:
        """Return True: ChainerMN's batch normalisation has the whole batch's statistics here."""
        return True

    def is_synchronised(self, link: chainer.Link) -> bool:
        """Return whether a batch normalisation has the statistics of the whole batch.

        ChainerMN's always does here: by itself it would count each process's mean alike.
        """
        if isinstance(link, chainermn.links.MultiNodeBatchNormalization):
            return True
        return super().is_synchronised(link)


class DistributedChainerNetwork(DistributedNetwork, DataParallelChainerNetwork):
    """A Chainer network in several processes.

    See `deliralike.parallel.processes.network.DistributedNetwork`. A
    ``chainermn.links.MultiNodeBatchNormalization`` in it has the statistics of the whole batch
    whatever `buffers` says, with shares of any size.

    A backward pass in a loop of the user's own raises an error: its gradients would be those of one
    process.
    """

    _parallelism: ClassVar[type[ChainerReplicasOverProcesses]] = (
        ChainerReplicasOverProcesses
    )


def _initialized(network: AbstractNetwork) -> dict[str, chainer.Parameter]:
    """Return trainable parameters that have a shape, tied ones under each of their names."""
    slots = network.neutral_slots().items()
    parameters = {name: slot.native for name, slot in slots if slot.trainable}
    return {name: each for name, each in parameters.items() if each.is_initialized}


def _own_gradient(parameter: chainer.Parameter) -> Any:
    """Return the gradient, or zeros, as one contiguous array of this parameter alone.

    ChainerMN writes into it.
    """
    if parameter.grad is None:
        return parameter.xp.zeros_like(parameter.array)
    return parameter.grad.copy(order="C")
