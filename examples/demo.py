"""The same network on every backend, from the same start, and a comparison: ``make demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from threadpoolctl import threadpool_limits

from deliralike.cli.console import say, show_table
from deliralike.cli.options import loaded_backends
from deliralike.conformance.agreement import compare
from deliralike.training import ProgressBar, classification_loss, experiment
from deliralike.training.callbacks.progress import bars
from deliralike.training.curves import draw_curves
from deliralike.training.evaluation import predict
from deliralike.training.experiment import RunResult
from deliralike.training.metrics.evidence import concatenate

COLUMNS = (
    "backend",
    "held-out accuracy",
    "ms a step",
    "loss curve",
    "outputs",
    "gradients",
)


def demo(
    backends: Annotated[
        str | None,
        typer.Option(help="Names, the reference first. (default: all there are)"),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 8,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder. (default: runs/demo-0001, -0002 …)"),
    ] = None,
) -> None:
    """Train a small network on handwritten digits on every backend, and show that all do the same.

    The residual networks have the same start values and the same batches, in float64 and one
    process. A picture, metrics and weights are written into a new folder.
    """
    names = loaded_backends(backends)
    begin = time.perf_counter()
    digits = experiment.Experiment(
        {"network": "resnet8", "epochs": epochs, "batch_size": 64, "drop_last": True},
        checkpoints=None,
        dtype="float64",
    )
    _, dataset = digits.complete()
    folder = (
        experiment.new_folder(out) if out else experiment.next_folder("runs", "demo")
    )
    say(f"resnet8 on digits, float64: {epochs} epochs on {', '.join(names)}")
    results = _trained(digits, names, folder)
    rows = []
    reference = _computed(results[names[0]], dataset.held_out)
    for name, result in results.items():
        differences = ["reference"] * len(reference)
        if name != names[0]:
            computed = _computed(result, dataset.held_out)
            # One by one: the large losses at the start would hide all the others.
            found = [compare(reference[part], computed[part]) for part in reference]
            differences = [f"{each.difference:.1e}" for each in found]
        accuracy = f"{result.metrics['accuracy']:.2%}"
        speed = f"{result.history.seconds_per_step * 1e3:.1f}"
        rows.append((result.network.backend.version(), accuracy, speed, *differences))
    histories = {name: result.history for name, result in results.items()}
    picture = draw_curves(histories, folder / experiment.CURVES, "resnet8 on digits")
    show_table(COLUMNS, rows, right=COLUMNS[1:])
    say(
        f"Loss curve, outputs, gradients: largest relative difference to {names[0]}, in float64."
    )
    seconds = time.perf_counter() - begin
    say(f"{seconds:.0f} s. Curves: {picture}; metrics and weights: {folder}")


def _trained(digits: Any, names: list[str], folder: Path) -> dict[str, RunResult]:
    """Return a run on each backend; layers this small gain nothing from a second thread."""
    results = {}
    with threadpool_limits(1), bars() as progress:
        for name in names:
            bar = ProgressBar(name, progress=progress)
            run = digits.with_(backend=name)
            results[name] = run.run(folder / name, callbacks=[bar])
    return results


def _computed(result: RunResult, samples: Any) -> dict[str, dict[str, Any]]:
    """Return the losses of a run, and what its network computes after it, each by name."""
    network = result.network
    outputs = concatenate(list(predict(network, samples.inputs)))
    with network.training_mode(True):
        gradients = network.backend.gradients(classification_loss, network, *samples)
    return {
        "losses": {f"step {each.step}": each.loss for each in result.history.steps},
        "outputs": {"outputs": outputs},
        "gradients": gradients.parameters,
    }


app = typer.Typer(add_completion=False)
app.command()(demo)

if __name__ == "__main__":
    app()
