"""Predictions of a run's network: for the samples that were held out, and for new pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import Dataset, Loader
from deliralike.data.folders import MODES, ImageFolder, pictures_of
from deliralike.errors import SettingError
from deliralike.network.closure import PREDICTION
from deliralike.training.evaluation import concatenate, predict
from deliralike.training.experiment.building import load_network, loaders
from deliralike.training.experiment.files import read_settings
from deliralike.training.experiment.folder import SETTINGS, read_last_start
from deliralike.training.experiment.parts import make_transform
from deliralike.training.experiment.settings import Settings


def predict_held_out(
    network: Any, settings: Settings, dataset: Dataset
) -> tuple[np.ndarray, np.ndarray]:
    """Return the outputs for all held-out samples of a run that `load_run` has loaded.

    Returns:
        The outputs, and the labels as the run's transforms leave them.

    Shapes:
        ``(samples, classes)`` and ``(samples,)``, for segmentation ``(samples, classes, ...)`` and
        ``(samples, ...)``.

    Raises:
        BatchError: The outputs differ in shape.
    """
    _, held_out = loaders(settings, dataset)
    outputs: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for batch in held_out.batches(0):
        outputs.extend(map(main_output, predict(network, batch.inputs)))
        labels.append(batch.labels)
    return concatenate(outputs), concatenate(labels)


def predict_pictures(
    folder: str | Path,
    paths: Iterable[str | PathLike[str]],
    *,
    backend: str | None = None,
    batch_size: int = 64,
) -> Iterator[tuple[Path, np.ndarray]]:
    """Yield each picture's file, and what the network of a run gives for it.

    Pictures become what the run's samples are: in size, in grey or colours, and by the transforms
    of held-out samples.

    Args:
        folder: The folder of a run.
        paths: Pictures, and folders of pictures; those of a folder come in the order of their
            names.
        backend: Another backend than the run's own.
        batch_size: Pictures that are computed at once.

    Shapes:
        Scores ``(classes,)``, for segmentation ``(classes, height, width)``.

    Raises:
        SettingError: There is no such file, it is no picture by its suffix, or the run's samples
            are no pictures.
        BatchError: A file is damaged; it is named.
    """
    start = read_last_start(Path(folder))
    files = pictures_of(paths)
    pictures = _as_samples_of_the_run(files, start, folder)
    settings = read_settings(Path(folder) / SETTINGS)
    transform = make_transform(settings.held_out_transforms)
    loader = Loader(
        pictures, batch_size, shuffle=False, seed=settings.seed, transform=transform
    )
    network = load_network(folder, backend)
    remaining = iter(files)
    for outputs in predict(network, loader):
        for row in main_output(outputs):
            yield next(remaining), row


def main_output(outputs: Any) -> np.ndarray:
    """Return the prediction among a network's outputs: the one called "pred", or the first."""
    if isinstance(outputs, Mapping) and PREDICTION in outputs:
        return outputs[PREDICTION]
    return next(iter(nest.leaves(outputs)))


def _as_samples_of_the_run(
    files: tuple[Path, ...], start: Mapping[str, Any], folder: str | Path
) -> ImageFolder:
    shape = tuple(start["sample_shape"])
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise SettingError(
            f"the samples of the run in {str(folder)!r} have the shape {shape}, which a picture "
            "file cannot have: give data of that shape, --data FILE or module:function"
        )
    size = (shape[1], shape[2])
    of_one = size if start["task"] == "segmentation" else ()
    unknown = np.broadcast_to(np.int64(0), (len(files), *of_one))
    mode = next(mode for mode in MODES if len(mode) == shape[0])
    return ImageFolder(files, unknown, tuple(start["classes"]), size, mode)
