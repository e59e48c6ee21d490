"""The part of a network that optimizers and steps use: its weights, its blocks and its mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from deliralike.errors import StateError, matching
from deliralike.nest.arrays import Arrays
from deliralike.network.parallelism import Single
from deliralike.network.state import (
    LoadReport,
    Slot,
    each_once,
    host_array,
    plan_load,
    refuse_torn_ties,
)

if TYPE_CHECKING:
    from deliralike.nn.interface import Vocabulary


def unwrap(network: Any) -> Any:
    """Return the network as it was written, native or not.

    It is the given network, or the one inside of all wrappers.
    """
    while issubclass(type(network), NetworkCore) and hasattr(type(network), "enclosed"):
        network = getattr(network, type(network).enclosed)
    return network


def parts(network: Any) -> list[Any]:
    """Return every native block of a network, among them the network as it was written."""
    return [
        unwrap(network),
        *(block for path, block in network.named_blocks() if path),
    ]


def unreplicated(network: Any) -> Any:
    """Return the network that a replicated one was made from; any other network as it is."""
    return network.root if network.parallelism.is_replicated else network


class NetworkCore:
    """The part of `AbstractNetwork` that knows no optimizer, step or backend.

    Attributes:
        nn: The vocabulary of its backend: layers and functions.
        training: Whether the network is in training mode; see `training_mode`.
        dtype_built: The floating type that the network was built with.
    """

    backend: ClassVar[Arrays]
    nn: ClassVar[Vocabulary]
    _parallelism: ClassVar[type[Single]] = Single
    training: bool
    dtype_built: str = "float32"

    # Methods of each backend
    # -------------------------------------------------------------------------------------

    def neutral_slots(self) -> dict[str, Slot]:
        """Return every parameter and buffer by its neutral name, in creation order.

        The order is own parameters, own buffers, children.
        """
        raise NotImplementedError

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """Yield every native block with its dotted path; this network, with ``""``, is first."""
        raise NotImplementedError

    @property
    def device_name(self) -> str:
        """The device that holds the parameters."""
        raise NotImplementedError

    @property
    def dtype_name(self) -> str:
        """The floating type of the parameters and buffers, see `widest`.

        A network without any has the type that it was built with.
        """
        raise NotImplementedError

    # Methods of every network
    # ----------------------------------------------------------------------------------------

    def eval(self) -> Any:
        """Set evaluation mode; returns the network."""
        return self.train(mode=False)

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation mode for this network and all its blocks.

        Blocks of a class with a ``train`` or ``eval`` of its own do what that says. The network is
        returned.
        """
        blocks = [block for _, block in self.named_blocks()]
        for block in blocks:
            self._set_mode(block, mode)
        for block in blocks:
            if block is self or not self._has_own_mode(block):
                continue
            if mode:
                block.train()
            else:
                block.eval()
        return self

    @contextmanager
    def training_mode(self, training: bool) -> Iterator[Any]:
        """Hold training or evaluation mode for a ``with`` block.

        Afterwards every block has the mode that it had before.
        """
        before = []
        is_set = True
        for _, block in self.named_blocks():
            for name in self._changed_by_mode(block):
                before.append((block, name, getattr(block, name)))
            is_own = self._has_own_mode(block)
            is_set = is_set and not is_own and self._mode(block) in (training, None)
        if not is_set:
            self.train(training)
        try:
            yield self
        finally:
            for block, name, value in before:
                _set(block, name, value)

    def _mode_attributes(self, block: Any, training: bool) -> dict[str, bool]:
        """Return the attributes that hold a block's own mode, with their values in a mode."""
        return {"training": training} if hasattr(block, "training") else {}

    def _changed_by_mode(self, block: Any) -> Iterable[str]:
        """Return the names of the attributes of a block that another mode may change."""
        return self._mode_attributes(block, True)

    def _has_own_mode(self, block: Any) -> bool:
        """Return whether a block's class has a way of its own to be set to a mode."""
        return False

    def _mode(self, block: Any) -> bool | None:
        """Return whether a block is in training mode itself; None for one without a mode."""
        modes = []
        for name, value in self._mode_attributes(block, True).items():
            modes.append(getattr(block, name) == value)
        return any(modes) if modes else None

    def _set_mode(self, block: Any, training: bool) -> None:
        """Set the mode of a block, not of those within it."""
        for name, value in self._mode_attributes(block, training).items():
            _set(block, name, value)

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return the weights by dotted torchvision names, in PyTorch layouts.

        They are NumPy arrays that the caller owns.

        Order is creation order; counters (``num_batches_tracked``) are int64 and scalars are 0-d
        arrays.
        """
        return {name: slot.read() for name, slot in self.neutral_slots().items()}

    def load_neutral_state(
        self, state: Mapping[str, Any], strict: bool = True
    ) -> LoadReport:
        """Take over weights by name; values are cast to the parameters' own types.

        Args:
            state: Neutral names and arrays in PyTorch layouts.
            strict: Refuse when names are missing or unexpected. Wrong shapes are always refused.
                A norm's ``num_batches_tracked`` is never a reason to refuse, and a tied parameter
                may come under any of its names.

        Returns:
            What was loaded, missing and unexpected.

        Raises:
            StateError: The weights do not fit; the message lists why, and nothing was changed.
        """
        slots = self.neutral_slots()
        report = plan_load(slots, state)
        is_incomplete = strict and not report.complete
        loads_nothing = not report.loaded and (slots or state)
        if report.mismatched or is_incomplete or loads_nothing:
            raise StateError(
                f"the weights do not fit {type(self).__name__}, which was left unchanged: {report}"
            )
        # All arrays are converted before the first write: an error leaves the network unchanged.
        arrays = {name: host_array(name, state[name]) for name in report.loaded}
        refuse_torn_ties(slots, arrays)
        for name, array in arrays.items():
            slots[name].write(array)
        return report

    @property
    def parallelism(self) -> Single:
        """Return how the network computes in parallel.

        What depends on replicas and processes is asked of this object.
        """
        return self._parallelism(self)

    def set_trainable(self, pattern: str, trainable: bool) -> list[str]:
        """Freeze or thaw the parameters whose neutral names match a pattern.

        A pattern is like ``"layer1.*"``; the names of the parameters are returned. The mode of
        layers stays: batch norms go on with their statistics; see `deliralike.freeze`.

        Raises:
            UnknownName: No parameter matches.
        """
        slots = self.neutral_slots()
        parameters = {name: slot for name, slot in slots.items() if slot.is_parameter}
        what = f"no parameter of {type(self).__name__}"
        names = matching(pattern, parameters, what)
        for name in names:
            slots[name].trainable = trainable
        return names

    def count_parameters(self, trainable_only: bool = False) -> int:
        """Return the number of scalar parameters; tied ones count once, buffers do not count."""
        count = 0
        for slot in each_once(self.neutral_slots()).values():
            if slot.trainable or (slot.is_parameter and not trainable_only):
                count += slot.size
        return count


def _set(block: Any, name: str, value: Any) -> None:
    if getattr(block, name) is not value:
        setattr(block, name, value)


def count_parameters(network: NetworkCore) -> int:
    """Return the number of a network's scalar parameters, whatever methods its class has."""
    return NetworkCore.count_parameters(network)
