"""The PyTorch network that trains in several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from deliralike.backends.torch.data_parallel import DataParallelTorchNetwork
from deliralike.backends.torch.distributed.own_backward import OwnBackward, OwnCall, put_gradients
from deliralike.backends.torch.distributed.processes import TorchProcesses
from deliralike.backends.torch.distributed.reducing import Reducing
from deliralike.errors import CapabilityError
from deliralike.parallel.distributed import DistributedNetwork
from deliralike.parallel.loss import InReplicas
from deliralike.parallel.replica import current


class DistributedTorchNetwork(DistributedNetwork, DataParallelTorchNetwork):
    """A network of PyTorch in several processes; see `deliralike.parallel.distributed.DistributedNetwork`.

    In a loop of the user's own, ``loss.backward()`` through the network's outputs leaves the mean of the gradients of
    all processes, each counted by its samples, unless the network was called in a `no_sync` block: as PyTorch's own
    wrapper does, so that any optimizer of PyTorch's steps alike in all processes.
    """

    _reducing: Reducing | None = None
    _wanted: Mapping[str, Any] | None = None
    _pass: OwnBackward | None = None

    # Backward passes of the user's own -------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of this process's share, or of the whole batch."""
        if current() is not None or not self._weighs or not torch.is_grad_enabled():
            return super().forward(*args, **kwargs)
        call = OwnCall(self)
        args, kwargs = call.entered((args, kwargs))
        outputs = super().forward(*args, **kwargs)
        self._follow(call, outputs, self.own_weight)
        return outputs

    def loss_in_replicas(self, loss: InReplicas, *batch: Any) -> Any:
        """The loss of the whole batch, with the graph of this process's part; in evaluation, that of its own batch."""
        result = super().loss_in_replicas(loss, *batch)
        if self.training and self._weighs and torch.is_grad_enabled():
            self._follow(OwnCall(self), result, self.weight_of_part)
        return result

    def _follow(self, call: OwnCall, outputs: Any, weight: Callable[[], float]) -> None:
        try:
            call.weight = weight()
        except CapabilityError as error:  # there may be no backward pass
            call.refusal = error
        call.left(outputs)

    def backward_in_replicas(self, loss: InReplicas, backward: Callable[[Any], None], *batch: Any) -> Any:
        """Forward and backward on this process's share; the gradients of all processes add up to the batch's."""
        self._keep(_pass=None)  # one that an error has ended
        return super().backward_in_replicas(loss, backward, *batch)

    def own_backward(self, task: int) -> None:
        """A backward pass of the user's own, with that number of autograd's, has come to this network."""
        if self._pass is None or self._pass.task != task:
            self._keep(_pass=OwnBackward(self, task))

    def own_backward_ended(self, own: OwnBackward) -> None:
        """Leave the means over processes in the parameters."""
        self._keep(_pass=None)
        if gradients := own.new_gradients():
            put_gradients(self, self.mean_gradients(gradients))

    # Gradients that are added during backward ------------------------------------------------------------------------

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Let ``torch.nn.parallel.DistributedDataParallel`` add the gradients, in buckets, while backward goes on.

        It does so at every update whose gradients are of one backward pass, in which all processes have samples; else,
        as with micro-batches, they are added after backward. A loss that takes gradients within itself needs the
        latter. Buffers follow the policy of this network.

        Args:
            keywords: PyTorch's own: ``bucket_cap_mb``, ``find_unused_parameters``, ``static_graph``,
                ``gradient_as_bucket_view`` … and three of this package. ``parts``: True for a wrapper around each block
                of the network right below it, or the paths of blocks, for networks whose parts are trained in turn by
                several optimizers: each update sends the gradients of its own parts; blocks without trainable
                parameters are left alone, and gradients of parameters in none of the parts are added after backward.
                ``comm_hook``, ``comm_state``: how gradients are sent;
                see `deliralike.backends.torch.distributed.comm_hooks.comm_hook`.

        Raises:
            CapabilityError: The processes are not those of torch.distributed.
            ArgumentError, SettingError, UnknownName: There is no such keyword, part or hook, or it makes no sense.
        """
        if not isinstance(self.processes, TorchProcesses):
            raise CapabilityError(f"{self.processes}: PyTorch adds gradients during backward over torch.distributed "
                                  f"alone: deliralike.join('torch')")  # fmt: skip
        vars(self)["_reducing"] = Reducing(self.root, self.module, self.processes, **keywords)
        self.processes.reducing.add(self)

    def reduce_after_backward(self) -> None:
        """Do without PyTorch's wrappers."""
        if self._reducing is not None:
            self._reducing.drop()
        vars(self)["_reducing"] = None

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Where all have samples, and the gradients are not to be added to others first."""
        return self._reducing is not None and self._syncs and all(sizes) and self.together is self.processes

    def reduce(self, part: Callable[[Any], Any], share: Any, backward: Callable[[Any], None]) -> Any:
        """By PyTorch's wrappers."""
        found: list[torch.Tensor] = []

        def compute(share: Any) -> torch.Tensor:
            found.append(part(share))
            return found[0]

        self._reducing.follow()
        wanted = self.own_parameters() if self._wanted is None else self._wanted
        self._keep(_reduced=self._reducing.backward(compute, share, backward, wanted))
        return found[0]

    def wanting(self, parameters: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Parts with none of these parameters send nothing."""
        return self._set(_wanted=parameters)

    def forget_gradients(self) -> None:
        """By ``zero_grad``."""
        self.zero_grad()
