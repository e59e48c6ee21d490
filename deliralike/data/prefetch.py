"""Batches made ahead by threads or processes, and handed out in order.

A reader that stops early leaves nothing running.

Grain's processes were tried (0.2.18): they import JAX in each process, ask the program to have
parsed the command line's flags with absl, and would see only finished batches of ours, since order
and random numbers are keyed here. Grain's sources are welcome as datasets.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import repeat, takewhile
from typing import Any

from deliralike.data import shared_memory
from deliralike.data.pool import Pool, ProcessWorker, Worker, ended, packed

KINDS = ("thread", "process")


def ahead(jobs: Iterator[Any], workers: Pool, count: int) -> Iterator[Any]:
    """Yield the results of jobs in order, `count` of them under way while one is used.

    An error is raised at the place of its job, also one that is raised while the jobs are read.
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
def read_ahead(
    jobs: Iterator[Any], count: int, timeout: float | None = None
) -> Iterator[Iterator[Any]]:
    """Read jobs in a separate thread, `count` of them in advance; see `workers` for `timeout`."""
    reader = Worker("thread reader", lambda source: next(source, None))
    with ended(Pool([reader], timeout)) as pool:
        read_jobs = ahead(repeat(jobs), pool, count)
        yield takewhile(lambda job: job is not None, read_jobs)


@contextmanager
def workers(
    kind: str, count: int, make: Callable[[Any], Any], timeout: float | None = None
) -> Iterator[Pool]:
    """Start threads or processes that do jobs; they have ended when the block is left.

    Args:
        timeout: The most seconds to wait for the result of a job; without a limit when None.

    Raises:
        SettingError: `make` cannot be sent to a process.
    """
    with ExitStack() as stack:
        if kind == "thread":
            started: Iterator[Worker] = (
                Worker(f"thread worker {number}", make) for number in range(count)
            )
        else:
            pickled = packed(make)
            folder = stack.enter_context(shared_memory.folder())
            started = (ProcessWorker(pickled, folder) for _ in range(count))
        yield stack.enter_context(ended(Pool(started, timeout)))


def _submitted(jobs: Iterator[Any], workers: Pool) -> Iterator["Future[Any]"]:
    try:
        for job in jobs:
            yield workers.submit(job)
    except Exception as error:  # noqa: BLE001
        failed: Future[Any] = Future()
        failed.set_exception(error)
        yield failed
