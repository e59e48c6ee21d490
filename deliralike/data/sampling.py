"""Samplers: the order of a source's samples in an epoch, and how often each comes.

A sampler is any function of the number of samples, the seed and the epoch that returns indices. The
same arguments must give the same indices.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data import batching
from deliralike.errors import SettingError, whole_number
from deliralike.setting_types import TypedSettings

Sampler = Callable[..., Any]


@dataclass(frozen=True)
class SequentialSampler:
    """The source's own order, in every epoch.

    Example:
        >>> SequentialSampler()(3, seed=0, epoch=5).tolist()
        [0, 1, 2]
    """

    def __call__(self, samples: int, seed: int, epoch: int) -> np.ndarray:
        """Return the indices of an epoch."""
        return np.arange(samples)


@dataclass(frozen=True)
class ShuffledSampler:
    """Every sample once, in an order drawn anew for each epoch (see `deliralike.data.order`).

    Example:
        >>> ShuffledSampler()(6, seed=0, epoch=0).tolist()
        [5, 2, 1, 4, 3, 0]
    """

    def __call__(self, samples: int, seed: int, epoch: int) -> np.ndarray:
        """Return the indices of an epoch."""
        return batching.order(samples, seed, epoch)


@dataclass(frozen=True)
class RepeatedSampler(TypedSettings):
    """Every sample several times in an epoch, in an order drawn anew for each epoch.

    Random transforms draw other numbers each time: `CropByPosNegLabel` gives so many windows of
    each volume.

    Args:
        times: How often each sample comes.

    Example:
        >>> order = RepeatedSampler(times=2)(3, seed=0, epoch=0)
        >>> sorted(order.tolist())
        [0, 0, 1, 1, 2, 2]
    """

    times: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("times", self.times, 1)

    def __call__(self, samples: int, seed: int, epoch: int) -> np.ndarray:
        """Return the indices of an epoch."""
        order = batching.permutation(self.times * samples, seed, "data/repeated", epoch)
        return order % samples


def drawn(sampler: Sampler, samples: int, *, seed: int, epoch: int) -> np.ndarray:
    """Return the checked indices that a sampler gives for an epoch.

    Raises:
        SettingError: The sampler gives no index, an index that is no whole number, or one that lies
            outside of the source.
    """
    if isinstance(sampler, SequentialSampler | ShuffledSampler):
        return sampler(samples, seed, epoch)
    indices = np.asarray(sampler(samples, seed, epoch))
    is_row = indices.ndim == 1 and indices.size > 0 and indices.dtype.kind in "iu"
    if not is_row or indices.min() < 0 or indices.max() >= samples:
        raise SettingError(
            "a sampler must give a row of whole numbers, the indices of an epoch, of the samples 0 "
            f"to {samples - 1}; {getattr(sampler, '__name__', sampler)} gave {indices!r}"
        )
    return indices


def repeats(indices: np.ndarray) -> np.ndarray:
    """Return for each index the number of times that it came before.

    Example:
        >>> repeats(np.array([4, 2, 4, 4, 2])).tolist()
        [0, 0, 1, 2, 1]
    """
    counts: Counter[int] = Counter()
    before = []
    for index in indices.tolist():
        before.append(counts[index])
        counts[index] += 1
    return np.array(before)
