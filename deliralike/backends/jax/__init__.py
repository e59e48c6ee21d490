"""JAX, with flax's nnx modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import flax
import jax
import numpy as np
from flax import nnx

from deliralike.backends import einops_arrays
from deliralike.backends.base import Backend, Gradients
from deliralike.backends.jax import (
    arrays,
    double_precision,
    dropout,
    files,
    flax_layers,
    mixed_precision,
    native_functions,
    random,
)
from deliralike.backends.jax.compiled.evaluation import network_program
from deliralike.backends.jax.distributed import (
    DistributedJaxNetwork,
    DistributedJaxOptimizer,
    JaxProcessGroup,
    SpmdJaxNetwork,
    SpmdJaxOptimizer,
)
from deliralike.backends.jax.functional import JaxFunctions
from deliralike.backends.jax.layers import NATIVE
from deliralike.backends.jax.network import AbstractJaxNetwork, WrappedJaxNetwork, walk
from deliralike.backends.jax.optimizer import JaxOptimizer, network_gradients
from deliralike.backends.jax.recomputed import recomputed
from deliralike.backends.jax.replicas.network import DataParallelJaxNetwork
from deliralike.backends.jax.replicas.optimizer import DataParallelJaxOptimizer
from deliralike.backends.jax.replicas.programs import summed_gradients
from deliralike.backends.jax.update_rules import NativeRule, NeutralRule
from deliralike.backends.jax.variables import array_of, set_array
from deliralike.backends.native_calls import in_code_of_users
from deliralike.errors import CapabilityError, DeviceError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.groups import Groups, Settings
from deliralike.optim.optimizer import no_optimizer
from deliralike.optim.rules import Rule
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.callbacks import CallbackContext
from deliralike.parallel.replicas.network import ReplicaSettings

__all__ = [
    "BACKEND",
    "AbstractJaxNetwork",
    "CallbackContext",
    "DataParallelJaxNetwork",
    "DataParallelJaxOptimizer",
    "JaxOptimizer",
]


class JaxBackend(Backend):
    """JAX, on CPUs, GPUs and TPUs."""

    name = "jax"
    dtypes = ("float32", "float64", "bfloat16", "float16")
    strided = False
    capabilities = frozenset(
        {
            "double_backward",
            "compile",
            "mixed bfloat16",
            "mixed float16",
            "kept programs",
            "checkpointed blocks",
        }
    )
    optimizers_hold_state = False

    def version(self) -> str:
        return f"jax {jax.__version__}, flax {flax.__version__}"

    devices = staticmethod(arrays.devices)
    precision = staticmethod(arrays.precision)

    array = staticmethod(arrays.array)
    numpy = staticmethod(arrays.numpy)
    numbers = staticmethod(arrays.numbers)

    def is_array(self, value: Any) -> bool:
        return isinstance(value, jax.Array)

    split = staticmethod(arrays.split)
    concatenate = staticmethod(arrays.concatenate)
    stack = staticmethod(arrays.stack)

    read_states = staticmethod(files.read)

    def is_native(self, value: Any) -> bool:
        return isinstance(value, nnx.Module)

    def is_parameter(self, value: Any) -> bool:
        return isinstance(value, nnx.Param)

    def how_to_bind(self, value: Any) -> str:
        linen = sys.modules.get("flax.linen")  # importing it is slow
        if linen is None or not isinstance(value, linen.Module):
            return ""
        return (
            "make it a module of nnx, flax.nnx.bridge.ToNNX(layer, rngs).lazy_init(x)"
        )

    neutral_layer = staticmethod(flax_layers.neutral_layer)
    has_channels_last = staticmethod(flax_layers.has_channels_last)

    def constructor_arguments(self, seed: int) -> dict[str, Any]:
        return {"rngs": nnx.Rngs(seed)}

    def wrap(self, native: nnx.Module) -> AbstractNetwork:
        if isinstance(native, AbstractNetwork):
            return native
        return WrappedJaxNetwork(native)

    def gradients(
        self, loss_function: Callable[..., Any], network: AbstractNetwork, *inputs: Any
    ) -> Gradients:
        if isinstance(network, SpmdJaxNetwork):
            raise CapabilityError(
                "gradients of a network in processes that compute together are an optimizer's: set "
                "optimizer.keep_gradients, and read optimizer.latest_gradients"
            )
        with network.parallelism.local_gradients():
            batch = self.prepare(inputs, network)
            if isinstance(network, DataParallelJaxNetwork):
                return summed_gradients(loss_function, network, batch)
            return network_gradients(loss_function, network, batch)

    def program(
        self, function: Callable[..., Any], network: AbstractNetwork
    ) -> Callable[..., Any]:
        if arrays.is_op_by_op():
            return super().program(function, network)
        if isinstance(network, DistributedJaxNetwork) and not network.training:
            return self.program(function, network.root)
        return network_program(function, network)

    same_trace_only = staticmethod(native_functions.same_trace_only)

    intercept_native_functions = staticmethod(
        in_code_of_users("flax", native_functions.intercept_calls)
    )

    def set_dtype(self, network: AbstractNetwork, dtype: str) -> None:
        before = np.dtype(network.dtype_name)
        for _, node in walk(network):
            if not isinstance(node, nnx.Variable):
                _set_module_dtype(node, before, dtype)
            elif arrays.is_floating(array_of(node).dtype):
                set_array(node, arrays.copied(array_of(node), dtype))

    compiling_quickly = staticmethod(arrays.compiling_quickly)
    recomputed = staticmethod(recomputed)
    cache_programs = staticmethod(arrays.cache_programs)
    forget_programs = staticmethod(jax.clear_caches)
    op_by_op = staticmethod(arrays.op_by_op)

    @contextmanager
    def preserve_global_state(self) -> Iterator[None]:
        with (
            arrays.preserve_global_state(),
            random.preserve_global_state(),
            double_precision.preserve(),
        ):
            yield

    def calls_forward(self, block: Any) -> bool:
        return isinstance(block, AbstractNetwork)

    replicate = staticmethod(DataParallelJaxNetwork.of)
    is_connected = staticmethod(jax.distributed.is_initialized)
    join = staticmethod(JaxProcessGroup)

    def distribute(
        self,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
    ) -> DistributedJaxNetwork:
        is_spmd = isinstance(processes, JaxProcessGroup) and settings.buffers == "sync"
        kind = SpmdJaxNetwork if is_spmd else DistributedJaxNetwork
        return kind.joined(network, settings, processes)

    def optimizer(
        self,
        rule: Rule,
        network: AbstractNetwork,
        parameters: str | None = None,
        groups: Settings | None = None,
    ) -> JaxOptimizer:
        by_name = Groups.of(rule, groups)
        optimizer = _optimizer_class(network)(network, NeutralRule(by_name), parameters)
        optimizer.groups = by_name
        return optimizer

    def wrap_optimizer(self, native: Any, network: AbstractNetwork) -> JaxOptimizer:
        if isinstance(native, nnx.Optimizer):
            raise no_optimizer(
                native, "a transformation of optax: give its own, optimizer.tx"
            )
        if not callable(getattr(native, "init", None)):
            raise no_optimizer(
                native, "a transformation of optax such as optax.adam(1e-3)"
            )
        return _optimizer_class(network)(network, NativeRule(native))

    def computing_in(
        self, precision: str, device: str | None = None
    ) -> AbstractContextManager[Any]:
        self.require(f"mixed {precision}")
        return mixed_precision.computing_in(precision)

    def add_gradients(
        self, totals: dict[str, Any], additions: dict[str, Any], device: str
    ) -> dict[str, Any]:
        names = [name for name in totals if additions.get(name) is not None]
        values = [additions[name] for name in names]
        moved = dict(zip(names, arrays.move_all(values, device), strict=True))
        both = [name for name in names if totals[name] is not None]
        # XLA's CPU adds kernels of 3 by 3 in a fifth of the time if they are multiplied, too
        sums = mixed_precision.sums(
            [totals[name] for name in both], [moved[name] for name in both], 1.0
        )
        return totals | moved | dict(zip(both, sums, strict=True))

    def weighted(
        self,
        values: Sequence[jax.Array],
        weight: float,
        totals: Sequence[jax.Array] | None = None,
    ) -> list[jax.Array]:
        if not values:
            return []
        if totals is None:
            return mixed_precision.weighted(list(values), weight)
        return mixed_precision.added(list(totals), list(values), weight)

    def copied(self, array: jax.Array) -> jax.Array:
        return array

    def blended(
        self, averages: Sequence[jax.Array], values: Sequence[jax.Array], weight: float
    ) -> list[jax.Array]:
        return mixed_precision.blended(list(averages), list(values), weight)

    def all_finite(self, values: Sequence[jax.Array]) -> bool:
        return bool(mixed_precision.all_finite(list(values)))

    override_dropout_masks = staticmethod(dropout.override_dropout_masks)
    seed = staticmethod(random.seed)
    random_state = staticmethod(random.state)
    load_random_state = staticmethod(random.load_state)

    def name_of_device(self, device: Any) -> str:
        return arrays.name_of(device) if isinstance(device, jax.Device) else str(device)

    def check_device(self, device: Any) -> str:
        """See `Backend.check_device`."""
        try:
            return super().check_device(device)
        except DeviceError as error:
            if not str(device).startswith("cpu:"):
                raise
            raise DeviceError(
                f"{error} JAX splits the CPU into several devices where JAX_NUM_CPU_DEVICES is set "
                "before it starts."
            ) from None

    def check_dtype(self, dtype: str) -> str:
        """Return a floating type's name; ``"float64"`` enables 64-bit types process-wide."""
        name = super().check_dtype(dtype)
        if name == "float64":
            arrays.enable_float64()
        return name


def _set_module_dtype(module: Any, before: np.dtype, dtype: str) -> None:
    """Set the type of a layer of flax's own that has the network's; one of another keeps it."""
    attributes = vars(module)
    for name in {"dtype", "param_dtype"} & attributes.keys():
        if attributes[name] is not None and np.dtype(attributes[name]) == before:
            setattr(module, name, jax.numpy.dtype(dtype))


def _optimizer_class(network: AbstractNetwork) -> type[JaxOptimizer]:
    if isinstance(network, SpmdJaxNetwork):
        return SpmdJaxOptimizer
    if isinstance(network, DistributedJaxNetwork):
        return DistributedJaxOptimizer
    if isinstance(network, DataParallelJaxNetwork):
        return DataParallelJaxOptimizer
    return JaxOptimizer


BACKEND = JaxBackend()
BACKEND.bind(JaxFunctions(), AbstractJaxNetwork, NATIVE)
einops_arrays.register(
    "flax", lambda value: isinstance(value, nnx.Variable), BACKEND.nn
)
