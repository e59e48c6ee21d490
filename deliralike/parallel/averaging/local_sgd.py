"""Local SGD: when processes average their parameters, with which others, and with what weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from deliralike.errors import SettingError, whole_number
from deliralike.network.state import each_once
from deliralike.network.wrapper import WrapperNetwork
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.processes.group import ProcessGroup, SingleProcess
from deliralike.parallel.replicas.network import NetworkHook

# The distance of the portable random streams of two neighbouring processes, in samples.
STREAM_DISTANCE = 1 << 20


@dataclass(frozen=True)
class LocalSGD:
    """After a warm-up each process updates on its own, and parameters are averaged periodically.

    During the warm-up the gradients of all processes are added, as without local SGD. After it only
    averages are sent. The weight of a process in an average is the number of samples that it has
    seen since the last one of that size, or the sum of the denominators that its losses have
    declared: so one update of SGD between averages equals that of the whole batch, with shares of
    any size.

    Attributes:
        every: The number of updates after which all processes average; or the sizes of the groups
            that do, by number of updates, ``{4: 2, 16: 8}``: groups of two neighbours every 4
            updates, all 8 processes every 16. Where several are due, the largest group averages.
        warmup: The number of updates before the first local one.

    Source:
        Lin et al. 2018, arXiv 1808.07217 (post-local SGD); weights by samples: McMahan et al. 2016,
        arXiv 1602.05629.

    Example:
        >>> plan = LocalSGD(every={2: 2, 4: 4}, warmup=3)
        >>> [plan.group_after(update, 4) for update in range(1, 12)]
        [0, 0, 0, 0, 2, 0, 4, 0, 2, 0, 4]
    """

    every: int | Mapping[int, int] = 8
    warmup: int = 0

    def __post_init__(self) -> None:
        """Check the settings that do not depend on the number of processes.

        Raises:
            SettingError: A number of updates or processes is too small, or no whole number.
        """
        numbers: list[Any] = [self.every]
        if isinstance(self.every, Mapping):
            numbers = [*self.every, *self.every.values()]
        for number in numbers:
            whole_number("every", number, 1)
        whole_number("warmup", self.warmup, 0)

    def levels(self, count: int) -> dict[int, int]:
        """Return the size of the group that averages, by number of updates, smallest first.

        Raises:
            SettingError: `count` processes cannot be divided into such groups.
        """
        periods = self.every
        if not isinstance(periods, Mapping):
            periods = {periods: count}
        levels = dict(sorted(periods.items()))
        sizes = [1, *levels.values()]
        are_nested = all(
            larger % size == 0 and larger > size for size, larger in pairwise(sizes)
        )
        if not are_nested or sizes[-1] != count:
            raise SettingError(
                f"{self}: {count} processes are to average in groups of {sizes[1:]}: each must be "
                "a multiple of the one before, and the last one all"
            )
        return levels

    def group_after(self, update: int, count: int) -> int:
        """Return the size of the groups that average after update number `update`; 0 for none."""
        local = update - self.warmup
        if local <= 0:
            return 0
        largest = 0
        for period, size in self.levels(count).items():
            if local % period == 0:
                largest = max(largest, size)
        return largest


def weighted_mean(
    group: ProcessGroup, arrays: Sequence[np.ndarray], weight: float
) -> list[np.ndarray] | None:
    """Return the weighted means of arrays over processes; None where all weights are zero.

    Sums are computed in float32 at least. Integer arrays are those of the first process with a
    weight.
    """
    weights = group.all_gather_object("what parameters count for", weight)
    total = sum(weights)
    if not total:
        return None
    first_rank = next(rank for rank, each in enumerate(weights) if each)
    terms = []
    for array in arrays:
        if array.dtype.kind in "fc":
            wide = np.result_type(array, np.float32)
            terms.append(array.astype(wide) * wide.type(weight / total))
        elif group.rank == first_rank:
            terms.append(array)
        else:
            terms.append(np.zeros_like(array))
    return group.all_reduce("parameters", terms)


@dataclass
class Averaging:
    """The progress of one network's processes in a `LocalSGD`.

    Attributes:
        plan: The schedule.
        processes: All processes.
        updates: The updates made so far.
        weights: By the size of a group, the weight of this process since such a group has averaged.
        is_behind: Whether parameters differ between processes.
    """

    plan: LocalSGD
    processes: ProcessGroup
    updates: int = 0
    weights: dict[int, float] = field(init=False)
    is_behind: bool = False

    def __post_init__(self) -> None:
        """Create the groups, which all processes do at the same time."""
        count = self.processes.count
        self.weights = dict.fromkeys(self.plan.levels(count).values(), 0.0)
        for size in self.weights:
            for start in range(0, count, size):
                self.processes.subgroup(range(start, start + size))

    @property
    def is_local(self) -> bool:
        """Whether the warm-up is over."""
        return self.updates >= self.plan.warmup

    @property
    def batch_group(self) -> ProcessGroup:
        """The processes whose samples make up the batch of the next update."""
        return SingleProcess() if self.is_local else self.processes

    @property
    def first_sample(self) -> int:
        """The position of this process's batch in the portable random stream."""
        return self.processes.rank * STREAM_DISTANCE if self.is_local else 0

    def group(self, size: int) -> ProcessGroup:
        """Return the group of `size` neighbours that includes this process."""
        start = self.processes.rank // size * size
        return self.processes.subgroup(range(start, start + size))

    def add_weight(self, weight: float) -> None:
        """Count the weight of an update."""
        for size in self.weights:
            self.weights[size] += weight

    def average(self, network: WrapperNetwork, size: int) -> None:
        """Average parameters and buffers over groups of this size."""
        names, slots = zip(*each_once(network.neutral_slots()).items(), strict=True)
        arrays = [slot.read() for slot in slots]
        means = weighted_mean(self.group(size), arrays, self.weights[size])
        if means is not None:
            network.root.load_neutral_state(
                dict(zip(names, means, strict=True)), strict=False
            )
        for level in self.weights:
            if level <= size:
                self.weights[level] = 0.0
        self.is_behind = self.is_behind and size < self.processes.count


class AverageParameters(NetworkHook):
    """Post-update hook: averages parameters when an average is due."""

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        """Count the update, and average if it is time."""
        averaging = self.network.parallelism.state.averaging
        averaging.is_behind = averaging.is_local
        averaging.updates = optimizer.steps
        if not averaging.is_behind:
            averaging.weights = dict.fromkeys(averaging.weights, 0.0)
            return
        size = averaging.plan.group_after(optimizer.steps, averaging.processes.count)
        if size:
            averaging.average(self.network, size)
