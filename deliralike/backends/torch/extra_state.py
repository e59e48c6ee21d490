"""What a module gives by ``get_extra_state``: each of its tensors and numbers as a buffer.

Only this backend has this file: no other framework has states that are no arrays of a module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from deliralike import nest
from deliralike.backends.torch import arrays
from deliralike.errors import StateError
from deliralike.network.state import Slot

NAME = "_extra_state"


class ExtraStateSlot(Slot):
    """One tensor or number in the extra state of a module."""

    is_parameter = False
    trainable = False

    def __init__(self, module: torch.nn.Module, path: str, place: int, leaf: Any) -> None:
        """Refer to a leaf of a module's extra state by its place in the nest.

        Raises:
            StateError: It is no array and no number.
        """
        if not isinstance(leaf, bool | int | float | np.ndarray | np.generic | torch.Tensor):
            raise StateError(
                f"the extra state of {type(module).__name__} has a {type(leaf).__name__} at "
                f"{path!r}, which a state of arrays cannot hold: let get_extra_state give tensors "
                "and numbers"
            )
        self.native = torch.as_tensor(leaf)
        self._module: Any = module
        self._place = place

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array; that of a number is empty."""
        return tuple(self.native.shape)

    def read(self) -> np.ndarray:
        """Return a copy on the host."""
        return arrays.numpy(self.native)

    def write(self, value: np.ndarray) -> None:
        """Give the module its extra state with this value in the place of the former one."""
        leaves, structure = nest.flatten(self._module.get_extra_state())
        leaves[self._place] = _like(value, leaves[self._place])
        self._module.set_extra_state(nest.unflatten(structure, leaves))

    @property
    def value(self) -> torch.Tensor:
        """The array as a tensor."""
        return self.native.detach()

    @value.setter
    def value(self, array: torch.Tensor) -> None:
        self.write(arrays.numpy(array))


def extra_slots(module: torch.nn.Module, path: str) -> Iterator[tuple[str, Slot]]:
    """Yield the slots of a module's extra state; most modules have none."""
    if type(module).get_extra_state is torch.nn.Module.get_extra_state:
        return
    state = module.get_extra_state()
    for place, (inner_path, leaf) in enumerate(nest.leaves_with_paths(state)):
        name = path + NAME + re.sub(r"\W+", ".", inner_path).rstrip(".")
        yield name, ExtraStateSlot(module, name, place, leaf)


def _like(value: np.ndarray, former: Any) -> Any:
    """Return an array in the form of an earlier value: a tensor, an array or a number."""
    if isinstance(former, torch.Tensor):
        return arrays.like(torch.tensor(value), former)
    if isinstance(former, np.ndarray | np.generic):
        return np.asarray(value, former.dtype)
    return type(former)(value.item())
