"""Cases in processes of their own: none leaves a trace in the next one, or takes for ever.

A server process imports the frameworks once, and is forked for each case before any of them has
computed anything. Programs that JAX compiles are kept in a folder for all of them, which is
JAX_COMPILATION_CACHE_DIR where somebody has set it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.score.judging import RAISED, Said

LIMIT = 300.0  # seconds a case
_PATIENCE = 0.5  # seconds between two looks at the clock
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_NUM_CPU_DEVICES": "4",
    # XLA compiles three times as fast; values are the same up to rounding
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_PRELOADED = (
    "torch",
    "flax.nnx",
    "optax",
    "deliralike.backends.chainer",
    "deliralike.backends.jax",
    "deliralike.backends.torch",
    "tests.score.running",
)


@dataclass
class _Running:
    task: Any
    process: Any
    start: float


def run_all(
    tasks: Iterable[Any], workers: int = 2, limit: float = LIMIT
) -> Iterator[tuple[Any, Any, Said]]:
    """Each task, its case and what the proof says of it, in the order in which they end."""
    with tempfile.TemporaryDirectory(prefix="deliralike-score-") as folder:
        os.environ.update(_ENVIRONMENT)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
        context = get_context("forkserver")
        waiting = deque(tasks)
        modules = dict.fromkeys(task.module for task in waiting)
        context.set_forkserver_preload([*_PRELOADED, *modules])
        running: dict[Connection, _Running] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    _begin(context, waiting.popleft(), running)
                yield from _ended(running, limit)
        finally:
            for one in running.values():
                one.process.kill()


def _begin(context: Any, task: Any, running: dict[Connection, _Running]) -> None:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(task, theirs), daemon=True)
    process.start()
    theirs.close()
    running[ours] = _Running(task, process, time.perf_counter())


def _run(task: Any, connection: Connection) -> None:
    """What a process does; this one here needs no framework."""
    from tests.score.running import run

    connection.send(run(task))
    connection.close()


def _ended(
    running: dict[Connection, _Running], limit: float
) -> Iterator[tuple[Any, Any, Said]]:
    ready = set(wait(list(running), _PATIENCE))
    for connection in list(running):
        one = running[connection]
        seconds = time.perf_counter() - one.start
        if connection in ready:
            case, found = _answer(connection, one, seconds)
        elif seconds > limit:
            one.process.kill()
            case, found = (
                one.task.case,
                Said(RAISED, f"stopped after {limit:.0f} s", seconds=seconds),
            )
        else:
            continue
        one.process.join()
        connection.close()
        del running[connection]
        yield one.task, case, found


def _answer(connection: Connection, one: _Running, seconds: float) -> tuple[Any, Said]:
    try:
        return connection.recv()
    except EOFError:
        one.process.join()
        code = one.process.exitcode
        return one.task.case, Said(
            RAISED, f"its process ended with code {code}", seconds=seconds
        )
