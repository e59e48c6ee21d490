"""Optimizer steps on JAX: one compiled program a step, for the neutral rules and for any optimizer of optax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from deliralike.backends.base import Gradients
from deliralike.backends.jax import arrays
from deliralike.backends.jax.program import (
    Arguments,
    Members,
    Programs,
    differentiated,
    forward,
    in_neutral_layouts,
    taken_apart,
    unpacked,
    where,
)
from deliralike.errors import CapabilityError, StateError
from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer, refuse_unknown_owners
from deliralike.rules import Rule

Named = dict[str, Any]


class UpdateRule(ABC):
    """How parameters follow from gradients, with the state that this takes."""

    lr: float

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
        self, compiled: Any, parameters: Named, frozen: Named, gradients: Named, state: Any, passed: Any
    ) -> tuple:
        """New parameters (None for those without a gradient) and state; traced."""

    @abstractmethod
    def neutral_state(self, members: Members) -> dict[str, np.ndarray]:
        """The state by name."""

    @abstractmethod
    def load_neutral_state(self, state: dict[str, np.ndarray], members: Members, steps: int) -> None:
        """Take over the state by name."""


class NeutralRule(UpdateRule):
    """One of the neutral rules. Each parameter counts its own updates; bias corrections follow its own count."""

    def __init__(self, rule: Rule) -> None:
        """Start without a state."""
        self.rule = rule
        self.counts: dict[str, int] = {}
        self.slots: dict[str, Named] = {}

    @property
    def lr(self) -> float:  # type: ignore[override]
        """The learning rate of the next update; a new one compiles nothing."""
        return self.rule.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.rule = self.rule.with_lr(value)

    def state_for(self, members):
        for name, parameter in members.parameters.items():
            if name not in self.slots:
                self.slots[name] = {slot: jnp.zeros_like(parameter.get_value()) for slot in self.rule.slots}
        return {name: self.slots[name] for name in members.parameters}

    def keep(self, state, taken):
        self.slots |= state
        self.counts |= {name: self.counts.get(name, 0) + 1 for name in taken}

    def numbers(self, members):
        steps = {name: self.counts.get(name, 0) + 1 for name in members.parameters}
        distinct = sorted(set(steps.values()))
        groups = tuple((name, distinct.index(step)) for name, step in steps.items())
        return (self.rule.with_lr(0.0), groups), [(self.rule.scalars(step), step == 1) for step in distinct]

    def update(self, compiled, parameters, frozen, gradients, state, passed):
        rule, groups = compiled
        new: Named = {}
        for name, group in groups:
            p, g, (scalars, first) = parameters[name], gradients.get(name), passed[group]
            new[name] = (None, state[name]) if g is None else rule.update(p, g, state[name], scalars, first)
        return {name: p for name, (p, _) in new.items()}, {name: s for name, (_, s) in new.items()}

    def neutral_state(self, members):
        state = {}
        for name, slot in members.owned.items():
            for key in self._own_slots() if self.counts.get(name) else ():
                state[f"{name}/{key}"] = slot.layout.to_neutral(arrays.numpy(self.slots[name][key]))
            if self.counts.get(name) and self.rule.slots != ("momentum_buffer",):  # as PyTorch does
                state[f"{name}/step"] = np.array(self.counts[name], np.float32)
        return state

    def _own_slots(self) -> tuple[str, ...]:
        """The slots that this rule uses with its settings."""
        momentum = getattr(self.rule, "momentum", 1.0)
        return tuple(slot for slot in self.rule.slots if momentum or slot != "momentum_buffer")

    def load_neutral_state(self, state, members, steps):
        self.slots, self.counts = {}, {}
        for name, slot in members.owned.items():
            like = slot.native.get_value()
            found = {key: state[f"{name}/{key}"] for key in self.rule.slots if f"{name}/{key}" in state}
            if found or f"{name}/step" in state or not self.rule.slots:
                self.counts[name] = int(state.get(f"{name}/step", steps))
            self.slots[name] = {
                key: arrays.put_like(slot.layout.to_native(np.asarray(found[key])), like)
                if key in found
                else jnp.zeros_like(like)
                for key in self.rule.slots
            }


class NativeRule(UpdateRule):
    """Any optimizer of optax. Parameters without a gradient keep their values and their parts of the state."""

    def __init__(self, native: optax.GradientTransformation) -> None:
        """Start without a state."""
        self.native = optax.with_extra_args_support(native)
        self.state: Any = None

    @property
    def lr(self) -> float:  # type: ignore[override]
        """The learning rate, where ``optax.inject_hyperparams`` makes it part of the state."""
        return float(self._hyperparameters()["learning_rate"])

    @lr.setter
    def lr(self, value: float) -> None:
        held = self._hyperparameters()
        held["learning_rate"] = jnp.asarray(value, held["learning_rate"].dtype)

    def _hyperparameters(self) -> Any:
        held = getattr(self.state, "hyperparams", {})
        if "learning_rate" not in held:
            raise CapabilityError("this optax optimizer hides its learning rate: make it with "
                                  "optax.inject_hyperparams(...)(learning_rate=...)")  # fmt: skip
        return held

    def state_for(self, members):
        if self.state is None:
            self.state = self.native.init({name: slot.native.get_value() for name, slot in members.owned.items()})
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
        new = {name: optax.apply_updates(p, updates[name]) if name in taken else None for name, p in parameters.items()}
        return new, _restored(state, new_state, set(everything) - taken)

    def neutral_state(self, members):
        found = {}
        for path, value in jax.tree_util.tree_flatten_with_path(self.state_for(members))[0]:
            slot = members.slots.get(_parameter_of(path))
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


class JaxOptimizer(AbstractOptimizer):
    """One compiled program a step: forward, backward, pre-update hooks and update; parameters change in place.

    A program is compiled once for a loss function, a shape of batch and a state of the network (training mode, frozen
    parameters), and kept while it is among the latest sixteen. Make the loss function once, outside of the loop: each
    new lambda is compiled anew. Arrays and floats of a batch are passed in; whole numbers, strings and flags are
    compiled in. Pre-update hooks are traced: within one, ``optimizer.network`` holds the traced parameters.

    Only the optimizer's own state is donated: arrays taken from a network stay valid after a step.
    """

    def __init__(self, network: AbstractNetwork, rule: UpdateRule, pattern: str | None = None) -> None:
        """Follow a rule; the state is made at the first update."""
        super().__init__(network, pattern)
        self.rule = rule
        self._programs = Programs(network, self.owns)

    def update(self, loss_function, *batch):
        """One step as one program."""
        arguments = taken_apart(self.network.backend.prepare(batch, self.network))
        members, here = self._programs.members(), where()
        compiled, passed = self.rule.numbers(members)
        key = ("update", loss_function, id(members), tuple(self.pre_update_hooks), arguments.key, here.seed, compiled)
        program = self._programs.compiled(
            key, lambda: self._whole_step(loss_function, members, arguments, here, compiled)
        )
        result, changed, parameters, state = program(
            self.rule.state_for(members), members.values(), arguments.arrays, here.numbers, passed
        )
        self._take_over(members, parameters, changed, state)
        self.finish_update(name for name, value in parameters.items() if value is not None)
        return unpacked(result)

    def gradients(self, loss_function, *batch):
        """Forward and backward as one program; buffers change."""
        arguments, members = taken_apart(batch), self._programs.members()
        (result, _), gradients = run_gradients(self._programs, members, loss_function, arguments, of_inputs=False)
        return unpacked(result), {name: gradients[0][name] for name in members.parameters}  # JAX sorts dicts

    def apply(self, gradients):
        """The update alone as one program."""
        members = self._programs.members()
        compiled, passed = self.rule.numbers(members)

        def make() -> Callable:
            def step(state: Any, values: tuple, gradients: Named, passed: Any) -> tuple:
                return self.rule.update(compiled, values[0], members.only_owned(values[1]), gradients, state, passed)

            return jax.jit(step, donate_argnums=0)

        program = self._programs.compiled(("apply", id(members), compiled), make)
        known = {name: gradients.get(name) for name in members.parameters}
        parameters, state = program(self.rule.state_for(members), members.values(), known, passed)
        self._take_over(members, parameters, [None] * len(members.others), state)

    @property
    def lr(self) -> float:
        """The learning rate of the next update; setting it compiles nothing."""
        return self.rule.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.rule.state_for(self._programs.members())
        self.rule.lr = value

    def neutral_state(self) -> dict[str, np.ndarray]:
        """State arrays as ``"parameter/slot"``, each parameter's own step count as ``"parameter/step"``."""
        return {"steps": np.array(self.steps)} | self.rule.neutral_state(self._programs.members())

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Take over state arrays by name, in each parameter's own type."""
        members = self._programs.members()
        refuse_unknown_owners(state, {*members.owned, "optax"})
        self.rule.load_neutral_state(state, members, int(state["steps"]))
        self.steps = int(state["steps"])

    def _whole_step(
        self, loss_function: Callable, members: Members, arguments: Arguments, here: Any, compiled: Any
    ) -> Any:
        def step(state: Any, values: tuple, batch: list[Any], numbers: tuple, passed: Any) -> tuple:
            def loss(parameters: Named) -> tuple:
                return forward(members, loss_function, (parameters, *values[1:]), arguments.together(batch))

            with here.entered(numbers):
                (result, changed), gradients = differentiated(loss, values[0])
            gradients = self._hooked(members, values, {name: gradients[name] for name in members.parameters})
            frozen = members.only_owned(values[1])
            parameters, state = self.rule.update(compiled, values[0], frozen, gradients, state, passed)
            return result, changed, parameters, state

        return jax.jit(step, donate_argnums=0)

    def _hooked(self, members: Members, values: tuple, gradients: Named) -> Named:
        network = self.network
        try:
            if self.pre_update_hooks:
                self.network = members.rebuilt(*values)[0]
            for pre_update in self.pre_update_hooks:
                gradients = pre_update(self, gradients)
        finally:
            self.network = network
        return gradients

    def _take_over(self, members: Members, parameters: Named, changed: list[Any], state: Any) -> None:
        members.store(parameters, changed)
        self.rule.keep(state, [name for name, value in parameters.items() if value is not None])


def run_gradients(
    programs: Programs, members: Members, loss_function: Callable, arguments: Arguments, of_inputs: bool
) -> tuple[Any, tuple[Named, list[Any]]]:
    """One compiled forward and backward; buffers change. Gives what came beside the loss, and the gradients."""
    here = where()
    in_arrays = tuple(isinstance(x, jax.Array | np.ndarray) for x in arguments.arrays)  # and not in a plain float

    def make() -> Callable:
        def run(values: tuple, batch: list[Any], numbers: tuple) -> tuple:
            floating = [of_inputs and is_array and jnp.issubdtype(x.dtype, jnp.floating)
                        for is_array, x in zip(in_arrays, batch, strict=True)]  # fmt: skip
            chosen = [x if is_floating else None for x, is_floating in zip(batch, floating, strict=True)]

            def loss(at: tuple[Named, list[Any]]) -> tuple:
                inputs = [x if given is None else given for x, given in zip(batch, at[1], strict=True)]
                value, beside = forward(members, loss_function, (at[0], *values[1:]), arguments.together(inputs))
                return value, (beside, value)

            with here.entered(numbers):
                return differentiated(loss, (values[0], chosen))

        return jax.jit(run)

    key = ("gradients", loss_function, id(members), arguments.key, here.seed, of_inputs, in_arrays)
    ((result, changed), value), gradients = programs.compiled(key, make)(
        members.values(), arguments.arrays, here.numbers
    )
    members.store({}, changed)
    return (result, value), gradients


def network_gradients(loss_function: Callable, network: AbstractNetwork, inputs: tuple) -> Gradients:
    """Loss and gradients of parameters and floating inputs, in PyTorch's layouts; compiled anew at each call."""
    programs = Programs(network)
    members, arguments = programs.members(), taken_apart(inputs)
    (_, value), (parameters, of_inputs) = run_gradients(programs, members, loss_function, arguments, of_inputs=True)
    return in_neutral_layouts(network, members, arguments, value, parameters, of_inputs)


def _parameter_of(path: tuple) -> str | None:
    return next((key.key for key in path if isinstance(key, jax.tree_util.DictKey)), None)


def _state_name(path: tuple) -> str:
    """``"parameter/place"``, or ``"optax/place"`` for what belongs to no parameter."""
    name = _parameter_of(path)
    place = jax.tree_util.keystr(
        [key for key in path if not isinstance(key, jax.tree_util.DictKey)], simple=True, separator="."
    )
    return f"{name or 'optax'}/{place}"


def _loaded(value: Any, path: tuple, old: Any, members: Members) -> jax.Array:
    slot = members.slots.get(_parameter_of(path) or "")
    return arrays.put_like(
        np.asarray(value) if slot is None else slot.layout.to_native(np.asarray(value)), jnp.asarray(old)
    )


def _restored(old: Any, new: Any, untouched: set[str]) -> Any:
    """The new state with the old parts of untouched parameters."""
    return jax.tree_util.tree_map_with_path(lambda path, o, n: o if _parameter_of(path) in untouched else n, old, new)
