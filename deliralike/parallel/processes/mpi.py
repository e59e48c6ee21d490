"""Processes over MPI, by mpi4py: for networks of any backend, on the host."""

from __future__ import annotations

import atexit
import os
import time
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from deliralike.errors import ProcessError
from deliralike.parallel.processes.bfloat16 import from_bfloat16, to_bfloat16
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.processes.messages import Finish, begin_all_gather_bytes
from deliralike.terminal import say_error

# MPI itself waits for ever and ignores signals; so every wait polls. That costs no speed: within
# the first second the processor is only yielded, as MPI does as well. All times are in seconds.
_SPIN = 1.0
_PAUSE = 0.001
_ANSWER = 2.0  # in which the others answer, before one of them is called missing
_ARRIVAL = 1.0  # in which messages of a process still arrive after its note that it has finished

# The tags of messages on the communicator for notes.
_CALL = 1
_FINISHED = 2


class MPIProcessGroup(ProcessGroup):
    """The processes of an MPI communicator.

    Args:
        comm: The communicator; None takes a duplicate of the world's, which keeps other messages
            apart from these.
        timeout: Seconds after which a missing process is given up.
    """

    engine = "MPI"

    def __init__(self, comm: Any = None, timeout: float = 300.0) -> None:
        self.comm = MPI.COMM_WORLD.Dup() if comm is None else comm
        self.timeout = timeout
        count = self.comm.Get_size()
        ranks = MPI.Group.Translate_ranks(
            self.comm.Get_group(), range(count), MPI.COMM_WORLD.Get_group()
        )
        super().__init__(self.comm.Get_rank(), count, ranks)
        self._notes = self.comm.Dup()  # of processes that miss others, or have finished
        self._final_notes: list[
            Any
        ] = []  # requests, which must live until they are done
        self._finished: dict[
            int, float
        ] = {}  # by process, the time at which its note arrived
        if self.count == MPI.COMM_WORLD.Get_size() > 1:
            self.watch_the_end()
        else:
            atexit.register(self.finished)

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Gather by ``Iallgather``, and wait."""
        return self.begin_all_gather_bytes(message)()

    def begin_all_gather_bytes(self, message: bytes) -> Callable[[], list[bytes]]:
        """Gather by ``Iallgather``, in one round where all messages are small, else in two."""
        return begin_all_gather_bytes(message, self._begin_all_gather)

    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """All-reduce by ``Iallreduce`` in the array's own type, and wait."""
        return self.begin_all_reduce_flat(flat)()

    def begin_all_reduce_flat(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Begin an all-reduce by ``Iallreduce`` in the array's own type.

        It makes progress only during calls of MPI. Half precision, which MPI does not know, is
        added in float32.
        """
        wide = _in_type_of_mpi(flat)
        total = np.empty_like(
            wide
        )  # in place, Open MPI adds in one process and sends the sum back
        request = self.comm.Iallreduce(wide, total, MPI.SUM)
        sent = wide, request  # both must live until the request is done

        def finish() -> np.ndarray:
            self.wait(sent[1])
            return total.astype(flat.dtype, copy=False)

        return finish

    def broadcast_flat(self, flat: np.ndarray, source: int) -> np.ndarray:
        """Broadcast the bytes by ``Ibcast``, and wait."""
        message = np.array(flat)
        self.wait(self.comm.Ibcast([message.view(np.uint8), MPI.BYTE], root=source))
        return message

    def all_reduce_flat_at_once(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """All-reduce by ``Allreduce`` in place, which takes less time than waiting for another.

        It has no time limit, so a barrier that has one comes first.
        """
        self.wait(self.comm.Ibarrier())
        wide = _in_type_of_mpi(flat)
        self.comm.Allreduce(MPI.IN_PLACE, wide, MPI.SUM)
        total = wide.astype(flat.dtype, copy=False)
        return lambda: total

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Begin an all-reduce by ``Iallreduce`` with an operation on the bits of bfloat16."""
        bits = to_bfloat16(flat)
        request = self.comm.Iallreduce(MPI.IN_PLACE, bits, _bfloat16_sum())

        def finish() -> np.ndarray:
            self.wait(request)
            return from_bfloat16(bits)

        return finish

    def new_group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        """Make a group by ``Split``."""
        comm = self.comm.Split(int(self.rank in ranks), self.rank)
        return MPIProcessGroup(comm, self.timeout)

    def failed(self, why: str) -> None:
        """End all processes by ``Abort``, as the others would wait for ever."""
        traceback.print_exc()
        say_error(why)
        MPI.COMM_WORLD.Abort(1)

    def finished(self) -> None:
        """Send a note to each other process; so few bytes are sent though nobody receives them."""
        if not MPI.Is_finalized():
            self._final_notes = self._send_to_others(None, _FINISHED)

    def wait(self, request: Any) -> None:
        """Wait until a request is done.

        Raises:
            ProcessError: The time limit is over, or another process has given up or finished. The
                error names the missing processes, and all processes end when this one does.
        """
        begin = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - begin
            if waited <= min(_SPIN, self.timeout):
                os.sched_yield()
                continue
            error = self._reason_to_give_up(waited)
            if error is not None:
                # MPI's own end would wait for all processes once more.
                atexit.register(MPI.COMM_WORLD.Abort, 1)
                raise error
            time.sleep(_PAUSE)

    def _reason_to_give_up(self, waited: float) -> ProcessError | None:
        """Return the error that ends a wait of so many seconds, or None."""
        finished = self._long_finished()
        if finished:
            return self.others_finished(finished)
        if waited > self.timeout or self._notes.Iprobe(tag=_CALL):
            cause = f"waited for {waited:.0f} of {self.timeout:g} s"
            return self.timeout_error(self._answers(), cause)
        return None

    def _begin_all_gather(self, array: np.ndarray) -> Finish:
        arrays = np.empty((self.count, len(array)), np.uint8)
        request = self.comm.Iallgather(array, arrays)
        sent = array, request  # both must live until the request is done

        def finish() -> list[np.ndarray]:
            self.wait(sent[1])
            return list(arrays)

        return finish

    def _send_to_others(self, note: str | None, tag: int) -> list[Any]:
        """Begin to send a note to every other process, and return the requests."""
        others = [rank for rank in range(self.count) if rank != self.rank]
        return [self._notes.isend(note, rank, tag) for rank in others]

    def _long_finished(self) -> list[int]:
        """Return the processes, by number among all, that finished more than `_ARRIVAL` ago."""
        status = MPI.Status()
        while self._notes.Iprobe(tag=_FINISHED, status=status):
            self._notes.recv(source=status.source, tag=_FINISHED)
            self._finished[self.ranks[status.source]] = time.monotonic()
        latest = time.monotonic() - _ARRIVAL
        return sorted(rank for rank, at in self._finished.items() if at < latest)

    def _answers(self) -> dict[int, str]:
        """Return the topics at which other processes wait, by process; each answers a call."""
        calls = self._send_to_others(self.at, _CALL)
        topics = {self.ranks[self.rank]: self.at}
        end = time.monotonic() + _ANSWER
        status = MPI.Status()
        while len(topics) < self.count and time.monotonic() < end:
            while self._notes.Iprobe(tag=_CALL, status=status):
                topic = self._notes.recv(source=status.source, tag=_CALL)
                topics[self.ranks[status.source]] = topic
            MPI.Request.testall(calls)
            time.sleep(_PAUSE)
        return topics


def _in_type_of_mpi(flat: np.ndarray) -> np.ndarray:
    """Return an array in a type that MPI adds: float32 for half precision, else its own."""
    return np.ascontiguousarray(flat, np.float32 if flat.dtype == np.float16 else None)


@cache
def _bfloat16_sum() -> MPI.Op:
    """Return the operation of MPI that adds numbers of bfloat16."""
    return MPI.Op.Create(_add_bfloat16, commute=True)


def _add_bfloat16(first: Any, second: Any, _: MPI.Datatype) -> None:
    """Add the first array to the second, rounding once."""
    own = np.frombuffer(first, np.uint16)
    total = np.frombuffer(second, np.uint16)
    total[...] = to_bfloat16(from_bfloat16(own) + from_bfloat16(total))
