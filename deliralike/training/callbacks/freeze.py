"""Parts of a network that are frozen in some epochs of a run."""

from __future__ import annotations

from deliralike.errors import (
    SettingError,
    matching,
    whole_number,
)
from deliralike.network.freezing import freeze, unfreeze
from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Epoch
from deliralike.training.run import Run


class Freeze(Callback):
    """Freeze the parts whose weights match a pattern from one epoch to another.

    Frozen parameters are not trained, and batch norms and dropout among them are in evaluation
    mode; see `deliralike.freeze`. They stay frozen after the run where `end` is not reached.
    Several of these unfreeze a network part by part.

    Args:
        pattern: A pattern of names of weights: ``"layer[12].*"``.
        start: The first epoch, from 0, in which they are frozen.
        end: The first epoch in which they are trained again; None for never.

    Raises:
        SettingError: `end` is not after `start`.
        UnknownName: Before the first step: no weight matches.

    Example:
        >>> from deliralike import data, rules, zoo
        >>> from deliralike.training import Trainer
        >>> digits = data.load("digits")
        >>> net = zoo.build("mlp", backend="torch", in_features=64, hidden=(8,))
        >>> before = net.neutral_state()["layers.0.bias"]
        >>> trainer = Trainer(net, rules.rule("sgd", lr=0.1), callbacks=[Freeze("layers.0.*")])
        >>> history = trainer.fit(digits.train, batch_size=256)
        >>> bool((net.neutral_state()["layers.0.bias"] == before).all())
        True
    """

    def __init__(self, pattern: str, start: int = 0, end: int | None = None) -> None:
        """Check the epochs."""
        self.pattern = pattern
        self.start = whole_number("start", start, 0)
        self.end = end
        if end is not None and whole_number("end", end, 0) <= start:
            raise SettingError(f"Freeze: end={end} must be after start={start}")

    def on_start(self, run: Run) -> None:
        """Freeze the parts, if the run begins or goes on in one of the epochs."""
        matching(self.pattern, run.network.neutral_slots(), "Freeze: no weight")
        self._apply(run, run.epoch >= self.start)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Freeze or unfreeze the parts before the next epoch."""
        self._apply(run, run.epoch in (self.start, self.end))

    def _apply(self, run: Run, is_due: bool) -> None:
        if not is_due:
            return
        if self.end is None or run.epoch < self.end:
            freeze(run.network, self.pattern)
        else:
            unfreeze(run.network, self.pattern)
