"""The replicas inside a compiled program.

Each replica computes on its device, on its share, with its own variables.

Shares of one size run the same code. Where sizes differ each is padded to the largest, and every
device takes the branch for its own size, which cuts off the padding; nothing is exchanged inside of
a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from deliralike.backends.jax.compiled.program import (
    Arguments,
    ModuleVariables,
    Named,
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
        parameters: Named = {}
        frozen: Named = {}
        for name, value in self.parameters[0].items():
            named = parameters if name in self.variables.parameters else frozen
            named[name] = self._from_root(value)
        others = [jax.tree.map(self._from_root, value) for value in self.others[0]]
        return parameters, frozen, others

    def changed_others(self) -> list[Any]:
        """Return the changed buffers and random states of each slot.

        Those that stayed as they were are None.
        """
        changed: list[Any] = []
        for i in range(len(self.variables.others)):
            is_changed = i in self.changed
            changed.append(
                [others[i] if is_changed else None for others in self.others]
            )
        return changed

    def settled_others(self) -> list[Any]:
        """Return the root's changed buffers and random states, by the buffer policy.

        Those that stayed as they were are None.
        """
        self._settle()
        settled: list[Any] = [None] * len(self.variables.others)
        for i in self.changed:
            settled[i] = self.others[0][i]
        return settled

    def _from_root(self, value: Any) -> Any:
        return self.mesh.gather(value)[
            0
        ]  # the root is the first replica, on the first device

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


@dataclass(eq=False)
class _Kind:
    """Replicas that run the same code.

    Their arguments agree in everything but the values of arrays.

    Attributes:
        number: The number of this kind.
        arguments: Those of the first of these replicas.
        shapes: The shapes of the arrays among them.
        replicas: All of these replicas.
        messages: What one of them exchanges while its code is recorded: a topic and a value each.
        exchanged: These values, once they are known.
        program: The recorded code.
        structure: The outputs as packed, with None in the place of arrays.
    """

    number: int
    arguments: Arguments
    shapes: list[tuple[int, ...]]
    replicas: list[int]
    messages: list[tuple[str, Any]] = field(default_factory=list)
    exchanged: list[Any] | None = None
    program: ReplicaProgram = field(init=False)
    structure: tuple[list[Any], StaticValue] = field(init=False)

    def matches(self, arguments: Arguments) -> bool:
        """Whether another replica runs the same code."""
        if self.arguments.key != arguments.key:
            return False
        return self.shapes == [*map(jnp.shape, arguments.arrays)]


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
        arguments: The arguments of each replica.
        kinds: The replicas that run the same code.
        kind_of: The kind of each replica.
        slots: For each slot the replica on each device; None where a device has none.
    """

    def __init__(
        self, shard_map: ShardMap, function: Callable[[Any, Any], Any], shares: Shares
    ) -> None:
        self.shard_map, self.function, self.shares = shard_map, function, shares
        self.mesh, self.variables = shard_map.mesh, shard_map.variables
        self.arguments = [flatten_arguments((share,)) for share in shares.nests]
        self.kinds: list[_Kind] = []
        self.kind_of = [*map(self._add_to_kind, range(self.replica_count))]
        self.slots: list[list[int | None]] = []
        for slot in range(self.mesh.slot_count):
            replicas = [*map(self._if_active, self.mesh.replicas_in_slot(slot))]
            if replicas != [None] * len(replicas):
                self.slots.append(replicas)

    @property
    def replica_count(self) -> int:
        """How many replicas have a share."""
        return len(self.arguments)

    def _if_active(self, replica: int | None) -> int | None:
        """The replica if it has a share, else None."""
        if replica is None or replica >= self.replica_count:
            return None
        return replica

    def _add_to_kind(self, replica: int) -> _Kind:
        """Add a replica to its kind, or to a new one."""
        arguments = self.arguments[replica]
        for kind in self.kinds:
            if kind.matches(arguments):
                kind.replicas.append(replica)
                return kind
        shapes = [*map(jnp.shape, arguments.arrays)]
        self.kinds.append(_Kind(len(self.kinds), arguments, shapes, [replica]))
        return self.kinds[-1]

    def results(self) -> list[Any]:
        """The results of the replicas in order."""
        operands = [*map(self._operands, range(len(self.slots)))]
        self._record_all(operands[0])
        self.output_types = self._largest_outputs()
        count = len(self.output_types)
        gathered = []
        by_slot = self._run_programs([*map(jax.tree.leaves, operands)])
        for slot, values in enumerate(by_slot):
            gathered.append([*map(self.mesh.gather, values[:count])])
            tree = jax.tree.structure(self.shard_map.others[slot])
            self.shard_map.others[slot] = jax.tree.unflatten(tree, values[count:])
        results = []
        for replica, kind in enumerate(self.kind_of):
            device, slot = self.mesh.position(replica)
            outputs = [value[device] for value in gathered[slot]]
            results.append(_unpack_outputs(kind, outputs))
        return results

    # Recording
    # ----------------------------------------------------------------------------------------------

    def _operands(self, slot: int) -> tuple:
        first_samples, indices = [], []
        for replica in self.slots[slot]:
            first_samples.append(0 if replica is None else self.shares.offsets[replica])
            indices.append(0 if replica is None else replica)
        first_sample = self.mesh.local_number(first_samples)
        index = self.mesh.local_number(indices)
        arrays = []
        for values in zip(*(each.arrays for each in self.arguments), strict=True):
            arrays.append(self._local(slot, values))
        parameters, others = (
            self.shard_map.parameters[slot],
            self.shard_map.others[slot],
        )
        return parameters, others, arrays, first_sample, index

    def _local(self, slot: int, values: Sequence[Any]) -> Any:
        """Return the values of all replicas as a local value, padded to the largest.

        A value that all replicas have alike is returned as it is.
        """
        first = values[0]
        if _is_constant(first) and all(value is first for value in values):
            return first
        shape = _largest([*map(jnp.shape, values)])
        zeros = jnp.zeros(shape, jnp.result_type(first))
        by_device = []
        for replica in self.slots[slot]:
            if replica is None:
                by_device.append(zeros)
            else:
                by_device.append(_pad(jnp.asarray(values[replica]), shape))
        return self.mesh.take(jnp.stack(by_device))

    def _record_all(self, operands: tuple) -> None:
        """Record the code of each kind, twice where replicas exchange numbers meanwhile."""
        first_replicas = [kind.replicas[0] for kind in self.kinds]
        for kind in self.kinds:
            self._record(kind, operands)
        if any(kind.messages for kind in self.kinds):
            topics = []
            for kind in self.kinds:
                topics.append([(topic, ()) for topic, _ in kind.messages])
            refuse_different(topics, first_replicas)
            for kind in self.kinds:
                kind.exchanged = [value for _, value in kind.messages]
            for kind in self.kinds:
                self._record(kind, operands)
        refuse_different([kind.program.topics for kind in self.kinds], first_replicas)

    def _record(self, kind: _Kind, operands: tuple) -> None:
        leaves, tree = jax.tree.flatten(operands)

        def run(*leaves: Any) -> list[Any]:
            return self._run_replica(kind, *jax.tree.unflatten(tree, leaves))

        kind.messages = []
        with self._name_replica_in_errors(kind):
            kind.program = ReplicaProgram(run, *leaves)

    def _run_replica(
        self,
        kind: _Kind,
        parameters: Named,
        others: list[Any],
        arrays: list[Any],
        first_sample: Any,
        index: Any,
    ) -> list[Any]:
        """Compute the outputs, buffers and random states of the replicas of a kind; traced."""
        rebuilt = self.variables.rebuild(parameters, parameters, others)
        share = kind.arguments.unflatten([*map(_cut, arrays, kind.shapes)])
        with entered(self._traced_replica(kind, first_sample, index)):
            leaves, spec = pack(self.function(rebuilt.network.root, *share))
        self.variables.refuse_written(rebuilt, parameters, parameters)
        static: list[StaticValue | None] = []
        outputs = []
        for leaf in leaves:
            if isinstance(leaf, StaticValue):
                static.append(leaf)
            else:
                static.append(None)
                outputs.append(jnp.asarray(leaf))
        kind.structure = (static, spec)
        new = [variable.get_value() for variable in rebuilt.others]
        for i, (after, before) in enumerate(zip(new, others, strict=True)):
            if after is not before:
                self.shard_map.changed.add(i)
        return outputs + jax.tree.leaves(new)

    def _traced_replica(
        self, kind: _Kind, first_sample: Any, index: Any
    ) -> _TracedReplica:
        first = kind.replicas[0]
        return _TracedReplica(
            index=first if len(kind.replicas) == 1 else index,
            device=self.mesh.device_names[first],
            sizes=self.shares.sizes,
            rendezvous=_KindRendezvous(self, kind),  # type: ignore[arg-type]
            all_sum=sync_point,
            synchronised=self.shard_map.buffers == "sync",
            offset=first_sample,
        )

    def exchange(self, kind: _Kind, topic: str, value: Any) -> list[Any]:
        """Return the values of all replicas at a topic.

        While they are unknown, this replica's own value stands for all.
        """
        if isinstance(value, jax.core.Tracer):
            raise CapabilityError(
                f"{topic}: within a compiled program replicas exchange numbers that are known when "
                "it is compiled; arrays only by all_sum"
            )
        place = len(kind.messages)
        kind.messages.append((topic, value))
        values = []
        for other in self.kind_of:
            values.append(value if other.exchanged is None else other.exchanged[place])
        return values

    @contextmanager
    def _name_replica_in_errors(self, kind: _Kind) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            first = kind.replicas[0]
            device = self.mesh.device_names[first]
            error.add_note(
                f"raised in replica {first} of {self.replica_count} on {device}"
            )
            raise

    # Running
    # ----------------------------------------------------------------------------------------------

    def _run_programs(self, operands: list[list[Any]]) -> list[list[Any]]:
        """Return each slot's outputs, buffers and random states.

        The outputs are padded to the largest.
        """
        known = []
        for values in operands:
            known.append([kind.program.initial_values(values) for kind in self.kinds])
        positions = [*map(self.mesh.position, range(self.replica_count))]
        last = len(self.kinds[0].program.topics)
        for piece in range(last):
            carried, summands = [], []
            for slot, of_kinds in enumerate(known):
                carried_by_kinds, (summand,) = self._run_piece(piece, slot, of_kinds)
                carried.append(carried_by_kinds)
                summands.append(summand)
            totals = self.mesh.all_reduce(summands, positions)
            for of_kinds, carried_by_kinds, total in zip(
                known, carried, totals, strict=True
            ):
                for kind in self.kinds:
                    values = carried_by_kinds[kind.number]
                    kind.program.store(piece, of_kinds[kind.number], values, total)
        results = []
        others = [*map(jax.tree.leaves, self.shard_map.others)]
        for slot, of_kinds in enumerate(known):
            _, outputs = self._run_piece(last, slot, of_kinds, others[slot])
            results.append(outputs)
        return results

    def _run_piece(
        self, piece: int, slot: int, known: list[dict], others: list[Any] | None = None
    ) -> tuple[list[list[Any]], list[Any]]:
        """Return what each kind carries over to later pieces, and the results of a device's kind.

        Args:
            known: The values of variables so far, for each kind.
            others: The slot's buffers and random states, for the last piece.
        """

        def branch(kind: _Kind) -> tuple[list[list[Any]], list[Any]]:
            own, results = kind.program.run_piece(piece, known[kind.number])
            if others is not None:
                results = self._pad_outputs(results)
            carried = self._blank_carried(piece)
            carried[kind.number] = strong(own)
            return carried, strong(results)

        def absent() -> tuple[list[list[Any]], list[Any]]:
            carried = self._blank_carried(piece)
            if others is not None:
                return carried, strong([*map(blank, self.output_types), *others])
            _, shape, dtype = self.kinds[0].program.topics[piece]
            return carried, [jnp.zeros(shape, dtype)]

        numbers = []
        for replica in self.slots[slot]:
            if replica is None:
                numbers.append(len(self.kinds))
            else:
                numbers.append(self.kind_of[replica].number)
        if len(set(numbers)) == 1 and not self.shard_map.is_isolated:
            return branch(self.kinds[numbers[0]])
        number = lax.optimization_barrier(self.mesh.local_number(numbers))
        branches = [partial(branch, kind) for kind in self.kinds]
        return lax.switch(number, [*branches, absent])

    def _blank_carried(self, piece: int) -> list[list[Any]]:
        """Zeros in the place of what each kind carries over to later pieces."""
        carried = []
        for kind in self.kinds:
            carried.append([*map(blank, kind.program.carried_types(piece))])
        return carried

    # Results
    # ----------------------------------------------------------------------------------------------

    def _largest_outputs(self) -> list[Any]:
        """The types of the outputs, in the largest shapes of all kinds.

        Raises:
            StructureError: Kinds differ in their outputs by more than sizes.
        """
        other_count = len(jax.tree.leaves(self.shard_map.others[0]))
        outputs = []
        for kind in self.kinds:
            types = kind.program.output_types
            outputs.append(types[: len(types) - other_count])
        for kind, types in zip(self.kinds, outputs, strict=True):
            if [*map(_rank_and_dtype, types)] != [*map(_rank_and_dtype, outputs[0])]:
                raise StructureError(
                    f"the outputs are {_listed(outputs[0])} on replica {self.kinds[0].replicas[0]} "
                    f"and {_listed(types)} on replica {kind.replicas[0]}: every replica must give "
                    "the same"
                )
        largest = []
        for of_kinds in zip(*outputs, strict=True):
            shape = _largest([x.shape for x in of_kinds])
            largest.append(jax.ShapeDtypeStruct(shape, of_kinds[0].dtype))
        return largest

    def _pad_outputs(self, values: list[Any]) -> list[Any]:
        """The results of a kind, its outputs padded to the largest shapes."""
        padded = list(values)
        for i, like in enumerate(self.output_types):
            padded[i] = _pad(values[i], like.shape)
        return padded


def _unpack_outputs(kind: _Kind, outputs: Sequence[Any]) -> Any:
    """The result of a replica from its outputs, the padding of which is cut off."""
    leaves, spec = kind.structure
    leaves = list(leaves)
    places = [place for place, leaf in enumerate(leaves) if leaf is None]
    for place, output, like in zip(
        places, outputs, kind.program.output_types, strict=False
    ):
        leaves[place] = _cut(output, like.shape)
    return unpack((leaves, spec))


@dataclass(frozen=True)
class _KindRendezvous:
    """The rendezvous of the replicas of one kind, while their code is recorded."""

    run: _Run
    kind: _Kind

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """The values of all replicas at a topic."""
        return self.run.exchange(self.kind, topic, value)


def _is_constant(value: Any) -> bool:
    """Whether no gradient flows through a value: a whole number, or a plain Python number."""
    if not jnp.issubdtype(jnp.result_type(value), jnp.inexact):
        return True
    return bool(getattr(value, "weak_type", True))


def _largest(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape that has the largest of several sizes along each axis."""
    return tuple(map(max, zip(*shapes, strict=True)))


def _pad(value: jax.Array, shape: Sequence[int]) -> jax.Array:
    """An array with zeros after its elements, in a larger shape."""
    if value.shape == tuple(shape):
        return value
    missing = [
        (0, after - before) for before, after in zip(value.shape, shape, strict=True)
    ]
    return jnp.pad(value, missing)


def _cut(value: Any, shape: Sequence[int]) -> Any:
    """The first elements of an array along each axis."""
    if jnp.shape(value) == tuple(shape):
        return value
    return value[tuple(map(slice, shape))]


def _rank_and_dtype(x: Any) -> tuple[int, Any]:
    return len(x.shape), x.dtype


def _listed(outputs: Sequence[Any]) -> str:
    types = [f"{x.dtype.name}{list(x.shape)}" for x in outputs]
    return ", ".join(types) or "no arrays"
