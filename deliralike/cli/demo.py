"""``deliralike demo``: the same network on every backend, from the same start, and a comparison."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from deliralike.training.experiment import Experiment, RunResult

    # A result, and what the network computes at the start and at the end.
    _Run = tuple[RunResult, tuple[dict[str, Any], dict[str, Any]]]

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
    from deliralike.training import experiment
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
    runs: dict[str, _Run] = {}
    with limit_threads(threads), bars() as progress:
        for name, version in versions.items():
            of_backend = digits.with_(backend=name)
            runs[version] = _run(of_backend, folder / name, version, progress)
    (reference, first), *others = runs.items()
    rows = [(*_figures(reference, first[0]), *["reference"] * 3)]
    summary = [_summary(reference, first[0], {})]
    for version, run in others:
        agreed = _agreement(first, run)
        apart = [f"{part['difference']:.1e}" for part in agreed.values()]
        rows.append((*_figures(version, run[0]), *apart))
        summary.append(_summary(version, run[0], agreed))
    text = json.dumps(summary, indent=2) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    histories = {version: result.history for version, (result, _) in runs.items()}
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
    from deliralike.errors import BackendUnavailable, SettingError

    names = list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not names:
        raise SettingError(
            f"--backends {text!r} names no backend. Known: {', '.join(backends.known())}."
        )
    versions = {}
    for name in names:
        try:
            versions[name] = backends.get(name).version()
        except BackendUnavailable as error:
            if name not in backends.known() or (name == names[-1] and not versions):
                raise
            say(f"{name}: not available: {error}", "yellow")
    return versions


def _run(experiment: Experiment, folder: Path, version: str, progress: Any) -> _Run:
    """Return the result of a run, and what its network computes before and after."""
    from deliralike.cli.console import say
    from deliralike.training import ProgressBar

    settings, dataset = experiment.complete()
    prepared = experiment.prepare(settings, dataset)
    start = _computed(prepared.network, dataset.held_out)
    own = experiment.new_folder(folder, settings)
    result = prepared.train(own, [ProgressBar(version, progress=progress)])
    if progress.disable:
        say(f"{version}: held-out accuracy {result.metrics['accuracy']:.2%}")
    return result, (start, _computed(result.network, dataset.held_out))


def _computed(network: Any, samples: Any) -> dict[str, Any]:
    """Outputs in evaluation mode and gradients in training mode; the network is left as it was."""
    from deliralike.training import classification_loss
    from deliralike.training.evaluation import concatenate, predict

    outputs = concatenate(list(predict(network, samples.inputs)))
    before = network.neutral_state()
    with network.training_mode(True):
        found = network.backend.gradients(classification_loss, network, *samples)
    network.load_neutral_state(before)  # running statistics have moved
    return {"outputs": {"outputs": outputs}, "gradients": found.parameters}


def _agreement(reference: _Run, candidate: _Run) -> dict[str, dict[str, Any]]:
    """The largest difference of losses, step by step, and of outputs and gradients, by name.

    In one array, the large losses at the start would hide all the others.
    """
    from deliralike.conformance.agreement import compare

    losses = []
    for result, _ in (reference, candidate):
        losses.append({f"step {one.step}": one.loss for one in result.history.steps})
    found = {"losses": compare(losses[0], losses[1])}
    for part in ("outputs", "gradients"):
        moments = zip(reference[1], candidate[1], strict=True)
        apart = [compare(mine[part], its[part]) for mine, its in moments]
        found[part] = max(apart, key=lambda one: one.difference)
    return {part: asdict(one) for part, one in found.items()}


def _figures(version: str, result: RunResult) -> tuple[str, ...]:
    milliseconds = result.history.seconds_per_step * 1e3
    return version, f"{result.metrics['accuracy']:.2%}", f"{milliseconds:.1f}"


def _summary(version: str, result: RunResult, agreed: dict[str, Any]) -> dict[str, Any]:
    return {
        "backend": result.settings.backend,
        "version": version,
        "accuracy": result.metrics["accuracy"],
        "seconds_per_step": result.history.seconds_per_step,
        "agreement": agreed or None,
    }
