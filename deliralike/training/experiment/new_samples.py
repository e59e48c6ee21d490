"""New samples for the network of a run: pictures, volumes, and rows of a table or an archive."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.data import Loader, Samples, Volume, nifti_files, read_nifti, user_data
from deliralike.data.folders import (
    SUFFIXES,
    VOLUMES,
    ImageFolder,
    picture_form,
    pictures_of,
)
from deliralike.data.mask_folders import CHANNEL, normalised_volume
from deliralike.data.nifti import NiftiFiles, oriented, placed_on
from deliralike.data.table_files import column_of_paths, numbers_of, read_cells
from deliralike.errors import BatchError, SettingError, listed
from deliralike.inference import SlidingWindowInferer
from deliralike.nn.geometry import per_axis
from deliralike.training.evaluation import predict
from deliralike.training.experiment.building import has_given_data, load_network
from deliralike.training.experiment.files import read_settings
from deliralike.training.experiment.folder import SETTINGS, read_last_start
from deliralike.training.experiment.parts import make_transform
from deliralike.training.experiment.predictions import main_output, restorer
from deliralike.training.experiment.settings import Settings
from deliralike.weights.inflate import AnyPath

_SAMPLES_AT_ONCE = 64
_WINDOWS_AT_ONCE = 4
_OVERLAP = 0.5  # of windows
_RESULT = re.compile(r"(?<=.)-(mask|overlay)$")  # what ends the names of written files
_CROPS = ("crop", "crop-by-pos-neg-label")

Output = np.ndarray | Volume


@dataclass(frozen=True)
class NewSample:
    """A sample without a label.

    Attributes:
        file: The file that it comes from.
        name: The path of what may be written for it, without suffix: that of the file below the
            folder that was named, or its name alone.
        cells: Its row of a table, or its number in an archive; empty if the file is the sample.
    """

    file: Path
    name: Path
    cells: Mapping[str, str]


@dataclass(frozen=True)
class NewSamples:
    """Samples that become what those of a run are, and are predicted batch by batch.

    Attributes:
        samples: What each sample is called.
        source: What a loader reads them from.
    """

    samples: tuple[NewSample, ...]
    source: Any

    def __len__(self) -> int:
        return len(self.samples)

    def outputs(
        self, network: Any, settings: Settings, batch_size: int | None
    ) -> Iterator[Output]:
        """Yield what the network gives for each sample."""
        loader = Loader(
            self.source,
            batch_size or _SAMPLES_AT_ONCE,
            shuffle=False,
            seed=settings.seed,
            transform=make_transform(settings.held_out_transforms),
        )
        for outputs in predict(network, loader):
            yield from main_output(outputs)


@dataclass(frozen=True)
class NewVolumes(NewSamples):
    """Volumes, predicted by windows of the size that the network was trained on."""

    source: NiftiFiles
    window: tuple[int, ...]
    channels: int

    def outputs(
        self, network: Any, settings: Settings, batch_size: int | None
    ) -> Iterator[Output]:
        """Yield a volume of scores on the voxels of each file."""
        inferer = SlidingWindowInferer(
            self.window, batch_size or _WINDOWS_AT_ONCE, _OVERLAP, mode="gaussian"
        )
        transform = make_transform(settings.held_out_transforms)
        for number, sample in enumerate(self.samples):
            picture = self._picture(number)
            inputs = normalised_volume(picture.array, self.window)
            labels = np.zeros(inputs.shape[1:], np.int64)
            loader = Loader([Samples(inputs, labels)], 1, transform=transform)
            scores = main_output(next(predict(network, loader, inferer=inferer)))[0]
            if scores.shape[1:] != labels.shape:
                raise BatchError(
                    f"the outputs for {str(sample.file)!r} have the size {scores.shape[1:]}, the "
                    f"inputs {labels.shape}: masks need a network, and held_out_transforms, that "
                    "keep the size"
                )
            within = tuple(slice(length) for length in picture.size)
            of_size = Volume(scores[(slice(None), *within)], picture.affine)
            grid = read_nifti(sample.file, orientation=None)
            if self.source.spacing is None:
                yield oriented(of_size, grid.orientation)
            else:
                yield placed_on(of_size, grid)

    def _picture(self, number: int) -> Volume:
        picture = self.source.picture(number)
        if len(picture.array) != self.channels:
            files = self.source.images[number]
            raise BatchError(
                f"{listed(map(str, files))} have {len(picture.array)} channels, and the samples of "
                f"the run have {self.channels}: give NAME_0000, NAME_0001 …, or a file with all"
            )
        return picture


def predict_files(
    folder: str | Path,
    paths: NewSamples | Iterable[AnyPath],
    *,
    backend: str | None = None,
    batch_size: int | None = None,
) -> Iterator[tuple[NewSample, Output]]:
    """Yield each new sample, and what the network of a run gives for it.

    Pictures, volumes and rows become what the run's samples are: in size, in grey or colours, in
    spacing, and by the transforms of held-out samples. Volumes are for runs on a folder of volumes
    with masks; they are predicted by windows of the size of the training crops, which overlap by
    half.

    Args:
        folder: The folder of a run.
        paths: Pictures or volumes, and folders of them, in the order of their names; files
            ``NAME_0000``, ``NAME_0001`` are the channels of a volume. Or a table with the columns
            of inputs, or paths, that the run's has; or an archive with ``inputs``. Or what
            `new_samples` gives for them.
        backend: Another backend than the run's own.
        batch_size: Samples, or windows of volumes, that are computed at once: 64, or 4 windows.

    Shapes:
        Outputs ``(classes,)``, for measured targets ``(targets,)``, for segmentation ``(classes,
        *size)``: of pictures in the size of the run's samples, of volumes a `data.Volume` on the
        voxels of the file.

    Raises:
        SettingError: There is no such file, its suffix or its columns do not fit, or the run's
            samples are of another kind.
        BatchError: A file is damaged, or a volume has other channels; it is named.
    """
    new = paths if isinstance(paths, NewSamples) else new_samples(folder, paths)
    settings = read_settings(Path(folder) / SETTINGS)
    network = load_network(folder, backend)
    outputs = map(restorer(settings), new.outputs(network, settings, batch_size))
    yield from zip(new.samples, outputs, strict=True)


def new_samples(folder: str | Path, paths: Iterable[AnyPath]) -> NewSamples:
    """Return the new samples that `predict_files` predicts; pictures and volumes are not read yet.

    Raises:
        SettingError: As of `predict_files`.
    """
    start = read_last_start(Path(folder))
    settings = read_settings(Path(folder) / SETTINGS)
    files = tuple(map(Path, paths))
    read = _BY_SUFFIX.get(files[0].suffix.lower()) if files else None
    if read is not None and len(files) > 1:
        raise SettingError(
            f"{str(files[0])!r} is predicted alone: give {str(files[1])!r} to a call of its own"
        )
    if read is not None:
        if not files[0].is_file():
            raise SettingError(f"there is no file {str(files[0])!r}")
        return read(files[0], start, folder)
    is_folder = user_data.kind(settings.data) == "folder" and not has_given_data(
        settings
    )
    if is_folder and len(start["sample_shape"]) == 4:
        return _volumes(files, start, settings)
    pictures = _files_of(files, SUFFIXES)
    samples = tuple(NewSample(file, name, {}) for file, name in pictures.items())
    return NewSamples(samples, _pictures(tuple(pictures), start, folder))


# Pictures and volumes -----------------------------------------------------------------------------


def _pictures(
    files: tuple[Path, ...], start: Mapping[str, Any], folder: str | Path
) -> ImageFolder:
    """Return pictures as the samples of the run are: in size, in grey or colours."""
    shape = tuple(start["sample_shape"])
    form = picture_form(shape)
    if form is None:
        raise SettingError(
            f"the samples of the run in {str(folder)!r} have the shape {shape}, which a picture "
            "file cannot have: give them as an archive, np.savez('new.npz', inputs=...)"
        )
    size, mode = form
    of_one = size if start["task"] == "segmentation" else ()
    unknown = np.broadcast_to(np.int64(0), (len(files), *of_one))
    return ImageFolder(files, unknown, tuple(start["classes"]), size, mode)


def _files_of(paths: Iterable[Path], suffixes: frozenset[str]) -> dict[Path, Path]:
    """Return the files of `pictures_of`, without the masks that an earlier call wrote beside them.

    What is named by itself is never left out.
    """
    named = set(paths)
    files = pictures_of(paths, suffixes)
    names = set(files.values())
    found = {}
    for file, name in files.items():
        picture = name.with_name(_RESULT.sub("", name.name))
        if file in named or picture == name or picture not in names:
            found[file] = name
    return found


def _volumes(
    files: tuple[Path, ...], start: Mapping[str, Any], settings: Settings
) -> NewVolumes:
    channels, *size = start["sample_shape"]
    cases: dict[Path, list[Path]] = defaultdict(list)
    for file, name in _files_of(files, VOLUMES).items():
        case = CHANNEL.sub("", name.name) if channels > 1 else name.name
        cases[name.with_name(case)].append(file)
    for entry in settings.transforms or ():
        if entry["name"] in _CROPS:
            size = list(per_axis(entry["size"], 3, "size"))
    spacing = settings.data_settings.get("spacing")
    return NewVolumes(
        tuple(NewSample(files[0], name, {}) for name, files in cases.items()),
        nifti_files(list(cases.values()), spacing=spacing),
        tuple(size),
        channels,
    )


# Rows ---------------------------------------------------------------------------------------------


def _rows_of_table(
    file: Path, start: Mapping[str, Any], folder: str | Path
) -> NewSamples:
    columns, rows = read_cells(file, str(file))
    if not rows:
        raise SettingError(f"{str(file)!r} has no row below the header {columns}")
    wanted = start["columns"]
    missing = [column for column in wanted if column not in columns]
    path = None if wanted else column_of_paths(str(file), columns)
    if missing or not (wanted or path):
        raise SettingError(
            f"{str(file)!r} has the columns {columns}: wanted are those that the run in "
            f"{str(folder)!r} was trained on, {wanted or 'path'}"
        )
    if path is None:
        source: Any = _unlabelled(numbers_of(str(file), rows, wanted))
        files = [file] * len(rows)
    else:
        files = [file.parent / row[path] for row in rows]
        pictures_of(files)  # each is there
        source = _pictures(tuple(files), start, folder)
    samples = []
    for each, row in zip(files, rows, strict=True):
        samples.append(NewSample(each, Path(each.stem), row))
    return NewSamples(tuple(samples), source)


def _rows_of_archive(
    file: Path, start: Mapping[str, Any], folder: str | Path
) -> NewSamples:
    inputs = user_data.unlabelled_inputs(file)
    shape = tuple(start["sample_shape"])
    if inputs.shape[1:] != shape:
        raise SettingError(
            f"{str(file)!r} holds samples of shape {inputs.shape[1:]}, and those of the run in "
            f"{str(folder)!r} have {shape}"
        )
    samples = []
    for number in range(len(inputs)):
        samples.append(NewSample(file, Path(file.stem), {"sample": str(number)}))
    return NewSamples(tuple(samples), _unlabelled(inputs))


def _unlabelled(inputs: np.ndarray) -> Samples:
    return Samples(inputs, np.zeros(len(inputs), np.int64))


_BY_SUFFIX: Mapping[str, Callable[..., NewSamples]] = {
    ".csv": _rows_of_table,
    ".npz": _rows_of_archive,
}
