"""Progress of a run: a bar with the rate, the time left, the loss and the last metrics."""

from __future__ import annotations

import io
import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from deliralike.data.packages import needed
from deliralike.training.callbacks.writer import Writer
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run

METRICS_SHOWN = 2
WIDE = 120  # columns of a terminal
NOTEBOOK_WIDTH, NOTEBOOK_SECONDS = 120, 0.5


class ProgressBar(Writer):
    """A bar on the terminal while the run goes on, or in the output of a notebook's cell; nothing where neither is.

    A run over a stream does not know its length: its bar shows the rate without the time left.

    Args:
        label: What stands in front of the bar.
        progress: Bars of which this is one, from `bars`, begun and ended by whoever made them. When
            not given, the bar is alone on standard output.

    Example:
        >>> from deliralike import rules, zoo
        >>> from deliralike.training import Trainer
        >>> network = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> trainer = Trainer(network, rules.rule("sgd", lr=0.1), callbacks=[ProgressBar("a small network")])
    """

    def __init__(self, label: str = "training", *, progress: Progress | None = None) -> None:
        """The bar appears when the run starts."""
        self.label, self.progress = label, progress
        self._alone = progress is None
        self._task: Any = None

    def on_start(self, run: Run) -> None:
        """Show the bar, at the place where the run is."""
        if self._alone:
            self.progress = bars()
            self.progress.start()
        per_epoch = run.steps_per_epoch
        in_epoch = -(-run.batch // next(iter(run.optimizers.values())).accumulate)
        self._task = self._bars.add_task(
            self.label,
            total=None if per_epoch is None else run.epochs * per_epoch,
            completed=0 if per_epoch is None else run.epoch * per_epoch + in_epoch,
            samples=0,
            text="",
            judged="",
        )

    def on_step(self, run: Run, step: Step) -> None:
        """Move on by a step."""
        samples = max(
            step.samples, self._bars.tasks[self._bars.task_ids.index(self._task)].fields["samples"]
        )
        self._bars.update(self._task, advance=1, samples=samples, text=f"loss {step.loss:.4g}")

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Show the first metrics."""
        shown = [
            f"{name} {value:.4g}" for name, value in list(epoch.held_out.items())[:METRICS_SHOWN]
        ]
        self._bars.update(self._task, judged=f"validation {', '.join(shown)}" if shown else "")

    def on_end(self, run: Run) -> None:
        """Leave the bar as it is at the end, with the reason if it came early."""
        if self._task is None:
            return
        task = self._bars.tasks[self._bars.task_ids.index(self._task)]
        if run.is_complete:
            self._bars.update(self._task, total=task.completed)
        if run.stopped:
            self._bars.update(self._task, text=f"stopped: {run.stopped}", judged="")
        self._bars.stop_task(self._task)
        self._task = None
        if self._alone:
            self._bars.stop()

    @property
    def _bars(self) -> Progress:
        assert self.progress is not None
        return self.progress


def bars(console: Console | None = None) -> Progress:
    """A place for bars, one below another; use it in a ``with`` block.

    Args:
        console: Where they are shown; standard output when not given.
    """
    console = console or Console()
    columns = [
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        RateColumn(with_samples=console.is_jupyter or console.width >= WIDE),
        TimeRemainingColumn(elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        TextColumn(
            "{task.fields[text]} {task.fields[judged]}",
            markup=False,
            table_column=Column(no_wrap=True, ratio=3),
        ),
    ]
    if console.is_jupyter:
        return NotebookBars(*columns, console=console)
    return Progress(*columns, console=console, disable=not console.is_terminal, expand=True)


class RateColumn(ProgressColumn):
    """Steps a second, and samples a second where there is room."""

    def __init__(self, with_samples: bool = True) -> None:
        """On one line."""
        super().__init__(table_column=Column(no_wrap=True))
        self._with_samples = with_samples

    def render(self, task: Task) -> Text:
        """The rate of one bar."""
        speed = task.finished_speed or task.speed
        if speed is None:
            return Text("")
        samples = f", {speed * task.fields['samples']:,.0f} samples/s" if self._with_samples else ""
        return Text(f"{speed:.3g} steps/s{samples}", style="cyan")


class NotebookBars(Progress):
    """Bars in a notebook: one output of the cell, drawn anew at most twice a second, without widgets."""

    def __init__(self, *columns: ProgressColumn, console: Console) -> None:
        """Bars that rich does not draw itself."""
        super().__init__(*columns, console=console, disable=True, expand=True)
        self._display: Any = None
        self._drawn = 0.0

    def start(self) -> None:
        """Make the output."""
        display = needed(
            "IPython.display", package="ipython", extra="notebooks", purpose="a bar in a notebook"
        ).display
        self._display = display(self._content(), raw=True, display_id=True)

    def stop(self) -> None:
        """Draw what they are at the end."""
        self._display.update(self._content(), raw=True)

    def update(self, *task: Any, **changes: Any) -> None:
        """Draw, unless that was just done."""
        super().update(*task, **changes)
        if self._display is not None and time.monotonic() - self._drawn > NOTEBOOK_SECONDS:
            self._drawn = time.monotonic()
            self._display.update(self._content(), raw=True)

    def _content(self) -> dict[str, str]:
        text = io.StringIO()
        Console(file=text, width=NOTEBOOK_WIDTH, force_jupyter=False, color_system=None).print(
            self.get_renderable()
        )
        return {"text/plain": text.getvalue().rstrip("\n")}
