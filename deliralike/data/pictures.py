"""Datasets from the pictures that scikit-image ships inside its package; nothing is downloaded."""

from typing import Any

import numpy as np

from deliralike.data.dataset import Dataset, Samples, check_size, stratified_split
from deliralike.data.packages import needed

# Those that make sense in shades of grey, are not drawn, and come with the package itself.
NAMES = (
    "astronaut",
    "brick",
    "camera",
    "cat",
    "coffee",
    "coins",
    "grass",
    "gravel",
    "immunohistochemistry",
    "text",
)


def pictures(*, held_out: float = 0.2, seed: int = 0, size: int = 32) -> Dataset:
    """Return patches of ten photographs in shades of grey; the label is the photograph.

    The photographs are cut into squares that do not overlap, so no pixel is in both parts. For
    denoising take the patches themselves as targets.

    Args:
        held_out: The fraction of each photograph's patches that is held out.
        seed: Which patches are held out.
        size: Height and width of a patch in pixels; rows and columns that do not make a whole patch
            are left out.

    Shapes:
        Inputs ``(patches, 1, size, size)``, labels ``(patches,)``.

    Raises:
        DataUnavailable: scikit-image is not installed.
        SettingError: A photograph is smaller than a patch, or `held_out` makes no sense.

    Source:
        scikit-image's ``skimage.data``, where the origin and the licence of each photograph are
        named.
    """
    check_size("pictures", size, largest=172)
    shipped = _scikit_image("data", "pictures")
    tiles: list[np.ndarray] = []
    labels: list[int] = []
    for label, name in enumerate(NAMES):
        photograph = _grey(getattr(shipped, name)())
        patches = _tiles(photograph, size)
        tiles.append(patches)
        labels.extend([label] * len(patches))
    samples = Samples(np.concatenate(tiles), np.array(labels))
    train, evaluated = stratified_split(samples, held_out, seed)
    return Dataset("pictures", train, evaluated, NAMES)


def faces(*, held_out: float = 0.2, seed: int = 0) -> Dataset:
    """Return 100 faces and 100 pieces of pictures without one, 25x25 pixels in shades of grey.

    The samples are so few that a confidence interval is worth more than the figure.

    Shapes:
        Inputs ``(samples, 1, 25, 25)``, labels ``(samples,)``: 0 no face, 1 face.

    Raises:
        DataUnavailable: scikit-image is not installed.

    Source:
        A part of Labeled Faces in the Wild, Huang et al. 2007, as ``skimage.data.lfw_subset``.
    """
    raw = _scikit_image("data", "faces").lfw_subset()  # faces first
    labels = np.repeat(np.array([1, 0]), 100)
    samples = Samples(raw[:, np.newaxis].astype(np.float32), labels)
    train, evaluated = stratified_split(samples, held_out, seed)
    return Dataset("faces", train, evaluated, ("no face", "face"))


def _grey(picture: np.ndarray) -> np.ndarray:
    """Return shades of grey in [0, 1]: ``(height, width)``."""
    if picture.ndim == 2:
        return picture / 255
    return _scikit_image("color", "pictures").rgb2gray(picture)


def _tiles(picture: np.ndarray, size: int) -> np.ndarray:
    """Return the whole squares of a grid, row by row: ``(squares, 1, size, size)``."""
    height, width = picture.shape
    rows = height // size
    columns = width // size
    whole = picture[: rows * size, : columns * size]
    grid = whole.reshape(rows, size, columns, size).transpose(0, 2, 1, 3)
    return grid.reshape(-1, 1, size, size).astype(np.float32)


def _scikit_image(part: str, dataset: str) -> Any:
    return needed(
        f"skimage.{part}", package="scikit-image", extra="images", purpose=f"dataset {dataset!r}"
    )
