"""Progress bars with rate and time left; nothing at all where standard output is not a terminal."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from deliralike.training import Callback, Epoch, Run, Step


class RateColumn(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        """The rate of one bar."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} steps/s", style="cyan")


def bars(console: Console) -> Progress:
    """A place for bars, one below another; use it in a ``with`` block."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("loss {task.fields[loss]}  held-out {task.fields[judged]}"),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    )


class Bar(Callback):
    """One bar for one run."""

    def __init__(self, progress: Progress, label: str) -> None:
        """The bar appears when the run starts."""
        self.progress, self.label = progress, label
        self.task: Any = None

    def on_start(self, run: Run) -> None:
        """Show an empty bar."""
        total = None if run.steps_per_epoch is None else run.epochs * run.steps_per_epoch
        self.task = self.progress.add_task(self.label, total=total, loss="-", judged="-")

    def on_step(self, run: Run, step: Step) -> None:
        """Move on."""
        self.progress.update(self.task, advance=1, loss=f"{step.loss:.4f}")

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Show the accuracy on held-out data."""
        if "accuracy" in epoch.held_out:
            self.progress.update(self.task, judged=f"{epoch.held_out['accuracy']:.2%}")
