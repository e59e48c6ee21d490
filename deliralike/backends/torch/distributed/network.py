"""The PyTorch network that trains in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from deliralike.backends.torch.distributed.manual_backward import (
    ManualBackward,
    ManualCall,
    put_gradients,
)
from deliralike.backends.torch.distributed.process_group import TorchProcessGroup
from deliralike.backends.torch.distributed.reducing import Reducing
from deliralike.backends.torch.replicas.network import (
    DataParallelTorchNetwork,
    TorchReplicas,
    refuse_embeddings_of_whole_batch,
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
from deliralike.parallel.replicas.network import ReplicaSettings


@dataclass(eq=False)
class TorchProcessState(ProcessState):
    """The state of a network on PyTorch in several processes, beside its weights.

    Attributes:
        reducing: PyTorch's wrappers, where they add gradients during backward.
        wanted: The parameters whose gradients are wanted at the moment; all when None.
        manual_pass: The current backward pass of the user's own loop.
    """

    reducing: Reducing | None = None
    wanted: Mapping[str, Any] | None = None
    manual_pass: ManualBackward | None = None


class TorchReplicasOverProcesses(ReplicasOverProcesses, TorchReplicas):
    """The parallelism of a network on PyTorch in several processes."""

    state_class = TorchProcessState

    # Backward passes of a user's own loop

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the outputs of this process's share, or of the whole batch."""
        if (
            current() is not None
            or not self.state.weighs
            or not torch.is_grad_enabled()
        ):
            return super().call(args, kwargs)
        call = ManualCall(self.network)
        args, kwargs = call.watch_arguments((args, kwargs))
        outputs = super().call(args, kwargs)
        self.watch_call(call, outputs, self.own_weight)
        return outputs

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """Return the loss of the whole batch, with the graph of this process's part.

        In evaluation mode it is the loss of this process's batch.
        """
        network = self.network
        result = super().compute_loss(loss, *batch)
        if network.training and self.state.weighs and torch.is_grad_enabled():
            self.watch_call(ManualCall(network), result, self.weight_of_part)
        return result

    def watch_call(
        self, call: ManualCall, outputs: Any, weight: Callable[[], float]
    ) -> None:
        """Watch for backward passes that reach the outputs of a call."""
        try:
            call.weight = weight()
        except CapabilityError as error:  # raised by a backward pass only
            call.refusal = error
        call.watch_outputs(outputs)

    def forward_backward(
        self, loss: Loss, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Run forward and backward on this process's share.

        The gradients of all processes add up to those of the batch.
        """
        self.state.manual_pass = (
            None  # it may be left over from a pass that raised an error
        )
        return super().forward_backward(loss, backward, *batch)

    def begin_manual_backward(self, task: int) -> None:
        """Record that a backward pass of the user's own loop has reached this network.

        Args:
            task: Autograd's number of the pass.
        """
        own = self.state.manual_pass
        if own is None or own.task != task:
            self.state.manual_pass = ManualBackward(self.network, task)

    def end_manual_backward(self, own: ManualBackward) -> None:
        """Replace the gradients of the parameters by their means over processes."""
        self.state.manual_pass = None
        gradients = own.new_gradients()
        if gradients:
            put_gradients(self.network, self.mean_gradients(gradients))

    # Gradients that are added during backward

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Add gradients during backward, by ``torch.nn.parallel.DistributedDataParallel``.

        This holds for every update with one backward pass in which all processes have samples; in
        other updates, as with micro-batches, gradients are added after backward. A loss that takes
        gradients within itself needs the latter. Buffers follow the policy of this network.

        Args:
            keywords: PyTorch's own: ``bucket_cap_mb``, ``find_unused_parameters``,
                ``static_graph``, ``gradient_as_bucket_view`` … and three of this package.
                ``parts`` is for networks whose parts are trained in turn by several optimizers:
                True for a wrapper around each direct child of the network, or the paths of blocks.
                Each update then sends the gradients of its own parts; blocks without trainable
                parameters are left alone, and gradients of parameters in none of the parts are
                added after backward. ``comm_hook`` and ``comm_state`` say how gradients are sent;
                see `deliralike.backends.torch.distributed.comm_hooks.comm_hook`.

        Raises:
            CapabilityError: The processes are not those of torch.distributed.
            ArgumentError, SettingError, UnknownName: A keyword, part or hook is unknown, or its
                value makes no sense.
        """
        network, processes = self.network, self.processes
        if not isinstance(processes, TorchProcessGroup):
            raise CapabilityError(
                f"{processes}: PyTorch adds gradients during backward over torch.distributed "
                f"alone: deliralike.join('torch')"
            )
        self.state.reducing = Reducing(
            network.root, network.module, processes, **keywords
        )
        processes.reducing.add(network)

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Return whether this backward pass adds gradients over processes.

        All processes must have samples, and this must be the only pass of the update.
        """
        if self.state.reducing is None or not self.state.syncs:
            return False
        return all(sizes) and self.batch_group is self.processes

    def carries_loss(self) -> bool:
        """Return whether the wrapper adds the parts of the loss as one more gradient.

        Processes that may have to synchronize buffers tell each other more than a number.
        """
        return self.state.reducing.carries_loss and not self.buffer_slots()

    def reduce(
        self,
        part: Callable[[Any], Any],
        share: Any,
        backward: Callable[[Any], None],
        exchange: LossExchange,
    ) -> Any:
        """Run backward, in which PyTorch's wrappers add the gradients; return this part's loss."""
        state = self.state
        losses: list[torch.Tensor] = []

        def compute(share: Any) -> torch.Tensor:
            losses.append(part(share))
            return losses[0]

        state.reducing.follow()
        wanted = (
            self.network.root_parameters() if state.wanted is None else state.wanted
        )
        state.reduced = state.reducing.backward(
            compute, share, backward, wanted, exchange
        )
        return losses[0]

    def gradients_wanted(
        self, parameters: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        """Return a context in which parts with none of these parameters send nothing."""
        return self.state.set(wanted=parameters)


class DistributedTorchNetwork(DistributedNetwork, DataParallelTorchNetwork):
    """A network on PyTorch in several processes.

    See `deliralike.parallel.processes.network.DistributedNetwork`. In a user's own loop,
    ``loss.backward()`` leaves the mean of the gradients of all processes, weighted by their
    samples, unless the network was called in a `no_sync` block: as PyTorch's own wrapper does, so
    that any optimizer of PyTorch's makes the same steps in all processes.
    """

    _parallelism = TorchReplicasOverProcesses

    def _start(self, root: AbstractNetwork, settings: ReplicaSettings) -> None:
        refuse_embeddings_of_whole_batch(root)
        super()._start(root, settings)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of this process's share, or of the whole batch."""
        return self.parallelism.call(args, kwargs)

    def reduce_after_backward(self) -> None:
        """Remove PyTorch's wrappers, so that gradients are added after backward."""
        state: Any = self._process_state
        if state.reducing is not None:
            state.reducing.drop()
        state.reducing = None
