"""Checks of the inputs of layers and functions, and their error messages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import (
    BatchError,
    DtypeError,
    IndexRangeError,
    SettingError,
    ShapeError,
    whole_number,
)
from deliralike.nn.start import Shape
from deliralike.terminal import warn

SHORT_TYPES = ("float16", "bfloat16")


def where(layer: Any) -> str:
    """Return the name of a layer for an error: its class, and its path within the network.

    A text is the name itself.

    Example:
        >>> class Linear:
        ...     block_path = "layers.0"
        >>> where(Linear())
        "Linear at 'layers.0'"
    """
    if isinstance(layer, str):
        return layer
    name = getattr(layer, "kind", type(layer).__name__)
    path = getattr(layer, "block_path", "")
    if not path:
        return name
    return f"{name} at {path!r}"


def shape_error(where: str, wanted: str, *arrays: Any) -> ShapeError:
    """Return the error of a layer or function whose inputs have other shapes than wanted."""
    shapes = " and ".join(str(tuple(x.shape)) for x in arrays)
    got = "an input of shape" if len(arrays) == 1 else "inputs of shapes"
    return ShapeError(f"{where}: got {got} {shapes}, wanted {wanted}")


def one_of(value: Any, known: Sequence[Any], name: str) -> None:
    """Check that a setting has one of the values that are known.

    Args:
        name: That of the function or layer and of the setting: ``"gelu: approximate"``.
    """
    if value not in known:
        *others, last = map(repr, known)
        raise SettingError(f"{name}={value!r}; wanted {', '.join(others)} or {last}")


def channels(layer: Any, x: Any, wanted: int, n: int | None = None) -> None:
    """Check that an input ``(batch, channels, *size)`` has the wanted number of channels.

    With `n` it also has `n` spatial axes.
    """
    floating(layer, x)
    shape = tuple(x.shape)
    has_right_axes = len(shape) >= 2 if n is None else len(shape) == n + 2
    if not has_right_axes or shape[1] != wanted:
        advice = _advice_on_channels(shape, wanted, n)
        axes = f"(batch, {wanted}, {_axes(n)}){advice}"
        raise shape_error(where(layer), axes, x)


def _advice_on_channels(shape: Shape, wanted: int, n: int | None) -> str:
    """Return what to do about an input of pictures, where the shape shows what is wrong."""
    if len(shape) > 2 and shape[-1] == wanted != shape[1]:
        return ": its channels come last, np.moveaxis(images, -1, 1) puts them before the size"
    if n is not None and len(shape) == n + 1:
        axes = "np.newaxis, :" if shape[0] == wanted else ":, np.newaxis"
        return f": an axis is lacking, images[{axes}] adds it"
    return ""


def floating(layer: Any, x: Any) -> None:
    """Check that an input has a floating type.

    Frameworks differ in what they do with whole numbers, if they accept them at all.
    """
    if not is_floating(x):
        raise DtypeError(
            f"{where(layer)}: got an input of {type_name(x)}, wanted floating "
            "numbers: convert it, such as by images.astype('float32') / 255"
        )


def is_floating(x: Any) -> bool:
    """Return whether an array has a floating type."""
    kind = _kind(x)
    return kind == "f" or (kind == "V" and "float" in str(x.dtype))


def is_whole(x: Any) -> bool:
    """Return whether an array has an integer type."""
    kind = _kind(x)
    return kind in ("i", "u") or (kind == "V" and "int" in str(x.dtype))


def _kind(x: Any) -> str:
    """Return NumPy's letter for the kind of a type, ``"V"`` where only the type's name tells.

    NumPy takes 3 µs for a name, and a step asks several times.
    """
    return getattr(x.dtype, "kind", "V")


def type_name(x: Any) -> str:
    """Return the name of an array's type without its framework: ``"float32"``."""
    return str(x.dtype).rpartition(".")[2]


def spatial_axes(layer: Any, x: Any, n: int) -> None:
    """Check that an input ``(batch, channels, *size)`` has `n` spatial axes."""
    if x.ndim != n + 2:
        raise shape_error(where(layer), f"(batch, channels, {_axes(n)})", x)


def _axes(n: int | None) -> str:
    names = {None: "...", 1: "length", 2: "height, width", 3: "depth, height, width"}
    return names[n]


def last_axes(layer: Any, x: Any, wanted: Shape) -> None:
    """Check that the last axes of an input have the sizes `wanted`."""
    floating(layer, x)
    shape = tuple(x.shape)
    first = len(shape) - len(wanted)
    if first < 0 or shape[first:] != tuple(wanted):
        axes = ", ".join(map(str, wanted))
        advice = ""
        if len(shape) > 2 and math.prod(shape[1:]) == math.prod(wanted):
            advice = ": x.reshape(len(x), -1) makes one row of each sample"
        elif len(shape) > 1 and len(wanted) == 1:
            advice = f": make the layer for {shape[-1]} instead of {axes}, or give inputs of {axes}"
        raise shape_error(where(layer), f"(..., {axes}){advice}", x)


def window_fits(layer: Any, x: Any, size: Shape) -> None:
    """Check that a convolution's output is at least one element long along each axis."""
    if min(size) < 1:
        raise ShapeError(
            f"{where(layer)}: an input of shape {tuple(x.shape)} is too small, the output would "
            f"have size {size}"
        )


def several_values(layer: Any, x: Any, count: int | None = None) -> None:
    """Check that there is more than one value for each channel.

    The variance of a single value is undefined. `count` is given where replicas share the
    statistics.
    """
    if count is None:
        count = math.prod([x.shape[0], *x.shape[2:]])
    if count <= 1:
        raise ShapeError(
            f"{where(layer)}: batch statistics need more than one value per channel, got shape "
            f"{tuple(x.shape)}: use a larger batch, or evaluation mode. In "
            "training, drop_last=True leaves out a smaller last batch"
        )


def positive(value: Any, name: str, what: str) -> int:
    """Return a whole number that is at least one, or raise an error."""
    return whole_number(f"{what}: {name}", value, 1)


def divides(value: int, divisor: int, name: str, by: str) -> None:
    """Check that `divisor` divides `value`."""
    if divisor < 1 or value % divisor:
        raise SettingError(f"{name}={value} cannot be divided by {by}={divisor}")


def index_range(
    values: np.ndarray, size: int, what: str, ignore: int | None = None
) -> None:
    """Check that values lie between 0 and ``size - 1``, or are equal to `ignore`."""
    if values.size == 0 or (values.min() >= 0 and values.max() < size):
        return
    bad = (values < 0) | (values >= size)
    if ignore is not None:
        bad &= values != ignore
    if bad.any():
        value = values[bad].flat[0]
        also = "" if ignore is None else f" (or {ignore}, which is ignored)"
        raise IndexRangeError(
            f"{what}: {value} is out of range, wanted whole numbers from 0 to {size - 1}{also}"
        )


@dataclass(frozen=True)
class InRange:
    """`index_range` as a check that `Primitives.checked` makes, possibly later.

    Attributes:
        warns: Whether to warn when all values are ignored.
    """

    size: int
    what: str
    ignore: int | None = None
    warns: bool = False

    def __call__(self, values: np.ndarray) -> None:
        """Raise an error, or warn, if the values do not pass."""
        index_range(values, self.size, self.what, self.ignore)
        first = values.flat[:1]  # mostly tells, in less time than all
        if (
            self.warns
            and (first == self.ignore).all()
            and (values == self.ignore).all()
        ):
            name = self.what.partition(":")[0]
            warn(f"{name}: every label is ignored, the loss is 0")


@dataclass(frozen=True)
class Between:
    """A check that no number is below `low` or above `high`; NaN passes.

    Attributes:
        what: The name of the function and the array, and what is wanted.
    """

    low: float
    high: float
    what: str

    def __call__(self, values: np.ndarray) -> None:
        """Raise an error if the values do not pass."""
        if values.size and (values.min() < self.low or values.max() > self.high):
            raise BatchError(
                f"{self.what}, got numbers from {values.min():.4g} to {values.max():.4g}"
            )


def whole_numbers(x: Any, what: str) -> None:
    """Check that an array has an integer type."""
    if not is_whole(x):
        raise SettingError(
            f"{what}: got an array of {type_name(x)}, wanted whole numbers (int64): convert it "
            "before the call, such as by .astype('int64')"
        )


def scalar(x: Any, what: str) -> None:
    """Check that an array has no axes."""
    if tuple(x.shape):
        raise ShapeError(
            f"{what} has shape {tuple(x.shape)}, wanted a scalar: take its sum or mean"
        )
