"""What an update does on JAX: the neutral rules, and any optimizer of optax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.program import Members
from deliralike.errors import CapabilityError, StateError
from deliralike.network.state import Slot
from deliralike.optim.groups import Groups
from deliralike.optim.rules import Rule

Named = dict[str, Any]


class UpdateRule(ABC):
    """How parameters follow from gradients, with the state that this takes."""

    lr: float

    def assign(self, slots: Mapping[str, Slot]) -> None:
        """Settle what holds for which of the optimizer's parameters, before the first update."""

    @abstractmethod
    def state_for(self, members: Members) -> Any:
        """The state that one update of these parameters needs, made where there is none."""

    @abstractmethod
    def keep(self, state: Any, taken: list[str]) -> None:
        """Take over the state after an update of the parameters named."""

    @abstractmethod
    def numbers(self, members: Members) -> tuple[Any, Any]:
        """Numbers that one update is compiled for, and numbers that are passed to it."""

    @abstractmethod
    def update(
        self,
        compiled: Any,
        parameters: Named,
        frozen: Named,
        gradients: Named,
        state: Any,
        passed: Any,
    ) -> tuple:
        """New parameters (None for those without a gradient) and state; traced."""

    @abstractmethod
    def neutral_state(self, members: Members) -> dict[str, np.ndarray]:
        """The state by name."""

    @abstractmethod
    def load_neutral_state(
        self, state: dict[str, np.ndarray], members: Members, steps: int
    ) -> None:
        """Take over the state by name."""


class NeutralRule(UpdateRule):
    """A neutral update rule on JAX.

    Each parameter counts its own updates; bias corrections follow its own count.
    """

    def __init__(self, groups: Groups) -> None:
        """Start without a state."""
        self.groups = groups
        self.places: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.slots: dict[str, Named] = {}
        self._kinds = groups.without_lr()

    def assign(self, slots):
        self.places = self.groups.assigned(slots)

    def rule_of(self, name: str) -> Rule:
        """The rule that a parameter follows."""
        return self.groups.rules[
            self.places[name] if name in self.places else self.groups.index(name)
        ]

    @property
    def lr(self) -> float:
        """The learning rate of the next update; a new one compiles nothing."""
        return self.groups.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.groups = self.groups.with_lr(value)

    def state_for(self, members):
        for name, parameter in members.parameters.items():
            if name not in self.slots:
                self.slots[name] = {
                    slot: arrays.zeros_like(parameter.get_value())
                    for slot in self.rule_of(name).slots
                }
        return {name: self.slots[name] for name in members.parameters}

    def keep(self, state, taken):
        self.slots |= state
        self.counts |= {name: self.counts.get(name, 0) + 1 for name in taken}

    def numbers(self, members):
        """Return the numbers that are compiled in, and those that are passed.

        Rules without learning rates, and which parameter follows which rule, are compiled in; the
        numbers of rule and step are passed.
        """
        for name in members.parameters.keys() - self.places.keys():  # of blocks that came later
            self.places[name] = self.groups.index(name)
        steps = [(self.places[name], self.counts.get(name, 0) + 1) for name in members.parameters]
        distinct = sorted(set(steps))
        which = tuple(
            (name, step[0], distinct.index(step))
            for name, step in zip(members.parameters, steps, strict=True)
        )
        return (self._kinds, which), [
            self.groups.rules[place].scalars(step) for place, step in distinct
        ]

    def update(self, compiled, parameters, frozen, gradients, state, passed):
        kinds, which = compiled
        new: Named = {}
        for name, place, number in which:
            p, g, old = parameters[name], gradients.get(name), state[name]
            new[name] = (
                (None, old) if g is None else kinds[place].update(p, g, old, passed[number], jnp)
            )
        return {name: p for name, (p, _) in new.items()}, {name: s for name, (_, s) in new.items()}

    def neutral_state(self, members):
        state = {}
        for name, slot in members.owned.items():
            if self.counts.get(name):
                for key, value in self.slots[name].items():
                    state[f"{name}/{key}"] = slot.layout.to_neutral(arrays.numpy(value))
                if self.rule_of(name).counts:
                    state[f"{name}/step"] = np.array(self.counts[name], np.float32)
        return state

    def load_neutral_state(self, state, members, steps):
        self.slots, self.counts = {}, {}
        for name, slot in members.owned.items():
            like, slots = slot.native.get_value(), self.rule_of(name).slots
            found = {key: state[f"{name}/{key}"] for key in slots if f"{name}/{key}" in state}
            if found or f"{name}/step" in state or not slots:
                self.counts[name] = int(state.get(f"{name}/step", steps))
            self.slots[name] = {
                key: arrays.put_like(slot.layout.to_native(np.asarray(found[key])), like)
                if key in found
                else arrays.zeros_like(like)
                for key in slots
            }


class NativeRule(UpdateRule):
    """Any optimizer of optax as an update rule.

    Parameters without a gradient keep their values and their parts of the state.
    """

    def __init__(self, native: optax.GradientTransformation) -> None:
        """Start without a state."""
        self.native = optax.with_extra_args_support(native)
        self.state: Any = None

    @property
    def lr(self) -> float:
        """The learning rate, where ``optax.inject_hyperparams`` makes it part of the state."""
        return float(self._hyperparameters()["learning_rate"])

    @lr.setter
    def lr(self, value: float) -> None:
        held = self._hyperparameters()
        held["learning_rate"] = jnp.asarray(value, held["learning_rate"].dtype)

    def _hyperparameters(self) -> Any:
        held = getattr(self.state, "hyperparams", {})
        if "learning_rate" not in held:
            raise CapabilityError(
                "this optax optimizer hides its learning rate: make it with "
                "optax.inject_hyperparams(...)(learning_rate=...)"
            )
        return held

    def state_for(self, members):
        if self.state is None:
            self.state = self.native.init(
                {name: slot.native.get_value() for name, slot in members.owned.items()}
            )
        return self.state

    def keep(self, state, taken):
        self.state = state

    def numbers(self, members):
        return None, ()

    def update(self, compiled, parameters, frozen, gradients, state, passed):
        everything = parameters | frozen
        full = {
            name: jnp.zeros_like(p) if gradients.get(name) is None else gradients[name]
            for name, p in everything.items()
        }
        updates, new_state = self.native.update(full, state, everything)
        taken = {name for name in parameters if gradients.get(name) is not None}
        new = {
            name: optax.apply_updates(p, updates[name]) if name in taken else None
            for name, p in parameters.items()
        }
        return new, _restored(state, new_state, set(everything) - taken)

    def neutral_state(self, members):
        found = {}
        for path, value in jax.tree_util.tree_flatten_with_path(self.state_for(members))[0]:
            slot = members.slots.get(parameter_of(path))
            found[_state_name(path)] = (
                arrays.numpy(value) if slot is None else slot.layout.to_neutral(arrays.numpy(value))
            )
        return found

    def load_neutral_state(self, state, members, steps):
        paths, tree = jax.tree_util.tree_flatten_with_path(self.state_for(members))
        missing = [name for name in (_state_name(path) for path, _ in paths) if name not in state]
        if missing:
            raise StateError(f"the state of this optax optimizer lacks {', '.join(missing)}")
        self.state = jax.tree.unflatten(
            tree, [_loaded(state[_state_name(path)], path, old, members) for path, old in paths]
        )


def parameter_of(path: tuple) -> str | None:
    """The parameter to which a part of a state belongs, by its path."""
    return next((key.key for key in path if isinstance(key, jax.tree_util.DictKey)), None)


def _state_name(path: tuple) -> str:
    """``"parameter/place"``, or ``"optax/place"`` for what belongs to no parameter."""
    name = parameter_of(path)
    place = jax.tree_util.keystr(
        [key for key in path if not isinstance(key, jax.tree_util.DictKey)],
        simple=True,
        separator=".",
    )
    return f"{name or 'optax'}/{place}"


def _loaded(value: Any, path: tuple, old: Any, members: Members) -> jax.Array:
    slot = members.slots.get(parameter_of(path) or "")
    return arrays.put_like(
        np.asarray(value) if slot is None else slot.layout.to_native(np.asarray(value)),
        jnp.asarray(old),
    )


def _restored(old: Any, new: Any, untouched: set[str]) -> Any:
    """The new state with the old parts of untouched parameters."""
    return jax.tree_util.tree_map_with_path(
        lambda path, o, n: o if parameter_of(path) in untouched else n, old, new
    )
