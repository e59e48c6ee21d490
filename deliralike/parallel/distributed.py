"""The framework-free half of a network that trains in several processes, each with a replica and a share of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Self

import numpy as np

from deliralike import random
from deliralike.anomalies import Anomalies, anomalies_of
from deliralike.errors import CapabilityError, SettingError
from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer, LossFunction
from deliralike.parallel.gather import gather
from deliralike.parallel.local_sgd import AverageParameters, Averaging, LocalSGD
from deliralike.parallel.loss import InReplicas, in_replicas
from deliralike.parallel.meeting import Meeting
from deliralike.parallel.processes import Processes
from deliralike.parallel.replica import Replica, current
from deliralike.parallel.replicated import ReplicaSettings, ReplicatedNetwork
from deliralike.parallel.scatter import Shares, split_batch
from deliralike.parallel.telling import Telling, digest, present
from deliralike.rules import rule
from deliralike.state import Slot

BY_AN_OPTIMIZER = (
    "make the update by an optimizer over the network, network.backend.wrap_optimizer(optimizer, "
    "network).update(loss_function, *batch)"
)


class MeetingOfProcesses(Meeting):
    """Where the replicas of different processes exchange values; whoever fails ends its process."""

    def __init__(self, processes: Processes) -> None:
        """Meet over these processes."""
        super().__init__(processes.count)
        self.processes = processes

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """Give a value and wait for the others'; the values in the order of processes."""
        return self.processes.exchange(topic, value)

    def leave(self, index: int) -> None:
        """Nothing: the other processes do not wait for it here."""

    def stop(self) -> None:
        """Nothing: the error that was raised ends this process."""


class SumOverProcesses:
    """Pre-update hook: the gradients of all processes, added, in every process.

    A parameter that took no part in some of the processes counts as zero there; one that took no part in any keeps
    None and is left alone by the update.
    """

    def __init__(self, network: DistributedNetwork) -> None:
        """Add for this network."""
        self.network = network

    def __call__(self, optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        """The gradients of the whole batch."""
        if self.network.together.count == 1:
            return gradients
        reduced = self.network.take_reduced()
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
            [gradient is not None for gradient in gradients.values()], arrays[0].dtype if arrays else None
        )
        *sums, parts = self.network.together.sum("gradients", [*arrays, counts])
        return {
            name: backend.array(total, device=device) if part else None
            for name, total, part in zip(gradients, sums, parts, strict=True)
        }

    def _on_host(self, name: str, gradient: Any) -> np.ndarray:
        if gradient is not None:
            return self.network.backend.numpy(gradient)
        slot = self.network.neutral_slots()[name]
        return np.zeros_like(self.network.backend.numpy(slot.native))


class DistributedNetwork(ReplicatedNetwork):
    """A network of which every process has a replica, and sees its own share of each batch.

    What is called with a batch is called with this process's share. A loss is that of the whole batch: each share
    counts by its samples, or by the denominator that the loss declares; so shares may be of any size. In evaluation a
    process is by itself: the network is the plain one.

    Attributes:
        processes: They.
        takes_whole: Whether every process is called with the whole batch, of which it takes its share, and gets the
            outputs for all of it, without a graph.
        averaging: How the processes train by themselves and average their parameters, if they do.
    """

    processes: Processes
    averaging: Averaging | None = None
    takes_whole: bool = False
    _sits_out = False
    _syncs = True
    _weighs = True
    _called: tuple[int, ...] = ()
    _settles_with_loss = False
    _reduced: frozenset[str] = frozenset()

    @classmethod
    def joined(
        cls, network: AbstractNetwork, settings: ReplicaSettings, processes: Processes, takes_whole: bool = False
    ) -> Self:
        """The network in these processes, equal in all of them."""
        made = cls.of(network, settings)  # type: ignore[attr-defined]
        object.__setattr__(made, "processes", processes)
        object.__setattr__(made, "takes_whole", takes_whole)
        made.start_equal()
        return made

    def start_equal(self) -> None:
        """Take over the root's weights and buffers; no random state changes."""
        state = self.processes.of_root("weights", self.root.neutral_state())
        if not self.processes.is_root:
            self.root.load_neutral_state(state)

    # Parameters that are averaged -------------------------------------------------------------------------------------

    def average_by(self, plan: LocalSGD) -> None:
        """Let each process update its parameters by itself for a while, and average them as a plan has it.

        Raises:
            SettingError: The plan does not fit the number of processes, or the processes take shares of whole batches.
        """
        if self.takes_whole:
            raise SettingError("takes_whole gives each process the outputs of all at every call: it needs no averaging")
        averaging = Averaging(plan, self.processes)
        self._keep(averaging=averaging, trains_apart=True, gathers_state=True)

    @property
    def together(self) -> Processes:
        """The processes whose samples make up the batch of an update: all of them, unless parameters are averaged."""
        return self.processes if self.averaging is None else self.averaging.together

    def updating(self, optimizer: AbstractOptimizer) -> AbstractContextManager[None]:
        """An update by all processes, or by those that make it together.

        Raises:
            CapabilityError: The loss is scaled, so that each process might leave other updates out.
        """
        if self.averaging is None:
            return super().updating(optimizer)
        if optimizer.loss_scale is not None:
            raise CapabilityError("processes that average their parameters make the same number of updates, and with "
                                  "float16 each might leave another one out: compute in bfloat16")  # fmt: skip
        self.averaging.updates = optimizer.steps
        return random.shifted(self.averaging.first_sample)

    def settle(self) -> None:
        """Average the parameters of all processes if they differ; every process makes the call."""
        if self.averaging is not None and self.averaging.is_behind:
            self.averaging.average(self, self.processes.count)

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation mode; in evaluation all processes have the same parameters."""
        if not mode:
            self.settle()
        return super().train(mode)  # type: ignore[safe-super]

    def neutral_state(self) -> dict[str, np.ndarray]:
        """The root's, equal in all processes; where parameters are averaged, every process makes the call."""
        self.settle()
        return super().neutral_state()

    @contextmanager
    def sitting_out(self) -> Iterator[None]:
        """In this block the process has no samples of its own: what it is called with does not count.

        It still makes every update, with the gradients of the others.
        """
        with self._set(_sits_out=True):
            yield

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block backward leaves each process its own gradients; an optimizer adds them at its next update."""
        with self._set(_syncs=False):
            yield

    def own_gradients(self) -> AbstractContextManager[None]:
        """A block in which gradients are those of this process's samples, and nothing is done to them."""
        return self._set(_syncs=False, _weighs=False)

    def train_over(self, processes: Processes) -> None:
        """Train over other processes from now on, or alone; what each of them has stays as it is."""
        self._keep(processes=processes, _syncs=processes.count > 1)

    @contextmanager
    def _set(self, **flags: Any) -> Iterator[None]:
        before = {name: getattr(self, name) for name in flags}
        self._keep(**flags)
        try:
            yield
        finally:
            self._keep(**before)

    def _keep(self, **flags: Any) -> None:
        for name, value in flags.items():
            object.__setattr__(self, name, value)  # which no framework takes for a part of the network

    # Gradients that are added during backward --------------------------------------------------------------------

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Let the framework's own engine add gradients while backward goes on, where all processes have samples.

        Raises:
            CapabilityError: There is none for this backend, or these processes are connected by another one.
        """
        raise CapabilityError(f"backend {self.backend.name!r} adds the gradients of processes after backward")

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Whether the next backward adds the gradients of all processes by itself."""
        return False

    def reduce(self, part: Callable[[Any], Any], share: Any, backward: Callable[[Any], None]) -> Any:
        """This process's part of a loss, after a backward pass that adds the gradients of all processes.

        Args:
            part: What computes, from the share, that part.
        """
        raise NotImplementedError(f"{type(self).__name__} adds gradients after backward")

    def take_reduced(self) -> frozenset[str]:
        """The parameters whose gradients the latest backward has added over all processes; asked once."""
        names = self._reduced
        if names:  # else nothing is set: JAX compiles a network anew whose attributes are other objects
            self._keep(_reduced=frozenset())
        return names

    # Backward passes of a loop without an optimizer of this package --------------------------------------------------

    def own_weight(self) -> float:
        """What this process's gradients count in their mean, if the latest call is followed by a backward pass.

        Raises:
            CapabilityError: Such a pass cannot give all processes the same update.
        """
        sizes = self._called
        if self.averaging is not None:
            raise CapabilityError(
                f"a backward pass of your own, where parameters are averaged now and then, as an "
                f"optimizer counts its updates: {BY_AN_OPTIMIZER}"
            )
        if 0 in sizes:
            raise CapabilityError(
                f"a backward pass of your own, and process {sizes.index(0)} has no samples in it, so "
                f"that it would miss the update: {BY_AN_OPTIMIZER}"
            )
        return sizes[self.processes.rank] * len(sizes) / sum(sizes)

    def _note_called(self, sizes: tuple[int, ...]) -> None:
        if sizes != self._called:  # compiled programs are of the very objects that they were made with
            self._keep(_called=sizes)

    def weight_of_part(self) -> float:
        """`own_weight` of a loss of which each process has a part: they add up, and the mean is taken."""
        self.own_weight()
        return float(self.processes.count)

    def mean_gradients(self, gradients: dict[str, Any]) -> dict[str, Any]:
        """The means over processes of gradients that a backward pass of the user's own has left."""
        return SumOverProcesses(self).sums(gradients, 1 / self.processes.count)

    # Shares ----------------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of this process's share, or of the whole batch."""
        here = current()
        if not self.training or here is not None:
            self._note_called((1,) * self.processes.count)  # in evaluation nobody tells the others of its share
            return self.root(*args, **kwargs)
        shares = self.scatter((args, kwargs))
        self._note_called(shares.sizes)
        outputs = self.run(lambda network, arguments: network(*arguments[0], **arguments[1]), shares)
        own = outputs[0] if outputs else None
        if not self.takes_whole:
            return own
        everyone = self.processes.exchange("outputs", self.backend.to_numpy(own))
        return self.backend.prepare(self._joined(present(everyone, shares.sizes), shares.sizes), self)

    def scatter(self, arguments: Any, loss: InReplicas | None = None) -> Shares:
        """This process's share; `Shares.sizes` are those of all processes."""
        if self.takes_whole:
            return self._own_of_whole(arguments, loss)
        shares = super().scatter(arguments, loss)
        own = 0 if self._sits_out else shares.sizes[0]
        sizes = tuple(self.together.exchange("a batch, the samples of each share", own))
        if not sum(sizes) and self.together is self.processes:
            raise SettingError("no process has a sample in this batch")
        return Shares(shares.nests if own else [], sizes)

    def _own_of_whole(self, arguments: Any, loss: InReplicas | None) -> Shares:
        spec, root = (self.settings.spec, "arguments") if loss is None else (loss.spec, "batch")
        count, rank = self.processes.count, self.processes.rank
        everyone = split_batch(arguments, [self.device_name] * count, self.settings.dim, spec, self.backend, root)
        sizes = everyone.sizes + (0,) * (count - len(everyone.sizes))
        return Shares(everyone.nests[rank : rank + 1], sizes)

    def sizes_here(self, shares: Shares) -> tuple[int, ...]:
        """That of the own share, if there is one."""
        return tuple(shares.sizes[self.together.rank] for _ in shares.nests)

    def meeting_of(self, shares: Shares) -> Meeting:
        """The processes that have samples."""
        return MeetingOfProcesses(self.together.among([rank for rank, size in enumerate(shares.sizes) if size]))

    def place_of(self, position: int, shares: Shares, meeting: Meeting, seed: int, in_threads: bool) -> Replica:
        """This process among those that have samples."""
        sizes = tuple(size for size in shares.sizes if size)
        index = sum(size > 0 for size in shares.sizes[: self.together.rank])
        return Replica(
            index=index,
            position=position,
            device=self.settings.places[position],
            sizes=sizes,
            meeting=meeting,
            all_sum=self.all_sum(index, meeting, in_threads=True),  # backward runs in each process
            synchronised=self.settings.buffers == "sync",
            seed=seed,
        )

    # Losses ----------------------------------------------------------------------------------------------------------

    def loss_of(self, loss_function: LossFunction) -> LossFunction:
        """A loss that each process computes on its share; one that declares nothing is a mean over samples.

        Raises:
            SettingError: It is a sum, and parameters are averaged.
        """
        loss = loss_function if isinstance(loss_function, InReplicas) else in_replicas(loss_function)
        if self.averaging is not None and loss.reduction == "sum":
            raise SettingError("a loss that is a sum over the batch has larger gradients in all processes than in one: "
                               "where parameters are averaged, state it as a mean, or with a denominator")  # fmt: skip
        return loss

    def samples_of(self, batch: Any) -> int:
        """The samples of the batch in all processes."""
        if self.takes_whole:
            return super().samples_of(batch)
        own = 0 if self._sits_out else super().samples_of(batch)
        return sum(self.together.exchange("the samples of a micro-batch", own))

    def loss_in_replicas(self, loss: InReplicas, *batch: Any) -> Any:
        """The loss of the whole batch, with the graph of this process's part; in evaluation, that of its own batch."""
        if not self.training:
            return loss.whole(self.root, *batch)
        return self._loss(loss, lambda value: None, batch, detached=False)

    def backward_in_replicas(self, loss: InReplicas, backward: Callable[[Any], None], *batch: Any) -> Any:
        """Forward and backward on this process's share; the gradients of all processes add up to the batch's."""
        return self._loss(loss, backward, batch, detached=True)

    def _loss(self, loss: InReplicas, backward: Callable[[Any], None], batch: tuple[Any, ...], detached: bool) -> Any:
        shares = self.scatter(batch, loss)
        self._note_called(shares.sizes)
        reduces = detached and self.reduces(shares.sizes)
        self._keep(_reduced=frozenset())
        telling = Telling(self, shares)

        def part(network: Any, share: Any) -> Any:
            weighted, denominator, extras = self.part_of(loss, network, share)
            telling.begin(weighted, denominator, extras)
            return weighted

        def one_share(network: Any, share: Any) -> Any:
            if reduces:
                return self.reduce(partial(part, network), share, backward)
            weighted = part(network, share)
            backward(weighted)
            return weighted

        if not shares.nests:
            self.take_part(loss, backward, batch, telling.begin)
        with self._set(_settles_with_loss=True):
            values = self.run(one_share, shares, in_threads=True) if sum(shares.sizes) else []
        total, denominator, extras = telling.finish()
        if not values or detached:
            whole = self.backend.array(np.asarray(total, self.dtype_name), device=self.device_name)
        else:
            whole = values[0] + (total - telling.own)  # the graph of the own part, and the number of all
        return loss.result(whole, denominator, extras)

    def take_part(
        self, loss: InReplicas, backward: Callable[[Any], None], batch: tuple[Any, ...], tell: Callable[[], None]
    ) -> None:
        """What a process without samples does while the others compute: nothing.

        Args:
            tell: Called between forward and backward, where the others begin to tell their loss.
        """

    def losses_seen(self, parts: Sequence[tuple[float, Any, Any]], sizes: Sequence[int]) -> tuple[float, Any, Any]:
        """The loss of the whole batch, its denominator, and what else the loss function gave, from all processes'."""
        losses, denominators, beside = zip(*parts, strict=True)
        if self.averaging is not None:
            self.averaging.saw(sum(sizes) if denominators[0] is None else float(denominators[0]))
        return sum(losses), denominators[0], self._joined(beside, sizes)

    def _joined(self, extras: Sequence[Any], sizes: Sequence[int]) -> Any:
        """What the loss function gave beside the loss in all processes, as NumPy arrays."""
        if extras[0] is None:
            return None
        sizes = [size for size in sizes if size]
        return gather(
            extras, self.settings.dim, scalars=self.settings.scalars, others=self.settings.others, sizes=sizes
        )

    def anomalies_in(self, loss_function: LossFunction, *batch: Any) -> Anomalies:
        """Those of the whole batch, and of each process's share; the same in all processes."""
        optimizer = self.backend.optimizer(rule("sgd", lr=1.0), self)  # of which only the gradients are wanted
        with self.no_sync():
            _, gradients = optimizer.gradients(self.loss_of(loss_function), *optimizer.prepared(batch))
        on_host = {name: None if each is None else self.backend.numpy(each) for name, each in gradients.items()}
        self.forget_gradients()
        has_samples = any(each is not None for each in on_host.values())
        everyone = self.processes.exchange("anomalies", anomalies_of(on_host) if has_samples else None)
        return Anomalies.of_shares({rank: each for rank, each in enumerate(everyone) if each is not None})

    def forget_gradients(self) -> None:
        """Drop the gradients that backward has left in the parameters, where the framework keeps them there."""

    # Buffers and hooks -----------------------------------------------------------------------------------------------

    def settle_buffers(self, sizes: Sequence[int]) -> None:
        """Make the buffers of all processes the same, by the policy in `settings`, after a run in training."""
        if sum(sizes) and not self._settles_with_loss and (buffers := self.buffer_slots()):
            digests = self.together.exchange("a digest of the buffers", digest(buffers))
            self.settle_by(buffers, digests, sizes)

    def buffer_slots(self) -> dict[str, Slot]:
        """Those that training may have changed."""
        slots = self.root.neutral_slots() if self.training else {}
        return {name: slot for name, slot in slots.items() if not slot.is_parameter}

    def settle_by(self, buffers: Mapping[str, Slot], digests: Sequence[bytes], sizes: Sequence[int]) -> None:
        """Make buffers the same in all processes unless they are: as with synchronised statistics."""
        if not buffers or (len(set(present(digests, sizes))) == 1 and all(sizes)):
            return
        first = next(rank for rank, size in enumerate(sizes) if size)
        own = [slot.read() for slot in buffers.values()]
        if self.settings.buffers != "mean":
            settled = self.together.spread_all(own, first)
        else:
            settled = _means(self.together.exchange("buffers", own), first, sizes)
        for slot, before, value in zip(buffers.values(), own, settled, strict=True):
            if not np.array_equal(value, before, equal_nan=True):
                slot.write(value)

    def update_hooks(self) -> tuple[list[Any], list[Any]]:
        """Add the gradients of all processes before an update; after it all have the same parameters, or average."""
        return [SumOverProcesses(self)], [] if self.averaging is None else [AverageParameters(self)]


def _means(told: Sequence[Sequence[np.ndarray]], first: int, sizes: Sequence[int]) -> list[np.ndarray]:
    """Averages by share; what is no fraction is the first's that has samples."""
    shares = np.array(sizes) / sum(sizes)

    def mean(index: int, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind != "f":
            return value
        return sum(share * each[index] for share, each in zip(shares, told, strict=True)).astype(value.dtype)

    return [mean(index, value) for index, value in enumerate(told[first])]
