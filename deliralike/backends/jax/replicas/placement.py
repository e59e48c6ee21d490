"""Traced programs whose replicas run on their devices: the only place that puts code on devices.

A step is traced as if it were for one device, with each replica's code in a function of its own.
Such a function and the derivative that JAX makes of it are a program on the replica's device; what
lies around them is compiled for the first device. The host dispatches the programs in order and
waits for none, so that devices compute at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from deliralike.backends.jax import arrays
from deliralike.backends.jax.unstable import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    dce_jaxpr,
    jaxpr_as_fun,
    part_of,
)

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
        needed = set(filter(_is_variable, traced.jaxpr.outvars))
        pieces = []
        for replica, equations in reversed(_pieces(traced.jaxpr)):
            device = devices[replica or 0]
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
        jaxpr = part_of(whole, self.inputs, self.outputs, equations)
        self._device = device
        self._program = arrays.jit(jaxpr_as_fun(ClosedJaxpr(jaxpr, ())))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs, after moving inputs that are elsewhere."""
        return self._program(*arrays.move_all(inputs, self._device))


def _pieces(whole: Jaxpr) -> list[tuple[int | None, list[Any]]]:
    """Return equations as few pieces, each of one replica, or of none, in an order to run them.

    An equation joins the first piece of its replica that follows all pieces it reads from. So a
    replica's forward and backward pass are one piece unless something between them needs the
    other replicas.
    """
    stages: dict[Any, tuple[int, int | None]] = {}  # of the variables written so far
    pieces: dict[tuple[int, int | None], list[Any]] = {}
    for replica, equation in _in_surroundings_first(whole):
        stage = 0
        for variable in filter(_is_variable, equation.invars):
            before, writer = stages.get(variable, (0, replica))
            stage = max(stage, before if writer == replica else before + 1)
        pieces.setdefault((stage, replica), []).append(equation)
        for variable in equation.outvars:
            stages.setdefault(variable, (stage, replica))
    in_order = sorted(pieces.items(), key=lambda piece: piece[0][0])
    return [(replica, equations) for (_, replica), equations in in_order]


def _in_surroundings_first(whole: Jaxpr) -> Iterator[tuple[int | None, Any]]:
    """Yield each equation with its replica.

    A number that a replica computes of the batch alone for its surroundings, such as the
    denominator of a mean, is yielded before it as an equation of the surroundings.
    """
    replicas = [(_replica_of(equation), equation) for equation in whole.eqns]
    read_outside: set[Any] = set()
    written_outside: set[Any] = set()
    for replica, equation in replicas:
        if replica is None:
            read_outside.update(filter(_is_variable, equation.invars))
            written_outside.update(equation.outvars)
    for replica, equation in replicas:
        if replica is not None and not equation.effects:  # a callback is made once
            for number in _numbers(equation, read_outside):
                alone = _only(whole, equation, number)
                if written_outside.issuperset(filter(_is_variable, alone.invars)):
                    yield None, alone
        yield replica, equation


def _numbers(equation: Any, read: set[Any]) -> list[Any]:
    """Return the outputs of an equation that are read and have no axes."""
    outputs = filter(read.__contains__, equation.outvars)
    return [output for output in outputs if output.aval.shape == ()]


def _only(whole: Jaxpr, equation: Any, output: Any) -> Any:
    """Return an equation that computes one output of another."""
    inputs = [*filter(_is_variable, equation.invars)]
    jaxpr = part_of(whole, inputs, [output], [equation])
    (only,) = dce_jaxpr(jaxpr, [True])[0].eqns
    return only


def _replica_of(equation: Any) -> int | None:
    """Return the replica whose code an equation is."""
    name = str(equation.params.get("name", ""))
    if name.startswith(_PREFIX):
        return int(name.removeprefix(_PREFIX))
    return None


def _is_variable(value: Any) -> bool:
    return not isinstance(value, Literal)
