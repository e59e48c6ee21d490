"""Optimizer steps on JAX: one compiled program a step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import numpy as np

from deliralike.backends.base import Gradients
from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.compile_messages import name_program
from deliralike.backends.jax.compiled.gradients import (
    aux_and_gradient,
    forward,
    neutral_gradients,
)
from deliralike.backends.jax.compiled.host_checks import with_host_checks
from deliralike.backends.jax.compiled.program import (
    Arguments,
    ModuleVariables,
    Named,
    ProgramCache,
    StreamPosition,
    Values,
    flatten_arguments,
    floating_inputs,
    replace_present,
    stream_position,
    unpack,
)
from deliralike.backends.jax.compiled.surroundings import Surroundings
from deliralike.backends.jax.update_rules import NativeRule, NeutralRule
from deliralike.nest.arrays import converted, plain, refuse_foreign
from deliralike.network.base import AbstractNetwork
from deliralike.optim.optimizer import AbstractOptimizer


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
        self,
        network: AbstractNetwork,
        rule: NeutralRule | NativeRule,
        pattern: str | None = None,
    ) -> None:
        """Follow a rule; the state is made at the first update."""
        super().__init__(network, pattern)
        self.rule = rule
        self._programs = ProgramCache(network, self.owns)
        rule.assign(self.owned_slots())

    def prepared(self, batch):
        """Prepare a batch for a step: NumPy arrays stay on the host.

        They are copied in the network's type. A compiled program transfers them faster.
        """
        dtype, network = self._programs.variables().dtype, self.network

        def prepare(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                value = plain(value)
                is_float = value.dtype.kind == "f"
                return np.array(arrays.narrow(value), dtype if is_float else None)
            if isinstance(value, jax.Array):
                return arrays.array(value, None, network.device_name)
            return refuse_foreign(value, network.backend.is_array)

        return converted(batch, prepare, network.backend.is_array)

    def update_at_once(self, loss_function, batch):
        """One step as one program; two of them when the gradients are to be kept."""
        if self.keep_gradients:
            return super().update_at_once(loss_function, batch)
        arguments = flatten_arguments(batch)
        variables, position = self._programs.latest, stream_position()  # of `prepared`
        constants, numbers = self.rule.numbers(variables)
        surroundings = self._programs.surroundings(
            loss_function, *self.pre_update_hooks
        )
        key = (
            "update",
            loss_function,
            surroundings.key,
            id(variables),
            tuple(self.pre_update_hooks),
            arguments.key,
            position.seed,
            constants,
        )
        program = self._programs.get_or_compile(
            key,
            lambda: self._whole_step(
                surroundings, loss_function, variables, arguments, position, constants
            ),
        )
        result, changed, parameters, state = program(
            self.rule.state_for(variables),
            variables.values(),
            arguments.arrays,
            position.numbers,
            numbers,
        )
        self.finish_update(self._store(variables, parameters, changed, state))
        variables.write_settings(program)
        return unpack(result)

    def gradients(self, loss_function, *batch):
        """Run forward and backward as one program; buffers change."""
        arguments, variables = flatten_arguments(batch), self._programs.variables()
        (result, _), (gradients, _) = run_gradients(
            self._programs,
            variables,
            loss_function,
            arguments,
            of_inputs=False,
            jit=self._jit,
        )
        return unpack(result), in_order(gradients, variables)

    def apply(self, gradients):
        """Run the update alone as one program."""
        self.apply_sum([gradients])

    def apply_sum(self, summands: Sequence[Named]) -> list[str]:
        """Update by the sum of several gradients, as one program.

        Return the names of the parameters that change; one without a gradient in any of them is
        left alone.
        """
        variables = self._programs.variables()
        constants, numbers = self.rule.numbers(variables)

        def make() -> Callable:
            def step(
                state: Any, values: Values, summands: list[Named], numbers: Any
            ) -> tuple:
                parameters, frozen, _ = values
                owned = variables.only_owned(frozen)
                gradients = {name: _total(summands, name) for name in parameters}
                return self.rule.update(
                    constants, parameters, owned, gradients, state, numbers
                )

            return self._jit(step, donate_argnums=0)

        program = self._programs.get_or_compile(
            ("apply", id(variables), constants), make
        )
        known = []
        for gradients in summands:
            known.append({name: gradients.get(name) for name in variables.parameters})
        state = self.rule.state_for(variables)
        parameters, state = program(state, variables.values(), known, numbers)
        return self._store(variables, parameters, [None] * len(variables.others), state)

    @property
    def lr(self) -> float:
        """The learning rate of the next update; setting it compiles nothing."""
        if not isinstance(self.rule, NeutralRule):  # optax keeps it in the state
            self.rule.state_for(self._programs.variables())
        return self.rule.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.rule.state_for(self._programs.variables())
        self.rule.lr = value

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return the optimizer's state arrays as ``"parameter/slot"``.

        Each parameter's own step count is ``"parameter/step"``.
        """
        return {"steps": np.array(self.steps)} | self.rule.neutral_state(
            self._programs.variables()
        )

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Take over state arrays by name, in each parameter's own type."""
        variables = self._programs.variables()
        self.refuse_wrong_state(state, {*variables.owned, "optax"})
        self.rule.load_neutral_state(state, variables, int(state["steps"]))
        self.steps = int(state["steps"])

    def native_state_shapes(self, name):
        """Return the shapes of the arrays of optax that are named after a parameter."""
        arrays_by_name = self.rule.neutral_state(self._programs.variables())
        shapes = {}
        for key, array in arrays_by_name.items():
            owner, _, slot = key.rpartition("/")
            if owner == name:
                shapes[slot] = array.shape
        return shapes

    def _whole_step(self, surroundings: Surroundings, *what: Any) -> Any:
        step = self._step(*what)
        name_program(step, "step", type(self.network))
        jit = partial(self._jit, donate_argnums=0)
        return with_host_checks(step, 2, surroundings.compiler(jit))

    def _step(
        self,
        loss_function: Callable,
        variables: ModuleVariables,
        arguments: Arguments,
        position: StreamPosition,
        constants: Any,
    ) -> Callable:
        def step(
            state: Any,
            values: Values,
            batch: list[Any],
            position_numbers: tuple,
            numbers: Any,
        ) -> tuple:
            parameters, frozen, others = values

            def loss(parameters: Named) -> tuple:
                at = (parameters, frozen, others)
                return forward(variables, loss_function, at, arguments.unflatten(batch))

            with position.enter(position_numbers):
                (result, changed, written), gradients = aux_and_gradient(
                    loss, parameters
                )
            # the update begins at what forward has set, as in a loop by hand
            parameters = {
                name: written.get(name, value) for name, value in parameters.items()
            }
            frozen = {name: written.get(name, value) for name, value in frozen.items()}
            values = parameters, frozen, others
            gradients = self._run_hooks(
                variables, values, in_order(gradients, variables)
            )
            owned = variables.only_owned(frozen)
            updated, state = self.rule.update(
                constants, parameters, owned, gradients, state, numbers
            )
            updated = {
                name: value for name, value in updated.items() if value is not None
            }
            return result, changed, written | updated, state

        return step

    def _jit(self, function: Callable, **options: Any) -> Callable:
        """A function of the network's and the optimizer's arrays as a program."""
        return arrays.jit(function, **options)

    def _run_hooks(
        self, variables: ModuleVariables, values: Values, gradients: Named
    ) -> Named:
        network = self.network
        try:
            if self.pre_update_hooks:
                self.network = variables.rebuild(*values).network
            for pre_update in self.pre_update_hooks:
                gradients = pre_update(self, gradients)
        finally:
            self.network = network
        return gradients

    def _store(
        self,
        variables: ModuleVariables,
        parameters: Named,
        changed: list[Any],
        state: Any,
    ) -> list[str]:
        """Store the results of an update; return the names of the parameters that it changed."""
        variables.store(parameters, changed)
        updated = [
            name for name in variables.parameters if parameters.get(name) is not None
        ]
        self.rule.keep(state, updated)
        return updated


def _total(summands: Sequence[Named], name: str) -> Any:
    """Return the sum of a parameter's gradients, in their order; None where it has none."""
    present = [each[name] for each in summands if each[name] is not None]
    return reduce(operator.add, present) if present else None


def in_order(gradients: Named, variables: ModuleVariables) -> Named:
    """Gradients in the order of parameters: JAX sorts dicts."""
    return {name: gradients[name] for name in variables.parameters}


def run_gradients(
    programs: ProgramCache,
    variables: ModuleVariables,
    loss_function: Callable,
    arguments: Arguments,
    of_inputs: bool,
    jit: Callable[..., Callable] = arrays.jit,
) -> tuple[Any, tuple[Named, list[Any]]]:
    """Run one compiled forward and backward pass; buffers change.

    Return the auxiliary output beside the loss, and the gradients.
    """
    position, are_arrays = stream_position(), arguments.are_arrays
    surroundings = programs.surroundings(loss_function)

    def make() -> Callable:
        def run(values: Values, batch: list[Any], numbers: tuple) -> tuple:
            parameters, frozen, others = values
            differentiable: list[Any] = [None] * len(batch)
            if of_inputs:
                differentiable = floating_inputs(batch, are_arrays)

            def loss(at: tuple[Named, list[Any]]) -> tuple:
                inputs = arguments.unflatten(replace_present(batch, at[1]))
                value, aux = forward(
                    variables, loss_function, (at[0], frozen, others), inputs
                )
                return value, (aux, value)

            with position.enter(numbers):
                return aux_and_gradient(loss, (parameters, differentiable))

        name_program(run, "gradients", type(variables.network))
        return with_host_checks(run, 1, surroundings.compiler(jit))

    key = (
        "gradients",
        loss_function,
        surroundings.key,
        id(variables),
        arguments.key,
        position.seed,
        of_inputs,
        are_arrays,
    )
    program = programs.get_or_compile(key, make)
    aux, gradients = program(variables.values(), arguments.arrays, position.numbers)
    (result, changed, written), value = aux
    if written or any(each is not None for each in changed):
        variables.store(written, changed)
    variables.write_settings(program)
    return (result, value), gradients


def network_gradients(
    loss_function: Callable, network: AbstractNetwork, inputs: tuple
) -> Gradients:
    """Return the loss, and the gradients of parameters and floating inputs.

    The gradients are in PyTorch's layouts. The program is traced at each call, and compiled unless
    it has been.
    """
    programs = ProgramCache(network)
    variables, arguments = programs.variables(), flatten_arguments(inputs)
    with arrays.compiling_quickly():
        (result, value), (parameters, of_inputs) = run_gradients(
            programs, variables, loss_function, arguments, of_inputs=True
        )
    return neutral_gradients(
        network, variables, arguments, value, parameters, of_inputs, unpack(result)
    )
