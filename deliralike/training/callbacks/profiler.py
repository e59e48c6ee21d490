"""Profile of a run: its time by phase, and its memory."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.training.callbacks.writer import Writer
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run

PHASES = ("data", "first step", "step", "evaluation", "rest")


class Profiler(Writer):
    """Record the time of a run for data, steps, evaluation, and all else (callbacks, the loop).

    The first step stands alone, since it may compile. The numbers come from the records that every
    run makes, so that profiling costs next to nothing.

    Args:
        folder: The folder for ``profile.json`` and ``profile.txt`` at the end; nothing is written
            when not given.

    Attributes:
        seconds: The times of all occurrences of a phase, by phase.

    Example:
        >>> profiler = Profiler()
        >>> profiler.seconds["step"] += [0.25, 0.75]
        >>> profiler.summary()["phases"]["step"]
        {'count': 2, 'seconds': 1.0, 'share': 1.0, 'median': 0.5, 'longest': 0.75}
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        """Take the folder."""
        self.folder = None if folder is None else Path(folder)
        self.reset()

    def reset(self) -> None:
        """Begin without any record."""
        self.seconds: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.samples = 0
        self._begin: float | None = None

    def on_start(self, run: Run) -> None:
        """Record the time of the start."""
        self._begin = time.perf_counter()

    def on_step(self, run: Run, step: Step) -> None:
        """Add the times of a step and of its data."""
        phase = "step" if self.seconds["first step"] else "first step"
        self.seconds["data"].append(step.data_seconds)
        self.seconds[phase].append(step.seconds)
        self.samples += step.samples

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Add the time of an evaluation."""
        if epoch.held_out:
            self.seconds["evaluation"].append(epoch.evaluation_seconds)

    def on_end(self, run: Run) -> None:
        """Add the rest of the whole time, and write the files."""
        if self._begin is None:
            return
        whole = time.perf_counter() - self._begin
        self._begin = None
        known = self._total()
        self.seconds["rest"].append(max(0.0, whole - known))
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = json.dumps(self.summary(), indent=2)
            (self.folder / "profile.json").write_text(content + "\n", encoding="utf-8")
            (self.folder / "profile.txt").write_text(
                self.table() + "\n", encoding="utf-8"
            )

    def summary(self) -> dict[str, Any]:
        """Return seconds by phase, samples a second, and the process's peak memory in bytes."""
        whole = self._total()
        phases = {}
        for name, seconds in self.seconds.items():
            if seconds:
                phases[name] = _phase(seconds, whole)
        speed = self.samples / whole if whole else 0.0
        return {
            "phases": phases,
            "seconds": whole,
            "samples_per_second": speed,
            "peak_memory": peak_memory(),
        }

    def _total(self) -> float:
        return sum(sum(seconds) for seconds in self.seconds.values())

    def table(self) -> str:
        """Return the summary as a table in plain text."""
        summary = self.summary()
        sums = f"{'count':>8}{'seconds':>11}{'share':>9}"
        times = f"{'median ms':>12}{'longest ms':>13}"
        lines = [f"{'phase':12}{sums}{times}"]
        for name, phase in summary["phases"].items():
            median = 1e3 * phase["median"]
            longest = 1e3 * phase["longest"]
            sums = f"{phase['count']:>8}{phase['seconds']:>11.3f}{phase['share']:>9.1%}"
            lines.append(f"{name:12}{sums}{median:>12.2f}{longest:>13.2f}")
        no_count = " " * 8
        lines.append(f"{'whole':12}{no_count}{summary['seconds']:>11.3f}{1:>9.1%}")
        lines.append(f"{summary['samples_per_second']:,.1f} samples a second")
        if summary["peak_memory"] is not None:
            mebibytes = summary["peak_memory"] / 2**20
            lines.append(f"{mebibytes:,.0f} MiB of memory at most")
        return "\n".join(lines)


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None where the system does not tell."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    for line in status.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return None


def _phase(seconds: Sequence[float], whole: float) -> dict[str, Any]:
    total = float(sum(seconds))
    return {
        "count": len(seconds),
        "seconds": total,
        "share": total / whole if whole else 0.0,
        "median": float(np.median(seconds)),
        "longest": float(max(seconds)),
    }
