"""Exponential averages of a network's weights over its updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike.errors import ArgumentError, SettingError, StateError
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot, each_once, plan_load
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.setting_types import refuse_other_types
from deliralike.training.json_nests import State


class WeightAverage:
    """The average of a network's parameters and running statistics; other buffers are the latest.

    The average begins as a copy of the weights (no bias is to be corrected) and then moves, on
    their device and in their type, ``average += (1 - decay) * (weights - average)``.

    Add it to an optimizer's ``post_update_hooks``, or call `update` once a step where there are
    several optimizers. A `Trainer` does so, and begins anew in its first `fit`.

    Attributes:
        network: The network of the weights; of a replicated network the root's are averaged.
        decay: The share of the average that an update keeps.

    Source:
        Polyak and Juditsky 1992.

    Example:
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> optimizer = net.backend.optimizer(rules.rule("sgd", lr=0.1), net)
        >>> average = WeightAverage(net, decay=0.9)
        >>> optimizer.post_update_hooks.append(average)
        >>> batch = np.ones((4, 3), np.float32), np.zeros(4, np.int64)
        >>> _ = net.train_step(batch, optimizer)
        >>> own = float(net.val_step(batch)["loss"])
        >>> with average.swap_in():
        ...     float(net.val_step(batch)["loss"]) > own
        True
        >>> float(net.val_step(batch)["loss"]) == own
        True
    """

    def __init__(self, network: AbstractNetwork, decay: float = 0.999) -> None:
        """Begin with a copy of the weights.

        Raises:
            SettingError: A setting makes no sense.
        """
        refuse_other_types("WeightAverage", WeightAverage, {"decay": decay})
        if not 0.0 <= decay < 1.0:
            raise SettingError(f"decay={decay!r} must be at least 0 and below 1")
        if network.parallelism.updates_locally:
            raise SettingError(
                "each process would have the average of its own weights: leave it out where "
                "processes train by themselves and average their parameters"
            )
        self.network = network
        self.decay = decay
        self._applied = 0
        self.reset()

    def reset(self) -> None:
        """Begin anew with the network's present weights, as when it was made."""
        # Native arrays by neutral name, a tied one once.
        self._values = self._copied()

    @classmethod
    def of(
        cls, network: AbstractNetwork, average: float | WeightAverage | None
    ) -> WeightAverage | None:
        """Return an average of this network from a decay; an average is returned as it is.

        Raises:
            ArgumentError: The average is another network's.
        """
        if average is None:
            return None
        if not isinstance(average, WeightAverage):
            return cls(network, average)
        if average.network is not network:
            raise ArgumentError(
                "average is that of another network than the one that is trained; with devices= "
                "there is a replicated one: give the decay instead"
            )
        return average

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        """Follow an update, as a post-update hook."""
        self.update()

    def update(self) -> None:
        """Follow an update of the weights.

        Raises:
            StateError: The network holds the average, see `swap_in`.
        """
        if self._applied:
            raise StateError(
                "the network holds its averaged weights: leave swap_in() before it is trained on"
            )
        backend = self.network.backend
        slots = self._slots()
        names = []
        averages = []
        weights = []
        copies = {}
        for name, average in self._values.items():
            if _has_mean(name, slots[name], average):
                names.append(name)
                averages.append(average)
                weights.append(slots[name].value)
            else:
                copies[name] = backend.copied(slots[name].value)
        blended = backend.blended(averages, weights, 1.0 - self.decay)
        self._values |= dict(zip(names, blended, strict=True))
        self._values |= copies

    @contextmanager
    def swap_in(self) -> Iterator[AbstractNetwork]:
        """Put the average into the network inside a ``with`` block, then its own weights back.

        The weights are the same bit for bit afterwards. Replicas follow. Optimizers' states stay as
        they are; the network must not be trained inside.
        """
        own = self._copied()
        self._applied += 1
        try:
            self._put(self._values)
            yield self.network
        finally:
            self._put(own)
            self._applied -= 1

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return the average."""
        with self.swap_in():
            return self.network.neutral_state()

    def state(self) -> State:
        """Return the average by neutral name, under ``"weights"``."""
        return {"weights": self.neutral_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state`, also on another backend; the network's own weights stay.

        Raises:
            StateError: The state is that of another network; nothing has changed.
        """
        weights = state["weights"]
        own = self._copied()
        report = plan_load(self.network.neutral_slots(), weights)
        if not report.complete:
            raise StateError(
                f"the average is that of another network than {type(self.network).__name__}: "
                f"{report}"
            )
        try:
            for name, slot in self._slots().items():
                slot.write(np.asarray(weights[name]))
            self._values = self._copied()
        finally:
            self._put(own)

    def _copied(self) -> dict[str, Any]:
        backend = self.network.backend
        return {
            name: backend.copied(slot.value) for name, slot in self._slots().items()
        }

    def _put(self, values: Mapping[str, Any]) -> None:
        """Set the network's weights; replicas follow."""
        slots = self._slots()
        for name, value in values.items():
            slots[name].value = value
        self.network.parallelism.copy_state()

    def _slots(self) -> dict[str, Slot]:
        """Return parameters and buffers, tied ones under their first name."""
        return each_once(self.network.neutral_slots())


def _has_mean(name: str, slot: Slot, array: Any) -> bool:
    """Return whether an array is averaged: parameters and the statistics of batch norms.

    Other buffers belong to the latest weights, such as the vectors of a spectral norm, which are of
    length one, and counters.
    """
    is_continuous = any(kind in str(array.dtype) for kind in ("float", "complex"))
    return is_continuous and (slot.is_parameter or "running_" in name)
