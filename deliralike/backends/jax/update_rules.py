"""The updates of parameters on JAX: the neutral rules, and any optimizer of optax."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.program import ModuleVariables, Named
from deliralike.backends.jax.network import JaxSlot, Layout
from deliralike.backends.jax.variables import array_of
from deliralike.errors import CapabilityError, StateError
from deliralike.optim.groups import Groups
from deliralike.optim.optimizer import no_closure
from deliralike.optim.rules import Rule


class NeutralRule:
    """A neutral update rule on JAX.

    Each parameter counts its own updates; bias corrections follow its own count.
    """

    def __init__(self, groups: Groups) -> None:
        """Start without a state."""
        self.groups = groups
        self.places: dict[str, int] = {}
        self.updates = 0
        # of each parameter: the updates of others that it took no part in; in most networks none
        self.missed: dict[str, int] = {}
        self.slots: dict[str, Named] = {}
        self._kinds = groups.without_lr()
        self._latest: tuple = (None, None, None, None)

    def assign(self, slots):
        """Assign the optimizer's parameters to rules, before the first update."""
        self.places = self.groups.indices(slots)

    def rule_of(self, name: str) -> Rule:
        """The rule that a parameter follows."""
        if name in self.places:
            return self.groups.rules[self.places[name]]
        return self.groups.rules[self.groups.index(name)]

    @property
    def lr(self) -> float:
        """The learning rate of the next update; a new one compiles nothing."""
        return self.groups.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.groups = self.groups.with_lr(value)

    def count(self, name: str) -> int:
        """The number of updates of a parameter."""
        return self.updates - self.missed.get(name, self.updates)

    def state_for(self, variables):
        """Return the state that one update of these parameters needs, made where there is none."""
        for name in variables.parameters.keys() - self.slots.keys():
            self.slots[name] = _empty_state(self.rule_of(name), variables.slots[name])
        return {name: self.slots[name] for name in variables.parameters}

    def keep(self, state, updated):
        """Store the state after an update of the parameters named."""
        self.slots |= state
        for name in self.slots.keys() - self.missed.keys():
            self.missed[name] = self.updates
        self.updates += 1
        for name in self.missed.keys() - updated:
            self.missed[name] += 1

    def numbers(self, variables):
        """Return the numbers that are compiled in, and those that are passed.

        Rules without learning rates, and which parameter follows which rule, are compiled in; the
        numbers of rule and step are passed.
        """
        latest, missed, constants, distinct = self._latest
        if latest is not variables or missed != self.missed:
            constants, distinct = self._compiled_in(variables)
            self._latest = (variables, dict(self.missed), constants, distinct)
        step = self.updates + 1
        return constants, [
            self.groups.rules[place].scalars(step - m) for place, m in distinct
        ]

    def _compiled_in(
        self, variables: ModuleVariables
    ) -> tuple[tuple, list[tuple[int, int]]]:
        """Return the rules and what each parameter follows.

        Those that follow the same rule at the same count share its numbers: the places of their
        rules and the updates that they missed are returned, too.
        """
        for name in (
            variables.parameters.keys() - self.places.keys()
        ):  # of blocks that came later
            self.places[name] = self.groups.index(name)
        pairs = []
        for name in variables.parameters:
            pairs.append((self.places[name], self.missed.get(name, self.updates)))
        distinct = sorted(set(pairs))
        assignment = []
        for name, pair in zip(variables.parameters, pairs, strict=True):
            slot = variables.slots[name]
            # the layout that it leaves for its update and its state
            layout = Layout() if self.rule_of(name).any_layout else slot.layout
            assignment.append((name, self.places[name], distinct.index(pair), layout))
        return (self._kinds, tuple(assignment)), distinct

    def update(self, constants, parameters, frozen, gradients, state, numbers):
        """Return new parameters (None for those without a gradient) and state; traced."""
        kinds, assignment = constants
        new_parameters: Named = {}
        new_state: Named = {}
        for name, place, step, layout in assignment:
            parameter, old = parameters[name], state[name]
            gradient = gradients.get(name)
            if gradient is None:
                new_parameters[name], new_state[name] = None, old
            else:
                p, g = layout.permute(parameter, jnp), layout.permute(gradient, jnp)
                p, new_state[name] = kinds[place].update(p, g, old, numbers[step], jnp)
                new_parameters[name] = layout.to_native(p, jnp)
        return new_parameters, new_state

    def neutral_state(self, variables):
        """Return the state by name."""
        state = {}
        for name, slot in variables.owned.items():
            if self.count(name):
                for key, value in self.slots[name].items():
                    array = arrays.numpy(value)
                    if self.rule_of(name).any_layout:
                        array = slot.layout.to_neutral(array)
                    state[f"{name}/{key}"] = array
                if self.rule_of(name).counts:
                    state[f"{name}/step"] = np.array(self.count(name), np.float32)
        return state

    def load_neutral_state(self, state, variables, steps):
        """Load the state by name."""
        self.slots, counts = {}, {}
        for name, slot in variables.owned.items():
            rule = self.rule_of(name)
            slots = self.slots[name] = _empty_state(rule, slot)
            is_present = f"{name}/step" in state or not slots
            for key, zeros in slots.items():
                if f"{name}/{key}" in state:
                    is_present = True
                    value = np.asarray(state[f"{name}/{key}"])
                    if rule.any_layout:
                        value = slot.layout.to_native(value)
                    slots[key] = arrays.put_like(value, zeros)
            counts[name] = int(state.get(f"{name}/step", steps)) if is_present else 0
        self.updates = max(counts.values(), default=0)
        self.missed = {name: self.updates - count for name, count in counts.items()}


def _empty_state(rule: Rule, slot: JaxSlot) -> Named:
    """The state of a parameter before its first update.

    It has the parameter's own layout, or PyTorch's where the rule depends on it.
    """
    value = array_of(slot.native)
    native = value.shape if rule.any_layout else slot.shape
    state = {}
    for name, shape in rule.state_shapes(native).items():
        state[name] = arrays.zeros(shape, value)
    return state


class NativeRule:
    """Any optimizer of optax as an update rule, with the methods of `NeutralRule`.

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
        hyperparameters = self._hyperparameters()
        dtype = hyperparameters["learning_rate"].dtype
        hyperparameters["learning_rate"] = jnp.asarray(value, dtype)

    def _hyperparameters(self) -> Any:
        hyperparameters = getattr(self.state, "hyperparams", {})
        if "learning_rate" not in hyperparameters:
            raise CapabilityError(
                "this optax optimizer hides its learning rate: make it with "
                "optax.inject_hyperparams(...)(learning_rate=...)"
            )
        return hyperparameters

    def assign(self, slots):
        """Do nothing: optax has one rule for all parameters."""

    def state_for(self, variables):
        if self.state is None:
            values = {
                name: array_of(slot.native) for name, slot in variables.owned.items()
            }
            self.state = self.native.init(values)
        return self.state

    def keep(self, state, updated):
        self.state = state

    def numbers(self, variables):
        return None, ()

    def update(self, constants, parameters, frozen, gradients, state, numbers):
        everything = parameters | frozen
        full = {}
        for name, value in everything.items():
            gradient = gradients.get(name)
            full[name] = jnp.zeros_like(value) if gradient is None else gradient
        try:
            updates, new_state = self.native.update(full, state, everything)
        except TypeError as error:
            if "value_fn" not in str(error):
                raise
            raise no_closure("this optimizer of optax") from error
        new_parameters: Named = dict.fromkeys(parameters)
        untouched = set(everything)
        for name, value in parameters.items():
            if gradients.get(name) is not None:
                new_parameters[name] = optax.apply_updates(value, updates[name])
                untouched.remove(name)
        return new_parameters, _restore(state, new_state, untouched)

    def neutral_state(self, variables):
        state = {}
        paths, _ = jax.tree_util.tree_flatten_with_path(self.state_for(variables))
        for path, value in paths:
            array = arrays.numpy(value)
            slot = variables.slots.get(parameter_of(path))
            neutral = array if slot is None else slot.layout.to_neutral(array)
            state[_state_name(path, variables.slots)] = neutral
        return state

    def load_neutral_state(self, state, variables, steps):
        paths, tree = jax.tree_util.tree_flatten_with_path(self.state_for(variables))
        names = [_state_name(path, variables.slots) for path, _ in paths]
        missing = [name for name in names if name not in state]
        if missing:
            raise StateError(
                f"the state of this optax optimizer lacks {', '.join(missing)}"
            )
        leaves = []
        for name, (path, old) in zip(names, paths, strict=True):
            value = np.asarray(state[name])
            slot = variables.slots.get(parameter_of(path) or "")
            if slot is not None:
                value = slot.layout.to_native(value)
            leaves.append(arrays.put_like(value, jnp.asarray(old)))
        self.state = jax.tree.unflatten(tree, leaves)


def parameter_of(path: tuple) -> str | None:
    """The parameter to which a part of a state belongs, by its path."""
    for key in path:
        if isinstance(key, jax.tree_util.DictKey):
            return key.key
    return None


def _state_name(path: tuple, parameters: Container[str]) -> str:
    """``"parameter/place"``, or ``"optax/place"`` for what belongs to no parameter."""
    name = parameter_of(path)
    if name not in parameters:  # such as a learning rate among hyperparameters
        return f"optax/{jax.tree_util.keystr(path, simple=True, separator='.')}"
    keys = [key for key in path if not isinstance(key, jax.tree_util.DictKey)]
    return f"{name}/{jax.tree_util.keystr(keys, simple=True, separator='.')}"


def _restore(old: Any, new: Any, untouched: set[str]) -> Any:
    """The new state with the old parts of untouched parameters."""

    def choose(path: tuple, old_value: Any, new_value: Any) -> Any:
        return old_value if parameter_of(path) in untouched else new_value

    return jax.tree_util.tree_map_with_path(choose, old, new)
