"""``deliralike demo``: the same network on every backend, from the same start, and a comparison."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from deliralike.training.experiment import RunResult

_COLUMNS = (
    "backend",
    "held-out accuracy",
    "ms a step",
    "loss curve",
    "outputs",
    "gradients",
)


def command(
    backends: Annotated[
        str,
        typer.Option(
            help="Names with commas between them; the first is the reference."
        ),
    ] = "torch,chainer,jax",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in each batch.")] = 64,
    seed: Annotated[
        int, typer.Option(min=0, help="Start values and order of samples.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder. (default: runs/demo-0001, -0002 …)"),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            min=1,
            help="For BLAS and OpenMP; layers this small gain little from more than one.",
        ),
    ] = 1,
) -> None:
    """Train a small network on handwritten digits on every backend, and show that all do the same.

    The residual networks have the same start values and the same batches, in float64 and one
    process. A picture, metrics and weights are written into a new folder.
    """
    from deliralike.cli.console import say, show_table
    from deliralike.cli.options import limit_threads
    from deliralike.training import ProgressBar, experiment
    from deliralike.training.callbacks.progress import bars
    from deliralike.training.curves import draw_curves

    versions = _versions(backends)
    digits = experiment.Experiment(
        {
            "network": "resnet8",
            "epochs": epochs,
            "batch_size": batch_size,
            "drop_last": True,
        },
        checkpoints=None,
        seed=seed,
        dtype="float64",
    )
    folder = (
        experiment.new_folder(out) if out else experiment.next_folder("runs", "demo")
    )
    say(
        f"resnet8 on digits, float64, seed {seed}: {epochs} epochs on {', '.join(versions)}"
    )
    begin = time.perf_counter()
    _, dataset = digits.complete()
    results: dict[str, RunResult] = {}
    computed: dict[str, dict[str, Any]] = {}
    with limit_threads(threads), bars() as progress:
        for name, version in versions.items():
            bar = ProgressBar(version, progress=progress)
            of_backend = digits.with_(backend=name)
            results[version] = of_backend.run(folder / name, callbacks=[bar])
            computed[version] = _computed(results[version], dataset.held_out)
    reference = next(iter(results))
    rows = []
    summary = []
    for version, result in results.items():
        agreed = {}
        apart = ["reference"] * 3
        if version != reference:
            agreed = _agreement(computed[reference], computed[version])
            apart = [f"{part['difference']:.1e}" for part in agreed.values()]
        accuracy = result.metrics["accuracy"]
        seconds = result.history.seconds_per_step
        rows.append((version, f"{accuracy:.2%}", f"{seconds * 1e3:.1f}", *apart))
        summary.append(
            {
                "backend": result.settings.backend,
                "version": version,
                "accuracy": accuracy,
                "seconds_per_step": seconds,
                "agreement": agreed or None,
            }
        )
    text = json.dumps(summary, indent=2) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    histories = {version: result.history for version, result in results.items()}
    picture = draw_curves(
        histories, folder / experiment.CURVES, f"resnet8 on digits, seed {seed}"
    )
    show_table(_COLUMNS, rows, right=_COLUMNS[1:])
    say(
        f"Loss curve, outputs, gradients: largest relative difference to {reference}, in float64."
    )
    seconds = time.perf_counter() - begin
    say(f"{seconds:.0f} s. Curves: {picture}; metrics and weights: {folder}")


def _versions(text: str) -> dict[str, str]:
    """Return the version of each chosen backend that is installed; say what the others need."""
    from deliralike import backends
    from deliralike.cli.console import say
    from deliralike.cli.options import backend_names
    from deliralike.errors import BackendUnavailable

    names = backend_names(text)
    versions = {}
    for name in names:
        try:
            versions[name] = backends.get(name).version()
        except BackendUnavailable as error:
            if name not in backends.known() or (name == names[-1] and not versions):
                raise
            say(f"{name}: not available: {error}", "yellow")
    return versions


def _computed(result: RunResult, samples: Any) -> dict[str, Any]:
    """Return the losses of a run, and what its network computes after it, each by name."""
    from deliralike.training import classification_loss
    from deliralike.training.evaluation import predict
    from deliralike.training.metrics.evidence import concatenate

    network = result.network
    outputs = concatenate(list(predict(network, samples.inputs)))
    with network.training_mode(True):
        gradients = network.backend.gradients(classification_loss, network, *samples)
    return {
        "losses": {f"step {each.step}": each.loss for each in result.history.steps},
        "outputs": {"outputs": outputs},
        "gradients": gradients.parameters,
    }


def _agreement(
    reference: dict[str, Any], candidate: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the largest difference of losses, step by step, of outputs, and of gradients.

    In one array, the large losses at the start would hide all the others.
    """
    from deliralike.conformance.agreement import compare

    return {
        part: asdict(compare(reference[part], candidate[part])) for part in reference
    }
