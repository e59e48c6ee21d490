"""The neutral state: slots, which read and write one parameter or buffer, and loading reports."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from deliralike.errors import StateError, listed

# Files from before PyTorch 0.4.1 lack this buffer, as do flax's own layers.
_COUNTER = "num_batches_tracked"
# What torch.optim.swa_utils.AveragedModel counts, beside the weights that it averages.
AVERAGES = "n_averaged"
_MOST_SHOWN = 8  # names


class Slot(ABC):
    """One parameter or buffer of a native network, seen through its neutral name and layout.

    Attributes:
        native: The framework's own object.
        is_parameter: False for a buffer.
        trainable: False for a buffer and for a frozen parameter; may be set on a parameter.
        is_resizable: Whether parameters have `resize`, by which proofs of optimizers are quick.
    """

    is_resizable: ClassVar[bool] = False
    native: Any
    is_parameter: bool
    trainable: bool

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape in the neutral (PyTorch) layout."""

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array of a shape may be written."""
        return shape == self.shape

    @abstractmethod
    def read(self) -> np.ndarray:
        """Return the value, in the neutral layout, as an array that the caller owns."""

    @abstractmethod
    def write(self, value: np.ndarray) -> None:
        """Set the value from the neutral layout, cast to the slot's own type, on its own device."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """The native array itself, in the native layout; setting it copies the elements."""

    @value.setter
    @abstractmethod
    def value(self, array: Any) -> None: ...

    def __repr__(self) -> str:
        """Return what it is, with its shape."""
        kind = "buffer"
        if self.is_parameter:
            kind = "parameter" if self.trainable else "frozen parameter"
        return f"{type(self).__name__}({kind}, shape={self.shape})"

    def resize(self, shape: tuple[int, ...]) -> None:
        """Let a parameter hold zeros of another shape, given in the neutral layout.

        Raises:
            StateError: It is no parameter, or no parameter can.
        """
        raise StateError(f"{self!r} keeps its shape, and does not take {shape}")

    def in_native_layout(self, value: np.ndarray) -> np.ndarray:
        """Return an array on the host, given in the neutral layout, in the native layout."""
        return value

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class LoadReport:
    """LoadReport says what became of each name when weights were loaded.

    Attributes:
        loaded: Names that are loaded.
        missing: Names of the network that the weights lack.
        unexpected: Names of the weights that the network lacks.
        mismatched: Names with another shape: (name, shape of the weights, shape of the network's).
    """

    loaded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether nothing is missing, unexpected or of the wrong shape.

        A norm's ``num_batches_tracked`` does not count, nor does an average's ``n_averaged``.
        """
        means = [name for name in self.loaded if name.endswith("running_mean")]
        norms = {name.removesuffix("running_mean") for name in means}
        allowed = {AVERAGES, *(f"{norm}{_COUNTER}" for norm in norms)}
        unexpected = set(self.unexpected) - allowed
        missing = [name for name in self.missing if not name.endswith(_COUNTER)]
        return not (missing or unexpected or self.mismatched)

    def __str__(self) -> str:
        """Return a sentence for each kind of name that is not empty."""
        loaded = len(self.loaded)
        total = loaded + len(self.missing) + len(self.mismatched)
        parts = [f"{loaded} of {total} names loaded"]
        if self.missing:
            parts.append(f"missing: {listed(self.missing, _MOST_SHOWN)}")
        if self.unexpected:
            parts.append(f"unexpected: {listed(self.unexpected, _MOST_SHOWN)}")
        if self.mismatched:
            wrong = []
            for name, given, wanted in self.mismatched:
                wrong.append(f"{name} has shape {given}, wanted {wanted}")
            parts.append(f"wrong shape: {listed(wrong, _MOST_SHOWN)}")
        return "; ".join(parts)


AnySlot = TypeVar("AnySlot", bound=Slot)


def first_names(slots: Mapping[str, Slot]) -> dict[int, str]:
    """Return the first name of each parameter, by the ``id`` of the native object.

    Tied parameters are one native object with several names. Buffers are left out.
    """
    names: dict[int, str] = {}
    for name, slot in slots.items():
        if slot.is_parameter:
            names.setdefault(id(slot.native), name)
    return names


def each_once(slots: Mapping[str, AnySlot]) -> dict[str, AnySlot]:
    """Return the slots with each tied parameter under its first name only; buffers all stay."""
    names = first_names(slots)
    unique = {}
    for name, slot in slots.items():
        if not slot.is_parameter or names[id(slot.native)] == name:
            unique[name] = slot
    return unique


def owned_slots(
    slots: Mapping[str, AnySlot], owns: Callable[[str], bool]
) -> dict[str, AnySlot]:
    """Return the parameters of which `owns` accepts some name, ties under each of their names."""
    owned = {
        id(slot.native)
        for name, slot in slots.items()
        if slot.is_parameter and owns(name)
    }
    return {name: slot for name, slot in slots.items() if id(slot.native) in owned}


def plan_load(slots: Mapping[str, Slot], state: Mapping[str, Any]) -> LoadReport:
    """Return what loading weights into a network's slots would do; nothing changes.

    A tied parameter is not missing when it comes under another of its names.
    """
    shapes = {name: tuple(np.shape(value)) for name, value in state.items()}
    given = first_names({name: slot for name, slot in slots.items() if name in shapes})
    loaded = []
    missing = []
    mismatched = []
    for name, slot in slots.items():
        if name not in shapes:
            if id(slot.native) not in given:
                missing.append(name)
        elif slot.fits(shapes[name]):
            loaded.append(name)
        else:
            mismatched.append((name, shapes[name], slot.shape))
    unexpected = [name for name in shapes if name not in slots]
    return LoadReport(
        tuple(loaded), tuple(missing), tuple(unexpected), tuple(mismatched)
    )


def refuse_torn_ties(
    slots: Mapping[str, Slot], arrays: Mapping[str, np.ndarray]
) -> None:
    """Refuse arrays that give one parameter different values under two of its names.

    Raises:
        StateError: Names both; the network has not been changed.
    """
    given = {name: slots[name] for name in arrays}
    names = first_names(given)
    for name, slot in given.items():
        other = names.get(id(slot.native), name)
        if other != name and not np.array_equal(
            arrays[other], arrays[name], equal_nan=True
        ):
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
        raise StateError(
            f"{name!r} has the type {array.dtype}, wanted an array of numbers"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)
