"""Processes over MPI, by mpi4py: for networks of any backend, on the host."""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from deliralike.parallel.processes.bfloat16 import shortened, widened
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.processes.messages import Finish, begin_all_gather_bytes

# MPI itself waits for ever, and deaf to signals; so every wait asks again and again whether it is
# over. Nothing is slower for it: within the first second the processor is only yielded, as MPI does
# as well.
_SPIN, _PAUSE = 1.0, 0.001  # seconds
_ANSWER = (
    2.0  # seconds in which the others answer where they are, before one of them is called missing
)
# seconds in which what a process has sent still comes after word that its program is at its end
_ARRIVAL = 1.0
_CALL, _FINISHED = 1, 2  # the tags of messages on the roll


class MPIProcessGroup(ProcessGroup):
    """The processes of an MPI communicator.

    Args:
        comm: The communicator; a duplicate of the world's when None, so that messages of others do
            not mix with these.
        timeout: Seconds after which a process that does not come is given up.
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
        self._groups: dict[tuple[int, ...], ProcessGroup] = {tuple(range(self.count)): self}
        self._roll = self.comm.Dup()  # for whoever misses somebody, or is at the end of its program
        self._farewells: list[Any] = []
        self._finished: dict[
            int, float
        ] = {}  # when word came that the program of a process is at its end
        if self.count == MPI.COMM_WORLD.Get_size() > 1:
            self.watch_the_end()
        else:
            atexit.register(self.finished)

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """By `begin_all_gather_bytes`, waited for."""
        return self.begin_all_gather_bytes(message)()

    def begin_all_gather_bytes(self, message: bytes) -> Callable[[], list[bytes]]:
        """By ``Iallgather``, in one round where all messages are small, in two where one is not."""
        return begin_all_gather_bytes(message, self._begin_all_gather)

    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """By `begin_all_reduce_flat`, waited for."""
        return self.begin_all_reduce_flat(flat)()

    def begin_all_reduce_flat(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Begin an all-reduce by ``Iallreduce`` in the array's own type.

        It goes on only while some call of MPI's is made.

        Half precision, which MPI does not know, is added in float32.
        """
        wide = np.ascontiguousarray(flat, np.float32 if flat.dtype == np.float16 else None)
        total = np.empty_like(
            wide
        )  # in place, Open MPI adds up in one process and sends the sum back
        sent = self.comm.Iallreduce(wide, total, MPI.SUM), wide  # which must live until it has gone

        def finish() -> np.ndarray:
            self.wait(sent[0])
            return total.astype(flat.dtype, copy=False)

        return finish

    def broadcast_flat(self, flat: np.ndarray, source: int) -> np.ndarray:
        """By ``Ibcast``, of the bytes."""
        came = np.array(flat)
        self.wait(self.comm.Ibcast([came.view(np.uint8), MPI.BYTE], root=source))
        return came

    def all_reduce_flat_at_once(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """All-reduce the array by ``Allreduce`` in place.

        It takes less time than an ``Iallreduce`` that is waited for.

        It has no time limit, so all are waited for before.
        """
        self.wait(self.comm.Ibarrier())
        wide = np.ascontiguousarray(flat, np.float32 if flat.dtype == np.float16 else None)
        self.comm.Allreduce(MPI.IN_PLACE, wide, MPI.SUM)
        total = wide.astype(flat.dtype, copy=False)
        return lambda: total

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By ``Iallreduce`` with an operation of our own on numbers of 16 bits."""
        bits = shortened(flat)
        request = self.comm.Iallreduce(MPI.IN_PLACE, bits, _adding_short())

        def finish() -> np.ndarray:
            self.wait(request)
            return widened(bits)

        return finish

    def subgroup(self, ranks: Sequence[int]) -> ProcessGroup:
        """By ``Split``, once for each group."""
        key = tuple(ranks)
        if key not in self._groups:
            self._groups[key] = MPIProcessGroup(
                self.comm.Split(int(self.rank in key), self.rank), self.timeout
            )
        return self._groups[key]

    def failed(self, why: str) -> None:
        """End all by ``Abort``, as the others would wait for ever."""
        traceback.print_exc()
        print(why, file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)

    def finished(self) -> None:
        """Say so to each; messages of a few bytes go though nobody receives them."""
        if not MPI.Is_finalized():
            others = [rank for rank in range(self.count) if rank != self.rank]
            self._farewells = [self._roll.isend(None, rank, _FINISHED) for rank in others]

    def wait(self, request: Any) -> None:
        """Wait until a request is done.

        Raises:
            ProcessError: It is not within the time limit, or another process has given up; says who
                has not come. All processes end when this one does.
        """
        begin = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - begin
            if waited > _SPIN and (gone := self._gone()):
                atexit.register(MPI.COMM_WORLD.Abort, 1)
                raise self.others_finished(gone)
            if waited > self.timeout or (waited > _SPIN and self._roll.Iprobe(tag=_CALL)):
                atexit.register(
                    MPI.COMM_WORLD.Abort, 1
                )  # MPI's own end would wait for all once more
                raise self.absence(
                    self._answers(), f"waited for {waited:.0f} of {self.timeout:g} s"
                )
            if waited > _SPIN:
                time.sleep(_PAUSE)
            else:
                os.sched_yield()

    def _begin_all_gather(self, array: np.ndarray) -> Finish:
        came = np.empty((self.count, len(array)), np.uint8)
        sent = self.comm.Iallgather(array, came), array  # which must live until it has gone

        def finish() -> list[np.ndarray]:
            self.wait(sent[0])
            return list(came)

        return finish

    def _gone(self) -> list[int]:
        """Return the processes whose programs were at their end a while ago.

        They are given by their numbers among all.
        """
        status = MPI.Status()
        while self._roll.Iprobe(tag=_FINISHED, status=status):
            self._roll.recv(source=status.source, tag=_FINISHED)
            self._finished[self.ranks[status.source]] = time.monotonic()
        return sorted(
            rank for rank, at in self._finished.items() if time.monotonic() > at + _ARRIVAL
        )

    def _answers(self) -> dict[int, str]:
        """Where the processes are that wait, too: each tells the others once one of them calls."""
        calls = [
            self._roll.isend(self.at, rank, _CALL)
            for rank in range(self.count)
            if rank != self.rank
        ]
        at, end, status = {self.ranks[self.rank]: self.at}, time.monotonic() + _ANSWER, MPI.Status()
        while len(at) < self.count and time.monotonic() < end:
            while self._roll.Iprobe(tag=_CALL, status=status):
                at[self.ranks[status.source]] = self._roll.recv(source=status.source, tag=_CALL)
            MPI.Request.testall(calls)
            time.sleep(_PAUSE)
        return at


@cache
def _adding_short() -> MPI.Op:
    return MPI.Op.Create(_add_short, commute=True)


def _add_short(first: Any, second: Any, _: MPI.Datatype) -> None:
    """Add the first to the second, rounding once."""
    own, total = np.frombuffer(first, np.uint16), np.frombuffer(second, np.uint16)
    total[...] = shortened(widened(own) + widened(total))


MPIProcesses = MPIProcessGroup  # deprecated alias
