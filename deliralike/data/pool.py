"""Pools of threads and processes that do jobs in order, and whose end nobody has to wait for.

The pools of `concurrent.futures` wait for a job that hangs, when they are left and once more when
the program ends, and do not tell which worker has which job. Here each worker has a thread of the
reader's, which is no reason for a program to go on; a worker process belongs to one such thread,
and is killed when it does not end by itself.
"""

import atexit
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from deliralike.errors import BatchError, SettingError, WorkerTimeout

# Seconds that workers have to end by themselves, without and with an error.
_PATIENCE = 5.0
_SHORT = 0.2
_START = (
    120.0  # seconds for a process to start, in which it imports what the samples need
)
KINDS = ("thread", "process")
_spawn = multiprocessing.get_context("spawn")


class Pool:
    """Threads or processes that take jobs in the order in which they are submitted.

    Nothing can end a thread from outside: one that hangs ends with the program. Processes are
    started with ``spawn``: safe beside PyTorch and JAX.

    Args:
        kind: ``"thread"`` or ``"process"``.
        count: The number of workers.
        make: The function from a job to its result.
        timeout: The most seconds to wait for a result, once a worker has started; without a limit
            when None.

    Raises:
        SettingError: `make` cannot be sent to a process.
    """

    def __init__(
        self,
        kind: str,
        count: int,
        make: Callable[[Any], Any],
        timeout: float | None = None,
    ) -> None:
        """Start the workers, and a thread for each."""
        self.timeout = timeout
        self._make = make
        self._started = threading.Event()
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._busy: dict[Future[Any], str] = {}
        self._processes: list[Any] = []
        self._threads: list[threading.Thread] = []
        packed = _packed(make) if kind == "process" else None
        # Before multiprocessing waits for its processes.
        atexit.register(self.end, _SHORT)
        try:
            for number in range(count):
                name = f"thread worker {number}"
                connection: Any = None
                if packed is not None:
                    connection, far_end = _spawn.Pipe()
                    with far_end:
                        process = _spawn.Process(target=_serve, args=(far_end, packed))
                        process.start()
                    self._processes.append(process)
                    name = f"process {process.pid}"
                thread = threading.Thread(
                    target=self._work,
                    args=(name, connection),
                    daemon=True,
                    name=f"deliralike {name}",
                )
                self._threads.append(thread)
                thread.start()
        except BaseException:
            self.end(_SHORT)
            raise

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End the pool: at once where an error or a second Ctrl-C leaves the block."""
        is_usual = kind is None or kind is GeneratorExit
        self.end(_PATIENCE if is_usual else _SHORT)

    def submit(self, job: Any) -> "Future[Any]":
        """Return the future result of a job."""
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Wait for the result of a job and return it.

        Raises:
            WorkerTimeout: The result has not come in time.
        """
        try:
            if self.timeout is not None:
                self._started.wait(max(self.timeout, _START))
            return future.result(self.timeout)
        except TimeoutError:
            if future.done():  # an error of the job's own
                raise
            raise WorkerTimeout(
                f"no batch has come within timeout={self.timeout:g} seconds: "
                f"{self._place_of(future)}. It hangs there, is stopped, or needs longer: look at "
                "what is read and transformed there, or give a longer timeout"
            ) from None
        except KeyboardInterrupt as error:
            error.add_note(f"while a batch was waited for: {self._place_of(future)}")
            raise

    def end(self, patience: float) -> None:
        """Cancel the waiting jobs, and kill the workers that have not ended in so many seconds."""
        until = time.monotonic() + patience
        with suppress(queue.Empty):
            while True:
                task = self._jobs.get_nowait()
                # None is the word to a worker that it may end, from an end that was interrupted.
                if task is not None:
                    task[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        for process in self._processes:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()  # also one that is stopped
            process.join()
        for thread in self._threads:
            # A killed process lets go of its thread.
            thread.join(max(_SHORT, until - time.monotonic()))
        atexit.unregister(self.end)

    def _work(self, name: str, connection: Any) -> None:
        make = self._make
        if connection is not None:
            make = partial(_answered, connection)
            # A process that has ended instead raises an error at its first job.
            with suppress(EOFError, ConnectionError):
                connection.recv()
        self._started.set()
        task = self._jobs.get()
        while task is not None:
            future, job = task
            if future.set_running_or_notify_cancel():
                self._busy[future] = f"{name} is at {job.place}"
                try:
                    future.set_result(make(job))
                except BaseException as error:  # noqa: BLE001
                    future.set_exception(error)
                del self._busy[future]
            del task, future, job  # nothing holds them while the next one is awaited
            task = self._jobs.get()
        if connection is not None:
            connection.close()

    def _place_of(self, awaited: "Future[Any]") -> str:
        busy = self._busy.copy()  # a job may wait for workers that hang in others
        if not busy:
            return "no worker has started"
        if awaited in busy:
            return busy[awaited]
        return ", ".join(busy.values())


def ahead(jobs: Iterator[Any], workers: Pool, count: int) -> Iterator[Any]:
    """Yield the results of jobs in order, `count` of them under way while one is used.

    An error is raised at the place of its job.
    """
    waiting: deque[Future[Any]] = deque()
    try:
        for job in jobs:
            waiting.append(workers.submit(job))
            if len(waiting) > count:
                yield workers.result(waiting.popleft())
        while waiting:
            yield workers.result(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()


def _answered(connection: Any, job: Any) -> Any:
    """Return the result of a job when a process has sent it."""
    try:
        # as bytes: `send` would leave a view of a buffer in the traceback of its error
        connection.send_bytes(pickle.dumps(job))
        result, error, trace = connection.recv()
    except (EOFError, ConnectionError) as gone:
        raise SettingError(
            "a worker process ended without an answer. Either it was killed (often for want "
            "of memory: use fewer workers), or the script that makes the Loader is run by "
            "the workers too: put what it does under if __name__ == '__main__', or use "
            "worker_kind='thread'."
        ) from gone
    if error is not None:
        raise error from _InWorker(trace)
    return result


def _packed(make: Callable[[Any], Any]) -> bytes:
    """Return the function that is sent to a worker process, as bytes.

    Raises:
        SettingError: Pickle cannot carry it.
    """
    try:
        return pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SettingError(
            "worker_kind='process' sends the samples and transforms to other processes with "
            f"pickle, which fails here: {error}. Use functions and classes that are defined at "
            "the top of a module, or worker_kind='thread'."
        ) from error


class _InWorker(Exception):
    """The place in a worker process where an error was raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


# In a worker process ------------------------------------------------------------------------------


def _serve(connection: Any, make: bytes) -> None:
    # Ctrl-C is for the reader, which may still want a batch, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    unpacked = _unpacked(make)
    with suppress(EOFError, ConnectionError):  # the reader has closed it
        connection.send("started")
        while True:
            job = connection.recv()
            try:
                answer: Any = unpacked(job), None, ""
            except Exception as error:  # noqa: BLE001
                answer = None, _sendable(error), traceback.format_exc()
            connection.send(answer)


def _end_with_parent() -> None:
    """End this process when the reader's ends: a killed reader cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _unpacked(make: bytes) -> Callable[[Any], Any]:
    try:
        return pickle.loads(make)
    except Exception as error:  # noqa: BLE001
        refusal = SettingError(
            f"a worker process cannot load the samples or transforms ({type(error).__name__}: "
            f"{error}). Define them in a module that it can import, not in a notebook or a "
            "console, or use worker_kind='thread'."
        )
        return partial(_refuse, refusal)


def _refuse(refusal: Exception, _job: Any) -> None:
    raise refusal


def _sendable(error: Exception) -> Exception:
    """Return the error, or one with its message if pickle cannot carry the error itself."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001
        substitute = BatchError(
            f"a worker process raised {type(error).__name__}: {error}"
        )
        for note in getattr(error, "__notes__", []):
            substitute.add_note(note)
        return substitute
    return error
