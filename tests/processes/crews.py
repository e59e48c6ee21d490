"""Processes that stay together and do one job after another: most of what a job costs is the start
of its processes.

A crew has as many processes as any job needs; the first ones do a job for fewer. Each job has
connections of its own, as if its processes had been started for it. What ends a process is no job
for a crew: see `tests.processes.running`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from deliralike.backends.processes.launch import launched
from tests.processes.running import ends, skip_without_mpi

ROOT = Path(__file__).parents[2]
SIZES = {
    "torch": 4,
    "mpi": 4,
}  # the others cannot leave a process out of what they connect
# Crews at the same time; each process that has loaded all frameworks takes some hundred MB.
AT_MOST = 3
START = END = (
    600.0  # seconds: a busy machine takes minutes for what a quiet one does in two seconds
)

crews: list[Crew] = []  # the latest used one is the last
together = pytest.mark.xdist_group("crews")  # tests that use the same crews


class Crew:
    """The processes of an engine, which wait for jobs."""

    def __init__(self, engine: str, size: int) -> None:
        self.engine, self.size, self.jobs = engine, size, 0
        self.members: list[
            Any
        ] = []  # a connection to each process, and a file with what it answers
        self.said = tempfile.TemporaryFile("w+")
        with (
            tempfile.TemporaryDirectory() as folder,
            socket.socket(socket.AF_UNIX) as server,
        ):
            server.bind(f"{folder}/jobs")
            server.listen(size)
            command, environment = launched(
                engine, size, ["tests.processes.member", engine, f"{folder}/jobs"]
            )
            environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=self.said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.ended = os.pidfd_open(self.process.pid)
            self.members = self._accepted(server)

    def _accepted(self, server: socket.socket) -> list[Any]:
        """The processes, by their ranks, as soon as all have come."""
        members: dict[int, Any] = {}
        end = time.monotonic() + START
        while len(members) < self.size:
            self._await([server], end)
            connection = server.accept()[0]
            answers = connection.makefile()
            members[int(answers.readline())] = connection, answers
        return [members[rank] for rank in range(self.size)]

    def do(
        self, count: int, function: str, arguments: tuple[Any, ...], timeout: float
    ) -> list[Any]:
        """What each of the first `count` processes returns.

        Raises:
            AssertionError: One has failed, which ends the crew, or did not answer in time.
        """
        self.jobs += 1
        job = json.dumps([self.jobs, count, function, arguments])
        for connection, _ in self.members[:count]:
            connection.sendall(f"{job}\n".encode())
        end, answers = time.monotonic() + timeout, [""] * count
        while waiting := [rank for rank in range(count) if not answers[rank]]:
            ready = self._await([self.members[rank][0] for rank in waiting], end)
            for rank in waiting:
                connection, file = self.members[rank]
                if connection in ready:
                    answers[rank] = file.readline() or self._fail(
                        "a process has left its crew"
                    )
        results = []
        for rank, answer in enumerate(answers):
            results.append(json.loads(answer))
        return results

    def _await(self, files: list[Any], end: float) -> list[Any]:
        """Those from which something can be read, as soon as there are any."""
        ready = select.select(
            [*files, self.ended], [], [], max(end - time.monotonic(), 0.0)
        )[0]
        if not ready:
            self._fail("no answer in time")
        if ready == [self.ended]:
            self._fail("the launcher has ended")
        return ready

    def _fail(self, why: str) -> str:
        """End all processes at once, and say what they have said."""
        crews[:] = [crew for crew in crews if crew is not self]
        ends(
            self.process, 0 if why == "no answer in time" else 20
        )  # so that others can say what they know
        raise AssertionError(f"{why}\n{self._last_words()}")

    def end(self) -> None:
        """No more jobs; the processes must come to their end by themselves, without a word."""
        crews.remove(self)
        for connection, answers in self.members:
            answers.close()
            connection.close()
        has_ended = ends(self.process, END)
        said = self._last_words()
        assert has_ended, f"not ended {END} s after the last job\n{said}"
        assert self.process.returncode == 0, (
            f"ended with exit code {self.process.returncode}\n{said}"
        )

    def _last_words(self) -> str:
        """All that was said; nothing is left open."""
        os.close(self.ended)
        for connection, answers in self.members:
            answers.close()
            connection.close()
        with self.said as said:
            said.seek(0)
            return said.read()


def call(
    engine: str, count: int, function: str, *arguments: Any, timeout: float = 600.0
) -> list[Any]:
    """What ``"module:function"`` returns in each of `count` processes of an engine, in the order of
    their ranks.

    It is called with the processes and arguments that JSON can hold, and returns what JSON can
    hold.
    """
    skip_without_mpi(engine)
    size = SIZES.get(engine, count)
    crew = next(
        (crew for crew in crews if (crew.engine, crew.size) == (engine, size)), None
    )
    if crew is None:
        if len(crews) == AT_MOST:
            crews[0].end()
        crew = Crew(engine, size)
    else:
        crews.remove(crew)
    crews.append(crew)
    return crew.do(count, function, arguments, timeout)


def end_all() -> None:
    """Whatever crews there are."""
    while crews:
        crews[0].end()
