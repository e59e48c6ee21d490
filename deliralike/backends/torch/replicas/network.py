"""Replicated networks on PyTorch: replicas with tensors of their own, in threads, each on its
device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from deliralike.backends.torch.network import AbstractTorchNetwork, TorchSingle, WrappedTorchNetwork
from deliralike.backends.torch.random import draws_masks
from deliralike.backends.torch.replicas.batch_norm import synchronising
from deliralike.backends.torch.replicas.copies import Copies, has_hooks
from deliralike.backends.torch.replicas.lazy import has_lazy, make_lazy
from deliralike.backends.torch.replicas.sums import sum_in_threads, sum_of_graphs
from deliralike.backends.torch.replicas.thread_context import (
    carried,
    current_device,
    devices_of,
    sharing_threads,
    take_share,
)
from deliralike.errors import DeviceError
from deliralike.network.base import NetworkType
from deliralike.optim.loss import Loss
from deliralike.parallel.batches.scatter import Shares
from deliralike.parallel.replicas.callbacks import call_replication_callbacks
from deliralike.parallel.replicas.context import Replica
from deliralike.parallel.replicas.network import (
    OneAtATime,
    Replicas,
    ReplicaSettings,
    ReplicatedNetwork,
)
from deliralike.parallel.replicas.rendezvous import Rendezvous

_COMPILE_FIRST = "replicas run in threads: compile the network, torch.compile(network), then replicate what that gives"


class _Wrapper(NetworkType):
    """Makes a network out of one that is built already: nothing is constructed, so no path or start
    value is set.
    """

    __call__ = type.__call__


class TorchReplicas(Replicas, TorchSingle):
    """How a replicated network of PyTorch computes: in threads, each replica with tensors of its
    own.
    """

    def prepare_run(self) -> None:
        """Follow the root.

        Raises:
            StateError: A parameter of the root was written to, and not copied to the replicas.
        """
        if self.network._copies:
            self.network.follow()
            self.refuse_stale_replicas()

    def refuse_stale_replicas(self) -> None:
        """Refuse replicas without the root's parameters, by the versions that PyTorch counts."""
        for parameter in self.network.module.parameters():
            if any(copies.is_behind(parameter) for copies in self.network._copies):
                names = {id(own): name for name, own in self.network.own_parameters().items()}
                raise self.stale_parameter(names[id(parameter)])

    def scatter(self, arguments: Any, loss: Loss | None = None) -> Shares:
        """The shares; lazily shaped parameters are made on the first one, before there are
        replicas.
        """
        shares = super().scatter(arguments, loss)
        root = self.network.root
        if has_lazy(root):
            make_lazy(root, partial(_run_once, root, loss, shares.nests[0]))
        return shares

    @torch.compiler.disable(reason=_COMPILE_FIRST)
    def run(
        self, function: Callable[[Any, Any], Any], shares: Shares, in_threads: bool = False
    ) -> list[Any]:
        """See `Replicas.run`; one call after another, and after an error the replicas' buffers are
        the root's again.

        Raises:
            ReplicaError: A replica calls the network that it is a replica of.
        """
        with self.network._one_at_a_time.turn():
            try:
                return super().run(function, shares, in_threads)
            except BaseException:
                self.synchronize_buffers(())
                raise

    def run_replica(
        self, context: Replica, thread_context: Callable, function: Callable, share: Any
    ) -> Any:
        """``function(replica network, share)`` in one replica, on its device."""
        synchronise = context.synchronised and context.count > 1
        take_share()
        with (
            current_device(context.device),
            synchronising(context) if synchronise else nullcontext(),
        ):
            return super().run_replica(context, thread_context, function, share)

    def thread_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """Grad and inference mode, autocast, default device, hooks on saved tensors, streams."""
        return carried(self.settings.places)

    def limit_threads(self, replicas: int) -> AbstractContextManager[Any]:
        """PyTorch's own threads and those of every BLAS, among replicas on the CPU."""
        return sharing_threads(replicas, self.settings.places)

    def draw_seed(self) -> int:
        """A number above zero from PyTorch's generator; zero, and none drawn, where no layer of
        ours draws masks.
        """
        if not any(
            module.training and draws_masks(module) for module in self.network.root.modules()
        ):
            return 0
        return int(torch.randint(1, 2**62, (), device="cpu"))

    def all_sum(
        self, replica_index: int, rendezvous: Rendezvous, in_threads: bool
    ) -> Callable[[Any, str], Any]:
        """See `deliralike.backends.torch.replicas.sums`."""
        return partial(sum_in_threads if in_threads else sum_of_graphs, rendezvous, replica_index)

    def forward_backward(self, loss: Loss, backward: Callable[[Any], None], *batch: Any) -> Any:
        """Backward in each replica's thread on the CPU; elsewhere PyTorch has one thread a device
        for it.

        Hooks of parameters see the gradient of the whole batch, which there is in one backward pass
        over all replicas.
        """
        network = self.network
        on_cpu = all(place == "cpu" for place in self.settings.places)
        hooked = len(network.replicas) > 1 and any(map(has_hooks, network.module.parameters()))
        if on_cpu and not hooked:
            return super().forward_backward(loss, backward, *batch)
        return self.forward_backward_at_once(loss, backward, *batch)

    # Parameters, gradients and buffers
    # -------------------------------------------------------------------------------

    def copies_of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What keeps gradients of one of the root's parameters in the other replicas, in their
        order.
        """
        leaves = [copies.leaf_of(tensor) for copies in self.network._copies]
        return [leaf for leaf in leaves if leaf is not None]

    def replica_gradients(self, names: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """The replicas' gradients (those named, or all), handed over: they are cleared there.

        So a second hook that accumulates them adds nothing. A tied parameter comes under its first
        name.
        """
        chosen = self._chosen(names)
        for copies in self.network._copies:
            own = {name: copies.leaf_of(parameter) for name, parameter in chosen.items()}
            gradients = {name: copy.grad for name, copy in own.items() if copy is not None}
            for copy in own.values():
                if copy is not None:
                    copy.grad = None
            yield gradients

    def copy_parameters(self, names: Sequence[str] | None = None) -> None:
        """Copy parameters from the root to every other replica."""
        chosen = self._chosen(names).values()
        with _without_graph():
            for copies in self.network._copies:
                copies.take(chosen)

    def _chosen(self, names: Sequence[str] | None) -> dict[str, torch.nn.Parameter]:
        parameters = self.network.own_parameters()
        if names is None:
            return parameters
        return {name: parameters[name] for name in names if name in parameters}

    def synchronize_buffers(self, sizes: Sequence[int]) -> None:
        """Nothing in evaluation, where no buffer changes; else all replicas get new tensors.

        New ones, because the old ones may be part of a graph whose backward is still to come.
        """
        network = self.network
        if sizes and not any(copies.has_moved(network.root) for copies in network._copies):
            return
        with _without_graph():
            if sizes and self.settings.buffers == "mean":
                self._average_buffers(sizes)
            for copies in network._copies:
                copies.take_buffers()

    def _average_buffers(self, sizes: Sequence[int]) -> None:
        samples, replicas = sum(sizes), len(sizes)
        shares = [size / samples if samples else 1 / replicas for size in sizes]
        others = self.network._copies[: replicas - 1]
        averages: dict[int, torch.Tensor] = {}
        for module in self.network.root.modules():
            for name, buffer in module._buffers.items():
                if (
                    buffer is None
                    or buffer.requires_grad
                    or not (buffer.is_floating_point() or buffer.is_complex())
                ):
                    continue
                if id(buffer) not in averages:
                    total = buffer * shares[0]
                    for share, copies in zip(shares[1:], others, strict=True):
                        total += copies.of(module)._buffers[name].to(total.device) * share
                    averages[id(buffer)] = total.detach()
                module._buffers[name] = averages[id(buffer)]


class DataParallelTorchNetwork(ReplicatedNetwork, AbstractTorchNetwork, metaclass=_Wrapper):
    """A network that runs as several replicas, one for each device; see `deliralike.DataParallel`.

    It is a ``torch.nn.Module`` whose parameters, buffers, blocks and ``state_dict`` are the given
    module's, without a prefix. Better than its namesakes: it runs (the original cannot be
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
        output_device: Where outputs are gathered; the first device when None.
        dim: The axis that counts samples.
        settings: See `deliralike.parallel.replicas.network.ReplicaSettings`.

    Example:
        >>> net = DataParallelTorchNetwork(torch.nn.Linear(3, 2), ["cpu", "cpu"])
        >>> net(torch.ones(5, 3)).shape, list(net.state_dict())
        (torch.Size([5, 2]), ['weight', 'bias'])
    """

    _parallelism = TorchReplicas
    native_optimizer = "DataParallelTorchOptimizer"

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
        """
        root = self.backend.wrap(module)
        places = devices_of(devices if devices is not None else device_ids, root.device_name)
        named = tuple(self.backend.check_device(place) for place in places)
        output = (
            None
            if output_device is None
            else self.backend.check_device(devices_of([output_device], "")[0])
        )
        if root.device_name != named[0]:
            raise DeviceError(
                f"the module is on {root.device_name!r}, the first device is {named[0]!r}: move it "
                f"there first, module.to({named[0]!r}), or name its device first"
            )
        self._start(
            root, ReplicaSettings.of(devices=named, output_device=output, dim=dim, **settings)
        )

    @classmethod
    def of(cls, root: AbstractTorchNetwork, settings: ReplicaSettings) -> DataParallelTorchNetwork:
        """A network replicated by these settings."""
        network = cls.__new__(cls)
        network._start(root, settings)
        return network

    def _start(self, root: AbstractTorchNetwork, settings: ReplicaSettings) -> None:
        root.parallelism.refuse_replicas()
        vars(self).update(root=root, settings=settings)
        torch.nn.Module.__init__(self)
        self._share_tables()
        self.register_load_state_dict_post_hook(_copy_everything)
        self._make_replicas()

    def _share_tables(self) -> None:
        """Look as if this module's own parameters, buffers and blocks were those of the root."""
        for table in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            vars(self)[table] = vars(self.module)[table]

    def _make_replicas(self) -> None:
        vars(self)["_copies"] = [Copies(torch.device(place)) for place in self.settings.places[1:]]
        vars(self)["replicas"] = [self.root]
        vars(self)["_one_at_a_time"] = OneAtATime()
        if not has_lazy(self.root):
            self.follow()

    @property
    def module(self) -> torch.nn.Module:
        """The module that was given."""
        return self.root.native if isinstance(self.root, WrappedTorchNetwork) else self.root

    # Replicas
    # --------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Let the replicas have the root's present blocks, hooks, flags and attributes; parameters
        are not copied.
        """
        with _without_graph():
            replicas = [self.root, *(copies.follow(self.root) for copies in self._copies)]
        if any(copies.has_new_modules for copies in self._copies):
            vars(self)["replicas"] = replicas
            call_replication_callbacks([list(replica.modules()) for replica in replicas])

    @torch.compiler.disable(reason=_COMPILE_FIRST)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Scatter the arguments, run the replicas, gather their outputs."""
        return super().forward(*args, **kwargs)

    # Parameters and gradients
    # ----------------------------------------------------------------------------------------

    def own_parameters(self) -> dict[str, torch.nn.Parameter]:
        """The root's parameters by neutral name, a tied one under its first name only."""
        slots = [
            (name, slot.native)
            for name, slot in self.root.neutral_slots().items()
            if slot.is_parameter
        ]
        first = {id(parameter): name for name, parameter in reversed(slots)}
        return {name: parameter for name, parameter in slots if first[id(parameter)] == name}

    # A module of PyTorch's
    # -------------------------------------------------------------------------------------------

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The root's."""
        return self.root.training

    @training.setter
    def training(self, value: bool) -> None:
        if "replicas" in vars(self):
            self.root.training = value

    def train(self, mode: bool = True) -> Any:
        """Set training mode in every replica."""
        for replica in self.replicas:
            replica.train(mode)
        self.parallelism.synchronize_buffers(
            ()
        )  # the root's may have changed without a trace while it ran on its own
        return self

    def eval(self) -> Any:
        """Set evaluation mode in every replica."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of every replica."""
        self.root.zero_grad(set_to_none)
        for parameter in self.module.parameters():
            for copy in self.parallelism.copies_of(parameter):
                copy.grad = None

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Freeze or thaw every replica."""
        self.root.requires_grad_(requires_grad)
        for parameter in self.module.parameters():
            for copy in self.parallelism.copies_of(parameter):
                copy.requires_grad_(requires_grad)
        return self

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        place = torch.device(self.settings.devices[0])
        if (moved := fn(torch.empty(0, device=place)).device) != place:
            raise DeviceError(
                f"the replicas of a network stay on their devices, {list(self.settings.devices)}; "
                f"to use {str(moved)!r} move the module, then wrap it again"
            )
        self.root._apply(fn, recurse)
        self._share_tables()
        self.follow()
        self.copy_parameters()
        return self

    def apply(self, fn: Callable[[torch.nn.Module], None]) -> Any:
        """Call a function on every block of the module, then copy what it changed to the
        replicas.
        """
        self.module.apply(fn)
        _copy_everything(self, None)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The given module's."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        """Load into the root and copy to every replica."""
        report = self.module.load_state_dict(state, strict, assign)
        _copy_everything(self, report)
        return report

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.module._load_from_state_dict(*args, **kwargs)  # as a part of a larger module

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Any:
        """The given module's: it comes first, and this wrapper does not come."""
        return self.module.named_modules(memo, prefix, remove_duplicate)

    def named_blocks(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """The root's."""
        return self.root.named_blocks()

    def extra_repr(self) -> str:
        """The devices."""
        return f"devices={list(self.settings.devices)}"

    def __getstate__(self) -> dict[str, Any]:
        """All but the replicas, which are made anew."""
        tables = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
        made = ("_copies", "replicas", "_one_at_a_time", *tables)
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make replicas anew."""
        vars(self).update(state)
        self._share_tables()
        self._make_replicas()


def _run_once(root: Any, loss: Loss | None, share: Any) -> None:
    if loss is None:
        root(*share[0], **share[1])
    else:
        loss.compute(root, *share)


def _copy_everything(network: Any, report: Any) -> None:
    """Copy the root to the replicas; in the form of a hook that is called after loading."""
    network.follow()
    network.parallelism.copy_state()


@contextmanager
def _without_graph() -> Iterator[None]:
    """Tensors made here take no part in a graph now, and may do so later."""
    with torch.inference_mode(False), torch.no_grad():
        yield
