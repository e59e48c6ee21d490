"""The records of a run: one for each step, one for each epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Step:
    """One finished update.

    The device may still be computing it: whoever looks at its losses or at its time waits.

    Attributes:
        step: Counts updates of the whole run, from 0.
        epoch: Counts epochs, from 0.
        loss: The loss of the step's batch, before the update.
        seconds: The time of the step, waiting for the device included, which steps that are read
            together share.
        samples: The number of samples of the batch, of all its micro-batches together.
        losses: Every loss that the step gave, by name.
        lr: The learning rate that the update was made with; by the optimizer's name when there are
            several.
        data_seconds: The time that the step waited for its data, before `seconds` began.
    """

    step: int
    epoch: int
    loss: float
    seconds: float
    samples: int
    losses: Mapping[str, float] = field(default_factory=dict)
    lr: float | Mapping[str, float] | None = None
    data_seconds: float = 0.0

    def __getattr__(self, name: str) -> Any:
        """Read what the device computes, which a record of `Unread` does not have before."""
        read = vars(self).get("_read")
        if read is None or name not in ("loss", "losses", "seconds"):
            raise AttributeError(f"a Step has no attribute {name!r}")
        read()
        return vars(self)[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, for copies."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class Epoch:
    """One finished pass over the data.

    Attributes:
        epoch: Counts epochs, from 0.
        steps: The number of updates of the run so far.
        held_out: The results of `evaluate` on held-out data; empty without such data.
        evaluation_seconds: The time of the evaluation.
    """

    epoch: int
    steps: int
    held_out: Mapping[str, float] = field(default_factory=dict)
    evaluation_seconds: float = 0.0


@dataclass
class History:
    """Everything that a run recorded, in order.

    Attributes:
        steps: One record for each update.
        epochs: One record for each epoch.
        stopped: Why the run ended early; empty when it did not.
    """

    steps: list[Step] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    stopped: str = ""

    @property
    def losses(self) -> np.ndarray:
        """The loss of every step, as an array."""
        return np.array([step.loss for step in self.steps], dtype=np.float64)

    def held_out(self, metric: str) -> np.ndarray:
        """Return one metric on held-out data, epoch by epoch."""
        results = [epoch.held_out for epoch in self.epochs]
        return np.array([result[metric] for result in results if metric in result])

    @property
    def seconds_per_step(self) -> float:
        """The median time of the steps on batches of the usual size.

        The first step, which may compile, is left out. NaN when there are fewer than two steps.
        """
        full = max((step.samples for step in self.steps), default=0)
        seconds = [step.seconds for step in self.steps[1:] if step.samples == full]
        if not seconds:
            return float("nan")
        return float(np.median(seconds))
