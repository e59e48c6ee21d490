"""The folder of a run: the names of its files, its making, its lock, and the run's status."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from deliralike.errors import SettingError, naming
from deliralike.setting_types import TypedSettings, refuse_other_types
from deliralike.training.array_file import replace_text
from deliralike.training.history import Epoch, History, Step
from deliralike.training.json_nests import without_nan
from deliralike.training.lock import take_lock

SETTINGS = "settings.toml"
CODE = "code.json"
ENVIRONMENT = "environment.json"
STATUS = "status.json"
METRICS = "metrics.jsonl"
CURVES = "curves.png"
SHEET = "predictions.png"
CONFUSION = "confusion.png"
TENSORBOARD = "tensorboard"
CHECKPOINTS = "checkpoints"
WEIGHTS = "weights.safetensors"
SUMMARY = "summary.json"

_OF_START = {
    "settings",
    "classes",
    "columns",
    "sample_shape",
    "below",
    "samples",
    "task",
}

RUNNING = "running"
FINISHED = "finished"
INTERRUPTED = "interrupted"
FAILED = "failed"
KILLED = "killed"


@dataclass(frozen=True)
class Status(TypedSettings):
    """The status of a run.

    Attributes:
        status: ``"running"``, ``"finished"``, ``"interrupted"`` (a signal), ``"failed"`` (an
            error), or ``"killed"``: the file has ``"running"``, and no process holds the folder.
        reason: The reason for an early end, also of a finished run; empty otherwise.
        started: The time of the first start, in seconds since 1970.
        seconds: The time that the run has taken in all.
        metrics: The metrics of the final weights, once the run has finished.
    """

    status: str
    reason: str = ""
    started: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


# Making and holding -------------------------------------------------------------------------------


def refuse_existing(path: str | Path) -> None:
    """Raise an error if the path exists already: a run never overwrites another."""
    if Path(path).exists():
        raise SettingError(
            f"{str(path)!r} exists already and is left as it is: choose another folder"
        )


def new_folder(path: str | Path) -> Path:
    """Make a new folder, and those above it.

    Raises:
        SettingError: The path exists already, or the folder cannot be made.
    """
    refuse_existing(path)
    path = Path(path)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise SettingError(
            f"the folder {str(path)!r} cannot be made ({error.strerror}): choose another one"
        ) from error
    return path


def next_folder(parent: str | Path, prefix: str) -> Path:
    """Make the first folder of ``prefix-0001``, ``prefix-0002`` … that does not exist."""
    paths = (Path(parent) / f"{prefix}-{number:04d}" for number in count(1))
    return new_folder(next(path for path in paths if not path.exists()))


def new_or_next_folder(path: str | os.PathLike[str] | None, prefix: str) -> Path:
    """Make this folder, or the next one of that prefix under ``runs``."""
    if path is None:
        return next_folder("runs", prefix)
    return new_folder(Path(path))


def refuse_no_run(folder: Path, may_have_folds: bool = False) -> None:
    """Raise an error if a folder is not that of one run, or that of folds, if it may be.

    Raises:
        SettingError: The message says what the folder is instead.
    """
    is_run = (folder / SETTINGS).is_file()
    several = sorted(path.parent for path in folder.glob(f"*/{SETTINGS}"))
    if several and not (is_run and may_have_folds):
        raise SettingError(
            f"{str(folder)!r} holds several runs: name one, for example {str(several[0])!r}"
        )
    if not is_run:
        raise SettingError(
            f"{str(folder)!r} is not the folder of a run: there is no {SETTINGS} in it"
        )


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a run's folder for this process in a block; a killed process releases it too.

    Raises:
        SettingError: Another process holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not take_lock(descriptor):
            raise SettingError(
                f"the run in {str(folder)!r} is going on in another process: wait for it, or stop "
                "it"
            )
        yield
    finally:
        os.close(descriptor)


# Status and history -------------------------------------------------------------------------------


class Record:
    """The writer of a run's status; nothing is written until the run begins.

    Attributes:
        reason: The reason for an early end; empty otherwise.
        metrics: The metrics of the final weights.
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder without writing."""
        self.folder = folder
        self.reason = ""
        self.metrics: Mapping[str, float] = {}
        self._begun: tuple[Status, float] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the run has begun."""
        return self._begun is not None

    def begin(self) -> None:
        """Write that the run is running."""
        before = read_status(self.folder)
        now = time.time()
        if before is None:
            status = Status(RUNNING, started=now)
        else:
            status = replace(before, status=RUNNING, reason="")
        write_status(self.folder, status)
        self._begun = (status, now)

    def end(self, status: str, reason: str, metrics: Mapping[str, float]) -> None:
        """Write how the run ended; a run that has not begun leaves the status as it is."""
        if self._begun is None:
            return
        running, begin = self._begun
        seconds = running.seconds + time.time() - begin
        ended = replace(
            running, status=status, reason=reason, seconds=seconds, metrics=metrics
        )
        write_status(self.folder, ended)


@contextmanager
def track_status(folder: Path, *, at_once: bool = True) -> Iterator[Record]:
    """Write the status of a run in this block, and how the run ended.

    Args:
        at_once: Whether the run begins here; if not, it begins with `Record.begin`.
    """
    record = Record(folder)
    if at_once:
        record.begin()
    try:
        yield record
    except KeyboardInterrupt as error:
        record.end(INTERRUPTED, str(error) or "Ctrl-C", {})
        raise
    except BaseException as error:
        record.end(FAILED, f"{type(error).__name__}: {error}", {})
        raise
    record.end(FINISHED, record.reason, record.metrics)


def write_status(folder: Path, status: Status) -> None:
    """Write a run's status; the file is whole at any moment."""
    write_json(folder / STATUS, without_nan(asdict(status)))


def read_status(folder: Path) -> Status | None:
    """Read the status of a run; None if there is no file.

    Raises:
        SettingError: The file does not hold a status.
    """
    if not (folder / STATUS).exists():
        return None
    content = read_json(folder / STATUS)
    try:
        status = Status(**content)
        status = replace(status, metrics=_number(status.metrics))
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"{str(folder / STATUS)!r} does not hold the status of a run: {error}"
        ) from error
    if status.status == RUNNING:
        with suppress(SettingError), lock_folder(folder):
            return replace(status, status=KILLED)
    return status


def read_history(folder: Path) -> History:
    """Read the records of a run in `METRICS`, without damaged lines and those cut off by a kill.

    Raises:
        SettingError: The file cannot be read.
    """
    history = History()
    path = folder / METRICS
    if not path.exists():
        return history
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SettingError(
            f"{str(path)!r} cannot be read: {error.strerror or error}"
        ) from error
    for record in map(_record, text.splitlines()):
        if isinstance(record, Step):
            history.steps.append(record)
        elif isinstance(record, Epoch):
            history.epochs.append(record)
    return history


def _record(line: str) -> Step | Epoch | None:
    """Return the record of a line; None if it is no record, or not a whole one."""
    try:
        content = json.loads(line)
        kind = _KINDS[content["kind"]]
        known = {each.name for each in fields(kind)}
        values = {
            name: _number(value) for name, value in content.items() if name in known
        }
        refuse_other_types(line, kind, values)
        return kind(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def read_last_start(folder: Path) -> dict[str, Any]:
    """Return what was written when a run was last started: its settings, classes, code.

    Raises:
        SettingError: There is no such file, or it holds something else.
    """
    starts = read_json(folder / CODE)
    last = starts[-1] if isinstance(starts, list) and starts else None
    if not isinstance(last, dict) or not last.keys() >= _OF_START:
        raise SettingError(f"{str(folder / CODE)!r} does not hold the starts of a run")
    return last


def write_json(path: Path, content: Any) -> None:
    """Write a file of JSON, which is whole at any moment."""
    with naming(path):
        replace_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a file of JSON.

    Raises:
        SettingError: The file cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"{str(path)!r} cannot be read: {error}") from error


def _number(value: Any) -> Any:
    """Return a value with NaN in the place of None, since JSON has no NaN."""
    if isinstance(value, Mapping):
        return {name: _number(each) for name, each in value.items()}
    if value is None:
        return math.nan
    float(value)  # an error if it is none
    return value


_KINDS: dict[str, Any] = {"step": Step, "epoch": Epoch}
