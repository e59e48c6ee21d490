"""Buckets: the gradients of several parameters are averaged over processes in one message."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.parallel.processes.async_all_reduce import AsyncAllReduce
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.processes.messages import cut


@dataclass(frozen=True)
class GradientSpec:
    """The shape of a parameter's gradient, and the type in which it is sent."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """The number of bytes of the gradient."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def assign_buckets(parameters: dict[str, GradientSpec], limit: int) -> list[list[str]]:
    """Return the names of the parameters of each bucket, all of one type.

    Parameters are in reverse order, in which backward reaches them. A bucket takes at most `limit`
    bytes, unless it is one parameter that takes more.

    Example:
        >>> sizes = {"stem": (100,), "body": (3000,), "head.weight": (50,), "head.bias": (5,)}
        >>> specs = {name: GradientSpec(shape, "float32") for name, shape in sizes.items()}
        >>> assign_buckets(specs, 1000)
        [['head.bias', 'head.weight'], ['body'], ['stem']]
    """
    buckets: list[list[str]] = []
    dtype = ""  # of the latest bucket
    size = 0  # its bytes
    for name, parameter in reversed(list(parameters.items())):
        size += parameter.bytes
        if parameter.dtype != dtype or size > limit:
            buckets.append([])
            dtype = parameter.dtype
            size = parameter.bytes
        buckets[-1].append(name)
    return buckets


class Bucket:
    """Parameters whose gradients are averaged in one message, with storage that is used again.

    Attributes:
        names: The names of the parameters.
        missing: The names of those whose gradient is not complete in this round.
    """

    def __init__(self, parameters: Mapping[str, GradientSpec]) -> None:
        """Allocate a bucket for parameters of one type."""
        self.names = tuple(parameters)
        self.missing = set(self.names)
        specs = list(parameters.values())
        # The gradients, the number of processes that have each, and the mark of `AsyncAllReduce`.
        count = len(specs)
        size = sum(math.prod(spec.shape) for spec in specs) + count + 1
        self._flat = np.zeros(size, specs[0].dtype)
        shapes = [*(spec.shape for spec in specs), (count,)]
        *self._parts, self._counts = cut(self._flat, shapes)
        self._topic = f"the gradients of {', '.join(self.names)}"
        self._sum: AsyncAllReduce | None = None

    def begin(
        self,
        processes: ProcessGroup,
        gradient_of: Callable[[str], np.ndarray | None],
        **settings: Any,
    ) -> None:
        """Begin the averages over all processes; missing gradients count as zero.

        Args:
            gradient_of: Returns the gradient of a parameter, or None.
            settings: Arguments of `ProcessGroup.begin_all_reduce`.
        """
        for index, (name, part) in enumerate(zip(self.names, self._parts, strict=True)):
            gradient = gradient_of(name)
            self._counts[index] = gradient is not None
            if gradient is None:
                part[...] = 0
            else:
                np.multiply(gradient, 1.0 / processes.count, out=part)
        arrays = [*self._parts, self._counts]
        self._sum = processes.begin_all_reduce(
            self._topic, arrays, self._flat, **settings
        )

    def wait(self) -> dict[str, np.ndarray | None]:
        """Return the averages; None where no process has a gradient.

        They lie in storage of the bucket's own until it begins again.
        """
        pending = self._sum
        assert pending is not None  # waited for once
        self._sum = None
        self.missing = set(self.names)
        *averages, counts = pending.wait()
        results = {}
        for name, average, count in zip(self.names, averages, counts, strict=True):
            results[name] = average if count else None
        return results


def gradient_spec(array: Any) -> GradientSpec:
    """Return the spec of the gradients of an array of any framework.

    bfloat16, which engines do not add, is sent as float32.
    """
    dtype = str(array.dtype)
    return GradientSpec(tuple(array.shape), "float32" if dtype == "bfloat16" else dtype)
