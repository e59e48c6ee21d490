"""The replicas inside a compiled program: each computes on its device, on its share, with its own variables.

Shares of one size run the same code. Where sizes differ each is padded to the largest, and every device takes the
branch for its own size, which cuts off the padding; nothing is exchanged inside of a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from deliralike import random
from deliralike.backends.jax.mesh import Seats
from deliralike.backends.jax.program import Arguments, Members, Plain, packed, taken_apart, unpacked
from deliralike.errors import StructureError
from deliralike.parallel.scatter import Shares

Values = tuple[dict[str, Any], dict[str, Any], list[Any]]


class Mapped:
    """The replicas of one network inside a program.

    Attributes:
        changed: Which buffers and random states the replicas have changed, by their place in ``members.others``.
        sizes: The samples in each share of the latest run.
        taking_part: How many replicas have run.
    """

    def __init__(self, seats: Seats, members: Members, by_slot: Sequence[Values], buffers: str) -> None:
        """Begin with the local values of each slot's parameters, frozen parameters and others."""
        self.seats, self.members, self.buffers = seats, members, buffers
        self.parameters = [{**trainable, **frozen} for trainable, frozen, _ in by_slot]
        self.others = [list(others) for _, _, others in by_slot]
        self.changed: set[int] = set()
        self.sizes: tuple[int, ...] = ()
        self.taking_part = 0

    def run(self, function: Callable[[Any, Any], Any], shares: Shares) -> list[Any]:
        """``function(replica, share)`` on every replica that has a share; the results are the same everywhere."""
        self._settle()
        parts = [taken_apart((share,)) for share in shares.nests]
        self.sizes, self.taking_part = shares.sizes, max(self.taking_part, len(parts))
        results: dict[int, Any] = {}
        for slot in range(self.seats.slots):
            column = [r if r is not None and r < len(parts) else None for r in self.seats.column(slot)]
            if any(r is not None for r in column):
                results |= _Slot(self, slot, column, parts, shares.offsets).run(function)
        return [results[r] for r in range(len(parts))]

    def of_root(self) -> Values:
        """The root's values, the same everywhere."""
        named = {name: self._from_root(value) for name, value in self.parameters[0].items()}
        others = [jax.tree.map(self._from_root, value) for value in self.others[0]]
        pick = lambda names: {name: named[name] for name in names}  # noqa: E731
        return pick(self.members.parameters), pick(self.members.frozen), others

    def others_changed(self) -> list[Any]:
        """The changed buffers and random states, of each slot; None for those that stayed as they were."""
        return [[others[i] if i in self.changed else None for others in self.others]
                for i in range(len(self.members.others))]  # fmt: skip

    def _from_root(self, value: Any) -> Any:
        return self.seats.gathered(value)[0]  # the root is the first replica, on the first device

    def _settle(self) -> None:
        """Between two runs in one program: the policy of `ReplicatedNetwork.settle_buffers`."""
        for i in self.changed if self.sizes else ():
            if isinstance(self.members.others[i], nnx.RngKey):
                continue
            settled = self._mean(i) if self._is_averaged(i) else jax.tree.map(self._from_root, self.others[0][i])
            for others in self.others:
                others[i] = settled

    def _is_averaged(self, i: int) -> bool:
        is_float = hasattr(self.others[0][i], "dtype") and jnp.issubdtype(self.others[0][i].dtype, jnp.floating)
        return self.buffers == "mean" and is_float

    def _mean(self, i: int) -> Any:
        gathered = [self.seats.gathered(others[i]) for others in self.others]
        seats = map(self.seats.seat, range(len(self.sizes)))
        return weighted_mean([gathered[slot][device] for device, slot in seats], self.sizes)


def weighted_mean(values: Sequence[jax.Array], sizes: Sequence[int]) -> jax.Array:
    """The mean of the replicas' values, each counting for its share; in the order of replicas."""
    total = sum(sizes)
    return sum((value * (size / total) for value, size in zip(values[1:], sizes[1:], strict=True)),
               start=values[0] * (sizes[0] / total))  # fmt: skip


@dataclass(eq=False)
class _Kind:
    """What replicas have in common that run the same code: the arguments but for arrays' values, and their shapes.

    Attributes:
        first: The first of these replicas.
        result: What the outputs are but for arrays' values; known after tracing.
        shapes: The shapes of the outputs.
    """

    part: Arguments
    sizes: list[tuple[int, ...]]
    first: int
    result: Any = None
    shapes: list[Any] = field(default_factory=list)

    def fits(self, other: _Kind) -> bool:
        return self.part.key == other.part.key and self.sizes == other.sizes


class _Slot:
    """One replica on each device: those with the same number there."""

    def __init__(
        self, mapped: Mapped, slot: int, column: Sequence[int | None], parts: Sequence[Arguments], offsets: Any
    ) -> None:
        self.mapped, self.slot, self.column, self.parts, self.offsets = mapped, slot, column, parts, offsets
        self.seats, self.members = mapped.seats, mapped.members
        self.kinds: list[_Kind] = []
        self.kind_of = [None if r is None else self._kind(r) for r in column]

    def _kind(self, replica: int) -> int:
        part = self.parts[replica]
        new = _Kind(part, [jnp.shape(x) for x in part.arrays], replica)
        for number, kind in enumerate(self.kinds):
            if kind.fits(new):
                return number
        self.kinds.append(new)
        return len(self.kinds) - 1

    def run(self, function: Callable[[Any, Any], Any]) -> dict[int, Any]:
        """The results of the replicas of this slot, by replica."""
        first_sample = self.seats.of_this_device([0 if r is None else self.offsets[r] for r in self.column])
        operands = (
            self.mapped.parameters[self.slot], self.mapped.others[self.slot], self._shares(), first_sample
        )  # fmt: skip
        outputs, self.mapped.others[self.slot] = self._computed(function, operands)
        gathered = [self.seats.gathered(output) for output in outputs]
        return {
            r: self._result(self.kinds[number], [output[device] for output in gathered])
            for device, (r, number) in enumerate(zip(self.column, self.kind_of, strict=True))
            if r is not None and number is not None
        }

    def _computed(self, function: Callable, operands: tuple) -> tuple[list[Any], list[Any]]:
        if len(self.kinds) == 1 and None not in self.kind_of:
            return self._branch(self.kinds[0], function)(operands)
        for kind in self.kinds:
            kind.shapes = jax.eval_shape(self._branch(kind, function), operands)[0]
        wanted = self._largest()
        branches = [_padding(self._branch(kind, function), wanted) for kind in self.kinds]
        branches.append(lambda operands: ([jnp.zeros(x.shape, x.dtype) for x in wanted], operands[1]))
        number = self.seats.of_this_device([len(self.kinds) if n is None else n for n in self.kind_of])
        return lax.switch(number, branches, operands)

    def _branch(self, kind: _Kind, function: Callable) -> Callable[[tuple], tuple[list[Any], list[Any]]]:
        def branch(operands: tuple) -> tuple[list[Any], list[Any]]:
            parameters, others, arrays, first_sample = operands
            network, variables = self.members.rebuilt(parameters, parameters, others)
            own = [_cut(array, size) for array, size in zip(arrays, kind.sizes, strict=True)]
            with random.shifted(first_sample), self._noted(kind):
                leaves, spec = packed(function(network.root, *kind.part.together(own)))
            kind.result = [leaf if isinstance(leaf, Plain) else None for leaf in leaves], spec
            outputs = [jnp.asarray(leaf) for leaf in leaves if not isinstance(leaf, Plain)]
            kind.shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs]
            new = [variable.get_value() for variable in variables]
            self.mapped.changed |= {i for i, (a, b) in enumerate(zip(new, others, strict=True)) if a is not b}
            return outputs, new

        return branch

    @contextmanager
    def _noted(self, kind: _Kind) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            places = self.seats.places
            error.add_note(f"raised in replica {kind.first} of {len(self.parts)} on {places[kind.first]}")
            raise

    def _shares(self) -> list[Any]:
        columns = zip(*([None] * len(self.parts[0].arrays) if r is None else self.parts[r].arrays
                        for r in self.column), strict=True)  # fmt: skip
        return [self._local(column) for column in columns]

    def _local(self, values: Sequence[Any]) -> Any:
        """The array of each device as a local value, padded to the largest; one that all have alike as it is."""
        present = [value for value in values if value is not None]
        if len(self.seats.devices) == 1 or (_is_constant(present[0]) and all(v is present[0] for v in values)):
            return present[0]
        wanted = [max(sizes) for sizes in zip(*map(jnp.shape, present), strict=True)]
        blank = jnp.zeros(wanted, jnp.result_type(present[0]))
        return self.seats.taken(jnp.stack([blank if v is None else _padded(jnp.asarray(v), wanted) for v in values]))

    def _largest(self) -> list[Any]:
        columns = [kind.shapes for kind in self.kinds]
        same = len({tuple((len(x.shape), x.dtype) for x in column) for column in columns}) == 1
        if not same:
            raise StructureError(
                f"replicas {self.kinds[0].first} and {self.kinds[1].first} give outputs of different structure or "
                f"types: {_listed(columns[0])} and {_listed(columns[1])}"
            )
        return [
            jax.ShapeDtypeStruct(tuple(map(max, zip(*(x.shape for x in each), strict=True))), each[0].dtype)
            for each in zip(*columns, strict=True)
        ]

    def _result(self, kind: _Kind, outputs: Sequence[Any]) -> Any:
        rest = iter(_cut(output, like.shape) for output, like in zip(outputs, kind.shapes, strict=True))
        plain, spec = kind.result
        return unpacked(([next(rest) if leaf is None else leaf for leaf in plain], spec))


def _is_constant(value: Any) -> bool:
    """Whether no gradient flows through a value: a whole number, or a plain Python number."""
    return not jnp.issubdtype(jnp.result_type(value), jnp.inexact) or bool(getattr(value, "weak_type", True))


def _padding(branch: Callable, wanted: Sequence[Any]) -> Callable:
    def padded(operands: tuple) -> tuple[list[Any], list[Any]]:
        outputs, others = branch(operands)
        strong = [lax.convert_element_type(x, like.dtype) for x, like in zip(outputs, wanted, strict=True)]
        return [_padded(x, like.shape) for x, like in zip(strong, wanted, strict=True)], others

    return padded


def _padded(value: jax.Array, wanted: Sequence[int]) -> jax.Array:
    missing = [(0, after - before) for before, after in zip(value.shape, wanted, strict=True)]
    return jnp.pad(value, missing) if any(after for _, after in missing) else value


def _cut(value: Any, size: Sequence[int]) -> Any:
    return value if jnp.shape(value) == tuple(size) else value[tuple(slice(n) for n in size)]


def _listed(outputs: Sequence[Any]) -> str:
    return ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in outputs) or "none"
