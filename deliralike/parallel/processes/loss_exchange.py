"""The exchange of a loss between processes that each compute it on their share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deliralike.network.state import Slot
from deliralike.network.wrapper import WrapperNetwork
from deliralike.optim.loss import LossResult
from deliralike.parallel.batches.scatter import Shares


class LossExchange:
    """An exchange in which each process sends its part of a loss and a digest of its buffers.

    On a CPU the message is in flight during backward; elsewhere reading the loss would wait for
    the device, so it is sent afterwards. Where backward itself carries the parts of the loss, as
    one more gradient, there is a message only if some process has more to tell than a number.

    Attributes:
        own: This process's part of the loss.
        is_carried: Whether backward carries the parts of the loss.
    """

    def __init__(
        self, network: WrapperNetwork, shares: Shares, is_carried: bool = False
    ) -> None:
        """Prepare the exchange of one loss of a network over the shares of one batch."""
        self.is_carried = is_carried
        self._total: float | None = None
        self.network: Any = network
        self.shares = shares
        self.own: float = 0.0
        self._part: LossResult | None = None
        self._buffers: Mapping[str, Slot] = {}
        self._wait: Callable[[], list[Any]] | None = None

    def begin(self, part: LossResult | None = None) -> None:
        """Take this process's part after forward, with its graph; None without samples."""
        self._part = part
        if self.is_carried:
            return
        if self.network.device_name == "cpu" and any(self.shares.sizes):
            self._send()

    @property
    def wants_message(self) -> bool:
        """Whether this process has more to tell than a number: other results, or a request."""
        has_extras = self._part is not None and self._part.extras is not None
        return has_extras or self.network.parallelism.batch_group.has_request

    def carried(self, total: float, wanting: float) -> None:
        """Take what backward has carried, if it was to carry the loss.

        Args:
            total: The sum of the parts of all processes.
            wanting: The number of processes that want a message.
        """
        if self.is_carried and wanting < 0.5:
            self._total = total

    def _send(self) -> None:
        if self._part is None:
            self.send(LossResult(0.0))
            return
        network = self.network
        own = network.backend.number(network.nn.stop_gradient(self._part.value))
        self.send(self._part.with_value(own))

    def send(self, part: LossResult) -> None:
        """Send this process's part, whose loss is a number."""
        network = self.network
        parallelism = network.parallelism
        self.own = part.value
        self._buffers = parallelism.buffer_slots()
        if part.extras is not None:
            part = replace(part, extras=network.backend.to_numpy(part.extras))
        message = part, digest(self._buffers)
        self._wait = parallelism.batch_group.begin_all_gather_object(
            "the loss", message
        )

    def finish(self) -> LossResult:
        """Return the loss of the whole batch as a number, and synchronize the buffers."""
        sizes = self.shares.sizes
        if not sum(sizes):
            return LossResult(0.0, None, 0.0)
        if self._total is not None and self._part is not None:
            return self._part.with_value(self._total)
        if self._wait is None:
            self._send()
        assert self._wait is not None  # `_send` has set it
        parts, digests = zip(*self._wait(), strict=True)
        parallelism = self.network.parallelism
        parallelism.synchronize_differing(self._buffers, digests, sizes)
        return parallelism.combine_losses(present(parts, sizes), sizes)


def digest(buffers: Mapping[str, Slot]) -> bytes:
    """Return a digest of 16 bytes that differs where the values of buffers do."""
    result = hashlib.blake2b(digest_size=16)
    for slot in buffers.values():
        result.update(slot.read().tobytes())
    return result.digest()


def present(values: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Return the values of the processes that have samples."""
    return [value for value, size in zip(values, sizes, strict=True) if size]
