"""A network of JAX that trains in several processes as one SPMD program.

The compiled program runs over the devices of all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import jax
import numpy as np

from deliralike import nest
from deliralike.backends.jax import random
from deliralike.backends.jax.compiled.program import packed, ran, taken_apart, unpacked, where
from deliralike.backends.jax.distributed.mesh import ProcessMesh
from deliralike.backends.jax.distributed.network import (
    DistributedJaxNetwork,
    JaxReplicasOverProcesses,
)
from deliralike.backends.jax.distributed.rows import Described, OfAll, Rows, described
from deliralike.backends.jax.optimizer import JaxOptimizer
from deliralike.errors import BatchError, CapabilityError, ProcessError, SettingError
from deliralike.network.anomalies import Anomalies
from deliralike.network.base import AbstractNetwork
from deliralike.network.parallelism import Hooks
from deliralike.optim.loss import Loss, LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.averaging.local_sgd import LocalSGD
from deliralike.parallel.batches.scatter import samples_of_leaves, split_batch
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.network import ReplicaSettings


class JaxSpmd(JaxReplicasOverProcesses):
    """How a network of JAX computes whose steps are one program over all processes."""

    def update_hooks(self) -> Hooks:
        """What an optimizer calls: nothing, as gradients are those of the whole batch."""
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
        """Those of the whole batch; gradients of single shares there are none."""
        return replace(super().find_anomalies(loss_function, *batch), of_processes={})

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The outputs of this process's share, or of the whole batch."""
        network = self.network
        if not network.training:
            return network.without_gradients(network.by_itself(*args, **kwargs))
        function, arguments = network.in_program((args, kwargs))
        outputs = network.compute_in_program(function, arguments)
        return outputs if self.state.takes_whole else network.share_of(outputs, function.rows.sizes)

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """The loss of the whole batch, as a number; in evaluation, that of its own batch."""
        network = self.network
        if not network.training:
            return network.without_gradients(loss.whole(network.by_itself, *batch))
        return network.compute_in_program(*network.in_program(batch, loss))


class TogetherJaxNetwork(DistributedJaxNetwork):
    """A network of JAX that trains in several processes as one SPMD program.

    See `deliralike.parallel.processes.network.DistributedNetwork`.

    A step is one program over one device of each process, with the meaning that it has on the whole
    batch: batch normalisation takes the statistics of all samples, flax's own too; there is one
    stream of random numbers; XLA adds the gradients. Shares of different sizes are padded on the
    way in, and the padding is cut off inside. In evaluation a process is by itself.

    Attributes:
        over: The mesh of the processes' devices.
    """

    _parallelism = JaxSpmd
    over: ProcessMesh

    @classmethod
    def joined(
        cls,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
        takes_whole: bool = False,
    ) -> Self:
        """The network in these processes, equal in all of them."""
        made = super().joined(network, settings, processes, takes_whole)
        object.__setattr__(made, "over", ProcessMesh(processes, made.device_name))  # type: ignore[arg-type]
        return made

    def start_equal(self) -> None:
        """Copy the root's weights, buffers and random streams to all processes.

        From here on the random streams are one stream.
        """
        super().start_equal()
        random.follow(
            self, self.processes.broadcast_object("streams of random numbers", random.words(self))
        )

    def in_program(self, arguments: Any, loss: Loss | None = None) -> tuple[OfAll, tuple]:
        """Return a loss or the network as a function of the global batch, and that batch.

        The loss, or the network itself where there is none, sees the batch of all processes.

        Raises:
            ProcessError: The processes' shares do not fit together.
            BatchError: Samples are in a list, and not in an array.
            CapabilityError: The arguments are those of a program of the user's.
        """
        spec, root = self.parallelism.spec_of(loss)
        self.refuse_programs(arguments)
        own, has_samples = self._own(arguments, spec, root)
        leaves, structure = nest.flatten(own)
        counts = samples_of_leaves(arguments, self.settings.dim, spec, self.backend, root)
        dims = self._dims(leaves, counts)
        told = [described(leaf, dim) for leaf, dim in zip(leaves, dims, strict=True)]
        present = (
            leaf.shape[dim] for leaf, dim in zip(leaves, dims, strict=True) if dim is not None
        )
        sizes, wanted = self._agreed(next(present, 0) if has_samples else 0, told)
        rows = Rows(self.over, sizes, dims)
        return OfAll(loss, rows), structure.unflatten(
            rows.joined(leaves, sizes[self.processes.rank], wanted)
        )

    def _own(self, arguments: Any, spec: Any, root: str) -> tuple[Any, bool]:
        """This process's share, or something like one, and whether it has samples."""
        count, rank = (self.processes.count, self.processes.rank) if self.takes_whole else (1, 0)
        shares = split_batch(
            arguments, [self.device_name] * count, self.settings.dim, spec, self.backend, root
        ).nests
        return shares[min(rank, len(shares) - 1)], rank < len(
            shares
        ) and not self._process_state.empty_share

    def _dims(self, leaves: Sequence[Any], counts: Sequence[int | None]) -> tuple[int | None, ...]:
        arrays = [self.backend.is_array(leaf) or isinstance(leaf, np.ndarray) for leaf in leaves]
        if len(leaves) != len(counts) or any(
            count is not None and not is_array
            for count, is_array in zip(counts, arrays, strict=True)
        ):
            raise BatchError(
                "samples that are in a list cannot enter a program over several processes: give "
                "arrays"
            )
        dim = self.settings.dim
        return tuple(
            None if n is None else dim % leaf.ndim for n, leaf in zip(counts, leaves, strict=True)
        )

    def _agreed(self, size: int, told: list[Described]) -> tuple[tuple[int, ...], list[Described]]:
        """Return the samples of each process, and what their batches have in common.

        Only the processes that have samples must agree.
        """
        everyone = self.processes.all_gather_object(
            "a batch, the samples of each share", (size, told)
        )
        present = [(rank, other) for rank, (samples, other) in enumerate(everyone) if samples]
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

    # Outside of an optimizer
    # -----------------------------------------------------------------------------------------

    @property
    def by_itself(self) -> Any:
        """The network as this process has it without the others, for evaluation."""
        return self.root

    def compute_in_program(self, function: OfAll, batch: tuple) -> Any:
        """What a function gives for the batch of all processes, in one program; buffers change."""
        programs, here, taken = self._mirrored().programs, where(), taken_apart(batch)
        members = programs.members()

        def make() -> Callable:
            def run(values: tuple, given: list[Any], numbers: tuple) -> tuple:
                with here.entered(numbers):
                    result, changed = ran(members, function, values, taken.together(given))
                return packed(result), changed

            return self.over.compiled(run)

        program = programs.compiled(("together", function, id(members), taken.key, here.seed), make)
        result, changed = program(members.values(), taken.arrays, here.numbers)
        members.store({}, changed)
        return unpacked(result)

    def share_of(self, outputs: Any, sizes: Sequence[int]) -> Any:
        """This process's samples of outputs for the batch of all processes."""
        begin, total, dim = sum(sizes[: self.processes.rank]), sum(sizes), self.settings.dim

        def leaf(value: Any) -> Any:
            if not isinstance(value, jax.Array) or not value.ndim or value.shape[dim] != total:
                return value
            return jax.lax.slice_in_dim(value, begin, begin + sizes[self.processes.rank], axis=dim)

        return nest.map(leaf, outputs)


class TogetherJaxOptimizer(JaxOptimizer):
    """The optimizer of a network that trains in several processes as one SPMD program.

    Forward, backward, hooks and update are one program.
    """

    network: TogetherJaxNetwork

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

    def through_hooks(self, gradients):
        """Run the pre-update hooks as a program, as within a step.

        The gradients may be sharded over processes.
        """
        members, hooks = self._programs.members(), tuple(self.pre_update_hooks)
        if not hooks:
            return gradients
        key = ("hooks", id(members), hooks)
        program = self._programs.compiled(key, lambda: self._jit(partial(self._hooked, members)))
        found = program(members.values(), gradients)
        return {name: found[name] for name in gradients}  # JAX sorts dicts

    def _jit(self, function: Callable, **options: Any) -> Callable:
        return self.network.over.compiled(function, **options)
