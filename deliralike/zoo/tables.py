"""Tables over positions, resampled on the host when a network has another number of positions."""

import math

import numpy as np

# what a network says of images of another size
RESAMPLED = ": build it with another image_size, its position table is resampled on loading"

_A = -0.75  # the free coefficient of the cubic kernel, as in PyTorch and OpenCV


def resampled(table: np.ndarray, side: int, align_corners: bool) -> np.ndarray:
    """Resample a square grid ``(old, old, ...)`` at ``side x side`` points.

    The interpolation is cubic, that of PyTorch's bicubic mode.

    Args:
        table: The array, whose first two axes are the grid.
        side: The new number of points along each of them.
        align_corners: Whether the corners' points stay in place; otherwise the cells' edges do.

    Example:
        >>> float(resampled(np.array([[0.0, 1.0], [2.0, 3.0]]), 3, align_corners=True)[1, 1])
        1.5
    """
    matrix = _cubic(len(table), side, align_corners)
    exact = np.einsum("ai,bj,ij...->ab...", matrix, matrix, table.astype(np.float64))
    return exact.astype(table.dtype)


def resampled_rows(
    rows: np.ndarray, count: int, align_corners: bool, first: int = 0
) -> np.ndarray | None:
    """Resample rows over a square grid, with so many rows before them that stay as they are.

    Returns:
        So many rows as `count`; None when either number leaves no square grid.
    """
    old = square_side(len(rows) - first)
    new = square_side(count - first)
    if old is None or new is None:
        return None
    grid = resampled(rows[first:].reshape(old, old, -1), new, align_corners)
    return np.concatenate([rows[:first], grid.reshape(new * new, -1)])


def cut(table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the first rows of a table that has more of them; None when it has not."""
    if table.shape[1:] != shape[1:] or len(table) <= shape[0]:
        return None
    return table[: shape[0]]


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


def _cubic(old: int, new: int, align_corners: bool) -> np.ndarray:
    """Return the matrix that resamples one axis.

    Each new point has four neighbours; the last element is repeated at the ends.
    """
    if align_corners:
        step = (old - 1) / (new - 1) if new > 1 else 0.0
        points = np.arange(new) * step
    else:
        points = (np.arange(new) + 0.5) * (old / new) - 0.5
    below = np.floor(points).astype(int)
    matrix = np.zeros((new, old))
    for offset in (-1, 0, 1, 2):
        neighbour = np.clip(below + offset, 0, old - 1)
        weight = _kernel(np.abs(points - (below + offset)))
        np.add.at(matrix, (np.arange(new), neighbour), weight)
    return matrix


def _kernel(distance: np.ndarray) -> np.ndarray:
    """Evaluate Keys' cubic convolution kernel at distances from 0 to 2.

    Source: Keys 1981, doi 10.1109/TASSP.1981.1163711.
    """
    near = ((_A + 2) * distance - (_A + 3)) * distance**2 + 1
    far = _A * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)
