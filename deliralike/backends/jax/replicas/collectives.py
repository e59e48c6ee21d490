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
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad

from deliralike.errors import CapabilityError, ReplicaError

_meet = Primitive("sum_over_replicas")
_meet.def_abstract_eval(lambda x, *, topic: jax.core.ShapedArray(x.shape, x.dtype))
ad.deflinear2(_meet, lambda ct, x, *, topic: (_meet.bind(ct, topic=f"{topic}, backward"),))


def meeting_point(value: Any, topic: str) -> Any:
    """The sum over all replicas, in code that is being recorded."""
    return _meet.bind(jnp.asarray(value), topic=topic)


class Script:
    """The recorded code of one kind of replica, in pieces.

    Attributes:
        shapes: The shapes and types of its results.
        topics: What is summed up after each piece but the last, and its shape.
    """

    def __init__(self, function: Callable[..., Any], *operands: Any) -> None:
        """Record a function of flat lists of arrays that gives a flat list of arrays."""
        recorded: ClosedJaxpr = jax.make_jaxpr(function)(*operands)
        self._inputs, self._outputs = recorded.jaxpr.invars, recorded.jaxpr.outvars
        self._constants = dict(zip(recorded.jaxpr.constvars, recorded.consts, strict=True))
        self.shapes = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in self._outputs]
        pieces: list[list[Any]] = [[]]
        self._meetings: list[Any] = []
        for equation in recorded.jaxpr.eqns:
            _refuse_hidden(equation)
            if equation.primitive is _meet:
                self._meetings.append(equation)
                pieces.append([])
            else:
                pieces[-1].append(equation)
        self.topics = [
            (each.params["topic"], each.outvars[0].aval.shape, each.outvars[0].aval.dtype)
            for each in self._meetings
        ]
        self._kept = self._needed_later(pieces)
        brought = [*(each.invars for each in self._meetings), self._outputs]
        self._pieces = [
            _Piece(recorded.jaxpr, equations, [*kept, *each])
            for equations, kept, each in zip(pieces, self._kept, brought, strict=True)
        ]

    def begin(self, operands: Sequence[Any]) -> dict[Any, Any]:
        """What the code knows before its first piece."""
        return self._constants | dict(zip(self._inputs, operands, strict=True))

    def played(self, piece: int, known: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
        """Run one piece of a replica's code.

        Return what later pieces need of it, and what it brings to the rendezvous point, or the
        results after the last piece.
        """
        results = self._pieces[piece](known)
        count = len(self._kept[piece])
        return results[:count], results[count:]

    def kept(self, piece: int) -> list[Any]:
        """The shapes and types of what later pieces need of one."""
        return [variable.aval for variable in self._kept[piece]]

    def learn(
        self, piece: int, known: dict[Any, Any], kept: Sequence[Any], total: Any = None
    ) -> None:
        """Remember what a piece gave, and the sum of the rendezvous after it."""
        known.update(zip(self._kept[piece], kept, strict=True))
        if piece < len(self._meetings):
            known[self._meetings[piece].outvars[0]] = total

    def _needed_later(self, pieces: Sequence[Sequence[Any]]) -> list[list[Any]]:
        needed = {id(x) for x in self._outputs}
        kept: list[list[Any]] = [[]]  # nothing comes after the last piece
        for number in reversed(range(len(pieces))):
            made = [variable for equation in pieces[number] for variable in equation.outvars]
            if number < len(pieces) - 1:
                kept.insert(0, [variable for variable in made if id(variable) in needed])
            read = [
                x
                for equation in [*pieces[number], *self._meetings[number : number + 1]]
                for x in equation.invars
            ]
            needed |= {id(x) for x in read}
        return kept


class _Piece:
    """Some of a program's equations, as a function of the variables that they read."""

    def __init__(self, whole: Any, equations: Sequence[Any], outputs: Sequence[Any]) -> None:
        made = {id(variable) for equation in equations for variable in equation.outvars}
        read = [x for equation in equations for x in equation.invars] + list(outputs)
        self._reads = list(
            {id(x): x for x in read if not isinstance(x, Literal) and id(x) not in made}.values()
        )
        part = Jaxpr(
            (), self._reads, list(outputs), list(equations), whole.effects, whole.debug_info
        )
        self._function = jaxpr_as_fun(ClosedJaxpr(part, ()))

    def __call__(self, known: dict[Any, Any]) -> list[Any]:
        return self._function(*(known[variable] for variable in self._reads))


def refuse_different(topics: Sequence[Sequence[tuple]], names: Sequence[int]) -> None:
    """An error when replicas do not come to the same topics in the same order.

    Args:
        topics: Of each kind of replica; a topic is a tuple whose first item says what it is.
        names: The number of a replica of each kind.
    """
    for other, name in zip(topics[1:], names[1:], strict=True):
        for mine, its in zip(topics[0], other, strict=False):
            if mine != its:
                raise ReplicaError(
                    f"replica {names[0]} is at {_told(mine)} while replica {name} is at "
                    f"{_told(its)}: every replica must run the same layers in the same order"
                )
        if len(topics[0]) != len(other):
            (fewer, ended), (more, waits) = sorted(
                [(topics[0], names[0]), (other, name)], key=lambda each: len(each[0])
            )
            raise ReplicaError(
                f"replica {waits} waits for the others at {_told(more[len(fewer)])}, but replica "
                f"{ended} ended without coming there: every replica must run the same layers"
            )


def _told(topic: tuple) -> str:
    return topic[0] + "".join(f" of shape {tuple(shape)}" for shape in topic[1:2] if shape)


def blank(like: Any) -> jax.Array:
    """Zeros of a shape and type."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), like.shape)
    return jnp.zeros(like.shape, like.dtype)


def strong(values: Sequence[Any]) -> list[Any]:
    """Arrays of which none takes its type from others."""
    return [
        x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else lax.convert_element_type(x, x.dtype)
        for x in map(jnp.asarray, values)
    ]


def _refuse_hidden(equation: Any) -> None:
    for value in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
    ):
        for inner in getattr(value, "eqns", ()):
            if inner.primitive is _meet:
                raise CapabilityError(
                    f"{inner.params['topic']} over the replicas cannot be taken inside of "
                    f"{equation.primitive.name}: call the layer outside of it"
                )
            _refuse_hidden(inner)
