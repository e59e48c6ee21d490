"""Processes over torch.distributed."""

from __future__ import annotations

import datetime
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import Place, ProcessGroup
from deliralike.parallel.processes.messages import Finish, begin_all_gather_bytes

T = TypeVar("T")
_OF_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
_ANSWER = (
    2.0  # seconds in which the others answer where they are, before one of them is called missing
)


class TorchProcessGroup(ProcessGroup):
    """The processes of a group of torch.distributed's; messages go from host to host, by gloo.

    Args:
        timeout: Seconds after which a process that does not come is given up.
        place: Which of them this is; what torchrun's environment variables say when None.
        group: A group; the default one, which is made unless it is there, when None.
    """

    engine = "torch.distributed"

    def __init__(
        self, timeout: float = 300.0, place: Place | None = None, group: Any = None
    ) -> None:
        if not dist.is_initialized():
            _begin(_place() if place is None else place, datetime.timedelta(seconds=timeout))
        self.group = group
        ranks = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
        super().__init__(dist.get_rank(group), dist.get_world_size(group), ranks)
        self._groups: dict[tuple[int, ...], ProcessGroup] = {tuple(range(self.count)): self}
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
        total = torch.from_numpy(np.array(flat))
        self.run(lambda: dist.all_reduce(total, group=self.group))
        return total.numpy()

    def begin_all_reduce_flat(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By an all-reduce that gloo's threads go on with."""
        total = torch.from_numpy(flat)
        work = self.run(lambda: dist.all_reduce(total, group=self.group, async_op=True))

        def finish() -> np.ndarray:
            self.run(work.wait)
            return total.numpy()

        return finish

    def broadcast_flat(self, flat: np.ndarray, source: int) -> np.ndarray:
        """By a broadcast."""
        came = torch.from_numpy(np.array(flat))
        self.run(lambda: dist.broadcast(came, self.ranks[source], group=self.group))
        return came.numpy()

    def all_reduce_flat_at_once(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By `begin_all_reduce_flat`: gloo's threads go on beside this one."""
        return self.begin_all_reduce_flat(flat)

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By an all-reduce of bfloat16."""
        total = torch.from_numpy(flat).bfloat16()
        work = self.run(lambda: dist.all_reduce(total, group=self.group, async_op=True))

        def finish() -> np.ndarray:
            self.run(work.wait)
            return total.float().numpy()

        return finish

    def subgroup(self, ranks: Sequence[int]) -> ProcessGroup:
        """By ``new_group``, once for each group."""
        key = tuple(ranks)
        if key not in self._groups:
            world = dist.get_process_group_ranks(self.group or dist.group.WORLD)
            chosen, within = (
                [world[rank] for rank in key],
                self.group is not None,
            )  # then others do not make the call
            group = self.run(lambda: dist.new_group(chosen, use_local_synchronization=within))
            self._groups[key] = TorchProcessGroup(group=group) if self.rank in key else self
        return self._groups[key]

    def mesh(self, kind: str) -> DeviceMesh:
        """These processes as PyTorch's mesh of devices of a kind."""
        if kind not in self._meshes:
            self._meshes[kind] = DeviceMesh.from_group(self.group_between(kind), kind)
        return self._meshes[kind]

    def group_between(self, kind: str) -> Any:
        """PyTorch's group by which tensors go between devices of a kind: between GPUs by NCCL."""
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
        self._note(why)

    def finished(self) -> None:
        """Leave a note; where the store is in this process, it waits a little for others to read
        it.
        """
        if not dist.is_initialized():
            return
        with suppress(RuntimeError):
            _store().set(_finished(self.ranks[self.rank]), "")
            if _serves(self.ranks[self.rank]):
                _store().wait(
                    [_finished(rank) for rank in self.ranks], datetime.timedelta(seconds=_ANSWER)
                )

    def abandoned(self) -> str:
        """What others have noted, unless this process misses somebody itself."""
        return _asked(self._noted) or ""

    def close(self) -> None:
        """End the default group, once all others have come to this point, too.

        PyTorch's wrappers keep a group alive, and its threads abort the process if they still hold
        tensors when the interpreter ends: so the wrappers go first.
        """
        super().close()
        for network in self.reducing:
            network.reduce_after_backward()
        for group in self._groups.values():  # which others may hold
            vars(group)["group"] = None
        self._groups.clear()
        self._between.clear()
        for mesh in self._meshes.values():
            mesh._pg_registry.clear()  # PyTorch's caches keep meshes
        gc.collect()  # wrappers are part of cycles
        dist.destroy_process_group()

    def _begin_all_gather(self, array: np.ndarray) -> Finish:
        came = [torch.empty(len(array), dtype=torch.uint8) for _ in range(self.count)]
        work = self.run(
            lambda: dist.all_gather(came, torch.from_numpy(array), group=self.group, async_op=True)
        )

        def finish() -> list[np.ndarray]:
            self.run(work.wait)
            return [each.numpy() for each in came]

        return finish

    def run(self, call: Callable[[], T]) -> T:
        """A call of torch.distributed's; when another process has failed, the error says which and
        why.
        """
        try:
            return call()
        except RuntimeError as error:
            raise self._cause(str(error)) from error

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """In this block PyTorch itself talks to other processes; when one of these has failed, the
        error says why.
        """
        try:
            yield
        except RuntimeError as error:
            if "gloo" in str(error):  # it has lost somebody
                raise self._cause(str(error)) from error
            if reason := self._reason():
                raise ProcessError(reason) from error
            raise

    # Notes in the store through which the processes found each other, of whoever fails or misses
    # somebody ------------

    def _note(self, why: str) -> None:
        try:
            _store().set(_FAILURE, why)
        except Exception as error:  # noqa: BLE001
            print(f"{self}: the others cannot be told: {error}", file=sys.stderr, flush=True)

    def _cause(self, said: str) -> ProcessError:
        """What another process has noted, or which ones do not answer where they are."""
        gone = ProcessError(
            f"{self} was at {self.at}: {said}; no answer from the store where processes leave "
            "notes: the one that has it has finished, was killed, or has stopped"
        )
        return _asked(lambda: self._answers(said)) or gone

    def _reason(self) -> str:
        """The note of a process that has failed, if one has left it in time."""

        def noted() -> str:
            _store().wait([_FAILURE], datetime.timedelta(seconds=_ANSWER))
            return _store().get(_FAILURE).decode()

        return _asked(noted) or ""

    def _answers(self, said: str) -> ProcessError:
        store, end = _store(), time.monotonic() + _ANSWER
        store.set(_at(self.ranks[self.rank]), self.at)
        if store.check([_FAILURE]):
            return ProcessError(store.get(_FAILURE).decode())
        if gone := [rank for rank in self.ranks if store.check([_finished(rank)])]:
            return self.others_finished(gone)
        while time.monotonic() < end and not store.check([_at(rank) for rank in self.ranks]):
            if store.check([_FAILURE]):
                return ProcessError(store.get(_FAILURE).decode())
            time.sleep(0.02)
        here = [rank for rank in self.ranks if store.check([_at(rank)])]
        return self.absence({rank: _told(rank) for rank in here}, said)

    def _noted(self) -> str:
        if _store().check([_at(self.ranks[self.rank])]):
            return ""
        if _store().check([_FAILURE]):
            return _store().get(_FAILURE).decode()
        waiting = [rank for rank in self.ranks if _store().check([_at(rank)])]
        return (
            f"{self} was given up by process {waiting[0]} at {_told(waiting[0])}" if waiting else ""
        )


def _asked(ask: Callable[[], T]) -> T | None:
    """What the store says; None when it is gone, or does not answer: its own time limit knows
    nothing of the latter.
    """
    came: list[T] = []

    def run() -> None:
        with suppress(RuntimeError):
            came.append(ask())

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(_ANSWER + 1)
    return came[0] if came else None


def _begin(place: Place, timeout: datetime.timedelta) -> None:
    """Meet the other processes at a store, and connect them.

    The keys of each restart are its own: those of processes that were killed would be taken for
    living ones.

    Raises:
        ProcessError: Some have not come within the time limit; says which.
    """
    host, _, port = place.address.rpartition(":")
    serves = _serves(place.rank)
    came = [f"here/{rank}" for rank in range(place.count)]
    try:
        served = dist.TCPStore(
            host, int(port), place.count, serves, timeout, wait_for_workers=False, multi_tenant=True
        )
    except RuntimeError as error:
        raise ProcessError(
            f"process {place.rank} of {place.count}: nobody answers at {place.address}, where "
            f"process 0 is waited for ({error})"
        ) from error
    store = dist.PrefixStore(
        f"deliralike/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", served
    )
    store.set(came[place.rank], "")
    try:
        store.wait(came, timeout)
    except RuntimeError as error:
        missing = [str(rank) for rank, key in enumerate(came) if not store.check([key])]
        raise ProcessError(
            f"process {place.rank} of {place.count}: within {timeout.total_seconds():g} s these "
            f"have not come at all: {', '.join(missing)}"
        ) from error
    dist.init_process_group(
        "gloo", timeout=timeout, store=store, rank=place.rank, world_size=place.count
    )


def _serves(rank: int) -> bool:
    """Whether the store is in the process of that number, and not in torchrun."""
    return rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _place() -> Place:
    """What torchrun's environment variables say."""
    host, port, rank, count = (os.environ[name] for name in _OF_TORCHRUN)
    return Place(int(rank), int(count), f"{host}:{port}")


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _at(rank: int) -> str:
    """The key under which a process that misses somebody says where it is."""
    return f"deliralike/at/{rank}"


def _finished(rank: int) -> str:
    """The key under which a process says that its program is at its end."""
    return f"deliralike/finished/{rank}"


def _told(rank: int) -> str:
    return _store().get(_at(rank)).decode()


_FAILURE = "deliralike/failure"


TorchProcesses = TorchProcessGroup  # deprecated alias
