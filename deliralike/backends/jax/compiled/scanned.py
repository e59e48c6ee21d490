"""Several steps in one compiled program: a loop over the batches, which are stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from deliralike import nest
from deliralike.backends.jax.compiled.host_checks import stand_for
from deliralike.nest import host_arrays


def scanned(step: Callable[..., tuple], updated: list[str]) -> Callable[..., tuple]:
    """Return steps, each from the state and the values that the one before has left.

    Args:
        step: ``step(state, values, batch, position, numbers)`` returns its result, and the new
            buffers, parameters and state, with None for what has not changed.
        updated: Takes the names of the parameters that a step updates, when the steps are traced.

    Returns:
        The same of all steps together, with the results stacked. Its batch is one of stacked
        arrays; the last two arguments are lists with those of each step.
    """

    def steps(state: Any, values: tuple, batches: list, positions: list, numbers: list) -> tuple:
        parameters, frozen, others = values
        # Python's numbers stay such, and take the type of the arrays that they meet: stacked ones
        # would have a type of their own.
        choices = [lambda each=each: each for each in zip(positions, numbers, strict=True)]

        def one(carry: tuple, at: tuple) -> tuple:
            state, parameters, others = carry
            index, batch = at
            position, number = lax.switch(index, choices)
            stand_for(batch)
            before = parameters, frozen, others
            result, changed, new, state = step(state, before, batch, position, number)
            updated[:] = [name for name, value in new.items() if value is not None]
            parameters = parameters | {name: new[name] for name in updated}
            others = [old if now is None else now for old, now in zip(others, changed, strict=True)]
            return (state, parameters, others), result

        carry, each = (state, parameters, others), (np.arange(len(choices)), batches)
        unroll = len(choices) if _is_slow_in_loops(one, carry, each) else 1
        (state, parameters, others), results = lax.scan(one, carry, each, unroll=unroll)
        return results, others, parameters, state

    return steps


def _is_slow_in_loops(one: Callable[..., Any], carry: Any, each: Any) -> bool:
    """Return whether a step has convolutions, which take XLA's CPU four times as long in a loop."""
    if jax.default_backend() != "cpu":
        return False
    first = jax.tree.map(lambda leaf: leaf[0], each)
    return "conv_general_dilated" in str(jax.make_jaxpr(one)(carry, first))


def stack_steps(batches: Sequence[tuple]) -> tuple:
    """Return the batches of several steps as one, whose arrays are stacked.

    Raises:
        ValueError: They differ in more than the values of their arrays.
        DtypeError: An array holds objects, texts or dates, or masked elements, or is one of
            another framework.
    """
    return nest.map(_stack, *batches)


def _stack(*of_steps: Any) -> Any:
    leaves = [*map(_checked, of_steps)]
    first = leaves[0]
    if isinstance(first, jax.Array):
        return jax.numpy.stack(leaves)
    if isinstance(first, np.ndarray | np.generic | float):
        return np.stack(leaves)
    if any(leaf != first for leaf in leaves):
        raise ValueError(f"{first!r} is not the same in all steps")
    return first


def _checked(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return host_arrays.plain(leaf)
    return host_arrays.refuse_foreign(leaf, lambda value: isinstance(value, jax.Array))


@dataclass(frozen=True)
class OfStep:
    """One step's number among those of several, which are still on the device."""

    stacked: jax.Array
    step: int

    def __float__(self) -> float:
        """Wait for the device; all are read at the first call."""
        return float(np.asarray(self.stacked)[self.step])


def split_steps(results: Any, count: int, is_array: Callable[[Any], bool]) -> list[Any]:
    """Return the results of each step: scalars that are read later, arrays cut out at once."""
    leaves, structure = nest.flatten(results)

    def cut(leaf: Any, step: int) -> Any:
        if not is_array(leaf):
            return leaf
        return OfStep(leaf, step) if leaf.ndim == 1 else leaf[step]

    return [nest.unflatten(structure, [cut(leaf, i) for leaf in leaves]) for i in range(count)]
