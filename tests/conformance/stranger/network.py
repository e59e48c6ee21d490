"""The network base: parameters and buffers are kept by name, and read as the arrays that they
hold."""

import numpy as np
from autograd.tracer import getval

from deliralike.network import AbstractNetwork, refuse_plain_container
from deliralike.network.construction import current_construction
from deliralike.network.state import Slot


class Variable(Slot):
    """A parameter or buffer; it is its own slot. Within a gradient a parameter's value is a box."""

    def __init__(self, value, is_parameter):
        self._value, self.is_parameter, self.trainable = (
            value,
            is_parameter,
            is_parameter,
        )

    @property
    def native(self):
        return self

    @property
    def shape(self):
        return self._value.shape

    @property
    def dtype(self):
        return self._value.dtype

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, array):
        self._value = array

    def read(self):
        return np.array(getval(self._value))

    def write(self, value):
        self._value = np.array(getval(value), self._value.dtype, order="C")


class AbstractStrangerNetwork(AbstractNetwork):
    """The base of networks on autograd."""

    block_path = ""
    device_name = "cpu"

    def __init__(self):
        self.training = True

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def __setattr__(self, name, value):
        refuse_plain_container(self, name, value)
        held = vars(self).get(name)
        if (
            isinstance(held, Variable)
            and not isinstance(value, Variable)
            and value is not None
        ):
            if held.is_parameter:
                raise TypeError(f"{name!r} is a parameter, which keeps its value")
            held.write(value)  # without its graph
        else:
            super().__setattr__(name, value)

    def __getattribute__(self, name):
        found = super().__getattribute__(
            name
        )  # a network that is being built may tie parameters: it gets them as such
        return (
            found.value
            if isinstance(found, Variable) and current_construction() is None
            else found
        )

    def neutral_slots(self):
        held = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, Variable)
        }
        slots = dict(
            sorted(held.items(), key=lambda item: not item[1].is_parameter)
        )  # parameters first; stable
        for path, child in self._children():
            slots |= {
                f"{path}.{name}": slot for name, slot in child.neutral_slots().items()
            }
        return slots

    def named_blocks(self):
        found = {}
        self._add_blocks("", found)
        return ((path, block) for path, block in found.values())

    def _add_blocks(self, path, found):
        if id(self) not in found:
            found[id(self)] = path, self
            for name, child in self._children():
                child._add_blocks(f"{path}.{name}".lstrip("."), found)

    def _children(self):
        return [
            (name, value)
            for name, value in vars(self).items()
            if isinstance(value, AbstractStrangerNetwork)
        ]

    @property
    def dtype_name(self):
        floating = (
            slot.value.dtype
            for slot in self.neutral_slots().values()
            if slot.value.dtype.kind == "f"
        )
        return str(next(floating, self.dtype_built))
