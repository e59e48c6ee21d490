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

from deliralike.errors import SettingError
from deliralike.training.history import Epoch, History, Step

SETTINGS, CODE, ENVIRONMENT, STATUS = "settings.toml", "code.json", "environment.json", "status.json"
METRICS, TABLES, CURVES, PICTURES = "metrics.jsonl", ("steps.csv", "epochs.csv"), "curves.png", "pictures"
TENSORBOARD = "tensorboard"
CHECKPOINTS, WEIGHTS, SUMMARY = "checkpoints", "weights.safetensors", "summary.json"
RUNNING, FINISHED, INTERRUPTED, FAILED, KILLED = "running", "finished", "interrupted", "failed", "killed"


@dataclass(frozen=True)
class Status:
    """How a run stands.

    Attributes:
        status: ``"running"``, ``"finished"``, ``"interrupted"`` (a signal), ``"failed"`` (an error), or ``"killed"``:
            it says that it runs, and no process does.
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


# Making and holding ----------------------------------------------------------------------------------------------


def refuse_existing(path: str | Path) -> None:
    """An error when there is something of that name already: a run never writes over another."""
    if Path(path).exists():
        raise SettingError(f"{str(path)!r} exists already and is left as it is: choose another folder")


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
        raise SettingError(f"the folder {str(path)!r} cannot be made ({error.strerror}): choose another one") from error
    return path


def next_folder(parent: str | Path, prefix: str) -> Path:
    """Make the first folder of ``prefix-0001``, ``prefix-0002`` … that was not there before."""
    for number in range(1, 10_000):
        path = Path(parent) / f"{prefix}-{number:04d}"
        if not path.exists():
            return new_folder(path)
    raise SettingError(f"{str(parent)!r} is full: it has 9,999 folders {prefix}-…; remove some, or choose another one")


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
        raise SettingError(f"{str(folder)!r} holds several runs: name one, for example {str(several[0])!r}")


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
                f"the run in {str(folder)!r} is going on in another process: wait for it, or stop it"
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


# What it says of the run -------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run says of its end before it ends."""

    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def recorded(folder: Path) -> Iterator[Outcome]:
    """Keep the status of a run that goes on in this block, and how it ended."""
    before, begin, outcome = read_status(folder), time.time(), Outcome()
    now = replace(before, status=RUNNING, reason="") if before else Status(RUNNING, started=begin)
    write_status(folder, now)

    def end(status: str, reason: str, metrics: Mapping[str, float]) -> None:
        seconds = now.seconds + time.time() - begin
        write_status(folder, replace(now, status=status, reason=reason, seconds=seconds, metrics=metrics))

    try:
        yield outcome
    except KeyboardInterrupt as error:
        end(INTERRUPTED, str(error) or "Ctrl-C", {})
        raise
    except BaseException as error:
        end(FAILED, f"{type(error).__name__}: {error}", {})
        raise
    end(FINISHED, outcome.reason, outcome.metrics)


def write_status(folder: Path, status: Status) -> None:
    """Write a run's status; it is there as a whole at any moment."""
    content = asdict(status)
    write_json(folder / STATUS, content | {"metrics": {name: _finite(value) for name, value in status.metrics.items()}})


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
    return replace(status, status=KILLED) if status.status == RUNNING and not _is_held(folder) else status


def read_history(folder: Path) -> History:
    """What a run has recorded in `METRICS`; a last line that was cut off by a kill is left out."""
    history = History()
    path = folder / METRICS
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        kind = _KINDS.get(record.get("kind"))
        if kind is not None:
            known = {each.name for each in fields(kind)}
            each = kind(**{name: _number(value) for name, value in record.items() if name in known})
            (history.steps if isinstance(each, Step) else history.epochs).append(each)
    return history


def write_json(path: Path, content: Any) -> None:
    """Write JSON aside and move it into its place, so that the old or the new is there at any moment."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(aside, path)


def read_json(path: Path) -> Any:
    """What a file of JSON holds.

    Raises:
        SettingError: It cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(f"{str(path)!r} cannot be read: {error}") from error


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any) -> Any:
    """JSON has no NaN: a record has null there."""
    if isinstance(value, Mapping):
        return {name: _number(each) for name, each in value.items()}
    return math.nan if value is None else value


_KINDS: dict[str, Any] = {"step": Step, "epoch": Epoch}
