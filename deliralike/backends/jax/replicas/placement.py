"""Traced programs whose replicas run on their devices: the only place that puts code on devices.

A step is traced as if it were for one device, with each replica's code in a function of its own.
Such a function, and the derivative that JAX makes of it, are programs on the replica's device; what
lies between them is compiled for the first device. The host dispatches them in order and waits for
none, so that devices compute at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from deliralike.backends.jax import arrays
from deliralike.backends.jax.unstable import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

_PREFIX = "deliralike_replica_"


def replica_function(function: Callable[..., Any], replica: int) -> Callable[..., Any]:
    """Return a function that a placed program runs on a replica's device.

    Within other programs, and in a loop or branch, it is computed where its surroundings are.
    """

    def named(*values: Any) -> Any:
        return function(*values)

    named.__name__ = f"{_PREFIX}{replica}"
    return jax.jit(named)


class PlacedProgram:
    """A function of nests of arrays whose replicas run on their devices.

    It is traced and compiled once for each kind of arguments. Results are on the device that
    computed them.
    """

    def __init__(self, function: Callable[..., Any], devices: Sequence[str]) -> None:
        """Take a function, and the device of each replica."""
        self._function = function
        self._devices = [*map(arrays.find_device, devices)]
        self._plans: dict[Any, tuple[_Plan, Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's results, which may not be computed yet."""
        leaves, structure = jax.tree.flatten(arguments)
        kind = structure, tuple(map(jax.typeof, leaves))
        if kind not in self._plans:
            traced, shapes = jax.make_jaxpr(self._function, return_shape=True)(
                *arguments
            )
            plan = _Plan(traced, self._devices)
            self._plans[kind] = plan, jax.tree.structure(shapes)
        plan, results = self._plans[kind]
        return jax.tree.unflatten(results, plan.run(leaves))


class _Plan:
    """A traced function as pieces, each with its device."""

    def __init__(self, traced: ClosedJaxpr, devices: Sequence[jax.Device]) -> None:
        self._traced = traced
        runs = _runs_on_devices(traced.jaxpr.eqns, devices)
        needed = set(filter(_is_variable, traced.jaxpr.outvars))
        pieces = []
        for device, equations in reversed(runs):
            piece = _Piece(traced.jaxpr, device, equations, needed)
            needed.update(piece.inputs)
            pieces.append(piece)
        self._pieces = pieces[::-1]

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Run the pieces in order."""
        jaxpr = self._traced.jaxpr
        known = dict(zip(jaxpr.constvars, self._traced.consts, strict=True))
        known.update(zip(jaxpr.invars, arguments, strict=True))
        for piece in self._pieces:
            inputs = [known[variable] for variable in piece.inputs]
            known.update(zip(piece.outputs, piece.run(inputs), strict=True))
        return [known[x] if _is_variable(x) else x.val for x in jaxpr.outvars]


class _Piece:
    """Equations of a program that run on one device."""

    def __init__(
        self,
        whole: Jaxpr,
        device: jax.Device,
        equations: Sequence[Any],
        needed: set[Any],
    ) -> None:
        """Compile equations.

        Args:
            needed: The variables that later pieces read, and the results of the whole.
        """
        written: dict[Any, None] = {}
        read: dict[Any, None] = {}
        for equation in equations:
            read.update(dict.fromkeys(filter(_is_variable, equation.invars)))
            written.update(dict.fromkeys(equation.outvars))
        self.inputs = [variable for variable in read if variable not in written]
        self.outputs = [variable for variable in written if variable in needed]
        jaxpr = Jaxpr(
            constvars=(),
            invars=self.inputs,
            outvars=self.outputs,
            eqns=list(equations),
            effects=whole.effects,
            debug_info=whole.debug_info,
        )
        self._device = device
        self._program = arrays.jit(jaxpr_as_fun(ClosedJaxpr(jaxpr, ())))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs, after moving inputs that are elsewhere."""
        return self._program(*arrays.move_all(inputs, self._device))


def _runs_on_devices(
    equations: Iterable[Any], devices: Sequence[jax.Device]
) -> list[tuple[jax.Device, list[Any]]]:
    """Return the equations in order: each replica's alone, and all that lies between together."""
    runs: list[tuple[jax.Device, list[Any]]] = []
    is_open = False
    for equation in equations:
        name = str(equation.params.get("name", ""))
        is_replica = name.startswith(_PREFIX)
        if is_replica:
            device = devices[int(name.removeprefix(_PREFIX))]
            runs.append((device, [equation]))
        elif is_open:
            runs[-1][1].append(equation)
        else:
            runs.append((devices[0], [equation]))
        is_open = not is_replica
    return runs


def _is_variable(value: Any) -> bool:
    return not isinstance(value, Literal)
