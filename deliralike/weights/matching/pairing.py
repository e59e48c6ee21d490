"""What is matched of two networks or files, and the pairs of tensors that are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unwrap
from deliralike.network.state import first_names
from deliralike.weights.matching.layouts import Transform
from deliralike.weights.matching.parts import Shape, Unit, above

COUNTER = (
    "num_batches_tracked"  # flax's norms have none, and nothing is computed from it
)
STATISTICS = ("running_mean", "running_var")
ROLES = ("weight", "bias", *STATISTICS)


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer: shape, the first name of a tied one, and value."""

    shape: Shape
    is_parameter: bool
    tie: str
    value: np.ndarray


@dataclass(frozen=True)
class Side:
    """What is matched of one network.

    Attributes:
        name: Its class's name and its backend's.
        tensors: By neutral name, in creation order, without counters.
        kinds: The class's name of each block, by path, in the order of creation.
        channels_last: Whether its convolutions keep their kernels so; then, most likely, its arrays
            have the channels last too.
    """

    name: str
    tensors: Mapping[str, Tensor]
    kinds: Mapping[str, str]
    channels_last: bool = False

    @classmethod
    def of(
        cls,
        network: AbstractNetwork,
        called: Sequence[str] = (),
        with_values: bool = True,
    ) -> Side:
        """Look at a network; its weights are copied to the host.

        Args:
            called: Its blocks in the order of their calls, which goes before that of creation.
            with_values: Whether its weights say something; those that are not trained do not, and
                count as zeros.
        """
        slots = network.neutral_slots()
        ties = first_names(slots)
        tensors = {}
        for name, slot in slots.items():
            if not name.endswith(COUNTER):
                tie = ties.get(id(slot.native), name)
                value = slot.read() if with_values else np.broadcast_to(0.0, slot.shape)
                tensors[name] = Tensor(slot.shape, slot.is_parameter, tie, value)
        channels_last = any(_keeps_channels_last(slot) for slot in slots.values())
        kinds = {path: type(block).__name__ for path, block in network.named_blocks()}
        kinds[""] = type(unwrap(network)).__name__
        tensors = _in_order(tensors, called)
        name = f"{kinds['']} on {network.backend.name}"
        return cls(name, tensors, kinds, channels_last)

    def without(self, names: Iterable[str]) -> Side:
        """This side without some of its tensors."""
        tensors = dict(self.tensors)
        for name in names:
            tensors.pop(name, None)
        return replace(self, tensors=tensors)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes by name."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def value(self, unit: Unit) -> np.ndarray:
        """A unit's value."""
        return unit.read(self.tensors[unit.source].value)


def _keeps_channels_last(slot: Any) -> bool:
    """Whether a framework keeps ``(out, in, *size)`` as ``(*size, in, out)``."""
    if len(slot.shape) < 3:
        return False
    channels_out, channels_in, *size = slot.shape
    return tuple(slot.value.shape) == (*size, channels_in, channels_out)


def _in_order(
    tensors: Mapping[str, Tensor], called: Sequence[str]
) -> dict[str, Tensor]:
    """Tensors in the order in which the blocks that hold them are called.

    Those of a block that is not called stand behind all calls within the block around it.
    """
    first = {path: place for place, path in enumerate(called)}
    behind: dict[str, float] = {}
    for path, place in first.items():
        for outer in above(f"{path}."):
            behind[outer] = place + 0.5

    def rank(name: str) -> float:
        """Return that of a tensor's block, or the place behind the innermost that is called."""
        block, *outer = above(name)
        if block in first:
            return first[block]
        return next((behind[path] for path in outer if path in first), len(called))

    return {name: tensors[name] for name in sorted(tensors, key=rank)}


@dataclass(frozen=True)
class Pair:
    """A tensor (or a part of one) of the reference and what it is in the candidate.

    Attributes:
        reference, candidate: The units; where there are several on one side, their sum is the one
            on the other.
        transform: How the first of the reference's is laid out as the first of the candidate's.
        decided: By what: ``"correction"``, ``"name"``, ``"value"``, ``"shape"``, ``"order"``,
            ``"tie"``, ``"output"``.
        alternatives: Other names of the candidate that would do as well; empty where it is certain.
        layouts: Other transforms that would do as well.
    """

    reference: tuple[Unit, ...]
    candidate: tuple[Unit, ...]
    transform: Transform
    decided: str
    alternatives: tuple[str, ...] = ()
    layouts: tuple[Transform, ...] = ()

    @property
    def sides(self) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
        """The units of the reference, and those of the candidate."""
        return self.reference, self.candidate

    @property
    def inverse(self) -> Pair:
        """What the candidate's units are in the reference."""
        return Pair(
            self.candidate, self.reference, self.transform.inverse, self.decided
        )

    @property
    def certain(self) -> bool:
        """Whether nothing else would do as well."""
        return not (self.alternatives or self.layouts)

    @property
    def straight(self) -> bool:
        """Whether it is one whole tensor on each side."""
        units = (*self.reference, *self.candidate)
        return len(units) == 2 and all(unit.whole for unit in units)
