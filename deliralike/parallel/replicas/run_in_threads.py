"""Threads that run replicas side by side, and what happens when one of them fails."""

from __future__ import annotations

import contextvars
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import threadpoolctl

from deliralike.parallel.replicas.rendezvous import Rendezvous, ReplicaStopped
from deliralike.parallel.replicas.thread_pool import Lane, borrow, give_back

Job = Callable[[], Any]
_PATIENCE = 1.0  # seconds; longer than what a job does while it is being stopped


def side_by_side(
    jobs: Sequence[Job], places: Sequence[object], rendezvous: Rendezvous
) -> list[Any]:
    """Run every job in a thread of its own and return the results in order.

    Each thread has a copy of the caller's context.

    The threads are kept for later calls, but for those whose job failed or was stopped.

    When one fails the others are stopped: at once where they wait for each other, else at their
    next step of Python.

    Args:
        places: What to call each job in an error.
        rendezvous: Where the jobs exchange values.

    Raises:
        Exception: The first failure in the order of jobs, of its own type and with its own
            traceback; a note says in which place it was raised.
    """
    workers = [_Worker(index, job, rendezvous) for index, job in enumerate(jobs)]
    try:
        for worker in workers:
            worker.others = workers
            worker.start()
        _wait(workers, lambda: any(worker.failure is not None for worker in workers))
    except BaseException:  # an interrupt of the caller
        _stop(workers, rendezvous)
        _wait([worker for worker in workers if worker.lane is not None], lambda: True)
        raise
    finally:
        for worker in workers:
            worker.others = ()  # no cycle keeps the results until the next garbage collection
            worker.give_lane_back()
    for worker, place in zip(workers, places, strict=True):
        if worker.failure is not None:
            worker.failure.add_note(f"raised in {place}")
            raise worker.failure
    return [worker.result for worker in workers]


def one_after_the_other(jobs: Sequence[Job], places: Sequence[object]) -> list[Any]:
    """Run every job in this thread; the results in order. Errors are as in `side_by_side`."""
    results = []
    for job, place in zip(jobs, places, strict=True):
        try:
            results.append(contextvars.copy_context().run(job))
        except BaseException as error:
            error.add_note(f"raised in {place}")
            raise
    return results


class _Worker:
    """One job; its failure stops the others."""

    def __init__(self, index: int, job: Job, rendezvous: Rendezvous) -> None:
        self.index, self.job, self.rendezvous = index, job, rendezvous
        self.context = contextvars.copy_context()
        self.others: Sequence[_Worker] = ()
        self.result: Any = None
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self.lane: Lane | None = None
        self._thread = 0
        self._running = self.stopped = False
        self._switch = threading.Lock()

    def start(self) -> None:
        """Run in a thread."""
        self.lane = borrow()
        self.lane.give(f"replica {self.index}", self.run)

    def give_lane_back(self) -> None:
        """Keep the thread for other jobs, unless its job broke off.

        What such a job left in the thread is unknown.
        """
        if self.lane is not None:
            if self.stopped or self.failure is not None:
                self.lane.end()
            else:
                give_back(self.lane)

    def run(self) -> None:
        """Run the job; nothing is raised."""
        try:
            try:
                if self._begin():
                    self._work()
            finally:
                self._end()
        except ReplicaStopped:  # it may come at any step above, and not after `_end`
            self._end()
        finally:
            self.rendezvous.leave(self.index)
            self.ended.set()

    def _begin(self) -> bool:
        with self._switch:
            self._thread = threading.get_ident()
            self._running = not self.stopped
            return self._running

    def _work(self) -> None:
        try:
            self.result = self.context.run(self.job)
        except ReplicaStopped:
            raise
        except BaseException as error:  # noqa: BLE001
            if not self.stopped:  # else it may be what a framework made of `ReplicaStopped`
                self.failure = error
            # before the others are stopped, so that another that fails now does not break in here
            self._end()
            _stop([other for other in self.others if other is not self], self.rendezvous)

    def _end(self) -> None:
        with self._switch:
            self._running = False
            if self.stopped:
                _take_back(
                    self._thread
                )  # what was sent and has not come yet must not come in the thread's next job

    def stop(self) -> None:
        """Raise `ReplicaStopped` in the thread, at its next step of Python."""
        with self._switch:
            self.stopped = True
            if self._running:
                _raise_in(self._thread, ReplicaStopped)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread at its next step of Python.

    It takes the place of one that has not come yet.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _take_back(thread: int) -> None:
    """Let what was sent to this thread come here, and go no further.

    Python can drop it, but would still look for it at every step, and before 3.12 a thread with a
    debugger or coverage then never gets past its next call.
    """
    try:
        _raise_in(thread, ReplicaStopped)
        while True:
            pass
    except ReplicaStopped:
        pass


def _stop(workers: Sequence[_Worker], rendezvous: Rendezvous) -> None:
    for worker in workers:
        worker.stopped = True
    rendezvous.stop()  # first, since what is sent comes only to a thread that does not wait
    for worker in workers:
        worker.stop()


def _wait(workers: Sequence[_Worker], are_stopped: Callable[[], bool]) -> None:
    """Wait until all have ended.

    Python swallows an exception that comes in a destructor or a callback, so whoever should have
    stopped is stopped again.
    """
    for worker in workers:
        while not worker.ended.wait(_PATIENCE):
            if are_stopped():
                worker.stop()


# Threads of the libraries below
# -------------------------------------------------------------------------------------


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Hold the threads of every BLAS in this process at `count` for each caller.

    Afterwards restore them.
    """
    with _controller(len(sys.modules)).limit(limits=count, user_api="blas"):
        yield


def blas_threads_now() -> int:
    """How many threads BLAS uses, which a variable of the environment may limit."""
    libraries = _controller(len(sys.modules)).select(user_api="blas").lib_controllers
    return min((library.num_threads for library in libraries), default=1)


@lru_cache(maxsize=1)
def _controller(modules: int) -> threadpoolctl.ThreadpoolController:
    # Looking through all loaded libraries takes milliseconds: anew only when modules, and libraries
    # with them, came in.
    return threadpoolctl.ThreadpoolController()


def all_of(*contexts: AbstractContextManager[Any]) -> ExitStack:
    """Several contexts as one, entered in order."""
    stack = ExitStack()
    try:
        for context in contexts:
            stack.enter_context(context)
    except BaseException:
        stack.close()
        raise
    return stack
