"""Chainer, on NumPy and CuPy."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends import einops_arrays
from deliralike.backends.base import Backend, Gradients
from deliralike.backends.chainer import (
    arrays,
    dropout,
    iterators,
    native_functions,
    random,
    unstable,
)
from deliralike.backends.chainer.arrays import Variable, chainer
from deliralike.backends.chainer.distributed import (
    DistributedChainerNetwork,
    unwrap_multi_node_optimizer,
)
from deliralike.backends.chainer.functional import ChainerFunctions
from deliralike.backends.chainer.layers import neutral_layer
from deliralike.backends.chainer.network import (
    AbstractChainerNetwork,
    WrappedChainerNetwork,
    set_dtype,
)
from deliralike.backends.chainer.optimizer import ChainerOptimizer
from deliralike.backends.chainer.replicas.network import (
    DataParallelChainerNetwork,
    replicated_networks,
)
from deliralike.backends.chainer.replicas.optimizer import (
    DataParallelChainerOptimizer,
    ParallelOptimizerCumulateGradientsHook,
    ParallelOptimizerUpdateModelParameters,
)
from deliralike.backends.chainer.update_rules import NeutralOptimizer
from deliralike.backends.native_calls import in_code_of_users
from deliralike.network.base import AbstractNetwork
from deliralike.optim.groups import Groups, Settings
from deliralike.optim.loss import LossResult
from deliralike.optim.optimizer import no_optimizer, refuse_other_parameters
from deliralike.optim.rules import Rule
from deliralike.parallel.processes.group import ProcessGroup, RankInfo
from deliralike.random import from_the_first_draw

__all__ = [
    "BACKEND",
    "AbstractChainerNetwork",
    "ChainerOptimizer",
    "DataParallelChainerNetwork",
    "DataParallelChainerOptimizer",
    "ParallelOptimizerCumulateGradientsHook",
    "ParallelOptimizerUpdateModelParameters",
]


class ChainerBackend(Backend):
    """Chainer, on NumPy (``"@numpy"``) and on CuPy (``"@cupy:0"`` …)."""

    name = "chainer"
    dtypes = ("float32", "float64", "float16")
    capabilities = frozenset(
        {
            "double_backward",
            "threads",
            "kept programs",
        }
    )

    def version(self) -> str:
        return f"chainer {chainer.__version__}, numpy {np.__version__}"

    devices = staticmethod(arrays.devices)

    def name_of_device(self, device: Any) -> str:
        try:
            return str(chainer.get_device(device))
        except (RuntimeError, TypeError, ValueError):
            return str(device)  # there is no such device in Chainer, or CuPy is missing

    precision = staticmethod(arrays.precision)

    array = staticmethod(arrays.array)
    numpy = staticmethod(arrays.numpy)

    def detached(self, value: Any) -> Any:
        return value.array if isinstance(value, chainer.Variable) else value

    is_array = staticmethod(arrays.is_array)
    split = staticmethod(arrays.split)
    concatenate = staticmethod(arrays.concatenate)
    stack = staticmethod(arrays.stack)

    def is_native(self, value: Any) -> bool:
        return isinstance(value, chainer.Link)

    def is_parameter(self, value: Any) -> bool:
        return isinstance(value, chainer.Parameter)

    def wrap(self, native: chainer.Link) -> AbstractNetwork:
        if isinstance(native, AbstractNetwork):
            return native
        return WrappedChainerNetwork(native)

    def gradients(
        self, loss_function: Callable[..., Any], network: Any, *inputs: Any
    ) -> Gradients:
        inputs = nest.map(_with_gradient, self.prepare(inputs, network))
        network.cleargrads()
        with network.parallelism.local_gradients(), from_the_first_draw():
            result = loss_function(network, *inputs)
        parts = LossResult.of(result)
        loss, extras = parts.value, parts.extras or ()
        loss.backward()
        for replicated in replicated_networks(network):
            replicated.parallelism.accumulate_gradients()
        of_parameters = {}
        for name, slot in network.neutral_slots().items():
            if slot.trainable:
                gradient = _numpy_gradient(slot.native)
                if gradient is not None:
                    gradient = gradient.reshape(slot.shape)
                of_parameters[name] = gradient
        of_inputs = nest.map(_numpy_gradient, inputs)
        network.cleargrads()
        value = float(arrays.numpy(loss))
        return Gradients(value, of_parameters, of_inputs, self.to_numpy(extras))

    intercept_native_functions = staticmethod(
        in_code_of_users("chainer", native_functions.intercept_calls)
    )

    in_float64 = staticmethod(native_functions.in_float64)

    def set_dtype(self, network: chainer.Link, dtype: str) -> None:
        set_dtype(network, dtype)
        for replicated in replicated_networks(network):
            replicated.copy_parameters()

    add = staticmethod(arrays.add)

    def weighted(
        self, values: Sequence[Any], weight: float, totals: Sequence[Any] | None = None
    ) -> list[Any]:
        if totals is None:
            return [arrays.raw(value * weight) for value in values]
        for total, value in zip(totals, values, strict=True):
            total += value * weight  # an array, in place
        return list(totals)

    replicate = staticmethod(DataParallelChainerNetwork.of)
    loader_of = staticmethod(iterators.loader_of)

    def join(self, timeout: float, rank_info: RankInfo | None = None) -> ProcessGroup:
        module = importlib.import_module(
            "deliralike.backends.chainer.distributed.process_group"
        )
        return module.ChainerMNProcessGroup(timeout=timeout)

    distribute = staticmethod(DistributedChainerNetwork.joined)

    neutral_layer = staticmethod(neutral_layer)

    def optimizer(
        self,
        rule: Rule,
        network: AbstractNetwork,
        parameters: str | None = None,
        groups: Settings | None = None,
    ) -> ChainerOptimizer:
        by_name = Groups.of(rule, groups)
        optimizer = ChainerOptimizer(network, NeutralOptimizer(by_name), parameters)
        optimizer.groups = by_name
        return optimizer

    def wrap_optimizer(
        self, native: chainer.Optimizer, network: AbstractNetwork
    ) -> ChainerOptimizer:
        native = unwrap_multi_node_optimizer(native, network)
        if not isinstance(native, chainer.Optimizer):
            raise no_optimizer(native, "one such as chainer.optimizers.Adam()")
        optimizer = ChainerOptimizer(network, native)
        refuse_other_parameters(optimizer)
        return optimizer

    evaluating = staticmethod(chainer.no_backprop_mode)

    def copied(self, array: Any) -> Any:
        return arrays.raw(array).copy()

    def all_finite(self, values: Sequence[Any]) -> bool:
        return all(map(_is_finite, values))

    def cache_programs(self, folder: str | Path) -> None:
        """See `Backend`; these are CuPy's kernels, as NumPy compiles nothing."""
        os.environ["CUPY_CACHE_DIR"] = str(folder)

    @contextmanager
    def preserve_global_state(self) -> Iterator[None]:
        # settings of this thread, which hide those of the process
        own = unstable.config_of_thread()
        before, state = dict(own), np.random.get_state(legacy=False)
        try:
            with chainer.force_backprop_mode():
                yield
        finally:
            own.clear()
            own.update(before)
            np.random.set_state(state)

    override_dropout_masks = staticmethod(dropout.override_dropout_masks)

    def seed(self, seed: int) -> None:
        np.random.seed(seed % 2**32)
        if len(self.devices()) > 1:
            arrays.cuda.cupy.random.seed(seed)

    def random_state(self, network: AbstractNetwork) -> dict[str, Any]:
        return random.state(network.device_name)

    def load_random_state(
        self, network: AbstractNetwork, state: Mapping[str, Any]
    ) -> None:
        random.load_state(network.device_name, state)


def _with_gradient(value: Any) -> Any:
    """Return a floating array as a variable that takes a gradient, anything else as it is."""
    if arrays.is_array(value) and value.dtype.kind == "f":
        return Variable(arrays.raw(value))
    return value


def _numpy_gradient(value: Any) -> np.ndarray | None:
    """Return the gradient of a variable; None where it has none, and for anything else."""
    if not isinstance(value, Variable) or value.grad is None:
        return None
    return arrays.numpy(value.grad)


def _is_finite(value: Any) -> bool:
    array = arrays.raw(value)
    return bool(arrays.array_module(array).isfinite(array).all())


BACKEND = ChainerBackend()
BACKEND.bind(ChainerFunctions(), AbstractChainerNetwork)
einops_arrays.register("chainer", lambda value: isinstance(value, Variable), BACKEND.nn)
