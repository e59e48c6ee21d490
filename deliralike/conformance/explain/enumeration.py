"""What tables of conventions count through: divisors, orders, and numbers of few digits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from deliralike.conformance.kinds import Shape


def divisors(size: int) -> list[int]:
    """The numbers that divide one, the small ones first."""
    return [count for count in range(1, size + 1) if size % count == 0]


def other_orders(count: int, most: int = 5) -> Iterator[tuple[int, ...]]:
    """Every order of so many things but the usual one; none of more things than `most`.

    Example:
        >>> list(other_orders(2)), list(other_orders(6))
        ([(1, 0)], [])
    """
    orders = permutations(range(count if count <= most else 0))
    next(orders)
    return orders


def other_axes(shape: Shape, most: int = 5) -> Iterator[tuple[int, ...]]:
    """Every order of axes that moves an element: axes of length one may stand anywhere.

    Example:
        >>> list(other_axes((4, 1, 3)))
        [(1, 2, 0), (2, 0, 1), (2, 1, 0)]
    """
    for order in other_orders(len(shape), most):
        long = [axis for axis in order if shape[axis] > 1]
        if long != sorted(long):
            yield order


def short_decimals(value: float, digits: int) -> Iterator[float]:
    """A number with one digit, with two, and so on.

    Example:
        >>> list(short_decimals(0.1234, 3))
        [0.1, 0.12, 0.123]
    """
    for after_the_first in range(digits):
        yield float(f"{value:.{after_the_first}e}")
