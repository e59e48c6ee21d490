"""Execution of DASO: averages of parameters between nodes that overlap with training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from deliralike.errors import ProcessError, SettingError, StateError, suggestion
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot
from deliralike.parallel.averaging.daso import (
    Plan,
    Sent,
    State,
    averages_within,
    decide,
    merged,
    next_epoch,
)
from deliralike.parallel.processes.topology import Nodes

WIRES = ("bfloat16", "float16", "float32")
_HELD = {"bfloat16": "float32"}  # in which NumPy holds what it has no type for
Travelling = tuple[Slot, np.ndarray]  # a parameter or buffer, and its value


@dataclass
class _Message:
    """Parameters that were sent: their sum over nodes is in flight or complete.

    Attributes:
        finite: Whether the numbers that this process has sent are finite.
        pieces: For each type of array, the functions that wait for its sums.
    """

    finite: bool
    pieces: Sequence[Sequence[Callable[[], Sequence[np.ndarray]]]]

    def wait(self) -> list[np.ndarray]:
        """Return the sums, one array for each type.

        They are kept, since a checkpoint may want them before the merge.
        """
        sums = [
            np.concatenate([part for piece in pieces for part in piece()]) for pieces in self.pieces
        ]
        self.pieces = [[partial(_arrived, total)] for total in sums]
        return sums


def _arrived(total: np.ndarray) -> list[np.ndarray]:
    return [total]


class AsynchronousAverages:
    """A network whose parameters are averaged between nodes by the plan of DASO.

    See `deliralike.parallel.averaging.daso`. Trainable parameters and floating buffers, such as
    running statistics, are sent; the state of an optimizer is not. After the last batch of an epoch
    all processes have the same values.

    Attributes:
        network, nodes, plan: The averaged network, its nodes, and the schedule.
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
        chunk: int | None = None,
        wire: str | None = None,
    ) -> None:
        """Start with the weights and buffers of the first process in all.

        Args:
            chunk: The most numbers of one message between nodes; all of one type when None.
            wire: The type in which parameters are sent between nodes: ``"bfloat16"``,
                ``"float16"``, ``"float32"``; their own when None.

        Raises:
            SettingError: Parameters cannot be sent in that type.
        """
        if wire not in (None, *WIRES):
            raise SettingError(f"wire={wire!r} is unknown. {suggestion(str(wire), WIRES)}")
        self.network, self.nodes, self.plan, self.batches = network, nodes, plan, batches
        self.chunk, self.wire = chunk, wire
        self._under_way: dict[Sent, _Message] = {}
        self._uncounted = 0  # whether `batches` is one short
        self.state = State.of(plan)
        weights = nodes.processes.broadcast_object("weights", network.neutral_state())
        if not nodes.processes.is_root:
            network.load_neutral_state(weights)

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
                were
                announced.
            SettingError: The number of batches of an epoch is not set.
        """
        length, batch, epoch = self._length(), self.state.batch, self.state.epoch
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
                f"{self._here()}: the epoch has {length} batches: end it before the next one begins"
            )
        if batch == length:
            self.nodes.processes.all_gather_object(f"one batch more in epoch {epoch}", None)

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
        length, batch, epoch = self._length(), self.state.batch, self.state.epoch
        if not length <= batch <= length + 1:
            raise ProcessError(
                f"{self._here()}: the epoch ends after {batch} batches, and {length} were told: "
                "every process needs the same number of batches"
            )
        losses = self.nodes.processes.all_gather_object(f"the loss of epoch {epoch}", float(loss))
        self._uncounted += batch - length
        mean = sum(losses) / len(losses)
        self.state = next_epoch(self.plan, self.state, mean)
        self.prepare()
        return mean

    def reset(self) -> None:
        """Start the run anew, with the parameters as they are."""
        for message in self._under_way.values():
            message.wait()
        self._under_way, self._uncounted, self.state = {}, 0, State.of(self.plan)
        self.prepare()

    def prepare(self) -> None:
        """Prepare for the coming batch; called whenever `state` has changed."""

    def _length(self) -> int:
        if not isinstance(self.batches, int) or self.batches < 1:
            raise SettingError(
                f"batches={self.batches!r}: say how many batches an epoch has, one at least"
            )
        return self.batches + self._uncounted

    def _here(self) -> str:
        return f"{self.nodes.processes}, epoch {self.state.epoch}, batch {self.state.batch}"

    # Messages
    # ------------------------------------------------------------

    def _send(self, sent: Sent) -> None:
        """Start the sum over nodes, in the members whose turn it is."""
        if not self._takes_part(sent):
            return
        flats, pieces = _flats(self._travelling()), []
        for flat in flats:
            on_wire = flat if self.wire is None else flat.astype(_HELD.get(self.wire, self.wire))
            chunk = self.chunk or flat.size
            parts = [on_wire[begin : begin + chunk] for begin in range(0, flat.size, chunk)]
            topic = f"parameters after batch {sent.batch} of epoch {self.state.epoch}, part"
            begin = partial(
                self.nodes.peers.begin_all_reduce,
                wire=self.wire if self.wire in _HELD else None,
                at_once=not sent.wait,
            )
            begun = [begin(f"{topic} {number}", [part]) for number, part in enumerate(parts)]
            pieces.append([pending.wait for pending in begun])
        self._under_way[sent] = _Message(all(np.isfinite(flat).all() for flat in flats), pieces)

    def _takes_part(self, sent: Sent) -> bool:
        """Return whether this process sends.

        A single node has no other node to merge with, and only broadcasts.
        """
        return sent.member == self.nodes.member and self.nodes.count > 1

    def _merge(self, sent: Sent) -> None:
        """Merge a sum in the members that have sent, and broadcast the result within each node."""
        travelling = self._travelling()
        flats, wrong = _flats(travelling), ""
        if self._takes_part(sent):
            flats, wrong = self._merged(sent, flats)
        what = f"what was sent after batch {sent.batch} of epoch {self.state.epoch}"
        if wrong := self.nodes.node.all_gather_object(what, wrong)[sent.member]:
            raise ProcessError(f"{what}: not finite in {wrong}")
        _write(travelling, [self.nodes.node.broadcast_flat(flat, sent.member) for flat in flats])

    def _merged(self, sent: Sent, flats: list[np.ndarray]) -> tuple[list[np.ndarray], str]:
        """Return the new parameters, and which processes have sent numbers that are not finite."""
        message = self._under_way.pop(sent)
        sums = message.wait()
        if not all(np.isfinite(total).all() for total in sums):
            finite = self.nodes.peers.all_gather_object(
                "whether parameters are finite", message.finite
            )
            ranks = [
                self.nodes.rank_of(number, sent.member)
                for number, fine in enumerate(finite)
                if not fine
            ]
            return flats, ", ".join(
                f"process {rank}" for rank in ranks
            ) or f"the sum, in {self.wire or 'its type'}"
        waited = self.state.batch - 1 - sent.batch  # the state is that of the next batch
        totals = [
            total.astype(flat.dtype, copy=False) for total, flat in zip(sums, flats, strict=True)
        ]
        return [
            merged(flat, total, self.nodes.count, waited)
            for flat, total in zip(flats, totals, strict=True)
        ], ""

    def _travelling(self) -> list[Travelling]:
        """Return trainable parameters and floating buffers, each once, ordered by type."""
        slots = {
            id(slot.native): slot
            for slot in self.network.neutral_slots().values()
            if slot.trainable or not slot.is_parameter
        }.values()
        values = [(slot, slot.read()) for slot in slots]
        return sorted((each for each in values if each[1].dtype.kind == "f"), key=_type_of)

    # Checkpoints
    # ------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process's run, and wait for the messages in flight.

        Each process has its own. It consists of numbers, texts, lists, dicts and NumPy arrays.
        """
        under_way = [
            {"sent": place, "finite": message.finite, "sums": message.wait()}
            for place, sent in enumerate(self.state.under_way)
            if (message := self._under_way.get(sent)) is not None
        ]
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
        if list(state["place"]) != self._place():
            raise StateError(
                f"the state is of process {state['place'][0]} of {state['place'][1]} nodes of "
                f"{state['place'][2]}, and this is {self.nodes.processes}, {self.nodes}"
            )
        self.reset()
        self.state, self._uncounted = State.from_dict(state["state"]), int(state["uncounted"])
        for each in state["under_way"]:
            arrived = [[partial(_arrived, np.asarray(total))] for total in each["sums"]]
            self._under_way[self.state.under_way[each["sent"]]] = _Message(
                bool(each["finite"]), arrived
            )
        self.prepare()

    def _place(self) -> list[int]:
        return [self.nodes.processes.rank, self.nodes.count, self.nodes.members]


def _type_of(travelling: Travelling) -> str:
    return travelling[1].dtype.str


def _flats(travelling: Sequence[Travelling]) -> list[np.ndarray]:
    """Return all numbers that are sent, one array for each type."""
    return [
        np.concatenate([value.ravel() for _, value in of_type])
        for _, of_type in groupby(travelling, _type_of)
    ]


def _write(travelling: Sequence[Travelling], flats: Sequence[np.ndarray]) -> None:
    """Write the numbers of `_flats` into the slots."""
    for (_, of_type), flat in zip(groupby(travelling, _type_of), flats, strict=True):
        begin = 0
        for slot, value in of_type:
            slot.write(flat[begin : begin + value.size].reshape(value.shape))
            begin += value.size
