"""A sum over processes that is in flight while the program goes on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from deliralike.errors import ProcessError
from deliralike.parallel.processes.messages import cut

# The types hold all whole numbers up to these exactly.
_LARGEST_MARK = 65_521
_LARGEST_SHORT_MARK = 251


class AsyncAllReduce:
    """Arrays of one type that are being added over all processes.

    The message carries a number computed from the topic. It reveals processes that send layers of
    equal shape in different orders, whose sums would be mixed up.

    Attributes:
        topic: What is added, such as the name of a layer.
    """

    def __init__(
        self,
        topic: str,
        arrays: Sequence[np.ndarray],
        count: int,
        begin: Callable[[np.ndarray], Callable],
        *,
        flat: np.ndarray | None = None,
        is_short: bool = False,
    ) -> None:
        """Begin to add arrays over `count` processes.

        Args:
            begin: Begins to add an array ``(n,)``, and returns a function that waits for the sum.
            flat: The storage in which the sums may be computed: the array ``(n + 1,)`` that the
                arrays are views of, one after another, with one number more at the end; new storage
                when None.
            is_short: Whether they are sent as bfloat16.
        """
        self.topic = topic
        self._shapes = [array.shape for array in arrays]
        dtype = arrays[0].dtype
        modulus = (
            _LARGEST_SHORT_MARK if is_short or dtype.itemsize < 4 else _LARGEST_MARK
        )
        mark = zlib.crc32(topic.encode()) % modulus
        self._expected_mark = float(mark) * count
        self._tolerance = self._expected_mark * count * _rounding(dtype, is_short)
        if flat is None:
            flat = np.concatenate([*map(np.ravel, arrays), np.zeros(1, dtype)])
        flat[-1] = mark
        self._finish = begin(flat)

    def wait(self) -> list[np.ndarray]:
        """Wait until all processes have sent their arrays, and return the sums.

        Raises:
            ProcessError: Another process has sent something else.
        """
        flat = self._finish()
        if abs(complex(flat[-1]) - self._expected_mark) > self._tolerance:
            raise ProcessError(
                f"{self.topic}: another process has sent something else at this point: every "
                "process must use the same layers in the same order"
            )
        return cut(flat, self._shapes)


def _rounding(dtype: np.dtype, is_short: bool) -> float:
    """Return the relative rounding error of one addition."""
    if is_short:
        return 2.0**-7
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0
