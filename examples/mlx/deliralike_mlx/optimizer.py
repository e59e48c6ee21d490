"""Losses with gradients, and the update of parameters by the neutral rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from deliralike.network.state import each_once
from deliralike.optim.groups import Groups
from deliralike.optim.loss import no_array, no_scalar
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike_mlx.arrays import from_host
from deliralike_mlx.network import MLXSlot, substituted


def _noticed(name: str, array: mx.array, reached: set[str]) -> mx.array:
    """Return the array, and note its name when a gradient comes back to it.

    MLX gives zeros where the loss does not depend on an array.
    """

    @mx.custom_function
    def identity(x: mx.array) -> mx.array:
        return x

    @identity.vjp
    def pull_back(x: mx.array, cotangent: mx.array, y: mx.array) -> mx.array:
        reached.add(name)
        return cotangent

    return identity(array)


def differentiate(
    function: Callable[..., Any], arrays: Mapping[str, mx.array]
) -> tuple[Any, dict[str, mx.array | None]]:
    """Return what a function of arrays by name gives, and the gradients of its loss.

    Args:
        function: Gives the loss, or a tuple of the loss and anything else.
    """
    reached: set[str] = set()
    results = []

    def loss_of(arrays: dict[str, mx.array]) -> mx.array:
        noticed = {
            name: _noticed(name, array, reached) for name, array in arrays.items()
        }
        result = function(noticed)
        results.append(result)
        loss = result[0] if isinstance(result, tuple) else result
        if not isinstance(loss, mx.array):
            raise no_array(loss)
        if loss.shape:
            raise no_scalar(loss.shape)
        return loss

    found = mx.grad(loss_of)(dict(arrays))
    gradients = {name: found[name] if name in reached else None for name in arrays}
    return results[0], gradients


def trainable_slots(slots: Mapping[str, MLXSlot]) -> dict[str, MLXSlot]:
    """Return the trainable parameters, each under its first name."""
    return {name: slot for name, slot in each_once(slots).items() if slot.trainable}


class MLXOptimizer(AbstractOptimizer):
    """An optimizer that follows one of the neutral rules."""

    groups: Groups

    def __init__(self, groups: Groups, network: Any, pattern: str | None) -> None:
        super().__init__(network, pattern)
        self.groups = groups
        self._places = groups.indices(self.owned_slots())
        self._states: dict[str, dict[str, mx.array]] = {}
        self._counts: dict[str, int] = {}

    def _slots(self) -> dict[str, MLXSlot]:
        return each_once(self.owned_slots())

    def gradients(self, loss_function: Any, *batch: Any) -> tuple[Any, dict[str, Any]]:
        slots = trainable_slots(self._slots())

        def loss_of(arrays: dict[str, mx.array]) -> Any:
            with substituted(slots, arrays):
                return loss_function(self.network, *batch)

        values = {name: slot.native for name, slot in slots.items()}
        result, found = differentiate(loss_of, values)
        present = {name: each for name, each in found.items() if each is not None}
        buffers = [slot.native for slot in self.network.neutral_slots().values()]
        mx.eval(present, buffers)  # else the graphs of all steps are kept
        gradients = {
            name: slots[name].to_neutral(each) for name, each in present.items()
        }
        backend = self.network.backend
        return backend.without_graph(result), dict.fromkeys(found) | gradients

    def apply(self, gradients: dict[str, Any]) -> None:
        slots = self._slots()
        for name, gradient in gradients.items():
            if gradient is not None:
                self._update(name, slots[name], gradient)
        mx.eval([slot.native for slot in slots.values()], self._states)

    def _update(self, name: str, slot: MLXSlot, gradient: mx.array) -> None:
        rule = self.groups.rules[self._places[name]]
        count = self._counts.get(name, 0) + 1
        parameter = slot.to_neutral(slot.native)
        state = self._states.get(name) or {
            key: mx.zeros(shape, parameter.dtype)
            for key, shape in rule.state_shapes(parameter.shape).items()
        }
        updated, state = rule.update(
            parameter, gradient, state, rule.scalars(count), mx
        )
        slot.value = slot.to_native(updated)
        self._states[name] = state
        self._counts[name] = count

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return self.groups.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.groups = self.groups.with_lr(value)

    def neutral_state(self) -> dict[str, np.ndarray]:
        state = {"steps": np.array(self.steps)}
        for name, count in self._counts.items():
            for key, array in self._states[name].items():
                state[f"{name}/{key}"] = np.array(array)
            if self.groups.rules[self._places[name]].counts:
                state[f"{name}/step"] = np.array(count)
        return state

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        slots = self._slots()
        self.refuse_wrong_state(state, slots)
        self.steps = int(state["steps"])
        self._states = {}
        self._counts = {}
        for key, value in state.items():
            name, _, slot = key.rpartition("/")
            if not name:
                continue
            self._counts.setdefault(name, self.steps)
            self._states.setdefault(name, {})
            if slot == "step":
                self._counts[name] = int(value)
            else:
                dtype = slots[name].native.dtype
                self._states[name][slot] = from_host(value).astype(dtype)
