"""Reading in child processes with a limit on memory and time, which may die: what they died of is
the finding."""

import json
import math
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import DeliralikeError
from tests.fuzz.formats import Arrays, Format
from tests.fuzz.mutations import Files

# seconds on the clock, where others may be at work; those of the processor are the format's
PATIENCE = 600
OURS, THEIRS, DONE = "ours", "theirs", "done"


def samples(format: Format) -> list[Files]:
    """The whole files of a format, written in a child: some writers start threads, and then no one
    may fork."""
    with tempfile.TemporaryDirectory() as folder:
        list(_child(format, lambda: _save(format.samples(), Path(folder) / "samples")))
        return pickle.loads((Path(folder) / "samples").read_bytes())


def _save(made: list[Files], path: Path) -> Iterator[tuple[int, str, str]]:
    path.write_bytes(pickle.dumps(made))
    yield 0, DONE, ""


def findings(
    format: Format, cases: Callable[[int], Files], count: int, whole: int = 0
) -> Iterator[tuple[int, str]]:
    """The number of each case that is not read or refused as it should be, and what happened.

    Args:
        cases: Makes the files of a case from its number.
        count: How many there are.
        whole: How many of them, from the first, are not damaged and must be read.
    """
    begin = 0
    while begin < count:
        stage = OURS
        for number, stage, problem in _child(
            format,
            lambda first=begin: _cases(format, cases, range(first, count), whole),
        ):
            begin = number
            if problem:
                yield number, problem
        if stage == OURS and begin < count:
            yield begin, "the process died while our reader was at it, or took too long"
        begin += 1


def _child(
    format: Format, work: Callable[[], Iterator[tuple[int, str, str]]]
) -> Iterator[tuple[int, str, str]]:
    """What a forked process says, until it ends in whatever way."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of JAX, which fears threads: none has been started
        child = os.fork()
    if child == 0:
        os.close(reading)
        _limit(format)
        try:
            for said in work():
                os.write(writing, (json.dumps(said) + "\n").encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as lines:
        for line in lines:
            yield tuple(json.loads(line))
    os.waitpid(child, 0)


def _limit(format: Format) -> None:
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # ends the process, wherever it is
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + format.memory,) * 2
    )
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    _start_clocks(format)


def _start_clocks(format: Format) -> None:
    signal.setitimer(signal.ITIMER_PROF, format.seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)


def _cases(
    format: Format, cases: Callable[[int], Files], numbers: range, whole: int
) -> Iterator[tuple[int, str, str]]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for number in numbers:
        _start_clocks(format)
        place = folder / str(number)
        _place(place, cases(number))
        yield number, OURS, ""
        read, problem, refusal = _ours(format, place / format.target)
        if refusal and number < whole:
            problem = f"a whole file is refused: {refusal}"
        if format.refuses and not (refusal or problem):
            problem = "it is read"
        yield number, THEIRS, problem
        if not problem and isinstance(read, dict) and format.strict:
            yield number, THEIRS, _difference(format, read, place / format.target)
        shutil.rmtree(place)
    shutil.rmtree(folder)
    yield numbers.stop, DONE, ""


def _place(folder: Path, files: Files) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _ours(format: Format, path: Path) -> tuple[Any, str, str]:
    """What our reader gives, what is wrong with the way in which it refuses, and its refusal."""
    try:
        return format.read(path), "", ""
    except DeliralikeError as error:
        causes = list(_causes(error))
        if any(isinstance(cause, MemoryError) for cause in causes):
            return None, f"memory beyond the limit was asked for: {error}", ""
        return None, "", str(error)
    except BaseException as error:
        return None, f"{type(error).__name__}: {error}", ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _difference(format: Format, read: Arrays, path: Path) -> str:
    """How our arrays differ from those of the framework's own reader; nothing where that refuses
    the file."""
    try:
        wanted = format.strict(path)
    except BaseException:
        return ""
    if format.by_name and set(read) != set(wanted):
        return f"other names: {sorted(set(read) ^ set(wanted))}"
    values = {_value(array) for array in wanted.values()}
    for name, array in read.items():
        if format.by_name and _exact(array) != _exact(wanted[name]):
            return f"another array: {name!r}"
        if not format.by_name and _value(array) not in values:
            return f"an array that nobody wrote: {name!r}"
    return ""


def _exact(array: np.ndarray) -> tuple[Any, ...]:
    native = array.astype(array.dtype.newbyteorder("="))
    return (
        native.dtype,
        native.shape,
        (native != 0).tobytes() if native.dtype == bool else native.tobytes(),
    )


def _value(array: np.ndarray) -> tuple[int, bytes]:
    """The numbers of an array in any order and type, since layouts and bfloat16 change."""
    with np.errstate(all="ignore"):
        return math.prod(array.shape), np.sort(
            np.asarray(array, np.complex128), axis=None
        ).tobytes()
