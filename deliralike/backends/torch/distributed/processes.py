"""Processes over torch.distributed."""

from __future__ import annotations

import datetime
import gc
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from deliralike.errors import ProcessError
from deliralike.parallel.processes import Place, Processes

T = TypeVar("T")
_SMALL = 512  # bytes of a message that goes in one round; the first eight say how long it is


class TorchProcesses(Processes):
    """The processes of a group of torch.distributed's; messages go from host to host, by gloo.

    Args:
        timeout: Seconds after which a process that does not come is given up.
        place: Which of them this is; what torchrun's environment variables say when None.
        group: A group; the default one, which is made unless it is there, when None.
    """

    engine = "torch.distributed"

    def __init__(self, timeout: float = 300.0, place: Place | None = None, group: Any = None) -> None:
        if not dist.is_initialized():
            told: dict[str, Any] = {}
            if place is not None:
                told = {"init_method": f"tcp://{place.address}", "rank": place.rank, "world_size": place.count}
            dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout), **told)
        self.group = group
        super().__init__(dist.get_rank(group), dist.get_world_size(group))
        self._groups: dict[tuple[int, ...], Processes] = {tuple(range(self.count)): self}
        self.reducing: weakref.WeakSet[Any] = weakref.WeakSet()
        self._meshes: dict[str, DeviceMesh] = {}

    def gathered(self, message: bytes) -> list[bytes]:
        """In one round where all messages are small, in two where one is not."""
        head = np.zeros(_SMALL, np.uint8)
        head[:8] = np.frombuffer(len(message).to_bytes(8, "little"), np.uint8)
        begin = np.frombuffer(message, np.uint8)[: _SMALL - 8]
        head[8 : 8 + len(begin)] = begin
        heads = [each.tobytes() for each in self._all_gather(head)]
        lengths = [int.from_bytes(each[:8], "little") for each in heads]
        if max(lengths) <= _SMALL - 8:
            return [each[8 : 8 + length] for each, length in zip(heads, lengths, strict=True)]
        whole = np.zeros(max(lengths), np.uint8)
        whole[: len(message)] = np.frombuffer(message, np.uint8)
        return [each[:length].tobytes() for each, length in zip(self._all_gather(whole), lengths, strict=True)]

    def summed(self, flat: np.ndarray) -> np.ndarray:
        """By an all-reduce in the array's own type."""
        total = torch.from_numpy(np.array(flat))
        self.run(lambda: dist.all_reduce(total, group=self.group))
        return total.numpy()

    def begin_summing(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By an all-reduce that gloo's threads go on with."""
        total = torch.from_numpy(flat)
        work = self.run(lambda: dist.all_reduce(total, group=self.group, async_op=True))

        def finish() -> np.ndarray:
            self.run(work.wait)
            return total.numpy()

        return finish

    def spread(self, flat: np.ndarray, source: int) -> np.ndarray:
        """By a broadcast."""
        came = torch.from_numpy(np.array(flat))
        self.run(lambda: dist.broadcast(came, dist.get_global_rank(self._group(), source), group=self.group))
        return came.numpy()

    def summing_at_once(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By `begin_summing`: gloo's threads go on beside this one."""
        return self.begin_summing(flat)

    def begin_summing_short(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """By an all-reduce of bfloat16."""
        total = torch.from_numpy(flat).bfloat16()
        work = self.run(lambda: dist.all_reduce(total, group=self.group, async_op=True))

        def finish() -> np.ndarray:
            self.run(work.wait)
            return total.float().numpy()

        return finish

    def among(self, ranks: Sequence[int]) -> Processes:
        """By ``new_group``, once for each group."""
        key = tuple(ranks)
        if key not in self._groups:
            world = dist.get_process_group_ranks(self.group or dist.group.WORLD)
            chosen, within = [world[rank] for rank in key], self.group is not None  # then others do not make the call
            group = self.run(lambda: dist.new_group(chosen, use_local_synchronization=within))
            self._groups[key] = TorchProcesses(group=group) if self.rank in key else self
        return self._groups[key]

    def mesh(self, kind: str) -> DeviceMesh:
        """These processes as PyTorch's mesh of devices of a kind; between GPUs messages go by NCCL."""
        if kind not in self._meshes:
            group = self.group or dist.group.WORLD
            if kind != "cpu":
                group = self.run(lambda: dist.new_group(dist.get_process_group_ranks(group), backend="nccl"))
            self._meshes[kind] = DeviceMesh.from_group(group, kind)
        return self._meshes[kind]

    def failed(self, why: str) -> None:
        """Leave a note; the others find it when they lose their connection to this process."""
        self._note(why)

    def close(self) -> None:
        """End the default group, once all others have come to this point, too.

        PyTorch's wrappers keep a group alive, and its threads abort the process if they still hold tensors when the
        interpreter ends: so the wrappers go first.
        """
        super().close()
        for network in self.reducing:
            network.reduce_after_backward()
        for group in self._groups.values():  # which others may hold
            vars(group)["group"] = None
        self._groups.clear()
        for mesh in self._meshes.values():
            mesh._pg_registry.clear()  # PyTorch's caches keep meshes
        gc.collect()  # wrappers are part of cycles
        dist.destroy_process_group()

    def _group(self) -> Any:
        """The group itself, the default one too."""
        return dist.group.WORLD if self.group is None else self.group

    def _all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        came = [torch.empty(len(array), dtype=torch.uint8) for _ in range(self.count)]
        self.run(lambda: dist.all_gather(came, torch.from_numpy(array), group=self.group))
        return [each.numpy() for each in came]

    def run(self, call: Callable[[], T]) -> T:
        """A call of torch.distributed's; when another process has failed, the error says which and why."""
        try:
            return call()
        except RuntimeError as error:
            raise ProcessError(self._reason() or f"{self}: {error}") from error

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """In this block PyTorch itself talks to other processes; when one of these has failed, the error says why."""
        try:
            yield
        except RuntimeError as error:
            if reason := self._reason():
                raise ProcessError(reason) from error
            raise

    # A note of whoever fails, in the store through which the processes found each other ------------------------------

    def _note(self, why: str) -> None:
        try:
            self._store().set(_FAILURE, why)
        except Exception as error:  # noqa: BLE001 - the store may be gone with the process that had it
            print(f"{self}: the others cannot be told: {error}", file=sys.stderr, flush=True)

    def _reason(self) -> str:
        try:
            store = self._store()
            store.wait([_FAILURE], datetime.timedelta(seconds=2))
            return store.get(_FAILURE).decode()
        except Exception:  # noqa: BLE001 - nobody has left a note, or the store is gone
            return ""

    def _store(self) -> Any:
        return dist.distributed_c10d._get_default_store()


_FAILURE = "deliralike/failure"
