"""Where the time of a run goes, and how much memory it takes."""

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
    """Record how long the run waits for data, makes steps, evaluates, and does all else (callbacks, the loop itself).

    The first step stands alone, since it may compile. The numbers come from the records that every
    run makes, so that profiling costs next to nothing.

    Args:
        folder: At the end ``profile.json`` and ``profile.txt`` are written there; nothing when not
            given.

    Attributes:
        seconds: How long each occurrence of a phase took, by phase.

    Example:
        >>> profiler = Profiler()
        >>> profiler.seconds["step"] += [0.25, 0.75]
        >>> profiler.summary()["phases"]["step"]
        {'count': 2, 'seconds': 1.0, 'share': 1.0, 'median': 0.5, 'longest': 0.75}
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        """Nothing is recorded yet."""
        self.folder = None if folder is None else Path(folder)
        self.seconds: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.samples = 0
        self._begin: float | None = None

    def on_start(self, run: Run) -> None:
        """Look at the clock."""
        self._begin = time.perf_counter()

    def on_step(self, run: Run, step: Step) -> None:
        """Add a step and what it waited for."""
        self.seconds["data"].append(step.data_seconds)
        self.seconds["step" if self.seconds["first step"] else "first step"].append(step.seconds)
        self.samples += step.samples

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Add an evaluation."""
        if epoch.held_out:
            self.seconds["evaluation"].append(epoch.evaluation_seconds)

    def on_end(self, run: Run) -> None:
        """What is left of the whole is the rest; write it all down."""
        if self._begin is None:
            return
        whole, self._begin = time.perf_counter() - self._begin, None
        known = sum(sum(each) for each in self.seconds.values())
        self.seconds["rest"].append(max(0.0, whole - known))
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = json.dumps(self.summary(), indent=2)
            (self.folder / "profile.json").write_text(content + "\n", encoding="utf-8")
            (self.folder / "profile.txt").write_text(self.table() + "\n", encoding="utf-8")

    def summary(self) -> dict[str, Any]:
        """Seconds by phase, samples a second over the whole, and the most memory the process has had, in bytes."""
        whole = sum(sum(each) for each in self.seconds.values())
        phases = {name: _phase(each, whole) for name, each in self.seconds.items() if each}
        speed = self.samples / whole if whole else 0.0
        return {
            "phases": phases,
            "seconds": whole,
            "samples_per_second": speed,
            "peak_memory": peak_memory(),
        }

    def table(self) -> str:
        """The summary as a table in plain text."""
        found = self.summary()
        lines = [
            f"{'phase':12}{'count':>8}{'seconds':>11}{'share':>9}{'median ms':>12}{'longest ms':>13}"
        ]
        for name, phase in found["phases"].items():
            times = f"{phase['median'] * 1e3:>12.2f}{phase['longest'] * 1e3:>13.2f}"
            lines.append(
                f"{name:12}{phase['count']:>8}{phase['seconds']:>11.3f}{phase['share']:>9.1%}{times}"
            )
        lines.append(f"{'whole':12}{'':>8}{found['seconds']:>11.3f}{1:>9.1%}")
        lines.append(f"{found['samples_per_second']:,.1f} samples a second")
        if found["peak_memory"] is not None:
            lines.append(f"{found['peak_memory'] / 2**20:,.0f} MiB of memory at most")
        return "\n".join(lines)


def peak_memory() -> int | None:
    """The most memory that this process has had, in bytes; None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    found = [
        line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:")
    ]
    return 1024 * int(found[0]) if found else None


def _phase(seconds: Sequence[float], whole: float) -> dict[str, Any]:
    return {
        "count": len(seconds),
        "seconds": float(sum(seconds)),
        "share": float(sum(seconds) / whole) if whole else 0.0,
        "median": float(np.median(seconds)),
        "longest": float(max(seconds)),
    }
