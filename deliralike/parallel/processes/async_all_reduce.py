"""A sum over processes that is under way while its process goes on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from deliralike.errors import ProcessError


class AsyncAllReduce:
    """Arrays of one type that are being added over all processes.

    A number that is made of the topic travels with them: so layers of equal shape that processes
    send in different orders are noticed, and not mixed up.

    Attributes:
        topic: What is added, such as the name of a layer.
    """

    def __init__(
        self,
        topic: str,
        arrays: Sequence[np.ndarray],
        count: int,
        begin: Callable[[np.ndarray], Callable],
        flat: np.ndarray | None = None,
        is_short: bool = False,
    ) -> None:
        """Begin to add arrays over `count` processes.

        Args:
            flat: Where the sums may be made: what the arrays are views of, one after another, with
                room for one number more at the end; new storage when None.
            is_short: Whether they are sent as bfloat16.
        """
        self.topic = topic
        self._shapes = [array.shape for array in arrays]
        dtype = arrays[0].dtype
        held = (
            251 if is_short or dtype.itemsize < 4 else 65_521
        )  # below it the type holds all numbers exactly
        mark = zlib.crc32(topic.encode()) % held
        self._wanted = float(mark) * count
        rounding = 2.0**-7 if is_short else float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
        self._slack = self._wanted * count * rounding
        if flat is None:
            flat = np.concatenate([*(np.ravel(array) for array in arrays), np.zeros(1, dtype)])
        flat[-1] = mark
        self._finish = begin(flat)

    def wait(self) -> list[np.ndarray]:
        """The sums, once all processes have sent theirs.

        Raises:
            ProcessError: Another process has sent something else.
        """
        flat = self._finish()
        if abs(float(flat[-1]) - self._wanted) > self._slack:
            raise ProcessError(
                f"{self.topic}: another process has sent something else at this point: every "
                "process must use the same layers in the same order"
            )
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        return [
            part.reshape(shape)
            for part, shape in zip(np.split(flat[:-1], ends[:-1]), self._shapes, strict=True)
        ]
