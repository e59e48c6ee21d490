"""Transforms of single samples in NumPy, random ones keyed by the generator that a `Loader` passes.

A sample is a picture, or a nest that holds one: an array of floats, channels first, of any number
of dimensions (``(C, L)``, ``(C, H, W)``, ``(C, D, H, W)``). If there are several arrays of floats,
the one with the most dimensions is the picture. Every array that ends in the picture's spatial
shape moves with it; of these, arrays of whole numbers and booleans are masks, whose values are
never mixed. Everything else (a label, a name) is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from deliralike import nest
from deliralike.data.keyed_rng import Call, mixes_samples
from deliralike.errors import BatchError, SettingError, whole_number
from deliralike.nn.geometry import Sizes, per_axis
from deliralike.nn.start import Shape
from deliralike.setting_types import TypedSettings

PaddingMode = Literal["constant", "reflect", "edge", "symmetric"]  # of `numpy.pad`


class Compose:
    """Transforms one after the other; each takes the sample, and the generator if it wants one.

    Example:
        >>> both = Compose([np.negative, Flip(probability=1.0)])
        >>> both(np.array([[0.0, 1.0, 2.0]]), np.random.default_rng(0)).tolist()
        [[-2.0, -1.0, -0.0]]
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]):
        self._calls = [Call.of(transform) for transform in transforms]

    @property
    def whole_batch(self) -> bool:
        """Whether one of the transforms mixes the samples of a batch."""
        return any(map(mixes_samples, self._calls))

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the sample after the last transform."""
        for call in self._calls:
            sample = call(sample, lambda: generator)
        return sample


@dataclass(frozen=True)
class Flip(TypedSettings):
    """Mirror along each of `axes`, each with the same probability and independently.

    Args:
        axes: Spatial axes, counted from the end: -1 is left and right.

    Example:
        >>> Flip(probability=1.0)(np.array([[0.0, 1.0]]), np.random.default_rng(0)).tolist()
        [[1.0, 0.0]]
    """

    axes: Sequence[int] = (-1,)
    probability: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_axes(self.axes)
        if not 0 <= self.probability <= 1:
            raise SettingError(
                f"probability must lie between 0 and 1, not {self.probability!r}"
            )

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the sample, mirrored or not."""
        shape = spatial_shape(sample)
        if -min(self.axes) > len(shape):
            raise BatchError(
                f"there is no spatial axis {min(self.axes)} in a picture of {shape}"
            )
        axes = tuple(
            axis for axis in self.axes if generator.random() < self.probability
        )
        return on_grid(sample, lambda array: np.flip(array, axes))


@dataclass(frozen=True)
class Crop(TypedSettings):
    """Cut a window out at a random place, after padding.

    Args:
        size: The window's spatial shape, or one number for all axes.
        padding: The number of elements added on each side, on all spatial axes.
        mode: The mode of `numpy.pad`: ``"constant"`` (zeros), ``"reflect"``, ``"edge"``,
            ``"symmetric"``.

    Shapes:
        ``(..., *spatial)`` becomes ``(..., *size)``.

    Raises:
        BatchError: The padded picture is smaller than the window.

    Example:
        >>> Crop(2)(np.zeros((3, 7, 5)), np.random.default_rng(0)).shape
        (3, 2, 2)
    """

    size: Sizes
    padding: int = 0
    mode: PaddingMode = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_size(self.size)
        whole_number("padding", self.padding, 0)

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the window."""
        shape = spatial_shape(sample)
        padded = tuple(length + 2 * self.padding for length in shape)
        window: list[Any] = [...]
        for length, size in zip(padded, window_in(padded, self.size), strict=True):
            begin = int(generator.integers(length - size + 1))
            window.append(slice(begin, begin + size))

        def cropped(array: np.ndarray) -> np.ndarray:
            if self.padding:
                margins = [(self.padding, self.padding)] * len(shape)
                array = _pad(array, margins, mode=self.mode)
            return array[tuple(window)]

        return on_grid(sample, cropped)


@dataclass(frozen=True)
class CropByPosNegLabel(TypedSettings):
    """Cut a window out around a voxel that is drawn from the foreground or from the background.

    The centre is a voxel of the foreground with the probability ``pos / (pos + neg)``, each with
    the same chance; where its window would leave the picture it is moved back into it. A sample
    with only one kind of voxels takes the centre from these. The rule is that of MONAI's
    ``RandCropByPosNegLabel``. For several windows of a sample in an epoch see `RepeatedSampler`.

    The labels are the sample's one array of whole numbers or truth values on the picture's grid;
    everything above or below 0 is foreground. All arrays on the grid are cut.

    Args:
        spatial_size: The window's size, or one number for all axes.
        pos: The weight of the foreground.
        neg: The weight of the background.

    Shapes:
        ``(..., *size)`` becomes ``(..., *spatial_size)``.

    Raises:
        BatchError: The picture is smaller than the window, or the sample has no labels, or several.
        SettingError: A setting makes no sense.

    Example:
        >>> labels = np.zeros((9, 9), int)
        >>> labels[2, 6] = 1
        >>> sample = np.zeros((1, 9, 9)), labels
        >>> crop = CropByPosNegLabel(3, pos=1, neg=0)
        >>> crop(sample, np.random.default_rng(0))[1].tolist()
        [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    """

    spatial_size: int | Sequence[int]
    pos: float = 1.0
    neg: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (min(self.pos, self.neg) >= 0 and 0 < self.pos + self.neg < np.inf):
            raise SettingError(
                "pos and neg are weights from 0 up, one of them above, not "
                f"pos={self.pos!r} and neg={self.neg!r}"
            )
        _check_size(self.spatial_size)

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the window."""
        shape = spatial_shape(sample)
        window = window_in(shape, self.spatial_size)
        is_foreground = (labels_of(sample) != 0).reshape(-1)
        is_positive = generator.random() < self.pos / (self.pos + self.neg)
        is_wanted = is_foreground if is_positive else ~is_foreground
        places = np.flatnonzero(is_wanted if is_wanted.any() else ~is_wanted)
        drawn = places[int(generator.integers(len(places)))]
        center = np.unravel_index(drawn, shape)
        cut: list[Any] = [...]
        for place, part, length in zip(center, window, shape, strict=True):
            begin = min(max(int(place) - part // 2, 0), length - part)
            cut.append(slice(begin, begin + part))
        return on_grid(sample, lambda array: array[tuple(cut)])


@dataclass(frozen=True)
class PadTo(TypedSettings):
    """Pad pictures that are smaller than `size` on both sides; larger ones stay as they are.

    Masks are padded with 0.

    Args:
        size: The least size along each axis, or one number for all.
        value: The value of the picture's padding.

    Example:
        >>> picture, mask = PadTo((4, 2), value=9.0)((np.zeros((1, 1, 3)), np.ones((1, 3), int)))
        >>> picture[0, :, 0].tolist(), mask[:, 0].tolist()
        ([9.0, 0.0, 9.0, 9.0], [0, 1, 0, 0])
    """

    size: Sizes
    value: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_size(self.size)

    def __call__(self, sample: Any) -> Any:
        """Return the padded sample."""
        shape = spatial_shape(sample)
        widths = margins(shape, per_axis(self.size, len(shape), "size"))

        def padded(array: np.ndarray) -> np.ndarray:
            value = self.value if array.dtype.kind == "f" else 0
            return _pad(array, widths, constant_values=value)

        return on_grid(sample, padded)


@dataclass(frozen=True)
class Normalise(TypedSettings):
    """Subtract `mean` and divide by `std`: one number, or one for each channel.

    Example:
        >>> Normalise([1.0, 2.0], [2.0, 4.0])(np.array([[3.0], [6.0]])).tolist()
        [[1.0], [1.0]]
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_std(self.std)

    def __call__(self, sample: Any) -> Any:
        """Return the sample with its picture normalised."""

        def normalised(picture: np.ndarray) -> np.ndarray:
            centred = picture - _for_channels(self.mean, picture)
            return centred / _for_channels(self.std, picture)

        return on_picture(sample, normalised)


@dataclass(frozen=True)
class ScaleColumns(TypedSettings):
    """Subtract `mean` from the columns of a table's row and divide by `std`, a number for each.

    Measured targets are scaled likewise, where their numbers are given.

    Example:
        >>> scaling = ScaleColumns.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
        >>> scaling((np.array([5.0, 6.0]), np.int64(1)))[0].tolist()
        [3.0, 1.0]
    """

    mean: Sequence[float]
    std: Sequence[float]
    target_mean: Sequence[float] = ()
    target_std: Sequence[float] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_std(self.std)
        _check_std(self.target_std)

    @classmethod
    def of(cls, inputs: np.ndarray, targets: np.ndarray | None = None) -> ScaleColumns:
        """Return the scaling to mean 0 and deviation 1 over samples.

        Constant columns become 0.

        Shapes:
            ``(samples, columns)``.
        """
        of_targets = () if targets is None else _mean_and_std(targets)
        return cls(*_mean_and_std(inputs), *of_targets)

    def __call__(self, sample: Any) -> Any:
        """Return a sample, or samples, with inputs, the first of the arrays, scaled."""
        (inputs, target, *others), structure = nest.flatten(sample)
        inputs = _scaled(inputs, self.mean, self.std)
        if self.target_std and target.dtype.kind == "f":  # new samples have no targets
            target = _scaled(target, self.target_mean, self.target_std)
        return nest.unflatten(structure, [inputs, target, *others])

    def restored(self, outputs: np.ndarray) -> np.ndarray:
        """Return scaled targets, or outputs for them, in the units of the table."""
        if not self.target_std:
            return outputs
        restored = outputs * np.asarray(self.target_std) + np.asarray(self.target_mean)
        return restored.astype(outputs.dtype)


def _mean_and_std(columns: np.ndarray) -> tuple[list[float], list[float]]:
    mean, std = columns.mean(0, dtype=np.float64), columns.std(0, dtype=np.float64)
    return mean.tolist(), np.where(std > 0, std, 1.0).tolist()


def _scaled(
    rows: np.ndarray, mean: Sequence[float], std: Sequence[float]
) -> np.ndarray:
    if rows.shape[-1:] != (len(mean),):
        raise BatchError(
            f"there are numbers for {len(mean)} columns, and the samples have the shape "
            f"{rows.shape}"
        )
    return ((rows - np.asarray(mean)) / np.asarray(std)).astype(rows.dtype)


@dataclass(frozen=True)
class Noise(TypedSettings):
    """Add normal noise to the picture.

    Args:
        std: The standard deviation; or the smallest and the largest, between which it is drawn for
            each sample.

    Example:
        >>> Noise(0.0)(np.ones((1, 2)), np.random.default_rng(0)).tolist()
        [[1.0, 1.0]]
    """

    std: float | tuple[float, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self._bounds()
        if not 0 <= low <= high < np.inf:
            raise SettingError(
                f"std must be a number from zero up, or two in rising order, not {self.std!r}"
            )

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the sample with a noisy picture."""
        std = generator.uniform(*self._bounds())

        def noisy(picture: np.ndarray) -> np.ndarray:
            return picture + std * generator.standard_normal(picture.shape)

        return on_picture(sample, noisy)

    def _bounds(self) -> np.ndarray:
        return np.broadcast_to(self.std, 2)


def margins(shape: Shape, least: Shape) -> list[tuple[int, int]]:
    """Return the elements that a shape lacks on both sides to have at least another one.

    Example:
        >>> margins((5, 9), (8, 4))
        [(1, 2), (0, 0)]
    """
    widths = []
    for length, wanted in zip(shape, least, strict=True):
        missing = max(wanted - length, 0)
        widths.append((missing // 2, missing - missing // 2))
    return widths


def _pad(
    array: np.ndarray, widths: Sequence[tuple[int, int]], **options: Any
) -> np.ndarray:
    """Return an array padded along its last axes."""
    others = [(0, 0)] * (array.ndim - len(widths))
    return np.pad(array, [*others, *widths], **options)


def window_in(shape: Shape, size: Sizes) -> Shape:
    """Return the size of a window along each axis of a picture.

    Raises:
        BatchError: The picture is smaller.
        SettingError: It has another number of axes.
    """
    sizes = per_axis(size, len(shape), "size")
    if any(np.greater(sizes, shape)):
        raise BatchError(
            f"a window of {sizes} does not fit into a picture of {shape}: pad the picture "
            "before, transforms.PadTo"
        )
    return sizes


def spatial_shape(sample: Any) -> Shape:
    """Return the shape of the sample's picture without its channels.

    Raises:
        BatchError: There is no picture.

    Example:
        >>> spatial_shape((np.zeros((3, 7, 5)), np.int64(1)))
        (7, 5)
    """
    return picture_of(sample).shape[1:]


def picture_of(sample: Any) -> np.ndarray:
    """Return the sample's picture: of its arrays of floats the one with the most dimensions.

    Raises:
        BatchError: There is no picture.
    """
    leaves = nest.leaves(sample)
    pictures = []
    for leaf in leaves:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and leaf.ndim > 1:
            pictures.append(leaf)
    if not pictures:
        raise BatchError(
            "a sample needs a picture, an array of floats with channels first, and holds only "
            f"{', '.join(map(described, leaves))}"
        )
    return max(pictures, key=np.ndim)


def labels_of(sample: Any) -> np.ndarray:
    """Return the sample's labels: its one array of whole numbers of the picture's spatial shape.

    One channel before that shape is left out.

    Raises:
        BatchError: There is no such array, or there are several.

    Example:
        >>> labels_of((np.zeros((3, 7, 5)), np.zeros((1, 7, 5), int))).shape
        (7, 5)
    """
    shape = spatial_shape(sample)
    found = []
    for leaf in nest.leaves(sample):
        is_mask = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iub"
        if is_mask and leaf.shape in (shape, (1, *shape)):
            found.append(leaf.reshape(shape))
    if len(found) != 1:
        raise BatchError(
            f"a sample needs one array of labels, whole numbers of shape {shape}; here are "
            f"{len(found)}"
        )
    return found[0]


def on_grid(sample: Any, function: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return the sample with `function` applied to every array on the picture's grid.

    The arrays keep their types.

    Example:
        >>> on_grid((np.ones((1, 2, 2)), 7), lambda array: array[..., :1])[0].shape
        (1, 2, 1)
    """
    shape = spatial_shape(sample)

    def applied(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.ndim < len(shape):
            return leaf
        if leaf.shape[-len(shape) :] != shape:
            return leaf
        return function(leaf).astype(leaf.dtype, copy=False)

    return nest.map(applied, sample)


def on_picture(sample: Any, function: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return the sample with `function` applied to its picture, which keeps its type.

    Example:
        >>> on_picture((np.ones((1, 2)), 7), np.negative)
        (array([[-1., -1.]]), 7)
    """
    picture = picture_of(sample)

    def applied(leaf: Any) -> Any:
        if leaf is not picture:
            return leaf
        return function(leaf).astype(leaf.dtype)

    return nest.map(applied, sample)


# Application to samples ---------------------------------------------------------------------------


def described(leaf: Any) -> str:
    """Return the kind, the shape and the type of a leaf of a sample."""
    return f"{nest.described(leaf)} ({getattr(leaf, 'dtype', 'no array')})"


def _for_channels(value: Any, picture: np.ndarray) -> np.ndarray:
    numbers = np.asarray(value, dtype=np.float64)
    if numbers.ndim and len(numbers) != len(picture):
        raise BatchError(
            f"there are {len(numbers)} numbers for the channels, and the picture has {len(picture)}"
        )
    if numbers.ndim == 0:
        return numbers
    spatial = (1,) * (picture.ndim - 1)
    return numbers.reshape(-1, *spatial)


def _check_size(size: Sizes) -> None:
    if np.size(size) == 0 or np.min(size) < 1:
        raise SettingError(f"a size is a whole number above zero, not {size!r}")


def _check_std(std: float | Sequence[float]) -> None:
    if not (np.asarray(std) > 0).all():
        raise SettingError(f"std must be above zero, not {std!r}")


def check_axes(axes: Sequence[int]) -> None:
    """Refuse axes that are not counted from the end, or named twice.

    Raises:
        SettingError: Says so.
    """
    are_distinct = len(set(axes)) == len(axes)
    if not axes or not are_distinct or max(axes) >= 0:
        raise SettingError(
            f"axes are counted from the end, -1 is the last, each named once; not {tuple(axes)}"
        )
