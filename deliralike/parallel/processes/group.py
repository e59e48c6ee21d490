"""The process group: the processes that train together, as each of them sees the others.

It states what an engine must provide, and what follows.
"""

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
from weakref import WeakSet

import numpy as np

from deliralike.errors import CapabilityError, ProcessError
from deliralike.parallel.processes.async_all_reduce import AsyncAllReduce


@dataclass(frozen=True)
class RankInfo:
    """The rank of a process, the number of processes, and ``host:port`` of the first one."""

    rank: int
    count: int
    address: str


class ProcessGroup(ABC):
    """A group of processes, each of which calls the same methods in the same order.

    There is no engine here: torch.distributed, MPI or JAX's runtime moves the bytes. What they do
    not say by themselves is said here: what each message is, so that processes at different places
    do not mix up their numbers.

    Attributes:
        rank: The number of this process; 0 is the root, which writes and shows.
        count: How many there are.
        engine: What moves the bytes, in words.
        ranks: The numbers of these processes among all that were started together.
        collectives: How often each kind of message was sent, for whoever counts them.
        waiting: What has begun with sums, and finishes them by ``finish()`` before the group is
            left.
        at: What this process did with the others latest, or waits for, in words.
        agreed: What some process has asked of all with `ask`, and all know since the same exchange;
            empty else.
    """

    engine = "none"

    def __init__(self, rank: int, count: int, ranks: Sequence[int] | None = None) -> None:
        """Process `rank` of `count`."""
        self.rank, self.count = rank, count
        self.ranks = tuple(range(count) if ranks is None else ranks)
        self.collectives: Counter[str] = Counter()
        self.waiting: WeakSet[Any] = WeakSet()
        self.at = "the beginning"
        self.agreed = ""
        self._asked = ""
        self._told_of: Exception | None = None

    # What an engine provides
    # -----------------------------------------------------------------------------------------

    @abstractmethod
    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Every process's message, in the order of ranks; they may differ in length."""

    def begin_all_gather_bytes(self, message: bytes) -> Callable[[], list[bytes]]:
        """Begin with what `all_gather_bytes` does, and give what waits for it.

        An engine that cannot do this in the background gathers at once.
        """
        came = self.all_gather_bytes(message)
        return lambda: came

    @abstractmethod
    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """Return the sum of an array ``(n,)`` over all processes, in its own type.

        The result has the same bits in each of them.
        """

    def begin_all_reduce_flat(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """Begin an `all_reduce_flat`, and return a function that waits for its result.

        The array belongs to the engine from now on.

        An engine that cannot do this in the background sums at once.
        """
        return self.all_reduce_flat_at_once(flat)

    def all_reduce_flat_at_once(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """`begin_all_reduce_flat` for whoever would wait next: the sum is there."""
        total = self.all_reduce_flat(flat)
        return lambda: total

    def broadcast_flat(self, flat: np.ndarray, source: int) -> np.ndarray:
        """Return the array ``(n,)`` of one process in all processes.

        The others give one of its size and type.

        By a sum, unless an engine has something better.
        """
        return self.all_reduce_flat(flat if self.rank == source else np.zeros_like(flat))

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """`begin_all_reduce_flat` of an array of float32 that is sent as bfloat16.

        Raises:
            CapabilityError: The engine cannot.
        """
        raise CapabilityError(f"{self} cannot send bfloat16: leave wire out")

    @abstractmethod
    def subgroup(self, ranks: Sequence[int]) -> ProcessGroup:
        """Return a subgroup of these processes as a process group of its own.

        Every process of this group makes the call.

        One that is not among them gets a group that it must not use.
        """

    @abstractmethod
    def failed(self, why: str) -> None:
        """Tell the others that this process is about to end by an error.

        Where they cannot be told, this process ends them.
        """

    def finished(self) -> None:
        """Tell the others that the program of this process has come to its end.

        It may be that none waits.
        """

    def abandoned(self) -> str:
        """Return why others have given up or failed, unnoticed by this process so far.

        The text is empty when they have not.
        """
        return ""

    def close(self) -> None:
        """Leave the group, once all others have come to this point, too.

        Raises:
            ProcessError: Another process still has something to do with this one, such as one more
                batch.
        """
        for each in self.waiting:
            each.finish()
        self.all_gather_object("the end", None)
        atexit.unregister(self.finished)

    # Written once
    # ----------------------------------------------------------------------------------------------

    @property
    def is_root(self) -> bool:
        """Whether this process is the one that writes and shows."""
        return self.rank == 0

    def all_gather_object(self, topic: str, value: Any) -> list[Any]:
        """Give any picklable value to all processes and take theirs, in the order of ranks.

        Raises:
            ProcessError: Another process is at another topic.
        """
        return self.begin_all_gather_object(topic, value)()

    def begin_all_gather_object(self, topic: str, value: Any) -> Callable[[], list[Any]]:
        """Begin an `all_gather_object`, and return a function that waits for its result."""
        self.collectives["all_gather"] += 1
        self.at = topic
        come = self.begin_all_gather_bytes(
            pickle.dumps((topic, value, self._asked), pickle.HIGHEST_PROTOCOL)
        )

        def finish() -> list[Any]:
            self.at = topic
            came = [pickle.loads(each) for each in come()]
            for rank, (other, _, _) in enumerate(came):
                if other != topic:
                    raise ProcessError(
                        f"process {self.rank} is at {topic} while process {rank} is at {other}: "
                        "every process must make the same steps with the same layers"
                    )
            self.agreed = self.agreed or next((asked for _, _, asked in came if asked), "")
            return [each for _, each, _ in came]

        return finish

    def ask(self, what: str) -> None:
        """Ask something of all processes.

        They learn it with the next exchange, which carries it along.
        """
        self._asked = what

    def forget(self) -> None:
        """What was asked has been done; in all processes at the same point."""
        self._asked = self.agreed = ""

    @contextmanager
    def telling(self, where: Callable[[], str]) -> Iterator[None]:
        """Tell the others of an error that ends this block.

        For an error that came from them, say where this process is.
        """
        try:
            yield
        except Exception as error:
            if error is not self._told_of and self.count > 1:
                self._told_of = error
                self._tell(error, where())
            raise

    def watch_the_end(self) -> None:
        """Tell the others when this process's program ends.

        They are told also when an error ends it that nothing catches.
        """
        atexit.register(self.finished)
        before = sys.excepthook

        def ended_by(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            atexit.unregister(self.finished)
            is_own = isinstance(error, Exception) and not isinstance(error, ProcessError)
            is_news = is_own and error is not self._told_of
            why = (
                f"{self} failed: {type(error).__name__}: {error}; the last that it did with "
                f"others: {self.at}"
            )
            if is_news:
                error.add_note(why)
            before(kind, error, trace)
            if is_news:
                self.failed(why)

        sys.excepthook = ended_by

    def _tell(self, error: Exception, where: str) -> None:
        atexit.unregister(self.finished)
        if isinstance(error, ProcessError):
            error.add_note(f"{self} was in {where}")
        else:
            why = f"{self} failed in {where}: {type(error).__name__}: {error}"
            error.add_note(why)  # a launcher may end the others before they can say so
            self.failed(why)

    def absence(self, at: Mapping[int, str], cause: str) -> ProcessError:
        """The error of a wait that has failed.

        Args:
            at: Where the processes are that answer, by their number among all.
            cause: What the engine says.
        """
        if missing := [str(rank) for rank in self.ranks if rank not in at]:
            who = (
                f"process {missing[0]} has"
                if len(missing) == 1
                else f"processes {', '.join(missing)} have"
            )
            return ProcessError(
                f"{self}: {who} not come to {self.at}, and no answer comes from there: killed, "
                f"stopped, hanging, or slower than the time limit ({cause})"
            )
        places = ", ".join(f"process {rank} at {at[rank]}" for rank in self.ranks)
        return ProcessError(f"{self}: all processes answer, {places} ({cause})")

    def others_finished(self, ranks: Sequence[int]) -> ProcessError:
        """Return the error of a wait for processes whose programs are at their end.

        The processes are given by their numbers among all.
        """
        who = (
            f"process {ranks[0]} has"
            if len(ranks) == 1
            else f"processes {', '.join(map(str, ranks))} have"
        )
        return ProcessError(
            f"{self} is at {self.at}, and {who} finished: every process must make the same steps, "
            "as many of them"
        )

    def broadcast_object(self, topic: str, value: Any) -> Any:
        """The root's value, in every process."""
        return self.all_gather_object(topic, value if self.is_root else None)[0]

    def broadcast(self, arrays: Sequence[np.ndarray], source: int) -> list[np.ndarray]:
        """Broadcast the arrays of one process to all processes, in one message.

        The others give some of the same sizes and types.

        Nothing says what they are: use it after an `all_gather_object`, in which all have come to
        the same point.
        """
        self.collectives["broadcast"] += 1
        own = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        parts = np.split(
            self.broadcast_flat(np.concatenate(own), source),
            np.cumsum([len(each) for each in own])[:-1],
        )
        # copies, since in the message a number may stand where its type is not to stand
        return [
            part.view(array.dtype).reshape(array.shape).copy()
            for part, array in zip(parts, arrays, strict=True)
        ]

    def all_reduce(self, topic: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums of arrays over all processes: one message for each type, in that type.

        Raises:
            ProcessError: Another process came with other arrays.
        """
        described = [(array.dtype.str, array.shape) for array in arrays]
        for rank, other in enumerate(
            self.all_gather_object(f"{topic}, their types and shapes", described)
        ):
            if other != described:
                raise ProcessError(
                    f"{topic}: process {self.rank} has {described}, process {rank} has {other}: "
                    "every process must have the same network"
                )
        totals: list[Any] = [None] * len(arrays)
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            places = [index for index, array in enumerate(arrays) if array.dtype == dtype]
            self.collectives["all_reduce"] += 1
            flat = self.all_reduce_flat_at_once(
                np.concatenate([np.ravel(arrays[index]) for index in places])
            )()
            ends = np.cumsum([arrays[index].size for index in places])
            for index, part in zip(places, np.split(flat, ends[:-1]), strict=True):
                totals[index] = part.reshape(arrays[index].shape)
        return totals

    def begin_all_reduce(
        self,
        topic: str,
        arrays: Sequence[np.ndarray],
        flat: np.ndarray | None = None,
        *,
        at_once: bool = False,
        wire: str | None = None,
    ) -> AsyncAllReduce:
        """Begin with the sums of arrays of one type, in one message, in that type.

        All processes begin with the same sums in the same order, and may wait for them in any.

        Args:
            flat: Where the sums may be made; see `AsyncAllReduce`.
            at_once: Do not go on before they are there, where that takes less time on the whole.
            wire: ``"bfloat16"`` for arrays of float32 that are sent as such.
        """
        self.collectives["all_reduce"] += 1
        self.at = topic
        begin = self.all_reduce_flat_at_once if at_once else self.begin_all_reduce_flat
        if is_short := wire is not None and arrays[0].dtype == np.float32:
            begin = self.begin_all_reduce_bfloat16
        return AsyncAllReduce(topic, arrays, self.count, begin, flat, is_short)

    # deprecated aliases
    exchange, of_root, sum = all_gather_object, broadcast_object, all_reduce

    def __str__(self) -> str:
        """``process 1 of 4 (MPI)``."""
        return f"process {self.rank} of {self.count} ({self.engine})"


class SingleProcess(ProcessGroup):
    """One process by itself: everything works, and no message is sent."""

    engine = "no others"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def all_gather_bytes(self, message: bytes) -> list[bytes]:
        """Its own."""
        return [message]

    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """As it is."""
        return flat

    def begin_all_reduce_bfloat16(self, flat: np.ndarray) -> Callable[[], np.ndarray]:
        """As it is; nothing is sent."""
        return lambda: flat

    def subgroup(self, ranks: Sequence[int]) -> ProcessGroup:
        """Itself."""
        return self

    def failed(self, why: str) -> None:
        """There is nobody to tell."""

    def ask(self, what: str) -> None:
        """Of itself."""
        self.agreed = what


Place = RankInfo  # deprecated alias
Processes = ProcessGroup  # deprecated alias
Alone = SingleProcess  # deprecated alias
