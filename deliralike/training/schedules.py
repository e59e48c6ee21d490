"""Learning-rate schedules: factors on the base learning rate by the number of finished updates.

They are frozen values without a framework, so the trace is the same on every backend, for any
number of replicas and after a resume. The first update has the factor of 0 finished ones.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deliralike.errors import ArgumentError, SettingError, whole_number
from deliralike.optim.rules import number
from deliralike.training.by_name import make_by_name

_CYCLE_START = 1 / 25  # PyTorch's, as parts of the highest factor
_CYCLE_END = 1 / 25e4


class Schedule(ABC):
    """The interface of schedules: ``optimizer.lr = base * schedule.factor(optimizer.steps)``.

    The learning rate is set before each update.
    """

    @abstractmethod
    def factor(self, steps: int) -> float:
        """Return the factor for the update that follows `steps` finished ones."""


@dataclass(frozen=True)
class Constant(Schedule):
    """A constant learning rate.

    Example:
        >>> Constant().factor(1000)
        1.0
    """

    def factor(self, steps: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class StepDecay(Schedule):
    """``gamma`` to the power of the number of drops so far.

    The factor drops at each multiple of `every`, or at each milestone.

    Raises:
        SettingError: Neither or both are given, or the milestones do not rise.

    Example:
        >>> [StepDecay(2, gamma=0.5).factor(steps) for steps in range(5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
        >>> [StepDecay(milestones=(1, 4), gamma=0.5).factor(steps) for steps in range(5)]
        [1.0, 0.5, 0.5, 0.5, 0.25]
    """

    every: int | None = None
    gamma: float = field(default=0.1, kw_only=True)
    milestones: tuple[int, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings."""
        number(self.gamma, "StepDecay: gamma")
        if (self.every is None) == (not self.milestones):
            raise SettingError("StepDecay: give either every=... or milestones=(...)")
        if self.every is not None:
            whole_number("StepDecay: every", self.every, 1)
        object.__setattr__(
            self, "milestones", _rising("StepDecay: milestones", self.milestones)
        )

    def factor(self, steps: int) -> float:
        """Return the power of the drops so far."""
        if self.every is None:
            drops = bisect_right(self.milestones, steps)
        else:
            drops = steps // self.every
        return float(self.gamma**drops)


@dataclass(frozen=True)
class _ToFinal(Schedule):
    """The base of schedules from 1 down to `final` in `steps` steps."""

    steps: int
    final: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings."""
        name = type(self).__name__
        whole_number(f"{name}: steps", self.steps, 1)
        number(self.final, f"{name}: final")

    def part(self, steps: int) -> float:
        """Return the part of the way that lies behind so many steps."""
        return min(steps, self.steps) / self.steps


@dataclass(frozen=True)
class Cosine(_ToFinal):
    """Half a cosine from 1 down to `final` in `steps` steps, then `final`.

    Source: arXiv 1608.03983.

    Example:
        >>> [round(Cosine(4, final=0.1).factor(steps), 3) for steps in range(6)]
        [1.0, 0.868, 0.55, 0.232, 0.1, 0.1]
    """

    def factor(self, steps: int) -> float:
        """Return the cosine's value."""
        return _eased(1.0, self.final, self.part(steps))


@dataclass(frozen=True)
class Linear(_ToFinal):
    """A straight line from 1 down to `final` in `steps` steps, then `final`.

    Example:
        >>> [Linear(4).factor(steps) for steps in range(6)]
        [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """

    def factor(self, steps: int) -> float:
        """Return the height of the line."""
        return 1.0 + (self.final - 1.0) * self.part(steps)


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Half cosines from 1/25 up to 1, and down to 1/250,000.

    The last of the `steps` updates has the lowest factor, and so has every later one. The momentum
    does not change. Source: Smith and Topin 2018, arXiv 1708.07120.

    Args:
        steps: The number of updates of the whole cycle.
        warmup: The part of the cycle that goes up.

    Example:
        >>> cycle = OneCycle(8, warmup=0.5)
        >>> [round(cycle.factor(steps), 2) for steps in range(9)]
        [0.04, 0.28, 0.76, 1.0, 0.85, 0.5, 0.15, 0.0, 0.0]
    """

    steps: int
    warmup: float = field(default=0.3, kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings."""
        whole_number("OneCycle: steps", self.steps, 1)
        number(self.warmup, "OneCycle: warmup")
        if self.warmup > 1:
            raise SettingError(
                f"OneCycle: warmup={self.warmup!r} is a part of the cycle: at most 1"
            )

    def factor(self, steps: int) -> float:
        """Return the height on one of the two half cosines."""
        # Counted from 0; no update needs to be at the top.
        top = self.warmup * self.steps - 1
        last = self.steps - 1
        steps = min(steps, last)
        if steps <= top:
            part = steps / top if top else 1.0
            return _eased(_CYCLE_START, 1.0, part)
        return _eased(1.0, _CYCLE_END, (steps - top) / (last - top))


@dataclass(frozen=True)
class Warmup(Schedule):
    """A straight line from 0 up to the first factor of another schedule, which follows.

    Args:
        steps: The number of updates below the other schedule's beginning.
        then: The schedule that follows, with a count of its own that begins at 0.

    Example:
        >>> [Warmup(2, StepDecay(2, gamma=0.5)).factor(steps) for steps in range(6)]
        [0.0, 0.5, 1.0, 1.0, 0.5, 0.5]
    """

    steps: int
    then: Schedule = Constant()

    def __post_init__(self) -> None:
        """Check the settings."""
        whole_number("Warmup: steps", self.steps, 0)
        if not isinstance(self.then, Schedule):
            raise ArgumentError(f"Warmup: then={self.then!r} is no schedule")

    def factor(self, steps: int) -> float:
        """Return the height of the line, then the factor of the other schedule."""
        if steps >= self.steps:
            return self.then.factor(steps - self.steps)
        return steps / self.steps * self.then.factor(0)


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "step": StepDecay,
    "cosine": Cosine,
    "linear": Linear,
    "one_cycle": OneCycle,
    "warmup": Warmup,
}


OF_WHOLE_RUNS = ("cosine", "linear", "one_cycle")


def schedule(name: str, **settings: Any) -> Schedule:
    """Return the schedule of that name.

    The schedule that follows a warm-up may be given as `schedule_of` takes it.

    Raises:
        UnknownName: There is no such schedule.
        ArgumentError: The schedule has no such setting, or lacks one that it needs.
        SettingError: A setting makes no sense.

    Example:
        >>> schedule("warmup", steps=10, then={"name": "cosine", "steps": 90})
        Warmup(steps=10, then=Cosine(steps=90, final=0.0))
    """
    if isinstance(settings.get("then"), str | Mapping):
        settings["then"] = schedule_of(settings["then"])
    return make_by_name("schedule", SCHEDULES, name, settings)


def schedule_of(given: Any, updates: int | None = None) -> Any:
    """Return a schedule by its name, or by a mapping of its ``"name"`` and settings.

    ``steps`` is the number of updates of the run where it is left out; after a warm-up, of what is
    left of it. Anything else is returned as it is.

    Args:
        given: ``"cosine"``, or ``{"name": "warmup", "steps": 100, "then": "cosine"}``.
        updates: The number of updates of the run; None if it is unknown.

    Raises:
        UnknownName: There is no such schedule; the nearest is named.
        ArgumentError: It has no such setting, or lacks one that it needs; or what was given is no
            schedule, such as one of PyTorch's, which sets learning rates itself.
        SettingError: A setting makes no sense, or the number of updates is needed and unknown.

    Example:
        >>> schedule_of("cosine", 90)
        Cosine(steps=90, final=0.0)
        >>> schedule_of({"name": "warmup", "steps": 10, "then": "linear"}, 90)
        Warmup(steps=10, then=Linear(steps=80, final=0.0))
    """
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping):
        if isinstance(given, type) or not hasattr(given, "factor"):
            raise ArgumentError(
                f"a schedule is {_described(given)}, wanted a name such as 'cosine', a mapping "
                "with it, {'name': 'cosine', 'steps': 1000}, or an object of "
                "deliralike.training.schedules, whose factor(step) multiplies the learning rate"
            )
        return given
    settings = dict(given)
    if "name" not in settings:
        raise ArgumentError(
            f"a schedule needs a name: {{'name': ...}}, not {settings!r}"
        )
    name = settings.pop("name")
    if name == "warmup" and isinstance(settings.get("steps"), int):
        rest = None if updates is None else max(updates - settings["steps"], 1)
        settings["then"] = schedule_of(settings.get("then", Constant()), rest)
    if name in OF_WHOLE_RUNS and "steps" not in settings:
        if updates is None:
            raise SettingError(
                f"schedule {name!r} goes over a run, and the data have no length: "
                f"schedule={{'name': {name!r}, 'steps': 1000}}"
            )
        settings["steps"] = updates
    return schedule(name, **settings)


def _described(given: Any) -> str:
    if isinstance(given, type):
        return f"the class {given.__name__}"
    return f"a {type(given).__name__}"


def _eased(start: float, end: float, part: float) -> float:
    """Return the height on half a cosine from start to end."""
    cosine = math.cos(math.pi * part)
    return end + (start - end) * (1.0 + cosine) / 2.0


def _rising(where: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple | list):
        raise SettingError(f"{where}={values!r} must be whole numbers")
    for value in values:
        whole_number(where, value, 1)
    if list(values) != sorted(set(values)):
        raise SettingError(f"{where}={values!r} must rise")
    return tuple(values)
