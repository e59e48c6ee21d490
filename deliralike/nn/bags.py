"""Sums, means and maxima over bags of rows of a table."""

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.norms import Norms
from deliralike.nn.primitives import Array
from deliralike.nn.shaping import Shaping


class Bags(Norms, Shaping):
    """Functions over bags of several lengths."""

    def embedding_bag(
        self,
        index: Array,
        weight: Array,
        offsets: Array | None = None,
        max_norm: float | None = None,
        norm_type: float = 2,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        per_sample_weights: Array | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Array:
        """Sums, means or maxima of the rows of each bag; an empty bag gives zeros.

        Args:
            index: Bags of one length, or the rows of all bags one after another.
            weight: The table.
            offsets: Where each bag begins in a flat `index`.
            max_norm, norm_type, scale_grad_by_freq, sparse: Must be at their defaults.
            mode: ``"mean"``, ``"sum"`` or ``"max"``.
            per_sample_weights: A factor for each row, in the shape of `index`; for sums.
            include_last_offset: Whether the last offset is the end of the last bag.
            padding_idx: A row that does not count.

        Shapes:
            ``(bags, length)``, or ``(rows,)`` with offsets ``(bags,)``, and a table
            ``(rows of the table, width)`` give ``(bags, width)``.
        """
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise SettingError(
                "embedding_bag: max_norm, scale_grad_by_freq and sparse are not supported: leave "
                "them at their defaults"
            )
        if per_sample_weights is not None and mode != "sum":
            raise SettingError(
                f"embedding_bag: per_sample_weights needs mode='sum', not {mode!r}"
            )
        checks.one_of(mode, ("mean", "sum", "max"), "embedding_bag: mode")
        bags, count = self._bag_numbers(index, offsets, include_last_offset)
        flat = self.reshape(index, (-1,))
        rows = self.embedding(flat, weight)
        if padding_idx is not None:
            padding = padding_idx % weight.shape[0]
            bags = self.where(flat == padding, count, bags)
        # of no rows there is no largest: the sums below are zeros
        if mode == "max" and flat.shape[0]:
            return self._largest_of_bags(rows, bags, count)
        if per_sample_weights is not None:
            rows = rows * self.reshape(per_sample_weights, (-1, 1))
        return self._sums_of_bags(rows, bags, count, mode == "mean")

    def _bag_numbers(
        self, index: Array, offsets: Array | None, has_last: bool
    ) -> tuple[Array, int]:
        """Return in which bag each row is, and how many there are; that is the number of none."""
        if offsets is None:
            if index.ndim != 2:
                raise ShapeError(
                    f"embedding_bag: index has shape {tuple(index.shape)}; without offsets, wanted "
                    "(bags, length)"
                )
            count, length = index.shape
            return self.constant(np.arange(count).repeat(length), like=index), count
        if index.ndim != 1 or offsets.ndim != 1:
            raise ShapeError(
                f"embedding_bag: index has shape {tuple(index.shape)} and offsets "
                f"{tuple(offsets.shape)}; wanted (rows,) and (bags,)"
            )
        checks.whole_numbers(offsets, "embedding_bag: offsets")
        count = offsets.shape[0] - has_last
        places = self.constant(np.arange(index.shape[0]), like=index)
        begun = self.expand_dims(places, 0) >= self.expand_dims(offsets, 1)
        bags = self.count_nonzero(begun, 0) - 1
        return self.where(bags < 0, count, bags), count

    @in_float32
    def _sums_of_bags(
        self, rows: Array, bags: Array, count: int, are_means: bool
    ) -> Array:
        """Return the sums, or means, over the rows of each bag: (count, width)."""
        places = self.broadcast_to(self.expand_dims(bags, 1), rows.shape)
        zeros = self.zeros((count + 1, rows.shape[1]), like=rows)
        sums = self.scatter_add(zeros, 0, places, rows)
        if are_means:
            ones = self._ones(rows.shape, rows)
            counts = self.scatter_add(zeros, 0, places, ones)
            sums = sums / self.where(counts > 1, counts, 1.0)
        return sums[:count]

    def _largest_of_bags(self, rows: Array, bags: Array, count: int) -> Array:
        """Return the maxima over the rows of each bag: (count, width)."""
        numbers = self.constant(np.arange(count)[:, None], like=bags)
        members = self.expand_dims(bags, 0) == numbers
        inside = self.expand_dims(members, -1)
        choices = self.where(inside, self.expand_dims(rows, 0), -np.inf)
        largest = self.max_along(choices, 1)
        is_empty = self.expand_dims(~self.any(members, 1), -1)
        return self.where(is_empty, 0.0, largest)
