"""The backend for PyTorch."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from deliralike import nest
from deliralike.backends.base import Backend, Gradients
from deliralike.backends.native_calls import in_code_of_users
from deliralike.backends.torch import (
    arrays,
    dropout,
    files,
    mixed_precision,
    native_functions,
    random,
    unstable,
)
from deliralike.backends.torch.compiled_loss import LossCompiler
from deliralike.backends.torch.distributed import (
    DistributedTorchNetwork,
    GradientAveragingTorchNetwork,
    TorchProcessGroup,
)
from deliralike.backends.torch.functional import TorchFunctions
from deliralike.backends.torch.holder import TorchHolder
from deliralike.backends.torch.layers import NATIVE
from deliralike.backends.torch.network import AbstractTorchNetwork, WrappedTorchNetwork
from deliralike.backends.torch.optimizer import TorchOptimizer
from deliralike.backends.torch.recomputed import recomputed
from deliralike.backends.torch.replicas.network import DataParallelTorchNetwork
from deliralike.backends.torch.replicas.optimizer import DataParallelTorchOptimizer
from deliralike.backends.torch.replicas.thread_context import device_name
from deliralike.backends.torch.update_rules import native_optimizer
from deliralike.errors import CapabilityError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.groups import Groups, Settings
from deliralike.optim.loss import LossResult
from deliralike.optim.optimizer import no_closure, no_optimizer, refuse_other_parameters
from deliralike.optim.rules import Rule
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.callbacks import CallbackContext
from deliralike.random import from_the_first_draw

__all__ = [
    "BACKEND",
    "AbstractPyTorchNetwork",
    "AbstractTorchNetwork",
    "CallbackContext",
    "DataParallelPyTorchNetwork",
    "DataParallelTorchNetwork",
    "DataParallelTorchOptimizer",
    "TorchOptimizer",
]

# delira's names
AbstractPyTorchNetwork = AbstractTorchNetwork
DataParallelPyTorchNetwork = DataParallelTorchNetwork


class TorchBackend(Backend):
    """PyTorch, on CPUs and GPUs."""

    name = "torch"
    dtypes = ("float32", "float64", "bfloat16", "float16")
    capabilities = frozenset(
        {
            "double_backward",
            "compile",
            "threads",
            "sparse_gradients",
            "mixed bfloat16",
            "mixed float16",
            "kept programs",
            "checkpointed blocks",
        }
    )
    native_layers_mix = True
    modules: ClassVar[Mapping[str, Any]] = {
        "nn": torch.nn,
        "functional": torch.nn.functional,
        "optim": torch.optim,
        "lr_scheduler": torch.optim.lr_scheduler,
    }
    holder = TorchHolder

    def version(self) -> str:
        return f"torch {torch.__version__}"

    devices = staticmethod(arrays.devices)

    def name_of_device(self, device: Any) -> str:
        try:
            return device_name(device)
        except (RuntimeError, TypeError):  # PyTorch has no such device
            return str(device)

    precision = staticmethod(arrays.precision)

    array = staticmethod(arrays.tensor)
    numpy = staticmethod(arrays.numpy)
    numbers = staticmethod(arrays.numbers)

    def detached(self, value: Any) -> Any:
        return value.detach() if arrays.takes_gradient(value) else value

    is_array = staticmethod(torch.is_tensor)
    split = staticmethod(arrays.split)
    concatenate = staticmethod(arrays.concatenate)
    concatenate_all = staticmethod(arrays.concatenate_all)
    stack = staticmethod(arrays.stack)

    read_states = staticmethod(files.read)
    write_weights = staticmethod(files.write)

    def is_native(self, value: Any) -> bool:
        return isinstance(value, torch.nn.Module)

    def wrappers(self) -> tuple[type, ...]:
        classes = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
        # importing fsdp is slow, and no module is sharded before it is imported
        fsdp = sys.modules.get("torch.distributed.fsdp")
        if fsdp is None:
            return classes
        return (*classes, fsdp.FSDPModule, fsdp.FullyShardedDataParallel)

    def is_parameter(self, value: Any) -> bool:
        return isinstance(value, torch.nn.Parameter)

    def wrap(self, native: torch.nn.Module) -> AbstractNetwork:
        if isinstance(native, AbstractNetwork):
            return native
        return WrappedTorchNetwork(native)

    def gradients(
        self, loss_function: Callable[..., Any], network: AbstractNetwork, *inputs: Any
    ) -> Gradients:
        if network.parallelism.evaluation_is_collective:
            raise CapabilityError(
                "gradients of a fully sharded network are taken by an optimizer over it, and kept "
                "with optimizer.keep_gradients = True"
            )
        inputs = nest.map(_graph_leaf, self.prepare(inputs, network))
        with network.parallelism.local_gradients(), from_the_first_draw():
            result = loss_function(network, *inputs)
        parts = LossResult.of(result)
        loss, extras = parts.value, parts.extras or ()
        parallelism: Any = network.parallelism
        slots = network.neutral_slots().items()
        parameters = {name: slot.native for name, slot in slots if slot.trainable}
        by_replica = [parameters, *parallelism.replica_leaves(parameters)]
        leaves = [leaf for leaf in nest.leaves(inputs) if arrays.takes_gradient(leaf)]
        wanted = [*chain.from_iterable(map(dict.values, by_replica)), *leaves]
        # consumed in the order of `wanted`
        gradients = iter(torch.autograd.grad(loss, wanted, allow_unused=True))
        totals: dict[str, Any] = dict.fromkeys(parameters)
        for names in by_replica:
            for name, gradient in zip(names, gradients, strict=False):
                if gradient is not None:
                    totals[name] = self.add(totals[name], gradient, network.device_name)
        by_parameter = {name: _numpy_or_none(total) for name, total in totals.items()}
        by_input = nest.map(
            lambda leaf: (
                _numpy_or_none(next(gradients)) if arrays.takes_gradient(leaf) else None
            ),
            inputs,
        )
        return Gradients(
            float(loss.detach()), by_parameter, by_input, self.to_numpy(extras)
        )

    intercept_native_functions = staticmethod(
        in_code_of_users("torch", native_functions.intercept_calls)
    )

    def set_dtype(self, network: torch.nn.Module, dtype: str) -> None:
        real = arrays.find_dtype(dtype)
        dtypes = {True: real.to_complex(), False: real}

        def converted(tensor: torch.Tensor) -> torch.Tensor:
            is_real = tensor.is_floating_point()
            if not is_real and not tensor.is_complex():
                return tensor
            return tensor.to(dtypes[tensor.is_complex()])

        network._apply(converted)

    add = staticmethod(arrays.add)

    def weighted(
        self,
        values: Sequence[torch.Tensor],
        weight: float,
        totals: Sequence[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        if not values:
            return list(totals or ())
        if any(value.is_sparse for value in (*values, *(totals or ()))):
            products = [value * weight for value in values]
            if totals is None:
                return products
            pairs = zip(totals, products, strict=True)
            return [
                self.add(total, product, str(total.device)) for total, product in pairs
            ]
        with torch.no_grad():
            if totals is None:
                return unstable.multiplied(values, weight)
            unstable.add(totals, values, weight)
        return list(totals)

    def copied(self, array: torch.Tensor) -> torch.Tensor:
        return array.detach().clone()

    def blended(
        self,
        averages: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        weight: float,
    ) -> list[torch.Tensor]:
        pairs = list(zip(averages, values, strict=True))
        local = [pair for pair in pairs if not arrays.is_distributed(pair[0])]
        distributed = [pair for pair in pairs if arrays.is_distributed(pair[0])]
        with torch.no_grad():
            for group in (local, distributed):  # no operation takes both kinds
                if group:
                    starts, ends = zip(*group, strict=True)
                    unstable.move_towards(starts, ends, weight)
        return list(averages)

    all_finite = staticmethod(mixed_precision.all_finite)

    def largest(self, value):
        """Return the largest element of a tensor; of a sharded one from axis to axis.

        This process may have no rows of it, and so no maximum; the first axis is the last.
        """
        if not arrays.is_distributed(value):
            return value.max()
        while value.dim():
            value = value.max(-1).values
        return value

    replicate = staticmethod(DataParallelTorchNetwork.of)

    def is_connected(self) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    join = staticmethod(TorchProcessGroup)
    distribute = staticmethod(DistributedTorchNetwork.joined)

    def shard(
        self, network: AbstractNetwork, processes: ProcessGroup, **keywords: Any
    ) -> AbstractNetwork:
        # the import is slow; see there
        sharded = importlib.import_module(
            "deliralike.backends.torch.distributed.sharded"
        )
        return sharded.FullyShardedTorchNetwork.sharded(network, processes, **keywords)

    def gradient_averaging(self) -> type[GradientAveragingTorchNetwork]:
        return GradientAveragingTorchNetwork

    def optimizer(
        self,
        rule: Rule,
        network: AbstractNetwork,
        parameters: str | None = None,
        groups: Settings | None = None,
    ) -> TorchOptimizer:
        rule_groups = Groups.of(rule, groups)
        optimizer = TorchOptimizer(
            network, partial(native_optimizer, rule_groups), parameters
        )
        optimizer.groups = rule_groups
        return optimizer

    def wrap_optimizer(
        self, native: torch.optim.Optimizer, network: AbstractNetwork
    ) -> TorchOptimizer:
        if not isinstance(native, torch.optim.Optimizer):
            raise no_optimizer(
                native, "one such as torch.optim.Adam(network.parameters())"
            )
        closure = inspect.signature(native.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise no_closure(f"{type(native).__name__} of PyTorch")
        optimizer = TorchOptimizer(network, native)
        refuse_other_parameters(optimizer)
        return optimizer

    loss_compiler = staticmethod(LossCompiler)
    evaluating = staticmethod(
        torch.no_grad
    )  # the tensors that it leaves can be trained with

    def computing_in(
        self, precision: str, device: str | None = None
    ) -> AbstractContextManager[Any]:
        self.require(f"mixed {precision}")
        return mixed_precision.computing_in(precision, device)

    recomputed = staticmethod(recomputed)

    def cache_programs(self, folder: str | Path) -> None:
        """See `Backend`; these are the programs of ``torch.compile``."""
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)

    @contextmanager
    def preserve_global_state(self) -> Iterator[None]:
        state, dtype = random.state(), torch.get_default_dtype()
        try:
            with torch.enable_grad(), native_functions.as_exact_as_their_type():
                yield
        finally:
            torch.set_default_dtype(dtype)
            random.load_state(state)

    in_float64 = staticmethod(native_functions.in_float64)
    override_dropout_masks = staticmethod(dropout.override_dropout_masks)

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def random_state(self, network: AbstractNetwork) -> dict[str, Any]:
        return dict(random.state())

    def load_random_state(
        self, network: AbstractNetwork, state: Mapping[str, Any]
    ) -> None:
        random.load_state(state)


def _graph_leaf(value: Any) -> Any:
    """Return a floating tensor as a leaf of a new graph; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().requires_grad_()
    return value


def _numpy_or_none(gradient: torch.Tensor | None) -> np.ndarray | None:
    return None if gradient is None else arrays.numpy(gradient)


BACKEND = TorchBackend()
BACKEND.bind(TorchFunctions(), AbstractTorchNetwork, NATIVE)
