"""Comparison of a metric's values: the only place that tells which of two is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deliralike.errors import SettingError, UnknownName, suggestion
from deliralike.setting_types import TypedSettings
from deliralike.training.history import Epoch

MODES = ("min", "max")


@dataclass(frozen=True)
class Monitor(TypedSettings):
    """A metric on validation data, and the direction in which it improves.

    NaN is never better, and any number is better than none.

    Args:
        metric: The name of a metric of an epoch.
        mode: ``"min"`` where less is better, ``"max"`` where more is.
        min_delta: The least difference by which a value must be better.

    Raises:
        SettingError: There is no such mode, or `min_delta` is below zero.

    Example:
        >>> accuracy = Monitor("accuracy", "max", min_delta=0.01)
        >>> accuracy.is_better(0.92, than=0.9), accuracy.is_better(0.905, than=0.9)
        (True, False)
        >>> accuracy.is_better(0.1, than=None)
        True
    """

    metric: str
    mode: str = "min"
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.mode not in MODES:
            raise SettingError(
                f"mode={self.mode!r} is unknown: 'min' where less is better, 'max' where more is"
            )
        if not 0 <= self.min_delta < math.inf:
            raise SettingError(
                f"min_delta={self.min_delta!r} must be a number of at least 0"
            )

    def is_better(self, value: float, than: float | None) -> bool:
        """Return whether a value is better than the best one so far."""
        if than is None:
            return not math.isnan(value)
        if self.mode == "max":
            return value > than + self.min_delta
        return value < than - self.min_delta

    def refuse_unknown(self, known: Sequence[str]) -> None:
        """Raise an error before the first step if no figure will have the metric's name.

        Args:
            known: Names of metrics and losses; figures of a metric that has several are
                ``"name/part"``.

        Raises:
            UnknownName: The name is unknown; the message lists the known names.
        """
        if self.metric not in known and self.metric.partition("/")[0] not in known:
            raise UnknownName(
                f"there is no metric {self.metric!r} on validation data. "
                f"{suggestion(self.metric, known)} Validation will give: {', '.join(known)}."
            )

    def value(self, epoch: Epoch) -> float:
        """Return the metric of an epoch.

        Raises:
            UnknownName: The epoch has no such metric; the message lists its metrics.
        """
        if self.metric in epoch.held_out:
            return float(epoch.held_out[self.metric])
        if not epoch.held_out:
            raise UnknownName(
                f"there is no metric {self.metric!r}: nothing was validated. Give fit() "
                "validation data."
            )
        raise UnknownName(
            f"there is no metric {self.metric!r} on validation data. "
            f"{suggestion(self.metric, epoch.held_out)} This epoch has: "
            f"{', '.join(epoch.held_out)}."
        )
