"""Processes over torch.distributed."""

from __future__ import annotations

import datetime
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from deliralike.backends.processes.environment import number
from deliralike.backends.torch import unstable
from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import ProcessGroup, RankInfo
from deliralike.parallel.processes.messages import Finish, begin_all_gather_bytes
from deliralike.terminal import say_error

T = TypeVar("T")
_OF_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_ANSWER = 2.0  # seconds in which the others answer where they are, before one is called missing


class TorchProcessGroup(ProcessGroup):
    """The processes of a group of torch.distributed's; messages go from host to host, by gloo.

    Args:
        timeout: Seconds after which a missing process is given up.
        rank_info: The rank of this process; None takes it from torchrun's environment variables.
        group: A group; None is the default one, which is made if there is none.
    """

    engine = "torch.distributed"

    def __init__(
        self,
        timeout: float = 300.0,
        rank_info: RankInfo | None = None,
        group: Any = None,
    ) -> None:
        if not dist.is_initialized():
            _begin(
                _rank_info() if rank_info is None else rank_info,
                datetime.timedelta(seconds=timeout),
            )
        unstable.release_default_group()
        self.group = group
        ranks = dist.get_process_group_ranks(
            dist.group.WORLD if group is None else group
        )
        super().__init__(dist.get_rank(group), dist.get_world_size(group), ranks)
        self.reducing: weakref.WeakSet[Any] = weakref.WeakSet()
        self._between: dict[str, Any] = {}
        self._meshes: dict[str, DeviceMesh] = {}
        if group is None:
            self.watch_the_end()

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """By `begin_all_gather_bytes`, waited for."""
        return self.begin_all_gather_bytes(message)()

    def begin_all_gather_bytes(self, message: bytes) -> Callable[[], list[bytes]]:
        """By ``all_gather``, in one round where all messages are small, in two where one is not."""
        return begin_all_gather_bytes(message, self._begin_all_gather)

    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """By an all-reduce in the array's own type."""
        return self.begin_all_reduce_flat(np.array(flat))()

    def begin_all_reduce_flat(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By an all-reduce that gloo's threads go on with."""
        total = torch.from_numpy(flat)
        return self._begin(self._all_reduce(total), total.numpy)

    def _all_reduce(self, total: torch.Tensor) -> Callable[[], Any]:
        return lambda: dist.all_reduce(total, group=self.group, async_op=True)

    def _begin(self, send: Callable[[], Any], read: Callable[[], T]) -> Callable[[], T]:
        """Begin to send, and return a function that waits and then reads the result."""
        work = self.run(send)

        def finish() -> T:
            self.run(work.wait)
            return read()

        return finish

    def broadcast_flat(self, flat: np.ndarray, source: int) -> np.ndarray:
        """By a broadcast."""
        message = torch.from_numpy(np.array(flat))
        self.run(lambda: dist.broadcast(message, self.ranks[source], group=self.group))
        return message.numpy()

    # gloo's threads go on beside this one
    all_reduce_flat_at_once = begin_all_reduce_flat

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By an all-reduce of bfloat16."""
        total = torch.from_numpy(flat).bfloat16()
        return self._begin(self._all_reduce(total), lambda: total.float().numpy())

    def new_group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        """By ``new_group`` of PyTorch's."""
        world = dist.get_process_group_ranks(self.group or dist.group.WORLD)
        members = [world[rank] for rank in ranks]
        # within a subgroup the processes outside of it do not make the call
        is_local = self.group is not None
        group = self.run(
            lambda: dist.new_group(members, use_local_synchronization=is_local)
        )
        return TorchProcessGroup(group=group) if self.rank in ranks else self

    def mesh(self, kind: str) -> DeviceMesh:
        """Return these processes as PyTorch's mesh of devices of a kind."""
        if kind not in self._meshes:
            self._meshes[kind] = DeviceMesh.from_group(self.group_between(kind), kind)
        return self._meshes[kind]

    def group_between(self, kind: str) -> Any:
        """Return PyTorch's group for tensors on devices of a kind: for GPUs, one of NCCL."""
        if kind not in self._between:
            host = dist.group.WORLD if self.group is None else self.group
            self._between[kind] = host
            if kind != "cpu":
                self._between[kind] = self.run(
                    lambda: dist.new_group(list(self.ranks), backend="nccl")
                )
        return self._between[kind]

    def failed(self, why: str) -> None:
        """Leave a note; the others find it when they lose their connection to this process."""
        try:
            _store().set(_FAILURE, why)
        except Exception as error:  # noqa: BLE001
            say_error(f"{self}: the others cannot be told: {error}")

    def finished(self) -> None:
        """Leave a note; the process that has the store waits a little for the others' notes."""
        if not dist.is_initialized():
            return
        own_rank = self.ranks[self.rank]
        with suppress(RuntimeError):
            _store().set(_finished(own_rank), "")
            if _serves(own_rank):
                keys = [_finished(rank) for rank in self.ranks]
                _store().wait(keys, datetime.timedelta(seconds=_ANSWER))

    def abandoned(self) -> str:
        """Return the note of another process, unless this one misses a process itself."""
        return _ask_store(self._read_note) or ""

    def close(self) -> None:
        """End the default group, once all others have reached this point, too.

        PyTorch's wrappers keep a group alive, and its threads abort the process if they still hold
        tensors when the interpreter ends: so the wrappers are removed first.
        """
        super().close()
        for network in self.reducing:
            network.reduce_after_backward()
        for group in (self, *self._subgroups.values()):  # which others may hold
            vars(group)["group"] = None
        self._subgroups.clear()
        self._between.clear()
        for mesh in self._meshes.values():
            unstable.forget_groups(mesh)
        gc.collect()  # wrappers are part of cycles
        dist.destroy_process_group()

    def _begin_all_gather(self, array: np.ndarray) -> Finish:
        own = torch.from_numpy(array)
        messages = [
            torch.empty(len(array), dtype=torch.uint8) for _ in range(self.count)
        ]

        def send() -> Any:
            return dist.all_gather(messages, own, group=self.group, async_op=True)

        return self._begin(send, lambda: [message.numpy() for message in messages])

    def run(self, call: Callable[[], T]) -> T:
        """Make a call of torch.distributed; its error names the failed process and the cause."""
        try:
            return call()
        except RuntimeError as error:
            raise self._cause(str(error)) from error

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Name the failed process in errors of a block in which PyTorch itself sends messages."""
        try:
            yield
        except RuntimeError as error:
            if "gloo" in str(error):  # it has lost a connection
                raise self._cause(str(error)) from error
            reason = self._reason()
            if reason:
                raise ProcessError(reason) from error
            raise

    # Notes of failed and of waiting processes, in the store by which the processes have connected

    def _cause(self, error: str) -> ProcessError:
        """Return an error from another process's note, or one that names the missing processes."""
        no_store = ProcessError(
            f"{self} was at {self.at}: {error}; no answer from the store where processes leave "
            "notes: the one that has it has finished, was killed, or has stopped"
        )
        return _ask_store(lambda: self._wait_for_answers(error)) or no_store

    def _reason(self) -> str:
        """Return the note of a failed process, if one has left it in time."""

        def wait_for_note() -> str:
            _store().wait([_FAILURE], datetime.timedelta(seconds=_ANSWER))
            return _failure_note()

        return _ask_store(wait_for_note) or ""

    def _wait_for_answers(self, error: str) -> ProcessError:
        store = _store()
        end = time.monotonic() + _ANSWER
        store.set(_at(self.ranks[self.rank]), self.at)
        if store.check([_FAILURE]):
            return ProcessError(_failure_note())
        finished = [rank for rank in self.ranks if store.check([_finished(rank)])]
        if finished:
            return self.others_finished(finished)
        all_keys = [_at(rank) for rank in self.ranks]
        while time.monotonic() < end and not store.check(all_keys):
            if store.check([_FAILURE]):
                return ProcessError(_failure_note())
            time.sleep(0.02)
        present = [rank for rank in self.ranks if store.check([_at(rank)])]
        return self.timeout_error({rank: _position(rank) for rank in present}, error)

    def _read_note(self) -> str:
        store = _store()
        if store.check([_at(self.ranks[self.rank])]):
            return ""
        if store.check([_FAILURE]):
            return _failure_note()
        for rank in self.ranks:
            if store.check([_at(rank)]):
                return f"{self} was given up by process {rank} at {_position(rank)}"
        return ""


def _ask_store(ask: Callable[[], T]) -> T | None:
    """Return the result of a look into the store, or None when the store is gone or silent.

    It runs in a thread, as the store's own time limit does not cover a silent store.
    """
    answers: list[T] = []

    def run() -> None:
        with suppress(RuntimeError):
            answers.append(ask())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_ANSWER + 1)
    return answers[0] if answers else None


def _begin(own: RankInfo, timeout: datetime.timedelta) -> None:
    """Meet the other processes at a store, and connect them.

    Each restart has keys of its own: those of killed processes would be taken for living ones.

    Raises:
        ProcessError: Some processes, which the message names, did not arrive within the time limit.
    """
    host, _, port = own.address.rpartition(":")
    arrivals = [f"here/{rank}" for rank in range(own.count)]
    try:
        base_store = dist.TCPStore(
            host,
            int(port),
            own.count,
            _serves(own.rank),
            timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        if "EADDRINUSE" in str(error):
            raise ProcessError(
                f"process {own.rank} of {own.count}: the port of {own.address} is in use by "
                "another program: set MASTER_PORT to a free one, in all processes"
            ) from error
        raise ProcessError(
            f"process {own.rank} of {own.count}: nobody answers at {own.address}, where "
            f"process 0 is waited for ({error})"
        ) from error
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
    store = dist.PrefixStore(f"deliralike/{restart}", base_store)
    store.set(arrivals[own.rank], "")
    try:
        store.wait(arrivals, timeout)
    except RuntimeError as error:
        missing = [
            str(rank) for rank, key in enumerate(arrivals) if not store.check([key])
        ]
        raise ProcessError(
            f"process {own.rank} of {own.count}: within {timeout.total_seconds():g} s these "
            f"have not come at all: {', '.join(missing)}"
        ) from error
    dist.init_process_group(
        "gloo", timeout=timeout, store=store, rank=own.rank, world_size=own.count
    )


def _serves(rank: int) -> bool:
    """Return whether the store is in the process of that rank, and not in torchrun."""
    return rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _rank_info() -> RankInfo:
    """Return the place of this process by torchrun's environment variables."""
    host, port, rank, count = _OF_TORCHRUN
    return RankInfo(number(rank), number(count), f"{os.environ[host]}:{number(port)}")


def _store() -> Any:
    return unstable.default_store()


def _at(rank: int) -> str:
    """Return the key under which a process that misses another one says where it waits."""
    return f"deliralike/at/{rank}"


def _finished(rank: int) -> str:
    """Return the key under which a process says that its program has ended."""
    return f"deliralike/finished/{rank}"


def _position(rank: int) -> str:
    return _store().get(_at(rank)).decode()


def _failure_note() -> str:
    return _store().get(_FAILURE).decode()


_FAILURE = "deliralike/failure"
