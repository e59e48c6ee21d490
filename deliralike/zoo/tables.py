"""Tables over positions, resampled on the host when a network has another number of positions."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from deliralike.nn import geometry

# what a network says of images of another size
RESAMPLED = (
    ": build it with another image_size, its position table is resampled on loading"
)


# Returns the matrix from so many points along an axis to so many others.
Matrix = Callable[[int, int], np.ndarray]
# cubic interpolations: the corners' points stay in place; the cells' edges do, PyTorch's bicubic
# mode; the edges do and smaller grids are smoothed, as timm has it
CORNERS: Matrix = partial(geometry.cubic_matrix, align_corners=True, scale=None)
EDGES: Matrix = partial(geometry.cubic_matrix, align_corners=False, scale=None)
SMOOTH: Matrix = partial(
    geometry.antialiased_matrix, cubic=True, align_corners=False, scale=None
)


def resampled(table: np.ndarray, side: int, matrix: Matrix) -> np.ndarray:
    """Resample a square grid ``(old, old, ...)`` at ``side x side`` points.

    Args:
        table: The array, whose first two axes are the grid.
        side: The new number of points along each of them.
        matrix: The interpolation.

    Example:
        >>> float(resampled(np.array([[0.0, 1.0], [2.0, 3.0]]), 3, CORNERS)[1, 1])
        1.5
    """
    along = matrix(len(table), side)
    exact = np.einsum("ai,bj,ij...->ab...", along, along, table.astype(np.float64))
    return exact.astype(table.dtype)


def resampled_rows(
    rows: np.ndarray, count: int, matrix: Matrix, first: int = 0
) -> np.ndarray | None:
    """Resample rows over a square grid, with so many rows before them that stay as they are.

    Returns:
        So many rows as `count`; None when either number leaves no square grid.
    """
    old = square_side(len(rows) - first)
    new = square_side(count - first)
    if old is None or new is None:
        return None
    grid = resampled(rows[first:].reshape(old, old, -1), new, matrix)
    return np.concatenate([rows[:first], grid.reshape(new * new, -1)])


def square_side(count: int) -> int | None:
    """Return the side of a square grid of so many points; None when there is no such square.

    Example:
        >>> square_side(196), square_side(197)
        (14, None)
    """
    side = math.isqrt(count)
    if count == 0 or side * side != count:
        return None
    return side
