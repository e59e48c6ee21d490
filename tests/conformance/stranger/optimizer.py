"""Gradients by one trace over all parameters (and inputs), and optimizers that follow the neutral
rules on NumPy."""

from contextlib import contextmanager

import numpy as np
from autograd.core import VJPNode, add_outgrads, toposort
from autograd.extend import vspace
from autograd.tracer import getval, isbox, new_box, trace_stack

from deliralike import nest
from deliralike.network.state import each_once
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import Rule


def differentiated(function, arrays):
    """What ``function(boxes)`` gives, without graph, and the gradient of its first value for each
    array, None without.

    autograd's own `grad` knows one argument, and gives zeros where the value does not depend on it.
    """
    starts = [VJPNode.new_root() for _ in arrays]
    with trace_stack.new_trace() as trace:
        result = function(
            [new_box(array, trace, start) for array, start in zip(arrays, starts)]
        )
    value = result[0] if isinstance(result, tuple) else result
    found = _backward(value) if isbox(value) else {}
    gradients = [
        None if start not in found else np.asarray(found[start][0], array.dtype)
        for array, start in zip(arrays, starts)
    ]
    return nest.map(
        lambda leaf: getval(leaf) if isbox(leaf) else leaf, result
    ), gradients


def _backward(value):
    found = {value._node: (vspace(value._value).ones(), False)}
    for node in toposort(value._node):
        for parent, gradient in zip(node.parents, node.vjp(found[node][0])):
            found[parent] = add_outgrads(found.get(parent), gradient)
    return found


def trainable(network):
    """Parameters that take a gradient, each once, by their first names."""
    slots = each_once(network.neutral_slots())
    return {name: slot for name, slot in slots.items() if slot.trainable}


@contextmanager
def holding(variables, values):
    """Let variables hold other values for a ``with`` block."""
    before = [variable.value for variable in variables]
    try:
        for variable, value in zip(variables, values):
            variable.value = value
        yield
    finally:
        for variable, value in zip(variables, before):
            variable.value = value


class StrangerOptimizer(AbstractOptimizer):
    """A rule on NumPy arrays."""

    def __init__(self, network, groups, pattern=None):
        super().__init__(network, pattern)
        self.groups, self._state, self._counts = groups, {}, {}
        owned = {
            name: slot
            for name, slot in network.neutral_slots().items()
            if slot.is_parameter and self.owns(name)
        }
        self._places = groups.indices(owned)

    def gradients(self, loss_function, *batch):
        slots = trainable(self.network)

        def loss(boxes):
            with holding(slots.values(), boxes):
                return loss_function(self.network, *batch)

        result, found = differentiated(loss, [slot.value for slot in slots.values()])
        return result, {name: g for name, g in zip(slots, found) if self.owns(name)}

    def apply(self, gradients):
        slots = self.network.neutral_slots()
        for name, gradient in gradients.items():
            if gradient is not None:
                rule: Rule = self.groups.rules[self._places[name]]
                p, count = slots[name].value, self._counts.get(name, 0) + 1
                shapes = rule.state_shapes(p.shape)
                zeros = {
                    slot: np.zeros(shape, p.dtype) for slot, shape in shapes.items()
                }
                state = self._state.get(name) or zeros
                new, self._state[name] = rule.update(
                    p, gradient, state, rule.scalars(count), np
                )
                slots[name].write(new)
                self._counts[name] = count

    @property
    def lr(self):
        return self.groups.lr

    @lr.setter
    def lr(self, value):
        self.groups = self.groups.with_lr(value)

    def neutral_state(self):
        state = {"steps": np.array(self.steps)}
        for name, held in self._state.items():
            state |= {f"{name}/{slot}": np.array(value) for slot, value in held.items()}
            if self.groups.rules[0].counts:
                state[f"{name}/step"] = np.array(self._counts[name])
        return state

    def load_neutral_state(self, state):
        slots = self.network.neutral_slots()
        self.refuse_wrong_state(state, slots)
        self.steps, self._state, self._counts = int(state["steps"]), {}, {}
        for key, value in state.items():
            name, _, slot = key.rpartition("/")
            if slot == "step":
                self._counts[name] = int(value)
            elif name:
                self._state.setdefault(name, {})[slot] = np.array(
                    value, slots[name].value.dtype
                )
