"""What processes tell each other of a loss that each computes on its share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deliralike.network.state import Slot
from deliralike.parallel.batches.scatter import Shares

if TYPE_CHECKING:
    from deliralike.parallel.processes.network import DistributedNetwork


class LossExchange:
    """What the processes tell each other of a loss: its parts, and in the same message whether
    buffers differ.

    Where nothing waits for the device by it, the message is under way during backward.

    Attributes:
        own: This process's part of the loss.
    """

    def __init__(self, network: DistributedNetwork, shares: Shares) -> None:
        """Of one loss of a network."""
        self.network, self.shares = network, shares
        self.own: float = 0.0
        self._found: tuple = (None, None, None)
        self._come: Callable[[], list[Any]] | None = None

    def begin(self, value: Any = None, denominator: Any = None, extras: Any = None) -> None:
        """After forward: this process's part with its graph, or that it has none."""
        self._found = value, denominator, extras
        if self.network.device_name == "cpu" and any(self.shares.sizes):
            self._send()

    def _send(self) -> None:
        value, denominator, extras = self._found
        own = (
            0.0
            if value is None
            else self.network.backend.number(self.network.nn.stop_gradient(value))
        )
        self.send(own, denominator, extras)

    def send(self, own: float, denominator: Any, extras: Any) -> None:
        """Tell this process's part."""
        self.own, self._buffers = own, self.network.parallelism.buffer_slots()
        part = own, denominator, None if extras is None else self.network.backend.to_numpy(extras)
        self._come = self.network.parallelism.batch_group.begin_all_gather_object(
            "the loss", (part, digest(self._buffers))
        )

    def finish(self) -> tuple[float, Any, Any]:
        """The loss of the whole batch, its denominator, and what else the loss function gave;
        buffers are settled.
        """
        sizes = self.shares.sizes
        if not sum(sizes):
            return 0.0, 0.0, None
        if self._come is None:
            self._send()
        assert self._come is not None  # sent by now
        parts, digests = zip(*self._come(), strict=True)
        self.network.parallelism.synchronize_differing(self._buffers, digests, sizes)
        return self.network.parallelism.combine_losses(present(parts, sizes), sizes)


def digest(buffers: Mapping[str, Slot]) -> bytes:
    """A number of 16 bytes that differs where the values of buffers do."""
    found = hashlib.blake2b(digest_size=16)
    for slot in buffers.values():
        found.update(slot.read().tobytes())
    return found.digest()


def present(values: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Those of the processes that have samples."""
    return [value for value, size in zip(values, sizes, strict=True) if size]
