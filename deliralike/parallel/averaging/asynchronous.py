"""Execution of DASO: averages of parameters between nodes that overlap with training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from deliralike.errors import (
    ProcessError,
    SettingError,
    StateError,
    refuse_unknown_word,
)
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot, each_once
from deliralike.parallel.averaging.daso import (
    Plan,
    Sent,
    State,
    averages_within,
    decide,
    merged,
    next_epoch,
)
from deliralike.parallel.processes.async_all_reduce import AsyncAllReduce
from deliralike.parallel.processes.gradient_sums import (
    start_equal,
    sum_gradients,
    trained_slots,
)
from deliralike.parallel.processes.topology import Nodes

WIRES = ("bfloat16", "float16", "float32")
_NUMPY_TYPES = {"bfloat16": "float32"}  # in which NumPy holds a type that it lacks
Value = tuple[Slot, np.ndarray]  # a parameter or buffer, and its value


@dataclass
class _Message:
    """Parameters that were sent: their sum over nodes is in flight or complete.

    Attributes:
        finite: Whether the numbers that this process has sent are finite.
        pending: For each type of array, the sums in flight.
        sums: The sum of each array, once they have come; a checkpoint may want them before the
            merge.
    """

    finite: bool
    pending: Sequence[AsyncAllReduce] = ()
    sums: list[np.ndarray] | None = None

    def wait(self) -> list[np.ndarray]:
        """Return the sums, one for each array."""
        if self.sums is None:
            self.sums = []
            for of_type in self.pending:
                self.sums += of_type.wait()
        return self.sums


class AsynchronousAverages:
    """A network whose parameters are averaged between nodes by the plan of DASO.

    See `deliralike.parallel.averaging.daso`. Trainable parameters and floating buffers, such as
    running statistics, are sent; the state of an optimizer is not. After the last batch of an epoch
    all processes have the same values.

    Attributes:
        network: The averaged network.
        nodes: The nodes of its processes.
        plan: The schedule.
        batches: The number of batches of an epoch, the same in all processes. One more than that is
            allowed, if all processes have it, and is expected from the next epoch on.
        state: The position in the run.
    """

    def __init__(
        self,
        network: AbstractNetwork,
        nodes: Nodes,
        plan: Plan,
        batches: int | None = None,
        *,
        wire: str | None = None,
    ) -> None:
        """Start with the weights and buffers of the first process in all.

        Args:
            wire: The type in which parameters are sent between nodes: ``"bfloat16"``,
                ``"float16"``, ``"float32"``; their own when None.

        Raises:
            SettingError: Parameters cannot be sent in that type.
        """
        if wire is not None:
            refuse_unknown_word("wire", wire, WIRES)
        self.network = network
        self.nodes = nodes
        self.plan = plan
        self.batches = batches
        self.wire = wire
        self._under_way: dict[Sent, _Message] = {}
        self._uncounted = 0  # whether `batches` is one short
        self.state = State.of(plan)
        start_equal(network, nodes.processes)

    # Batches
    # ------------------------------------------------------------

    @property
    def within(self) -> bool:
        """Whether the gradients of the coming batch are averaged within nodes."""
        return averages_within(self.state, self._length())

    def before_update(self) -> None:
        """Check the number of batches; all processes call this before each update.

        Raises:
            ProcessError: The epochs of processes differ in length, or there are more batches than
                were announced.
            SettingError: The number of batches of an epoch is not set.
        """
        length = self._length()
        batch = self.state.batch
        epoch = self.state.epoch
        if batch == 0:
            lengths = self.nodes.processes.all_gather_object(
                f"the number of batches of epoch {epoch}", length
            )
            if len(set(lengths)) > 1:
                raise ProcessError(
                    f"epoch {epoch} has {lengths} batches in the processes, in the order of ranks: "
                    "all need the same number"
                )
        if batch > length or (batch == length and self._uncounted):
            raise ProcessError(
                f"{self._position()}: the epoch has {length} batches: end it before the next "
                "one begins"
            )
        if batch == length:
            self.nodes.processes.all_gather_object(
                f"one batch more in epoch {epoch}", None
            )

    def average_gradients(self, scale: float = 1.0) -> None:
        """Replace the gradients that parameters keep by their means over the node.

        A gradient that no process of the node has stays None; in a mean it counts as zero where
        only some have it.

        Args:
            scale: The factor of this process's gradients, which a gradient scaler has multiplied.
        """
        slots = trained_slots(self.network)
        gradients = {name: slot.native.grad for name, slot in slots.items()}
        sums = sum_gradients(self.network, self.nodes.node, gradients, 1.0 / scale)
        factor = scale / self.nodes.members  # each process has a scale of its own
        for name, total in sums.items():
            slots[name].native.grad = None if total is None else total * factor

    def after_update(self) -> None:
        """Merge and send what is due after the update of a batch.

        Raises:
            ProcessError: Other nodes have sent numbers that are not finite, or are at another
                batch.
        """
        decision, self.state = decide(self.state, self._length(), self.nodes.members)
        for sent in decision.merges:
            self._merge(sent)
        if decision.sends is not None:
            self._send(decision.sends)
            if not decision.sends.wait:
                self._merge(decision.sends)
        self.prepare()

    def end_epoch(self, loss: float) -> float:
        """Return the mean loss of the epoch over processes, which sets the pace of the next one.

        Raises:
            ProcessError: This process has not made as many batches as announced, or the others are
                at another position.
        """
        length = self._length()
        batch = self.state.batch
        epoch = self.state.epoch
        if not length <= batch <= length + 1:
            raise ProcessError(
                f"{self._position()}: the epoch ends after {batch} batches, and {length} were told"
                ": every process needs the same number of batches"
            )
        losses = self.nodes.processes.all_gather_object(
            f"the loss of epoch {epoch}", float(loss)
        )
        self._uncounted += batch - length
        mean = sum(losses) / len(losses)
        self.state = next_epoch(self.plan, self.state, mean)
        self.prepare()
        return mean

    def reset(self) -> None:
        """Start the run anew, with the parameters as they are."""
        for message in self._under_way.values():
            message.wait()
        self._under_way = {}
        self._uncounted = 0
        self.state = State.of(self.plan)
        self.prepare()

    def prepare(self) -> None:
        """Prepare for the coming batch; called whenever `state` has changed."""

    def _length(self) -> int:
        if not isinstance(self.batches, int) or self.batches < 1:
            raise SettingError(
                f"batches={self.batches!r}: say how many batches an epoch has, one at least"
            )
        return self.batches + self._uncounted

    def _position(self) -> str:
        return f"{self.nodes.processes}, epoch {self.state.epoch}, batch {self.state.batch}"

    # Messages
    # ------------------------------------------------------------

    def _send(self, sent: Sent) -> None:
        """Start the sum over nodes, in the members whose turn it is."""
        if not self._takes_part(sent):
            return
        arrays = [array for _, array in self._values()]
        pending = []
        for _, of_type in groupby(arrays, _type_of):
            pending.append(self._begin_sum(sent, list(of_type)))
        self._under_way[sent] = _Message(_all_finite(arrays), pending)

    def _begin_sum(self, sent: Sent, arrays: list[np.ndarray]) -> AsyncAllReduce:
        """Start the sums of arrays of one type, in one message."""
        dtype = arrays[0].dtype
        wire = None  # the type to which the engine converts, which NumPy lacks
        if self.wire in _NUMPY_TYPES:
            wire = self.wire
        if self.wire is not None and dtype.kind == "f":
            short = _NUMPY_TYPES.get(self.wire, self.wire)
            arrays = [array.astype(short) for array in arrays]
        return self.nodes.peers.begin_all_reduce(
            f"parameters of {dtype} after batch {sent.batch} of epoch {self.state.epoch}",
            arrays,
            wire=wire,
            at_once=not sent.wait,
        )

    def _takes_part(self, sent: Sent) -> bool:
        """Return whether this process sends.

        A single node has no other node to merge with, and only broadcasts.
        """
        return sent.member == self.nodes.member and self.nodes.count > 1

    def _merge(self, sent: Sent) -> None:
        """Merge a sum in the members that have sent, and broadcast the result within each node.

        Raises:
            ProcessError: A sum is not finite.
        """
        values = self._values()
        arrays = [array for _, array in values]
        not_finite = ""
        if self._takes_part(sent):
            sums, not_finite = self._wait_for(sent)
            if not not_finite:
                arrays = self._merged(sent, arrays, sums)
        topic = f"what was sent after batch {sent.batch} of epoch {self.state.epoch}"
        not_finite = self.nodes.node.all_gather_object(topic, not_finite)[sent.member]
        if not_finite:
            raise ProcessError(f"{topic}: not finite in {not_finite}")
        results = self.nodes.node.broadcast(arrays, sent.member)
        for (slot, _), result in zip(values, results, strict=True):
            slot.write(result)

    def _wait_for(self, sent: Sent) -> tuple[Sequence[np.ndarray], str]:
        """Return the sums of a message, and the processes whose numbers are not finite."""
        message = self._under_way.pop(sent)
        sums = message.wait()
        if _all_finite(sums):
            return sums, ""
        finite = self.nodes.peers.all_gather_object(
            "whether parameters are finite", message.finite
        )
        names = []
        for number, is_finite in enumerate(finite):
            if not is_finite:
                names.append(f"process {self.nodes.rank_of(number, sent.member)}")
        if not names:
            return sums, f"the sum, in {self.wire or 'its type'}"
        return sums, ", ".join(names)

    def _merged(
        self, sent: Sent, arrays: Sequence[np.ndarray], sums: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        waited = (
            self.state.batch - 1 - sent.batch
        )  # the state is that of the next batch
        results = []
        for array, total in zip(arrays, sums, strict=True):
            total = total.astype(array.dtype, copy=False)
            results.append(merged(array, total, self.nodes.count, waited))
        return results

    def _values(self) -> list[Value]:
        """Return trainable parameters and buffers that have means, each once, ordered by type."""
        values = []
        for slot in each_once(self.network.neutral_slots()).values():
            if slot.is_parameter and not slot.trainable:
                continue
            array = slot.read()
            if array.dtype.kind in "fc":
                values.append((slot, array))
        return sorted(values, key=lambda value: _type_of(value[1]))

    # Checkpoints
    # ------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process's run, and wait for the messages in flight.

        Each process has its own. It consists of numbers, texts, lists, dicts and NumPy arrays.
        """
        under_way = []
        for number, sent in enumerate(self.state.under_way):
            message = self._under_way.get(sent)
            if message is not None:
                sums = message.wait()
                under_way.append(
                    {"sent": number, "finite": message.finite, "sums": sums}
                )
        return {
            "state": self.state.as_dict(),
            "uncounted": self._uncounted,
            "under_way": under_way,
            "place": self._place(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned in this process.

        Raises:
            StateError: It is that of another process, or of other nodes; nothing has changed.
        """
        rank, nodes, members = state["place"]
        if [rank, nodes, members] != self._place():
            raise StateError(
                f"the state is of process {rank} of {nodes} nodes of "
                f"{members}, and this is {self.nodes.processes}, {self.nodes}"
            )
        self.reset()
        self.state = State.from_dict(state["state"])
        self._uncounted = int(state["uncounted"])
        for record in state["under_way"]:
            sums = [np.asarray(total) for total in record["sums"]]
            sent = self.state.under_way[record["sent"]]
            self._under_way[sent] = _Message(bool(record["finite"]), sums=sums)
        self.prepare()

    def _place(self) -> list[int]:
        return [self.nodes.processes.rank, self.nodes.count, self.nodes.members]


def _all_finite(arrays: Sequence[np.ndarray]) -> bool:
    return all(np.isfinite(array).all() for array in arrays)


def _type_of(array: np.ndarray) -> str:
    return array.dtype.str
