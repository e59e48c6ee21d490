"""Gradients of a loss function, within a program and as what leaves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from deliralike.backends.base import Gradients
from deliralike.backends.jax import arrays
from deliralike.backends.jax.arrays import numpy as to_host
from deliralike.backends.jax.compiled.program import (
    Arguments,
    ModuleVariables,
    Named,
    Values,
    pack,
)
from deliralike.backends.jax.unstable import dce_jaxpr, jaxpr_as_fun
from deliralike.backends.jax.variables import array_of
from deliralike.optim.loss import LossResult, no_array, no_scalar


def forward(
    variables: ModuleVariables,
    loss_function: Callable[..., Any],
    values: Values,
    batch: tuple,
) -> tuple[Any, Any]:
    """Return the loss on a copy of the network around traced values.

    The result, the changed buffers and the written parameters are returned beside it.
    """
    result, changed, written = run_on_copy(variables, loss_function, values, batch)
    return scalar_loss(result), (pack(result), changed, written)


def run_on_copy(
    variables: ModuleVariables,
    function: Callable[..., Any],
    values: Values,
    batch: tuple,
) -> tuple[Any, list[Any], Named]:
    """Return a function's result on a copy of the network around traced values.

    The buffers and the parameters that the function has set are returned beside it.
    """
    rebuilt = variables.rebuild(*values)
    with variables.in_place(rebuilt, *values):
        result = function(rebuilt.network, *batch)
    variables.traced_settings = variables.settings_written(rebuilt)
    written = variables.written(rebuilt, *values[:2])
    return result, changed_values(rebuilt.others, values[2]), written


def changed_values(
    variables: Sequence[nnx.Variable], before: Sequence[Any]
) -> list[Any]:
    """The values of variables; None for each that still has the value of before."""
    changed = []
    for variable, old in zip(variables, before, strict=True):
        value = array_of(variable)
        changed.append(None if value is old else value)
    return changed


def scalar_loss(result: Any) -> Any:
    """The loss in what a loss function returned.

    Raises:
        ArgumentError: The loss is no array, but a number of Python's, say.
        ShapeError: The loss is no scalar.
    """
    loss = LossResult.of(result).value
    if not isinstance(loss, jax.Array):
        raise no_array(loss)
    if np.shape(loss) != ():
        raise no_scalar(np.shape(loss))
    return loss


def aux_and_gradient(
    function: Callable[[Any], tuple[Any, Any]],
    at: Any,
) -> tuple[Any, Any]:
    """Return the auxiliary output of a function, and the gradient of its value.

    The gradient is None at leaves that the value does not depend on.

    The function is traced once. What depends on a leaf is read from the traced derivative: a zero
    in the gradient does not tell a parameter that took no part from one whose gradient vanishes.
    """
    leaves, tree = jax.tree.flatten(at)

    def of_leaves(*leaves: Any) -> tuple[Any, Any]:
        return function(jax.tree.unflatten(tree, leaves))

    traced, shapes = jax.make_jaxpr(of_leaves, return_shape=True)(*leaves)
    run = jaxpr_as_fun(traced)

    used = _used_leaves(lambda flat: run(*flat)[0], leaves)

    def of_used(used_leaves: list[Any]) -> tuple[Any, list[Any]]:
        loss, *aux = run(*_replace(leaves, used, used_leaves))
        return loss, aux

    used_leaves = [leaves[place] for place in used]
    gradients, aux = jax.grad(of_used, has_aux=True)(used_leaves)
    _, aux_shapes = shapes
    aux = jax.tree.unflatten(jax.tree.structure(aux_shapes), aux)
    everything = _replace([None] * len(leaves), used, gradients)
    return aux, jax.tree.unflatten(tree, everything)


def _used_leaves(function: Callable[[list[Any]], Any], leaves: list[Any]) -> list[int]:
    """The places of the leaves that the derivative of a function depends on."""

    def derivative(tangents: list[Any]) -> Any:
        return jax.jvp(function, (leaves,), (tangents,))[1]

    traced = jax.make_jaxpr(derivative)(leaves)
    _, are_used = dce_jaxpr(traced.jaxpr, [True])
    return [place for place, is_used in enumerate(are_used) if is_used]


def _replace(
    values: Sequence[Any], places: Sequence[int], new: Sequence[Any]
) -> list[Any]:
    """Return values with new ones in some places."""
    replaced = list(values)
    for place, value in zip(places, new, strict=True):
        replaced[place] = value
    return replaced


def neutral_gradients(
    network: Any,
    variables: ModuleVariables,
    arguments: Arguments,
    loss: Any,
    parameters: Named,
    inputs: list[Any],
    result: Any = None,
) -> Gradients:
    """Return a loss and its native gradients as NumPy arrays in neutral layouts.

    What is traced, within a transformation of JAX, stays so. Gradients of tied parameters appear
    under every name; those of inputs keep the inputs' nest.
    """
    by_variable = {}
    for name, gradient in parameters.items():
        by_variable[id(variables.parameters[name])] = gradient
    neutral: dict[str, np.ndarray | None] = {}
    for name, slot in network.neutral_slots().items():
        if slot.trainable:
            gradient = _on_host(by_variable[id(slot.native)])
            neutral[name] = (
                None if gradient is None else slot.layout.to_neutral(gradient)
            )
    without_statics = tuple((is_array, None) for is_array, _ in arguments.static)
    only_arrays = Arguments(arguments.spec, without_statics, [])
    of_inputs = only_arrays.unflatten([*map(_on_host, inputs)])
    extras = LossResult.of(result).extras or ()
    if arrays.is_traced(loss):
        return Gradients(loss, neutral, of_inputs, extras)
    return Gradients(float(loss), neutral, of_inputs, network.backend.to_numpy(extras))


def _on_host(gradient: Any) -> Any:
    if gradient is None or arrays.is_traced(gradient):
        return gradient
    return to_host(gradient)
