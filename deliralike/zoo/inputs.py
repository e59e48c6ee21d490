"""What goes into a network: the shape and the kind of each input, for one sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """One input of a network, for one sample.

    Attributes:
        shape: Without the batch: ``(channels, *size)`` for images.
        below: For whole numbers (tokens, time steps): they lie from 0 to ``below - 1``. None for
            floating numbers.
    """

    shape: Shape
    below: int | None = None

    @classmethod
    def like(cls, batch: np.ndarray) -> Input:
        """Return the input whose samples have the shape and the kind of those of a batch."""
        is_whole = batch.dtype.kind in "iu"
        return cls(batch.shape[1:], int(batch.max()) + 1 if is_whole else None)

    def draw(
        self, generator: np.random.Generator, batch: int, dtype: str = "float32"
    ) -> np.ndarray:
        """Draw a batch of standard normal numbers, or of whole ones in the range (int64)."""
        shape = (batch, *self.shape)
        if self.below is not None:
            return generator.integers(0, self.below, shape)
        return generator.standard_normal(shape).astype(dtype)


Inputs = Shape | Input | Sequence[Shape | Input]


def is_shape(value: Any) -> bool:
    """Return whether a value is one shape, which is a leaf in a nest of shapes.

    Example:
        >>> is_shape((3, 32, 32)), is_shape(((3,), (4,)))
        (True, False)
    """
    return isinstance(value, tuple) and all(isinstance(size, int) for size in value)


def inputs(stated: Inputs) -> tuple[Input, ...]:
    """Return one shape, one input, or several of either, as inputs.

    Example:
        >>> inputs((3, 32, 32))
        (Input(shape=(3, 32, 32), below=None),)
    """
    if isinstance(stated, Input):
        return (stated,)
    if all(isinstance(size, int | np.integer) for size in stated):
        return (Input(tuple(stated)),)  # type: ignore[arg-type]
    entries = []
    for entry in stated:
        if not isinstance(entry, Input):
            entry = Input(tuple(entry))  # type: ignore[arg-type]
        entries.append(entry)
    return tuple(entries)
