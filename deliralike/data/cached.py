"""A dataset whose samples stay in memory once they were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deliralike import nest


@dataclass(frozen=True)
class Cached:
    """A dataset with the same samples, each of which is read once and then kept.

    Its arrays are read-only, so that a transform cannot change what the next epoch sees. Each
    worker process keeps what it reads itself.

    Args:
        dataset: Anything with a length and an item for each index.

    Example:
        >>> cached = Cached([np.zeros(2), np.ones(2)])
        >>> cached[1] is cached[1], len(cached)
        (True, 2)
    """

    dataset: Any
    _samples: dict[int, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if index not in self._samples:
            self._samples[index] = nest.map_where(
                _is_array, _read_only, self.dataset[index]
            )
        return self._samples[index]

    def __reduce__(self) -> Any:
        return type(self), (self.dataset,)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
