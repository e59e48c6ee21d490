"""A backend that was written from docs/howto/backend.md and the two pages that it names alone:
deliralike on autograd's NumPy, on one CPU.

It has no replicas, no weight files of its own, no state of its generator and no optimizers of a
framework to wrap.
"""

from importlib.metadata import version

from deliralike import nest, random
from deliralike.backends.base import Backend, Gradients
from deliralike.errors import CapabilityError
from deliralike.optim.groups import Groups

from . import arrays, functional
from .network import AbstractStrangerNetwork
from .optimizer import StrangerOptimizer, differentiated, holding, trainable


class StrangerBackend(Backend):
    """autograd."""

    name = "stranger"
    dtypes = arrays.DTYPES
    capabilities = frozenset({"double_backward"})
    array, numpy, is_array, split, concatenate, stack = map(
        staticmethod,
        (
            arrays.array,
            arrays.numpy,
            arrays.is_array,
            arrays.split,
            arrays.concatenate,
            arrays.stack,
        ),
    )
    seed = staticmethod(functional.seed)

    def version(self):
        return f"autograd {version('autograd')}, numpy {version('numpy')}"

    def devices(self):
        return ["cpu"]

    def precision(self):
        return {"float64": "on"}

    def is_native(self, value):
        return isinstance(value, AbstractStrangerNetwork)

    def wrap(self, native):
        return native

    def set_dtype(self, network, dtype):
        for slot in network.neutral_slots().values():
            if slot.value.dtype.kind == "f":
                slot.value = slot.value.astype(dtype)

    def gradients(self, loss_function, network, *inputs):
        leaves, inputs = [], self.prepare(inputs, network)
        slots = trainable(network)
        floating = nest.map(
            lambda x: leaves.append(x) or len(leaves) - 1 if _is_floating(x) else None,
            inputs,
        )

        def loss(boxes):
            boxes, rest = boxes[: len(slots)], boxes[len(slots) :]
            batch = nest.map(
                lambda x, place: x if place is None else rest[place], inputs, floating
            )
            with holding(slots.values(), boxes), random.from_the_first_draw():
                return loss_function(network, *batch)

        result, found = differentiated(
            loss, [*(slot.value for slot in slots.values()), *leaves]
        )
        by_input = nest.map(
            lambda place: None if place is None else found[len(slots) + place], floating
        )
        value, *beside = result if isinstance(result, tuple) else (result,)
        by_native = {
            id(slot.native): gradient for slot, gradient in zip(slots.values(), found)
        }
        by_name = {
            name: by_native[id(slot.native)]
            for name, slot in network.neutral_slots().items()
            if id(slot.native) in by_native
        }
        return Gradients(
            float(value),
            by_name,
            by_input,
            self.to_numpy(tuple(beside)),
        )

    def optimizer(self, rule, network, parameters=None, groups=None):
        return StrangerOptimizer(network, Groups.of(rule, groups), parameters)

    def wrap_optimizer(self, native, network):
        raise CapabilityError(
            "backend 'stranger' has no optimizers of its framework's own: use a rule"
        )


def _is_floating(value):
    return arrays.is_array(value) and value.dtype.kind == "f"


BACKEND = StrangerBackend()
BACKEND.bind(functional.StrangerFunctions(), AbstractStrangerNetwork)
