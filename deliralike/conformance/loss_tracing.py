"""What a loss function lets a network compute, listened to: works for any network and any batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deliralike import random
from deliralike.conformance.kinds import Batch, Function
from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork


class InPlace:
    """Something that a loss takes for a network; what it does not have itself is the network's."""

    def __init__(self, network: AbstractNetwork) -> None:
        """Stand in the place of a network."""
        self._network: Any = network

    def __getattr__(self, name: str) -> Any:
        """All else is the network's."""
        return getattr(self._network, name)


class _Heard(Exception):
    """The network was called with this: nothing more is to be computed."""

    def __init__(self, *given: Any) -> None:
        super().__init__()
        self.given = given


class _Hearing(InPlace):
    """Listens until the first call.

    It has no method `through`: where a loss sees its network in another layout, this is what is
    seen, and hears what the network itself would be given.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise _Heard(args, kwargs)


def handed(
    loss: Function, network: AbstractNetwork, batch: Batch
) -> tuple[Any, Any] | None:
    """Return ``(args, kwargs)`` of a loss's first call of the network; None if it calls parts only.

    Args:
        loss: ``loss(network, *batch)``; it gets no further than that call.
        batch: As the network's backend wants it.
    """
    try:
        loss(_Hearing(network), *batch)
    except _Heard as heard:
        return heard.given
    return None


class Stopping(InPlace):
    """Listens until the first call has given its outputs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the network, and go no further."""
        raise _Heard(self._network(*args, **kwargs))

    def through(self, change: Callable[[AbstractNetwork], Any]) -> Stopping:
        """Listen to what a loss sees of the network instead."""
        self._network = change(self._network)
        return self


def first_call(subject: Subject, batch: Batch) -> Any:
    """The outputs of a loss's first call of its network, in evaluation; it gets no further.

    None for a loss that calls parts only. Random layers are still.
    """

    def first(network: AbstractNetwork, *arrays: Any) -> Any:
        try:
            subject.loss(Stopping(network), *arrays)
        except _Heard as heard:
            return heard.given[0]
        return None

    network, backend = subject.network, subject.network.backend
    with network.training_mode(False), backend.evaluating(), random.portable():
        run = backend.program(first, network)  # one, where there are such
        return backend.to_numpy(run(*backend.prepare(batch, network)))
