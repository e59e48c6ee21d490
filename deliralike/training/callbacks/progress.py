"""Progress of a run: a bar with the rate, the time left, the loss and the last metrics."""

from __future__ import annotations

import sys
import time
from itertools import takewhile
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

from deliralike import terminal
from deliralike.training.callbacks.callback import Writer
from deliralike.training.history import Epoch, Step, shown_figures
from deliralike.training.run import Run

METRICS_SHOWN = 2
SECONDS = 0.1  # between two losses that are shown


class ProgressBar(Writer):
    """Show a bar on the terminal while the run goes on; elsewhere a line for each epoch.

    Such a line has the mean loss of the epoch's steps, their rate, and the metrics. A run over a
    stream does not know its length: its bar shows the rate without the time left.

    Args:
        label: The text in front of the bar.
        progress: The bars of which this is one, from `bars`, begun and ended by their maker. When
            not given, the bar is alone on standard output.

    Example:
        >>> from deliralike import rules, zoo
        >>> from deliralike.training import Trainer
        >>> network = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> bar = ProgressBar("a small network")
        >>> trainer = Trainer(network, rules.rule("sgd", lr=0.1), callbacks=[bar])
    """

    def __init__(
        self, label: str = "training", *, progress: Progress | None = None
    ) -> None:
        """Take the label; the bar appears when the run starts."""
        self.label = label
        self.progress: Any = progress
        self._alone = progress is None
        self._task: Any = None
        self._advanced = 0  # steps that the bar does not show yet
        self._shown = 0.0

    def on_start(self, run: Run) -> None:
        """Show the bar at the run's position."""
        if self._alone:
            self.progress = bars()
            self.progress.start()
        total = None
        completed = 0
        if run.steps_per_epoch is not None:
            optimizer = next(iter(run.optimizers.values()))
            micro_batches = optimizer.accumulate
            steps_in_epoch = -(-run.batch // micro_batches)
            total = run.epochs * run.steps_per_epoch
            completed = run.epoch * run.steps_per_epoch + steps_in_epoch
        self._task = self.progress.add_task(
            self.label,
            total=total,
            completed=completed,
            text="",
            validation="",
        )

    def on_step(self, run: Run, step: Step) -> None:
        """Advance the bar by a step."""
        self._advanced += 1
        if time.monotonic() - self._shown >= SECONDS:
            self._show(step)

    def _show(self, step: Step) -> None:
        """Draw all steps so far, with the loss of the last one, which waits for the device."""
        text = f"loss {step.loss:.4g}"
        self.progress.update(self._task, advance=self._advanced, text=text)
        self._advanced = 0
        self._shown = time.monotonic()

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Show the last steps and the first metrics."""
        if self._advanced:
            self._show(run.history.steps[-1])
        validation = _validation(epoch)
        self.progress.update(
            self._task, validation=", ".join(validation[:METRICS_SHOWN])
        )
        if self.progress.disable:
            self._print(", ".join([*_training(run, epoch), *validation]))

    def on_end(self, run: Run) -> None:
        """Stop the bar, with the reason if the run ended early."""
        if self._task is None:
            return
        if self._advanced:
            self._show(run.history.steps[-1])
        if run.is_complete:
            bar = self.progress.tasks[self.progress.task_ids.index(self._task)]
            self.progress.update(self._task, total=bar.completed)
        if run.stopped:
            self.progress.update(
                self._task, text=f"stopped: {run.stopped}", validation=""
            )
            if self.progress.disable:
                self._print(f"stopped: {run.stopped}")
        self.progress.stop_task(self._task)
        self._task = None
        if self._alone:
            self.progress.stop()

    def _print(self, text: str) -> None:
        """Print a line of any length."""
        line = f"{self.label}: {text}"
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def bars(console: Console | None = None) -> Progress:
    """Return a place for bars, one below another; use it in a ``with`` block.

    Args:
        console: The console that shows them; standard output when not given, which is no terminal
            where it is piped, even if FORCE_COLOR asks for colours.
    """
    console = console or terminal.console(force_terminal=sys.stdout.isatty())
    columns = [
        TextColumn(
            "{task.description}", markup=False, table_column=Column(no_wrap=True)
        ),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        RateColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(
            elapsed_when_finished=True, table_column=Column(no_wrap=True)
        ),
        TextColumn(
            "{task.fields[text]} {task.fields[validation]}",
            markup=False,
            table_column=Column(no_wrap=True, ratio=3),
        ),
    ]
    is_plain = not console.is_terminal or console.is_dumb_terminal
    return Progress(*columns, console=console, disable=is_plain, expand=True)


def _training(run: Run, epoch: Epoch) -> list[str]:
    """Return the place of an epoch, the mean loss of its steps, and their rate."""
    steps = list(
        takewhile(lambda step: step.epoch == epoch.epoch, reversed(run.history.steps))
    )
    texts = [f"epoch {epoch.epoch + 1}/{run.epochs}", f"step {epoch.steps}"]
    if steps:
        loss = sum(step.loss for step in steps) / len(steps)
        seconds = sum(step.seconds + step.data_seconds for step in steps) or 1e-9
        texts += [f"loss {loss:.4g}", f"{len(steps) / seconds:.3g} steps/s"]
    return texts


def _validation(epoch: Epoch) -> list[str]:
    """Return the metrics of an epoch, the first with the word before it."""
    shown = shown_figures(epoch.held_out)
    texts = [f"{name} {epoch.held_out[name]:.4g}" for name in shown]
    return [f"validation {texts[0]}", *texts[1:]] if texts else []


class RateColumn(ProgressColumn):
    """A column with steps a second."""

    def render(self, task: Task) -> Text:
        """Return the rate of one bar."""
        speed = task.finished_speed or task.speed
        if speed is None:
            return Text("")
        return Text(f"{speed:.3g} steps/s", style="cyan")
