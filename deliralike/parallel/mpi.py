"""Processes over MPI, by mpi4py: for networks of any backend, on the host."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from deliralike.parallel.processes import Processes
from deliralike.parallel.short import shortened, widened

_PIECE = 1 << 18  # bytes


class MPIProcesses(Processes):
    """The processes of an MPI communicator.

    Args:
        comm: The communicator; a duplicate of the world's when None, so that messages of others do not mix with these.
    """

    engine = "MPI"

    def __init__(self, comm: Any = None) -> None:
        self.comm = MPI.COMM_WORLD.Dup() if comm is None else comm
        super().__init__(self.comm.Get_rank(), self.comm.Get_size())
        self._groups: dict[tuple[int, ...], Processes] = {tuple(range(self.count)): self}

    def gathered(self, message: bytes) -> list[bytes]:
        """By ``allgather`` of Python's own."""
        return self.comm.allgather(message)

    def summed(self, flat: np.ndarray) -> np.ndarray:
        """By ``Allreduce`` in the array's own type; half precision, which MPI does not know, is added in float32."""
        wide = np.ascontiguousarray(flat, np.float32 if flat.dtype == np.float16 else None)
        total = np.empty_like(wide)
        self.comm.Allreduce(wide, total, MPI.SUM)
        return total.astype(flat.dtype, copy=False)

    def begin_summing(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By ``Iallreduce``, which goes on only while some call of MPI's is made."""
        wide = np.ascontiguousarray(flat, np.float32 if flat.dtype == np.float16 else None)
        request = self.comm.Iallreduce(MPI.IN_PLACE, wide, MPI.SUM)

        def finish() -> np.ndarray:
            request.Wait()
            return wide.astype(flat.dtype, copy=False)  # which lives until then as it is part of this function

        return finish

    def spread(self, flat: np.ndarray, source: int) -> np.ndarray:
        """By ``Bcast``, of the bytes."""
        came = np.array(flat)
        self.comm.Bcast([came.view(np.uint8), MPI.BYTE], root=source)
        return came

    def summing_at_once(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By ``Allreduce`` in pieces that stay in a core's cache: ``Iallreduce`` takes longer when it is waited for."""
        wide = np.ascontiguousarray(flat, np.float32 if flat.dtype == np.float16 else None)
        for begin in range(0, wide.size, step := max(1, _PIECE // wide.itemsize)):
            self.comm.Allreduce(MPI.IN_PLACE, wide[begin : begin + step], MPI.SUM)
        total = wide.astype(flat.dtype, copy=False)
        return lambda: total

    def begin_summing_short(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By ``Iallreduce`` with an operation of our own on numbers of 16 bits."""
        bits = shortened(flat)
        request = self.comm.Iallreduce(MPI.IN_PLACE, bits, _adding_short())

        def finish() -> np.ndarray:
            request.Wait()
            return widened(bits)

        return finish

    def among(self, ranks: Sequence[int]) -> Processes:
        """By ``Split``, once for each group."""
        key = tuple(ranks)
        if key not in self._groups:
            self._groups[key] = MPIProcesses(self.comm.Split(int(self.rank in key), self.rank))
        return self._groups[key]

    def failed(self, why: str) -> None:
        """End all by ``Abort``, as the others would wait for ever."""
        traceback.print_exc()
        print(why, file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


@cache
def _adding_short() -> MPI.Op:
    return MPI.Op.Create(_add_short, commute=True)


def _add_short(first: MPI.buffer, second: MPI.buffer, _: MPI.Datatype) -> None:
    """Add the first to the second, rounding once."""
    own, total = np.frombuffer(first, np.uint16), np.frombuffer(second, np.uint16)
    total[...] = shortened(widened(own) + widened(total))
