"""Optimizers of frameworks whose backward pass leaves gradients in the parameters."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from deliralike.network.state import Slot, each_once, owned_slots
from deliralike.optim.loss import (
    LossFunction,
    no_array,
    no_scalar,
    value_of,
    with_value,
)
from deliralike.optim.optimizer import AbstractOptimizer


class BackwardOptimizer(AbstractOptimizer):
    """An optimizer that takes gradients from the parameters after ``loss.backward()``."""

    _owned: OwnedParameters

    def prepared(self, batch: tuple) -> tuple:
        """Prepare a batch for the device and type of the parameters."""
        self._owned.refresh()
        return self.network.backend.prepare(batch, self._owned)

    def gradients(
        self, loss_function: LossFunction, *batch: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Run forward and backward; return the detached result, and gradients by name.

        Gradients of a previous step are dropped first. A tied parameter comes under its first name.
        A loss in replicas runs backward in each replica's thread.
        """
        result = self.forward_backward(loss_function, _backward, batch)
        parameters = self._owned.parameters
        gradients = {name: p.grad for name, p in parameters.items() if p.requires_grad}
        value = self.network.nn.stop_gradient(value_of(result))
        return with_value(result, value), gradients

    @abstractmethod
    def native_parameters(self) -> Iterable[Any]:
        """Return the parameters that the framework's own optimizer was made for."""

    def holds(self) -> list[str]:
        """Return the names of those parameters, and a text for each that the network lacks."""
        names = {id(each): name for name, each in self._owned.parameters.items()}
        listed = []
        for parameter in self.native_parameters():
            if id(parameter) in names:
                listed.append(names[id(parameter)])
            else:
                shape = getattr(parameter, "shape", None)
                known = "yet unknown" if shape is None else tuple(shape)
                listed.append(f"a parameter of shape {known}")
        return listed

    @abstractmethod
    def forward_backward(
        self, loss_function: Callable, backward: Callable[[Any], None], batch: tuple
    ) -> Any:
        """Return the result of a loss function; previous gradients are dropped first."""


def _backward(loss: Any) -> None:
    if not hasattr(loss, "backward"):
        raise no_array(loss)
    if math.prod(loss.shape) != 1:
        raise no_scalar(loss.shape)
    loss.backward()


_WIDE = ("float32", "float64")  # no other parameter has a wider type than these


class OwnedParameters(ABC):
    """The owned parameters of a network by neutral name.

    A lookup takes many times as long as a check whether every block still holds the same objects.

    Attributes:
        slots: The slots of the owned parameters as of the last `refresh`, each under its first
            name.
        parameters: The same as the framework's own objects.
        first: The first parameter of the network; None where there is none.

    It stands for the network where a batch is prepared: its type is found in less time.
    """

    slots: dict[str, Slot]
    parameters: dict[str, Any]
    first: Any

    def __init__(
        self, network: Any, owns: Callable[[str], bool] = lambda _name: True
    ) -> None:
        """Find the parameters of `network` of which `owns` accepts some name."""
        self.network = network
        self._owns = owns
        self._contents: tuple[list[int], list[Any]] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Find the parameters again if the network's blocks have changed."""
        if self._contents is not None:
            sizes, objects = self._contents
            sizes_now, objects_now = self.contents()
            # By identity, as tensors compare element by element.
            if sizes == sizes_now and all(map(operator.is_, objects, objects_now)):
                return
        self.slots = each_once(owned_slots(self.network.neutral_slots(), self._owns))
        self.parameters = {name: slot.native for name, slot in self.slots.items()}
        self.find_blocks()
        self._contents = self.contents()

    @abstractmethod
    def find_blocks(self) -> None:
        """Remember where `contents` looks, and what the properties need."""

    @abstractmethod
    def contents(self) -> tuple[list[int], list[Any]]:
        """Return how many parameters and children each block has, and these objects."""

    @property
    def device_name(self) -> str:
        """The device of the network."""
        return self.network.device_name

    @property
    def dtype_name(self) -> str:
        """The floating type of the network, as of the last `refresh`."""
        if self.first is not None:
            name = str(self.first.dtype).rpartition(".")[2]
            if name in _WIDE:
                return name
        return self.network.dtype_name
