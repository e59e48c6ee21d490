"""The framework-free half of a network that trains in several processes.

Each process has a replica and a share of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from deliralike import random
from deliralike.errors import CapabilityError, SettingError
from deliralike.network.anomalies import Anomalies, anomalies_of
from deliralike.network.base import AbstractNetwork
from deliralike.network.parallelism import Hooks, UpdateState
from deliralike.network.state import Slot
from deliralike.optim.loss import Loss, LossFunction, LossResult, as_loss
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import rule
from deliralike.parallel.averaging.local_sgd import AverageParameters, Averaging, LocalSGD
from deliralike.parallel.batches.gather import gather
from deliralike.parallel.batches.scatter import Shares, split_batch
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.processes.loss_exchange import LossExchange, digest, present
from deliralike.parallel.replicas.context import Replica, current
from deliralike.parallel.replicas.network import (
    Replicas,
    ReplicaSettings,
    ReplicatedNetwork,
    call_with,
)
from deliralike.parallel.replicas.rendezvous import Rendezvous

BY_AN_OPTIMIZER = (
    "make the update by an optimizer over the network, network.backend.wrap_optimizer(optimizer, "
    "network).update(loss_function, *batch)"
)


class RendezvousOfProcesses(Rendezvous):
    """Where the replicas of different processes exchange values; whoever fails ends its process."""

    def __init__(self, processes: ProcessGroup) -> None:
        """Meet over these processes."""
        super().__init__(processes.count)
        self.processes = processes

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """Give a value and wait for the others'; the values in the order of processes."""
        return self.processes.all_gather_object(topic, value)

    def leave(self, index: int) -> None:
        """Nothing: the other processes do not wait for it here."""

    def stop(self) -> None:
        """Nothing: the error that was raised ends this process."""


class SumOverProcesses:
    """Pre-update hook: the gradients of all processes, added, in every process.

    A parameter that took no part in some of the processes counts as zero there; one that took no
    part in any keeps None and is left alone by the update.
    """

    def __init__(self, network: AbstractNetwork) -> None:
        """Add for this network."""
        self.network: Any = network

    def __call__(self, optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        """The gradients of the whole batch."""
        parallelism = self.network.parallelism
        if parallelism.batch_group.count == 1:
            return gradients
        reduced = parallelism.take_reduced()
        left = {name: gradient for name, gradient in gradients.items() if name not in reduced}
        return gradients | self.sums(left) if left or not reduced else gradients

    def sums(self, gradients: dict[str, Any], weight: float = 1.0) -> dict[str, Any]:
        """The sums over processes; this one's gradients count by a weight."""
        backend, device = self.network.backend, self.network.device_name
        arrays = [self._on_host(name, gradient) for name, gradient in gradients.items()]
        if weight != 1.0:
            arrays = [array * array.dtype.type(weight) for array in arrays]
        # how many processes have each gradient goes along in the same message
        counts = np.array(
            [gradient is not None for gradient in gradients.values()],
            arrays[0].dtype if arrays else None,
        )
        *sums, parts = self.network.parallelism.batch_group.all_reduce(
            "gradients", [*arrays, counts]
        )
        return {
            name: backend.array(total, device=device) if part else None
            for name, total, part in zip(gradients, sums, parts, strict=True)
        }

    def _on_host(self, name: str, gradient: Any) -> np.ndarray:
        if gradient is not None:
            return self.network.backend.numpy(gradient)
        slot = self.network.neutral_slots()[name]
        return np.zeros_like(self.network.backend.numpy(slot.native))


@dataclass(eq=False)
class ProcessState:
    """ProcessState holds what a network over processes has beside its weights.

    That is its processes, and how far each thing is.

    One object holds everything that changes, and is compared by identity. So no framework takes a
    part of it for a part of the network, and JAX compiles nothing anew because a flag has changed.

    Attributes:
        processes: The processes that train together.
        takes_whole: Whether every process is called with the whole batch.
        averaging: How the processes train by themselves and average their parameters, if they do.
        empty_share: Whether this process has no samples at the moment.
        syncs: Whether gradients are added over processes.
        weighs: Whether gradients of the user's own backward passes count by samples.
        called: The samples of each process in the latest call.
        synchronizes_with_loss: Whether buffers are synchronized together with the loss.
        reduced: The parameters whose gradients the latest backward has added over processes.
    """

    processes: ProcessGroup
    takes_whole: bool = False
    averaging: Averaging | None = None
    empty_share: bool = False
    syncs: bool = True
    weighs: bool = True
    called: tuple[int, ...] = ()
    synchronizes_with_loss: bool = False
    reduced: frozenset[str] = frozenset()

    @contextmanager
    def set(self, **values: Any) -> Iterator[None]:
        """A block in which attributes have other values."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)


class ReplicasOverProcesses(Replicas):
    """How a network computes of which every process has a replica; see `DistributedNetwork`."""

    state_class: ClassVar[type[ProcessState]] = ProcessState

    @property
    def state(self) -> Any:
        """What the network holds for this object."""
        return self.network._process_state

    @property
    def processes(self) -> ProcessGroup:
        """All processes that the network trains in."""
        return self.state.processes

    @property
    def batch_group(self) -> ProcessGroup:
        """Return the processes whose samples make up the batch of an update.

        They are all processes, unless parameters are averaged.
        """
        averaging = self.state.averaging
        return self.state.processes if averaging is None else averaging.batch_group

    @property
    def state_is_collective(self) -> bool:
        """Whether every process makes each call that reads or writes the state of the network."""
        return self.state.averaging is not None

    @property
    def updates_locally(self) -> bool:
        """Return whether processes may have different parameters between updates.

        They may differ until `synchronize` is called.
        """
        return self.state.averaging is not None

    # Parameters that are averaged
    # ------------------------------------------------------------------------------------

    def average_by(self, plan: LocalSGD) -> None:
        """Let each process update its parameters by itself, and average them by a plan.

        Each process trains by itself for a while between two averages.

        Raises:
            SettingError: The plan does not fit the number of processes, or the processes take
                shares of whole batches.
        """
        if self.state.takes_whole:
            raise SettingError(
                "takes_whole gives each process the outputs of all at every call: it needs no "
                "averaging"
            )
        self.state.averaging = Averaging(plan, self.processes)

    def update_context(self, optimizer: UpdateState) -> AbstractContextManager[None]:
        """A block with an update by all processes, or by those that make it together.

        Raises:
            CapabilityError: The loss is scaled, so that each process might leave other updates out.
        """
        averaging = self.state.averaging
        if averaging is None:
            return super().update_context(optimizer)
        if optimizer.loss_scale is not None:
            raise CapabilityError(
                "processes that average their parameters make the same number of updates, and with "
                "float16 each might leave another one out: compute in bfloat16"
            )
        averaging.updates = optimizer.steps
        return random.shifted(averaging.first_sample)

    def synchronize(self) -> None:
        """Average the parameters of all processes if they differ; every process makes the call."""
        averaging = self.state.averaging
        if averaging is not None and averaging.is_behind:
            averaging.average(self.network, self.processes.count)

    # Blocks in which a process computes otherwise
    # --------------------------------------------------------------------

    def empty_share(self) -> AbstractContextManager[None]:
        """A block in which this process has no samples: what it is called with does not count.

        The process still makes every update, with the gradients of the others.
        """
        return self.state.set(empty_share=True)

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a block in which backward leaves each process its own gradients.

        The next update adds them.
        """
        return self.state.set(syncs=False)

    def local_gradients(self) -> AbstractContextManager[None]:
        """Return a block in which gradients are those of the samples of this process.

        Nothing is done to them.
        """
        return self.state.set(syncs=False, weighs=False)

    def train_over(self, processes: ProcessGroup) -> None:
        """Train over another process group from now on, or alone.

        What each process has stays as it is.
        """
        self.state.processes = processes
        self.state.syncs = processes.count > 1

    # Losses
    # ----------------------------------------------------------------------------------------------

    def adapt_loss(self, loss: Loss) -> Loss:
        """Return a loss that each process computes on its share.

        A loss that declares nothing is a mean over samples.

        Raises:
            SettingError: The loss is a sum, and parameters are averaged.
        """
        loss = loss.in_replicas()
        if self.state.averaging is not None and loss.reduction == "sum":
            raise SettingError(
                "a loss that is a sum over the batch has larger gradients in all processes than "
                "in one: where parameters are averaged, state it as a mean, or with a denominator"
            )
        return loss

    def count_samples(self, batch: Any) -> int:
        """The number of samples in the batch of all processes."""
        if self.state.takes_whole:
            return super().count_samples(batch)
        own = 0 if self.state.empty_share else super().count_samples(batch)
        return sum(self.batch_group.all_gather_object("the samples of a micro-batch", own))

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """Return the loss of the whole batch, with the graph of this process's part.

        In evaluation it is the loss of this process's own batch.
        """
        if not self.network.training:
            return loss.whole(self.network.root, *batch)
        return self._compute(loss, lambda value: None, batch, detached=False)

    def forward_backward(self, loss: Loss, backward: Callable[[Any], None], *batch: Any) -> Any:
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
        self.note_call(shares.sizes)
        reduces = detached and self.reduces(shares.sizes)
        self.state.reduced = frozenset()
        exchange = LossExchange(network, shares)

        def part(replica: Any, share: Any) -> Any:
            own = self.compute_part(loss, replica, share)
            exchange.begin(own)
            return own.value

        def one_share(replica: Any, share: Any) -> Any:
            if reduces:
                return self.reduce(partial(part, replica), share, backward)
            weighted = part(replica, share)
            backward(weighted)
            return weighted

        if not shares.nests:
            self.take_part(loss, backward, batch, exchange.begin)
        values = []
        if sum(shares.sizes):
            with self.state.set(synchronizes_with_loss=True):
                values = self.run(one_share, shares, in_threads=True)
        result = exchange.finish()
        if not values or detached:
            total = np.asarray(result.value, network.dtype_name)
            whole = network.backend.array(total, device=network.device_name)
        else:  # the graph of the own part, and the number of all
            whole = values[0] + (result.value - exchange.own)
        return loss.result(result.with_value(whole))

    def take_part(
        self,
        loss: Loss,
        backward: Callable[[Any], None],
        batch: tuple[Any, ...],
        tell: Callable[[], None],
    ) -> None:
        """What a process without samples does while the others compute: nothing.

        Args:
            tell: Called between forward and backward, where the others begin to tell their loss.
        """

    def combine_losses(self, parts: Sequence[LossResult], sizes: Sequence[int]) -> LossResult:
        """The loss of the whole batch, from the parts of all processes that have samples."""
        averaging, denominator = self.state.averaging, parts[0].denominator
        if averaging is not None:
            averaging.add_weight(sum(sizes) if denominator is None else float(denominator))
        total = sum(part.value for part in parts)
        extras = self.join_extras([part.extras for part in parts], sizes)
        return LossResult(total, extras, denominator)

    def join_extras(self, extras: Sequence[Any], sizes: Sequence[int]) -> Any:
        """What the loss function gave beside the loss in all processes, as NumPy arrays."""
        if extras[0] is None:
            return None
        settings = self.network.settings
        sizes = [size for size in sizes if size]
        return gather(
            extras, settings.dim, scalars=settings.scalars, others=settings.others, sizes=sizes
        )

    def find_anomalies(self, loss_function: LossFunction, *batch: Any) -> Anomalies:
        """Those of the whole batch, and of each process's share; the same in all processes."""
        backend = self.network.backend
        optimizer = backend.optimizer(
            rule("sgd", lr=1.0), self.network
        )  # of which only the gradients are wanted
        with self.no_sync():
            loss = self.adapt_loss(as_loss(loss_function))
            _, gradients = optimizer.gradients(loss, *optimizer.prepared(batch))
        on_host = {
            name: None if each is None else backend.numpy(each) for name, each in gradients.items()
        }
        self.forget_gradients()
        has_samples = any(each is not None for each in on_host.values())
        everyone = self.processes.all_gather_object(
            "anomalies", anomalies_of(on_host) if has_samples else None
        )
        return Anomalies.of_shares(
            {rank: each for rank, each in enumerate(everyone) if each is not None}
        )

    def forget_gradients(self) -> None:
        """Drop the gradients that backward has left in the parameters.

        It applies where the framework keeps them there.
        """

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The outputs of this process's share, or of the whole batch."""
        network = self.network
        if not network.training or current() is not None:
            self.note_call(
                (1,) * self.processes.count
            )  # in evaluation nobody tells the others of its share
            return network.root(*args, **kwargs)
        shares = self.scatter((args, kwargs))
        self.note_call(shares.sizes)
        outputs = self.run(call_with, shares)
        own = outputs[0] if outputs else None
        if not self.state.takes_whole:
            return own
        everyone = self.processes.all_gather_object("outputs", network.backend.to_numpy(own))
        joined = self.join_extras(present(everyone, shares.sizes), shares.sizes)
        return network.backend.prepare(joined, network)

    def scatter(self, arguments: Any, loss: Loss | None = None) -> Shares:
        """This process's share; `Shares.sizes` are those of all processes."""
        if self.state.takes_whole:
            return self._own_of_whole(arguments, loss)
        shares = super().scatter(arguments, loss)
        group = self.batch_group
        own = 0 if self.state.empty_share else shares.sizes[0]
        sizes = tuple(group.all_gather_object("a batch, the samples of each share", own))
        if not sum(sizes) and group is self.processes:
            raise SettingError("no process has a sample in this batch")
        return Shares(shares.nests if own else [], sizes)

    def _own_of_whole(self, arguments: Any, loss: Loss | None) -> Shares:
        spec, root = self.spec_of(loss)
        count, rank = self.processes.count, self.processes.rank
        devices, dim = [self.network.device_name] * count, self.settings.dim
        everyone = split_batch(arguments, devices, dim, spec, self.network.backend, root)
        sizes = everyone.sizes + (0,) * (count - len(everyone.sizes))
        return Shares(everyone.nests[rank : rank + 1], sizes)

    def local_sizes(self, shares: Shares) -> tuple[int, ...]:
        """The samples of this process's share, if it has one."""
        return tuple(shares.sizes[self.batch_group.rank] for _ in shares.nests)

    def rendezvous(self, shares: Shares) -> Rendezvous:
        """The processes that have samples."""
        return RendezvousOfProcesses(
            self.batch_group.subgroup([rank for rank, size in enumerate(shares.sizes) if size])
        )

    def replica_context(
        self, position: int, shares: Shares, rendezvous: Rendezvous, seed: int, in_threads: bool
    ) -> Replica:
        """This process among those that have samples."""
        sizes = tuple(size for size in shares.sizes if size)
        index = sum(size > 0 for size in shares.sizes[: self.batch_group.rank])
        return Replica(
            index=index,
            position=position,
            device=self.settings.places[position],
            sizes=sizes,
            rendezvous=rendezvous,
            all_sum=self.all_sum(
                index, rendezvous, in_threads=True
            ),  # backward runs in each process
            synchronised=self.settings.buffers == "sync",
            seed=seed,
        )

    # Buffers
    # ----------------------------------------------------------------------------------------------

    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Make the buffers of all processes the same after a run in training.

        The policy is in `settings`.
        """
        if (
            sum(sizes)
            and not self.state.synchronizes_with_loss
            and (buffers := self.buffer_slots())
        ):
            digests = self.batch_group.all_gather_object("a digest of the buffers", digest(buffers))
            self.synchronize_differing(buffers, digests, sizes)

    def buffer_slots(self) -> dict[str, Slot]:
        """The buffers that training may have changed."""
        slots = self.network.root.neutral_slots() if self.network.training else {}
        return {name: slot for name, slot in slots.items() if not slot.is_parameter}

    def synchronize_differing(
        self, buffers: Mapping[str, Slot], digests: Sequence[bytes], sizes: Sequence[int]
    ) -> None:
        """Make buffers the same in all processes unless they are, as with synchronised statistics.

        Args:
            digests: Of each process a digest of its buffers.
        """
        if not buffers or (len(set(present(digests, sizes))) == 1 and all(sizes)):
            return
        first = next(rank for rank, size in enumerate(sizes) if size)
        own = [slot.read() for slot in buffers.values()]
        if self.settings.buffers != "mean":
            synchronized = self.batch_group.broadcast(own, first)
        else:
            synchronized = _means(self.batch_group.all_gather_object("buffers", own), first, sizes)
        for slot, before, value in zip(buffers.values(), own, synchronized, strict=True):
            if not np.array_equal(value, before, equal_nan=True):
                slot.write(value)

    # Updates
    # ----------------------------------------------------------------------------------------------

    def update_hooks(self) -> Hooks:
        """Return the hooks that all-reduce the gradients before an update.

        After the update all processes have the same parameters, or average them.
        """
        after = [] if self.state.averaging is None else [AverageParameters(self.network)]
        return [SumOverProcesses(self.network)], after

    # Gradients that are added during backward
    # ------------------------------------------------------------------------

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Let the framework's own engine all-reduce gradients while backward goes on.

        It does so where all processes have samples.

        Raises:
            CapabilityError: There is none for this backend, or these processes are connected by
                another one.
        """
        raise CapabilityError(
            f"backend {self.network.backend.name!r} adds the gradients of processes after backward"
        )

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Whether the next backward adds the gradients of all processes by itself."""
        return False

    def reduce(
        self, part: Callable[[Any], Any], share: Any, backward: Callable[[Any], None]
    ) -> Any:
        """Return this process's part of a loss, after a backward pass.

        The backward pass all-reduces the gradients over all processes.

        Args:
            part: What computes, from the share, that part.
        """
        raise NotImplementedError(f"{type(self.network).__name__} adds gradients after backward")

    def take_reduced(self) -> frozenset[str]:
        """Return the parameters whose gradients the latest backward has all-reduced.

        Asking forgets them, so they can be asked for once.
        """
        names, self.state.reduced = self.state.reduced, frozenset()
        return names

    # Backward passes of a loop without an optimizer of this package
    # --------------------------------------------------

    def note_call(self, sizes: tuple[int, ...]) -> None:
        """Remember the samples of each process in a call."""
        self.state.called = sizes

    def own_weight(self) -> float:
        """Return what this process's gradients count in their mean.

        It holds if the latest call is followed by a backward pass.

        Raises:
            CapabilityError: Such a pass cannot give all processes the same update.
        """
        sizes = self.state.called
        if self.state.averaging is not None:
            raise CapabilityError(
                f"a backward pass of your own, where parameters are averaged now and then, as an "
                f"optimizer counts its updates: {BY_AN_OPTIMIZER}"
            )
        if 0 in sizes:
            raise CapabilityError(
                f"a backward pass of your own, and process {sizes.index(0)} has no samples in it, "
                f"so that it would miss the update: {BY_AN_OPTIMIZER}"
            )
        return sizes[self.processes.rank] * len(sizes) / sum(sizes)

    def weight_of_part(self) -> float:
        """Return `own_weight` of a loss of which each process has a part.

        The parts add up, and the mean is taken.
        """
        self.own_weight()
        return float(self.processes.count)

    def mean_gradients(self, gradients: dict[str, Any]) -> dict[str, Any]:
        """The means over processes of gradients that a backward pass of the user's own has left."""
        return SumOverProcesses(self.network).sums(gradients, 1 / self.processes.count)


class DistributedNetwork(ReplicatedNetwork):
    """A network of which every process has a replica, and sees its own share of each batch.

    What is called with a batch is called with this process's share. A loss is that of the whole
    batch: each share counts by its samples, or by the denominator that the loss declares; so shares
    may be of any size. In evaluation a process is by itself: the network is the plain one.

    Attributes:
        processes: The processes that train together.
        takes_whole: Whether every process is called with the whole batch, of which it takes its
            share, and gets the outputs for all of it, without a graph.
        averaging: How the processes train by themselves and average their parameters, if they do.
    """

    _parallelism: ClassVar[type[ReplicasOverProcesses]] = ReplicasOverProcesses  # type: ignore[type-abstract]
    _process_state: ProcessState

    @property
    def parallelism(self) -> ReplicasOverProcesses:
        """How the network computes over processes."""
        return self._parallelism(self)

    @property
    def processes(self) -> ProcessGroup:
        """The processes that train together."""
        return self._process_state.processes

    @property
    def takes_whole(self) -> bool:
        """Whether every process is called with the whole batch."""
        return self._process_state.takes_whole

    @property
    def averaging(self) -> Averaging | None:
        """How the processes train by themselves and average their parameters, if they do."""
        return self._process_state.averaging

    @classmethod
    def joined(
        cls,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
        takes_whole: bool = False,
    ) -> Self:
        """The network in these processes, equal in all of them."""
        made = cls.of(network, settings)  # type: ignore[attr-defined]
        state = made._parallelism.state_class(processes, takes_whole)
        object.__setattr__(
            made, "_process_state", state
        )  # which no framework takes for a part of the network
        made.start_equal()
        return made

    def start_equal(self) -> None:
        """Take over the root's weights and buffers; no random state changes."""
        state = self.processes.broadcast_object("weights", self.root.neutral_state())
        if not self.processes.is_root:
            self.root.load_neutral_state(state)

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation mode; in evaluation all processes have the same parameters."""
        if not mode:
            self.parallelism.synchronize()
        return super().train(mode)  # type: ignore[safe-super]

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return the root's state, equal in all processes.

        Where parameters are averaged, every process makes the call.
        """
        self.parallelism.synchronize()
        return super().neutral_state()

    def empty_share(self) -> AbstractContextManager[None]:
        """A block in which this process has no samples: what it is called with does not count.

        The process still makes every update, with the gradients of the others.
        """
        return self.parallelism.empty_share()

    sitting_out = empty_share  # deprecated alias

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a block in which backward leaves each process its own gradients.

        The name is the one that PyTorch's users know.

        An optimizer adds them at its next update.
        """
        return self.parallelism.no_sync()


def _means(
    told: Sequence[Sequence[np.ndarray]], first: int, sizes: Sequence[int]
) -> list[np.ndarray]:
    """Averages by share; what is no fraction is the first's that has samples."""
    shares = np.array(sizes) / sum(sizes)

    def mean(index: int, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind != "f":
            return value
        return sum(share * each[index] for share, each in zip(shares, told, strict=True)).astype(
            value.dtype
        )

    return [mean(index, value) for index, value in enumerate(told[first])]
