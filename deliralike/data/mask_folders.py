"""Folders of pictures or volumes with their masks: ``images/`` and ``masks/``, and nnU-Net's."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.data.dataset import Dataset, Samples, held_out_places
from deliralike.data.folders import (
    LOSSY,
    SUFFIXES,
    VOLUMES,
    AnySize,
    Size,
    by_stem,
    colour_number,
    colour_text,
    is_picture,
    mask_classes,
    picture_size,
    read_mask,
    read_picture,
    subfolder_called,
    subfolders,
    suffix_of,
)
from deliralike.data.nifti import nifti_files
from deliralike.errors import SettingError, listed
from deliralike.pictures import open_picture

IMAGES = ("images", "image", "imgs", "img")
MASKS = ("masks", "mask", "labels", "annotations", "segmentations")
_FILES = SUFFIXES | VOLUMES
_COLOURED = ("RGB", "RGBA", "P", "CMYK", "YCbCr")  # modes of Pillow
_OF_MASK = re.compile(r"[-_ ](mask|seg|segmentation|label|labels|gt)$", re.IGNORECASE)
CHANNEL = re.compile(r"_\d{4}$")  # nnU-Net's number of a channel
_VOID = 255  # by which many data sets mark pixels that do not count
_MOST_VALUES = 64  # of masks whose values are not given
_STEP = 32  # pixels; networks halve the size up to five times
_STEP_OF_VOLUMES = 16
_USUAL, _LARGEST, _WINDOW = 256, 512, 96  # pixels; voxels of a window


Pair = tuple[tuple[Path, ...], Path]  # the files of a picture, and that of its mask


@dataclass(frozen=True)
class MaskFolder:
    """Files of a folder that lie as pictures with masks do.

    Attributes:
        parts: For all, or for training and validation: the files of each picture, several for its
            channels, and of its mask, by the name that they share.
        unpaired: Pictures without a mask, and masks without a picture.
        others: Other subfolders with files of pictures or volumes.
        values: The number of each class in the masks, by name, where a file says so.
    """

    parts: tuple[Mapping[str, Pair], ...]
    unpaired: tuple[Path, ...] = ()
    others: tuple[str, ...] = ()
    values: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def find(cls, folder: Path, parts: Iterable[Path] = ()) -> MaskFolder | None:
        """Return what lies in a folder, or in its parts; None where there are no two such folders.

        Raises:
            SettingError: nnU-Net's ``dataset.json`` cannot be read.
        """
        if (folder / "dataset.json").is_file() and (folder / "imagesTr").is_dir():
            pairs, unpaired = _paired(folder / "imagesTr", folder / "labelsTr")
            values = _labels_of(folder / "dataset.json")
            return cls((pairs,), unpaired, values=values)
        found: list[Mapping[str, Pair]] = []
        all_unpaired: list[Path] = []
        others: list[str] = []
        for part in tuple(parts) or (folder,):
            images = subfolder_called(part, IMAGES)
            masks = subfolder_called(part, MASKS)
            if images is None or masks is None:
                return None
            pairs, unpaired = _paired(images, masks)
            found.append(pairs)
            all_unpaired += unpaired
            for name, path in subfolders(part).items():
                files = (is_picture(file, path, _FILES) for file in path.rglob("*"))
                if path not in (images, masks) and any(files):
                    others.append(name)
        return cls(tuple(found), tuple(all_unpaired), tuple(others))

    @property
    def patients(self) -> tuple[str, ...]:
        """The subfolder of each picture; empty where they do not all lie in subfolders."""
        names = [name for part in self.parts for name in part]
        if not all("/" in name for name in names):
            return ()
        return tuple(name.partition("/")[0] for name in names)

    def split(self, held_out: float, seed: int) -> MaskFolder:
        """Return the same with a part to learn from and one held out.

        Where all pictures lie in subfolders, of patients, those are split, and not their pictures.
        """
        if len(self.parts) > 1:
            return self
        patients = self.patients or tuple(self.parts[0])
        groups = tuple(dict.fromkeys(patients))
        places = held_out_places(len(groups), held_out, seed)
        chosen = {groups[place] for place in places}
        train: dict[str, Pair] = {}
        judge: dict[str, Pair] = {}
        for (name, pair), patient in zip(self.parts[0].items(), patients, strict=True):
            part = judge if patient in chosen else train
            part[name] = pair
        if not train:
            raise SettingError(
                f"{listed(groups)} alone cannot be split: give two or more pictures or patients"
            )
        return replace(self, parts=(train, judge))

    def dataset(
        self,
        name: str,
        *,
        size: AnySize | None = None,
        mode: str | None = None,
        values: Sequence[int | str] | None = None,
        classes: Sequence[str] | None = None,
        spacing: float | tuple[float, ...] | None = None,
    ) -> Dataset:
        """Read all files into memory.

        Args:
            name: The name of the dataset.
            size: Height and width of pictures; when not given, those of the first one, rounded to
                multiples of 32 and at most 256 where they are not such multiples.
            mode: ``"RGB"``, or ``"L"`` for grey; as the first picture when not given.
            values: The value of each class in the masks, or its colour ``"#ff0000"``; when not
                given, all that occur.
            classes: The names of the classes; the values when not given.
            spacing: The distance of voxels of volumes, in millimetres.

        Raises:
            SettingError: The masks have too many values to be masks, or are not those of `classes`.
            BatchError: A file is damaged, or a mask has a value that is not among `values`.
        """
        files = [pair for part in self.parts for pair in part.values()]
        is_volume = suffix_of(files[0][1]) in VOLUMES
        if is_volume:
            inputs, masks = _volumes(files, spacing)
            used = (
                f"{inputs.shape[2:]} voxels, each volume normalised and padded, all of them in "
                f"memory, {inputs.nbytes / 2**20:,.1f} MiB"
            )
        else:
            inputs, masks, size = _pictures(files, size, mode)
            used = f"scaled to {size[0]}x{size[1]}"
        if values is None:
            values = tuple(self.values.values()) or _occurring(name, masks, files)
        numbers = [colour_number(value) for value in values]
        numbered = []
        for mask, (_, file) in zip(masks, files, strict=True):
            numbered.append(mask_classes(mask, numbers, file))
        labels = np.stack(numbered)
        name_of = {str(number): name for name, number in self.values.items()}
        names = tuple(classes or [name_of.get(str(value), value) for value in values])
        if len(names) != len(values):
            raise SettingError(
                f"{name!r}: there are {len(names)} classes {listed(names)} and {len(values)} "
                f"values in the masks, {listed(values)}"
            )
        count = len(self.parts[0])
        remarks = [f"pictures with masks by name, {used}"]
        if values != tuple(range(len(values))):
            remark = f"the mask values {listed(values)} are the classes 0 to {len(values) - 1}"
            if _VOID in values and len(values) > 2:
                remark += (
                    f", {_VOID} too: if it marks pixels that do not count, give them another class "
                    "in the masks, as every value is learned"
                )
            remarks.append(remark)
        remarks.append("learned with flips and random crops")
        return Dataset(
            name,
            Samples(inputs[:count], labels[:count]),
            Samples(inputs[count:], labels[count:]),
            tuple(map(str, names)),
            "segmentation",
            tuple(remarks),
            _transforms(inputs.shape[2:], is_volume),
            self.patients,
        )


# Listing ------------------------------------------------------------------------------------------


def _paired(images: Path, masks: Path) -> tuple[Mapping[str, Pair], tuple[Path, ...]]:
    """Return pictures with masks from another folder, by name, and files without a partner."""
    mask_of = {}
    for name, file in by_stem(masks, _FILES).items():
        mask_of[_OF_MASK.sub("", name)] = file
    channels: dict[str, list[Path]] = defaultdict(list)
    for name, file in by_stem(images, _FILES).items():
        of_channel = CHANNEL.sub("", name)
        channels[of_channel if of_channel in mask_of else name].append(file)
    pairs = {}
    unpaired = []
    for name, files in channels.items():
        if name in mask_of:
            pairs[name] = (tuple(files), mask_of.pop(name))
        else:
            unpaired += files
    return pairs, (*unpaired, *mask_of.values())


def _labels_of(file: Path) -> dict[str, int]:
    """Return the number of each class by name, from nnU-Net's ``dataset.json``."""
    try:
        labels = json.loads(file.read_text("utf-8"))["labels"]
        if all(map(str.isdigit, labels)):  # number: name, as in the first nnU-Net
            labels = {name: number for number, name in labels.items()}
        return {name: int(number) for name, number in labels.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingError(
            f"{str(file)!r} does not name the classes ({error}): wanted is {{'labels': "
            "{'background': 0, 'liver': 1}}; regions of several numbers are not read"
        ) from error


# Reading ------------------------------------------------------------------------------------------


def _pictures(
    files: Sequence[Pair], size: Any, mode: str | None
) -> tuple[np.ndarray, list[np.ndarray], Size]:
    for images, _ in files:
        if len(images) > 1:
            raise SettingError(
                f"{listed(map(str, images))} are the channels of one picture: only volumes have "
                "channels in files of their own"
            )
    first = open_picture(files[0][0][0])
    if mode is None:
        mode = "RGB" if first.mode in _COLOURED else "L"
    if size is None:
        size = _usual_size(first.height, first.width)
    shape = picture_size(size)
    inputs = [read_picture(images[0], shape, mode) for images, _ in files]
    masks = [read_mask(mask, shape) for _, mask in files]
    return np.stack(inputs), masks, shape


def _usual_size(height: int, width: int) -> Size:
    sides = np.array([height, width])
    if (sides % _STEP == 0).all() and sides.max() <= _LARGEST:
        return height, width
    scaled = sides * min(1.0, _USUAL / sides.max())
    rounded = np.maximum(1, np.round(scaled / _STEP)).astype(int) * _STEP
    return int(rounded[0]), int(rounded[1])


def _volumes(
    files: Sequence[Pair], spacing: Any
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return volumes, normalised by channel, and their labels, padded to one size."""
    folder = nifti_files(
        [images for images, _ in files], [mask for _, mask in files], spacing=spacing
    )
    samples = [folder[number] for number in range(len(folder))]
    largest = np.max([sample.labels.shape for sample in samples], axis=0)
    shape = -(-largest // _STEP_OF_VOLUMES) * _STEP_OF_VOLUMES
    inputs, labels = [], []
    for picture, mask in samples:
        inputs.append(normalised_volume(picture, shape))
        labels.append(np.pad(mask, _margins(mask.shape, shape)))
    return np.stack(inputs), labels


def normalised_volume(picture: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return a volume with mean 0 and deviation 1 by channel, padded by its lowest value.

    Args:
        size: The size that it has at least, by what is added at the end of each axis.

    Shapes:
        ``(channels, *size)``, float32.
    """
    axes = tuple(range(1, picture.ndim))
    mean = picture.mean(axes, keepdims=True)
    scaled = (picture - mean) / np.maximum(picture.std(axes, keepdims=True), 1e-8)
    margins = [(0, 0), *_margins(picture.shape[1:], size)]
    padded = np.pad(scaled, margins, constant_values=float(scaled.min()))
    return padded.astype(np.float32)


def _margins(shape: Sequence[int], size: Sequence[int]) -> list[tuple[int, int]]:
    return [(0, max(0, int(new) - old)) for old, new in zip(shape, size, strict=True)]


# Masks --------------------------------------------------------------------------------------------


def _occurring(
    name: str,
    masks: Sequence[np.ndarray],
    files: Sequence[Pair],
) -> tuple[int | str, ...]:
    """Return the values of masks: numbers, or colours where there are any."""
    found: set[int] = set()
    for mask, (_, file) in zip(masks, files, strict=True):
        found.update(np.unique(mask).tolist())
        if len(found) > (2 if suffix_of(file) in LOSSY else _MOST_VALUES):
            raise SettingError(
                f"{name!r}: the masks up to {str(file)!r} have {len(found)} values, "
                f"{listed(sorted(found), 5)}: say which are classes, values=(0, 255) or "
                "values=('#000000', '#ff0000') (--set data.values='(0, 255)'); those of a JPEG are "
                "taken for the nearest of them"
            )
    if min(found) < 0:
        return tuple(map(colour_text, sorted(found, reverse=True)))
    if max(found) <= 2 * len(found):
        # Class numbers, of which some may be absent.
        return tuple(range(max(found) + 1))
    return tuple(sorted(found))


def _transforms(shape: Sequence[int], is_volume: bool) -> tuple[dict[str, Any], ...]:
    """Return the usual transforms of training samples, by name: flips and random crops."""
    if is_volume:
        window = [min(side, _WINDOW) for side in shape]
        return {"name": "flip", "axes": (-3, -2, -1)}, {"name": "crop", "size": window}
    padding = max(1, min(shape) // 8)
    crop = {"name": "crop", "size": list(shape), "padding": padding}
    return {"name": "flip"}, crop
