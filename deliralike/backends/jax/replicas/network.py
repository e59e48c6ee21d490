"""A network as several replicas on JAX.

A step is one compiled program over their devices; eager calls run one replica after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from deliralike import nest
from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.program import Members, ProgramCache
from deliralike.backends.jax.network import AbstractJaxNetwork, JaxNetworkType, walk
from deliralike.backends.jax.replicas.copies import Mirror, derived_key
from deliralike.backends.jax.replicas.mesh import Seats
from deliralike.backends.jax.replicas.mesh_program import Whole, run_forward
from deliralike.backends.jax.replicas.shard_map import Mapped, weighted_mean
from deliralike.errors import CapabilityError, DeviceError
from deliralike.network.base import AbstractNetwork
from deliralike.network.construction import Construction, constructing
from deliralike.optim.loss import Loss
from deliralike.parallel.batches.scatter import Shares
from deliralike.parallel.replicas.callbacks import call_replication_callbacks
from deliralike.parallel.replicas.context import Replica, entered
from deliralike.parallel.replicas.network import (
    OneAtATime,
    Replicas,
    ReplicaSettings,
    ReplicatedNetwork,
)
from deliralike.parallel.replicas.rendezvous import Rendezvous
from deliralike.parallel.replicas.run_in_threads import one_after_the_other

Named = dict[str, Any]


class Held:
    """The state that a replicated network holds beside its root.

    nnx should see nothing of it, and all of it can be remade.

    A copy holds the settings alone; its replicas are made when they are needed.

    Attributes:
        root: The network that the replicas copy; None before there are any.
        mirrors: Replicas 1, 2 ….
        gradients: What the latest backward pass left in each of them.
    """

    def __init__(self, settings: ReplicaSettings) -> None:
        """Hold settings."""
        self.settings, self.seats = settings, Seats(settings.places)
        self.one_at_a_time = OneAtATime()
        self.root: Any = None
        self.mirrors: list[Mirror] = []
        self.gradients: list[Named] = []
        self.programs: Any = None
        self.followed: Any = None
        self.settled: dict[int, tuple] = {}
        self.copied: dict[
            int, Any
        ] = {}  # by a parameter's id, the root's value that the mirrors have

    def note_settled(self, variables: Sequence[nnx.Variable]) -> None:
        """Remember that all replicas have the same values of these variables.

        The variables are synchronized until one of them is set to another value.
        """
        self.settled = {id(variable): _column(self, variable) for variable in variables}

    def note_copied(self, variables: Sequence[nnx.Variable], values: Sequence[Any]) -> None:
        """Remember which values of the root's the mirrors have."""
        self.copied |= {
            id(variable): value for variable, value in zip(variables, values, strict=True)
        }

    def is_behind(self, variable: nnx.Variable, value: Any) -> bool:
        """Return whether the root has another value than the mirrors.

        Values are compared where the root's is not the very array that was copied.
        """
        if self.copied.get(id(variable)) is value:
            return False
        other = self.mirrors[0].of(variable).get_value()  # all are written together
        may_be_nan = jnp.issubdtype(value.dtype, jnp.inexact)
        if not np.array_equal(arrays.numpy(value), arrays.numpy(other), equal_nan=may_be_nan):
            return True
        self.note_copied([variable], [value])
        return False

    def __reduce__(self) -> tuple:
        """Copy and pickle the settings alone."""
        return Held, (self.settings,)


class ReplicatedType(JaxNetworkType):
    """Builds replicated networks: what they wrap is finished, and keeps its paths and values."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Build one inside a construction of its own, which is never finished."""
        with constructing(Construction(backend=cls.backend)):
            return super().__call__(*args, **kwargs)


class JaxReplicas(Replicas):
    """The computations of a replicated network of JAX.

    They run as one program, or eagerly one replica after the other.
    """

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, args: tuple, kwargs: Named) -> Any:
        """Return the outputs for a whole batch.

        The arguments are scattered, the replicas run, and their outputs are gathered.
        """
        inside = self.network._inside
        if isinstance(inside, Whole):
            args, kwargs = inside.shared_out((args, kwargs))
            return self.network.root(*args, **kwargs)
        if self._needs_program((args, kwargs)):
            return self._run_compiled(_called, args, kwargs)
        return super().call(args, kwargs)

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """The loss of the whole batch, from losses computed inside the replicas."""
        inside = self.network._inside
        if isinstance(inside, Whole):
            return loss.whole(self.network.root, *inside.shared_out(batch))
        if self._needs_program(batch):
            return self._run_compiled(loss, *batch)
        return super().compute_loss(loss, *batch)

    def detached_number(self, denominator: Any) -> Any:
        """A denominator as a number; in a program, as an array without gradient."""
        if isinstance(denominator, jax.core.Tracer):
            return jax.lax.stop_gradient(denominator)
        return super().detached_number(denominator)

    def run(
        self, function: Callable[[Any, Any], Any], shares: Shares, in_threads: bool = False
    ) -> list[Any]:
        """Run a function on each replica and its share; see `Replicas.run`.

        Calls from several threads run one after another, where they are in no program.

        Raises:
            ReplicaError: A replica calls the network that it is a replica of.
        """
        network = self.network
        if isinstance(network._inside, Mapped):
            return network._inside.run(function, shares)
        if not network._is_concrete(shares.nests):
            return self._run_in_trace(function, shares)
        with network._held.one_at_a_time.turn():
            self.prepare_run()
            results = self._one_by_one(function, shares)
            self.synchronize_buffers(shares.sizes)
        return results

    def _run_compiled(self, function: Callable, *arguments: Any) -> Any:
        with self.network._held.one_at_a_time.turn():
            return run_forward(
                self.network, self.network._mirrored().programs, function, *arguments
            )

    def _needs_program(self, arguments: Any) -> bool:
        """Return whether a call outside of any program must be compiled into one.

        It must where its replicas wait for each other.
        """
        network = self.network
        return network._inside is None and network.synchronised and network._is_concrete(arguments)

    def all_sum(
        self, replica_index: int, rendezvous: Rendezvous, in_threads: bool
    ) -> Callable[[Any, str], Any]:
        """Refuse: replicas run one after the other, and none can wait for another."""

        def refuse(value: Any, topic: str) -> Any:
            raise CapabilityError(
                f"{topic} over the replicas: backend 'jax' runs them one after the other"
            )

        return refuse

    def _one_by_one(self, function: Callable, shares: Shares) -> list[Any]:
        rendezvous, replicas = self.rendezvous(shares), self.network.replicas
        contexts = [
            self.replica_context(i, shares, rendezvous, 0, False) for i in range(len(shares.nests))
        ]

        def job(context: Replica, share: Any) -> Any:
            with entered(context):
                return function(replicas[context.position], share)

        jobs = [
            partial(job, context, share)
            for context, share in zip(contexts, shares.nests, strict=True)
        ]
        return one_after_the_other(jobs, contexts)

    def _run_in_trace(self, function: Callable, shares: Shares) -> list[Any]:
        """Run every share on the root's variables, inside a program of the user's.

        The gradients of these variables are then those of all shares.
        """
        seats = self.network.seats
        if len(seats.devices) > 1:
            raise CapabilityError(
                f"a network replicated over {', '.join(seats.devices)} cannot run inside your jit "
                "or grad, whose arrays are on devices of their own: use optimizer.update, one "
                "compiled program over these devices, call it outside of jit and grad, or "
                "replicate over one device"
            )
        members = Members(self.network)
        trainable, frozen, others = members.values()
        by_slot = [
            (trainable, frozen, _own_keys(members, others, index)) for index in range(seats.slots)
        ]
        mapped = Mapped(seats, members, by_slot, self.settings)
        results = mapped.run(function, shares)
        members.store({}, mapped.settled())
        return results

    # Parameters, gradients and buffers
    # -------------------------------------------------------------------------------

    def prepare_run(self) -> None:
        """Follow the root.

        Raises:
            StateError: A parameter of the root has another value, and it was not copied to the
                replicas.
        """
        self.network.follow()
        if self.network._held.mirrors:
            self.refuse_stale_replicas()

    def refuse_stale_replicas(self) -> None:
        """Refuse replicas without the root's parameters, by their arrays, which never change."""
        held = self.network._mirrored()
        members = held.programs.members()
        parameters, frozen, _ = members.values()
        for name, value in (parameters | frozen).items():
            if held.is_behind(members.slots[name].native, value):
                raise self.stale_parameter(name)

    def replica_gradients(self) -> Iterator[Named]:
        """The gradients that the latest backward pass left in replicas 1, 2 and so on."""
        return iter(self.network._mirrored().gradients)

    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica: those named, or all."""
        held = self.network._mirrored()
        self.network.follow()
        slots = held.programs.members().slots
        variables = [slot.native for name, slot in slots.items() if names is None or name in names]
        values = [variable.get_value() for variable in variables]
        for mirror in held.mirrors:
            mirror.store(variables, values)
        held.note_copied(variables, values)

    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Make the replicas' buffers the same.

        Random streams follow the root's before the next run.
        """
        held = self.network._mirrored()
        self.network.follow()
        variables = [
            variable for variable in held.programs.members().others if _is_settled(variable)
        ]
        columns = {id(variable): _column(held, variable) for variable in variables}
        moved = [
            each for each in variables if not _alike(columns[id(each)], held.settled.get(id(each)))
        ]
        if self.settings.buffers == "mean" and sizes:
            for variable in moved:
                self._average(variable, columns[id(variable)][: len(sizes)], sizes)
        for mirror in held.mirrors:
            mirror.store(moved, [variable.get_value() for variable in moved])
        held.note_settled(variables)

    def _average(self, variable: nnx.Variable, column: tuple, sizes: Sequence[int]) -> None:
        """Give the root the mean of a floating buffer over the replicas, weighted by samples."""
        if jnp.issubdtype(column[0].dtype, jnp.floating):
            here = jax.device_put(list(column), arrays.find_device(self.network.device_name))
            variable.set_value(weighted_mean(here, sizes))


class DataParallelJaxNetwork(ReplicatedNetwork, AbstractJaxNetwork, metaclass=ReplicatedType):
    """A network as several replicas on JAX devices.

    An optimizer's step is one compiled program over the distinct devices, in which each computes on
    its own share; a call outside of an optimizer runs the replicas one after the other, each on its
    device, whose work overlaps where JAX returns before it is done. nnx sees the root alone:
    ``nnx.state`` and ``nnx.split`` give the root's variables.

    With ``buffers="sync"``, or with synchronised batch norm among the layers, calls outside of an
    optimizer are compiled too. Where flax's own batch norm is to be synchronised, the program
    computes on the whole batch with replicated parameters, and XLA shares the work out: outputs
    without axes are then one, not one for each replica, and the whole gradient is the root's.

    Args:
        module: A network, written once or flax's own, on the first device.
        devices: One for each replica; a device may stand several times.
        settings: See `deliralike.parallel.replicas.network.ReplicaSettings`.

    Raises:
        DeviceError: A device is not present, or the network is on another one than the first.
        SettingError: The network, or a block of it, is replicated already.
        CapabilityError: Virtual shards together with flax's own batch norm, synchronised.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="jax", in_features=3, out_features=2)
        >>> DataParallelJaxNetwork(net, ["cpu", "cpu"])(jnp.ones((5, 3))).shape
        (5, 2)
    """

    _parallelism = JaxReplicas
    native_optimizer = "DataParallelJaxOptimizer"
    root: Any
    _inside: Any = None

    def __init__(
        self,
        module: Any,
        devices: Sequence[str],
        output_device: str | None = None,
        dim: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.root = self.backend.wrap(module)
        self.training, self.dtype_built = self.root.training, self.root.dtype_built
        named = tuple(map(self.backend.check_device, devices))
        output = None if output_device is None else self.backend.check_device(output_device)
        self._held = Held(
            ReplicaSettings.of(devices=named, output_device=output, dim=dim, **settings)
        )
        self._refuse()
        if self._is_concrete(()):
            self.parallelism.prepare_run()

    @classmethod
    def of(cls, network: AbstractNetwork, settings: ReplicaSettings) -> Self:
        """A network replicated by these settings."""
        return cls(
            network, **{field.name: getattr(settings, field.name) for field in fields(settings)}
        )

    def _refuse(self) -> None:
        self.root.parallelism.refuse_replicas()
        device = self.settings.devices[0]
        if self.root.device_name != device:
            raise DeviceError(
                f"the network is on {self.root.device_name!r}, the first device is {device!r}: "
                "build the network there, or name its device first"
            )
        if self.settings.virtual_shards is not None and self.whole:
            raise CapabilityError(
                "backend 'jax' synchronises flax's own batch norm by computing on the whole "
                "batch, whose sums depend on the number of devices: with virtual_shards use the "
                "batch norm of net.nn, or buffers='root' or 'mean'"
            )

    @property
    def settings(self) -> ReplicaSettings:  # type: ignore[override]
        """How it is replicated."""
        return self._held.settings

    @property
    def seats(self) -> Seats:
        """Where the replicas are."""
        return self._held.seats

    @property
    def replicas(self) -> Sequence[Any]:  # type: ignore[override]
        """All replicas, the root first."""
        return [self.root, *(mirror.network for mirror in self._mirrored().mirrors)]

    @property
    def synchronised(self) -> bool:
        """Whether replicas exchange statistics while they run."""
        marked = (getattr(block, "synchronised", False) for _, block in self.root.named_blocks())
        return self.settings.buffers == "sync" or any(marked)

    @property
    def whole(self) -> bool:
        """Return whether programs compute on the whole batch.

        flax's own batch normalisation cannot be synchronized otherwise.
        """
        natives = (isinstance(block, nnx.BatchNorm) for _, block in self.root.named_blocks())
        return self.settings.buffers == "sync" and any(natives)

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """This network, then the root's blocks without a prefix; the root itself comes second."""
        yield "", self
        yield from self.root.named_blocks()

    def _each_slot(self) -> Iterator[tuple[str, Any]]:
        return self.root._each_slot()

    # Replicas
    # ----------------------------------------------------------------------------------------------

    def _mirrored(self) -> Held:
        """What is held for this very root: a copy of this network gets replicas of its own."""
        held = self._held
        if held.root is not self.root:
            if held.root is not None:
                held = self._held = Held(held.settings)
            held.root, held.programs = self.root, ProgramCache(self)
            places = held.settings.places
            held.mirrors = [Mirror(self.root, places[i], i) for i in range(1, len(places))]
            held.note_settled(
                [each for each in held.programs.members().others if _is_settled(each)]
            )
            replicas = (self.root, *(mirror.network for mirror in held.mirrors))
            call_replication_callbacks(
                [[block for _, block in replica.named_blocks()] for replica in replicas]
            )
        return held

    def own(self, replica: int, variable: nnx.Variable) -> nnx.Variable:
        """A replica's own variable in the place of one of the root's."""
        return variable if replica == 0 else self._mirrored().mirrors[replica - 1].of(variable)

    def keep_gradients(self, gradients: list[Named]) -> None:
        """Leave gradients in replicas 1, 2 …, in the place of all that were there."""
        self._mirrored().gradients = gradients

    def follow(self) -> None:
        """Copy the root's settings, blocks and random streams to the replicas.

        Parameters are not copied.
        """
        held = self._mirrored()
        members = held.programs.members()
        for mirror in held.mirrors:
            if held.followed is not members:
                mirror.follow(self.root)
            mirror.draw_otherwise(each for each in members.others if isinstance(each, nnx.RngState))
        held.followed = members

    def _is_concrete(self, nests: Any) -> bool:
        values = [
            variable.get_value()
            for _, variable in walk(self.root)
            if isinstance(variable, nnx.Variable)
        ]
        return not any(
            isinstance(value, jax.core.Tracer) for value in [*values, *nest.leaves(nests)]
        )


def _called(network: Any, args: tuple, kwargs: Named) -> Any:
    return network(*args, **kwargs)


def _own_keys(members: Members, others: list[Any], index: int) -> list[Any]:
    """A replica's buffers and random states from the root's: its keys differ."""
    return [
        derived_key(value, index) if index and isinstance(variable, nnx.RngKey) else value
        for variable, value in zip(members.others, others, strict=True)
    ]


def _column(held: Held, variable: nnx.Variable) -> tuple:
    """A variable's value in each replica, the root first."""
    return variable.get_value(), *(mirror.of(variable).get_value() for mirror in held.mirrors)


def _is_settled(variable: nnx.Variable) -> bool:
    """Return whether a buffer is one array that all replicas are to have alike.

    Random states are not: they follow the root before a run.
    """
    return not isinstance(variable, nnx.RngState) and isinstance(variable.get_value(), jax.Array)


def _alike(column: tuple, before: tuple | None) -> bool:
    return before is not None and all(now is then for now, then in zip(column, before, strict=True))
