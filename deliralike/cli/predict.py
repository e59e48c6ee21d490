"""``deliralike predict``: the predictions of a trained network, on any backend."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deliralike.cli.console import figures_text, say, show_confusion, show_table
from deliralike.errors import SettingError
from deliralike.tables import write_csv

if TYPE_CHECKING:
    from deliralike.training.experiment.new_samples import NewSample

Cells = dict[str, Any]  # a row of a table, by column

SHOWN = 20  # rows of the table on the terminal


def command(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_FOLDER", help="A folder that 'deliralike train' wrote."
        ),
    ],
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[INPUTS]",
            help="New pictures or volumes (.nii.gz), folders of them, a table (.csv) or an archive "
            "(.npz). (default: held-out data)",
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
            "predictions-BACKEND, or new-BACKEND, in the run's folder)"
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Samples computed at once. (default: 64; of volumes 4 windows)"
        ),
    ] = None,
) -> None:
    """Predict with a run's network: held-out data, which judge it, or new inputs.

    Classes and their probabilities, and measured targets, are written as CSV, beside the columns of
    a table. Masks are written as PNG of the size of each picture, or as NIfTI on the voxels of each
    volume, with an overlay beside; those of held-out data and of archives as one .npz.
    """
    if inputs and data is not None:
        raise SettingError(
            "--data are labelled samples to judge by: leave it out for new inputs"
        )
    if inputs:
        _predict_new(run, inputs, backend, out, batch_size)
    else:
        _judge(run, backend, data, out)


# Held-out data ------------------------------------------------------------------------------------


def _judge(run: Path, backend: str | None, data: str | None, out: Path | None) -> None:
    from deliralike.training.evaluation import figures_of
    from deliralike.training.experiment import load_run, predict_held_out
    from deliralike.training.experiment.parts import make_metrics

    try:
        network, settings, dataset = load_run(run, backend, data)
    except SettingError as error:
        if data is not None and Path(data).exists():
            error.add_note(
                f"what has no labels is predicted without --data: deliralike predict {run} {data}"
            )
        raise
    scores, labels = predict_held_out(network, settings, dataset)
    target = out or run / f"predictions-{settings.backend}"
    if dataset.task == "segmentation":
        target = _write_masks(target, scores)
    else:
        rows = _measured if dataset.task == "regression" else _rows
        target = out or target.with_suffix(".csv")
        write_csv(target, rows(labels, scores, dataset.classes))
    on = f"{settings.network} on {network.backend.version()}"
    figures = figures_of(scores, labels, make_metrics(settings.metrics))
    show_confusion(figures)
    say(f"{on}: {figures_text(figures)} of {len(scores)} held-out samples")
    say(f"predictions: {target}")


def _rows(labels: Any, scores: Any, classes: tuple[str, ...]) -> Iterator[Cells]:
    for index, (label, row) in enumerate(zip(labels, scores, strict=True)):
        yield {"sample": index, "label": classes[label]} | _classified(row, classes)


def _measured(targets: Any, outputs: Any, names: tuple[str, ...]) -> Iterator[Cells]:
    for index, (target, output) in enumerate(zip(targets, outputs, strict=True)):
        row: Cells = {"sample": index}
        for name, wanted, value in zip(names, target, output, strict=True):
            row |= {name: f"{wanted:.6g}", f"predicted {name}": f"{value:.6g}"}
        yield row


def _predicted(output: Any, start: Mapping[str, Any]) -> Cells:
    """Return the predictions for a new sample of a run."""
    if start["task"] != "regression":
        return _classified(output, tuple(start["classes"]))
    values = zip(start["classes"], output, strict=True)
    return {f"predicted {name}": f"{value:.6g}" for name, value in values}


def _classified(scores: Any, classes: tuple[str, ...]) -> Cells:
    import numpy as np

    from deliralike.training.metrics.labels import log_softmax
    from deliralike.training.metrics.scores import class_numbers

    named = {"predicted": classes[class_numbers(scores, axis=0)]}
    if len(scores) == len(classes):
        for name, probability in zip(
            classes, np.exp(log_softmax(scores[None])[0]), strict=True
        ):
            named[f"probability {name}"] = f"{probability:.6g}"
    return named


def _write_masks(target: Path, scores: Any) -> Path:
    import numpy as np

    from deliralike.training.metrics.scores import class_numbers

    target = target.with_suffix(".npz")
    np.savez_compressed(target, predicted=class_numbers(np.asarray(scores)))
    return target


# New samples --------------------------------------------------------------------------------------


def _predict_new(
    run: Path,
    inputs: list[Path],
    backend: str | None,
    out: Path | None,
    batch_size: int | None,
) -> None:
    from deliralike.training.experiment import (
        SETTINGS,
        new_samples,
        predict_files,
        read_settings,
    )
    from deliralike.training.experiment.folder import read_last_start, refuse_no_run

    refuse_no_run(run)
    if out is not None and out.is_file() and any(map(out.samefile, inputs)):
        raise SettingError(f"--out {str(out)!r} is among the inputs: name another file")
    start = read_last_start(run)
    new = new_samples(run, inputs)
    place = run / f"new-{backend or read_settings(run / SETTINGS).backend}"
    is_archive = inputs[0].suffix.lower() == ".npz"
    predictions = predict_files(run, new, backend=backend, batch_size=batch_size)
    if start["task"] != "segmentation":
        target = out or place.with_suffix(".csv")
        rows = []
        for sample, output in predictions:
            rows.append(_cells(sample) | _predicted(output, start))
        write_csv(target, rows)
        _show(rows, start)
    elif is_archive:
        target = _write_masks(out or place, [output for _, output in predictions])
    else:
        _refuse_same_names(new.samples)
        target = out or place
        target.mkdir(parents=True, exist_ok=True)
        rows = []
        for sample, output in predictions:
            shares = _write_mask(target, sample, output, start["classes"])
            rows.append(_cells(sample) | shares)
        write_csv(target / "shares.csv", rows)
    say(f"predictions: {target}")


def _cells(sample: "NewSample") -> Cells:
    """Return the row of a sample's table, or its file."""
    return dict(sample.cells) or {"file": str(sample.file)}


def _refuse_same_names(samples: Iterable["NewSample"]) -> None:
    by_name: dict[Path, Path] = {}
    for sample in samples:
        other = by_name.setdefault(sample.name, sample.file)
        if other is not sample.file:
            raise SettingError(
                f"the masks of {str(other)!r} and {str(sample.file)!r} would have one name: "
                "predict them one after the other, each with an --out of its own"
            )


def _write_mask(
    target: Path, sample: "NewSample", scores: Any, classes: list[str]
) -> Cells:
    """Write the mask of a picture or volume, and its overlay; return the share of each class."""
    import numpy as np

    from deliralike.data import Volume

    place = target / sample.name
    place.parent.mkdir(parents=True, exist_ok=True)
    write = _write_volume if isinstance(scores, Volume) else _write_picture
    mask = write(place, sample.file, scores)
    counts = np.bincount(mask.ravel(), minlength=len(classes))
    shares = zip(classes, counts / counts.sum(), strict=True)
    return {f"share {name}": f"{share:.6g}" for name, share in shares}


def _write_picture(place: Path, file: Path, scores: Any) -> Any:
    """Write a mask and its overlay in the size of the picture; return the mask."""
    import numpy as np

    from deliralike.pictures import open_picture, overlay, palette_picture
    from deliralike.training.metrics.scores import class_numbers

    picture = open_picture(file)
    mask = palette_picture(class_numbers(scores, axis=0), picture.size)
    mask.save(f"{place}-mask.png")
    overlay(picture, mask).save(f"{place}-overlay.png")
    return np.asarray(mask)


def _write_volume(place: Path, file: Path, scores: Any) -> Any:
    """Write a mask on the voxels of a file, and the overlay of a slice; return the mask."""
    import numpy as np

    from deliralike.data import Volume, read_nifti, write_nifti
    from deliralike.data.nifti import oriented
    from deliralike.training.experiment.sheets import slice_overlay
    from deliralike.training.metrics.scores import class_numbers

    numbers = class_numbers(scores.array, axis=0)
    mask = Volume(numbers.astype(np.min_scalar_type(len(scores.array))), scores.affine)
    write_nifti(f"{place}-mask.nii.gz", mask)
    picture = read_nifti(file).array
    drawn = slice_overlay(
        picture.reshape(-1, *picture.shape[-3:]), oriented(mask).array
    )
    drawn.save(f"{place}-overlay.png")
    return mask.array


def _show(rows: list[Cells], start: Mapping[str, Any]) -> None:
    """Print the first rows: measured targets, or the class with its probability."""
    first = next(iter(rows[0]))
    columns = [first, "predicted", "probability"]
    if start["task"] == "regression":
        columns = [first, *(f"predicted {name}" for name in start["classes"])]
    table = []
    for row in rows[:SHOWN]:
        probability = row.get(f"probability {row.get('predicted')}", "")
        if probability:
            probability = f"{float(probability):.1%}"
        cells = row | {"probability": probability}
        table.append([cells[name] for name in columns])
    show_table(columns, table, right=columns[-1:])
    if len(rows) > SHOWN:
        say(f"… and {len(rows) - SHOWN} others")
