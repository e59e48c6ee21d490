"""The folder of a run: what its files are called, how it is made and held, and what it says of the run's state."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from deliralike.errors import SettingError, naming
from deliralike.training.history import Epoch, History, Step

SETTINGS, CODE, ENVIRONMENT, STATUS = (
    "settings.toml",
    "code.json",
    "environment.json",
    "status.json",
)
METRICS, TABLES, CURVES, PICTURES = (
    "metrics.jsonl",
    ("steps.csv", "epochs.csv"),
    "curves.png",
    "pictures",
)
TENSORBOARD = "tensorboard"
CHECKPOINTS, WEIGHTS, SUMMARY = "checkpoints", "weights.safetensors", "summary.json"
RUNNING, FINISHED, INTERRUPTED, FAILED, KILLED = (
    "running",
    "finished",
    "interrupted",
    "failed",
    "killed",
)


@dataclass(frozen=True)
class Status:
    """How a run stands.

    Attributes:
        status: ``"running"``, ``"finished"``, ``"interrupted"`` (a signal), ``"failed"`` (an
            error), or ``"killed"``: it says that it runs, and no process does.
        reason: Why it ended early, also where it has finished so; empty otherwise.
        started: When it was started first, in seconds since 1970.
        seconds: How long it has run in all.
        metrics: What the final weights were judged at, once the run has finished.
    """

    status: str
    reason: str = ""
    started: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


# Making and holding -------------------------------------------------------------------------------


def refuse_existing(path: str | Path) -> None:
    """An error when there is something of that name already: a run never writes over another."""
    if Path(path).exists():
        raise SettingError(
            f"{str(path)!r} exists already and is left as it is: choose another folder"
        )


def new_folder(path: str | Path) -> Path:
    """Make a folder that was not there before, and those above it.

    Raises:
        SettingError: There is something of that name already, or it cannot be made.
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
    """Make the first folder of ``prefix-0001``, ``prefix-0002`` … that was not there before."""
    for number in range(1, 10_000):
        path = Path(parent) / f"{prefix}-{number:04d}"
        if not path.exists():
            return new_folder(path)
    raise SettingError(
        f"{str(parent)!r} is full: it has 9,999 folders {prefix}-…; remove some, or choose "
        "another one"
    )


def new_or_next_folder(path: str | os.PathLike[str] | None, prefix: str) -> Path:
    """Make this folder, or the next one of that prefix under ``runs``."""
    return next_folder("runs", prefix) if path is None else new_folder(Path(path))


def refuse_none(folder: Path) -> None:
    """An error when a folder is neither that of a run nor that of folds.

    Raises:
        SettingError: Says what it is instead.
    """
    if (folder / SETTINGS).is_file():
        return
    refuse_several(folder)
    raise SettingError(f"{str(folder)!r} is not the folder of a run: there is no {SETTINGS} in it")


def refuse_several(folder: Path) -> None:
    """An error when a folder holds several runs."""
    if several := sorted(path.parent for path in folder.glob(f"*/{SETTINGS}")):
        raise SettingError(
            f"{str(folder)!r} holds several runs: name one, for example {str(several[0])!r}"
        )


def refuse_no_run(folder: Path) -> None:
    """An error when a folder is not that of one run.

    Raises:
        SettingError: Says what it is instead.
    """
    refuse_several(folder)
    refuse_none(folder)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process while the run goes on; it is let go even when the process is killed.

    Raises:
        SettingError: Another process holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingError(
                f"the run in {str(folder)!r} is going on in another process: wait for it, or stop "
                "it"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _is_held(folder: Path) -> bool:
    try:
        with held(folder):
            return False
    except SettingError:
        return True


# What it says of the run --------------------------------------------------------------------------


class Record:
    """The status of a run, as it is written: nothing until it begins.

    Attributes:
        reason: Why the run ends early; empty otherwise.
        metrics: What the final weights were judged at.
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is written yet."""
        self.folder = folder
        self.reason = ""
        self.metrics: Mapping[str, float] = {}
        self._begun: tuple[Status, float] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the run goes on, or has."""
        return self._begun is not None

    def begin(self) -> None:
        """Say that the run goes on."""
        before, now = read_status(self.folder), time.time()
        status = (
            replace(before, status=RUNNING, reason="") if before else Status(RUNNING, started=now)
        )
        write_status(self.folder, status)
        self._begun = status, now

    def end(self, status: str, reason: str, metrics: Mapping[str, float]) -> None:
        """Say how it ended; what was refused before it began leaves the status as it is."""
        if self._begun is None:
            return
        running, begin = self._begun
        seconds = running.seconds + time.time() - begin
        write_status(
            self.folder,
            replace(running, status=status, reason=reason, seconds=seconds, metrics=metrics),
        )


@contextmanager
def recorded(folder: Path, *, at_once: bool = True) -> Iterator[Record]:
    """Keep the status of a run that goes on in this block, and how it ended.

    Args:
        at_once: Whether the run begins here; where not, with `Record.begin`.
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
    """Write a run's status; it is there as a whole at any moment."""
    content = asdict(status)
    write_json(
        folder / STATUS,
        content | {"metrics": {name: _finite(value) for name, value in status.metrics.items()}},
    )


def read_status(folder: Path) -> Status | None:
    """How a run stands; None where it has not said.

    Raises:
        SettingError: The file does not hold a status.
    """
    if not (folder / STATUS).exists():
        return None
    content = read_json(folder / STATUS)
    known = {each.name for each in fields(Status)}
    if not isinstance(content, dict) or "status" not in content or not set(content) <= known:
        raise SettingError(f"{str(folder / STATUS)!r} does not hold the status of a run")
    status = Status(**content | {"metrics": _number(content.get("metrics", {}))})
    return (
        replace(status, status=KILLED)
        if status.status == RUNNING and not _is_held(folder)
        else status
    )


def read_history(folder: Path) -> History:
    """What a run has recorded in `METRICS`; lines that are damaged, or cut off by a kill, are left out.

    Raises:
        SettingError: The file cannot be read.
    """
    history = History()
    path = folder / METRICS
    try:
        lines = (
            path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        )
    except OSError as error:
        raise SettingError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    for record in map(_record, lines):
        if isinstance(record, Step):
            history.steps.append(record)
        elif isinstance(record, Epoch):
            history.epochs.append(record)
    return history


def _record(line: str) -> Step | Epoch | None:
    """What a line says; None where it is no record, or not a whole one."""
    try:
        content = json.loads(line)
        kind = _KINDS[content["kind"]]
        known = {each.name for each in fields(kind)}
        record: Step | Epoch = kind(
            **{name: _number(value) for name, value in content.items() if name in known}
        )
        figures = record.losses if isinstance(record, Step) else record.held_out
        numbers = (
            [record.loss, record.seconds, record.samples]
            if isinstance(record, Step)
            else [record.steps]
        )
        _ = [float(number) for number in [record.epoch, *numbers, *figures.values()]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return record


def write_json(path: Path, content: Any) -> None:
    """Write JSON aside and move it into its place, so that the old or the new is there at any moment."""
    aside = path.with_name(f".{path.name}.new")
    with naming(path):
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(aside, path)


def read_json(path: Path) -> Any:
    """What a file of JSON holds.

    Raises:
        SettingError: It cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"{str(path)!r} cannot be read: {error}") from error


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any) -> Any:
    """JSON has no NaN: a record has null there."""
    if isinstance(value, Mapping):
        return {name: _number(each) for name, each in value.items()}
    return math.nan if value is None else value


_KINDS: dict[str, Any] = {"step": Step, "epoch": Epoch}
