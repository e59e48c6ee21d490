"""A network as several replicas on JAX.

In a step each replica runs compiled programs on its device, and the host waits for none of them.
Eager calls run one replica after the other. Where replicas share batch statistics there is one
program of the whole batch instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from deliralike import nest
from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.evaluation import network_program
from deliralike.backends.jax.compiled.program import (
    ModuleVariables,
    Named,
    ProgramCache,
    Values,
)
from deliralike.backends.jax.network import AbstractJaxNetwork, JaxNetworkType, walk
from deliralike.backends.jax.replicas.copies import ReplicaCopy
from deliralike.backends.jax.replicas.traced import TracedReplicas, is_floating
from deliralike.backends.jax.replicas.whole_batch import WholeBatch
from deliralike.backends.jax.variables import array_of, set_array
from deliralike.errors import CapabilityError
from deliralike.network.base import AbstractNetwork
from deliralike.network.construction import Construction, constructing
from deliralike.optim.loss import Loss
from deliralike.parallel.batches.scatter import Shares, mean_by_samples
from deliralike.parallel.replicas.callbacks import call_replication_callbacks
from deliralike.parallel.replicas.context import CallLock, Rendezvous, Replica
from deliralike.parallel.replicas.network import (
    Replicas,
    ReplicaSettings,
    ReplicatedNetwork,
    call_with,
)


class ReplicaState:
    """The state that a replicated network holds beside its root.

    nnx should see nothing of it, and all of it can be remade.

    A copy holds the settings alone; its replicas are made when they are needed.

    Attributes:
        root: The network that the replicas copy; None before there are any.
        copies: Replicas 1, 2 ….
        gradients: What the latest backward pass left in each of them.
        programs: The compiled programs of the network.
        followed: The variables of the root when the copies followed it last.
        settled: The values of each buffer, by its id, when all replicas had the same.
        copied: The root's value of each parameter, by its id, that the copies have.
    """

    def __init__(self, settings: ReplicaSettings) -> None:
        """Hold settings."""
        self.settings = settings
        self.call_lock = CallLock()
        self.root: Any = None
        self.copies: list[ReplicaCopy] = []
        self.gradients: list[Named] = []
        self.programs: Any = None
        self.followed: Any = None
        self.settled: dict[int, tuple] = {}
        self.copied: dict[int, Any] = {}

    def networks(self) -> list[Any]:
        """All replicas, the root first."""
        return [self.root, *(copy.network for copy in self.copies)]

    def values_of(self, variable: nnx.Variable) -> tuple:
        """A variable's value in each replica, the root first."""
        return array_of(variable), *(
            array_of(copy.of(variable)) for copy in self.copies
        )

    def note_settled(self, variables: Sequence[nnx.Variable]) -> None:
        """Remember that all replicas have the same values of these variables.

        The variables are synchronized until one of them is set to another value.
        """
        self.settled = {
            id(variable): self.values_of(variable) for variable in variables
        }

    def is_settled(self, variable: nnx.Variable) -> bool:
        """Return whether no replica has set this variable since all had the same value."""
        before = self.settled.get(id(variable))
        if before is None:
            return False
        return all(map(operator.is_, self.values_of(variable), before))

    def note_copied(
        self, variables: Sequence[nnx.Variable], values: Sequence[Any]
    ) -> None:
        """Remember which values of the root's the copies have."""
        for variable, value in zip(variables, values, strict=True):
            self.copied[id(variable)] = value

    def is_behind(self, variable: nnx.Variable, value: Any) -> bool:
        """Return whether the root has another value than the copies.

        Values are compared where the root's is not the very array that was copied.
        """
        if self.copied.get(id(variable)) is value:
            return False
        other = array_of(self.copies[0].of(variable))  # all are written together
        may_be_nan = jnp.issubdtype(value.dtype, jnp.inexact)
        if not np.array_equal(
            arrays.numpy(value), arrays.numpy(other), equal_nan=may_be_nan
        ):
            return True
        self.note_copied([variable], [value])
        return False

    def __reduce__(self) -> tuple:
        """Copy and pickle the settings alone."""
        return ReplicaState, (self.settings,)


class ReplicatedType(JaxNetworkType):
    """The class of replicated networks: it keeps the paths and values of the network inside."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Build one inside a construction of its own, which is never finished."""
        with constructing(Construction(backend=cls.backend)):
            return super().__call__(*args, **kwargs)


class RefusingRendezvous(Rendezvous):
    """The rendezvous of replicas of which none can wait for another."""

    def __init__(self, why: str) -> None:
        """Refuse for a reason, which follows the topic of an exchange in the error."""
        super().__init__(parties=1)
        self.why = why

    def exchange(self, index: int, topic: str, value: Any) -> NoReturn:
        """Refuse.

        Raises:
            CapabilityError: Always.
        """
        raise CapabilityError(f"{topic} over {self.why}")

    def all_sum(self, value: Any, topic: str) -> NoReturn:
        """Refuse a sum over replicas, as an exchange."""
        self.exchange(0, topic, value)


_IN_TURN = RefusingRendezvous(
    "the replicas: backend 'jax' runs them one after the other, and none can wait for "
    "another; batch norms share their statistics with buffers='sync'"
)


class JaxReplicas(Replicas):
    """The computations of a replicated network of JAX."""

    has_threads = False

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, args: tuple, kwargs: Named) -> Any:
        """Return the outputs for a whole batch.

        The arguments are scattered, the replicas run, and their outputs are gathered; replicas that
        share batch statistics give way to the root, which computes on the whole batch.
        """
        if self.network.synchronised:
            return self._run_whole(call_with, (args, kwargs))
        return super().call(args, kwargs)

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """The loss of the whole batch, from losses computed inside the replicas."""
        if self.network.synchronised:
            return self._run_whole(loss.whole, *batch)
        return super().compute_loss(loss, *batch)

    def detached_number(self, denominator: Any) -> Any:
        """A denominator as a number; in a program, as an array without gradient."""
        if arrays.is_traced(denominator):
            return jax.lax.stop_gradient(denominator)
        return super().detached_number(denominator)

    def run(
        self,
        function: Callable[[Any, Any], Any],
        shares: Shares,
        in_threads: bool = False,
    ) -> list[Any]:
        """Run a function on each replica and its share; see `Replicas.run`."""
        inside = self.network._inside
        if isinstance(inside, TracedReplicas):
            return inside.run(function, shares, self._contexts(shares))
        if not self.network._is_concrete(shares.nests):
            self._refuse_in_trace()
        return super().run(function, shares, in_threads)

    @property
    def call_lock(self) -> CallLock:
        """The lock of the network's calls, which nnx should not see."""
        return self.network._replica_state.call_lock

    def rendezvous(self, shares: Shares) -> Rendezvous:
        """Return a rendezvous that refuses every exchange."""
        return _IN_TURN

    def all_sum(
        self, replica_index: int, rendezvous: Rendezvous, in_threads: bool
    ) -> Callable[[Any, str], Any]:
        """Return a function that refuses: no replica can wait for another."""
        return _IN_TURN.all_sum

    def _contexts(self, shares: Shares) -> list[Replica]:
        """Return the context of each replica that has a share."""
        rendezvous = self.rendezvous(shares)
        contexts = []
        for position in range(len(shares.nests)):
            contexts.append(
                self.replica_context(position, shares, rendezvous, 0, in_threads=False)
            )
        return contexts

    def _run_whole(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``function(root, *arguments)`` on the whole batch."""
        network, inside = self.network, self.network._inside
        if isinstance(inside, WholeBatch):
            return function(network.root, *inside.shard(arguments))
        if not network._is_concrete(arguments):
            if len(set(self.settings.places)) > 1:
                self._refuse_in_trace()
            return function(network.root, *arguments)
        with self.call_lock.acquire():
            on_root = nest.map(partial(_moved, device=network.device_name), arguments)
            result = network_program(function, network.root)(*on_root)
            self.synchronize_buffers(())
        return network.on_output_device(result)

    def _refuse_in_trace(self) -> NoReturn:
        devices = dict.fromkeys(self.settings.places)
        raise CapabilityError(
            f"a network replicated over {', '.join(devices)} cannot run inside your jit or grad, "
            "whose arrays are on one device: use optimizer.update, call it outside of jit and "
            "grad, or replicate over one device with buffers='sync'"
        )

    # Parameters, gradients and buffers
    # ----------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Follow the root."""
        self.network.follow()

    def stale_name(self) -> str | None:
        """Compare the arrays, which never change, by identity first."""
        state = self.network._current_state()
        variables = state.programs.latest  # of `follow`
        parameters, frozen, _ = variables.values()
        for name, value in (parameters | frozen).items():
            if state.is_behind(variables.slots[name].native, value):
                return name
        return None

    def replica_gradients(self) -> Iterator[Named]:
        """Yield, and forget, the gradients that backward has left in replicas 1, 2 and so on."""
        state = self.network._current_state()
        while state.gradients:
            yield state.gradients.pop(0)

    def holds_replica_gradients(self) -> bool:
        """See `Replicas`."""
        return bool(self.network._current_state().gradients)

    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica: those named, or all."""
        state = self.network._current_state()
        self.network.follow()
        parameters, values = [], []
        for name, slot in state.programs.latest.slots.items():
            if names is None or name in names:
                parameters.append(slot.native)
                values.append(array_of(slot.native))
        for copy in state.copies:
            copy.store(parameters, values)
        state.note_copied(parameters, values)

    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Make the replicas' buffers the same.

        Random streams follow the root's before the next run.
        """
        state = self.network._current_state()
        self.network.follow()
        buffers = _synchronized(state.programs.latest)
        changed = [variable for variable in buffers if not state.is_settled(variable)]
        if self.settings.buffers == "mean" and sizes and changed:
            self._average(changed, sizes)
        for copy in state.copies:
            copy.store(changed, [array_of(variable) for variable in changed])
        state.note_settled(buffers)

    def _average(self, buffers: Sequence[nnx.Variable], sizes: Sequence[int]) -> None:
        """Give the root the means of floating buffers over the replicas, weighted by samples."""
        state, device = self.network._current_state(), self.network.device_name
        floating = [each for each in buffers if is_floating(array_of(each))]
        by_buffer = [state.values_of(each)[: len(sizes)] for each in floating]
        by_replica = [
            arrays.move_all(values, device) for values in zip(*by_buffer, strict=True)
        ]
        for buffer, mean in zip(
            floating, _means(by_replica, tuple(sizes)), strict=True
        ):
            buffer.set_value(mean)


class DataParallelJaxNetwork(
    ReplicatedNetwork, AbstractJaxNetwork, metaclass=ReplicatedType
):
    """A network as several replicas on JAX devices.

    In an optimizer's step each replica runs compiled programs on its device, which are dispatched
    without waiting; a call outside of an optimizer runs the replicas one after the other, each on
    its device, whose work overlaps where JAX returns before it is done. nnx sees the root alone:
    ``nnx.state`` and ``nnx.split`` give the root's variables.

    With ``buffers="sync"`` a step is one program of the whole batch with replicated parameters, and
    XLA distributes the work: outputs without axes are then one, not one for each replica, and the
    whole gradient is the root's. A call outside of an optimizer is computed by the root. With
    `virtual_shards` the root computes alone.

    Args:
        module: A network, written once or flax's own, on the first device.
        devices: One for each replica; a device may stand several times.
        settings: See `deliralike.parallel.replicas.network.ReplicaSettings`.

    Raises:
        DeviceError: A device is not present, or the network is on another one than the first.
        SettingError: The network, or a block of it, is replicated already.

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
        chosen = ReplicaSettings.on_devices(
            self.root, devices, output_device, dim=dim, **settings
        )
        self._replica_state = ReplicaState(chosen)
        self.root.parallelism.refuse_replicas()
        if self._is_concrete(()):
            self.parallelism.prepare_run()

    @classmethod
    def of(cls, network: AbstractNetwork, settings: ReplicaSettings) -> Self:
        """A network replicated by these settings."""
        return cls(network, **vars(settings))

    @property
    def settings(self) -> ReplicaSettings:  # type: ignore[override]
        """The settings by which the network is replicated."""
        return self._replica_state.settings

    @property
    def whole_batch(self) -> WholeBatch:
        """The devices of programs that compute on the whole batch."""
        devices = self.settings.places
        if self.settings.virtual_shards is not None:
            devices = devices[:1]  # sums depend on the number of devices
        return WholeBatch(devices, self.settings.dim)

    @property
    def replicas(self) -> Sequence[Any]:  # type: ignore[override]
        """All replicas, the root first."""
        return self._current_state().networks()

    @property
    def synchronised(self) -> bool:
        """Whether the replicas share batch statistics."""
        return self.settings.buffers == "sync"

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """This network, then the root's blocks without a prefix; the root itself comes second."""
        yield "", self
        yield from self.root.named_blocks()

    def _each_slot(self) -> Iterator[tuple[str, Any]]:
        return self.root._each_slot()

    # Replicas
    # ----------------------------------------------------------------------------------------------

    def _current_state(self) -> ReplicaState:
        """The state for this very root: a copy of this network gets replicas of its own."""
        state = self._replica_state
        if state.root is self.root:
            return state
        if state.root is not None:
            state = self._replica_state = ReplicaState(state.settings)
        state.root, state.programs = self.root, ProgramCache(self)
        state.copies = []
        for index, device in enumerate(state.settings.places):
            if index > 0:
                state.copies.append(ReplicaCopy(self.root, device, index))
        state.note_settled(_synchronized(state.programs.variables()))
        blocks = []
        for replica in state.networks():
            blocks.append([block for _, block in replica.named_blocks()])
        call_replication_callbacks(blocks)
        return state

    def replica_values(self, variables: ModuleVariables) -> list[Values]:
        """Return the values of each replica's variables, the root's first."""
        copies = self._current_state().copies
        return [variables.values(), *(copy.values(variables) for copy in copies)]

    def store_others(
        self, variables: ModuleVariables, changed: Sequence[Sequence[Any]]
    ) -> None:
        """Set each replica's buffers and random states; None leaves one as it is."""
        of_root, *of_copies = changed
        variables.store({}, of_root)
        for copy, values in zip(self._current_state().copies, of_copies, strict=True):
            for variable, value in zip(variables.others, values, strict=True):
                if value is not None:
                    set_array(copy.of(variable), value)

    def on_output_device(self, outputs: Any) -> Any:
        """Return a nest of outputs with its arrays on the device that was chosen for them."""
        device = self.settings.output_device or self.device_name
        return nest.map(partial(_moved, device=device), outputs)

    def keep_gradients(self, gradients: list[Named]) -> None:
        """Leave gradients in replicas 1, 2 …, in the place of all that were there."""
        self._current_state().gradients = gradients

    def follow(self) -> None:
        """Copy the root's settings, blocks and random streams to the replicas.

        Parameters are not copied.
        """
        state = self._current_state()
        variables = state.programs.variables()
        variables.start_streams()
        streams = [each for each in variables.others if isinstance(each, nnx.RngState)]
        for copy in state.copies:
            if state.followed is not variables:
                copy.follow(self.root)
            copy.derive_streams(streams)
        state.followed = variables

    def _is_concrete(self, nests: Any) -> bool:
        """Return whether neither the root nor the nests hold traced values."""
        for _, node in walk(self.root):
            if isinstance(node, nnx.Variable) and arrays.is_traced(array_of(node)):
                return False
        return not any(map(arrays.is_traced, nest.leaves(nests)))


@partial(jax.jit, static_argnums=1)
def _means(
    by_replica: list[list[jax.Array]], sizes: tuple[int, ...]
) -> list[jax.Array]:
    """Return means over the replicas, weighted by samples."""
    columns = zip(*by_replica, strict=True)
    return [mean_by_samples(values, sizes) for values in columns]


def _moved(leaf: Any, device: str) -> Any:
    return arrays.move(leaf, device) if isinstance(leaf, jax.Array) else leaf


def _synchronized(variables: ModuleVariables) -> list[nnx.Variable]:
    """The buffers that are one array each, which all replicas are to have alike.

    Random states are not among them: they follow the root before a run.
    """
    buffers = []
    for variable in variables.others:
        is_array = isinstance(array_of(variable), jax.Array)
        if is_array and not isinstance(variable, nnx.RngState):
            buffers.append(variable)
    return buffers
