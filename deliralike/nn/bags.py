"""Sums, means and maxima over bags of rows of a table."""

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
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
        members = self._bag_members(index, offsets, include_last_offset)
        flat = self.reshape(index, (-1,))
        rows = self.embedding(flat, weight)
        if padding_idx is not None:
            padding = padding_idx % weight.shape[0]
            members = members & self.expand_dims(flat != padding, 0)
        # of no rows there is no largest: the sums below are zeros
        if mode == "max" and flat.shape[0]:
            return self._largest_of_bags(rows, members)
        if per_sample_weights is not None:
            rows = rows * self.reshape(per_sample_weights, (-1, 1))
        counted = self.cast(members, rows)
        sums = self.matmul(counted, rows)
        if mode == "sum":
            return sums
        counts = self.sum(counted, 1, keepdim=True)
        return sums / self.where(counts > 1, counts, 1.0)

    def _bag_members(
        self, index: Array, offsets: Array | None, has_last: bool
    ) -> Array:
        """Return which rows are in which bag: (bags, rows)."""
        if offsets is None:
            if index.ndim != 2:
                raise ShapeError(
                    f"embedding_bag: index has shape {tuple(index.shape)}; without offsets, wanted "
                    "(bags, length)"
                )
            bags, length = index.shape
            same = np.eye(bags, dtype=bool).repeat(length, 1)
            return self.constant(same, like=index)
        if index.ndim != 1 or offsets.ndim != 1:
            raise ShapeError(
                f"embedding_bag: index has shape {tuple(index.shape)} and offsets "
                f"{tuple(offsets.shape)}; wanted (rows,) and (bags,)"
            )
        checks.whole_numbers(offsets, "embedding_bag: offsets")
        places = self.constant(np.arange(index.shape[0]), like=index)
        begun = self.expand_dims(places, 0) >= self.expand_dims(offsets, 1)
        ended = begun[1:]
        if has_last:
            return begun[:-1] & ~ended
        never = self.constant(np.zeros((1, index.shape[0]), bool), like=index)
        return begun & ~self.concatenate([ended, never], 0)

    def _largest_of_bags(self, rows: Array, members: Array) -> Array:
        """Return the maxima over the rows of each bag: (bags, width)."""
        inside = self.expand_dims(members, -1)
        choices = self.where(inside, self.expand_dims(rows, 0), -np.inf)
        largest = self.max_along(choices, 1)
        is_empty = self.expand_dims(~self.any(members, 1), -1)
        return self.where(is_empty, 0.0, largest)
