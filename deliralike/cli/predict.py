"""``deliralike predict``: the predictions of a trained network on held-out data, on any backend."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN_FOLDER", help="A folder that 'deliralike train' wrote.")
    ],
    backend: Annotated[
        str | None, typer.Option(help="The backend to compute on. (default: the run's own)")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The dataset. (default: the run's own)")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The CSV file, replaced if it is there. (default: in the run's folder)"),
    ] = None,
) -> None:
    """Load a run's weights, evaluate them on held-out data, and write the predictions as CSV."""
    from deliralike.cli.console import say
    from deliralike.tables import write_csv
    from deliralike.training import accuracy, predict
    from deliralike.training.evaluation import concatenate
    from deliralike.training.experiment import load_run

    network, settings, dataset = load_run(run, backend, data)
    outputs = predict(network, dataset.held_out.inputs)
    scores = concatenate(list(outputs))
    target = out or run / f"predictions-{settings.backend}.csv"
    write_csv(target, _rows(dataset.held_out.labels, scores, dataset.classes))
    correct = accuracy(scores, dataset.held_out.labels)
    say(
        f"{settings.network} on {network.backend.version()}: {correct:.2%} of {len(scores)} "
        "held-out samples are right"
    )
    say(f"predictions: {target}")


def _rows(labels: Any, scores: Any, classes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    columns = [f"score {name}" for name in classes]
    for index, (label, row) in enumerate(zip(labels, scores, strict=True)):
        names = {"sample": index, "label": classes[label], "predicted": classes[row.argmax()]}
        yield names | dict(zip(columns, [f"{score:.6g}" for score in row], strict=True))
