"""Networks that average gradients during backward and delay updates until they are needed.

The framework-free half: which gradients are sent together, which update is pending, and when to
wait.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import as_loss
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.processes.buckets import Bucket, GradientSpec, assign_buckets, finish_all
from deliralike.parallel.processes.group import ProcessGroup

BUCKET = 1 << 20  # bytes: enough to hide what a message costs by itself, and little to wait for


class LayerwiseNetwork(ABC):
    """A network in several processes, each of which computes the gradients of its own batch.

    Updates follow the mean of the gradients. A blocking network has the means when backward is
    done. Otherwise their sums are in flight then: `step` records the update, with the optimizer's
    settings of that time, and each bucket of parameters is updated when the next forward pass
    reaches one of them. Any other access to the network through this object (a call, a save, a
    switch to evaluation) finishes it first.

    Attributes that this class does not have are those of the network.

    Attributes:
        network: The abstract network.
        module: The network as it was given.
        processes: The processes that train together.
        blocking: Whether no sum and no update is left pending.
    """

    in_backward = False  # whether gradients are sent while backward goes on, or at its end
    # whether an update can wait for each bucket by itself, or is one for the whole network
    by_layer = False
    _finishing = False

    def __init__(
        self,
        network: AbstractNetwork,
        module: Any,
        processes: ProcessGroup,
        *,
        blocking: bool,
        wire: str | None,
        bucket_bytes: int,
    ) -> None:
        """Distribute the network; all processes start with the root's weights and buffers.

        No random state changes.

        Raises:
            SettingError: `wire` is unknown.
        """
        state = processes.broadcast_object("weights", network.neutral_state())
        if not processes.is_root:
            network.load_neutral_state(state)
        if wire not in (None, "bfloat16"):
            raise SettingError(
                f"wire={wire!r} is unknown: 'bfloat16', or None for the gradients' own type"
            )
        # Past __setattr__, since PyTorch would register them as parts of this object.
        vars(self).update(network=network, given=module)
        self.processes = processes
        self.blocking = blocking
        self._limit = bucket_bytes
        self._wire = wire
        self._described: dict[str, GradientSpec] = {}
        self._buckets: list[Bucket] = []
        self._bucket_of: dict[str, Bucket] = {}
        self._begun = 0  # how many buckets were sent in this round
        self._rounds = 0
        self._update: Callable[[Collection[str]], None] | None = None  # the pending one
        self._optimizer_to_finish: AbstractOptimizer | None = None
        self._updated: list[str] = []
        self._stepped: dict[int, int] = {}  # the round at the latest step of each optimizer
        processes.waiting.add(self)
        # MPI must not end while messages are in flight.
        weakref.finalize(self, finish_all, self._buckets)
        self.look()

    # What a backend provides
    # ------------------------------------------------------------

    @abstractmethod
    def trainable(self) -> dict[str, GradientSpec]:
        """Return the parameters that take a gradient, each once, in the order of the network."""

    @abstractmethod
    def gradient(self, name: str) -> Any:
        """Return the native gradient of a parameter, or None."""

    @abstractmethod
    def put_gradient(self, name: str, gradient: Any) -> None:
        """Set the native gradient of a parameter."""

    @abstractmethod
    def on_host(self, gradient: Any) -> np.ndarray:
        """Return a gradient in the host's memory, for reading."""

    @abstractmethod
    def from_host(self, name: str, average: np.ndarray) -> Any:
        """Return the native gradient for an average in the host's memory, which it may share."""

    @abstractmethod
    def settings_of(
        self, optimizer: AbstractOptimizer
    ) -> Callable[[], AbstractContextManager[None]]:
        """Return a function whose contexts give an optimizer the settings that it has now."""

    def is_touched(self, name: str) -> bool:
        """Return whether others cleared or changed a parameter's gradient since it was sent."""
        return self.gradient(name) is None

    def update_some(self, optimizer: AbstractOptimizer, names: Collection[str]) -> None:
        """Update some parameters only."""
        raise NotImplementedError  # where `updates_by_layer` is never true

    def updates_by_layer(self, optimizer: AbstractOptimizer) -> bool:
        """Return whether updates of parts, one after another, equal the update of the whole."""
        return False

    def watch(self) -> None:
        """Start to finish pending sums when the module that was given is used directly."""

    def unwatch(self) -> None:
        """Stop watching the module, as nothing is pending any more."""

    def bind(self, optimizer: AbstractOptimizer) -> None:
        """Prepare for the steps of an optimizer."""

    # Rounds: each gradient is sent once in a round
    # ------------------------------------------------------------

    def look(self) -> None:
        """Form the buckets anew if other parameters are trainable than before."""
        described = self.trainable()
        if described == self._described:
            return
        self.finish()
        self._described = described
        self._buckets.clear()
        self._bucket_of = {}
        for names in assign_buckets(described, self._limit):
            bucket = Bucket({name: described[name] for name in names})
            self._buckets.append(bucket)
            self._bucket_of.update(dict.fromkeys(names, bucket))

    def arrived(self, name: str) -> None:
        """Record that the gradient of a parameter is complete, and send its bucket if that is full.

        Buckets are sent in one order, so that processes that reach their layers in different orders
        send the same.
        """
        bucket = self._bucket_of.get(name)
        if bucket is None:
            return
        if name not in bucket.missing or bucket.is_under_way:
            # A further backward pass: finish the sums of the previous one, and send all again.
            self.begin_rest()
            self.finish()
        bucket.missing.discard(name)
        while self._begun < len(self._buckets) and not self._buckets[self._begun].missing:
            self._begin_next()

    def begin_rest(self) -> None:
        """Send the remaining buckets, as at the end of backward.

        Parameters without a gradient count as zero.
        """
        while self._begun < len(self._buckets):
            self._begin_next()

    def _begin_next(self) -> None:
        if not self._begun:
            self._rounds += 1
            if not self.blocking:
                self.watch()
        bucket = self._buckets[self._begun]
        self._begun += 1
        bucket.begin(self.processes, self._sent, at_once=self.blocking, wire=self._wire)

    def _sent(self, name: str) -> np.ndarray | None:
        gradient = self.gradient(name)
        if gradient is None:
            return None
        return self.on_host(gradient)

    @property
    def is_under_way(self) -> bool:
        """Whether a sum is pending."""
        return any(bucket.is_under_way for bucket in self._buckets)

    def finish(self, names: Collection[str] | None = None) -> None:
        """Wait for the gradients of these parameters, or of all, and make their pending update."""
        if self._finishing or self._begun < len(self._buckets):
            return  # within an update, or within backward
        buckets = self._buckets
        if names is not None and (self._update is None or self.by_layer):
            buckets = self._buckets_of(names)
        pending = [bucket for bucket in buckets if bucket.is_under_way]
        if not pending:
            return
        self._finishing = True
        try:
            averages: dict[str, np.ndarray | None] = {}
            for bucket in pending:
                averages.update(bucket.wait())
            self._take_averages(averages)
        finally:
            self._finishing = False
        if not self.is_under_way:
            self._end_round()

    def _buckets_of(self, names: Collection[str]) -> list[Bucket]:
        """Return the buckets that hold any of these parameters, each once."""
        buckets = {}
        for name in names:
            bucket = self._bucket_of.get(name)
            if bucket is not None:
                buckets[id(bucket)] = bucket
        return list(buckets.values())

    def _take_averages(self, averages: Mapping[str, np.ndarray | None]) -> None:
        """Set gradients to their averages and make the pending update.

        Gradients that others have touched since they were sent are restored afterwards.
        """
        touched = {name: self.gradient(name) for name in averages if self.is_touched(name)}
        names = []
        for name, average in averages.items():
            if average is None:
                self.put_gradient(name, None)
            else:
                self.put_gradient(name, self.from_host(name, average))
                names.append(name)
        if self._update is not None:
            self._update(names)
        for name, gradient in touched.items():
            self.put_gradient(name, gradient)

    def _end_round(self) -> None:
        self.unwatch()
        self._begun = 0
        optimizer = self._optimizer_to_finish
        self._update = None
        self._optimizer_to_finish = None
        if optimizer is not None:
            updated = self._updated
            self._updated = []
            optimizer.finish_update(updated)

    def end_backward(self) -> None:
        """Record that every gradient is complete."""
        self.begin_rest()
        if self.blocking:
            self.finish()

    # Steps
    # ------------------------------------------------------------

    def step(self, optimizer: AbstractOptimizer) -> None:
        """Update by the means of all gradients since they were cleared: now, or when needed."""
        if not self.in_backward or self._stepped.get(id(optimizer), 0) == self._rounds:
            # Backward does not send by itself, or no parameter of this process took part in it.
            self.begin_rest()
        self._stepped[id(optimizer)] = self._rounds
        if self.blocking or not self.is_under_way or self._update is not None:
            self.finish()
            self.update_now(optimizer)
        else:
            self._record_update(optimizer)

    def update_now(self, optimizer: AbstractOptimizer) -> None:
        """Update by the present gradients."""
        names = [name for name in self._described if optimizer.owns(name)]
        optimizer.update_with({name: self.gradient(name) for name in names})

    def _record_update(self, optimizer: AbstractOptimizer) -> None:
        """Let the next `finish` make the update, with the optimizer's present settings."""
        settings = self.settings_of(optimizer)
        self.by_layer = self.updates_by_layer(optimizer)

        def update(names: Collection[str]) -> None:
            with settings():
                if self.by_layer:
                    self.update_some(optimizer, names)
                    self._updated += names
                else:
                    self.update_now(optimizer)

        self._update = update
        if self.by_layer:
            self._optimizer_to_finish = optimizer

    def clear(self, optimizer: AbstractOptimizer, set_to_none: bool) -> None:
        """Clear the gradients of an optimizer's parameters; a pending update keeps its own."""
        for name in self._described:
            if optimizer.owns(name):
                self.put_gradient(name, None)

    def gradients_of(
        self, optimizer: AbstractOptimizer, loss_function: Callable[..., Any], batch: tuple
    ) -> Any:
        """Compute a loss function on this process's batch; the parameters keep the gradients.

        Returns:
            The result of the loss function.
        """
        loss = optimizer.network.parallelism.adapt_loss(as_loss(loss_function))
        loss = loss.with_precision(optimizer.precision)
        with self.reaching():
            result, gradients = optimizer.gradients(loss, *optimizer.prepared(batch))
        for name, gradient in gradients.items():
            self.put_gradient(name, gradient)
        return result

    # The network
    # ------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs for this process's batch."""
        with self.reaching():
            return self.given(*args, **kwargs)

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Return a context for a forward pass, which finishes what the pass reaches."""
        self.look()
        self.finish()
        yield

    @property
    def module(self) -> Any:
        """The network as it was given, with nothing pending."""
        self.finish()
        return self.given

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the given network, or else of the abstract one.

        Raises:
            AttributeError: Neither has it.
        """
        if name.startswith("__") or "network" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self.finish()
        owner = self.given if hasattr(self.given, name) else self.network
        return getattr(owner, name)


@contextmanager
def attributes_set(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Set attributes of an object for a ``with`` block."""
    former = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in former.items():
            setattr(owner, name, value)


@contextmanager
def entries_set(find: Callable[[], dict], values: Mapping[str, Any]) -> Iterator[None]:
    """Set entries of a dict for a ``with`` block; `find` may return another dict at its end."""
    former = {}
    for name, value in find().items():
        if name in values and values[name] is not value:
            former[name] = value
    find().update(values)
    try:
        yield
    finally:
        find().update(former)


# Optimizers
# ------------------------------------------------------------


def optimizer_over(network: AbstractNetwork, optimizer: Any) -> AbstractOptimizer:
    """Return an abstract optimizer over the network: the given one, or one around a native one.

    Raises:
        SettingError: An abstract optimizer holds the parameters of another network.
    """
    if not isinstance(optimizer, AbstractOptimizer):
        return network.backend.wrap_optimizer(optimizer, network)
    if _native_parameters(optimizer.network) != _native_parameters(network):
        raise SettingError(
            "the optimizer is over another network than the one that is given with it"
        )
    return optimizer


def reason_to_block(network: AbstractNetwork, optimizers: Sequence[AbstractOptimizer]) -> str:
    """Return why updates cannot wait for the next forward pass; the text is empty if they can."""
    if len(optimizers) > 1:
        return (
            f"there are {len(optimizers)} optimizers, of which each may change what the others "
            "look at"
        )
    slots = {name: slot for name, slot in network.neutral_slots().items() if slot.is_parameter}
    held = optimizers[0].holds()
    held_natives = {id(slots[name].native) for name in held if name in slots}
    missing = []
    for name, slot in slots.items():
        if slot.trainable and id(slot.native) not in held_natives:
            missing.append(name)
    if missing:
        return f"the optimizer does not hold these parameters of the network: {', '.join(missing)}"
    foreign = [name for name in held if name not in slots]
    if foreign:
        return f"the optimizer holds {len(foreign)} parameters that are not the network's"
    return ""


def _native_parameters(network: AbstractNetwork) -> set[int]:
    """Return the identities of the native parameters."""
    return {id(slot.native) for slot in network.neutral_slots().values() if slot.is_parameter}
