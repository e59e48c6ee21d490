"""Volumes in NIfTI files: reading, writing, orientation, spacing, and a dataset of paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.data.dataset import Samples
from deliralike.data.packages import needed
from deliralike.errors import BatchError, IndexRangeError, SettingError
from deliralike.nn.start import Shape
from deliralike.weights.inflate import refuse_expansion

AXES = 3
_DIRECTIONS = ("RL", "AP", "SI")
# By the unit of a file; other units are taken for millimetres.
_MILLIMETRES = {
    "meter": 1000.0,
    "micron": 0.001,
}
_CLOSE = 1e-6  # voxels, rounding of affines
_BYTES = 8  # of a voxel, at most, while it is read
_ALWAYS_ALLOWED = 2**31  # bytes of a volume


@dataclass(frozen=True)
class Volume:
    """An array of voxels and where they are.

    Attributes:
        array: The voxels; floats are intensities, whole numbers and truth values are labels.
        affine: The matrix from the numbers of a voxel to millimetres, to the right, to the front
            and up.

    Shapes:
        Array ``(*size)`` or ``(channels, *size)`` with three axes of size; affine ``(4, 4)``.

    Example:
        >>> volume = Volume(np.zeros((4, 6, 5)), np.diag([-1.0, 1.0, 2.0, 1.0]))
        >>> volume.spacing, volume.orientation
        ((1.0, 1.0, 2.0), 'LAS')
    """

    array: np.ndarray
    affine: np.ndarray

    @property
    def size(self) -> Shape:
        """The number of voxels along each axis."""
        return self.array.shape[-AXES:]

    @property
    def spacing(self) -> tuple[float, ...]:
        """The distance of neighbouring voxels along each axis, in millimetres."""
        return tuple(_nibabel("affines").voxel_sizes(self.affine).tolist())

    @property
    def orientation(self) -> str:
        """Where each axis points to, nearly: ``"RAS"`` is to the right, to the front, up."""
        return "".join(_nibabel("orientations").aff2axcodes(self.affine))


def read_nifti(
    path: str | Path,
    *,
    labels: bool = False,
    orientation: str | None = "RAS",
    spacing: float | Sequence[float] | None = None,
) -> Volume:
    """Read a volume from a NIfTI file; metres and microns become millimetres.

    Args:
        labels: Whether the file holds labels: they are int64, and never mixed.
        orientation: The letters of the directions that the axes are to point to, to which they are
            permuted and mirrored; as in the file if None.
        spacing: The distance of neighbouring voxels to resample to, in millimetres: one number, or
            one for each axis; as in the file if None.

    Shapes:
        A file of ``(*size)`` gives ``(*size)``, one of ``(*size, channels)`` gives ``(channels,
        *size)``; labels of ``(*size, 1)`` give ``(*size)``.

    Raises:
        BatchError: The file is no NIfTI file, is damaged, has other axes, or grows more than a
            hundredfold past 2 GiB; labels are no whole numbers. The file is named.
        SettingError: There is no such file, or a setting makes no sense.
        DataUnavailable: nibabel is not installed.
    """
    file = Path(path)
    if not file.is_file():
        raise SettingError(f"there is no file {str(file)!r}")
    volume = _read(file, labels)
    if orientation is not None:
        volume = oriented(volume, orientation)
    if spacing is not None:
        volume = resampled(volume, spacing)
    return volume


def write_nifti(path: str | Path, volume: Volume) -> None:
    """Write a volume to a NIfTI file, ``.nii`` or ``.nii.gz``.

    Truth values become uint8, int64 becomes int32, and half precision becomes float32, which every
    program reads.

    Raises:
        IndexRangeError: A number does not fit into int32.
        DataUnavailable: nibabel is not installed.

    Example:
        >>> import tempfile
        >>> labels = Volume(np.ones((2, 3, 4), np.int64), np.eye(4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_nifti(f"{folder}/labels.nii.gz", labels)
        ...     read_nifti(f"{folder}/labels.nii.gz", labels=True).array.shape
        (2, 3, 4)
    """
    array = _common(volume.array)
    if array.ndim > AXES:
        array = np.moveaxis(array, 0, -1)
    kind = "compat" if array.dtype in (np.int64, np.uint64) else None  # int32
    image = _nibabel("nifti1").Nifti1Image(array, volume.affine, dtype=kind)
    image.header.set_xyzt_units("mm")
    try:
        image.to_filename(str(path))
    except ValueError as error:
        raise IndexRangeError(
            f"a label does not fit into a NIfTI file's int32: {error}"
        ) from error


def oriented(volume: Volume, orientation: str = "RAS") -> Volume:
    """Return a volume with its axes permuted and mirrored; no value changes.

    Args:
        orientation: Three letters, one of each pair ``RL``, ``AP``, ``SI``: where the axes point
            to. ``"RAS"`` is nibabel's canonical orientation.

    Raises:
        SettingError: There is no such orientation.

    Example:
        >>> volume = Volume(np.arange(2.0).reshape(2, 1, 1), np.diag([-1.0, 1.0, 1.0, 1.0]))
        >>> turned = oriented(volume, "RAS")
        >>> turned.array.ravel().tolist(), turned.affine[0].tolist()
        ([1.0, 0.0], [1.0, 0.0, 0.0, -1.0])
    """
    is_complete = all(map(set(orientation).intersection, _DIRECTIONS))
    if not is_complete or len(orientation) != AXES:
        raise SettingError(
            f"an orientation has one letter of each pair RL, AP and SI, as 'RAS', not "
            f"{orientation!r}"
        )
    tools = _nibabel("orientations")
    change = tools.ornt_transform(
        tools.io_orientation(volume.affine), tools.axcodes2ornt(tuple(orientation))
    )
    # To nibabel's order of axes.
    first = np.moveaxis(volume.array, range(-AXES, 0), range(AXES))
    turned = np.moveaxis(
        tools.apply_orientation(first, change), range(AXES), range(-AXES, 0)
    )
    affine = volume.affine @ tools.inv_ornt_aff(change, volume.size)
    return Volume(np.ascontiguousarray(turned), affine)


def resampled(volume: Volume, spacing: float | Sequence[float]) -> Volume:
    """Return a volume with another distance of voxels; its centre stays where it is.

    Intensities are interpolated linearly and continued past the outermost voxels; labels take the
    nearest. Nothing smooths them before, so thin structures may be lost where voxels grow.

    Args:
        spacing: In millimetres: one number, or one for each axis.

    Raises:
        SettingError: A distance is not above 0.

    Example:
        >>> volume = Volume(np.zeros((10, 8, 5)), np.diag([1.0, 1.0, 2.0, 1.0]))
        >>> resampled(volume, 2.0).array.shape
        (5, 4, 5)
    """
    wanted = np.ravel(spacing)
    are_numbers = wanted.dtype.kind in "iuf" and wanted.size in (1, AXES)
    if not are_numbers or not (wanted > 0).all():
        raise SettingError(
            f"spacing is a distance above 0 along each axis, not {spacing!r}"
        )
    scales = wanted / volume.spacing
    old = np.array(volume.size)
    new = np.maximum(np.rint(old / scales), 1).astype(int)
    affine = volume.affine.copy()
    affine[:AXES, :AXES] *= scales
    # The first new voxel among the old ones.
    begin = (old - 1) / 2 - scales * (new - 1) / 2
    affine[:, AXES] = volume.affine @ np.append(begin, 1.0)
    return Volume(_sampled(volume, tuple(new.tolist()), affine), affine)


def placed_on(volume: Volume, grid: Volume) -> Volume:
    """Return the values of a volume at the voxels of another one; 0 where they lie outside.

    Intensities are interpolated linearly and continued from the middle of the outermost voxels to
    their edge; labels take the nearest. So a prediction in a common orientation and spacing comes
    back to the voxels of the patient's own file.

    Example:
        >>> fine = Volume(np.ones((4, 4, 4), int), np.eye(4))
        >>> coarse = resampled(fine, 2.0)
        >>> placed_on(coarse, fine).array.shape
        (4, 4, 4)
    """
    array = _sampled(volume, grid.size, grid.affine)
    array[..., ~_is_inside(volume, grid)] = 0
    return Volume(array, grid.affine)


@dataclass(frozen=True, repr=False)
class NiftiFiles:
    """NIfTI files as an indexable dataset, read one by one when a sample is asked for.

    Attributes:
        images: The files of each sample's picture; several are its channels.
        labels: The file of each sample's labels; None for pictures alone.
        orientation: The orientation to turn all to; as in the files if None.
        spacing: The distance of voxels to resample to, in millimetres; as in the files if None.

    Shapes:
        A sample is a picture ``(channels, *size)``, float32, and labels ``(*size)``, int64; without
        labels it is the picture alone.
    """

    images: tuple[tuple[Path, ...], ...]
    labels: tuple[Path, ...] | None = None
    orientation: str | None = "RAS"
    spacing: float | Sequence[float] | None = None

    def __repr__(self) -> str:
        labels = "without labels" if self.labels is None else "with labels"
        return (
            f"NiftiFiles({len(self)} pictures {labels}, orientation={self.orientation!r}, "
            f"spacing={self.spacing!r})"
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        picture = self.picture(index)
        if self.labels is None:
            return picture.array
        mask = self._read(self.labels[index], labels=True)
        _check_grid(self.images[index][0], picture, self.labels[index], mask)
        return Samples(picture.array, mask.array)

    def picture(self, index: int) -> Volume:
        """Return the picture of a sample with its affine."""
        channels = [self._read(file) for file in self.images[index]]
        arrays = []
        for file, channel in zip(self.images[index], channels, strict=True):
            _check_grid(self.images[index][0], channels[0], file, channel)
            arrays.append(channel.array.reshape(-1, *channel.size))
        return replace(channels[0], array=np.concatenate(arrays))

    def _read(self, file: Path, labels: bool = False) -> Volume:
        return read_nifti(
            file, labels=labels, orientation=self.orientation, spacing=self.spacing
        )


def nifti_files(
    images: Sequence[str | Path | Sequence[str | Path]],
    labels: Sequence[str | Path] | None = None,
    *,
    orientation: str | None = "RAS",
    spacing: float | Sequence[float] | None = None,
) -> NiftiFiles:
    """Return NIfTI files as a dataset.

    Args:
        images: The file of each sample's picture, or several files, which are its channels.
        labels: The file of each sample's labels, in the same order.
        orientation: Letters of the directions that axes are to point to; as in the files if None.
        spacing: The distance of voxels to resample to, in millimetres.

    Raises:
        SettingError: A file is not there, or there are more or fewer labels than pictures.
        BatchError: When a sample is read: a file is damaged, or a sample's files have voxels at
            different places; the files are named.
        DataUnavailable: When a sample is read: nibabel is not installed.
    """
    pictures = []
    for each in images:
        channels = [each] if isinstance(each, str | Path) else each
        pictures.append(tuple(map(Path, channels)))
    masks = None if labels is None else tuple(map(Path, labels))
    if masks is not None and len(masks) != len(pictures):
        raise SettingError(
            f"there are {len(pictures)} pictures and {len(masks)} files of labels"
        )
    for file in chain(*pictures, masks or ()):
        if not file.is_file():
            raise SettingError(f"there is no file {str(file)!r}")
    return NiftiFiles(tuple(pictures), masks, orientation, spacing)


# Reading and writing ------------------------------------------------------------------------------


def _read(file: Path, labels: bool) -> Volume:
    array, affine = _contents(file)
    if array.ndim not in (AXES, AXES + 1):
        raise BatchError(
            f"volume {str(file)!r} has the shape {array.shape}, wanted three axes, and at most one "
            "of channels after them"
        )
    if array.dtype.kind not in "biuf":
        raise BatchError(
            f"volume {str(file)!r} holds {array.dtype}, wanted one number a voxel"
        )
    if not _is_placed(affine):
        raise BatchError(
            f"volume {str(file)!r} does not say where its voxels are: {affine}"
        )
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite in it
        array = _whole(array, file) if labels else array.astype(np.float32)
    if labels and array.shape[AXES:] == (1,):
        array = array[..., 0]
    if array.ndim > AXES:
        array = np.moveaxis(array, -1, 0)
    return Volume(np.ascontiguousarray(array), affine)


def _is_placed(affine: np.ndarray) -> bool:
    """Return whether an affine gives each axis a direction of its own."""
    if not np.isfinite(affine).all():
        return False
    directions = _nibabel("orientations").io_orientation(affine)
    return not np.isnan(directions).any()


def _contents(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the array of a file, scaled as its header says, and its affine in millimetres."""
    nibabel = _nibabel()
    try:
        image = nibabel.load(file)
        refuse_expansion(file, math.prod(image.shape) * _BYTES, allowed=_ALWAYS_ALLOWED)
        affine = np.array(image.affine, np.float64)
        if hasattr(image.header, "get_xyzt_units"):
            unit, _ = image.header.get_xyzt_units()
            affine[:AXES] *= _MILLIMETRES.get(unit, 1.0)
        return np.asarray(image.dataobj), affine
    except Exception as error:  # what a damaged file raises is open
        raise BatchError(
            f"volume {str(file)!r} cannot be read ({error}): replace it, or take it out"
        ) from error


def _whole(array: np.ndarray, file: Path) -> np.ndarray:
    # NaN differs from every number that it is cast to.
    with np.errstate(invalid="ignore"):
        labels = array.astype(np.int64)
    differs = labels != array
    if differs.any():
        raise BatchError(
            f"volume {str(file)!r} holds {array[differs][0]}, and labels are whole numbers"
        )
    return labels


def _sampled(volume: Volume, size: Shape, affine: np.ndarray) -> np.ndarray:
    """Return the values at the voxels of a grid, channel by channel, continued outside."""
    images = needed(
        "scipy.ndimage", package="scipy", extra="nifti", purpose="resampling a volume"
    )
    to_voxels = np.linalg.inv(volume.affine) @ affine
    order = 1 if volume.array.dtype.kind == "f" else 0
    new = []
    for channel in _common(volume.array).reshape(-1, *volume.size):
        new.append(
            images.affine_transform(
                channel, to_voxels, output_shape=size, order=order, mode="nearest"
            )
        )
    sampled = np.stack(new).reshape(*volume.array.shape[:-AXES], *size)
    return sampled.astype(volume.array.dtype, copy=False)


def _is_inside(volume: Volume, grid: Volume) -> np.ndarray:
    """Return for each voxel of a grid whether its middle lies within the voxels of a volume."""
    to_voxels = np.linalg.inv(volume.affine) @ grid.affine
    indices = np.ogrid[tuple(map(slice, grid.size))]
    is_inside = np.ones(grid.size, bool)
    for row, length in zip(to_voxels, volume.size, strict=False):
        places = row[AXES]
        for factor, index in zip(row, indices, strict=False):
            places = places + factor * index
        is_inside &= (places > -0.5 - _CLOSE) & (places < length - 0.5 + _CLOSE)
    return is_inside


def _check_grid(file: Path, volume: Volume, other_file: Path, other: Volume) -> None:
    """Raise an error if the voxels of two volumes are at different places."""
    if volume.size == other.size and np.allclose(
        volume.affine, other.affine, atol=1e-3
    ):
        return
    raise BatchError(
        f"{str(file)!r} has {volume.size} voxels of {volume.spacing} mm, and {str(other_file)!r} "
        f"{other.size} of {other.spacing}, or at another place: resample one to the other, "
        "data.nifti.placed_on"
    )


def _common(array: np.ndarray) -> np.ndarray:
    """Return an array in a type that SciPy and every reader of NIfTI files take."""
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype == bool:
        return array.astype(np.uint8)
    return array


def _nibabel(module: str = "") -> Any:
    name = f"nibabel.{module}".rstrip(".")
    return needed(
        name,
        package="nibabel",
        extra="nifti",
        purpose="reading and writing NIfTI files",
    )
