"""The PyTorch network of which each process holds a part of every parameter, by ``fully_shard``.

This module is imported on demand: importing PyTorch's half of it takes as long as everything else.
Only this backend has this file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from deliralike import nest
from deliralike.backends.torch import arrays, unstable
from deliralike.backends.torch.distributed.manual_backward import (
    ManualBackward,
    put_gradients,
)
from deliralike.backends.torch.distributed.network import (
    DistributedTorchNetwork,
    TorchProcessState,
    TorchReplicasOverProcesses,
)
from deliralike.backends.torch.distributed.process_group import TorchProcessGroup
from deliralike.backends.torch.replicas.thread_context import current_device
from deliralike.errors import (
    CapabilityError,
    OperationError,
    ProcessError,
    refuse_unknown_settings,
)
from deliralike.network.base import AbstractNetwork
from deliralike.network.parallelism import Hooks, UpdateState
from deliralike.network.state import Slot
from deliralike.optim.loss import Loss, LossResult
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.processes.gradient_sums import SumOverProcesses
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.context import current
from deliralike.parallel.replicas.network import ReplicaSettings

# parameters of a block that is gathered by itself: 4 MB of float32 hide the time of a message
SMALLEST = 1_000_000
_KEYWORDS = (
    "reshard_after_forward",
    "shard_placement_fn",
    "mp_policy",
    "offload_policy",
    "ignored_params",
)
# a network may call their members without calling them
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


@dataclass(eq=False)
class ShardState(TorchProcessState):
    """The state of a fully sharded network beside its weights.

    Attributes:
        units: The blocks that are gathered one by one.
        parts: By neutral name, the parts of parameters that this process holds.
        used: The parameters that got gradients in this process since the last update; in an update
            those of its optimizer's window.
        used_by: What `used` is in an update by each optimizer, as several windows may be open.
        order: The numbers of the blocks that were gathered since the last update.
        in_loss: Whether a loss is being computed, in which no gradients may be taken.
        silent: Whether this process computes with a batch that does not count.
    """

    units: list[Any] = field(default_factory=list)
    parts: dict[str, torch.nn.Parameter] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    used_by: WeakKeyDictionary[Any, set[str]] = field(default_factory=WeakKeyDictionary)
    order: list[int] = field(default_factory=list)
    in_loss: bool = False
    silent: bool = False


class TorchShards(TorchReplicasOverProcesses):
    """The parallelism of a fully sharded network on PyTorch."""

    evaluation_is_collective = True
    state_class = ShardState

    @property
    def state_is_collective(self) -> bool:
        """True: every process has a part of the state."""
        return True

    # Calls

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the outputs of this process's share.

        Raises:
            CapabilityError: In training, a process without samples calls the network outside of an
                optimizer's update.
        """
        if self.network.training and current() is None and self.state.empty_share:
            raise CapabilityError(
                "a process without samples takes part in a fully sharded network by "
                "optimizer.update(loss, *batch), which runs backward as well"
            )
        with self.evaluating():
            return super().call(args, kwargs)

    def run(self, *job: Any, **settings: Any) -> list[Any]:
        """See `Replicas.run`.

        Raises:
            CapabilityError: A parameter was used outside of the call of the block that it is
                gathered with.
        """
        try:
            return super().run(*job, **settings)
        except (RuntimeError, OperationError) as error:
            if "DTensor" not in str(error):
                raise
            raise CapabilityError(
                "a parameter of a fully sharded network is whole only while its block is called: "
                "the loss is to call the network, or blocks that are gathered by themselves: "
                f"{error}"
            ) from error

    def compute_loss(self, loss: Loss, *batch: Any) -> Any:
        """Return the loss of the own batch, in evaluation mode.

        Raises:
            CapabilityError: In training.
        """
        if self.network.training:
            raise CapabilityError(
                "the gradients of a fully sharded network are taken by an optimizer over it, "
                "optimizer.update(loss, *batch): they are whole only meanwhile"
            )
        with self.evaluating():
            return super().compute_loss(loss, *batch)

    def compute_part(self, loss: Loss, replica: Any, share: Any) -> LossResult:
        """Return this process's part of a loss, and refuse gradients meanwhile."""
        with self.state.set(in_loss=True):
            return super().compute_part(loss, replica, share)

    def take_part(
        self,
        loss: Loss,
        backward: Callable[[Any], None],
        batch: tuple[Any, ...],
        begin_exchange: Callable[[], None],
    ) -> None:
        """Compute with a batch that does not count, as others wait for this process's parts.

        Layers are in evaluation mode: their statistics do not change, and one sample is enough.
        """
        network = self.network
        with self.state.set(silent=True):
            with _leaves_evaluating(network):
                part = loss.parts(loss.compute(network.root, *batch))
            begin_exchange()  # of the buffers as they are
            with _leaves_evaluating(network):
                backward(part.value)

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a context for a call; in evaluation mode it leaves inference mode.

        Training could not use tensors that were made in inference mode.
        """
        return nullcontext() if self.network.training else _evaluating(self.state.units)

    def refuse_gradients_within(
        self, block: torch.nn.Module, args: Any, outputs: Any
    ) -> None:
        """Refuse a loss that takes gradients within itself; a forward hook of blocks."""
        if not self.state.in_loss:
            return
        for output in nest.leaves(outputs):
            if isinstance(output, torch.Tensor) and output.requires_grad:
                output.register_hook(self._refuse_within)

    def _refuse_within(self, gradient: torch.Tensor) -> None:
        if self.state.in_loss:
            raise CapabilityError(
                "the loss takes gradients within itself, and a fully sharded network gives away "
                "its parameters in backward: use DistributedDataParallel"
            )

    # Gradients

    def update_hooks(self) -> Hooks:
        """Return a hook that finds unused parameters; backward adds the gradients."""
        return [DropUnusedGradients(self.network)], []

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Refuse, as gradients are always added during backward."""
        raise CapabilityError(
            "a fully sharded network adds gradients during backward anyway: leave in_backward out"
        )

    @contextmanager
    def update_context(self, optimizer: UpdateState, loss: Loss) -> Iterator[Loss]:
        """Return a block in which the parameters that are used are noted for this optimizer."""
        used = self.state.used_by.setdefault(optimizer, set())
        with (
            super().update_context(optimizer, loss) as adapted,
            self.state.set(used=used),
        ):
            yield adapted

    def used_anywhere(self, own: set[str]) -> set[str]:
        """Return the parameters that some process has used, and begin new records.

        Args:
            own: Those that this process has used.

        Raises:
            ProcessError: The processes have called different blocks, and so have mixed up their
                parts.
        """
        blocks = repr(self.state.order).encode()
        order = hashlib.blake2b(blocks, digest_size=8).digest()
        records = self.processes.all_gather_object(
            "the blocks called, and parameters used", (order, own)
        )
        self.state.order.clear()
        own.clear()
        for rank, (other_order, _) in enumerate(records):
            if other_order != order:
                raise ProcessError(
                    f"process {self.processes.rank} and process {rank} have called other blocks of "
                    "a fully sharded network, or in another order: all must call the same"
                )
        return set().union(*(names for _, names in records))

    def end_manual_backward(self, own: ManualBackward) -> None:
        """Drop gradients of unused parameters, and take the means of those that are not parts.

        Backward leaves the means of those that are parts.
        """
        self.state.manual_pass = None
        gradients = own.new_gradients()
        anywhere = self.used_anywhere(self.state.used)
        parameters = self.network.root_parameters()
        parts = [name for name in gradients if isinstance(parameters[name], DTensor)]
        for name in parts:
            if name not in anywhere and own.had_none(name):
                parameters[name].grad = None
        whole = {
            name: gradient for name, gradient in gradients.items() if name not in parts
        }
        if whole:
            put_gradients(self.network, self.mean_gradients(whole))


@contextmanager
def _evaluating(units: Sequence[Any]) -> Iterator[None]:
    """Leave inference mode, and release the whole parameters of blocks at the end."""
    with ExitStack() as contexts:
        if torch.is_inference_mode_enabled():
            contexts.enter_context(torch.inference_mode(False))
            contexts.enter_context(torch.no_grad())
        yield
    for unit in units:
        unit.reshard()


class FullyShardedTorchNetwork(DistributedTorchNetwork):
    """A network on PyTorch of which each process holds a part of every parameter.

    Parameters, gradients and optimizer states are PyTorch's ``DTensor``, so a norm of them, for
    example, is the norm of the whole. A block has whole parameters while it computes. Every process
    must make every call: updates, evaluation, reading and writing of states.
    """

    _parallelism = TorchShards
    _process_state: ShardState

    @classmethod
    def sharded(
        cls,
        network: AbstractNetwork,
        processes: ProcessGroup,
        *,
        smallest: int = SMALLEST,
        dim: int = 0,
        buffers: str = "sync",
        scalars: str = "mean",
        **keywords: Any,
    ) -> Self:
        """Shard a network over these processes; all of them start with the root's weights.

        Args:
            smallest: Blocks with at least so many parameters, those of such blocks within not
                counted, are gathered one by one; all others are gathered at once.
            dim, buffers, scalars: See `deliralike.DistributedDataParallel`.
            keywords: Those of ``torch.distributed.fsdp.fully_shard``: ``reshard_after_forward``,
                ``mp_policy`` …

        Raises:
            CapabilityError: The processes are not those of torch.distributed.
            ArgumentError: There is no such keyword.
        """
        if not isinstance(processes, TorchProcessGroup):
            raise CapabilityError(
                f"{processes}: PyTorch spreads networks over the processes of torch.distributed "
                f"alone: deliralike.join('torch')"
            )
        refuse_unknown_settings("FullyShardedDataParallel", keywords, _KEYWORDS)
        settings = ReplicaSettings.of(
            devices=(network.device_name,), dim=dim, buffers=buffers, scalars=scalars
        )
        sharded = cls.joined(network, settings, processes)
        sharded._shard(blocks_from(smallest, sharded.module), keywords)
        return sharded

    def _shard(
        self, blocks: Sequence[torch.nn.Module], keywords: dict[str, Any]
    ) -> None:
        processes: Any = self.processes
        mesh = processes.mesh(torch.device(self.device_name).type)
        names = _first_names(self.module)
        with current_device(self.device_name):
            for block in [*blocks, self.module]:
                fully_shard(block, mesh=mesh, **keywords)
        units = [
            block for block in self.module.modules() if isinstance(block, FSDPModule)
        ]
        vars(self._process_state).update(units=units, parts=self.root_parameters())
        for number, unit in enumerate(units):
            # the parts of a loss add up to the batch's, so gradients are sums, not means
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
            unit.set_reduce_scatter_unused_params(True, recurse=False)
            unit.set_custom_all_gather(_Gathering(self, number))
            unit.set_custom_reduce_scatter(_Reducing(self))
            unit.register_forward_pre_hook(_Watching(self, unit, names))
            unit.register_forward_hook(self.parallelism.refuse_gradients_within)
        processes.reducing.add(self)

    def root_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the parts that this process holds, also while a block has whole parameters."""
        return self._process_state.parts or super().root_parameters()

    def neutral_slots(self) -> dict[str, Slot]:
        """Return the slots; parameters are the parts that this process holds."""
        for unit in self._process_state.units:
            unit.reshard()
        return super().neutral_slots()

    def reduce_after_backward(self) -> None:
        """Release PyTorch's group, which the processes are about to end."""
        for unit in self._process_state.units:
            for group in unstable.sharding_groups(unit):
                for info in filter(
                    None, (group.mesh_info, group.post_forward_mesh_info)
                ):
                    info.shard_process_group = None


class DropUnusedGradients:
    """Pre-update hook: gives None for parameters that no process has used, in place of zeros."""

    def __init__(self, network: FullyShardedTorchNetwork) -> None:
        """Make the hook for a network."""
        self.network = network
        self._sum_whole = SumOverProcesses(network)

    def __call__(
        self, optimizer: AbstractOptimizer, gradients: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the gradients, None where no process has used the parameter.

        Raises:
            ProcessError: See `TorchShards.used_anywhere`.
        """
        slots = self.network.neutral_slots()
        parts = [name for name in gradients if isinstance(slots[name].native, DTensor)]
        parallelism = self.network.parallelism
        own = parallelism.state.used_by.get(optimizer, set())
        anywhere = parallelism.used_anywhere(own)
        results: dict[str, Any] = dict(gradients)  # in the same order
        for name in parts:
            if name not in anywhere:
                results[name] = None
        whole = {
            name: gradient for name, gradient in gradients.items() if name not in parts
        }
        if whole:
            results |= self._sum_whole(optimizer, whole)
        return results


AllGather: Any
ReduceScatter: Any
AllGather, ReduceScatter = unstable.sharding_collectives()


class _Gathering(AllGather):
    """Gathers a block's parameters, and records the block, for a comparison between processes."""

    def __init__(self, network: FullyShardedTorchNetwork, number: int) -> None:
        super().__init__()
        self.state: Any = network._process_state
        self.number = number

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.state.order.append(self.number)
        self.state.processes.collectives["all_gather"] += 1
        return self.state.processes.run(
            lambda: super(_Gathering, self).__call__(*args, **kwargs)
        )


class _Reducing(ReduceScatter):
    """Adds a block's gradients; those of a process without samples count as zeros.

    In a backward pass of a user's own loop it takes the mean.
    """

    def __init__(self, network: FullyShardedTorchNetwork) -> None:
        super().__init__()
        self.state: Any = network._process_state

    def __call__(
        self,
        output_tensor: Any,
        input_tensor: Any,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        state = self.state
        if state.silent:
            input_tensor.zero_()
        if state.manual_pass is not None:
            input_tensor.div_(state.processes.count)
        state.processes.collectives["reduce_scatter"] += 1
        return state.processes.run(
            lambda: super(_Reducing, self).__call__(
                output_tensor, input_tensor, group, op, async_op
            )
        )


class _Watching:
    """Forward pre-hook of a block: records which of its parameters get gradients in this process.

    The parameters are whole at that time.
    """

    def __init__(
        self,
        network: FullyShardedTorchNetwork,
        unit: torch.nn.Module,
        names: dict[tuple, str],
    ) -> None:
        self.state: Any = network._process_state
        modules = _modules_of(unit)
        self.places = [
            (module, key, name)
            for (module, key), name in names.items()
            if module in modules
        ]
        self.hooked: dict[str, torch.Tensor] = {}

    def __call__(self, block: torch.nn.Module, args: Any) -> None:
        for module, key, name in self.places:
            parameter = module._parameters[key]
            if self.hooked.get(name) is not parameter and parameter.requires_grad:
                self.hooked[name] = parameter
                parameter.register_post_accumulate_grad_hook(self._recorder(name))

    def _recorder(self, name: str) -> Callable[[torch.Tensor], None]:
        def record(parameter: torch.Tensor) -> None:
            if not self.state.silent:
                self.state.used.add(name)

        return record


# Blocks


def blocks_from(smallest: int, module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the blocks with at least `smallest` parameters, inner blocks first.

    The parameters of such blocks within a block are not counted, and the whole network is left out.
    Layers of PyTorch's own are taken whole, as they use the parameters of their parts. Containers
    of blocks are left out, as a network may call their members directly; so are blocks that share a
    parameter with something outside of them.
    """
    owners = _owners(module)
    chosen: list[torch.nn.Module] = []

    def is_unit(
        block: torch.nn.Module, parameters: dict[int, torch.nn.Parameter]
    ) -> bool:
        if not parameters or block is module or isinstance(block, _CONTAINERS):
            return False
        if sum(parameter.numel() for parameter in parameters.values()) < smallest:
            return False
        inside = set(block.modules())
        return all(inside.issuperset(owners[key]) for key in parameters)

    def remaining(block: torch.nn.Module) -> dict[int, torch.nn.Parameter]:
        """Choose among a block and its parts; return the parameters that no chosen block has."""
        parameters = {id(p): p for p in block._parameters.values() if p is not None}
        for child in block.children():
            if _is_whole(block):
                parameters.update((id(p), p) for p in child.parameters())
            else:
                parameters |= remaining(child)
        if not is_unit(block, parameters):
            return parameters
        chosen.append(block)
        return {}

    remaining(module)
    return list(dict.fromkeys(chosen))


def _owners(module: torch.nn.Module) -> dict[int, list[torch.nn.Module]]:
    """Return the modules that hold each parameter, by the parameter's ``id``."""
    owners: dict[int, list[torch.nn.Module]] = {}
    for each in module.modules():
        for parameter in each._parameters.values():
            owners.setdefault(id(parameter), []).append(each)
    return owners


def _is_whole(block: torch.nn.Module) -> bool:
    return type(block).__module__.startswith("torch.nn.") and not isinstance(
        block, _CONTAINERS
    )


def _first_names(module: torch.nn.Module) -> dict[tuple[torch.nn.Module, str], str]:
    """Return neutral names by module and key; a tied parameter has its first place only."""
    names = {}
    visited = set()
    for path, block in module.named_modules():
        for key, parameter in block._parameters.items():
            if parameter is not None and id(parameter) not in visited:
                visited.add(id(parameter))
                names[block, key] = f"{path}.{key}" if path else key
    return names


def _modules_of(unit: torch.nn.Module) -> set[torch.nn.Module]:
    """Return the modules whose parameters are gathered with a block."""
    modules = {unit}
    for child in unit.children():
        if not isinstance(child, FSDPModule):
            modules |= _modules_of(child)
    return modules


@contextmanager
def _leaves_evaluating(network: Any) -> Iterator[None]:
    """Set layers without parts to evaluation mode, and give norms without statistics some.

    Blocks keep their modes, as they may call other layers in training mode.
    """
    blocks = list(network.module.modules())
    leaves = [block for block in blocks if block.training and not block._modules]
    norms = [
        block for block in blocks if not getattr(block, "track_running_stats", True)
    ]
    dtype = arrays.find_dtype(network.dtype_name)
    for norm in norms:
        ones = torch.ones(norm.num_features, dtype=dtype, device=network.device_name)
        _track(norm, torch.zeros_like(ones), ones)
    for leaf in leaves:
        leaf.training = False
    try:
        yield
    finally:
        for leaf in leaves:
            leaf.training = True
        for norm in norms:
            _track(norm, None, None)


def _track(norm: Any, mean: torch.Tensor | None, var: torch.Tensor | None) -> None:
    """Give a norm running statistics, or take them away."""
    norm.running_mean = mean
    norm.running_var = var
    norm.track_running_stats = mean is not None
