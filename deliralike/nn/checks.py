"""What layers and functions demand of their inputs, and the errors that say so."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import DtypeError, IndexRangeError, SettingError, ShapeError


def where(layer: Any) -> str:
    """How an error names a layer: its class, and its path within the network.

    Example:
        >>> class Linear:
        ...     block_path = "layers.0"
        >>> where(Linear())
        "Linear at 'layers.0'"
    """
    path = getattr(layer, "block_path", "")
    return f"{type(layer).__name__} at {path!r}" if path else type(layer).__name__


def channels(layer: Any, x: Any, wanted: int, n: int | None = None) -> None:
    """An input ``(batch, channels, *size)`` with the right number of channels and, if given, `n` spatial axes."""
    floating(layer, x)
    shape = tuple(x.shape)
    if (n is not None and len(shape) != n + 2) or len(shape) < 2 or shape[1] != wanted:
        raise ShapeError(
            f"{where(layer)}: got an input of shape {shape}, wanted (batch, {wanted}, {_axes(n)})"
        )


def floating(layer: Any, x: Any) -> None:
    """An input of a floating type: frameworks differ in what they do with whole numbers, if they take them."""
    if "float" not in str(x.dtype):
        raise DtypeError(
            f"{where(layer)}: got an input of {str(x.dtype).rpartition('.')[2]}, wanted floating "
            "numbers: convert it, such as by images.astype('float32') / 255"
        )


def spatial_axes(layer: Any, x: Any, n: int) -> None:
    """An input ``(batch, channels, *size)`` with `n` spatial axes and any number of channels."""
    if len(x.shape) != n + 2:
        raise ShapeError(
            f"{where(layer)}: got an input of shape {tuple(x.shape)}, wanted (batch, channels, "
            f"{_axes(n)})"
        )


def _axes(n: int | None) -> str:
    return (
        "..."
        if n is None
        else ", ".join(("length",) if n == 1 else ("depth", "height", "width")[3 - n :])
    )


def last_axes(layer: Any, x: Any, wanted: tuple[int, ...]) -> None:
    """An input whose last axes have the sizes `wanted`."""
    floating(layer, x)
    shape = tuple(x.shape)
    if shape[len(shape) - len(wanted) :] != tuple(wanted) or len(shape) < len(wanted):
        raise ShapeError(
            f"{where(layer)}: got an input of shape {shape}, wanted (..., "
            f"{', '.join(map(str, wanted))})"
        )


def window_fits(layer: Any, x: Any, size: tuple[int, ...]) -> None:
    """A convolution's output is at least one element long along each axis."""
    if min(size) < 1:
        raise ShapeError(
            f"{where(layer)}: an input of shape {tuple(x.shape)} is too small, the output would "
            f"have size {size}"
        )


def several_values(layer: Any, x: Any, count: int | None = None) -> None:
    """More than one value for each channel: the variance of one value is undefined.

    `count` is known if shared.
    """
    if count is None:
        count = math.prod(
            [size for axis, size in enumerate(x.shape) if axis != 1]
        )  # a list: dynamo traces it
    if count <= 1:
        raise ShapeError(
            f"{where(layer)}: batch statistics need more than one value per channel, got shape "
            f"{tuple(x.shape)}: use a larger batch, or evaluation mode"
        )


def positive(value: Any, name: str, what: str) -> Any:
    """A whole number of at least one."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise SettingError(f"{what}: {name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def divides(value: int, divisor: int, name: str, by: str) -> None:
    """`divisor` divides `value`."""
    if value % divisor:
        raise SettingError(f"{name}={value} cannot be divided by {by}={divisor}")


def index_range(values: np.ndarray, size: int, what: str, ignore: int | None = None) -> None:
    """Whole numbers from 0 to ``size - 1``, `ignore` aside."""
    if values.size == 0 or (values.min() >= 0 and values.max() < size):
        return
    bad = (values < 0) | (values >= size)
    if ignore is not None:
        bad &= values != ignore
    if bad.any():
        raise IndexRangeError(
            f"{what}: {values[bad].flat[0]} is out of range, wanted whole numbers from 0 to "
            f"{size - 1}" + ("" if ignore is None else f" (or {ignore}, which is ignored)")
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
        """Make it."""
        index_range(values, self.size, self.what, self.ignore)
        if self.warns and (values == self.ignore).all():
            name = self.what.partition(":")[0]
            warnings.warn(f"{name}: every label is ignored, the loss is 0", stacklevel=5)


def whole_numbers(x: Any, what: str) -> None:
    """An array of an integer type."""
    if "int" not in str(x.dtype):
        raise SettingError(
            f"{what}: got an array of {x.dtype}, wanted whole numbers (int64): convert it before "
            "the call"
        )


def scalar(x: Any, what: str) -> None:
    """An array without axes."""
    if tuple(x.shape):
        raise ShapeError(
            f"{what} has shape {tuple(x.shape)}, wanted a scalar: take its sum or mean"
        )
