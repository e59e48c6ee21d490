"""The framework-free half of a network that trains in several processes.

Each process has a replica and a share of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from deliralike import random
from deliralike.errors import BatchError, CapabilityError, SettingError
from deliralike.network.anomalies import Anomalies, anomalies_of
from deliralike.network.base import AbstractNetwork
from deliralike.network.parallelism import Hooks, UpdateState
from deliralike.network.state import Slot
from deliralike.optim.loss import Loss, LossFunction, LossResult, as_loss
from deliralike.optim.rules import rule
from deliralike.parallel.averaging.local_sgd import (
    AverageParameters,
    Averaging,
    LocalSGD,
)
from deliralike.parallel.batches.gather import gather
from deliralike.parallel.batches.scatter import Shares, mean_by_samples
from deliralike.parallel.processes.gradient_sums import (
    SumOverProcesses,
    start_equal,
    sum_gradients,
)
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.processes.loss_exchange import LossExchange, digest
from deliralike.parallel.replicas.context import Rendezvous, Replica, current
from deliralike.parallel.replicas.network import (
    Replicas,
    ReplicaSettings,
    ReplicatedNetwork,
    call_with,
)

BY_AN_OPTIMIZER = (
    "make the update by an optimizer over the network, network.backend.wrap_optimizer(optimizer, "
    "network).update(loss_function, *batch)"
)


class RendezvousOfProcesses(Rendezvous):
    """A rendezvous of replicas in different processes; an error ends the process that raises it."""

    def __init__(self, processes: ProcessGroup) -> None:
        """Exchange values over these processes."""
        super().__init__(processes.count)
        self.processes = processes

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """Give a value and wait for the others; return all values in the order of processes."""
        return self.processes.all_gather_object(topic, value)

    def leave(self, index: int) -> None:
        """Do nothing: the other processes do not wait for this one here."""

    def stop(self) -> None:
        """Do nothing: the error that was raised ends this process."""


@dataclass(eq=False)
class ProcessState:
    """The process group of a network, and all flags that change during training.

    The state is compared by identity. So no framework takes a part of it for a part of the network,
    and JAX compiles nothing anew when a flag has changed.

    Attributes:
        processes: The processes that train together.
        averaging: The progress of local updates and averages of parameters; None without them.
        empty_share: Whether this process has no samples at the moment.
        share_sizes: The number of samples of each process at the moment, where all know them.
        syncs: Whether gradients are added over processes.
        weighs: Whether gradients of the user's own backward passes count by samples.
        called: The number of samples of each process in the latest call.
        synchronizes_with_loss: Whether buffers are synchronized together with the loss.
        reduced: The parameters whose gradients the latest backward has added over processes.
    """

    processes: ProcessGroup
    averaging: Averaging | None = None
    empty_share: bool = False
    share_sizes: tuple[int, ...] = ()
    syncs: bool = True
    weighs: bool = True
    called: tuple[int, ...] = ()
    synchronizes_with_loss: bool = False
    reduced: frozenset[str] = frozenset()

    @contextmanager
    def set(self, **values: Any) -> Iterator[None]:
        """Return a block in which attributes have other values."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)


class ReplicasOverProcesses(Replicas):
    """The parallelism of a network that has one replica in every process.

    See `DistributedNetwork`.
    """

    state_class: ClassVar[type[ProcessState]] = ProcessState

    @property
    def state(self) -> Any:
        """The network's `ProcessState`."""
        return self.network._process_state  # noqa: SLF001  # a public name could be a block's

    @property
    def processes(self) -> ProcessGroup:
        """All processes that the network trains in."""
        return self.state.processes

    @property
    def batch_group(self) -> ProcessGroup:
        """The processes whose samples make up the batch of an update.

        They are all processes, unless parameters are averaged.
        """
        averaging = self.state.averaging
        if averaging is None:
            return self.state.processes
        return averaging.batch_group

    @property
    def state_is_collective(self) -> bool:
        """Whether every process makes each call that reads or writes the state of the network."""
        return self.state.averaging is not None

    # Processes may have different parameters until `synchronize` is called.
    updates_locally = state_is_collective

    # Parameters that are averaged
    # ------------------------------------------------------------------------------------

    def average_by(self, plan: LocalSGD) -> None:
        """Let each process update its own parameters, and average them as a plan says.

        Raises:
            SettingError: The plan does not fit the number of processes.
        """
        self.state.averaging = Averaging(plan, self.processes)

    @contextmanager
    def update_context(self, optimizer: UpdateState, loss: Loss) -> Iterator[Loss]:
        """Return a block in which the processes of `batch_group` make an update.

        Raises:
            CapabilityError: Parameters are averaged and the loss is scaled, so that each process
                might leave out other updates.
        """
        loss = self.adapt_loss(loss)
        averaging = self.state.averaging
        if averaging is None:
            yield loss
            return
        if optimizer.loss_scale is not None:
            raise CapabilityError(
                "processes that average their parameters make the same number of updates, and with "
                "float16 each might leave another one out: compute in bfloat16"
            )
        averaging.updates = optimizer.steps
        with random.shifted(averaging.first_sample):
            yield loss

    def synchronize(self) -> None:
        """Average the parameters of all processes if they differ; every process makes the call."""
        averaging = self.state.averaging
        if averaging is not None and averaging.is_behind:
            averaging.average(self.network, self.processes.count)

    # Blocks that change what a process computes
    # ----------------------------------------------------------------------------------------------

    def empty_share(self) -> AbstractContextManager[None]:
        """Return a block in which this process has no samples, whatever batch it is given.

        The process still makes every update, with the gradients of the others.
        """
        return self.state.set(empty_share=True)

    def share_sizes(self, sizes: Sequence[int]) -> AbstractContextManager[None]:
        """Return a block in which each process has as many samples of a batch as `sizes` says.

        Every process says the same of all, and makes as many steps: one that makes more waits until
        the time limit. So they need not ask each other before each step, which takes as long as a
        message does. A process with 0 has none, as in `empty_share`. A trainer with a loader of
        this package says it by itself.

        Raises:
            SettingError: There is not one number for each process, or all are 0.
            BatchError: In the block, this process has another number of samples.
        """
        sizes = tuple(sizes)
        if len(sizes) != self.processes.count or not sum(sizes):
            raise SettingError(
                f"share_sizes={sizes}: wanted the number of samples in each of "
                f"{self.processes.count} processes, at least one in all"
            )
        return self.state.set(
            share_sizes=sizes, empty_share=not sizes[self.processes.rank]
        )

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a block in which backward leaves each process its own gradients.

        The next update adds them.
        """
        return self.state.set(syncs=False)

    def local_gradients(self) -> AbstractContextManager[None]:
        """Return a block in which each process keeps the gradients of its own samples, unscaled."""
        return self.state.set(syncs=False, weighs=False)

    def train_over(self, processes: ProcessGroup) -> None:
        """Train over another process group from now on; parameters and buffers stay as they are."""
        self.state.processes = processes
        self.state.syncs = processes.count > 1

    # Losses
    # ----------------------------------------------------------------------------------------------

    def adapt_loss(self, loss: Loss) -> Loss:
        """Return a loss that each process computes on its share.

        A mean declares what it was divided by, as shares may have other labels that count.

        Raises:
            SettingError: The loss is a sum, and parameters are averaged.
        """
        loss = loss.in_replicas().recorded()
        if self.state.averaging is not None and loss.reduction == "sum":
            raise SettingError(
                "a loss that is a sum over the batch has larger gradients in all processes than "
                "in one: where parameters are averaged, state it as a mean, or with a denominator"
            )
        return loss

    def count_samples(self, batch: Any) -> int:
        """Return the number of samples in the batch of all processes."""
        own = 0 if self.state.empty_share else super().count_samples(batch)
        return sum(self._sizes_of_shares(own, "the samples of a micro-batch"))

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """Return the loss of the whole batch, with the graph of this process's part.

        In evaluation it is the loss of this process's own batch.
        """
        if not self.network.training:
            return loss.whole(self.network.root, *batch)
        return self._compute(loss, _no_backward, batch, detached=False)

    def forward_backward(
        self, loss: Loss, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Run forward and backward on this process's share of the batch.

        The gradients of all processes add up to the batch's.
        """
        return self._compute(loss, backward, batch, detached=True)

    def _compute(
        self,
        loss: Loss,
        backward: Callable[[Any], None],
        batch: tuple[Any, ...],
        detached: bool,
    ) -> Any:
        network = self.network
        shares = self.scatter(batch, loss)
        self.state.called = shares.sizes
        reduces_in_backward = detached and self.reduces(shares.sizes)
        self.state.reduced = frozenset()
        is_carried = reduces_in_backward and self.carries_loss()
        exchange = LossExchange(network, shares, is_carried)

        def forward(replica: Any, share: Any) -> Any:
            part = self.compute_part(loss, replica, share)
            exchange.begin(part)
            return part.value

        def forward_backward(replica: Any, share: Any) -> Any:
            if reduces_in_backward:
                return self.reduce(partial(forward, replica), share, backward, exchange)
            value = forward(replica, share)
            backward(value)
            return value

        if not shares.nests:
            self.take_part(loss, backward, batch, exchange.begin)
        values = []
        if sum(shares.sizes):
            with self.state.set(synchronizes_with_loss=True):
                values = self.run(forward_backward, shares, in_threads=True)
        result = exchange.finish()
        if not values or detached:
            total = np.asarray(result.value, network.dtype_name)
            value = network.backend.array(total, device=network.device_name)
        else:  # the graph of this process's part, with the value of the whole loss
            value = values[0] + (result.value - exchange.own)
        return loss.result(result.with_value(value))

    def take_part(
        self,
        loss: Loss,
        backward: Callable[[Any], None],
        batch: tuple[Any, ...],
        begin_exchange: Callable[[], None],
    ) -> None:
        """Do what a process without samples has to do while the others compute: nothing.

        Args:
            begin_exchange: Called between forward and backward, where the others begin to send
                their loss.
        """

    def combine_losses(
        self, parts: Sequence[LossResult], sizes: Sequence[int]
    ) -> LossResult:
        """Return the loss of the whole batch from the parts of all processes with samples."""
        averaging = self.state.averaging
        denominator = parts[0].denominator
        if averaging is not None:
            averaging.add_weight(
                sum(sizes) if denominator is None else float(denominator)
            )
        total = sum(part.value for part in parts)
        extras = self.join_extras([part.extras for part in parts], sizes)
        return LossResult(total, extras, denominator)

    def join_extras(self, extras: Sequence[Any], sizes: Sequence[int]) -> Any:
        """Return what the loss function gave beside the loss in all processes, as NumPy arrays."""
        if extras[0] is None:
            return None
        settings = self.network.settings
        return gather(
            extras,
            settings.dim,
            scalars=settings.scalars,
            others=settings.others,
            sizes=[size for size in sizes if size],
        )

    def find_anomalies(self, loss_function: LossFunction, *batch: Any) -> Anomalies:
        """Return the anomalies of the whole batch and of each share, the same in all processes."""
        backend = self.network.backend
        # The optimizer only computes gradients; it makes no update.
        optimizer = backend.optimizer(rule("sgd", lr=1.0), self.network)
        with self.no_sync():
            loss = self.adapt_loss(as_loss(loss_function))
            _, gradients = optimizer.gradients(loss, *optimizer.prepared(batch))
        on_host: dict[str, np.ndarray | None] = {}
        for name, gradient in gradients.items():
            on_host[name] = None if gradient is None else backend.numpy(gradient)
        self.forget_gradients()
        has_samples = any(gradient is not None for gradient in on_host.values())
        own = anomalies_of(on_host) if has_samples else None
        by_rank = {}
        for rank, anomalies in enumerate(
            self.processes.all_gather_object("anomalies", own)
        ):
            if anomalies is not None:
                by_rank[rank] = anomalies
        return Anomalies.of_shares(by_rank)

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the outputs of this process's share."""
        network = self.network
        if not network.training or current() is not None:
            # In evaluation processes do not exchange the sizes of their shares.
            self.state.called = (1,) * self.processes.count
            return network.root(*args, **kwargs)
        shares = self.scatter((args, kwargs))
        self.state.called = shares.sizes
        outputs = self.run(call_with, shares)
        return outputs[0] if outputs else None

    def scatter(self, arguments: Any, loss: Loss | None = None) -> Shares:
        """Return this process's share, with the sizes of the shares of all processes.

        Raises:
            SettingError: No process has samples.
        """
        shares = super().scatter(arguments, loss)
        own = 0 if self.state.empty_share else shares.sizes[0]
        sizes = self._sizes_of_shares(own, "a batch, the samples of each share")
        if not sum(sizes) and self.batch_group is self.processes:
            raise SettingError("no process has a sample in this batch")
        return Shares(shares.nests if own else [], sizes)

    def _sizes_of_shares(self, own: int, topic: str) -> tuple[int, ...]:
        """Return the number of samples of each process: as is known, or by asking.

        Raises:
            BatchError: This process has another number than is known.
        """
        known = self.state.share_sizes
        group = self.batch_group
        if not known or group is not self.processes:
            return tuple(group.all_gather_object(topic, own))
        if known[group.rank] != own:
            raise BatchError(
                f"process {group.rank} has {own} samples in a block of share_sizes({known}), "
                f"wanted {known[group.rank]}: every process must say what each of them has"
            )
        return known

    def local_sizes(self, shares: Shares) -> tuple[int, ...]:
        """Return the number of samples in this process's share, if it has one."""
        return (shares.sizes[self.batch_group.rank],) * len(shares.nests)

    def rendezvous(self, shares: Shares) -> Rendezvous:
        """Return a rendezvous of the processes that have samples."""
        ranks = [rank for rank, size in enumerate(shares.sizes) if size]
        return RendezvousOfProcesses(self.batch_group.subgroup(ranks))

    def replica_context(
        self,
        position: int,
        shares: Shares,
        rendezvous: Rendezvous,
        seed: int,
        in_threads: bool,
    ) -> Replica:
        """Return the context of this process's replica among those that have samples."""
        earlier = shares.sizes[: self.batch_group.rank]
        index = len([size for size in earlier if size])
        context = super().replica_context(
            position, shares, rendezvous, seed, in_threads
        )
        return replace(
            context,
            index=index,
            sizes=tuple(size for size in shares.sizes if size),
            # Backward runs in each process, as it does in threads.
            all_sum=self.all_sum(index, rendezvous, in_threads=True),
        )

    # Buffers
    # ----------------------------------------------------------------------------------------------

    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Make the buffers of all processes the same after a run in training.

        `ReplicaSettings.buffers` says how.
        """
        if not sum(sizes) or self.state.synchronizes_with_loss:
            return
        buffers = self.buffer_slots()
        if buffers:
            digests = self.batch_group.all_gather_object(
                "a digest of the buffers", digest(buffers)
            )
            self.synchronize_differing(buffers, digests, sizes)

    def buffer_slots(self) -> dict[str, Slot]:
        """Return the buffers that training may have changed."""
        if not self.network.training:
            return {}
        slots = self.network.root.neutral_slots()
        return {name: slot for name, slot in slots.items() if not slot.is_parameter}

    def synchronize_differing(
        self,
        buffers: Mapping[str, Slot],
        digests: Sequence[bytes],
        sizes: Sequence[int],
    ) -> None:
        """Make buffers the same in all processes, unless they are so already.

        They are where statistics are synchronised.

        Args:
            digests: The digest of each process's buffers.
        """
        are_equal = all(sizes) and len({*digests}) == 1
        if are_equal or not buffers:
            return
        source = next(rank for rank, size in enumerate(sizes) if size)
        own = [slot.read() for slot in buffers.values()]
        if self.settings.buffers == "mean":
            of_all = self.batch_group.all_gather_object("buffers", own)
            synchronized = _means(of_all, source, sizes)
        else:
            synchronized = self.batch_group.broadcast(own, source)
        for slot, before, value in zip(
            buffers.values(), own, synchronized, strict=True
        ):
            if not np.array_equal(value, before, equal_nan=True):
                slot.write(value)

    # Updates
    # ----------------------------------------------------------------------------------------------

    def update_hooks(self) -> Hooks:
        """Return the hooks of an update: one that adds gradients, and one that averages parameters.

        The latter is there only where parameters are averaged.
        """
        before = [SumOverProcesses(self.network)]
        if self.state.averaging is None:
            return before, []
        return before, [AverageParameters(self.network)]

    # Gradients that are added during backward
    # ----------------------------------------------------------------------------------------------

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Let the framework's own engine all-reduce gradients while backward goes on.

        It does so where all processes have samples.

        Raises:
            CapabilityError: The backend has no such engine, or another engine connects these
                processes.
        """
        raise CapabilityError(
            f"backend {self.network.backend.name!r} adds the gradients of processes after backward"
        )

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Return whether the next backward pass itself adds the gradients of all processes."""
        return False

    def carries_loss(self) -> bool:
        """Return whether the backward pass that adds gradients adds the parts of the loss, too."""
        return False

    def reduce(
        self,
        part: Callable[[Any], Any],
        share: Any,
        backward: Callable[[Any], None],
        exchange: LossExchange,
    ) -> Any:
        """Return this process's part of a loss, after a backward pass.

        The backward pass all-reduces the gradients over all processes.

        Args:
            part: Computes the part of the loss from the share.
            exchange: The exchange of the loss, which takes the sum where backward carries it.

        Raises:
            NotImplementedError: The backend adds gradients after backward.
        """
        raise NotImplementedError

    def take_reduced(self) -> frozenset[str]:
        """Return the parameters whose gradients the latest backward has added, and forget them."""
        names = self.state.reduced
        self.state.reduced = frozenset()
        return names

    # Backward passes of a loop without an optimizer of this package
    # ----------------------------------------------------------------------------------------------

    def own_weight(self) -> float:
        """Return the weight of this process's gradients in the mean over processes.

        The gradients are those of a backward pass after the latest call.

        Raises:
            CapabilityError: Such a pass cannot give all processes the same update.
        """
        sizes = self.state.called
        if self.state.averaging is not None:
            raise CapabilityError(
                "a backward pass of your own, where parameters are averaged every few updates, "
                f"which only an optimizer counts: {BY_AN_OPTIMIZER}"
            )
        if 0 in sizes:
            raise CapabilityError(
                f"a backward pass of your own, and process {sizes.index(0)} has no samples in it, "
                f"so that it would miss the update: {BY_AN_OPTIMIZER}"
            )
        return sizes[self.processes.rank] * len(sizes) / sum(sizes)

    def weight_of_part(self) -> float:
        """Return the weight of this process's gradients where each process has a part of the loss.

        The parts add up, while processes take the mean: so the weight is their number.

        Raises:
            CapabilityError: As in `own_weight`.
        """
        self.own_weight()
        return float(self.processes.count)

    def mean_gradients(self, gradients: dict[str, Any]) -> dict[str, Any]:
        """Return the means over processes of the gradients of the user's own backward pass."""
        weight = 1 / self.processes.count
        return sum_gradients(self.network, self.batch_group, gradients, weight)


class DistributedNetwork(ReplicatedNetwork):
    """A network of which every process has a replica, and sees its own share of each batch.

    A process calls the network with its share. A loss is that of the whole batch: each share counts
    by its samples, or by the denominator that the loss declares; so shares may be of any size. In
    evaluation processes do not exchange anything: the network is the plain one.

    Attributes:
        processes: The processes that train together.
    """

    _parallelism: ClassVar[type[ReplicasOverProcesses]] = ReplicasOverProcesses  # type: ignore[type-abstract]
    _process_state: ProcessState

    @property
    def processes(self) -> ProcessGroup:
        """The processes that train together."""
        return self._process_state.processes

    @classmethod
    def joined(
        cls,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
    ) -> Self:
        """Return the network in these processes, equal in all of them."""
        distributed = cls.of(network, settings)  # type: ignore[attr-defined]
        state = distributed.parallelism.state_class(processes)
        # Past the framework's own __setattr__, which might register it as a part of the network.
        object.__setattr__(distributed, "_process_state", state)
        distributed.start_equal()
        return distributed

    def start_equal(self) -> None:
        """Load the weights and buffers of the root process; no random state changes."""
        start_equal(self.root, self.processes)

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation mode; in evaluation all processes have the same parameters."""
        if not mode:
            self.parallelism.synchronize()
        return super().train(mode)

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return the root's state, equal in all processes.

        Where parameters are averaged, every process makes the call.
        """
        self.parallelism.synchronize()
        return super().neutral_state()

    def empty_share(self) -> AbstractContextManager[None]:
        """Return a block in which this process has no samples, whatever batch it is given.

        The process still makes every update, with the gradients of the others.
        """
        return self.parallelism.empty_share()

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a block in which backward leaves each process its own gradients.

        An optimizer adds them at its next update. The name is that of PyTorch's
        ``DistributedDataParallel.no_sync``.
        """
        return self.parallelism.no_sync()


def _no_backward(value: Any) -> None:
    """Compute no gradients."""


def _means(
    buffers: Sequence[Sequence[np.ndarray]], source: int, sizes: Sequence[int]
) -> list[np.ndarray]:
    """Return the means of buffers, weighed by samples; those of whole numbers are `source`'s.

    Args:
        buffers: The buffers of each process.
    """
    means = []
    for values, own in zip(zip(*buffers, strict=True), buffers[source], strict=True):
        has_mean = own.dtype.kind in "fc"
        means.append(mean_by_samples(values, sizes) if has_mean else own)
    return means
