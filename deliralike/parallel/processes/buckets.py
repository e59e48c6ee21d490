"""Gradients on their way to all processes, those of several parameters in one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.parallel.processes.async_all_reduce import AsyncAllReduce
from deliralike.parallel.processes.group import ProcessGroup


@dataclass(frozen=True)
class Described:
    """The shape of a parameter's gradient, and the type in which it is sent."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """What it takes."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


def bucketed(parameters: dict[str, Described], limit: int) -> list[list[str]]:
    """Return the names of parameters in groups of one type.

    The last parameter comes first, as backward comes to them.

    A group takes at most `limit` bytes, unless it is one parameter that takes more.

    Example:
        >>> sizes = {"stem": (100,), "body": (3000,), "head.weight": (50,), "head.bias": (5,)}
        >>> bucketed({name: Described(shape, "float32") for name, shape in sizes.items()}, 1000)
        [['head.bias', 'head.weight'], ['body'], ['stem']]
    """
    groups: list[list[str]] = []
    filling: dict[
        str, tuple[list[str], int]
    ] = {}  # for each type, the group that is filled and its bytes
    for name, parameter in reversed(list(parameters.items())):
        group, filled = filling.get(parameter.dtype, ([], limit))
        if filled + parameter.bytes > limit:
            groups.append(group := [])
            filled = 0
        group.append(name)
        filling[parameter.dtype] = group, filled + parameter.bytes
    return groups


class Bucket:
    """A bucket holds parameters whose gradients are averaged together.

    Its storage is used again in every step.

    Attributes:
        names: Theirs.
        missing: Those whose gradient has not come in this round.
        is_under_way: Whether their sum was begun and not waited for.
    """

    def __init__(self, parameters: Mapping[str, Described]) -> None:
        """A bucket for parameters of one type."""
        self.names = tuple(parameters)
        self.missing = set(self.names)
        shapes = [each.shape for each in parameters.values()]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        dtype = next(iter(parameters.values())).dtype
        # the gradients, in how many processes there is each of them, and room for the mark of the
        # message
        self._flat = np.zeros(int(ends[-1]) + len(shapes) + 1, dtype)
        parts = np.split(self._flat[:-1], ends)
        self._parts = [part.reshape(shape) for part, shape in zip(parts[:-1], shapes, strict=True)]
        self._counts = parts[-1]
        self._topic = f"the gradients of {', '.join(self.names)}"
        self._sum: AsyncAllReduce | None = None

    @property
    def is_under_way(self) -> bool:
        """See the class."""
        return self._sum is not None

    def begin(
        self, processes: ProcessGroup, gradient: Callable[[str], np.ndarray | None], **how: Any
    ) -> None:
        """Begin with the averages over all processes; a gradient that is not there counts as zero.

        Args:
            how: See `ProcessGroup.begin_all_reduce`.
        """
        for place, (name, part) in enumerate(zip(self.names, self._parts, strict=True)):
            own = gradient(name)
            self._counts[place] = own is not None
            if own is None:
                part[...] = 0
            else:
                np.multiply(own, 1.0 / processes.count, out=part)
        self._sum = processes.begin_all_reduce(
            self._topic, [*self._parts, self._counts], self._flat, **how
        )

    def wait(self) -> dict[str, np.ndarray | None]:
        """Return the averages; None where no process has a gradient.

        They lie in storage of the bucket's own until it begins again.
        """
        sums, self._sum = self._sum, None
        assert sums is not None  # waited for once
        self.missing = set(self.names)
        *averages, counts = sums.wait()
        return {
            name: average if count else None
            for name, average, count in zip(self.names, averages, counts, strict=True)
        }


def finish_all(buckets: list[Bucket]) -> None:
    """Wait for what is under way, as before the end of the program; nothing is done with it."""
    for bucket in buckets:
        if bucket.is_under_way:
            bucket.wait()


def described(array: Any) -> Described:
    """Describe the gradients of an array of any framework.

    bfloat16, which engines do not add, is sent as float32.
    """
    dtype = str(array.dtype)
    return Described(tuple(array.shape), "float32" if dtype == "bfloat16" else dtype)
