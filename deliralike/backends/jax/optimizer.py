"""Optimizer steps on JAX: one compiled program a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deliralike import nest
from deliralike.backends.base import Gradients
from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.host_checks import checked
from deliralike.backends.jax.compiled.program import (
    Arguments,
    Members,
    ProgramCache,
    differentiated,
    forward,
    in_neutral_layouts,
    taken_apart,
    unpacked,
    where,
)
from deliralike.backends.jax.update_rules import UpdateRule
from deliralike.errors import DtypeError
from deliralike.nest import host_arrays
from deliralike.network.base import AbstractNetwork
from deliralike.optim.optimizer import AbstractOptimizer, refuse_unknown_owners

Named = dict[str, Any]


class JaxOptimizer(AbstractOptimizer):
    """An optimizer whose step is one compiled program.

    The program computes forward, backward, pre-update hooks and update; parameters change in place.

    A program is compiled once for a loss function, a shape of batch and a state of the network
    (training mode, frozen parameters), and kept while it is among the latest sixteen. Make the loss
    function once, outside of the loop: each new lambda is compiled anew. Arrays and floats of a
    batch are passed in; whole numbers, strings and flags are compiled in. Pre-update hooks are
    traced: within one, ``optimizer.network`` holds the traced parameters.

    Only the optimizer's own state is donated: arrays taken from a network stay valid after a step.
    """

    def __init__(
        self, network: AbstractNetwork, rule: UpdateRule, pattern: str | None = None
    ) -> None:
        """Follow a rule; the state is made at the first update."""
        super().__init__(network, pattern)
        self.rule = rule
        self._programs = ProgramCache(network, self.owns)
        owned = {
            id(slot.native) for slot in self._programs.members().owned.values()
        }  # by any name of a tied one
        rule.assign(
            {
                name: slot
                for name, slot in network.neutral_slots().items()
                if id(slot.native) in owned
            }
        )

    def prepared(self, batch):
        """Prepare a batch for a step: NumPy arrays stay on the host.

        They are copied in the network's type. A compiled program transfers them faster.
        """
        dtype, network = self._programs.members().dtype, self.network

        def leaf(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                value = host_arrays.plain(value)
                return np.array(arrays.narrowed(value), dtype if value.dtype.kind == "f" else None)
            if isinstance(value, jax.Array):
                return arrays.array(value, None, network.device_name)
            return host_arrays.refuse_foreign(value, network.backend.is_array)

        try:
            return (
                tuple(map(leaf, batch))
                if all(isinstance(x, np.ndarray) for x in batch)
                else nest.map(leaf, batch)
            )
        except DtypeError as error:
            raise host_arrays.explained(error, batch, network.backend.is_array) from None

    def update_at_once(self, loss_function, batch):
        """One step as one program; two of them when the gradients are to be kept."""
        if self.keep_gradients:
            return super().update_at_once(loss_function, batch)
        arguments = taken_apart(batch)
        members, here = self._programs.members(), where()
        compiled, passed = self.rule.numbers(members)
        key = (
            "update",
            loss_function,
            id(members),
            tuple(self.pre_update_hooks),
            arguments.key,
            here.seed,
            compiled,
        )
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
        (result, _), gradients = run_gradients(
            self._programs, members, loss_function, arguments, of_inputs=False, jit=self._jit
        )
        return unpacked(result), {
            name: gradients[0][name] for name in members.parameters
        }  # JAX sorts dicts

    def apply(self, gradients):
        """The update alone as one program."""
        members = self._programs.members()
        compiled, passed = self.rule.numbers(members)

        def make() -> Callable:
            def step(state: Any, values: tuple, gradients: Named, passed: Any) -> tuple:
                return self.rule.update(
                    compiled, values[0], members.only_owned(values[1]), gradients, state, passed
                )

            return self._jit(step, donate_argnums=0)

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
        """Return the optimizer's state arrays as ``"parameter/slot"``.

        Each parameter's own step count is ``"parameter/step"``.
        """
        return {"steps": np.array(self.steps)} | self.rule.neutral_state(self._programs.members())

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Take over state arrays by name, in each parameter's own type."""
        members = self._programs.members()
        refuse_unknown_owners(state, {*members.owned, "optax"})
        self.rule.load_neutral_state(state, members, int(state["steps"]))
        self.steps = int(state["steps"])

    def _whole_step(
        self,
        loss_function: Callable,
        members: Members,
        arguments: Arguments,
        here: Any,
        compiled: Any,
    ) -> Any:
        def step(state: Any, values: tuple, batch: list[Any], numbers: tuple, passed: Any) -> tuple:
            def loss(parameters: Named) -> tuple:
                return forward(
                    members, loss_function, (parameters, *values[1:]), arguments.together(batch)
                )

            with here.entered(numbers):
                (result, changed), gradients = differentiated(loss, values[0])
            gradients = self._hooked(
                members, values, {name: gradients[name] for name in members.parameters}
            )
            frozen = members.only_owned(values[1])
            parameters, state = self.rule.update(
                compiled, values[0], frozen, gradients, state, passed
            )
            return result, changed, parameters, state

        return checked(step, 2, partial(self._jit, donate_argnums=0))

    def _jit(self, function: Callable, **options: Any) -> Callable:
        """A function of the network's and the optimizer's arrays as a program."""
        return arrays.jit(function, **options)

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

    def _take_over(
        self, members: Members, parameters: Named, changed: list[Any], state: Any
    ) -> None:
        members.store(parameters, changed)
        self.rule.keep(state, [name for name, value in parameters.items() if value is not None])


def run_gradients(
    programs: ProgramCache,
    members: Members,
    loss_function: Callable,
    arguments: Arguments,
    of_inputs: bool,
    jit: Callable[..., Callable] = arrays.jit,
) -> tuple[Any, tuple[Named, list[Any]]]:
    """Run one compiled forward and backward pass; buffers change.

    Return the auxiliary output beside the loss, and the gradients.
    """
    here = where()
    in_arrays = tuple(
        isinstance(x, jax.Array | np.ndarray) for x in arguments.arrays
    )  # and not in a plain float

    def make() -> Callable:
        def run(values: tuple, batch: list[Any], numbers: tuple) -> tuple:
            floating = [
                of_inputs and is_array and jnp.issubdtype(x.dtype, jnp.floating)
                for is_array, x in zip(in_arrays, batch, strict=True)
            ]
            chosen = [
                x if is_floating else None for x, is_floating in zip(batch, floating, strict=True)
            ]

            def loss(at: tuple[Named, list[Any]]) -> tuple:
                inputs = [
                    x if given is None else given for x, given in zip(batch, at[1], strict=True)
                ]
                value, beside = forward(
                    members, loss_function, (at[0], *values[1:]), arguments.together(inputs)
                )
                return value, (beside, value)

            with here.entered(numbers):
                return differentiated(loss, (values[0], chosen))

        return checked(run, 1, jit)

    key = ("gradients", loss_function, id(members), arguments.key, here.seed, of_inputs, in_arrays)
    ((result, changed), value), gradients = programs.compiled(key, make)(
        members.values(), arguments.arrays, here.numbers
    )
    members.store({}, changed)
    return (result, value), gradients


def network_gradients(
    loss_function: Callable, network: AbstractNetwork, inputs: tuple
) -> Gradients:
    """Return the loss, and the gradients of parameters and floating inputs.

    The gradients are in PyTorch's layouts. The program is compiled anew at each call.
    """
    programs = ProgramCache(network)
    members, arguments = programs.members(), taken_apart(inputs)
    with arrays.compiling_quickly():
        (result, value), (parameters, of_inputs) = run_gradients(
            programs, members, loss_function, arguments, of_inputs=True
        )
    return in_neutral_layouts(
        network, members, arguments, value, parameters, of_inputs, unpacked(result)
    )
