"""The interface of the weight files of a framework's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from deliralike.errors import CapabilityError


@dataclass(frozen=True)
class WeightFiles:
    """The weight files of a framework's own that its backend reads and writes.

    Attributes:
        name: What they are called, with an article.
        suffixes: The suffixes under which they are written; the first is the usual one.
        beginnings: The first bytes by which they are recognised.
        folder_marks: Names in a folder by which one that holds weights is recognised.
        order, channels_last: See `deliralike.weights.Contents`.
    """

    name: str
    suffixes: tuple[str, ...]
    beginnings: tuple[bytes, ...]
    folder_marks: tuple[str, ...] = ()
    order: str = "all"
    channels_last: bool = False


class Files:
    """The weight files of one framework; a backend without any inherits these methods.

    Attributes:
        name: What users call the backend.
    """

    name: ClassVar[str]

    def read_states(self, path: Path) -> dict[str, dict[str, np.ndarray]]:
        """Return every neutral state in a weight file of the framework's own.

        They come by the keys under which they lie, the most likely one first; the key is ``""`` for
        a state without any. No code from the file is run.

        Raises:
            WeightFileError: The file cannot be read safely, or holds something else.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no weight files of its own: use safetensors"
        )

    def write_weights(self, path: Path, state: Mapping[str, np.ndarray]) -> None:
        """Write a neutral state as a weight file of the framework's own."""
        raise CapabilityError(
            f"backend {self.name!r} has no weight files of its own: use safetensors"
        )
