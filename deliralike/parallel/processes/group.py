"""The process group: the processes that train together, and what their engine must provide."""

from __future__ import annotations

import atexit
import pickle
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from deliralike.errors import CapabilityError, ProcessError
from deliralike.parallel.processes.async_all_reduce import AsyncAllReduce
from deliralike.parallel.processes.messages import cut


@dataclass(frozen=True)
class RankInfo:
    """The rank of a process, the number of processes, and ``host:port`` of the first one."""

    rank: int
    count: int
    address: str


class ProcessGroup(ABC):
    """A group of processes, each of which calls the same methods in the same order.

    An engine (torch.distributed, MPI or JAX's runtime) moves the bytes. This class adds to each
    message the topic of its values, so that processes at different positions of a program do not
    mix them up.

    Attributes:
        rank: The number of this process; 0 is the root, which writes and shows.
        count: The number of processes.
        engine: The name of the engine, for messages.
        ranks: The numbers of these processes among all that were started together.
        collectives: The number of messages of each kind that were sent.
        at: The topic of the latest exchange, for which this process may still wait.
        agreed: The request that some process has made with `request`, known to all since the same
            exchange; empty without one.
    """

    engine = "none"

    def __init__(
        self, rank: int, count: int, ranks: Sequence[int] | None = None
    ) -> None:
        """Describe process `rank` of `count`."""
        self.rank = rank
        self.count = count
        self.ranks = tuple(range(count) if ranks is None else ranks)
        self.collectives: Counter[str] = Counter()
        self.at = "the beginning"
        self.agreed = ""
        self._request = ""
        self._reported_error: Exception | None = None
        self._subgroups: dict[tuple[int, ...], ProcessGroup] = {}

    # What an engine provides
    # -----------------------------------------------------------------------------------------

    @abstractmethod
    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Return every process's message, in the order of ranks; they may differ in length."""

    def begin_all_gather_bytes(self, message: bytes) -> Callable[[], list[bytes]]:
        """Begin an `all_gather_bytes`, and return a function that waits for its result.

        An engine that cannot do this in the background gathers at once.
        """
        messages = self.all_gather_bytes(message)
        return lambda: messages

    @abstractmethod
    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """Return the sum of an array ``(n,)`` over all processes, in its own type.

        The result has the same bits in each of them.
        """

    def begin_all_reduce_flat(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Begin an `all_reduce_flat`, and return a function that waits for its result.

        The array belongs to the engine from now on. An engine that cannot do this in the background
        adds at once.
        """
        return self.all_reduce_flat_at_once(flat)

    def all_reduce_flat_at_once(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Make an `all_reduce_flat`, and return a function that returns its result.

        It is for callers that wait for the sum next.
        """
        total = self.all_reduce_flat(flat)
        return lambda: total

    def broadcast_flat(self, flat: np.ndarray, source: int) -> np.ndarray:
        """Return the array ``(n,)`` of one process in all processes.

        The others give an array of its size and type. Engines without a broadcast add zeros.
        """
        return self.all_reduce_flat(
            flat if self.rank == source else np.zeros_like(flat)
        )

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Begin an all-reduce of an array of float32 that is sent as bfloat16.

        Raises:
            CapabilityError: The engine cannot send bfloat16.
        """
        raise CapabilityError(f"{self} cannot send bfloat16: leave wire out")

    @abstractmethod
    def new_group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        """Make a group of some of these processes; see `subgroup`."""

    @abstractmethod
    def failed(self, why: str) -> None:
        """Report to the others that this process is about to end by an error.

        An engine that cannot send such a report ends them.
        """

    def finished(self) -> None:
        """Report to the others that the program of this process has ended."""

    def abandoned(self) -> str:
        """Return why other processes have failed or given this one up; empty if they have not.

        It is for a process that does not wait for them, and so has not noticed yet.
        """
        return ""

    def close(self) -> None:
        """Leave the group, once all others have reached this point, too.

        Raises:
            ProcessError: Another process is at another exchange, such as that of one more batch.
        """
        self.all_gather_object("the end", None)
        atexit.unregister(self.finished)

    # Collectives of objects and of arrays
    # ----------------------------------------------------------------------------------------------

    @property
    def is_root(self) -> bool:
        """Whether this process is the one that writes and shows."""
        return self.rank == 0

    def subgroup(self, ranks: Sequence[int]) -> ProcessGroup:
        """Return some of these processes as a process group of its own, which is made once.

        Every process of this group makes the call. A process outside the subgroup gets a group that
        it must not use.
        """
        key = tuple(ranks)
        if key == tuple(range(self.count)):
            return self
        if len(key) == 1:
            return SingleProcess()
        if key not in self._subgroups:
            self._subgroups[key] = self.new_group(key)
        return self._subgroups[key]

    def all_gather_object(self, topic: str, value: Any) -> list[Any]:
        """Give any picklable value to all processes; return all values in the order of ranks.

        Raises:
            ProcessError: Another process is at another topic.
        """
        return self.begin_all_gather_object(topic, value)()

    def begin_all_gather_object(
        self, topic: str, value: Any
    ) -> Callable[[], list[Any]]:
        """Begin an `all_gather_object`, and return a function that waits for its result."""
        self.collectives["all_gather"] += 1
        self.at = topic
        own = pickle.dumps((topic, value, self._request), pickle.HIGHEST_PROTOCOL)
        wait = self.begin_all_gather_bytes(own)

        def finish() -> list[Any]:
            self.at = topic
            values = []
            requests = []
            for rank, message in enumerate(wait()):
                other, other_value, request = pickle.loads(message)
                if other != topic:
                    raise ProcessError(
                        f"process {self.rank} is at {topic} while process {rank} is at {other}: "
                        "every process must make the same steps with the same layers"
                    )
                values.append(other_value)
                requests.append(request)
            if not self.agreed:
                self.agreed = next(filter(None, requests), "")
            return values

        return finish

    def request(self, what: str) -> None:
        """Make a request to all processes, which the next exchange carries along; see `agreed`."""
        self._request = what

    @property
    def has_request(self) -> bool:
        """Whether this process has made a request that the next exchange carries along."""
        return bool(self._request)

    def clear_request(self) -> None:
        """Drop the request that all processes have fulfilled; all call this at the same point."""
        self._request = ""
        self.agreed = ""

    def broadcast_object(self, topic: str, value: Any) -> Any:
        """Return the root's value, in every process."""
        return self.all_gather_object(topic, value if self.is_root else None)[0]

    def broadcast(self, arrays: Sequence[np.ndarray], source: int) -> list[np.ndarray]:
        """Broadcast the arrays of one process to all processes, in one message.

        The others give arrays of the same sizes and types. The message has no topic: call this
        after an `all_gather_object`, which makes sure that all are at the same position.
        """
        self.collectives["broadcast"] += 1
        own = [
            np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays
        ]
        message = self.broadcast_flat(np.concatenate(own), source)
        results = []
        parts = cut(message, [(array.nbytes,) for array in arrays])
        for array, part in zip(arrays, parts, strict=True):
            # A copy, since the array may lie in the message where its type must not be aligned.
            results.append(part.view(array.dtype).reshape(array.shape).copy())
        return results

    def all_reduce(self, topic: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the sums of arrays over all processes: one message for each type, in that type.

        Raises:
            ProcessError: The arrays of another process differ in type or shape.
        """
        self._compare_arrays(topic, arrays)
        by_type: dict[np.dtype, list[int]] = {}
        for index, array in enumerate(arrays):
            by_type.setdefault(array.dtype, []).append(index)
        totals: list[Any] = [None] * len(arrays)
        for indices in by_type.values():
            self.collectives["all_reduce"] += 1
            flat = np.concatenate([np.ravel(arrays[index]) for index in indices])
            total = self.all_reduce_flat_at_once(flat)()
            parts = cut(total, [arrays[index].shape for index in indices])
            for index, part in zip(indices, parts, strict=True):
                totals[index] = part
        return totals

    def _compare_arrays(self, topic: str, arrays: Sequence[np.ndarray]) -> None:
        """Check that the arrays of all processes have the same types and shapes.

        Raises:
            ProcessError: Those of another process differ.
        """
        own = [(array.dtype.str, array.shape) for array in arrays]
        of_all = self.all_gather_object(f"{topic}, their types and shapes", own)
        for rank, other in enumerate(of_all):
            if other != own:
                raise ProcessError(
                    f"{topic}: process {self.rank} has {own}, process {rank} has {other}: "
                    "every process must have the same network"
                )

    def begin_all_reduce(
        self,
        topic: str,
        arrays: Sequence[np.ndarray],
        flat: np.ndarray | None = None,
        *,
        at_once: bool = False,
        wire: str | None = None,
    ) -> AsyncAllReduce:
        """Begin the sums of arrays of one type over all processes, in one message, in that type.

        All processes begin the same sums in the same order, and may wait for them in any order.

        Args:
            flat: The storage in which the sums may be computed; see `AsyncAllReduce`.
            at_once: Wait for the sums at once, where that takes less time in total.
            wire: ``"bfloat16"`` sends arrays of float32 as bfloat16.
        """
        self.collectives["all_reduce"] += 1
        self.at = topic
        is_short = wire is not None and arrays[0].dtype == np.float32
        if is_short:
            begin = self.begin_all_reduce_bfloat16
        elif at_once:
            begin = self.all_reduce_flat_at_once
        else:
            begin = self.begin_all_reduce_flat
        return AsyncAllReduce(
            topic, arrays, self.count, begin, flat=flat, is_short=is_short
        )

    # Reports of errors
    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def report_errors(self, where: Callable[[], str]) -> Iterator[None]:
        """Return a block that reports an error that ends it to the other processes.

        An error that came from them gets a note that says where this process is.
        """
        try:
            yield
        except Exception as error:
            if error is not self._reported_error and self.count > 1:
                self._reported_error = error
                self._report(error, where())
            raise

    def watch_the_end(self) -> None:
        """Report to the others when this process's program ends, or an uncaught error ends it."""
        atexit.register(self.finished)
        previous_hook = sys.excepthook

        def report_uncaught(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            atexit.unregister(self.finished)
            is_own = isinstance(error, Exception) and not isinstance(
                error, ProcessError
            )
            if not is_own or error is self._reported_error:
                previous_hook(kind, error, trace)
                return
            why = (
                f"{self} failed: {type(error).__name__}: {error}; the last that it did with "
                f"others: {self.at}"
            )
            error.add_note(why)
            previous_hook(kind, error, trace)
            self.failed(why)

        sys.excepthook = report_uncaught

    def _report(self, error: Exception, where: str) -> None:
        atexit.unregister(self.finished)
        if isinstance(error, ProcessError):
            error.add_note(f"{self} was in {where}")
        else:
            why = f"{self} failed in {where}: {type(error).__name__}: {error}"
            error.add_note(
                why
            )  # a launcher may end the others before they can print it
            self.failed(why)

    def timeout_error(self, at: Mapping[int, str], cause: str) -> ProcessError:
        """Return the error of a wait that has failed.

        Args:
            at: The topics at which the processes are that answer, by their number among all.
            cause: The message of the engine.
        """
        missing = [rank for rank in self.ranks if rank not in at]
        if missing:
            return ProcessError(
                f"{self}: {_have(missing)} not come to {self.at}, and no answer comes from there: "
                f"killed, stopped, hanging, or slower than the time limit ({cause})"
            )
        places = ", ".join(f"process {rank} at {at[rank]}" for rank in self.ranks)
        return ProcessError(f"{self}: all processes answer, {places} ({cause})")

    def others_finished(self, ranks: Sequence[int]) -> ProcessError:
        """Return the error of a wait for processes whose programs have ended.

        Args:
            ranks: Their numbers among all processes.
        """
        return ProcessError(
            f"{self} is at {self.at}, and {_have(ranks)} finished: every process must make the "
            "same steps, as many of them"
        )

    def __str__(self) -> str:
        """Return ``process 1 of 4 (MPI)``."""
        return f"process {self.rank} of {self.count} ({self.engine})"


def _have(ranks: Sequence[int]) -> str:
    """Return ``process 1 has`` or ``processes 1, 2 have``."""
    if len(ranks) == 1:
        return f"process {ranks[0]} has"
    return f"processes {', '.join(map(str, ranks))} have"


class SingleProcess(ProcessGroup):
    """The group of a single process: every collective works, and no message is sent."""

    engine = "no others"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Return the message of this process."""
        return [message]

    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return flat

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Return a function that returns the array itself, not rounded to bfloat16."""
        return lambda: flat

    def new_group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        """Return this group."""
        return self

    def failed(self, why: str) -> None:
        """Do nothing: there is no other process."""

    def request(self, what: str) -> None:
        """Make a request, which is agreed at once."""
        self.agreed = what
