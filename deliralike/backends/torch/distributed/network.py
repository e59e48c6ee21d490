"""The PyTorch network that trains in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from deliralike.backends.torch.distributed.own_backward import OwnBackward, OwnCall, put_gradients
from deliralike.backends.torch.distributed.process_group import TorchProcessGroup
from deliralike.backends.torch.distributed.reducing import Reducing
from deliralike.backends.torch.replicas.network import DataParallelTorchNetwork, TorchReplicas
from deliralike.errors import CapabilityError
from deliralike.optim.loss import InReplicas
from deliralike.parallel.processes.network import (
    DistributedNetwork,
    ProcessState,
    ReplicasOverProcesses,
)
from deliralike.parallel.replicas.context import current


@dataclass(eq=False)
class TorchProcessState(ProcessState):
    """What a network of PyTorch over processes holds beside its weights.

    Attributes:
        reducing: PyTorch's wrappers, where they add gradients during backward.
        wanted: The parameters whose gradients are wanted at the moment; all when None.
        own_pass: The backward pass of the user's own that goes on.
    """

    reducing: Reducing | None = None
    wanted: Mapping[str, Any] | None = None
    own_pass: OwnBackward | None = None


class TorchReplicasOverProcesses(ReplicasOverProcesses, TorchReplicas):
    """How a network of PyTorch in several processes computes."""

    state_class = TorchProcessState

    # Backward passes of the user's own

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The outputs of this process's share, or of the whole batch."""
        if current() is not None or not self.state.weighs or not torch.is_grad_enabled():
            return super().call(args, kwargs)
        call = OwnCall(self.network)
        args, kwargs = call.entered((args, kwargs))
        outputs = super().call(args, kwargs)
        self.follow(call, outputs, self.own_weight)
        return outputs

    def compute_loss(self, loss: InReplicas, *batch: Any) -> Any:
        """The loss of the whole batch, with the graph of this process's part; in evaluation, that
        of its own batch.
        """
        network = self.network
        result = super().compute_loss(loss, *batch)
        if network.training and self.state.weighs and torch.is_grad_enabled():
            self.follow(OwnCall(network), result, self.weight_of_part)
        return result

    def follow(self, call: OwnCall, outputs: Any, weight: Callable[[], float]) -> None:
        """Watch for backward passes that come to the outputs of a call."""
        try:
            call.weight = weight()
        except CapabilityError as error:  # there may be no backward pass
            call.refusal = error
        call.left(outputs)

    def forward_backward(
        self, loss: InReplicas, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Forward and backward on this process's share; the gradients of all processes add up to
        the batch's.
        """
        self.state.own_pass = None  # one that an error has ended
        return super().forward_backward(loss, backward, *batch)

    def own_backward(self, task: int) -> None:
        """Note that a backward pass of the user's own, with that number of autograd's, has come to
        this network.
        """
        own = self.state.own_pass
        if own is None or own.task != task:
            self.state.own_pass = OwnBackward(self.network, task)

    def own_backward_ended(self, own: OwnBackward) -> None:
        """Leave the means over processes in the parameters."""
        self.state.own_pass = None
        if gradients := own.new_gradients():
            put_gradients(self.network, self.mean_gradients(gradients))

    # Gradients that are added during backward

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Let ``torch.nn.parallel.DistributedDataParallel`` add the gradients, in buckets, while
        backward goes on.

        It does so at every update whose gradients are of one backward pass, in which all processes
        have samples; else, as with micro-batches, they are added after backward. A loss that takes
        gradients within itself needs the latter. Buffers follow the policy of this network.

        Args:
            keywords: PyTorch's own: ``bucket_cap_mb``, ``find_unused_parameters``,
                ``static_graph``, ``gradient_as_bucket_view`` … and three of this package.
                ``parts``: True for a wrapper around each block of the network right below it, or
                the paths of blocks, for networks whose parts are trained in turn by several
                optimizers: each update sends the gradients of its own parts; blocks without
                trainable parameters are left alone, and gradients of parameters in none of the
                parts are added after backward. ``comm_hook``, ``comm_state``: how gradients are
                sent; see `deliralike.backends.torch.distributed.comm_hooks.comm_hook`.

        Raises:
            CapabilityError: The processes are not those of torch.distributed.
            ArgumentError, SettingError, UnknownName: There is no such keyword, part or hook, or it
                makes no sense.
        """
        network, processes = self.network, self.processes
        if not isinstance(processes, TorchProcessGroup):
            raise CapabilityError(
                f"{processes}: PyTorch adds gradients during backward over torch.distributed "
                f"alone: deliralike.join('torch')"
            )
        self.state.reducing = Reducing(network.root, network.module, processes, **keywords)
        processes.reducing.add(network)

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Whether all have samples, and the gradients are not to be added to others first."""
        state = self.state
        return (
            state.reducing is not None
            and state.syncs
            and all(sizes)
            and self.batch_group is self.processes
        )

    def reduce(
        self, part: Callable[[Any], Any], share: Any, backward: Callable[[Any], None]
    ) -> Any:
        """This process's part of a loss, after a backward pass in which PyTorch's wrappers add the
        gradients.
        """
        state = self.state
        losses: list[torch.Tensor] = []

        def compute(share: Any) -> torch.Tensor:
            losses.append(part(share))
            return losses[0]

        state.reducing.follow()
        wanted = self.network.own_parameters() if state.wanted is None else state.wanted
        state.reduced = state.reducing.backward(compute, share, backward, wanted)
        return losses[0]

    def gradients_wanted(self, parameters: Mapping[str, Any]) -> AbstractContextManager[None]:
        """A block in which parts with none of these parameters send nothing."""
        return self.state.set(wanted=parameters)

    def forget_gradients(self) -> None:
        """Drop the gradients by ``zero_grad``."""
        self.network.zero_grad()


class DistributedTorchNetwork(DistributedNetwork, DataParallelTorchNetwork):
    """A network of PyTorch in several processes; see
    `deliralike.parallel.processes.network.DistributedNetwork`.

    In a loop of the user's own, ``loss.backward()`` through the network's outputs leaves the mean
    of the gradients of all processes, each counted by its samples, unless the network was called in
    a `no_sync` block: as PyTorch's own wrapper does, so that any optimizer of PyTorch's steps alike
    in all processes.
    """

    _parallelism = TorchReplicasOverProcesses

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of this process's share, or of the whole batch."""
        return self.parallelism.call(args, kwargs)

    def reduce_after_backward(self) -> None:
        """Do without PyTorch's wrappers."""
        state = self._process_state
        if state.reducing is not None:
            state.reducing.drop()
        state.reducing = None
