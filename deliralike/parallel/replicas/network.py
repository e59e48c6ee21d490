"""The framework-free half of a replicated network: scatter, replicas, gather, losses and hooks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from deliralike import random
from deliralike.errors import (
    DeviceError,
    SettingError,
    StateError,
    refuse_unknown_settings,
    refuse_unknown_word,
)
from deliralike.network.parallelism import Hooks, Single
from deliralike.network.state import Slot
from deliralike.network.tree import block_tree
from deliralike.network.wrapper import StepSelf, WrapperNetwork
from deliralike.optim.loss import (
    Loss,
    LossResult,
    count_samples,
    nonzero,
    value_of,
    with_value,
)
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.batches.gather import OTHERS, SCALARS, gather
from deliralike.parallel.batches.scatter import (
    ARGUMENTS,
    Shares,
    partition,
    split_batch,
)
from deliralike.parallel.replicas.context import (
    CallLock,
    Rendezvous,
    Replica,
    current,
    entered,
)
from deliralike.parallel.replicas.run_in_threads import run_in_threads, run_in_turn

BUFFERS = ("root", "mean", "sync")


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """The settings of a replicated network.

    Attributes:
        devices: One for each replica; the first is the root's. A device may occur several times.
        output_device: The device on which outputs are gathered; the first one when None.
        dim: The axis that counts samples.
        buffers: The rule for buffers that the replicas changed: ``"root"`` keeps the root's,
            ``"mean"`` averages them by share (whole numbers are the root's), ``"sync"`` takes the
            statistics of batch and instance normalisation from the whole batch (other buffers are
            the root's).
        scalars: How 0-d outputs are gathered: ``"stack"``, ``"mean"`` weighted by share, ``"sum"``.
        others: How outputs that are no arrays are gathered: ``"equal"`` demands the same of all,
            ``"list"`` lists them.
        spec: The arguments ``(args, kwargs)`` to split, copy and keep; see `scatter`.
        virtual_shards: The number of shares of every batch, whatever the number of devices, so
            that results are bit-identical for any number of them. Each share has a replica of its
            own.
        parallel: Whether to run the replicas in threads, or one after the other.
    """

    devices: tuple[str, ...]
    output_device: str | None = None
    dim: int = 0
    buffers: str = "root"
    scalars: str = "stack"
    others: str = "equal"
    spec: Any = None
    virtual_shards: int | None = None
    parallel: bool = True

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingError: A word is unknown, or settings do not fit each other.
        """
        if not self.devices:
            raise SettingError(
                "a replicated network needs at least one device, not an empty list"
            )
        refuse_unknown_word("buffers", self.buffers, BUFFERS)
        refuse_unknown_word("scalars", self.scalars, SCALARS)
        refuse_unknown_word("others", self.others, OTHERS)
        if self.virtual_shards is not None and self.virtual_shards < len(self.devices):
            raise SettingError(
                f"virtual_shards={self.virtual_shards!r} is less than the {len(self.devices)} "
                "devices: give each at least one shard"
            )
        if self.buffers == "sync" and not self.parallel:
            raise SettingError(
                "buffers='sync' needs parallel=True: the replicas wait for each other"
            )

    @classmethod
    def of(cls, **settings: Any) -> ReplicaSettings:
        """Return the settings; the error for an unknown name suggests another."""
        refuse_unknown_settings(
            "DataParallel", settings, [field.name for field in fields(cls)]
        )
        return cls(**settings)

    @classmethod
    def on_devices(
        cls,
        network: Any,
        devices: Sequence[Any],
        output_device: Any = None,
        **settings: Any,
    ) -> ReplicaSettings:
        """Return the settings for a network, with the devices by the names of its backend.

        Raises:
            DeviceError: A device is not present, or the network is on another one than the first.
        """
        backend = network.backend
        names = tuple(map(backend.check_device, devices))
        if output_device is not None:
            output_device = backend.check_device(output_device)
        chosen = cls.of(devices=names, output_device=output_device, **settings)
        chosen.refuse_other_device(network.device_name)
        return chosen

    def refuse_other_device(self, device: str) -> None:
        """Refuse a network that is not on the first device.

        Raises:
            DeviceError: It is on another one.
        """
        first = self.devices[0]
        if device != first:
            raise DeviceError(
                f"the network is on {device!r}, the first device is {first!r}: move it there, or "
                "build it there, before it is replicated, or name its device first"
            )

    @property
    def places(self) -> tuple[str, ...]:
        """The device of each replica."""
        if self.virtual_shards is None:
            return self.devices
        shards = partition(self.virtual_shards, len(self.devices))
        places: list[str] = []
        for device, count in zip(self.devices, shards, strict=True):
            places += [device] * count
        return tuple(places)


class Replicas(Single):
    """The parallelism of a replicated network: each replica computes on its device and its share.

    A loss is computed inside the replicas or on their gathered outputs.
    """

    is_replicated = True
    has_threads = True  # whether the backend can run replicas in threads

    @property
    def settings(self) -> ReplicaSettings:
        """The network's settings."""
        return self.network.settings

    @property
    def replica_count(self) -> int:
        """The number of replicas in this process."""
        return len(self.settings.places)

    def count_samples(self, batch: Any) -> int:
        """Return the number of samples in a batch that an optimizer is given."""
        return count_samples(batch, self.settings.dim)

    # What a backend provides
    # -----------------------------------------------------------------------------------------

    @abstractmethod
    def replica_gradients(self) -> Iterator[dict[str, Any]]:
        """Yield the gradients by neutral name that backward left in each replica but the root."""

    @abstractmethod
    def holds_replica_gradients(self) -> bool:
        """Return whether a replica but the root holds gradients that no update has taken."""

    @abstractmethod
    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica: those named, or all."""

    @abstractmethod
    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Make the buffers of all replicas the same, by the policy in `ReplicaSettings`.

        Args:
            sizes: The number of samples of each replica that took part.
        """

    @abstractmethod
    def all_sum(
        self, replica_index: int, rendezvous: Rendezvous, in_threads: bool
    ) -> Callable[[Any, str], Any]:
        """Return the function `Replica.all_sum` of one replica.

        Args:
            in_threads: Whether each replica runs a backward pass of its own in its thread; else
                there is one backward pass over the graph of all replicas.
        """

    def thread_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """Return a factory of contexts that give a replica's thread the caller's settings.

        The settings are the framework's own. This is called in the calling thread, before the
        replicas start.
        """
        return nullcontext

    def limit_threads(self, replicas: int) -> AbstractContextManager[Any]:
        """Return a context that divides the threads of the framework's libraries among replicas."""
        return nullcontext()

    def draw_seed(self) -> int:
        """Return a number from the framework's generator: the key of one call's native draws."""
        return 0

    @abstractmethod
    def follow(self) -> None:
        """Copy changes of the root's settings, hooks and blocks to the replicas."""

    @abstractmethod
    def stale_name(self) -> str | None:
        """Return the name of a parameter whose value the replicas do not have; None without one."""

    def running(self, shares: Shares) -> AbstractContextManager[Any]:
        """Return a context around one run of the replicas, and their buffers' synchronisation."""
        return nullcontext()

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the outputs for a whole batch.

        The arguments are scattered, the replicas run, and their outputs are gathered.
        """
        shares = self.scatter((args, kwargs))
        outputs = self.run(call_with, shares)
        return self.gather(outputs, shares.sizes)

    def scatter(self, arguments: Any, loss: Loss | None = None) -> Shares:
        """Return the shares of a call's ``(args, kwargs)``, or of a loss's batch.

        There is one share for each replica that takes part.
        """
        spec, root = self.spec_of(loss)
        places = self.settings.places
        dim = self.settings.dim
        return split_batch(
            arguments, places, dim, spec, self.network.backend, root=root
        )

    def spec_of(self, loss: Loss | None) -> tuple[Any, str]:
        """Return the spec and the name of a loss's batch, or of the network's arguments."""
        if loss is None:
            return self.settings.spec, ARGUMENTS
        return loss.spec, "batch"

    def gather(self, outputs: Sequence[Any], sizes: Sequence[int]) -> Any:
        """Return the replicas' outputs joined to those of the whole batch."""
        settings = self.settings
        return gather(
            outputs,
            settings.dim,
            settings.output_device,
            scalars=settings.scalars,
            others=settings.others,
            sizes=sizes,
            backend=self.network.backend,
        )

    def run(
        self,
        function: Callable[[Any, Any], Any],
        shares: Shares,
        in_threads: bool = False,
    ) -> list[Any]:
        """Run ``function(replica network, its share)`` on each replica that takes part.

        Calls from several threads run one after another. The replicas follow the root, run, and
        have their buffers synchronised.

        Args:
            in_threads: Whether `function` runs a backward pass of its own.

        Raises:
            ReplicaError: A replica calls the network that it is a replica of.
            StateError: See `prepare_run`.
        """
        with self.call_lock.acquire():
            self.prepare_run()
            with self.running(shares):
                results = self._run_shares(function, shares, in_threads)
                self.synchronize_buffers(shares.sizes)
        return results

    @property
    def call_lock(self) -> CallLock:
        """The lock of the network's calls."""
        return self.network._call_lock  # noqa: SLF001  # every replicated network has one

    def prepare_run(self) -> None:
        """Let the replicas follow the root, in its parameters too.

        Raises:
            StateError: A parameter of the root was updated without the replicas' gradients.
        """
        self.follow()
        if self.replica_count > 1 and (name := self.stale_name()) is not None:
            self.refuse_gradients_left_out(name)
            self.copy_parameters()

    def refuse_gradients_left_out(self, changed: str) -> None:
        """Refuse a change of the root's parameters that leaves out gradients of the replicas.

        Args:
            changed: The name of the parameter that has changed.

        Raises:
            StateError: See `prepare_run`.
        """
        if self.holds_replica_gradients():
            raise StateError(
                f"parameter {changed!r} has changed while gradients of it are left in the "
                "replicas: update it by an optimizer over the replicated network, "
                f"network.backend.optimizer(rule, network) or {self.network.native_optimizer}, "
                "which accumulate them; after a change by hand call copy_parameters()"
            )

    def _run_shares(
        self, function: Callable, shares: Shares, in_threads: bool
    ) -> list[Any]:
        rendezvous = self.rendezvous(shares)
        thread_context = self.thread_context()
        seed = self.draw_seed()
        jobs = []
        contexts = []
        for position, share in enumerate(shares.nests):
            context = self.replica_context(
                position, shares, rendezvous, seed, in_threads
            )
            contexts.append(context)
            jobs.append(
                partial(self.run_replica, context, thread_context, function, share)
            )
        if self.settings.parallel and self.has_threads and len(jobs) > 1:
            with self.limit_threads(len(jobs)):
                results = run_in_threads(jobs, contexts, rendezvous)
        else:
            with self.limit_threads(1):
                results = run_in_turn(jobs, contexts)
        for first in contexts[:1]:  # a process may have no share
            random.count_draws(first.stream)
        return results

    def run_replica(
        self, context: Replica, thread_context: Callable, function: Callable, share: Any
    ) -> Any:
        """Return ``function(replica network, share)`` of one replica, in its thread."""
        with thread_context(), entered(context):
            return function(self.network.replicas[context.position], share)

    def local_sizes(self, shares: Shares) -> tuple[int, ...]:
        """Return the number of samples in each share that this process computes."""
        return shares.sizes

    def rendezvous(self, shares: Shares) -> Rendezvous:
        """Return a rendezvous of the replicas that have a share."""
        return Rendezvous(len(shares.nests))

    def replica_context(
        self,
        position: int,
        shares: Shares,
        rendezvous: Rendezvous,
        seed: int,
        in_threads: bool,
    ) -> Replica:
        """Return the context of one of this process's replicas."""
        return Replica(
            index=position,
            device=self.settings.places[position],
            sizes=shares.sizes,
            rendezvous=rendezvous,
            all_sum=self.all_sum(position, rendezvous, in_threads),
            synchronised=self.settings.buffers == "sync",
            seed=seed,
        )

    # Losses
    # ----------------------------------------------------------------------------------------------

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """Return the loss of the whole batch, in one graph with the losses of all replicas."""
        network = self.network
        shares = self.scatter(batch, loss)
        results = self.run(partial(_call, loss.compute), shares)
        parts = [loss.parts(result) for result in results]
        values = self._stack(part.value for part in parts)
        total = None
        if loss.reduction == "denominator":
            total = sum(self.detached_number(part.denominator) for part in parts)
            value = network.nn.sum(values) / (loss.divisor or nonzero(total))
        else:
            weights = network.nn.constant(
                np.asarray(loss.weights(shares.sizes)), values
            )
            value = network.nn.sum(values * weights)
        extras = self._gather_extras(parts, shares.sizes)
        return loss.result(LossResult(value, extras, total))

    def forward_backward(
        self, loss: Loss, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Run forward and backward in each replica's own thread; the gradients stay there.

        Args:
            backward: ``backward(value)`` runs the native backward pass from a share's weighted
                loss.

        Returns:
            The result of the loss function for the whole batch, without a graph.
        """
        network = self.network
        if not network.settings.parallel:
            return self.forward_backward_at_once(loss, backward, *batch)
        shares = self.scatter(batch, loss)

        def run_share(replica: Any, share: Any) -> LossResult:
            part = self.compute_part(loss, replica, share)
            backward(part.value)
            return part.with_value(network.nn.stop_gradient(part.value))

        parts = self.run(run_share, shares, in_threads=True)
        value = network.nn.sum(self._stack(part.value for part in parts))
        extras = self._gather_extras(parts, shares.sizes)
        return loss.result(LossResult(value, extras, parts[0].denominator))

    def forward_backward_at_once(
        self, loss: Loss, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Run one backward pass over the graph of all replicas, in the calling thread."""
        result = self.compute_loss(loss, *batch)
        loss_value = value_of(result)
        backward(loss_value)
        return with_value(result, self.network.nn.stop_gradient(loss_value))

    def compute_part(self, loss: Loss, replica: Any, share: Any) -> LossResult:
        """Return a replica's part of the batch's loss, with the denominator of the whole batch."""
        part = loss.parts(loss.compute(replica, *share))
        context = current()
        assert context is not None  # replicas run in `entered` blocks
        samples = context.sizes[context.index]
        if loss.reduction != "denominator":
            weight = loss.weights(context.sizes)[context.index]
            return part.with_value(part.value * weight)
        if (
            loss.is_mean and type(part.denominator) is int
        ):  # of shapes: as the samples are
            denominator = part.denominator * sum(context.sizes) / samples
        else:
            own = self.detached_number(part.denominator)
            denominator = sum(context.exchange("the loss's denominator", own))
        value = part.value * (1.0 / (loss.divisor or nonzero(denominator)))
        return LossResult(value, part.extras, denominator)

    def detached_number(self, denominator: Any) -> Any:
        """Return a denominator as a number on the host."""
        return self.network.backend.number(denominator)

    def _stack(self, values: Iterable[Any]) -> Any:
        network = self.network
        return network.backend.stack(list(values), network.settings.output_device)

    def _gather_extras(self, parts: Sequence[LossResult], sizes: Sequence[int]) -> Any:
        if parts[0].extras is None:
            return None
        return self.gather([part.extras for part in parts], sizes)

    # Updates
    # ----------------------------------------------------------------------------------------------

    def update_hooks(self) -> Hooks:
        """Return hooks that accumulate gradients before an update, and copy parameters after it."""
        return [AccumulateGradients(self.network)], [CopyParameters(self.network)]

    def copy_state(self) -> None:
        """Copy all parameters and buffers from the root to the other replicas."""
        self.copy_parameters()
        self.synchronize_buffers(())


class ReplicasWithLeaves(Replicas):
    """The parallelism of replicas of which each parameter has a gradient of its own.

    Attributes:
        sum_in_threads: ``sum_in_threads(rendezvous, index, x, topic)`` returns the sum of an array
            over replicas that each run a backward pass.
        sum_of_graphs: The same where one backward pass goes over the graph of all replicas.
    """

    sum_in_threads: ClassVar[Callable[..., Any]]
    sum_of_graphs: ClassVar[Callable[..., Any]]

    @abstractmethod
    def replica_leaves(self, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return, for each further replica, the copies of the root's parameters by name.

        A copy that keeps no gradient is left out.
        """

    def all_sum(
        self, replica_index: int, rendezvous: Rendezvous, in_threads: bool
    ) -> Callable[[Any, str], Any]:
        """See `Replicas`."""
        function = self.sum_in_threads if in_threads else self.sum_of_graphs
        return partial(function, rendezvous, replica_index)

    def replica_gradients(
        self, parameters: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield each replica's gradients of these parameters, or of all, and clear them there.

        So a second hook that accumulates them adds nothing.
        """
        if parameters is None:
            parameters = self.network.root_parameters()
        for leaves in self.replica_leaves(parameters):
            gradients = {}
            for name, leaf in leaves.items():
                gradients[name] = leaf.grad
                leaf.grad = None
            yield gradients

    def holds_replica_gradients(self) -> bool:
        """See `Replicas`."""
        leaves = self.replica_leaves(self.network.root_parameters())
        of_replicas = map(dict.values, leaves)
        return any(leaf.grad is not None for leaf in chain.from_iterable(of_replicas))

    def accumulate_gradients(self, parameters: Mapping[str, Any] | None = None) -> None:
        """Add the replicas' gradients of these parameters, or of all, to the root's, in order."""
        if parameters is None:
            parameters = self.network.root_parameters()
        for gradients in self.replica_gradients(parameters):
            for name, gradient in gradients.items():
                if gradient is not None:
                    parameter = parameters[name]
                    parameter.grad = self.network.backend.add(
                        parameter.grad, gradient, str(parameter.device)
                    )

    def clear_replica_gradients(self, parameters: Mapping[str, Any]) -> None:
        """Drop the gradients of the parameters' copies in further replicas."""
        for _ in self.replica_gradients(parameters):
            pass


class ReplicatedNetwork(WrapperNetwork):
    """A network that runs as several replicas, each on its device and on its share of a batch.

    It is an abstract network itself: its state, parameters and blocks are the root's, under the
    root's names, so a checkpoint does not depend on the number of replicas. Replicas own their
    storage, on the same device too. `parallelism` computes them.

    Attributes:
        settings: The settings of the replicas.
        root: The network that was given; it is the first replica.
        replicas: All replicas, the root first.
        native_optimizer: The class that keeps replicas equal to the root with an optimizer of the
            framework's own.
    """

    _parallelism: ClassVar[type[Replicas]] = Replicas  # type: ignore[type-abstract]  # a backend has its own
    enclosed = "root"
    native_optimizer = ""
    settings: ReplicaSettings
    root: Any
    replicas: Sequence[Any]

    @property
    def parallelism(self) -> Any:
        """The object that computes the network over its replicas, with a backend's own methods."""
        return self._parallelism(self)

    def __repr__(self) -> str:
        """Return the devices, and the tree of the network inside."""
        devices = list(self.settings.places)
        return block_tree(
            type(self).__name__, [("devices", devices)], [("module", repr(self.root))]
        )

    __str__ = __repr__

    def _self_in_steps(self) -> Any:
        return StepSelf(self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Scatter the arguments, run the replicas, gather their outputs."""
        return self.parallelism.call(args, kwargs)

    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica: those named, or all."""
        self.parallelism.copy_parameters(names)

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """Yield the root's blocks."""
        return self.root.named_blocks()

    def neutral_slots(self) -> dict[str, Slot]:
        """Return the root's slots, without a prefix.

        Writing to them directly needs `copy_parameters` afterwards.
        """
        return self.root.neutral_slots()

    def load_neutral_state(self, state: Any, strict: bool = True) -> Any:
        """Load a state into the root, and copy it to every replica."""
        report = self.root.load_neutral_state(state, strict)
        self.parallelism.copy_state()
        return report

    @property
    def device_name(self) -> str:
        """The root's device."""
        return self.settings.devices[0]

    @property
    def dtype_name(self) -> str:
        """The root's floating type."""
        return self.root.dtype_name


class NetworkHook:
    """The base of hooks of an optimizer that read a network."""

    def __init__(self, network: WrapperNetwork) -> None:
        """Take the network of the optimizer."""
        self.network: Any = network


class AccumulateGradients(NetworkHook):
    """Pre-update hook that adds the replicas' gradients to the root's, in the order of replicas.

    A parameter that took no part in any replica keeps None and is left alone by the update.
    """

    def __call__(
        self, optimizer: AbstractOptimizer, gradients: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the accumulated gradients of the optimizer's parameters."""
        network = self.network
        for of_replica in optimizer.replica_gradients():
            gradients = network.backend.add_gradients(
                gradients, of_replica, network.device_name
            )
        return gradients


class CopyParameters(NetworkHook):
    """Post-update hook that copies updated parameters to every replica, after all other hooks."""

    runs_last = True

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        """Copy the parameters that the update has changed."""
        self.network.copy_parameters(optimizer.updated)


def call_with(network: Any, arguments: tuple[tuple, dict[str, Any]]) -> Any:
    """Return the outputs of a network for positional and keyword arguments."""
    args, kwargs = arguments
    return network(*args, **kwargs)


def _call(function: Callable, network: Any, share: tuple) -> Any:
    return function(network, *share)
