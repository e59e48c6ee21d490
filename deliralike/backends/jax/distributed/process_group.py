"""Processes over JAX's own runtime."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deliralike.backends.jax import unstable
from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import ProcessGroup, RankInfo
from deliralike.terminal import say_error

T = TypeVar("T")
AXIS = "processes"
# bytes of a message that goes by the coordinator's store; the first one says whether it is all
_SMALL = 2**14
# milliseconds after which one that waits looks for the note of a process that has failed
_SLICE = 1_000
# seconds in which the others can read such a note, where this process holds the store
_FAREWELL = 2.0
_FAILURE = "deliralike/failure"


class JaxProcessGroup(ProcessGroup):
    """The processes that JAX's runtime connects.

    Each process can compute on the devices of all, in one program.

    Small messages go by the store of the coordinator, which is in the first process, larger ones
    and sums by programs over the processes' first devices: gloo on the CPU, NCCL on GPUs. An error
    that nothing catches ends this process at once, after it has told the others; JAX by itself
    would wait for them.

    Args:
        timeout: Seconds after which a process that does not come is given up.
        rank_info: Which of them this is; what JAX finds out about the cluster by itself, from Slurm
            or MPI, when None.
        ranks: Those of the group; all when None.

    Raises:
        ProcessError: JAX has computed something already, or nothing says where the other processes
            are.
    """

    engine = "JAX"

    def __init__(
        self,
        timeout: float = 300.0,
        rank_info: RankInfo | None = None,
        ranks: Sequence[int] | None = None,
    ) -> None:
        if not jax.distributed.is_initialized():
            _start(timeout, rank_info)
            sys.excepthook = self._leave
            atexit.register(self.finished)
        self.timeout = timeout
        ranks = tuple(range(jax.process_count()) if ranks is None else ranks)
        super().__init__(ranks.index(jax.process_index()), len(ranks), ranks)
        self._round = 0
        first_devices: dict[int, Any] = {}
        for device in jax.devices():
            first_devices.setdefault(device.process_index, device)
        devices = [first_devices[rank] for rank in self.ranks]
        mesh = Mesh(np.array(devices), (AXIS,))
        self._by_rows = NamedSharding(mesh, PartitionSpec(AXIS))
        everywhere = NamedSharding(mesh, PartitionSpec())
        self._whole = jax.jit(lambda rows: rows, out_shardings=everywhere)
        self._total = jax.jit(
            lambda rows: rows.sum(0, dtype=rows.dtype), out_shardings=everywhere
        )

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Gather by the coordinator's store, or by a program of all where a message is large."""
        heads = self._heads(message if len(message) <= _SMALL else b"", len(message))
        lengths = [length for _, length in heads]
        if max(lengths) <= _SMALL:
            return [head for head, _ in heads]
        size = 1 << (max(lengths) - 1).bit_length()  # so that few programs are compiled
        own = np.zeros(size, np.uint8)
        own[: len(message)] = np.frombuffer(message, np.uint8)
        rows = self._run_program(self._whole, own)
        return [
            row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)
        ]

    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """Add by a program that computes in the array's own type."""
        return self._run_program(self._total, flat)

    def new_group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        """Make a group where this process is one of it."""
        if self.rank not in ranks:
            return self
        return JaxProcessGroup(self.timeout, ranks=[self.ranks[rank] for rank in ranks])

    def failed(self, why: str) -> None:
        """Leave a note in the store, print the reason, and end this process.

        JAX's own end would wait for the other processes, which wait for this one.
        """
        traceback.print_exc()
        self._end(why)

    def finished(self) -> None:
        """Leave a note in the store that this process has finished.

        The store is there until all processes have come to the end of JAX's runtime.
        """
        if jax.distributed.is_initialized():
            with suppress(JaxRuntimeError):
                unstable.coordinator().key_value_set(
                    _finished(jax.process_index()), "", allow_overwrite=True
                )

    def close(self) -> None:
        """Leave JAX's runtime, once all others have come to this point, too."""
        super().close()
        sys.excepthook = sys.__excepthook__
        jax.distributed.shutdown()

    # Messages by the store
    # ----------------------------------------------------------------------------------------------

    def _heads(self, head: bytes, length: int) -> list[tuple[bytes, int]]:
        """The first part of each process's message, and its whole length."""
        group = "-".join(map(str, self.ranks))
        self._round += 1

        def key(number: int, rank: int) -> str:
            return f"deliralike/{group}/{number}/{rank}"

        store = unstable.coordinator()
        own = length.to_bytes(8, "little") + head
        self._run(lambda: store.key_value_set_bytes(key(self._round, self.rank), own))
        heads = []
        for rank in range(self.count):
            message = own
            if rank != self.rank:
                message = self._wait_for(key(self._round, rank), rank)
            whole_length = int.from_bytes(message[:8], "little")
            heads.append((message[8:], whole_length))
        # all have come to this round, so all have read the one before
        self._run(lambda: store.key_value_delete(key(self._round - 1, self.rank)))
        return heads

    def _wait_for(self, key: str, rank: int) -> bytes:
        """The message under a key of the store, once another process has set it.

        Raises:
            ProcessError: A process has failed or finished, or the time is over.
        """
        end = time.monotonic() + self.timeout
        while True:
            try:
                return unstable.coordinator().blocking_key_value_get_bytes(key, _SLICE)
            except JaxRuntimeError as error:
                reason = _failure()
                if reason or "DEADLINE_EXCEEDED" not in str(error):
                    raise ProcessError(reason or f"{self}: {error}") from error
                finished = [*filter(_has_finished, self.ranks)]
                if finished:
                    raise self.others_finished(finished) from error
                if time.monotonic() > end:
                    raise ProcessError(
                        f"{self}: process {rank} has not come in {self.timeout:.0f} seconds"
                    ) from error

    # Programs
    # ----------------------------------------------------------------------------------------------

    def _run_program(self, program: Callable[..., Any], own: np.ndarray) -> np.ndarray:
        """The result of a program for one row of each process, in the rows' own type."""

        def run() -> np.ndarray:
            with jax.enable_x64(True):
                row = jax.device_put(own[None], jax.local_devices()[0])
                rows = jax.make_array_from_single_device_arrays(
                    (self.count, *own.shape), self._by_rows, [row]
                )
                return np.array(program(rows).addressable_data(0))

        return self._run(run)

    def _run(self, call: Callable[[], T]) -> T:
        """Make a call of JAX's runtime.

        When another process has failed, the error says which one and why.
        """
        try:
            return call()
        except JaxRuntimeError as error:
            raise ProcessError(_failure() or f"{self}: {error}") from error

    # The end by an error
    # ----------------------------------------------------------------------------------------------

    def _leave(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """End this process for an error that nothing has caught; Python calls this."""
        sys.__excepthook__(kind, error, trace)
        self._end(f"{self} failed: {kind.__name__}: {error}")

    def _end(self, why: str) -> None:
        try:
            # what another has failed of before, this one has failed of as well
            why = _failure() or why
            say_error(why)
            unstable.coordinator().key_value_set(_FAILURE, why, allow_overwrite=True)
            time.sleep(_FAREWELL if jax.process_index() == 0 else 0.0)
        except (
            JaxRuntimeError
        ) as error:  # the store may be gone with the process that had it
            say_error(f"{self}: the others cannot be told: {error}")
        sys.stdout.flush()
        os._exit(1)


def _start(timeout: float, rank_info: RankInfo | None) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # with it SIGTERM would end no process
    jax.config.update("jax_enable_preemption_service", False)
    seconds = max(1, int(timeout))
    limits = {
        "initialization_timeout": seconds + 1,
        "heartbeat_timeout_seconds": seconds,
        "shutdown_timeout_seconds": seconds,
    }
    who = "this process"
    if rank_info is not None:
        who = f"process {rank_info.rank} of {rank_info.count} (JAX)"
    message = f"{who}: within {seconds} s not all of the others have come"
    # then JAX aborts
    timer = threading.Timer(seconds, say_error, [message])
    timer.start()
    try:
        if rank_info is None:
            jax.distributed.initialize(**limits)
        else:
            alone = rank_info.address.startswith(
                "127."
            )  # then no other machine is to listen
            jax.distributed.initialize(
                rank_info.address,
                rank_info.count,
                rank_info.rank,
                cluster_detection_method="deactivate",
                coordinator_bind_address=rank_info.address if alone else None,
                **limits,
            )
    except RuntimeError as error:
        raise ProcessError(
            f"JAX's runtime does not start: {error} Call deliralike.join('jax') before JAX "
            "computes anything."
        ) from error
    except ValueError as error:
        raise ProcessError(
            f"JAX's runtime finds no other processes ({error}): start with 'deliralike launch "
            "--engine jax' or srun"
        ) from error
    finally:
        timer.cancel()


def _finished(rank: int) -> str:
    """The key under which a process says that its program is at its end."""
    return f"deliralike/finished/{rank}"


def _has_finished(rank: int) -> bool:
    try:
        unstable.coordinator().key_value_try_get(_finished(rank))
    except JaxRuntimeError:
        return False
    return True


def _failure() -> str:
    """The note of a process that has failed; empty where there is none, or no store."""
    try:
        return unstable.coordinator().key_value_try_get(_FAILURE)
    except JaxRuntimeError:
        return ""
