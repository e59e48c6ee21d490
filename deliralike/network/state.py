"""The neutral state: how one parameter or buffer is read and written, and what loading reports."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import StateError

_COUNTER = (
    "num_batches_tracked"  # files from before PyTorch 0.4.1 lack it, as do the layers of flax's own
)


class Slot(ABC):
    """One parameter or buffer of a native network, seen through its neutral name and layout.

    Attributes:
        native: The framework's own object.
        is_parameter: False for a buffer.
        trainable: False for a buffer and for a frozen parameter; may be set on a parameter.
    """

    native: Any
    is_parameter: bool
    trainable: bool

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape in the neutral (PyTorch) layout."""

    @abstractmethod
    def read(self) -> np.ndarray:
        """The value, in the neutral layout, as an array that the caller owns."""

    @abstractmethod
    def write(self, value: np.ndarray) -> None:
        """Set the value from the neutral layout, cast to the slot's own type, on its own device."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """Return the native array itself, in the native layout.

        When set, another array's elements are taken over.
        """

    @value.setter
    @abstractmethod
    def value(self, array: Any) -> None: ...

    def in_native_layout(self, value: np.ndarray) -> np.ndarray:
        """An array in the neutral layout, on the host, as the native array is laid out."""
        return value

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class LoadReport:
    """What loading weights does, name by name.

    Attributes:
        loaded: Names that are taken over.
        missing: Names of the network that the weights lack.
        unexpected: Names of the weights that the network lacks.
        mismatched: Names with another shape: (name, shape that came, shape wanted).
    """

    loaded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether nothing is missing, unexpected or of the wrong shape.

        A norm's ``num_batches_tracked`` does not count.
        """
        norms = {
            name.removesuffix("running_mean")
            for name in self.loaded
            if name.endswith("running_mean")
        }
        unexpected = [name for name in self.unexpected if name.removesuffix(_COUNTER) not in norms]
        missing = [name for name in self.missing if not name.endswith(_COUNTER)]
        return not (missing or unexpected or self.mismatched)

    def __str__(self) -> str:
        """One sentence for each kind of name that there is."""
        wrong = [
            f"{name} has shape {came}, wanted {wanted}" for name, came, wanted in self.mismatched
        ]
        parts = [
            f"{len(self.loaded)} of {len(self.loaded) + len(self.missing) + len(wrong)} names "
            "loaded"
        ]
        parts += [f"missing: {_some(self.missing)}"] if self.missing else []
        parts += [f"unexpected: {_some(self.unexpected)}"] if self.unexpected else []
        parts += [f"wrong shape: {_some(wrong)}"] if wrong else []
        return "; ".join(parts)


def plan_load(slots: Mapping[str, Slot], state: Mapping[str, Any]) -> LoadReport:
    """Compare weights with a network's slots, without changing anything.

    A tied parameter is not missing when it comes under another of its names.
    """
    shapes = {name: tuple(np.shape(value)) for name, value in state.items()}
    given = {
        id(slot.native) for name, slot in slots.items() if slot.is_parameter and name in shapes
    }
    wrong = {name for name in slots if name in shapes and shapes[name] != slots[name].shape}
    return LoadReport(
        loaded=tuple(name for name in slots if name in shapes and name not in wrong),
        missing=tuple(
            name
            for name, slot in slots.items()
            if name not in shapes and id(slot.native) not in given
        ),
        unexpected=tuple(name for name in shapes if name not in slots),
        mismatched=tuple(
            (name, shapes[name], slots[name].shape) for name in slots if name in wrong
        ),
    )


def refuse_torn_ties(slots: Mapping[str, Slot], arrays: Mapping[str, np.ndarray]) -> None:
    """An error when one parameter comes under two of its names with different values."""
    first: dict[int, str] = {}
    for name in (name for name in arrays if slots[name].is_parameter):
        other = first.setdefault(id(slots[name].native), name)
        if other != name and not np.array_equal(arrays[other], arrays[name], equal_nan=True):
            raise StateError(
                f"{other!r} and {name!r} are one tied parameter of the network, but come with "
                "different values: leave one of the two out, or untie them"
            )


def host_array(name: str, value: Any, keep: tuple[str, ...] = ()) -> np.ndarray:
    """Return a value as an array of plain numbers in this machine's byte order.

    The array is in C order; there is no copy where the value is such an array already.

    Args:
        keep: Names of types beyond NumPy's own that are left as they are; bfloat16 otherwise
            becomes float32.

    Raises:
        StateError: The value is no array of numbers on the host.
    """
    try:
        array = np.asarray(value, order="C")
    except Exception as error:
        raise StateError(
            f"{name!r} is a {type(value).__name__} that is no array on the host: {error}"
        ) from error
    if array.dtype.name == "bfloat16":
        return array if "bfloat16" in keep else array.astype(np.float32)
    if array.dtype.kind not in "biufc":
        raise StateError(f"{name!r} has the type {array.dtype}, wanted an array of numbers")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _some(names: Any, limit: int = 8) -> str:
    shown = ", ".join(list(names)[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
