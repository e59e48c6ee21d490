"""The replicas inside a compiled program.

Each replica computes on its device, on its share, with its own variables.

Shares of one size run the same code. Where sizes differ each is padded to the largest, and every
device takes the branch for its own size, which cuts off the padding; nothing is exchanged inside of
a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from deliralike.backends.jax.compiled.program import (
    Arguments,
    Members,
    Plain,
    packed,
    taken_apart,
    unpacked,
)
from deliralike.backends.jax.replicas.collectives import (
    Script,
    blank,
    meeting_point,
    refuse_different,
    strong,
)
from deliralike.backends.jax.replicas.mesh import Seats
from deliralike.errors import CapabilityError, StructureError
from deliralike.parallel.batches.scatter import Shares
from deliralike.parallel.replicas.context import Replica, entered
from deliralike.parallel.replicas.network import ReplicaSettings

Values = tuple[dict[str, Any], dict[str, Any], list[Any]]


class Mapped:
    """The replicas of one network inside a program.

    Attributes:
        alone: Whether each replica's code is compiled apart from all other code, so that its
            results are bit-identical wherever it runs.
        changed: Which buffers and random states the replicas have changed, by their place in
            ``members.others``.
        sizes: The samples in each share of the latest run.
        taking_part: How many replicas have run.
    """

    def __init__(
        self, seats: Seats, members: Members, by_slot: Sequence[Values], settings: ReplicaSettings
    ) -> None:
        """Begin with the local values of each slot's parameters, frozen parameters and others."""
        self.seats, self.members, self.buffers = seats, members, settings.buffers
        self.alone = settings.virtual_shards is not None
        self.parameters = [{**trainable, **frozen} for trainable, frozen, _ in by_slot]
        self.others = [list(others) for _, _, others in by_slot]
        self.changed: set[int] = set()
        self.sizes: tuple[int, ...] = ()
        self.taking_part = 0

    def run(self, function: Callable[[Any, Any], Any], shares: Shares) -> list[Any]:
        """Run ``function(replica, share)`` on every replica that has a share.

        The results are the same everywhere.
        """
        self._settle()
        self.sizes, self.taking_part = shares.sizes, max(self.taking_part, len(shares.sizes))
        return _Run(self, function, shares).results()

    def of_root(self) -> Values:
        """The root's values, the same everywhere."""
        named = {name: self._from_root(value) for name, value in self.parameters[0].items()}
        others = [jax.tree.map(self._from_root, value) for value in self.others[0]]
        pick = lambda names: {name: named[name] for name in names}  # noqa: E731
        return pick(self.members.parameters), pick(self.members.frozen), others

    def others_changed(self) -> list[Any]:
        """Return the changed buffers and random states of each slot.

        Those that stayed as they were are None.
        """
        return [
            [others[i] if i in self.changed else None for others in self.others]
            for i in range(len(self.members.others))
        ]

    def settled(self) -> list[Any]:
        """Return the root's changed buffers and random states, by the buffer policy.

        Those that stayed as they were are None.
        """
        self._settle()
        return [value if i in self.changed else None for i, value in enumerate(self.others[0])]

    def _from_root(self, value: Any) -> Any:
        return self.seats.gathered(value)[0]  # the root is the first replica, on the first device

    def _settle(self) -> None:
        """Between two runs in one program: the policy of `Replicas.synchronize_buffers`."""
        for i in self.changed if self.sizes else ():
            if isinstance(self.members.others[i], nnx.RngKey):
                continue
            settled = (
                self._mean(i)
                if self._is_averaged(i)
                else jax.tree.map(self._from_root, self.others[0][i])
            )
            for others in self.others:
                others[i] = settled

    def _is_averaged(self, i: int) -> bool:
        is_float = hasattr(self.others[0][i], "dtype") and jnp.issubdtype(
            self.others[0][i].dtype, jnp.floating
        )
        return self.buffers == "mean" and is_float

    def _mean(self, i: int) -> Any:
        gathered = [self.seats.gathered(others[i]) for others in self.others]
        seats = map(self.seats.seat, range(len(self.sizes)))
        return weighted_mean([gathered[slot][device] for device, slot in seats], self.sizes)


def weighted_mean(values: Sequence[jax.Array], sizes: Sequence[int]) -> jax.Array:
    """The mean of the replicas' values, each counting for its share; in the order of replicas."""
    total = sum(sizes)
    return sum(
        (value * (size / total) for value, size in zip(values[1:], sizes[1:], strict=True)),
        start=values[0] * (sizes[0] / total),
    )


@dataclass(frozen=True, eq=False)
class _Kind:
    """The common properties of replicas that run the same code.

    They are the arguments except for the values of arrays, and the shapes of these.

    Attributes:
        replicas: All of them.
    """

    part: Arguments
    shapes: list[tuple[int, ...]]
    replicas: list[int]

    def fits(self, part: Arguments) -> bool:
        """Whether another replica runs the same code."""
        return self.part.key == part.key and self.shapes == [jnp.shape(x) for x in part.arrays]


@dataclass(frozen=True, eq=False)
class _Place(Replica):
    """A replica in a program: its index is that of the device that computes, and may be traced."""

    offset: Any = 0

    @property
    def first_sample(self) -> Any:
        """The index, within the whole batch, of this replica's first sample."""
        return self.offset


class _Run:
    """One run of all replicas, slot by slot, from one rendezvous point to the next."""

    def __init__(self, mapped: Mapped, function: Callable[[Any, Any], Any], shares: Shares) -> None:
        self.mapped, self.function, self.shares = mapped, function, shares
        self.seats, self.members = mapped.seats, mapped.members
        self.parts = [taken_apart((share,)) for share in shares.nests]
        self.kinds: list[_Kind] = []
        self.kind_of = [self._kind(replica) for replica in range(len(self.parts))]
        self.columns = [
            [r if r is not None and r < len(self.parts) else None for r in self.seats.column(slot)]
            for slot in range(self.seats.slots)
        ]
        self.columns = [column for column in self.columns if column != [None] * len(column)]
        self.told: dict[int, list[tuple[str, Any]]] = {}
        self.structures: dict[int, Any] = {}

    def _kind(self, replica: int) -> int:
        for number, kind in enumerate(self.kinds):
            if kind.fits(self.parts[replica]):
                kind.replicas.append(replica)
                return number
        part = self.parts[replica]
        self.kinds.append(_Kind(part, [jnp.shape(x) for x in part.arrays], [replica]))
        return len(self.kinds) - 1

    def results(self) -> list[Any]:
        """The results of the replicas in order."""
        operands = [self._operands(slot) for slot in range(len(self.columns))]
        scripts = self._scripts(operands[0])
        self.wanted = self._largest(scripts)
        brought = self._played(scripts, [jax.tree.leaves(each) for each in operands])
        gathered = []
        for slot, values in enumerate(brought):
            gathered.append([self.seats.gathered(value) for value in values[: len(self.wanted)]])
            tree = jax.tree.structure(self.mapped.others[slot])
            self.mapped.others[slot] = jax.tree.unflatten(tree, values[len(self.wanted) :])
        seats = map(self.seats.seat, range(len(self.parts)))
        return [
            self._result(scripts, replica, [value[device] for value in gathered[slot]])
            for replica, (device, slot) in enumerate(seats)
        ]

    # Recording
    # ----------------------------------------------------------------------------------------------

    def _operands(self, slot: int) -> tuple:
        column, offsets = self.columns[slot], self.shares.offsets
        first_sample = self.seats.of_this_device([0 if r is None else offsets[r] for r in column])
        index = self.seats.of_this_device([0 if r is None else r for r in column])
        arrays = [self._local(slot, i) for i in range(len(self.parts[0].arrays))]
        return self.mapped.parameters[slot], self.mapped.others[slot], arrays, first_sample, index

    def _local(self, slot: int, i: int) -> Any:
        """Return an argument of each device as a local value, padded to the largest.

        An argument that all devices have alike is returned as it is.
        """
        everyone = [part.arrays[i] for part in self.parts]
        if _is_constant(everyone[0]) and all(value is everyone[0] for value in everyone):
            return everyone[0]
        wanted = [max(sizes) for sizes in zip(*map(jnp.shape, everyone), strict=True)]
        zeros = jnp.zeros(wanted, jnp.result_type(everyone[0]))
        values = [
            zeros if r is None else _padded(jnp.asarray(everyone[r]), wanted)
            for r in self.columns[slot]
        ]
        return self.seats.taken(jnp.stack(values))

    def _scripts(self, operands: tuple) -> list[Script]:
        leaves, tree = jax.tree.flatten(operands)
        scripts = [self._script(number, tree, leaves) for number in range(len(self.kinds))]
        if any(self.told.values()):
            said = [
                [(topic, ()) for topic, _ in self.told[number]] for number in range(len(self.kinds))
            ]
            refuse_different(said, self._firsts())
            self.exchanged = [
                [values for _, values in self.told[number]] for number in range(len(self.kinds))
            ]
            scripts = [self._script(number, tree, leaves) for number in range(len(self.kinds))]
        refuse_different([script.topics for script in scripts], self._firsts())
        return scripts

    def _firsts(self) -> list[int]:
        return [kind.replicas[0] for kind in self.kinds]

    exchanged: list[list[Any]] | None = None

    def _script(self, number: int, tree: Any, leaves: list[Any]) -> Script:
        def flat(*given: Any) -> list[Any]:
            return self._code(number, *jax.tree.unflatten(tree, given))

        self.told[number] = []
        with self._noted(self.kinds[number]):
            return Script(flat, *leaves)

    def _code(
        self,
        number: int,
        parameters: dict,
        others: list[Any],
        arrays: list[Any],
        first_sample: Any,
        index: Any,
    ) -> list[Any]:
        kind = self.kinds[number]
        network, variables = self.members.rebuilt(parameters, parameters, others)
        own = [_cut(array, shape) for array, shape in zip(arrays, kind.shapes, strict=True)]
        with entered(self._place(number, first_sample, index)):
            leaves, spec = packed(self.function(network.root, *kind.part.together(own)))
        self.structures[number] = (
            [leaf if isinstance(leaf, Plain) else None for leaf in leaves],
            spec,
        )
        new = [variable.get_value() for variable in variables]
        self.mapped.changed |= {
            i for i, (a, b) in enumerate(zip(new, others, strict=True)) if a is not b
        }
        return [
            jnp.asarray(leaf) for leaf in leaves if not isinstance(leaf, Plain)
        ] + jax.tree.leaves(new)

    def _place(self, number: int, first_sample: Any, index: Any) -> _Place:
        kind = self.kinds[number]
        return _Place(
            index=kind.replicas[0] if len(kind.replicas) == 1 else index,
            device=self.seats.places[kind.replicas[0]],
            sizes=self.shares.sizes,
            rendezvous=_Table(self, number),  # type: ignore[arg-type]
            all_sum=meeting_point,
            synchronised=self.mapped.buffers == "sync",
            offset=first_sample,
        )

    def exchange(self, number: int, topic: str, value: Any) -> list[Any]:
        """Return the values of all replicas at a topic.

        While they are unknown, this replica's own value stands for all.
        """
        if isinstance(value, jax.core.Tracer):
            raise CapabilityError(
                f"{topic}: within a compiled program replicas exchange numbers that are known when "
                "it is compiled; arrays only by all_sum"
            )
        told = self.told[number]
        told.append((topic, value))
        if self.exchanged is None:
            return [value] * len(self.parts)
        return [
            self.exchanged[self.kind_of[replica]][len(told) - 1]
            for replica in range(len(self.parts))
        ]

    @contextmanager
    def _noted(self, kind: _Kind) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            first, places = kind.replicas[0], self.seats.places
            error.add_note(f"raised in replica {first} of {len(self.parts)} on {places[first]}")
            raise

    # Playing
    # ----------------------------------------------------------------------------------------------

    def _played(self, scripts: list[Script], operands: list[list[Any]]) -> list[list[Any]]:
        """Return each slot's outputs, buffers and random states.

        The outputs are padded to the largest.
        """
        known = [[script.begin(given) for script in scripts] for given in operands]
        last = len(scripts[0].topics)
        for piece in range(last):
            brought = [
                self._piece(scripts, known[slot], slot, piece) for slot in range(len(operands))
            ]
            seats = map(self.seats.seat, range(len(self.parts)))
            totals = self.seats.totals([values[0] for _, values in brought], list(seats))
            for slot, ((kept, _), total) in enumerate(zip(brought, totals, strict=True)):
                for script, mine, each in zip(scripts, known[slot], kept, strict=True):
                    script.learn(piece, mine, each, total)
        others = [jax.tree.leaves(self.mapped.others[slot]) for slot in range(len(operands))]
        return [
            self._piece(scripts, known[slot], slot, last, others[slot])[1]
            for slot in range(len(operands))
        ]

    def _piece(
        self,
        scripts: list[Script],
        known: list[dict],
        slot: int,
        piece: int,
        others: list[Any] | None = None,
    ) -> tuple[list[list[Any]], list[Any]]:
        """What each kind keeps for later, and what this device's kind brings."""

        def branch(number: int) -> tuple[list[list[Any]], list[Any]]:
            kept, brought = scripts[number].played(piece, known[number])
            nothing = [[blank(like) for like in script.kept(piece)] for script in scripts]
            nothing[number] = strong(kept)
            return nothing, strong(self._fitted(brought) if others is not None else brought)

        def absent() -> tuple[list[list[Any]], list[Any]]:
            nothing = [[blank(like) for like in script.kept(piece)] for script in scripts]
            if others is not None:
                return nothing, strong([*map(blank, self.wanted), *others])
            return nothing, [jnp.zeros(*scripts[0].topics[piece][1:])]

        numbers = [len(scripts) if r is None else self.kind_of[r] for r in self.columns[slot]]
        if len(set(numbers)) == 1 and not self.mapped.alone:
            return branch(numbers[0])
        number = lax.optimization_barrier(self.seats.of_this_device(numbers))
        return lax.switch(number, [*(partial(branch, n) for n in range(len(scripts))), absent])

    # Results
    # ----------------------------------------------------------------------------------------------

    def _largest(self, scripts: list[Script]) -> list[Any]:
        columns = [script.shapes[: len(script.shapes) - self._count_others()] for script in scripts]
        for column, kind in zip(columns[1:], self.kinds[1:], strict=True):
            if [(len(x.shape), x.dtype) for x in column] != [
                (len(x.shape), x.dtype) for x in columns[0]
            ]:
                raise StructureError(
                    f"the outputs are {_listed(columns[0])} on replica {self.kinds[0].replicas[0]} "
                    f"and {_listed(column)} on replica {kind.replicas[0]}: every replica must give "
                    "the same"
                )
        return [
            jax.ShapeDtypeStruct(
                tuple(map(max, zip(*(x.shape for x in each), strict=True))), each[0].dtype
            )
            for each in zip(*columns, strict=True)
        ]

    def _count_others(self) -> int:
        return len(jax.tree.leaves(self.mapped.others[0]))

    def _fitted(self, values: list[Any]) -> list[Any]:
        padded = [
            _padded(value, like.shape) for value, like in zip(values, self.wanted, strict=False)
        ]
        return padded + values[len(self.wanted) :]

    def _result(self, scripts: list[Script], replica: int, outputs: Sequence[Any]) -> Any:
        number = self.kind_of[replica]
        rest = iter(
            _cut(output, like.shape)
            for output, like in zip(outputs, scripts[number].shapes, strict=False)
        )
        plain, spec = self.structures[number]
        return unpacked(([next(rest) if leaf is None else leaf for leaf in plain], spec))


@dataclass(frozen=True)
class _Table:
    """Where the replicas of one kind exchange numbers while their code is recorded."""

    run: _Run
    number: int

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """What every replica says at a topic."""
        return self.run.exchange(self.number, topic, value)


def _is_constant(value: Any) -> bool:
    """Whether no gradient flows through a value: a whole number, or a plain Python number."""
    return not jnp.issubdtype(jnp.result_type(value), jnp.inexact) or bool(
        getattr(value, "weak_type", True)
    )


def _padded(value: jax.Array, wanted: Sequence[int]) -> jax.Array:
    missing = [(0, after - before) for before, after in zip(value.shape, wanted, strict=True)]
    return jnp.pad(value, missing) if any(after for _, after in missing) else value


def _cut(value: Any, size: Sequence[int]) -> Any:
    return value if jnp.shape(value) == tuple(size) else value[tuple(slice(n) for n in size)]


def _listed(outputs: Sequence[Any]) -> str:
    return ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in outputs) or "no arrays"
