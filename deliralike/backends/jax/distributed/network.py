"""A network of JAX that trains in several processes.

The processes exchange gradients and losses on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import numpy as np
from flax import nnx

from deliralike import nest
from deliralike.backends.jax import arrays
from deliralike.backends.jax.optimizer import JaxOptimizer
from deliralike.backends.jax.replicas.network import (
    DataParallelJaxNetwork,
    JaxReplicas,
    RefusingRendezvous,
)
from deliralike.errors import CapabilityError
from deliralike.optim.loss import Loss, LossResult, nonzero
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.batches.scatter import Shares
from deliralike.parallel.processes.loss_exchange import LossExchange
from deliralike.parallel.processes.network import (
    BY_AN_OPTIMIZER,
    DistributedNetwork,
    ReplicasOverProcesses,
)
from deliralike.parallel.replicas.context import Replica, entered


class JaxReplicasOverProcesses(ReplicasOverProcesses, JaxReplicas):
    """The computations of a network of JAX in several processes."""

    def scatter(self, arguments: Any, loss: Loss | None = None) -> Shares:
        """Return this process's share; `Shares.sizes` are those of all processes.

        Raises:
            CapabilityError: A batch norm of flax's own is to take the statistics of all shares. All
                processes raise.
        """
        network = self.network
        shares = super().scatter(arguments, loss)
        if (
            network.settings.buffers == "sync"
            and sum(size > 0 for size in shares.sizes) > 1
        ):
            for path, block in network.root.named_blocks():
                if isinstance(block, nnx.BatchNorm):
                    name = path or "the network"
                    topic = f"{name} (flax.nnx.BatchNorm): batch statistics"
                    _IN_PROGRAM.exchange(0, topic, None)
        return shares

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The outputs of this process's share, or of the whole batch."""
        if self.network.training:
            self.network.refuse_programs((args, kwargs))
        return self.network.without_gradients(super().call(args, kwargs))

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """The loss of the whole batch; in evaluation, that of its own batch."""
        if self.network.training:
            self.network.refuse_programs(batch)
        return self.network.without_gradients(super().compute_loss(loss, *batch))


class DistributedJaxNetwork(DistributedNetwork, DataParallelJaxNetwork):
    """A network of JAX that trains in several processes.

    See `deliralike.parallel.processes.network.DistributedNetwork`.

    A step is one compiled program for each process's share, then gradients and losses are added on
    the host. Nothing is exchanged within a program, so batch normalisation takes the statistics of
    each share (``buffers="root"`` or ``"mean"``); with those of the whole batch it is an error.
    Gradients are taken by an optimizer over it: those of a program of the user's own would be this
    process's alone, and are an error.
    """

    _parallelism = JaxReplicasOverProcesses

    def refuse_programs(self, arguments: Any) -> None:
        """Refuse to compute inside of a program of the user's.

        Raises:
            CapabilityError: Such a program calls the network: processes exchange nothing while it
                runs.
        """
        if self._is_outermost and not self._is_concrete(arguments):
            raise CapabilityError(
                f"a network in several processes cannot run inside your jit or grad, whose arrays "
                f"are those of one process: {BY_AN_OPTIMIZER}, or call it outside of them"
            )

    def without_gradients(self, outputs: Any) -> Any:
        """Outputs whose gradients are an error: they would be those of one process."""
        if self._is_outermost:
            return nest.map(_without_gradient, outputs)
        return outputs

    @property
    def _is_outermost(self) -> bool:
        """Whether no program of an optimizer's runs, and processes exchange losses."""
        return self._inside is None and self._process_state.weighs


def _without_gradient(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array) and arrays.is_floating(leaf.dtype):
        return _identity(leaf)
    return leaf


@jax.custom_jvp
def _identity(value: jax.Array) -> jax.Array:
    return value


@_identity.defjvp
def _refuse_gradient(values: tuple, tangents: tuple) -> NoReturn:
    raise CapabilityError(
        "gradients that you take of a network in several processes are those of one process: "
        f"{BY_AN_OPTIMIZER}"
    )


_IN_PROGRAM = RefusingRendezvous(
    "several processes: backend 'jax' exchanges nothing within a compiled program: "
    "DistributedDataParallel(..., buffers='root') takes the statistics of each share; processes of "
    "deliralike.join('jax') compute together, and take those of the whole batch"
)


@dataclass(frozen=True)
class _ShareLoss:
    """A loss on one process's share, as one compiled program: equal ones share it.

    Attributes:
        loss: The loss in replicas.
        sizes: The samples of all processes that have any.
        index: The number of this process among them.
        device, synchronised: See `Replica`.
    """

    loss: Loss
    sizes: tuple[int, ...]
    index: int
    device: str
    synchronised: bool

    def __call__(self, network: Any, *share: Any) -> tuple:
        """Return the loss, its denominator or None, and the extras.

        A loss without a denominator is weighted by the share.
        """
        replica = Replica(
            self.index,
            self.device,
            self.sizes,
            _IN_PROGRAM,
            _IN_PROGRAM.all_sum,
            self.synchronised,
        )
        with entered(replica):
            part = self.loss.parts(self.loss.compute(network.root, *share))
        if self.loss.reduction == "denominator":
            return part.value, part.denominator, part.extras
        weight = self.loss.weights(self.sizes)[self.index]
        return part.value * weight, part.denominator, part.extras


class DistributedJaxOptimizer(JaxOptimizer):
    """The optimizer of a network of JAX that trains in several processes.

    A step is a program on the process's own share, then the hooks, then the update.
    """

    network: DistributedJaxNetwork

    def update_at_once(self, loss_function, batch):
        """Make one step: gradients, pre-update hooks, update, post-update hooks."""
        return AbstractOptimizer.update_at_once(self, loss_function, batch)

    def gradients(self, loss_function, *batch):
        """Return this process's part of the loss and of the gradients.

        The first hook adds the parts of all processes.
        """
        network, parallelism = self.network, self.network.parallelism
        shares = parallelism.scatter(batch, loss_function)
        parallelism.prepare_run()
        value, denominator, extras = 0.0, None, None
        gradients: dict[str, Any] = dict.fromkeys(self._programs.variables().parameters)
        if shares.nests:
            replica = parallelism.replica_context(
                0, shares, parallelism.rendezvous(shares), 0, in_threads=True
            )
            loss = _ShareLoss(
                loss_function,
                replica.sizes,
                replica.index,
                replica.device,
                replica.synchronised,
            )
            (value, denominator, extras), gradients = super().gradients(
                loss, *shares.nests[0]
            )
        own = network.backend.number(value)
        if loss_function.reduction == "denominator":
            denominator = self._total_denominator(denominator)
            divisor = loss_function.divisor or nonzero(denominator)
            own, gradients = own / divisor, self._divide(gradients, divisor)
        exchange = LossExchange(network, shares)
        if sum(shares.sizes):
            exchange.send(LossResult(own, extras, denominator))
        result = exchange.finish()
        total = np.asarray(result.value, network.dtype_name)
        whole = network.backend.array(total, device=network.device_name)
        return loss_function.result(result.with_value(whole)), gradients

    def _total_denominator(self, denominator: Any) -> float:
        """The sum of the processes' denominators; None counts as nothing."""
        own = 0.0
        if denominator is not None:
            own = float(self.network.backend.to_numpy(denominator))
        group = self.network.parallelism.batch_group
        return sum(group.all_gather_object("the loss's denominator", own))

    def _divide(self, gradients: dict[str, Any], divisor: float) -> dict[str, Any]:
        present = {name: each for name, each in gradients.items() if each is not None}
        quotients = self.network.backend.weighted([*present.values()], 1.0 / divisor)
        return gradients | dict(zip(present, quotients, strict=True))
