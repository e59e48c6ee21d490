"""Datasets from the MRI template that nilearn ships inside its package; nothing is downloaded.

The template is a mean over 152 brains, made symmetric: the left half mirrors the right one. So
parts are never held out from left to right, but from bottom to top: a slab of it is held out, with
a margin on both sides that is in neither part.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from deliralike.data.batching import permutation
from deliralike.data.dataset import Dataset, Samples, check_fraction, check_size
from deliralike.data.packages import needed
from deliralike.errors import SettingError

CLASSES = ("background", "grey matter", "white matter")
MARGIN = 2  # voxels above and below the slab
LEAST_TISSUE = 0.02  # of a slice
LEAST_TISSUE_OF_PATCH = 0.1


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
    template = load_template(resolution, "mri-slices")
    size = round(192 / resolution) if size is None else check_size("mri-slices", size)
    upright = Template(_upright(template.image), _upright(template.labels))
    tissue = (upright.labels > 0).mean(axis=(1, 2))
    levels = np.flatnonzero(tissue >= LEAST_TISSUE)
    low = int(levels[0])
    high = int(levels[-1]) + 1
    thickness = round(held_out * (high - low))
    start, stop = slab(low, high, thickness, seed)
    below = range(low, start - MARGIN)
    above = range(stop + MARGIN, high)
    train_levels = [*below, *above]
    held_out_levels = range(start, stop)
    _refuse_empty("mri-slices", train_levels, held_out_levels)
    images = _fitted(upright.image, size)[:, np.newaxis]
    samples = Samples(images, _fitted(upright.labels, size))
    train = samples.take(np.array(train_levels))
    evaluated = samples.take(np.array(held_out_levels))
    return Dataset("mri-slices", train, evaluated, CLASSES, task="segmentation")


def patches(
    *,
    held_out: float = 0.2,
    seed: int = 0,
    resolution: float = 2,
    size: int = 16,
    stride: int | None = None,
) -> Dataset:
    """Return cubes of the MRI template, to be segmented into grey and white matter.

    The held-out cubes are those inside a slab; the training cubes lie above and below it, at least
    two voxels away. Held-out cubes do not overlap, so that no voxel is evaluated twice. Cubes with
    less than a tenth of tissue are left out.

    Args:
        held_out: The fraction of the brain's height that is held out, rounded to whole cubes, one
            at least.
        seed: The seed of the slab's place.
        resolution: The size of a voxel in millimetres; 1 is the template's own.
        size: The length of a cube's edges in voxels.
        stride: The distance between cubes to learn from, in voxels; half of `size` when not given,
            so they overlap.

    Shapes:
        Inputs ``(patches, 1, size, size, size)``, labels ``(patches, size, size, size)``: axes from
        left to right, from back to front, from bottom to top.

    Raises:
        DataUnavailable: nilearn is not installed.
        SettingError: A setting makes no sense, or too few cubes are left.

    Source:
        See `slices`.
    """
    check_fraction(held_out)
    check_size("mri-patches", size)
    if stride is None:
        stride = max(1, size // 2)
    else:
        check_size("mri-patches", stride, "stride")
    template = load_template(resolution, "mri-patches")
    box = _bounding_box(template.labels)
    low, high = box[2]
    cubes = round(held_out * (high - low) / size)
    thickness = size * max(1, cubes)
    start, stop = slab(low, high, thickness, seed)
    levels = []
    for level in range(low, high - size + 1, stride):
        if level + size <= start - MARGIN or level >= stop + MARGIN:
            levels.append(level)
    train = _cubes(template, box[:2], levels, size, stride)
    evaluated = _cubes(template, box[:2], range(start, stop, size), size, size)
    _refuse_empty("mri-patches", train.labels, evaluated.labels)
    return Dataset("mri-patches", train, evaluated, CLASSES, task="segmentation")


def load_template(resolution: float, dataset: str) -> Template:
    """Return the template and its labels at a resolution in millimetres.

    Raises:
        DataUnavailable: nilearn is not installed.
        SettingError: The resolution is not above zero.
    """
    if not resolution > 0:
        raise SettingError(
            f"resolution of {dataset!r} is the size of a voxel in millimetres, not {resolution!r}"
        )
    shipped = needed(
        "nilearn.datasets",
        package="nilearn",
        extra="mri",
        purpose=f"dataset {dataset!r}",
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
            "size"
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


def _bounding_box(labels: np.ndarray) -> list[tuple[int, int]]:
    """Return the first index of a label above zero along each axis, and one past the last."""
    box = []
    for indices in np.nonzero(labels):
        box.append((int(indices.min()), int(indices.max()) + 1))
    return box


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


def _cubes(
    template: Template, box: Any, levels: Any, size: int, stride: int
) -> Samples:
    """Return the cubes of a grid over the box at these levels that have enough tissue."""
    (left, right), (back, front) = box
    columns = range(left, right - size + 1, stride)
    rows = range(back, front - size + 1, stride)
    images = []
    labels = []
    for corner in itertools.product(columns, rows, levels):
        cube = tuple(slice(begin, begin + size) for begin in corner)
        tissue = (template.labels[cube] > 0).mean()
        if tissue >= LEAST_TISSUE_OF_PATCH:
            images.append(template.image[cube])
            labels.append(template.labels[cube])
    shape = (-1, size, size, size)
    image_array = np.array(images, template.image.dtype).reshape(shape)
    label_array = np.array(labels, template.labels.dtype).reshape(shape)
    return Samples(image_array[:, np.newaxis], label_array)


def _refuse_empty(dataset: str, train: Any, held_out: Any) -> None:
    parts = {"to learn from": train, "to judge by": held_out}
    for purpose, part in parts.items():
        if len(part) == 0:
            raise SettingError(
                f"these settings of {dataset!r} leave nothing {purpose}: change held_out, size or "
                "resolution"
            )
