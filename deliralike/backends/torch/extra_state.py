"""What a module gives by ``get_extra_state``, as a buffer: the bytes of a file of PyTorch's.

Only this backend has this file: no other framework has states that are no arrays of a module.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from deliralike.errors import StateError
from deliralike.network.state import Slot
from deliralike.nn.start import Shape


class ExtraStateSlot(Slot):
    """The extra state of a module: tensors, numbers and texts in any nest."""

    is_parameter = False
    trainable = False

    def __init__(self, module: torch.nn.Module) -> None:
        """Refer to a module; its state is asked for when it is read."""
        self.native: Any = module

    @property
    def shape(self) -> Shape:
        """The number of bytes at present."""
        return self.read().shape

    def fits(self, shape: Shape) -> bool:
        """Return whether an array may be the bytes of a state, of which there may be any number."""
        return len(shape) == 1

    def read(self) -> np.ndarray:
        """Return the state as bytes.

        Raises:
            StateError: It holds something else than tensors, numbers and texts.
        """
        file = io.BytesIO()
        torch.save(self.native.get_extra_state(), file)
        # Inverted, as a file that ends with a zip archive would be taken for one.
        content = ~np.frombuffer(file.getvalue(), np.uint8)
        self._decoded(content)  # what could not be given back is not written
        return content

    def write(self, value: np.ndarray) -> None:
        """Give the module a state that `read` has returned."""
        self.native.set_extra_state(self._decoded(value))

    @property
    def value(self) -> torch.Tensor:
        """The bytes as a tensor."""
        return torch.from_numpy(self.read())

    @value.setter
    def value(self, array: torch.Tensor) -> None:
        self.write(array.numpy())

    def _decoded(self, content: np.ndarray) -> Any:
        try:
            file = io.BytesIO((~content.astype(np.uint8)).tobytes())
            return torch.load(file, weights_only=True)
        except (pickle.UnpicklingError, RuntimeError) as error:
            raise StateError(
                f"the extra state of {type(self.native).__name__} cannot be written and read "
                "without running code: let get_extra_state give tensors, numbers and texts in "
                f"dicts and lists ({str(error).splitlines()[0]:.80})"
            ) from error


def extra_slots(module: torch.nn.Module, path: str) -> Iterator[tuple[str, Slot]]:
    """Yield the slot of a module's extra state; most modules have none."""
    if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
        yield f"{path}_extra_state", ExtraStateSlot(module)
