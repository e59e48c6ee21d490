"""Replicated networks on Chainer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.network import (
    AbstractChainerNetwork,
    ChainerNetworkType,
    ChainerSingle,
    WrappedChainerNetwork,
    tie_as,
)
from deliralike.backends.chainer.random import Draws, drawing
from deliralike.backends.chainer.replicas.batch_norm import (
    batch_norms,
    sum_in_threads,
    sum_of_graphs,
    synchronised_links,
)
from deliralike.backends.chainer.replicas.copies import (
    Copies,
    copy_parameter,
    equal_start_values,
)
from deliralike.backends.chainer.replicas.thread_context import (
    Reports,
    settings_of_this_thread,
)
from deliralike.errors import DeviceError
from deliralike.network.arguments import bind_arguments
from deliralike.network.state import each_once
from deliralike.parallel.batches.scatter import Shares
from deliralike.parallel.replicas.callbacks import call_replication_callbacks
from deliralike.parallel.replicas.context import CallLock, Replica
from deliralike.parallel.replicas.network import (
    ReplicaSettings,
    ReplicasWithLeaves,
    ReplicatedNetwork,
)
from deliralike.parallel.replicas.run_in_threads import (
    blas_threads,
    blas_threads_now,
)


class _ReplicatedType(ChainerNetworkType):
    """The metaclass of the wrapper; the network inside has its paths and start values already."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        return cls._create(bind_arguments(cls, args, kwargs), args, kwargs)


class ChainerReplicas(ReplicasWithLeaves, ChainerSingle):
    """The computations of a replicated Chainer network: threads with the caller's settings."""

    sum_in_threads = staticmethod(sum_in_threads)
    sum_of_graphs = staticmethod(sum_of_graphs)

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        self._draws: list[Draws] = []  # of the replicas in the present run
        self._reports: Any = None

    # Calls
    # ------------------------------------------------------------

    def follow(self) -> None:
        """Follow changes of the root: settings, hooks and frozen parameters.

        New layers lead to new replicas.
        """
        network = self.network
        self.settings.refuse_other_device(str(network.module.device))
        if not network._copies.follow():
            network._replicate()

    def stale_name(self) -> str | None:
        """Compare values, as Chainer counts no changes of an array."""
        stale = self.network._copies.stale_parameter()
        table = self.network._tables[0]
        return next(
            (name for name, parameter in table.items() if parameter is stale), None
        )

    @contextmanager
    def running(self, shares: Shares) -> Iterator[None]:
        """Give replicas equal start values, and combine their reports and draws."""
        copies = self.network._copies
        self._draws = []
        self._reports = Reports(copies.links, self.network, self.local_sizes(shares))
        synchronised: AbstractContextManager[None] = nullcontext()
        if len(shares.sizes) > 1 and self.may_synchronise():
            norms = batch_norms(chain.from_iterable(copies.links))
            norms = [link for link in norms if self.is_synchronised(link)]
            synchronised = synchronised_links(norms)
        try:
            with equal_start_values(copies), synchronised:
                yield
        finally:
            copies.remember()
        self._reports.combine()
        if any(draws.generator is not None for draws in self._draws):
            np.random.randint(2**31)  # the number that `draw_seed` has returned

    def may_synchronise(self) -> bool:
        """Return whether some batch normalisation may have the statistics of the whole batch."""
        return self.settings.buffers == "sync"

    def is_synchronised(self, link: chainer.Link) -> bool:
        """Return whether a batch normalisation has the statistics of the whole batch."""
        return self.settings.buffers == "sync"

    def run_replica(self, context: Replica, *job: Any) -> Any:
        """Run one replica on its device; see `Replicas.run_replica`."""
        device = chainer.using_device(context.device)
        reports = self._reports.of(context.position)
        draws = Draws((context.seed, context.index))
        self._draws.append(draws)
        with device, reports, drawing(draws):
            return super().run_replica(context, *job)

    thread_context = staticmethod(settings_of_this_thread)

    def limit_threads(self, replicas: int) -> AbstractContextManager[Any]:
        """Divide the BLAS threads among the replicas; a single replica keeps all."""
        if replicas == 1:
            return nullcontext()
        return blas_threads(max(1, blas_threads_now() // replicas))

    def draw_seed(self) -> int:
        """Return the number that NumPy's generator would draw next.

        It is drawn only if a replica uses it.
        """
        rand: Any = np.random.rand  # a method of NumPy's global generator
        return int(copy.deepcopy(rand.__self__).randint(2**31))

    # Parameters, gradients and buffers
    # ------------------------------------------------------------

    def replica_leaves(self, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return, for each further replica, the parameters of these names that have a shape."""
        of_replicas = []
        for table in self.network._tables[1:]:
            leaves = {name: table[name] for name in parameters}
            of_replicas.append(
                {name: leaf for name, leaf in leaves.items() if leaf.is_initialized}
            )
        return of_replicas

    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica: those named, or all."""
        network = self.network
        table = network._tables[0]
        selected = None if names is None else {id(table[name]) for name in names}
        for parameter, *others in network._copies.parameters:
            if selected is None or id(parameter) in selected:
                for other in others:
                    copy_parameter(parameter, other)

    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Equalize the persistent values of all replicas, by the policy in `ReplicaSettings`."""
        if self.settings.buffers == "mean" and sum(sizes) > 0:
            self.network._copies.average_persistent(sizes)
        self.network._copies.copy_persistent()


class DataParallelChainerNetwork(
    ReplicatedNetwork, AbstractChainerNetwork, metaclass=_ReplicatedType
):
    """A Chainer network that runs as several replicas side by side, each on its share of a batch.

    ``params``, ``namedparams``, ``links``, ``serialize`` … are those of the network inside, without
    a prefix: a file saved here loads in the bare network, and the other way round. What is set on
    the module later (attributes, hooks, frozen parameters, training mode, other layers) reaches the
    replicas at the next call, and so do weights that are written into its arrays. A plain optimizer
    leaves out the replicas' gradients, which is an error at the next call. Calls from several
    threads run one after another.

    In portable mode dropout does not depend on the number of replicas. Else our own layers draw
    from a generator that each replica has for the call; ``F.dropout`` and whatever draws from
    NumPy's generator itself does so in the order in which the threads come to it. Function hooks
    and link hooks are called from several threads at once.

    Args:
        module: A ``chainer.Link`` or a network written once, on the first device. It becomes the
            first replica.
        devices: Names such as ``"@numpy"`` and ``"@cupy:0"``, or Chainer's device objects. One may
            stand several times.
        output_device: Where outputs are gathered; the first device when None.
        batch_dim: The axis that counts samples.
        settings: See `deliralike.parallel.replicas.network.ReplicaSettings`.

    Raises:
        DeviceError: There is no such device, or the module is on another one than the first.
        SettingError: A setting makes no sense, or the module, or a part of it, is replicated
            already.

    Better than in delira: every sample goes to exactly one replica; replicas own their arrays, on
    one device too; they run in threads with the caller's ``chainer.config``; parameters without a
    shape start equal in all of them; names, counts and files are the bare network's; one device is
    enough.

    Example:
        >>> import chainer
        >>> net = DataParallelChainerNetwork(chainer.links.Linear(3, 2), ["@numpy", "@numpy"])
        >>> net(np.ones((5, 3), np.float32)).shape, [name for name, _ in sorted(net.namedparams())]
        ((5, 2), ['/W', '/b'])
    """

    _parallelism: ClassVar[type[ChainerReplicas]] = ChainerReplicas
    native_optimizer = "DataParallelChainerOptimizer"

    def __init__(
        self,
        module: chainer.Link,
        devices: Sequence[Any],
        output_device: Any = None,
        batch_dim: int = 0,
        **settings: Any,
    ) -> None:
        AbstractChainerNetwork.__init__(self)
        root = _wrapped(module)
        self.settings = ReplicaSettings.on_devices(
            root, devices, output_device, dim=batch_dim, **settings
        )
        # no children: they would get a prefix
        self.__dict__.update(root=root, module=_unwrapped(root), _call_lock=CallLock())
        if len(self.settings.places) > 1:
            root.parallelism.refuse_replicas()
        self._replicate()

    @classmethod
    def of(cls, network: Any, settings: ReplicaSettings) -> DataParallelChainerNetwork:
        """Replicate a network with given settings."""
        keywords = dict(vars(settings))
        return cls(network, batch_dim=keywords.pop("dim"), **keywords)

    def _replicate(self) -> None:
        """Make the replicas from the root as it is now."""
        self._copies = Copies(self.root, self.settings.places)
        self._tables = [_by_name(network) for network in self._copies.networks]
        slots = each_once(self.root.neutral_slots()).items()
        self._parameters_of_root = {
            name: slot.native for name, slot in slots if slot.is_parameter
        }
        call_replication_callbacks(list(zip(*self._copies.links, strict=True)))
        self._copies.remember()

    @property
    def replicas(self) -> Sequence[Any]:  # type: ignore[override]
        """All replicas, the root first."""
        return self._copies.networks

    def root_parameters(self) -> dict[str, chainer.Parameter]:
        """Return the root's parameters by neutral name, a tied one under its first name only."""
        return self._parameters_of_root

    # Training mode
    # ------------------------------------------------------------

    @property
    def _training(self) -> bool:
        return self.root._training

    @_training.setter
    def _training(self, value: bool) -> None:
        self.root._training = value

    # Chainer's own interface, which is the module's
    # ------------------------------------------------------------

    def params(self, include_uninit: bool = True) -> Iterator[chainer.Parameter]:
        """Return the parameters that an optimizer updates: the root's."""
        parameters = self.module.params(include_uninit)
        return iter({id(parameter): parameter for parameter in parameters}.values())

    def namedparams(
        self, include_uninit: bool = True
    ) -> Iterator[tuple[str, chainer.Parameter]]:
        """Return the module's parameters, without a prefix."""
        return self.module.namedparams(include_uninit)

    def links(self, skipself: bool = False) -> Iterator[chainer.Link]:
        """Return this link in the place of the module, then the links below it."""
        if not skipself:
            yield self
        yield from self.module.links(skipself=True)

    def namedlinks(self, skipself: bool = False) -> Iterator[tuple[str, chainer.Link]]:
        """Return this link in the place of the module, then the links below it, unprefixed."""
        if not skipself:
            yield "/", self
        yield from self.module.namedlinks(skipself=True)

    def children(self) -> Iterator[chainer.Link]:
        """Return the module's children."""
        return self.module.children()

    def __getitem__(self, name: Any) -> Any:
        """Return the module's child of that name."""
        return self.module[name]

    @property
    def device(self) -> Any:
        """The device of the root."""
        return self.module.device

    def serialize(self, serializer: Any) -> None:
        """Serialize the module's entries, without a prefix; loaded ones go to every replica."""
        self.module.serialize(serializer)
        # A serializer that writes changes nothing: stale replicas stay an error.
        if not isinstance(serializer, chainer.Serializer):
            self.parallelism.copy_state()

    def copyparams(self, link: chainer.Link, copy_persistent: bool = True) -> None:
        """Copy another network's parameters into every replica."""
        self.module.copyparams(getattr(link, "module", link), copy_persistent)
        self.parallelism.copy_state()

    def addgrads(self, link: chainer.Link) -> None:
        """Add another network's gradients to the root's."""
        self.module.addgrads(getattr(link, "module", link))

    def cleargrads(self) -> None:
        """Clear the gradients in every replica.

        Raises:
            StateError: A plain optimizer has just left those of the replicas out.
        """
        if self.parallelism.holds_replica_gradients():
            self.parallelism.prepare_run()
        self.module.cleargrads()  # those of new layers too, which begin with NaNs
        for _, *others in self._copies.parameters:
            for other in others:
                other.cleargrad()

    def zerograds(self) -> None:
        """Set the root's gradients to zero, and clear those of the replicas."""
        self.cleargrads()
        for parameter in self.module.params(include_uninit=False):
            parameter.grad = parameter.xp.zeros_like(parameter.array)

    def copy(self, mode: str = "share") -> DataParallelChainerNetwork:
        """Return a replicated copy of the module; see ``chainer.Link.copy``.

        Tied parameters stay tied. With ``"share"`` each new replica shares the arrays of the
        replica that it copies, too.
        """
        module = (
            copy.deepcopy(self.module) if mode == "copy" else self.module.copy(mode)
        )
        if mode != "copy":
            tie_as(self.module, module, {})
        network = type(self).of(_wrapped(module), self.settings)
        if mode == "share":
            network._copies.share(self._copies)
        return network

    def device_resident_accept(self, visitor: Any) -> None:
        """Raise an error on a move: each replica has the device for which it was made.

        Raises:
            DeviceError: Another device than the root's.
        """
        if getattr(visitor, "_device", None) != self.device:
            raise DeviceError(
                f"the replicas are on {', '.join(self.settings.places)} and do not move together: "
                "move the network first, then replicate it anew"
            )

    # The names of delira
    # ------------------------------------------------------------

    @property
    def modules(self) -> list[chainer.Link]:
        """The module and its copies, one for each device."""
        return [_unwrapped(replica) for replica in self.replicas]

    @property
    def devices(self) -> list[str]:
        """The names of the devices, one for each replica."""
        return list(self.settings.places)

    @property
    def dim(self) -> int:
        """The axis that counts samples."""
        return self.settings.dim


def replicated_networks(link: chainer.Link) -> Iterator[DataParallelChainerNetwork]:
    """Return the replicated networks in a link, itself included."""
    return (
        each for each in link.links() if isinstance(each, DataParallelChainerNetwork)
    )


def _wrapped(link: chainer.Link) -> AbstractChainerNetwork:
    if isinstance(link, AbstractChainerNetwork):
        return link
    return WrappedChainerNetwork(link)


def _unwrapped(network: chainer.Link) -> chainer.Link:
    return network.native if isinstance(network, WrappedChainerNetwork) else network


def _by_name(network: Any) -> dict[str, chainer.Parameter]:
    slots = network.neutral_slots().items()
    return {name: slot.native for name, slot in slots if slot.is_parameter}
