"""Collectives between replicas inside a compiled program.

The code of the replicas is cut at the rendezvous points, where they exchange sums, and runs piece
by piece.

Devices that take different branches cannot talk to each other inside of them. So each kind of
replica is recorded first. Between two rendezvous points every device takes the branch of its own
kind, and at a rendezvous point all of them have left their branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from deliralike.backends.jax.unstable import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    Primitive,
    ad,
    jaxpr_as_fun,
)
from deliralike.errors import CapabilityError, ReplicaError


def _sum_type(x: Any, *, topic: str) -> Any:
    return jax.core.ShapedArray(x.shape, x.dtype)


def _transpose_sum(cotangent: Any, x: Any, *, topic: str) -> tuple[Any]:
    return (_sync.bind(cotangent, topic=f"{topic}, backward"),)


_sync = Primitive("sum_over_replicas")
_sync.def_abstract_eval(_sum_type)
ad.deflinear2(_sync, _transpose_sum)


def sync_point(value: Any, topic: str) -> Any:
    """The sum over all replicas, in code that is being recorded."""
    return _sync.bind(jnp.asarray(value), topic=topic)


class ReplicaProgram:
    """The recorded code of one kind of replica, in pieces.

    Attributes:
        output_types: The shapes and types of its outputs.
        topics: What is summed up after each piece but the last, and its shape and type.
    """

    def __init__(self, function: Callable[..., Any], *operands: Any) -> None:
        """Record a function of flat lists of arrays that gives a flat list of arrays."""
        recorded = jax.make_jaxpr(function)(*operands)
        jaxpr = recorded.jaxpr
        self._inputs, self._outputs = jaxpr.invars, jaxpr.outvars
        self._constants = dict(zip(jaxpr.constvars, recorded.consts, strict=True))
        self.output_types = [*map(_type_of, jaxpr.outvars)]
        pieces: list[list[Any]] = [[]]
        self._sync_points: list[Any] = []
        self.topics: list[tuple] = []
        for equation in jaxpr.eqns:
            _refuse_hidden(equation)
            if equation.primitive is _sync:
                total = equation.outvars[0].aval
                self._sync_points.append(equation)
                self.topics.append((equation.params["topic"], total.shape, total.dtype))
                pieces.append([])
            else:
                pieces[-1].append(equation)
        self._carried = self._needed_later(pieces)
        self._pieces = []
        for number, equations in enumerate(pieces):
            is_last = number == len(self._sync_points)
            results = self._outputs if is_last else self._sync_points[number].invars
            outputs = [*self._carried[number], *results]
            self._pieces.append(_Piece(jaxpr, equations, outputs))

    def initial_values(self, operands: Sequence[Any]) -> dict[Any, Any]:
        """The values of variables before the first piece."""
        return self._constants | dict(zip(self._inputs, operands, strict=True))

    def run_piece(
        self, piece: int, known: dict[Any, Any]
    ) -> tuple[list[Any], list[Any]]:
        """Run one piece of a replica's code.

        Return what later pieces need of it, and what it brings to the rendezvous point, or the
        outputs after the last piece.
        """
        results = self._pieces[piece](known)
        count = len(self._carried[piece])
        return results[:count], results[count:]

    def carried_types(self, piece: int) -> list[Any]:
        """The shapes and types of what later pieces need of one."""
        return [variable.aval for variable in self._carried[piece]]

    def store(
        self,
        piece: int,
        known: dict[Any, Any],
        carried: Sequence[Any],
        total: Any = None,
    ) -> None:
        """Add the results of a piece, and the sum of the rendezvous after it, to known values."""
        known.update(zip(self._carried[piece], carried, strict=True))
        if piece < len(self._sync_points):
            known[self._sync_points[piece].outvars[0]] = total

    def _needed_later(self, pieces: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """The variables of each piece that later pieces read, or that are outputs.

        None of the last piece are needed later: the outputs come from it directly.
        """
        carried: list[list[Any]] = [[]]
        needed = {*map(id, [*self._outputs, *_read(pieces[-1])])}
        for equations, sync_point in reversed(
            [*zip(pieces, self._sync_points, strict=False)]
        ):
            written = _written(equations)
            carried.insert(
                0, [variable for variable in written if id(variable) in needed]
            )
            needed.update(map(id, _read([*equations, sync_point])))
        return carried


class _Piece:
    """Some of a program's equations, as a function of the variables that they read."""

    def __init__(
        self, whole: Any, equations: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        written = set(map(id, _written(equations)))
        inputs = {}
        for x in [*_read(equations), *outputs]:
            if not isinstance(x, Literal) and id(x) not in written:
                inputs[id(x)] = x
        self._inputs = list(inputs.values())
        part = Jaxpr(
            constvars=(),
            invars=self._inputs,
            outvars=list(outputs),
            eqns=list(equations),
            effects=whole.effects,
            debug_info=whole.debug_info,
        )
        self._function = jaxpr_as_fun(ClosedJaxpr(part, ()))

    def __call__(self, known: dict[Any, Any]) -> list[Any]:
        inputs = [known[variable] for variable in self._inputs]
        return self._function(*inputs)


def _type_of(variable: Any) -> jax.ShapeDtypeStruct:
    aval = variable.aval
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _written(equations: Sequence[Any]) -> list[Any]:
    variables = []
    for equation in equations:
        variables.extend(equation.outvars)
    return variables


def _read(equations: Sequence[Any]) -> list[Any]:
    variables = []
    for equation in equations:
        variables.extend(equation.invars)
    return variables


def refuse_different(topics: Sequence[Sequence[tuple]], names: Sequence[int]) -> None:
    """Raise an error when replicas do not come to the same topics in the same order.

    Args:
        topics: Of each kind of replica; a topic is a tuple whose first item says what it is.
        names: The number of a replica of each kind.

    Raises:
        ReplicaError: They do not.
    """
    for other, name in zip(topics[1:], names[1:], strict=True):
        for first_topic, topic in zip(topics[0], other, strict=False):
            if first_topic != topic:
                raise ReplicaError(
                    f"replica {names[0]} is at {_describe(first_topic)} while replica {name} is at "
                    f"{_describe(topic)}: every replica must run the same layers in the same order"
                )
        if len(topics[0]) < len(other):
            raise _missing_replica(other[len(topics[0])], waits=name, ended=names[0])
        if len(topics[0]) > len(other):
            raise _missing_replica(topics[0][len(other)], waits=names[0], ended=name)


def _missing_replica(topic: tuple, waits: int, ended: int) -> ReplicaError:
    return ReplicaError(
        f"replica {waits} waits for the others at {_describe(topic)}, but replica {ended} ended "
        "without coming there: every replica must run the same layers"
    )


def _describe(topic: tuple) -> str:
    name, *rest = topic
    if rest and rest[0]:
        return f"{name} of shape {tuple(rest[0])}"
    return name


def blank(like: Any) -> jax.Array:
    """Zeros of a shape and type."""
    if _is_key(like):
        return jnp.broadcast_to(jax.random.key(0), like.shape)
    return jnp.zeros(like.shape, like.dtype)


def strong(values: Sequence[Any]) -> list[Any]:
    """Arrays without weak types, which would follow the types of others."""
    arrays = []
    for value in values:
        array = jnp.asarray(value)
        if not _is_key(array):
            array = lax.convert_element_type(array, array.dtype)
        arrays.append(array)
    return arrays


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _refuse_hidden(equation: Any) -> None:
    """Raise an error when replicas would exchange something inside of an equation."""
    params = list(equation.params.values())
    for value in jax.tree.leaves(params, is_leaf=lambda x: hasattr(x, "eqns")):
        for inner in getattr(value, "eqns", ()):
            if inner.primitive is _sync:
                raise CapabilityError(
                    f"{inner.params['topic']} over the replicas cannot be taken inside of "
                    f"{equation.primitive.name}: call the layer outside of it"
                )
            _refuse_hidden(inner)
