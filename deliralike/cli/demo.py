"""``deliralike demo``: the same network on every backend, from the same start, and a comparison."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

    from deliralike.conformance import Agreement, Probe
    from deliralike.data import Dataset
    from deliralike.training import History
    from deliralike.training.experiment import Settings


@dataclass
class Result:
    """The results of one backend; only `problem` is set if the backend could not be loaded."""

    backend: str
    version: str = ""
    history: History | None = None
    probes: dict[str, Probe] | None = None
    problem: str = ""
    agreement: Agreement | None = None

    @property
    def accuracy(self) -> float:
        """The accuracy on held-out data at the end."""
        if self.history is None:
            return float("nan")
        return float(self.history.held_out("accuracy")[-1])


def command(
    backends: Annotated[
        str, typer.Option(help="Names with commas between them; the first is the reference.")
    ] = "torch,chainer,jax",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in each batch.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Start values and order of samples.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="A new folder. (default: runs/demo-0001, -0002 …)")
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            min=1, help="For BLAS and OpenMP; layers this small gain little from more than one."
        ),
    ] = 1,
) -> None:
    """Train a small network on handwritten digits on every backend, and show that all do the same.

    The residual networks have the same start values and the same batches, in float64 and one
    process. A picture, metrics and weights are written into a new folder.
    """
    from deliralike import data
    from deliralike.cli.console import say
    from deliralike.cli.options import limit_threads
    from deliralike.errors import BackendUnavailable
    from deliralike.training import experiment
    from deliralike.training.callbacks.progress import bars
    from deliralike.training.experiment import Settings

    if out is not None:
        experiment.refuse_existing(out)
    names = _names(backends)
    shared = Settings(
        network="resnet8",
        epochs=epochs,
        batch_size=batch_size,
        drop_last=True,
        seed=seed,
        dtype="float64",
    )
    results = [_load(name) for name in names]
    if all(result.problem for result in results):
        raise BackendUnavailable(results[0].problem)
    dataset = data.load(shared.data)
    shared = experiment.complete(shared, dataset)
    folder = experiment.new_folder(out) if out else experiment.next_folder("runs", "demo")
    say(
        f"{shared.network} on {shared.data}, float64, seed {seed}: {epochs} epochs on "
        f"{', '.join(names)}"
    )
    begin = time.perf_counter()
    with limit_threads(threads), bars() as progress:
        for result in results:
            if not result.problem:
                _train(result, shared, dataset, folder, progress)
    _compare(results)
    _write(results, shared, folder)
    _show(results)
    seconds = time.perf_counter() - begin
    say(f"{seconds:.0f} s. Curves: {folder / 'curves.png'}; metrics and weights: {folder}")


def _names(text: str) -> list[str]:
    """Return the chosen backends; an unknown name is an error, a missing backend is not."""
    from deliralike import backends
    from deliralike.errors import BackendUnavailable, SettingError, suggestion

    stripped = map(str.strip, text.split(","))
    names = list(dict.fromkeys(filter(None, stripped)))
    if not names:
        raise SettingError(
            f"--backends {text!r} names no backend. Known: {', '.join(backends.known())}."
        )
    for name in names:
        if name not in backends.known():
            raise BackendUnavailable(
                f"there is no backend {name!r}. {suggestion(name, backends.known())}"
            )
    return names


def _load(name: str) -> Result:
    """Return a backend's result with its version, or with the problem that prevents its use."""
    from deliralike import backends
    from deliralike.errors import BackendUnavailable

    try:
        return Result(name, version=backends.get(name).version())
    except BackendUnavailable as error:
        return Result(name, problem=str(error))


def _train(
    result: Result, shared: Settings, dataset: Dataset, folder: Path, progress: Progress
) -> None:
    """Train on one backend; its part of the folder is the folder of a run."""
    from deliralike import weights
    from deliralike.cli.console import say
    from deliralike.conformance import probe
    from deliralike.training import JsonLines, ProgressBar, experiment
    from deliralike.training.experiment.folder import recorded
    from deliralike.training.experiment.run import record_start

    settings = shared.with_(backend=result.backend)
    network = experiment.build_network(settings, dataset)
    own = experiment.new_folder(folder / result.backend)
    record_start(own, settings, dataset, network)
    bar = ProgressBar(result.version, progress=progress)
    logs = [
        JsonLines(folder / experiment.METRICS, append=True, backend=result.backend),
        JsonLines(own / experiment.METRICS),
    ]
    start = probe(network, dataset.held_out)
    with recorded(own) as outcome:
        result.history = experiment.train_network(network, settings, dataset, [bar, *logs])
        outcome.metrics = result.history.epochs[-1].held_out
    result.probes = {"at the start": start, "after training": probe(network, dataset.held_out)}
    weights.write(own / experiment.WEIGHTS, network)
    if progress.disable:
        say(f"{result.version}: held-out accuracy {result.accuracy:.2%}")


def _compare(results: list[Result]) -> None:
    from deliralike.conformance import agreement

    reference = None
    for result in results:
        if result.history is None or result.probes is None:
            continue
        run = (result.history, result.probes)
        if reference is None:
            reference = run
        else:
            result.agreement = agreement(reference, run)


def _write(results: list[Result], shared: Settings, folder: Path) -> None:
    """Write the picture, and the table in a form for programs."""
    from deliralike.training import experiment
    from deliralike.training.curves import draw_curves

    _write_json(folder / "summary.json", list(map(_summary, results)))
    runs = {}
    for result in results:
        if result.history:
            runs[result.version] = result.history
    title = f"{shared.network} on {shared.data}, {shared.dtype}, seed {shared.seed}"
    draw_curves(runs, folder / experiment.CURVES, title)


def _summary(result: Result) -> dict[str, Any]:
    if not result.history:
        return {"backend": result.backend, "problem": result.problem}
    return {
        "backend": result.backend,
        "version": result.version,
        "accuracy": result.accuracy,
        "seconds_per_step": result.history.seconds_per_step,
        "agreement": asdict(result.agreement) if result.agreement else None,
    }


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


_COLUMNS = ("backend", "held-out accuracy", "ms a step", "loss curve", "outputs", "gradients")


def _show(results: list[Result]) -> None:
    from deliralike.cli.console import say, show_table

    reference = next(result.version for result in results if result.history)
    show_table(_COLUMNS, map(_row, results), right=_COLUMNS[1:])
    say(f"Loss curve, outputs, gradients: largest relative difference to {reference}, in float64.")
    for result in results:
        if result.problem:
            say(f"{result.backend}: {result.problem}", "yellow")
        elif result.agreement:
            _explain(result, result.agreement)


def _row(result: Result) -> tuple[str, ...]:
    if not result.history:
        return (result.backend, "not available", "-", "-", "-", "-")
    accuracy = f"{result.accuracy:.2%}"
    milliseconds = f"{result.history.seconds_per_step * 1e3:.1f}"
    return (result.version, accuracy, milliseconds, *_differences(result.agreement))


def _differences(agreement: Agreement | None) -> list[str]:
    if agreement is None:
        return ["reference"] * 3
    parts = (agreement.losses, agreement.outputs, agreement.gradients)
    return [f"{part.difference:.1e}" for part in parts]


def _explain(result: Result, agreement: Agreement) -> None:
    """Name the tensor that differs most, and those whose gradient is nothing but rounding."""
    from deliralike.cli.console import say

    parts = (agreement.losses, agreement.outputs, agreement.gradients)
    worst = ", ".join(filter(None, [part.worst for part in parts]))
    if worst:
        say(f"{result.version}: largest differences at {worst}", "dim")
    if agreement.gradients.null:
        names = ", ".join(agreement.gradients.null)
        say(f"{result.version}: gradients that are zero but for rounding: {names}", "dim")
