"""Batches made ahead by threads or processes, and handed out in order. Whoever stops early leaves nothing running.

Processes are those of Python's own pool, started with ``spawn``, which is safe beside PyTorch and JAX. Grain's were
tried (0.2.18): they import JAX in each process, ask the program to have parsed the command line's flags with absl, and
would see only finished batches of ours, since order and random numbers are keyed here. Grain's sources are welcome as
datasets.
"""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import repeat, takewhile
from typing import Any

from deliralike.data import transfer
from deliralike.errors import BatchError, SettingError

KINDS = ("thread", "process")


@dataclass(frozen=True)
class Workers:
    """How to hand a job to workers, to get at a result, and to give up one that nobody wants any more."""

    submit: Callable[[Any], "Future[Any]"]
    receive: Callable[[Any], Any] = lambda result: result
    discard: Callable[[Any], Any] = lambda result: None

    def result(self, future: "Future[Any]") -> Any:
        """The result of a job, when it is there."""
        try:
            return self.receive(future.result())
        except BrokenProcessPool as error:
            raise SettingError(
                "a worker process ended without an answer. Either it was killed (often for want of memory: use fewer "
                "workers), or the script that makes the Loader is run by the workers too: put what it does under "
                "if __name__ == '__main__', or use worker_kind='thread'."
            ) from error

    def give_up(self, future: "Future[Any]") -> None:
        """Cancel a job, or discard its result once it is there."""
        if not future.cancel():
            future.add_done_callback(lambda done: None if done.exception() else self.discard(done.result()))


def ahead(jobs: Iterator[Any], workers: Workers, count: int) -> Iterator[Any]:
    """The results of jobs in order, `count` of them under way while one is used.

    An error comes at the place of its job, also one that is raised while the jobs are read.
    """
    waiting: deque[Future[Any]] = deque()
    try:
        for future in _submitted(jobs, workers):
            waiting.append(future)
            if len(waiting) > count:
                yield workers.result(waiting.popleft())
        while waiting:
            yield workers.result(waiting.popleft())
    finally:
        for future in waiting:
            workers.give_up(future)


@contextmanager
def read_ahead(jobs: Iterator[Any], count: int) -> Iterator[Iterator[Any]]:
    """The same jobs, read by a thread of their own, `count` of them in advance."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="deliralike-reader")
    with _ended(pool):
        found = ahead(repeat(jobs), Workers(lambda source: pool.submit(next, source, None)), count)
        yield takewhile(lambda job: job is not None, found)


@contextmanager
def workers(kind: str, count: int, make: Callable[[Any], Any]) -> Iterator[Workers]:
    """So many threads or processes that make what jobs ask for. They have ended when the block is left.

    Raises:
        SettingError: `make` cannot be sent to a process.
    """
    if kind == "thread":
        threads = ThreadPoolExecutor(count, thread_name_prefix="deliralike-worker")
        with _ended(threads):
            yield Workers(lambda job: threads.submit(make, job))
    else:
        spawn = multiprocessing.get_context("spawn")
        with transfer.folder() as folder, ExitStack() as stack:
            processes = ProcessPoolExecutor(count, spawn, initializer=_receive, initargs=(packed(make), folder))
            stack.enter_context(_ended(processes))
            yield Workers(lambda job: processes.submit(_work, job), transfer.unpack, transfer.discard)


def packed(make: Callable[[Any], Any]) -> bytes:
    """What is sent to a worker process, as bytes."""
    try:
        return pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SettingError(
            f"worker_kind='process' sends the samples and transforms to other processes with pickle, which fails here: "
            f"{error}. Use functions and classes that are defined at the top of a module, or worker_kind='thread'."
        ) from error


@contextmanager
def _ended(pool: Executor) -> Iterator[None]:
    try:
        yield
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submitted(jobs: Iterator[Any], workers: Workers) -> Iterator["Future[Any]"]:
    try:
        for job in jobs:
            yield workers.submit(job)
    except Exception as error:  # noqa: BLE001 - raised again when its turn comes
        failed: Future[Any] = Future()
        failed.set_exception(error)
        yield failed


# In a worker process -------------------------------------------------------------------------------------------------

_received: tuple[bytes, str] = (b"", "")


def _receive(packed: bytes, folder: str) -> None:
    global _received
    _received = packed, folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the reader, who may still want a batch, and ends us
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()


def _end_with_parent(folder: str) -> None:
    """A reader that is killed cannot end its workers: they would wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _work(job: Any) -> transfer.Parcel:
    make = _unpacked()
    try:
        return transfer.pack(make(job), _received[1])
    except Exception as error:
        raise _sendable(error) from error


@cache
def _unpacked() -> Callable[[Any], Any]:
    try:
        return pickle.loads(_received[0])
    except Exception as error:
        raise SettingError(
            f"a worker process cannot load the samples or transforms ({type(error).__name__}: {error}). Define them "
            f"in a module that it can import, not in a notebook or a console, or use worker_kind='thread'."
        ) from error


def _sendable(error: Exception) -> Exception:
    """The error itself, or what it says if pickle cannot carry it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a user's exception class may do anything
        told = BatchError(f"a worker process raised {type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", []):
            told.add_note(note)
        return told
    return error
