"""The only rule of how many samples each device gets."""

import operator

from deliralike.errors import SettingError


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
    size = _whole("size", size, 0)
    parts = _whole("parts", parts, 1)
    count = max(1, min(parts, size))
    share, larger = divmod(size, count)
    return (share + 1,) * larger + (share,) * (count - larger)


def _whole(name: str, value: int, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise SettingError(
            f"partition: {name}={value!r} is a {type(value).__name__}, wanted a whole number"
        ) from None
    if number < least:
        raise SettingError(f"partition: {name}={value!r} is less than {least}")
    return number
