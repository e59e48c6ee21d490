"""A backend of deliralike on Apple's MLX, written from docs/howto/backend.md."""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx
from mlx import nn

from deliralike import nest, random
from deliralike.backends.base import Backend, Gradients
from deliralike.errors import CapabilityError
from deliralike.network.state import each_once
from deliralike.optim.groups import Groups
from deliralike_mlx.arrays import MLXArrays, dtype_named, is_floating
from deliralike_mlx.functional import MLXFunctions
from deliralike_mlx.network import AbstractMLXNetwork, MLXWrapper, substituted
from deliralike_mlx.optimizer import MLXOptimizer, differentiate, trainable_slots


class MLXBackend(MLXArrays, Backend):
    """Networks and optimizers of MLX."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"double_backward"})

    def is_native(self, value: Any) -> bool:
        return isinstance(value, nn.Module)

    def wrap(self, native: Any) -> AbstractMLXNetwork:
        return native if isinstance(native, AbstractMLXNetwork) else MLXWrapper(native)

    def has_channels_last(self, block: Any) -> bool:
        return type(block).__module__.startswith("mlx.nn.layers.")

    def set_dtype(self, network: Any, dtype: str) -> None:
        for slot in each_once(network.neutral_slots()).values():
            if is_floating(slot.native):
                slot.put(slot.native.astype(dtype_named(dtype)))

    def without_graph(self, result: Any) -> Any:
        """Return a nest with its arrays computed, without the graph that they came from."""
        return nest.map(self.detached, result)

    def gradients(self, loss_function: Any, network: Any, *inputs: Any) -> Gradients:
        inputs = self.prepare(inputs, network)
        slots = trainable_slots(network.neutral_slots())
        leaves, structure = nest.flatten(inputs)
        arrays = {("parameter", name): slot.native for name, slot in slots.items()}
        for place, leaf in enumerate(leaves):
            if self.is_array(leaf) and is_floating(leaf):
                arrays["input", place] = leaf

        def loss_of(traced: dict[tuple[str, Any], mx.array]) -> Any:
            parameters = {name: traced["parameter", name] for name in slots}
            traced_leaves = [
                traced.get(("input", place), leaf) for place, leaf in enumerate(leaves)
            ]
            with substituted(slots, parameters), random.from_the_first_draw():
                return loss_function(network, *nest.unflatten(structure, traced_leaves))

        result, found = differentiate(loss_of, arrays)
        loss, *beside = result if isinstance(result, tuple) else (result,)
        of_inputs = [found.get(("input", place)) for place in range(len(leaves))]
        by_array = {
            id(slot.native): found["parameter", name] for name, slot in slots.items()
        }
        by_name = {}
        for name, slot in network.neutral_slots().items():
            gradient = by_array.get(id(slot.native))
            if slot.trainable:
                by_name[name] = None if gradient is None else slot.to_neutral(gradient)
        return Gradients(
            self.number(loss),
            self.to_numpy(by_name),
            self.to_numpy(nest.unflatten(structure, of_inputs)),
            self.to_numpy(tuple(beside)),
        )

    def optimizer(
        self, rule: Any, network: Any, parameters: Any = None, groups: Any = None
    ) -> MLXOptimizer:
        return MLXOptimizer(Groups.of(rule, groups), network, parameters)

    def wrap_optimizer(self, native: Any, network: Any) -> Any:
        raise CapabilityError(
            "backend 'mlx' wraps no optimizers of MLX's own: take one of the neutral rules, "
            "network.backend.optimizer(deliralike.rules.rule('adam', lr=0.001), network)"
        )


BACKEND = MLXBackend()
BACKEND.bind(MLXFunctions(), AbstractMLXNetwork)
