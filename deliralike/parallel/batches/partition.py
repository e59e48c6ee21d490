"""The only rule of how many samples each device gets."""

import operator
from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError, whole_number


def partition(size: int, parts: int) -> tuple[int, ...]:
    """Return the sizes of contiguous shares of `size` samples.

    Larger shares come first, and any two differ by at most one sample. No share is empty, so there
    are fewer than `parts` where there are fewer samples. No samples make one share.

    Raises:
        SettingError: The number of samples is negative or no whole number, or there are no parts.

    Example:
        >>> partition(7, 3), partition(2, 4), partition(0, 2)
        ((3, 2, 2), (1, 1), (0,))
    """
    size = whole_number("partition: size", size, 0)
    parts = whole_number("partition: parts", parts, 1)
    count = max(1, min(parts, size))
    share, larger = divmod(size, count)
    return (share + 1,) * larger + (share,) * (count - larger)


def sample_weights(sizes: Sequence[int]) -> list[float]:
    """Return the weight of each share in a mean over samples; equal ones without any sample."""
    samples = sum(sizes)
    if not samples:
        return [1 / len(sizes)] * len(sizes)
    return [size / samples for size in sizes]


def mean_by_samples(values: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return the mean of arrays of any framework, each weighted by the samples of its share.

    Example:
        >>> mean_by_samples([1.0, 4.0], sizes=[2, 1])
        2.0
    """
    mean: Any = None
    for value, weight in zip(values, sample_weights(sizes), strict=True):
        term = value * weight
        mean = term if mean is None else mean + term
    return mean


def whole(name: str, value: int) -> int:
    """Return a whole number as Python's.

    Raises:
        SettingError: It is something else.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise SettingError(
            f"{name}={value!r} is a {type(value).__name__}, wanted a whole number"
        ) from None
