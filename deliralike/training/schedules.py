"""Learning-rate schedules: a factor on the base learning rate, as a function of the number of finished updates.

They are frozen values without a framework, so the trace is the same on every backend, for any number of replicas and
after a resume. The first update has the factor of 0 finished ones. `Plateau` alone has a state: what it has observed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from deliralike.errors import ArgumentError, SettingError, StateError, UnknownName, refuse_unknown_settings, suggestion
from deliralike.rules import number
from deliralike.training.fields import COUNT, NUMBER, refuse_wrong_fields

_OF_PLATEAU = {"scale": NUMBER, "best": NUMBER.or_none(), "worse": COUNT, "resting": COUNT}


class Schedule(ABC):
    """What all schedules answer: ``optimizer.lr = base * schedule.factor(optimizer.steps)`` before an update.

    Attributes:
        metric: The name of the metric whose values it wants to `observe`; None for a function of the steps alone.
    """

    metric: Any = None

    @abstractmethod
    def factor(self, steps: int) -> float:
        """The factor for the update that follows `steps` finished ones."""

    def observe(self, value: float) -> None:
        """Take note of a new value of the metric, once each time it was measured."""

    def state(self) -> dict[str, Any]:
        """What it has observed, as plain numbers for a JSON file; empty for a function of the steps alone."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave.

        Raises:
            StateError: It is that of another schedule; nothing has changed.
        """
        if state:
            raise StateError(f"{type(self).__name__} has no state, but one came with {', '.join(map(repr, state))}")


@dataclass(frozen=True)
class Constant(Schedule):
    """The same factor always.

    Example:
        >>> Constant().factor(1000)
        1.0
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no factor."""
        number(self.value, "Constant: value")

    def factor(self, steps: int) -> float:
        """The value."""
        return float(self.value)


@dataclass(frozen=True)
class StepDecay(Schedule):
    """``gamma`` to the power of the number of drops so far: one at each multiple of `every`, or at each milestone.

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
        """Refuse settings that make no sense."""
        number(self.gamma, "StepDecay: gamma")
        if (self.every is None) == (not self.milestones):
            raise SettingError("StepDecay: give either every=... or milestones=(...)")
        if self.every is not None:
            _whole("StepDecay: every", self.every, 1)
        object.__setattr__(self, "milestones", _rising("StepDecay: milestones", self.milestones))

    def factor(self, steps: int) -> float:
        """The power of the drops so far."""
        drops = bisect_right(self.milestones, steps) if self.every is None else steps // self.every
        return float(self.gamma**drops)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to `final` in so many steps; `final` from then on. Source: arXiv 1608.03983.

    Example:
        >>> [round(Cosine(4, final=0.1).factor(steps), 3) for steps in range(6)]
        [1.0, 0.868, 0.55, 0.232, 0.1, 0.1]
    """

    steps: int
    final: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        _whole("Cosine: steps", self.steps, 1)
        number(self.final, "Cosine: final")

    def factor(self, steps: int) -> float:
        """The cosine's value."""
        return _eased(1.0, self.final, min(steps, self.steps) / self.steps)


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Up to `peak` and down to nearly nothing, on half cosines. Source: Smith and Topin 2018, arXiv 1708.07120.

    The last of the `steps` updates has the lowest factor, and so has every later one. Momentum is left alone.

    Args:
        steps: The number of updates of the whole cycle.
        peak: The highest factor.
        warmup: The part of the cycle that goes up.
        start: The factor of the first update, as a part of the peak.
        final: The factor of the last update, as a part of the peak.

    Example:
        >>> [round(OneCycle(8, warmup=0.5, start=0.2, final=0.0).factor(steps), 2) for steps in range(9)]
        [0.2, 0.4, 0.8, 1.0, 0.85, 0.5, 0.15, 0.0, 0.0]
    """

    steps: int
    peak: float = field(default=1.0, kw_only=True)
    warmup: float = field(default=0.3, kw_only=True)
    start: float = field(default=1 / 25, kw_only=True)
    final: float = field(default=1 / 25e4, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        _whole("OneCycle: steps", self.steps, 1)
        for name in ("peak", "start", "final", "warmup"):
            number(getattr(self, name), f"OneCycle: {name}")
        if self.warmup > 1:
            raise SettingError(f"OneCycle: warmup={self.warmup!r} is a part of the cycle: at most 1")

    def factor(self, steps: int) -> float:
        """The height on one of the two half cosines."""
        top, last = self.warmup * self.steps - 1, self.steps - 1  # counted from 0; updates need not meet the top
        steps = min(steps, last)
        if steps <= top:
            return self.peak * _eased(self.start, 1.0, steps / top if top else 1.0)
        return self.peak * _eased(1.0, self.final, (steps - top) / (last - top))


@dataclass(frozen=True)
class Warmup(Schedule):
    """A straight line from `start` up to where another schedule begins, which counts from the end of the line.

    Args:
        steps: The number of updates below the other schedule's beginning.
        then: What follows, with a count of its own that begins at 0.
        start: The factor of the first update, as a part of the other schedule's beginning.

    Example:
        >>> [Warmup(2, StepDecay(2, gamma=0.5)).factor(steps) for steps in range(6)]
        [0.0, 0.5, 1.0, 1.0, 0.5, 0.5]
    """

    steps: int
    then: Schedule = Constant()
    start: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        _whole("Warmup: steps", self.steps, 0)
        number(self.start, "Warmup: start")
        if not isinstance(self.then, Schedule):
            raise ArgumentError(f"Warmup: then={self.then!r} is no schedule")

    @property
    def metric(self) -> str | None:
        """That of what follows."""
        return self.then.metric

    def factor(self, steps: int) -> float:
        """The line, then the other schedule."""
        if steps >= self.steps:
            return self.then.factor(steps - self.steps)
        return (self.start + (1.0 - self.start) * (steps / self.steps)) * self.then.factor(0)

    def observe(self, value: float) -> None:
        """Hand it on."""
        self.then.observe(value)

    def state(self) -> dict[str, Any]:
        """That of what follows."""
        return self.then.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Hand it on."""
        self.then.load_state(state)


@dataclass(frozen=True)
class Plateau(Schedule):
    """Multiply by `gamma` after more than `patience` values in a row that were no better than the best one.

    A value is better if it beats the best one by more than `threshold` times the best one's size, whatever the signs;
    NaN is never better. Its settings are frozen, what it has observed is its state.

    Args:
        metric: The name of the metric, for whoever hands its values to `observe`.
        mode: ``"min"`` or ``"max"``: which values are better.
        gamma: What the factor is multiplied by.
        patience: The number of values that may pass without a better one.
        threshold: The part of the best value by which a better one must differ.
        cooldown: The number of values after a drop that are not counted as worse.
        minimum: The lowest factor.

    Example:
        >>> plateau = Plateau("loss", gamma=0.5, patience=1)
        >>> for loss in (3.0, 2.0, 2.0, 2.1):
        ...     plateau.observe(loss)
        >>> plateau.factor(0), plateau.state()
        (0.5, {'scale': 0.5, 'best': 2.0, 'worse': 0, 'resting': 0})
    """

    FRESH: ClassVar[dict[str, Any]] = {"scale": 1.0, "best": None, "worse": 0, "resting": 0}

    metric: str
    mode: str = field(default="min", kw_only=True)
    gamma: float = field(default=0.1, kw_only=True)
    patience: int = field(default=10, kw_only=True)
    threshold: float = field(default=1e-4, kw_only=True)
    cooldown: int = field(default=0, kw_only=True)
    minimum: float = field(default=0.0, kw_only=True)
    _seen: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        if self.mode not in ("min", "max"):
            raise SettingError(f"Plateau: mode={self.mode!r} must be 'min' or 'max'")
        for name in ("gamma", "threshold", "minimum"):
            number(getattr(self, name), f"Plateau: {name}")
        if self.gamma >= 1 or self.minimum > 1:
            raise SettingError(f"Plateau: gamma={self.gamma!r} must be below 1, minimum={self.minimum!r} at most 1")
        _whole("Plateau: patience", self.patience, 0)
        _whole("Plateau: cooldown", self.cooldown, 0)
        self._seen.update(self.FRESH)

    def factor(self, steps: int) -> float:
        """The product of the drops so far; it does not depend on the steps."""
        return float(self._seen["scale"])

    def observe(self, value: float) -> None:
        """Take note of a new value; the factor may drop.

        Raises:
            ArgumentError: It is no number.
        """
        seen, value = self._seen, _real(f"Plateau: {self.metric}", value)
        is_better = self._is_better(value)
        seen["best"] = value if is_better else seen["best"]
        seen["worse"] = 0 if is_better or seen["resting"] else seen["worse"] + 1
        seen["resting"] = max(seen["resting"] - 1, 0)
        if seen["worse"] > self.patience:
            scale = max(seen["scale"] * self.gamma, self.minimum)
            seen.update(scale=scale, worse=0, resting=self.cooldown)

    def _is_better(self, value: float) -> bool:
        best, sign = self._seen["best"], 1.0 if self.mode == "min" else -1.0
        if best is None:
            return sign * value < math.inf
        return sign * value < sign * best - self.threshold * abs(best)

    def state(self) -> dict[str, Any]:
        """The factor, the best value, how many since were no better, how many of the cooldown remain."""
        return dict(self._seen)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave.

        Raises:
            StateError: It is that of another schedule; nothing has changed.
            CheckpointError: Something in it has another type; nothing has changed.
        """
        if set(state) != set(self.FRESH):
            raise StateError(f"Plateau: the state has {sorted(state)}, wanted {sorted(self.FRESH)}")
        refuse_wrong_fields("state of Plateau", state, _OF_PLATEAU)
        self._seen.update(state)


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "step": StepDecay,
    "cosine": Cosine,
    "one_cycle": OneCycle,
    "warmup": Warmup,
    "plateau": Plateau,
}


def schedule(name: str, **settings: Any) -> Schedule:
    """The schedule of that name; what follows a warm-up may be given by its own name and settings.

    Raises:
        UnknownName: There is no such schedule.
        ArgumentError: It has no such setting, or lacks one that it needs.
        SettingError: A setting makes no sense.

    Example:
        >>> schedule("warmup", steps=10, then={"name": "cosine", "steps": 90})
        Warmup(steps=10, then=Cosine(steps=90, final=0.0), start=0.0)
    """
    if name not in SCHEDULES:
        raise UnknownName(f"there is no schedule {name!r}. {suggestion(name, SCHEDULES)}")
    kind: Any = SCHEDULES[name]
    known = {each.name: each for each in fields(kind) if each.init}
    refuse_unknown_settings(f"schedule {name!r}", settings, known)
    for setting, each in known.items():
        if setting not in settings and each.default is MISSING:
            raise ArgumentError(f"schedule {name!r} needs a setting {setting!r}")
    return kind(**{key: _nested(value) for key, value in settings.items()})


def _nested(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "name" not in value:
        raise ArgumentError(f"a schedule in a schedule needs a name: {{'name': ...}}, not {dict(value)!r}")
    return schedule(**value)


def _eased(start: float, end: float, part: float) -> float:
    """From start to end on half a cosine."""
    return end + (start - end) * (1.0 + math.cos(math.pi * part)) / 2.0


def _whole(where: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SettingError(f"{where}={value!r} must be a whole number of at least {least}")


def _rising(where: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple | list):
        raise SettingError(f"{where}={values!r} must be whole numbers")
    for value in values:
        _whole(where, value, 1)
    if list(values) != sorted(set(values)):
        raise SettingError(f"{where}={values!r} must rise")
    return tuple(values)


def _real(where: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{where}={value!r} is no number") from None
