"""Samplers: the order of a source's samples in an epoch, and how often each comes.

A sampler is any function of the number of samples, the seed and the epoch that returns indices. The
same arguments must give the same indices.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import batching
from deliralike.data.keyed_rng import uniform
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


class WeightedSampler:
    """Samples drawn with probabilities that are proportional to `weights`.

    Args:
        weights: One number for each sample, zero or above; a sample of weight zero is never drawn.
        samples: The number of draws in an epoch; the number of weights if not given.

    Raises:
        SettingError: A weight is below zero or no number, or all are zero.

    Example:
        >>> sorted(set(WeightedSampler([0, 1, 2], samples=100)(3, seed=0, epoch=0).tolist()))
        [1, 2]
    """

    def __init__(
        self,
        weights: Sequence[float] | np.ndarray,
        samples: int | None = None,
    ):
        self.weights = _checked_weights(weights)
        self.samples = len(self.weights)
        if samples is not None:
            self.samples = whole_number("samples", samples, 1)

    def __call__(self, samples: int, seed: int, epoch: int) -> np.ndarray:
        """Return the indices of an epoch."""
        if len(self.weights) != samples:
            raise SettingError(
                f"the sampler has {len(self.weights)} weights, and the source has {samples} "
                "samples: one for each is needed"
            )
        sums = np.cumsum(self.weights)
        points = sums[-1] * uniform(seed, "data/weighted", epoch, self.samples)
        indices = np.searchsorted(sums, points, side="right")
        last = np.flatnonzero(self.weights)[-1]
        return np.minimum(indices, last)  # a product may round up to the last sum


def drawn(sampler: Sampler, samples: int, *, seed: int, epoch: int) -> np.ndarray:
    """Return the checked indices that a sampler gives for an epoch.

    Raises:
        SettingError: The sampler gives no index, an index that is no whole number, or one that lies
            outside of the source.
    """
    if isinstance(sampler, SequentialSampler | ShuffledSampler):
        return sampler(samples, seed, epoch)
    indices = np.asarray(sampler(samples, seed, epoch))
    if indices.ndim != 1 or indices.size == 0 or indices.dtype.kind not in "iu":
        raise SettingError(
            "a sampler must give a row of whole numbers, the indices of an epoch; "
            f"{_name(sampler)} gave {nest.described(indices)} and type {indices.dtype}"
        )
    if indices.min() < 0 or indices.max() >= samples:
        outside = indices[(indices < 0) | (indices >= samples)][0]
        raise SettingError(
            f"{_name(sampler)} gave the index {outside}, and the source has the samples 0 to "
            f"{samples - 1}"
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


def _checked_weights(weights: Any) -> np.ndarray:
    array = np.asarray(weights)
    are_numbers = array.dtype.kind in "biuf" and bool(np.isfinite(array).all())
    if not are_numbers or array.ndim != 1 or (array < 0).any() or not (array > 0).any():
        raise SettingError(
            "weights must be a row of numbers from zero up, at least one of them above zero, not "
            + np.array2string(array, threshold=8, separator=", ")
        )
    return array.astype(np.float64)


def _name(sampler: Sampler) -> str:
    return getattr(sampler, "__name__", type(sampler).__name__)
