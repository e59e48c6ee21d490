"""Threads that run replicas at the same time; a failure of one of them stops the others."""

from __future__ import annotations

import contextvars
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

import threadpoolctl

from deliralike.parallel.replicas.context import Rendezvous, ReplicaStopped

Job = Callable[[], Any]
Work = Callable[[], None]
_PATIENCE = 1.0  # seconds, longer than the clean-up of a job that is stopped


def run_in_threads(
    jobs: Sequence[Job], places: Sequence[object], rendezvous: Rendezvous
) -> list[Any]:
    """Run every job in a thread of its own and return the results in order.

    Each thread has a copy of the caller's context. Threads are kept for later calls, except those
    whose job failed or was stopped. When one job fails the others are stopped: at once where they
    wait for each other, else at their next step of Python.

    Args:
        places: The name of each job in an error.
        rendezvous: The rendezvous in which the jobs exchange values.

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
        _wait([worker for worker in workers if worker.thread is not None], lambda: True)
        raise
    finally:
        for worker in workers:
            worker.others = ()  # so that no cycle keeps the results until a garbage collection
            worker.give_thread_back()
    for worker, place in zip(workers, places, strict=True):
        if worker.failure is not None:
            worker.failure.add_note(f"raised in {place}")
            raise worker.failure
    return [worker.result for worker in workers]


def run_in_turn(jobs: Sequence[Job], places: Sequence[object]) -> list[Any]:
    """Run every job in this thread and return the results in order.

    Raises:
        Exception: The failure of a job, as in `run_in_threads`.
    """
    results = []
    for job, place in zip(jobs, places, strict=True):
        try:
            results.append(contextvars.copy_context().run(job))
        except BaseException as error:
            error.add_note(f"raised in {place}")
            raise
    return results


class _Worker:
    """A job in a thread; its failure stops the jobs of the others."""

    def __init__(self, index: int, job: Job, rendezvous: Rendezvous) -> None:
        self.index = index
        self.job = job
        self.rendezvous = rendezvous
        self.context = contextvars.copy_context()
        self.others: Sequence[_Worker] = ()
        self.result: Any = None
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self.thread: PoolThread | None = None
        self.stopped = False
        self._thread_id = 0
        self._running = False
        self._state_lock = threading.Lock()

    def start(self) -> None:
        """Run the job in a thread."""
        self.thread = borrow()
        self.thread.give(f"replica {self.index}", self.run)

    def give_thread_back(self) -> None:
        """Keep the thread for other jobs, unless its job broke off and left it in unknown state."""
        if self.thread is None:
            return
        if self.stopped or self.failure is not None:
            self.thread.end()
        else:
            give_back(self.thread)

    def run(self) -> None:
        """Run the job; no error is raised."""
        try:
            try:
                if self._begin():
                    self._work()
            finally:
                self._end()
        except (
            ReplicaStopped
        ):  # it may be raised at any step above, and not after `_end`
            self._end()
        finally:
            self.rendezvous.leave(self.index)
            self.ended.set()

    def _begin(self) -> bool:
        with self._state_lock:
            self._thread_id = threading.get_ident()
            self._running = not self.stopped
            return self._running

    def _work(self) -> None:
        try:
            self.result = self.context.run(self.job)
        except ReplicaStopped:
            raise
        except BaseException as error:  # noqa: BLE001
            if (
                not self.stopped
            ):  # else it may be an error that a framework raised for it
                self.failure = error
            # Before the others are stopped, so that another failing job cannot interrupt this.
            self._end()
            _stop(
                [other for other in self.others if other is not self], self.rendezvous
            )

    def _end(self) -> None:
        with self._state_lock:
            self._running = False
            if self.stopped:
                # An exception that is not raised yet must not be raised in the thread's next job.
                _raise_pending(self._thread_id)

    def stop(self) -> None:
        """Raise `ReplicaStopped` in the thread, at its next step of Python."""
        with self._state_lock:
            self.stopped = True
            if self._running:
                _raise_in(self._thread_id, ReplicaStopped)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread at its next step of Python, instead of any pending one."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(kind)
    )


def _raise_pending(thread: int) -> None:
    """Raise and catch the pending exception of this thread.

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
    rendezvous.stop()  # first, since exceptions are not raised in a thread that waits
    for worker in workers:
        worker.stop()


def _wait(workers: Sequence[_Worker], are_stopped: Callable[[], bool]) -> None:
    """Wait until all have ended, and stop them again as long as they should have stopped.

    Python swallows an exception that is raised in a destructor or a callback.
    """
    for worker in workers:
        while not worker.ended.wait(_PATIENCE):
            if are_stopped():
                worker.stop()


# Threads that are kept between calls: frameworks keep memory and prepared kernels for each thread.
# On PyTorch a step of ResNet-18 takes 125 ms in threads that ran one before, 198 ms in new ones.
# ----------------------------------------------------------------------------------------------


class PoolThread:
    """One thread that runs jobs one after the other; it does not delay the interpreter's exit."""

    def __init__(self) -> None:
        """Start the thread."""
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def give(self, name: str, work: Work) -> None:
        """Let the thread run a function, which must not raise, under a name."""
        self._thread.name = name
        self._work.put(work)

    def end(self) -> None:
        """End the thread when its jobs are done."""
        self._work.put(None)

    def _run(self) -> None:
        while work := self._work.get():
            work()
            del work  # so that its objects are freed before the next job


_idle: list[PoolThread] = []
_lock = threading.Lock()
_watching_forks = False


def borrow() -> PoolThread:
    """Return an idle thread, or a new one."""
    with _lock:
        _watch_forks()
        if _idle:
            return _idle.pop()
        return PoolThread()


def give_back(thread: PoolThread) -> None:
    """Keep a thread for the next call."""
    with _lock:
        _idle.append(thread)


def _watch_forks() -> None:
    """Empty the pool in forked processes, which have none of its threads."""
    global _watching_forks
    if not _watching_forks:
        _watching_forks = True
        os.register_at_fork(
            before=_lock.acquire,
            after_in_parent=_lock.release,
            after_in_child=_empty_pool,
        )


def _empty_pool() -> None:
    _idle.clear()
    _lock.release()


# Threads of the libraries below
# -------------------------------------------------------------------------------------


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Return a block in which every BLAS in this process uses `count` threads for each caller."""
    with _controller(len(sys.modules)).limit(limits=count, user_api="blas"):
        yield


def blas_threads_now() -> int:
    """Return how many threads BLAS uses, which an environment variable may limit."""
    libraries = _controller(len(sys.modules)).select(user_api="blas").lib_controllers
    return min((library.num_threads for library in libraries), default=1)


@lru_cache(maxsize=1)
def _controller(_module_count: int) -> threadpoolctl.ThreadpoolController:
    """Return the controller of all loaded libraries; it is kept as long as no module is imported.

    Looking for the libraries takes milliseconds.
    """
    return threadpoolctl.ThreadpoolController()
