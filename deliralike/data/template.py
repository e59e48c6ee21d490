"""Slices of the MRI template that nilearn ships inside its package; nothing is downloaded.

The template is a mean over 152 brains, made symmetric: the left half mirrors the right one. So
parts are never held out from left to right, but from bottom to top: a slab of it is held out, with
a margin on both sides that is in neither part.
"""

from typing import Any, NamedTuple

import numpy as np

from deliralike.data.batching import permutation
from deliralike.data.dataset import Dataset, Samples, check_fraction
from deliralike.data.packages import needed
from deliralike.errors import SettingError, whole_number

CLASSES = ("background", "grey matter", "white matter")
MARGIN = 2  # voxels above and below the slab
LEAST_TISSUE = 0.02  # of a slice


class Template(NamedTuple):
    """The template: axes from left to right, from back to front, from bottom to top.

    Attributes:
        image: T1-weighted intensities in [0, 1], without the skull.
        labels: 0 background, 1 grey matter, 2 white matter.
    """

    image: np.ndarray
    labels: np.ndarray


def slices(
    *,
    held_out: float = 0.2,
    seed: int = 0,
    resolution: float = 2,
    size: int | None = None,
) -> Dataset:
    """Return horizontal slices of the MRI template, to be segmented into grey and white matter.

    The held-out slices are next to each other. Two more on either side are in no part, since
    neighbours are alike.

    Args:
        held_out: The fraction of the slices that is held out.
        seed: The seed of the place of the held-out slab.
        resolution: The size of a voxel in millimetres; 1 is the template's own.
        size: Height and width, cut or padded around the centre; 192 millimetres when not given,
            which holds the brain.

    Shapes:
        Inputs ``(slices, 1, size, size)``, the front at the top; labels ``(slices, size, size)``.

    Raises:
        DataUnavailable: nilearn is not installed.
        SettingError: A setting makes no sense, or too few slices are left.

    Source:
        ICBM 152 nonlinear symmetric template of 2009, Fonov et al. 2011, doi
        10.1016/j.neuroimage.2010.07.033. A voxel has the label of its most probable tissue.
    """
    check_fraction(held_out)
    template = load_template(resolution)
    if size is None:
        size = round(192 / resolution)
    whole_number("size", size, 1)
    labels = _upright(template.labels)
    tissue = (labels > 0).mean(axis=(1, 2))
    levels = np.flatnonzero(tissue >= LEAST_TISSUE)
    low = int(levels[0])
    high = int(levels[-1]) + 1
    thickness = round(held_out * (high - low))
    start, stop = slab(low, high, thickness, seed)
    train_levels = [*range(low, start - MARGIN), *range(stop + MARGIN, high)]
    images = _fitted(_upright(template.image), size)[:, np.newaxis]
    samples = Samples(images, _fitted(labels, size))
    train = samples.take(np.array(train_levels))
    evaluated = samples.take(slice(start, stop))
    return Dataset("mri-slices", train, evaluated, CLASSES, task="segmentation")


def load_template(resolution: float) -> Template:
    """Return the template and its labels at a resolution in millimetres.

    Raises:
        DataUnavailable: nilearn is not installed.
        SettingError: The resolution is not above zero.
    """
    if not resolution > 0:
        raise SettingError(
            f"resolution is the size of a voxel in millimetres, above 0, not {resolution!r}"
        )
    shipped = needed(
        "nilearn.datasets",
        package="nilearn",
        extra="mri",
        purpose="dataset 'mri-slices'",
    )
    image = _array(shipped.load_mni152_template(resolution=resolution))
    grey = _array(shipped.load_mni152_gm_template(resolution=resolution))
    white = _array(shipped.load_mni152_wm_template(resolution=resolution))
    tissue = np.stack([1 - grey - white, grey, white])
    labels = tissue.argmax(axis=0).astype(np.int64)
    return Template(np.clip(image, 0, 1), labels)


def slab(low: int, high: int, thickness: int, seed: int) -> tuple[int, int]:
    """Return the bottom and top of a slab of that thickness between two levels.

    Its place is drawn from the middle half of all places, so that both tissues are in it, and
    training samples remain below it and above it.

    Raises:
        SettingError: No training samples would remain.
    """
    rest = high - low - thickness
    if thickness < 1 or rest // 4 <= MARGIN:
        raise SettingError(
            f"a slab of {thickness} voxels cannot be held out of {high - low}: change held_out or "
            "resolution"
        )
    quarter = rest // 4
    places = rest - 2 * quarter + 1
    place = int(permutation(places, seed, "data/slab")[0])
    start = low + quarter + place
    return start, start + thickness


def _array(image: Any) -> np.ndarray:
    return np.asarray(image.dataobj, np.float32)


def _upright(volume: np.ndarray) -> np.ndarray:
    """Return a volume as ``(slices, rows, columns)``, the front at the top."""
    return np.flip(volume, axis=1).transpose(2, 1, 0)


def _fitted(planes: np.ndarray, size: int) -> np.ndarray:
    """Return planes cut or padded with zeros around their centre: ``(planes, size, size)``."""
    for axis in (1, 2):
        extra = size - planes.shape[axis]
        before = abs(extra) // 2
        if extra >= 0:
            width = [(0, 0), (0, 0), (0, 0)]
            width[axis] = (before, extra - before)
            planes = np.pad(planes, width)
        else:
            planes = np.take(planes, range(before, before + size), axis=axis)
    return planes
