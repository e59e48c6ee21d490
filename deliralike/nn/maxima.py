"""Positions of maxima in windows, and their way back."""

import math
from collections.abc import Sequence

import numpy as np

from deliralike.nn import checks, geometry
from deliralike.nn.elementwise import Elementwise
from deliralike.nn.geometry import Sizes
from deliralike.nn.primitives import Array


class Maxima(Elementwise):
    """Functions of the positions that `max_pool` gives with ``return_indices=True``.

    A position counts the elements of one channel in row-major order.
    """

    def max_unpool(
        self,
        x: Array,
        indices: Array,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Array:
        """Put maxima back to where they came from; zeros elsewhere.

        Args:
            x: Maxima, as `max_pool` gives them.
            indices: Their positions in the output; one that comes several times has one value.
            kernel_size, stride, padding: Those of the pooling.
            output_size: The size of the pooling's input, as pooling rounds sizes down; with or
                without batch and channels. The smallest one that is possible when not given.

        Shapes:
            ``(batch, channels, *size)`` twice gives ``(batch, channels, *output_size)``.
        """
        n = x.ndim - 2
        settings = geometry.pool_settings(n, kernel_size, stride, padding, 1)
        size = geometry.unpool_size(tuple(x.shape[2:]), settings, output_size)
        checks.whole_numbers(indices, "max_unpool: indices")
        count = int(np.prod(size))
        self.checked(indices, checks.InRange(count, "max_unpool: indices"))
        flat = self.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
        places = self.reshape(indices, flat.shape)
        zeros = self.zeros((*x.shape[:2], count), like=x)
        ones = self.zeros(flat.shape, like=x) + 1.0
        sums = self.scatter_add(zeros, 2, places, flat)
        counts = self.scatter_add(zeros, 2, places, ones)
        # each maximum has a gradient of its own
        several = self.where(counts > 1, sums, 0.0)
        means = several / self.where(counts > 1, counts, 1.0)
        y = sums + self.stop_gradient(means - several)
        return self.reshape(y, (*x.shape[:2], *size))

    def _positions_of_maxima(self, x: Array, axes: Sequence[np.ndarray]) -> Array:
        """Return the position of the first maximum in each window.

        Args:
            x: ``(batch, channels, *size)``.
            axes: For each axis the positions below its windows, as `window_taps` gives them.

        Shapes:
            ``(batch, channels, *windows)``
        """
        table = geometry.window_table(x.shape[2:], axes)
        flat = self.reshape(
            self.stop_gradient(x), (*x.shape[:2], math.prod(x.shape[2:]))
        )
        # in the place of padding stands the first element, so that windows of -inf have it too
        first = np.take_along_axis(table, (table >= 0).argmax(1)[:, None], 1)
        inside = np.where(table < 0, first, table)
        # (batch, channels, *table)
        taps = self.select(flat, self.constant(inside, like=x), 2)
        best = self.argmax_along(taps, 3)
        positions = self.broadcast_to(self.constant(inside, like=x), taps.shape)
        found = self.select_along(positions, self.reshape(best, (*best.shape, 1)), 3)
        return self.reshape(found, (*x.shape[:2], *map(len, axes)))
