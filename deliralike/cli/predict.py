"""``deliralike predict``: the predictions of a trained network, on any backend."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from deliralike.errors import SettingError

Row = dict[str, Any]

SHOWN = 20  # rows of the table on the terminal


def command(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_FOLDER", help="A folder that 'deliralike train' wrote."
        ),
    ],
    pictures: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PICTURES]",
            help="New pictures, or folders of them. (default: held-out data)",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="The backend to compute on. (default: the run's own)"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Labelled data to judge by. (default: the run's own)"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The CSV file, or for masks the folder; replaced if it is there. (default: "
            "predictions-BACKEND, or pictures-BACKEND, in the run's folder)"
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Pictures computed at once.")
    ] = 64,
) -> None:
    """Predict with a run's network: held-out data, which judge it, or new pictures.

    Classes and their probabilities are written as CSV. Masks of segmentation are written as PNG of
    the size of each picture, with an overlay beside; those of held-out data as one .npz.
    """
    if pictures and data is not None:
        raise SettingError(
            "--data are labelled samples to judge by: leave it out for new pictures"
        )
    if pictures:
        _predict_pictures(run, pictures, backend, out, batch_size)
    else:
        _judge(run, backend, data, out)


# Held-out data ------------------------------------------------------------------------------------


def _judge(run: Path, backend: str | None, data: str | None, out: Path | None) -> None:
    from deliralike.cli.console import say
    from deliralike.tables import write_csv
    from deliralike.training.experiment import load_run, predict_held_out

    network, settings, dataset = load_run(run, backend, data)
    scores, labels = predict_held_out(network, settings, dataset)
    target = out or run / f"predictions-{settings.backend}"
    if dataset.task == "segmentation":
        target = _write_masks(target, scores)
    else:
        rows = _measured if dataset.task == "regression" else _rows
        target = out or target.with_suffix(".csv")
        write_csv(target, rows(labels, scores, dataset.classes))
    on = f"{settings.network} on {network.backend.version()}"
    figures = _figures(scores, labels, settings)
    say(f"{on}: {figures} of {len(scores)} held-out samples")
    say(f"predictions: {target}")


def _rows(labels: Any, scores: Any, classes: tuple[str, ...]) -> Iterator[Row]:
    for index, (label, row) in enumerate(zip(labels, scores, strict=True)):
        yield {"sample": index, "label": classes[label]} | _predicted(row, classes)


def _measured(targets: Any, outputs: Any, names: tuple[str, ...]) -> Iterator[Row]:
    for index, (target, output) in enumerate(zip(targets, outputs, strict=True)):
        row: Row = {"sample": index}
        for name, wanted, value in zip(names, target, output, strict=True):
            row |= {name: f"{wanted:.6g}", f"predicted {name}": f"{value:.6g}"}
        yield row


def _predicted(scores: Any, classes: tuple[str, ...]) -> Row:
    import numpy as np

    from deliralike.training.metrics.cross_entropy import log_softmax
    from deliralike.training.metrics.scores import class_numbers

    named = {"predicted": classes[class_numbers(scores, axis=0)]}
    if len(scores) == len(classes):
        for name, probability in zip(
            classes, np.exp(log_softmax(scores[None])[0]), strict=True
        ):
            named[f"probability {name}"] = f"{probability:.6g}"
    return named


def _figures(scores: Any, labels: Any, settings: Any) -> str:
    """The metrics of the run, on held-out data."""
    from deliralike.cli.console import figure_text
    from deliralike.training.evaluation import figures_of
    from deliralike.training.experiment.parts import make_metrics

    figures = figures_of(scores, labels, make_metrics(settings.metrics))
    return ", ".join(f"{name} {figure_text(name, figures[name])}" for name in figures)


def _write_masks(target: Path, scores: Any) -> Path:
    import numpy as np

    from deliralike.training.metrics.scores import class_numbers

    target = target.with_suffix(".npz")
    np.savez_compressed(target, predicted=class_numbers(scores))
    return target


# New pictures -------------------------------------------------------------------------------------


def _predict_pictures(
    run: Path,
    pictures: list[Path],
    backend: str | None,
    out: Path | None,
    batch_size: int,
) -> None:
    from deliralike.cli.console import progress, say
    from deliralike.data.folders import pictures_of
    from deliralike.tables import write_csv
    from deliralike.training.experiment import SETTINGS, predict_pictures, read_settings
    from deliralike.training.experiment.folder import read_last_start, refuse_no_run

    refuse_no_run(run)
    start = read_last_start(run)
    figures: Callable[[Path, Any, list[str]], Row]
    files = pictures_of(pictures)
    place = run / f"pictures-{backend or read_settings(run / SETTINGS).backend}"
    if start["task"] == "segmentation":
        _refuse_same_names(files)
        target = out or place
        target.mkdir(parents=True, exist_ok=True)
        figures, table = partial(_write_mask, target), target / "shares.csv"
    else:
        figures, table = _classify, out or place.with_suffix(".csv")
        target = table
    rows = []
    with progress() as update:
        predictions = predict_pictures(
            run, files, backend=backend, batch_size=batch_size
        )
        for number, (file, scores) in enumerate(predictions, 1):
            rows.append({"file": str(file)} | figures(file, scores, start["classes"]))
            update(file.name, number / len(files))
    write_csv(table, rows)
    _show(rows, start["classes"])
    say(f"predictions: {target}")


def _classify(_: Path, scores: Any, classes: list[str]) -> Row:
    return _predicted(scores, tuple(classes))


def _refuse_same_names(files: tuple[Path, ...]) -> None:
    by_stem: dict[str, Path] = {}
    for file in files:
        other = by_stem.setdefault(file.stem, file)
        if other is not file:
            raise SettingError(
                f"the masks of {str(other)!r} and {str(file)!r} would have one name: predict them "
                "one after the other, each with an --out of its own"
            )


def _write_mask(target: Path, file: Path, scores: Any, classes: list[str]) -> Row:
    """Write a mask and its overlay in the size of the picture; return the share of each class."""
    import numpy as np

    from deliralike.pictures import open_picture, overlay, palette_picture
    from deliralike.training.metrics.scores import class_numbers

    picture = open_picture(file)
    mask = palette_picture(class_numbers(scores, axis=0), picture.size)
    mask.save(target / f"{file.stem}-mask.png")
    overlay(picture, mask).save(target / f"{file.stem}-overlay.png")
    counts = np.bincount(np.asarray(mask).ravel(), minlength=len(classes))
    shares = zip(classes, counts / counts.sum(), strict=True)
    return {f"share {name}": f"{share:.6g}" for name, share in shares}


def _show(rows: list[Row], classes: list[str]) -> None:
    """Print the first rows: the predicted class with its probability, or the shares of classes."""
    from deliralike.cli.console import say, show_table

    shown = []
    for row in rows[:SHOWN]:
        if "predicted" in row:
            probability = row.get(f"probability {row['predicted']}")
            figures = [
                row["predicted"],
                "" if probability is None else f"{float(probability):.1%}",
            ]
        else:
            figures = [f"{float(row[f'share {name}']):.1%}" for name in classes]
        shown.append([row["file"], *figures])
    columns = ["predicted", "probability"] if "predicted" in rows[0] else list(classes)
    show_table(
        ["file", *columns],
        shown,
        right=columns[-1:] if "predicted" in rows[0] else columns,
    )
    if len(rows) > SHOWN:
        say(f"… and {len(rows) - SHOWN} others")
