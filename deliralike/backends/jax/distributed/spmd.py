"""A network of JAX that trains in several processes as one SPMD program.

The compiled program runs over the devices of all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from deliralike import nest
from deliralike.backends.jax import random
from deliralike.backends.jax.distributed.mesh import ProcessMesh
from deliralike.backends.jax.distributed.network import (
    DistributedJaxNetwork,
    JaxReplicasOverProcesses,
)
from deliralike.backends.jax.distributed.rows import (
    Description,
    GlobalBatchFunction,
    Rows,
    describe,
)
from deliralike.backends.jax.optimizer import JaxOptimizer
from deliralike.errors import BatchError, CapabilityError, ProcessError, SettingError
from deliralike.network.anomalies import Anomalies
from deliralike.network.base import AbstractNetwork
from deliralike.network.parallelism import Hooks
from deliralike.optim.loss import Loss, LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.averaging.local_sgd import LocalSGD
from deliralike.parallel.batches.scatter import split_batch
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.processes.network import BY_AN_OPTIMIZER
from deliralike.parallel.replicas.network import ReplicaSettings


class JaxSpmdReplicas(JaxReplicasOverProcesses):
    """The computations of a network of JAX whose steps are one program over all processes."""

    def update_hooks(self) -> Hooks:
        """Return no hooks: gradients are those of the whole batch already."""
        return [], []

    def average_by(self, plan: LocalSGD) -> None:
        """Refuse: here processes make their updates together.

        Raises:
            CapabilityError: Always.
        """
        raise CapabilityError(
            "processes that compute together on JAX make every update together: for averaged "
            "parameters, DistributedDataParallel(..., buffers='root', averaging=...)"
        )

    def find_anomalies(self, loss_function: LossFunction, *batch: Any) -> Anomalies:
        """Return the anomalies of the whole batch; there are no gradients of single shares."""
        return replace(super().find_anomalies(loss_function, *batch), of_processes={})

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The outputs for this process's own batch, in evaluation."""
        self._refuse_training()
        return self.network.without_gradients(self.network.root(*args, **kwargs))

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """The loss of this process's own batch, in evaluation."""
        self._refuse_training()
        return self.network.without_gradients(loss.whole(self.network.root, *batch))

    def _refuse_training(self) -> None:
        """Refuse a call in training mode, which would compute on this process's samples alone.

        Raises:
            CapabilityError: The network is in training mode.
        """
        if self.network.training:
            raise CapabilityError(
                "processes that compute together on JAX call a network in training mode within an "
                f"update alone: {BY_AN_OPTIMIZER}, with the call in the loss function"
            )


class SpmdJaxNetwork(DistributedJaxNetwork):
    """A network of JAX that trains in several processes as one SPMD program.

    See `deliralike.parallel.processes.network.DistributedNetwork`.

    A step is one program over one device of each process, with the meaning that it has on the whole
    batch: batch normalisation takes the statistics of all samples, flax's own too; there is one
    stream of random numbers; XLA adds the gradients. Shares of different sizes are padded on the
    way in, and the padding is cut off inside. In evaluation each process computes alone.

    Attributes:
        process_mesh: The mesh of the processes' devices.
    """

    _parallelism = JaxSpmdReplicas
    process_mesh: ProcessMesh

    @classmethod
    def joined(
        cls,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
    ) -> Self:
        """The network in these processes, equal in all of them."""
        joined = super().joined(network, settings, processes)
        mesh = ProcessMesh(processes, joined.device_name)  # type: ignore[arg-type]
        object.__setattr__(joined, "process_mesh", mesh)
        return joined

    def start_equal(self) -> None:
        """Copy the root's weights, buffers and random streams to all processes.

        From here on the random streams are one stream.
        """
        super().start_equal()
        words = self.processes.broadcast_object(
            "streams of random numbers", random.words(self)
        )
        random.follow(self, words)

    def in_program(
        self, arguments: Any, loss: Loss
    ) -> tuple[GlobalBatchFunction, tuple]:
        """Return a loss as a function of the batch of all processes, and that batch.

        Raises:
            ProcessError: The processes' shares do not fit together.
            BatchError: Samples are in a list, and not in an array.
            CapabilityError: The arguments are those of a program of the user's.
        """
        spec, root = self.parallelism.spec_of(loss)
        self.refuse_programs(arguments)
        devices = [self.device_name]
        dim = self.settings.dim
        own = split_batch(arguments, devices, dim, spec, self.backend, root=root)
        leaves, structure = nest.flatten(own.nests[0])
        dims = self._dims(leaves, own.counts)
        size = 0 if self._process_state.empty_share else own.sizes[0]
        sizes, descriptions = self._agree(size, [*map(describe, leaves, dims)])
        rows = Rows(self.process_mesh, sizes, dims)
        joined = rows.join(leaves, sizes[self.processes.rank], descriptions)
        return GlobalBatchFunction(loss, rows), structure.unflatten(joined)

    def _dims(
        self, leaves: Sequence[Any], counts: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        """The axis of each leaf that counts samples; None for a leaf that has none.

        Raises:
            BatchError: Samples are in a list, and not in an array.
        """
        no_array = BatchError(
            "samples that are in a list cannot enter a program over several processes: give arrays"
        )
        if len(leaves) != len(counts):
            raise no_array
        dims: list[int | None] = []
        for leaf, count in zip(leaves, counts, strict=True):
            if count is None:
                dims.append(None)
            elif self.backend.is_array(leaf) or isinstance(leaf, np.ndarray):
                dims.append(self.settings.dim % leaf.ndim)
            else:
                raise no_array
        return tuple(dims)

    def _agree(
        self, size: int, descriptions: list[Description]
    ) -> tuple[tuple[int, ...], list[Description]]:
        """Return the samples of each process, and the descriptions of their batches.

        Only the processes that have samples must agree.

        Raises:
            ProcessError: Their batches differ.
            SettingError: There are no samples.
        """
        everyone = self.processes.all_gather_object(
            "a batch, the samples of each share", (size, descriptions)
        )
        present = [
            (rank, other) for rank, (samples, other) in enumerate(everyone) if samples
        ]
        if not present:
            raise SettingError("no process has a sample in this batch")
        first, wanted = present[0]
        for rank, other in present[1:]:
            if other != wanted:
                raise ProcessError(
                    f"a batch, samples aside, is {wanted} in process {first} and {other} in "
                    f"process {rank}: processes that compute together want arrays of one type and "
                    "shape, and equal numbers and names; DistributedDataParallel(..., "
                    "buffers='root') wants neither"
                )
        return tuple(samples for samples, _ in everyone), wanted


class SpmdJaxOptimizer(JaxOptimizer):
    """The optimizer of a network that trains in several processes as one SPMD program.

    Forward, backward, hooks and update are one program.
    """

    network: SpmdJaxNetwork

    def update_at_once(self, loss_function, batch):
        """Make one step of all processes as one program.

        There are two programs when the gradients are to be kept.
        """
        if self.keep_gradients:
            return AbstractOptimizer.update_at_once(self, loss_function, batch)
        return super().update_at_once(*self.network.in_program(batch, loss_function))

    def gradients(self, loss_function, *batch):
        """The loss and the gradients of the whole batch; buffers change."""
        function, batch = self.network.in_program(batch, loss_function)
        return super().gradients(function, *batch)

    def _jit(self, function: Callable, **options: Any) -> Callable:
        return self.network.process_mesh.compile(function, **options)
