"""Replicated networks on PyTorch: replicas with tensors of their own, each in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from deliralike.backends.torch.network import (
    TABLES,
    AbstractTorchNetwork,
    TorchSingle,
    WrappedTorchNetwork,
)
from deliralike.backends.torch.optimizer import TorchParameters
from deliralike.backends.torch.random import draws_masks
from deliralike.backends.torch.replicas.batch_norm import synchronising
from deliralike.backends.torch.replicas.copies import (
    ReplicaCopy,
    SetByRuns,
    has_hooks,
    has_lazy,
)
from deliralike.backends.torch.replicas.lazy import initialize_lazy
from deliralike.backends.torch.replicas.manual_backward import accumulate_after_backward
from deliralike.backends.torch.replicas.sums import sum_in_threads, sum_of_graphs
from deliralike.backends.torch.replicas.thread_context import (
    current_device,
    device_name,
    device_names,
    divided_threads,
    limit_this_thread,
    thread_context,
)
from deliralike.errors import CapabilityError, DeviceError
from deliralike.network.base import AbstractNetwork, NetworkType
from deliralike.optim.loss import Loss
from deliralike.parallel.batches.scatter import Shares, mean_by_samples
from deliralike.parallel.replicas.callbacks import call_replication_callbacks
from deliralike.parallel.replicas.context import CallLock, Replica
from deliralike.parallel.replicas.network import (
    ReplicaSettings,
    ReplicasWithLeaves,
    ReplicatedNetwork,
)

_COMPILE_FIRST = (
    "replicas run in threads: compile the network, torch.compile(network), then replicate what "
    "that gives"
)


class _Wrapper(NetworkType):
    """The type of networks around a finished one: a call sets no paths and no start values."""

    __call__ = type.__call__


class TorchReplicas(ReplicasWithLeaves, TorchSingle):
    """The parallelism of replicas on PyTorch: in threads, each with tensors of its own."""

    sum_in_threads = staticmethod(sum_in_threads)
    sum_of_graphs = staticmethod(sum_of_graphs)

    def follow(self) -> None:
        """Let the replicas follow the root's structure."""
        if self.network._copies:
            self.network.follow()

    def stale_name(self) -> str | None:
        """Compare with the first copy: all of them are written at one time."""
        stale = self.network._copies[0].stale(self.network.module.parameters())
        if stale is None:
            return None
        names = {id(own): name for name, own in self.network.root_parameters().items()}
        return names[id(stale)]

    def scatter(self, arguments: Any, loss: Loss | None = None) -> Shares:
        """Scatter a batch; the first share gives lazily shaped parameters their shapes."""
        shares = super().scatter(arguments, loss)
        root = self.network.root
        if has_lazy(root):
            initialize_lazy(root, partial(_run_once, root, loss, shares.nests[0]))
        return shares

    run = torch.compiler.disable(ReplicasWithLeaves.run, reason=_COMPILE_FIRST)

    @contextmanager
    def running(self, shares: Shares) -> Iterator[None]:
        """Keep what the replicas set; after an error their buffers are copied from the root."""
        try:
            yield
        except BaseException:
            self.synchronize_buffers(())
            raise
        if self.network._copies:
            self.network._set_by_runs.end()

    def run_replica(self, context: Replica, *job: Any) -> Any:
        """Run one replica on its device; see `Replicas.run_replica`."""
        batch_norms: AbstractContextManager[Any] = nullcontext()
        if context.synchronised and context.count > 1:
            batch_norms = synchronising(context)
        limit_this_thread()
        with current_device(context.device), batch_norms:
            return super().run_replica(context, *job)

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """See `Replicas.call`; outside of an update, backward leaves the whole gradient.

        Gradients that are not computed for an optimizer of this package are clipped, logged and
        applied by the user's own loop, which looks for them in the module's parameters.
        """
        outputs = super().call(args, kwargs)
        if self.network._copies and not self.network._is_updating:
            accumulate_after_backward(self, outputs)
        return outputs

    def gradients_wanted(
        self, parameters: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        """Leave gradients in the replicas: hooks of the optimizer bring them together.

        Previous ones are dropped there.
        """
        self.clear_replica_gradients(parameters)
        return _updating(self.network)

    def thread_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """See `deliralike.backends.torch.replicas.thread_context.thread_context`."""
        return thread_context(self.settings.places)

    def limit_threads(self, replicas: int) -> AbstractContextManager[Any]:
        """Divide PyTorch's CPU threads and those of every BLAS among replicas on the CPU."""
        return divided_threads(replicas, self.settings.places)

    def draw_seed(self) -> int:
        """Draw a number above zero from PyTorch's generator.

        Where no layer in training mode draws masks by `deliralike.nn`, it is zero, and none is
        drawn.
        """
        for module in self.network.root.modules():
            if module.training and draws_masks(module):
                return int(torch.randint(1, 2**62, (), device="cpu"))
        return 0

    def forward_backward(
        self, loss: Loss, backward: Callable[[Any], None], *batch: Any
    ) -> Any:
        """Run forward and backward; backward on the CPU in each replica's thread.

        On GPUs there is one backward pass over all replicas, as PyTorch has a thread for each
        device. Where parameters have hooks there is one pass too, as hooks must see the gradient of
        the whole batch.
        """
        network = self.network
        is_on_cpu = all(place == "cpu" for place in self.settings.places)
        has_copies = len(network.replicas) > 1
        if is_on_cpu and not (
            has_copies and any(map(has_hooks, network.module.parameters()))
        ):
            return super().forward_backward(loss, backward, *batch)
        return self.forward_backward_at_once(loss, backward, *batch)

    # Parameters, gradients and buffers

    def replica_leaves(
        self, parameters: Mapping[str, Any]
    ) -> list[dict[str, torch.Tensor]]:
        """Return, for each further replica, the leaves of the root's parameters by name."""
        of_replicas = []
        for copy in self.network._copies:
            leaves = {
                name: copy.leaf_of(parameter) for name, parameter in parameters.items()
            }
            of_replicas.append(
                {name: leaf for name, leaf in leaves.items() if leaf is not None}
            )
        return of_replicas

    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica."""
        parameters = self.network.root_parameters()
        if names is not None:
            parameters = {
                name: parameters[name] for name in names if name in parameters
            }
        with _without_graph():
            for copy in self.network._copies:
                copy.copy_parameters(parameters.values())

    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Give all replicas new buffers where a buffer may have changed, so not in evaluation.

        They are new tensors, as the old ones may be part of a graph whose backward is still to
        come.
        """
        network = self.network
        if sizes and not any(
            copy.has_changed_buffers(network.root) for copy in network._copies
        ):
            return
        with _without_graph():
            if sizes and self.settings.buffers == "mean":
                self._average_buffers(sizes)
            for copy in network._copies:
                copy.copy_buffers()

    def _average_buffers(self, sizes: Sequence[int]) -> None:
        averages: dict[int, torch.Tensor] = {}
        for module in self.network.root.modules():
            for name, buffer in module._buffers.items():
                if buffer is None or not _has_mean(buffer):
                    continue
                if id(buffer) not in averages:
                    values = [buffer]
                    for copy in self.network._copies[: len(sizes) - 1]:
                        of_replica = copy.of(module)._buffers[name]
                        values.append(of_replica.to(buffer.device))
                    averages[id(buffer)] = mean_by_samples(values, sizes).detach()
                module._buffers[name] = averages[id(buffer)]


class DataParallelTorchNetwork(
    ReplicatedNetwork, AbstractTorchNetwork, metaclass=_Wrapper
):
    """A network that runs as several replicas, one for each device; see `deliralike.DataParallel`.

    It is a ``torch.nn.Module`` whose parameters, buffers, blocks and ``state_dict`` are the given
    module's, without a prefix. Better than the original: it runs (delira's cannot be
    constructed); CPU devices work; replicas own their storage and their parameters are leaves;
    lazily shaped parameters, hooks and weight norms work in replicas; batch normalisation can be
    synchronised; the loss can be computed in the replicas.

    Plain attributes that ``forward`` sets stay in the replica that set them. Hooks registered on
    the module run once in each replica; hooks registered on this wrapper, and those of parameters
    (``weight.register_hook``), run once for the whole batch. Dropout layers of this package draw
    from a generator of each replica; PyTorch's own draw from the global one, in the order in which
    the threads come. To compile, wrap ``torch.compile(module)``; compiling the wrapper changes
    nothing.

    Args:
        module: A module of PyTorch's or a network of this package, on the first device.
        devices: Names, ``torch.device`` or numbers of GPUs, one for each replica; all GPUs when
            None. `device_ids` is another name for it.
        output_device: The device of the gathered outputs; the first device when None.
        dim: The axis that counts samples.
        settings: See `deliralike.parallel.replicas.network.ReplicaSettings`.

    Example:
        >>> net = DataParallelTorchNetwork(torch.nn.Linear(3, 2), ["cpu", "cpu"])
        >>> net(torch.ones(5, 3)).shape, list(net.state_dict())
        (torch.Size([5, 2]), ['weight', 'bias'])
    """

    _parallelism = TorchReplicas
    native_optimizer = "DataParallelTorchOptimizer"
    _is_updating = False  # whether an optimizer of this package computes gradients

    def __init__(
        self,
        module: torch.nn.Module,
        devices: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        *,
        device_ids: Sequence[Any] | None = None,
        **settings: Any,
    ) -> None:
        """Replicate the module; neither its weights nor the random state change.

        Raises:
            DeviceError: A device is not present, or the module is on another one than the first.
            SettingError: The module, or a block of it, is replicated already.
            CapabilityError: An embedding looks at all indices of a batch.
        """
        root = self.backend.wrap(module)
        names = device_names(
            devices if devices is not None else device_ids, root.device_name
        )
        if output_device is not None:
            output_device = device_name(output_device)
        chosen = ReplicaSettings.on_devices(
            root, names, output_device, dim=dim, **settings
        )
        self._start(root, chosen)

    @classmethod
    def of(
        cls, network: AbstractNetwork, settings: ReplicaSettings
    ) -> DataParallelTorchNetwork:
        """Replicate a network by these settings."""
        replicated = cls.__new__(cls)
        replicated._start(network, settings)
        return replicated

    def _start(self, root: AbstractNetwork, settings: ReplicaSettings) -> None:
        root.parallelism.refuse_replicas()
        if len(settings.places) > 1:
            refuse_embeddings_of_whole_batch(root)
        self.__dict__.update(root=root, settings=settings)
        torch.nn.Module.__init__(self)
        self._share_tables()
        self.register_load_state_dict_post_hook(_copy_everything)
        self._make_replicas()

    def _share_tables(self) -> None:
        """Use the tables of parameters, buffers and blocks of the given module as own ones."""
        for table in TABLES:
            self.__dict__[table] = vars(self.module)[table]

    def _make_replicas(self) -> None:
        set_by_runs = SetByRuns()
        copies = [
            ReplicaCopy(torch.device(place), set_by_runs)
            for place in self.settings.places[1:]
        ]
        self.__dict__.update(
            _set_by_runs=set_by_runs,
            _copies=copies,
            _parameters_of_root=TorchParameters(self.root),
            replicas=[self.root],
            _call_lock=CallLock(),
        )
        if not has_lazy(self.root):
            self.follow()

    @property
    def module(self) -> torch.nn.Module:
        """The module that was given."""
        if isinstance(self.root, WrappedTorchNetwork):
            return self.root.native
        return self.root

    # Replicas

    def follow(self) -> None:
        """Give the replicas the root's present blocks, hooks, flags and attributes.

        The values of parameters are not copied.
        """
        with _without_graph():
            replicas = [self.root, *(copy.follow(self.root) for copy in self._copies)]
        if self._copies:
            self._set_by_runs.begin(self.root)
        if any(copy.has_new_modules for copy in self._copies):
            self.__dict__["replicas"] = replicas
            call_replication_callbacks(
                [list(replica.modules()) for replica in replicas]
            )

    forward = torch.compiler.disable(ReplicatedNetwork.forward, reason=_COMPILE_FIRST)

    # Parameters and gradients

    def root_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the root's parameters by neutral name, a tied one under its first name only."""
        self._parameters_of_root.refresh()
        return self._parameters_of_root.parameters

    # A module of PyTorch's

    @property
    def training(self) -> bool:
        """The mode of the root; setting it does not change the blocks."""
        return self.root.training

    @training.setter
    def training(self, value: bool) -> None:
        if "replicas" in vars(self):
            self.root.training = value

    def train(self, mode: bool = True) -> Any:
        """Set training mode in every replica."""
        for replica in self.replicas:
            replica.train(mode)
        # those of the root may have changed, uncounted, while it ran outside of replicas
        self.parallelism.synchronize_buffers(())
        return self

    def eval(self) -> Any:
        """Set evaluation mode in every replica."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of every replica."""
        self.root.zero_grad(set_to_none)
        self.parallelism.clear_replica_gradients(self.root_parameters())

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Freeze or thaw every replica."""
        self.root.requires_grad_(requires_grad)
        self.follow()
        return self

    def _apply(
        self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
    ) -> Any:
        device = torch.device(self.settings.devices[0])
        new_device = fn(torch.empty(0, device=device)).device
        if new_device != device:
            raise DeviceError(
                f"the replicas of a network stay on their devices, {list(self.settings.devices)}; "
                f"to use {str(new_device)!r} move the module, then wrap it again"
            )
        self.root._apply(fn, recurse)
        self._share_tables()
        self.follow()
        self.copy_parameters()
        return self

    def apply(self, fn: Callable[[torch.nn.Module], None]) -> Any:
        """Call a function on every block of the module, then copy its changes to the replicas."""
        self.module.apply(fn)
        _copy_everything(self, None)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the given module."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state: Any, strict: bool = True, assign: bool = False
    ) -> Any:
        """Load into the root and copy to every replica."""
        report = self.module.load_state_dict(state, strict, assign)
        _copy_everything(self, report)
        return report

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        # this network is a part of a larger module, which is loading
        self.module._load_from_state_dict(*args, **kwargs)

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Any:
        """Yield the given module and its parts; this wrapper is not among them."""
        return self.module.named_modules(memo, prefix, remove_duplicate)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the replicas, which `__setstate__` makes again."""
        left_out = (
            "_copies",
            "_set_by_runs",
            "_parameters_of_root",
            "replicas",
            "_call_lock",
            *TABLES,
        )
        return {
            name: value for name, value in vars(self).items() if name not in left_out
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes, and make new replicas."""
        self.__dict__.update(state)
        self._share_tables()
        self._make_replicas()


# the settings of an embedding by which it looks at all indices of a batch
_EFFECTS_ON_BATCH = {
    "max_norm": "rescales the rows that it looks up",
    "scale_grad_by_freq": "counts the indices of a batch",
}


def refuse_embeddings_of_whole_batch(network: AbstractNetwork) -> None:
    """Refuse embeddings that look at all indices of a batch, of which a replica has a share.

    Raises:
        CapabilityError: Names the block.
    """
    for path, block in network.named_blocks():
        if not isinstance(block, torch.nn.Embedding | torch.nn.EmbeddingBag):
            continue
        for setting, effect in _EFFECTS_ON_BATCH.items():
            if getattr(block, setting) not in (None, False):
                raise CapabilityError(
                    f"block {path!r} is an {type(block).__name__} with {setting}, which {effect}: "
                    "replicas would do so for their shares alone. Leave it out, or train without "
                    "replicas"
                )


@contextmanager
def _updating(network: DataParallelTorchNetwork) -> Iterator[None]:
    attributes = network.__dict__
    attributes["_is_updating"] = True
    try:
        yield
    finally:
        attributes["_is_updating"] = False


def _run_once(root: Any, loss: Loss | None, share: Any) -> None:
    if loss is None:
        root(*share[0], **share[1])
    else:
        loss.compute(root, *share)


def _has_mean(buffer: torch.Tensor) -> bool:
    is_of_numbers = buffer.is_floating_point() or buffer.is_complex()
    return is_of_numbers and not buffer.requires_grad


def _copy_everything(network: Any, report: Any) -> None:
    """Copy the root to the replicas; usable as PyTorch's hook after loading a state."""
    network.follow()
    network.parallelism.copy_state()


@contextmanager
def _without_graph() -> Iterator[None]:
    """Make tensors that are in no graph now, and can be in one later."""
    with torch.inference_mode(False), torch.no_grad():
        yield
