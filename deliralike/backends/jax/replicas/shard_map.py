"""The replicas inside a compiled program.

Each replica computes on its device, on its share, with its own variables.

Shares of one size run the same code. Where sizes differ each is padded to the largest, and every
device takes the branch for its own size, which cuts off the padding; nothing is exchanged inside of
a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    ModuleVariables,
    StaticValue,
    Values,
    flatten_arguments,
    pack,
    unpack,
)
from deliralike.backends.jax.replicas.collectives import (
    ReplicaProgram,
    blank,
    refuse_different,
    strong,
    sync_point,
)
from deliralike.backends.jax.replicas.mesh import ReplicaMesh
from deliralike.errors import CapabilityError, StructureError
from deliralike.parallel.batches.scatter import Shares
from deliralike.parallel.replicas.context import Replica, entered
from deliralike.parallel.replicas.network import ReplicaSettings


class ShardMap:
    """The replicas of one network inside a program.

    Attributes:
        is_isolated: Whether each replica's code is compiled apart from all other code, so that its
            results are bit-identical wherever it runs.
        parameters, others: The local values of each slot.
        changed: Which buffers and random states the replicas have changed, by their place in
            ``variables.others``.
        sizes: The samples in each share of the latest run.
        active_count: How many replicas have run.
    """

    def __init__(
        self,
        mesh: ReplicaMesh,
        variables: ModuleVariables,
        by_slot: Sequence[Values],
        settings: ReplicaSettings,
    ) -> None:
        """Begin with the local values of each slot's parameters, frozen parameters and others."""
        self.mesh, self.variables, self.buffers = mesh, variables, settings.buffers
        self.is_isolated = settings.virtual_shards is not None
        self.parameters = [{**trainable, **frozen} for trainable, frozen, _ in by_slot]
        self.others = [list(others) for _, _, others in by_slot]
        self.changed: set[int] = set()
        self.sizes: tuple[int, ...] = ()
        self.active_count = 0

    def run(self, function: Callable[[Any, Any], Any], shares: Shares) -> list[Any]:
        """Run ``function(replica, share)`` on every replica that has a share.

        The results are the same everywhere.
        """
        self._settle()
        self.sizes = shares.sizes
        self.active_count = max(self.active_count, len(shares.sizes))
        return _Run(self, function, shares).results()

    def of_root(self) -> Values:
        """The root's values, the same everywhere."""
        named = {name: self._from_root(value) for name, value in self.parameters[0].items()}
        parameters = {name: named[name] for name in self.variables.parameters}
        frozen = {name: named[name] for name in self.variables.frozen}
        others = [jax.tree.map(self._from_root, value) for value in self.others[0]]
        return parameters, frozen, others

    def changed_others(self) -> list[Any]:
        """Return the changed buffers and random states of each slot.

        Those that stayed as they were are None.
        """
        by_variable = []
        for i in range(len(self.variables.others)):
            is_changed = i in self.changed
            by_variable.append([others[i] if is_changed else None for others in self.others])
        return by_variable

    def settled_others(self) -> list[Any]:
        """Return the root's changed buffers and random states, by the buffer policy.

        Those that stayed as they were are None.
        """
        self._settle()
        return [value if i in self.changed else None for i, value in enumerate(self.others[0])]

    def _from_root(self, value: Any) -> Any:
        return self.mesh.gather(value)[0]  # the root is the first replica, on the first device

    def _settle(self) -> None:
        """Apply the policy of `Replicas.synchronize_buffers` between two runs in one program."""
        if not self.sizes:
            return
        for i in self.changed:
            if isinstance(self.variables.others[i], nnx.RngKey):
                continue
            if self._is_averaged(i):
                settled = self._mean(i)
            else:
                settled = jax.tree.map(self._from_root, self.others[0][i])
            for others in self.others:
                others[i] = settled

    def _is_averaged(self, i: int) -> bool:
        value = self.others[0][i]
        is_float = hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)
        return self.buffers == "mean" and is_float

    def _mean(self, i: int) -> Any:
        gathered = [self.mesh.gather(others[i]) for others in self.others]
        values = []
        for replica in range(len(self.sizes)):
            device, slot = self.mesh.position(replica)
            values.append(gathered[slot][device])
        return weighted_mean(values, self.sizes)


def weighted_mean(values: Sequence[jax.Array], sizes: Sequence[int]) -> jax.Array:
    """The mean of the replicas' values, each counting for its share; in the order of replicas."""
    total = sum(sizes)
    mean = values[0] * (sizes[0] / total)
    for value, size in zip(values[1:], sizes[1:], strict=True):
        mean = mean + value * (size / total)
    return mean


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

    def matches(self, part: Arguments) -> bool:
        """Whether another replica runs the same code."""
        return self.part.key == part.key and self.shapes == [*map(jnp.shape, part.arrays)]


@dataclass(frozen=True, eq=False)
class _TracedReplica(Replica):
    """A replica in a program: its index is that of the device that computes, and may be traced."""

    offset: Any = 0

    @property
    def first_sample(self) -> Any:
        """The index, within the whole batch, of this replica's first sample."""
        return self.offset


class _Run:
    """One run of all replicas, slot by slot, from one rendezvous point to the next.

    Attributes:
        parts: The arguments of each replica.
        kinds: The replicas that run the same code, and by `kind_of` the number of each one's kind.
        slots: For each slot the replica on each device; None where a device has none.
        messages: What replicas of each kind exchange while they are recorded, in order: a topic and
            a value each.
        exchanged: These values of each kind, once they are known.
        structures: The outputs of each kind, without arrays.
    """

    def __init__(
        self, shard_map: ShardMap, function: Callable[[Any, Any], Any], shares: Shares
    ) -> None:
        self.shard_map, self.function, self.shares = shard_map, function, shares
        self.mesh, self.variables = shard_map.mesh, shard_map.variables
        self.parts = [flatten_arguments((share,)) for share in shares.nests]
        self.kinds: list[_Kind] = []
        self.kind_of = [self._find_kind(replica) for replica in range(len(self.parts))]
        self.slots: list[list[int | None]] = []
        for slot in range(self.mesh.slot_count):
            replicas = [*map(self._active, self.mesh.replicas_in_slot(slot))]
            if any(replica is not None for replica in replicas):
                self.slots.append(replicas)
        self.messages: dict[int, list[tuple[str, Any]]] = {}
        self.exchanged: list[list[Any]] | None = None
        self.structures: dict[int, Any] = {}

    def _active(self, replica: int | None) -> int | None:
        """The replica if it has a share, else None."""
        if replica is None or replica >= len(self.parts):
            return None
        return replica

    def _find_kind(self, replica: int) -> int:
        part = self.parts[replica]
        for number, kind in enumerate(self.kinds):
            if kind.matches(part):
                kind.replicas.append(replica)
                return number
        self.kinds.append(_Kind(part, [*map(jnp.shape, part.arrays)], [replica]))
        return len(self.kinds) - 1

    def results(self) -> list[Any]:
        """The results of the replicas in order."""
        operands = [self._operands(slot) for slot in range(len(self.slots))]
        programs = self._record_all(operands[0])
        self.output_types = self._largest_outputs(programs)
        count = len(self.output_types)
        gathered = []
        by_slot = self._run_programs(programs, [*map(jax.tree.leaves, operands)])
        for slot, values in enumerate(by_slot):
            gathered.append([*map(self.mesh.gather, values[:count])])
            tree = jax.tree.structure(self.shard_map.others[slot])
            self.shard_map.others[slot] = jax.tree.unflatten(tree, values[count:])
        results = []
        for replica in range(len(self.parts)):
            device, slot = self.mesh.position(replica)
            outputs = [value[device] for value in gathered[slot]]
            results.append(self._result(programs, replica, outputs))
        return results

    # Recording
    # ----------------------------------------------------------------------------------------------

    def _operands(self, slot: int) -> tuple:
        first_samples, indices = [], []
        for replica in self.slots[slot]:
            first_samples.append(0 if replica is None else self.shares.offsets[replica])
            indices.append(replica or 0)
        first_sample = self.mesh.local_number(first_samples)
        index = self.mesh.local_number(indices)
        arrays = [self._local(slot, i) for i in range(len(self.parts[0].arrays))]
        parameters, others = self.shard_map.parameters[slot], self.shard_map.others[slot]
        return parameters, others, arrays, first_sample, index

    def _local(self, slot: int, i: int) -> Any:
        """Return an argument of each device as a local value, padded to the largest.

        An argument that all devices have alike is returned as it is.
        """
        everyone = [part.arrays[i] for part in self.parts]
        first = everyone[0]
        if _is_constant(first) and all(value is first for value in everyone):
            return first
        shape = _largest(map(jnp.shape, everyone))
        zeros = jnp.zeros(shape, jnp.result_type(first))
        values = []
        for replica in self.slots[slot]:
            if replica is None:
                values.append(zeros)
            else:
                values.append(_pad(jnp.asarray(everyone[replica]), shape))
        return self.mesh.take(jnp.stack(values))

    def _record_all(self, operands: tuple) -> list[ReplicaProgram]:
        """Record the code of each kind, twice where replicas exchange numbers meanwhile."""
        leaves, tree = jax.tree.flatten(operands)
        numbers = range(len(self.kinds))
        programs = [self._record(number, tree, leaves) for number in numbers]
        first_replicas = [kind.replicas[0] for kind in self.kinds]
        if any(self.messages.values()):
            topics, exchanged = [], []
            for number in numbers:
                topics.append([(topic, ()) for topic, _ in self.messages[number]])
                exchanged.append([value for _, value in self.messages[number]])
            refuse_different(topics, first_replicas)
            self.exchanged = exchanged
            programs = [self._record(number, tree, leaves) for number in numbers]
        refuse_different([program.topics for program in programs], first_replicas)
        return programs

    def _record(self, number: int, tree: Any, leaves: list[Any]) -> ReplicaProgram:
        def run(*operands: Any) -> list[Any]:
            return self._run_replica(number, *jax.tree.unflatten(tree, operands))

        self.messages[number] = []
        with self._name_replica_in_errors(self.kinds[number]):
            return ReplicaProgram(run, *leaves)

    def _run_replica(
        self,
        number: int,
        parameters: dict,
        others: list[Any],
        arrays: list[Any],
        first_sample: Any,
        index: Any,
    ) -> list[Any]:
        kind = self.kinds[number]
        network, copies = self.variables.rebuild(parameters, parameters, others)
        own = [_cut(array, shape) for array, shape in zip(arrays, kind.shapes, strict=True)]
        with entered(self._traced_replica(number, first_sample, index)):
            leaves, spec = pack(self.function(network.root, *kind.part.unflatten(own)))
        static: list[StaticValue | None] = []
        outputs = []
        for leaf in leaves:
            if isinstance(leaf, StaticValue):
                static.append(leaf)
            else:
                static.append(None)
                outputs.append(jnp.asarray(leaf))
        self.structures[number] = (static, spec)
        new = [variable.get_value() for variable in copies]
        for i, (after, before) in enumerate(zip(new, others, strict=True)):
            if after is not before:
                self.shard_map.changed.add(i)
        return outputs + jax.tree.leaves(new)

    def _traced_replica(self, number: int, first_sample: Any, index: Any) -> _TracedReplica:
        kind = self.kinds[number]
        return _TracedReplica(
            index=kind.replicas[0] if len(kind.replicas) == 1 else index,
            device=self.mesh.device_names[kind.replicas[0]],
            sizes=self.shares.sizes,
            rendezvous=_KindRendezvous(self, number),  # type: ignore[arg-type]
            all_sum=sync_point,
            synchronised=self.shard_map.buffers == "sync",
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
        messages = self.messages[number]
        messages.append((topic, value))
        if self.exchanged is None:
            return [value] * len(self.parts)
        latest = len(messages) - 1
        return [self.exchanged[kind][latest] for kind in self.kind_of]

    @contextmanager
    def _name_replica_in_errors(self, kind: _Kind) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            first = kind.replicas[0]
            device = self.mesh.device_names[first]
            error.add_note(f"raised in replica {first} of {len(self.parts)} on {device}")
            raise

    # Running
    # ----------------------------------------------------------------------------------------------

    def _run_programs(
        self, programs: list[ReplicaProgram], operands: list[list[Any]]
    ) -> list[list[Any]]:
        """Return each slot's outputs, buffers and random states.

        The outputs are padded to the largest.
        """
        slots = range(len(operands))
        known = []
        for values in operands:
            known.append([program.initial_values(values) for program in programs])
        positions = [self.mesh.position(replica) for replica in range(len(self.parts))]
        last = len(programs[0].topics)
        for piece in range(last):
            carried, summands = [], []
            for slot in slots:
                carried_of_kinds, (summand,) = self._run_piece(programs, known[slot], slot, piece)
                carried.append(carried_of_kinds)
                summands.append(summand)
            totals = self.mesh.all_reduce(summands, positions)
            for slot in slots:
                for number, program in enumerate(programs):
                    program.store(piece, known[slot][number], carried[slot][number], totals[slot])
        others = [jax.tree.leaves(self.shard_map.others[slot]) for slot in slots]
        results = []
        for slot in slots:
            _, outputs = self._run_piece(programs, known[slot], slot, last, others[slot])
            results.append(outputs)
        return results

    def _run_piece(
        self,
        programs: list[ReplicaProgram],
        known: list[dict],
        slot: int,
        piece: int,
        others: list[Any] | None = None,
    ) -> tuple[list[list[Any]], list[Any]]:
        """Return what each kind carries over to later pieces, and the results of a device's kind.

        Args:
            others: The slot's buffers and random states, for the last piece.
        """

        def branch(number: int) -> tuple[list[list[Any]], list[Any]]:
            carried, results = programs[number].run_piece(piece, known[number])
            if others is not None:
                results = self._pad_outputs(results)
            carried_of_kinds = _blank_carried(programs, piece)
            carried_of_kinds[number] = strong(carried)
            return carried_of_kinds, strong(results)

        def absent() -> tuple[list[list[Any]], list[Any]]:
            carried_of_kinds = _blank_carried(programs, piece)
            if others is not None:
                return carried_of_kinds, strong([*map(blank, self.output_types), *others])
            return carried_of_kinds, [jnp.zeros(*programs[0].topics[piece][1:])]

        numbers = []
        for replica in self.slots[slot]:
            numbers.append(len(programs) if replica is None else self.kind_of[replica])
        if len(set(numbers)) == 1 and not self.shard_map.is_isolated:
            return branch(numbers[0])
        number = lax.optimization_barrier(self.mesh.local_number(numbers))
        branches = [partial(branch, kind) for kind in range(len(programs))]
        return lax.switch(number, [*branches, absent])

    # Results
    # ----------------------------------------------------------------------------------------------

    def _largest_outputs(self, programs: list[ReplicaProgram]) -> list[Any]:
        """The types of the outputs, in the largest shapes of all kinds.

        Raises:
            StructureError: Kinds differ in their outputs by more than sizes.
        """
        other_count = len(jax.tree.leaves(self.shard_map.others[0]))
        outputs = []
        for program in programs:
            outputs.append(program.output_types[: len(program.output_types) - other_count])
        for kind, types in zip(self.kinds, outputs, strict=True):
            if [*map(_rank_and_dtype, types)] != [*map(_rank_and_dtype, outputs[0])]:
                raise StructureError(
                    f"the outputs are {_listed(outputs[0])} on replica {self.kinds[0].replicas[0]} "
                    f"and {_listed(types)} on replica {kind.replicas[0]}: every replica must give "
                    "the same"
                )
        largest = []
        for of_kinds in zip(*outputs, strict=True):
            shape = _largest(x.shape for x in of_kinds)
            largest.append(jax.ShapeDtypeStruct(shape, of_kinds[0].dtype))
        return largest

    def _pad_outputs(self, values: list[Any]) -> list[Any]:
        """The results of a kind, its outputs padded to the largest shapes."""
        padded = list(values)
        for i, like in enumerate(self.output_types):
            padded[i] = _pad(values[i], like.shape)
        return padded

    def _result(self, programs: list[ReplicaProgram], replica: int, outputs: Sequence[Any]) -> Any:
        number = self.kind_of[replica]
        types = iter(programs[number].output_types)
        rest = iter(outputs)
        static, spec = self.structures[number]
        leaves = []
        for leaf in static:
            leaves.append(_cut(next(rest), next(types).shape) if leaf is None else leaf)
        return unpack((leaves, spec))


@dataclass(frozen=True)
class _KindRendezvous:
    """The rendezvous of the replicas of one kind, while their code is recorded."""

    run: _Run
    number: int

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """The values of all replicas at a topic."""
        return self.run.exchange(self.number, topic, value)


def _blank_carried(programs: Sequence[ReplicaProgram], piece: int) -> list[list[Any]]:
    """Zeros in the place of what each kind carries over to later pieces."""
    return [[*map(blank, program.carried_types(piece))] for program in programs]


def _is_constant(value: Any) -> bool:
    """Whether no gradient flows through a value: a whole number, or a plain Python number."""
    if not jnp.issubdtype(jnp.result_type(value), jnp.inexact):
        return True
    return bool(getattr(value, "weak_type", True))


def _largest(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The shape that has the largest of several sizes along each axis."""
    return tuple(map(max, zip(*shapes, strict=True)))


def _pad(value: jax.Array, shape: Sequence[int]) -> jax.Array:
    """An array with zeros after its elements, in a larger shape."""
    missing = [(0, after - before) for before, after in zip(value.shape, shape, strict=True)]
    return jnp.pad(value, missing) if value.shape != tuple(shape) else value


def _cut(value: Any, shape: Sequence[int]) -> Any:
    """The first elements of an array along each axis."""
    if jnp.shape(value) == tuple(shape):
        return value
    return value[tuple(map(slice, shape))]


def _rank_and_dtype(x: Any) -> tuple[int, Any]:
    return len(x.shape), x.dtype


def _listed(outputs: Sequence[Any]) -> str:
    return ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in outputs) or "no arrays"
