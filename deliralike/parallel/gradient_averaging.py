"""Networks in several processes that average their gradients in buckets.

The framework-free half: which gradients are sent together, and when they are waited for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike.errors import SettingError, refuse_unknown_word
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import as_loss
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.processes.buckets import (
    Bucket,
    GradientSpec,
    assign_buckets,
    gradient_spec,
)
from deliralike.parallel.processes.gradient_sums import start_equal, trained_slots
from deliralike.parallel.processes.group import ProcessGroup

BUCKET = (
    1 << 20
)  # bytes: enough to hide what a message costs by itself, and little to wait for


class GradientAveragingNetwork(ABC):
    """A network in several processes, each of which computes the gradients of its own batch.

    Updates follow the mean of the gradients. Attributes that this class does not have are those of
    the network.

    Attributes:
        network: The abstract network.
        module: The network as it was given.
        processes: The processes that train together.
        blocking: Whether each bucket is averaged when it is sent, and not beside backward.
    """

    in_backward = False  # whether gradients are sent by backward, or at the step

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
        start_equal(network, processes)
        if wire is not None:
            refuse_unknown_word("wire", wire, ("bfloat16",))
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
        self._stepped: dict[
            int, int
        ] = {}  # the round at the latest step of each optimizer
        self.look()

    # What a backend provides
    # ------------------------------------------------------------

    def trainable(self) -> dict[str, GradientSpec]:
        """Return the parameters that take a gradient, each once, in the order of the network."""
        self._slots = trained_slots(self.network)
        return {name: gradient_spec(slot.value) for name, slot in self._slots.items()}

    @abstractmethod
    def gradient(self, name: str) -> Any:
        """Return the native gradient of a parameter, or None."""

    @abstractmethod
    def put_gradient(self, name: str, gradient: Any) -> None:
        """Set the native gradient of a parameter."""

    def on_host(self, gradient: Any) -> np.ndarray:
        """Return a gradient in the host's memory, for reading."""
        return self.network.backend.numpy(gradient)

    def from_host(self, name: str, average: np.ndarray) -> Any:
        """Return the native gradient for an average in the host's memory, which it may share."""
        dtype = str(self._slots[name].value.dtype)
        return self.network.backend.array(average, dtype, self.network.device_name)

    # Rounds: each gradient is sent once in a round
    # ------------------------------------------------------------

    def look(self) -> None:
        """Form the buckets anew if other parameters are trainable than before."""
        if self._begun:  # a backward pass broke off
            self.average()
        described = self.trainable()
        if described == self._described:
            return
        self._described = described
        self._buckets = []
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
        bucket.missing.discard(name)
        while (
            self._begun < len(self._buckets) and not self._buckets[self._begun].missing
        ):
            self._begin_next()

    def average(self) -> None:
        """Send the remaining buckets, wait for all, and set the gradients to their means.

        Parameters without a gradient count as zero; what no process has a gradient of is None.
        """
        while self._begun < len(self._buckets):
            self._begin_next()
        self._begun = 0
        for bucket in self._buckets:
            for name, mean in bucket.wait().items():
                self.put_gradient(
                    name, None if mean is None else self.from_host(name, mean)
                )

    def _begin_next(self) -> None:
        if not self._begun:
            self._rounds += 1
        bucket = self._buckets[self._begun]
        self._begun += 1
        bucket.begin(self.processes, self._sent, at_once=self.blocking, wire=self._wire)

    def _sent(self, name: str) -> np.ndarray | None:
        gradient = self.gradient(name)
        return None if gradient is None else self.on_host(gradient)

    # Steps
    # ------------------------------------------------------------

    def step(self, optimizer: AbstractOptimizer) -> None:
        """Update by the means of all gradients since they were cleared."""
        is_new = self._stepped.get(id(optimizer), 0) != self._rounds
        if self._begun or not (self.in_backward and is_new):
            # Backward does not send by itself, or no parameter of this process took part in it.
            self.average()
        self._stepped[id(optimizer)] = self._rounds
        names = [name for name in self._described if optimizer.owns(name)]
        optimizer.update_with({name: self.gradient(name) for name in names})

    def clear(self, optimizer: AbstractOptimizer, set_to_none: bool) -> None:
        """Clear the gradients of an optimizer's parameters."""
        for name in self._described:
            if optimizer.owns(name):
                self.put_gradient(name, None)

    def gradients_of(
        self,
        optimizer: AbstractOptimizer,
        loss_function: Callable[..., Any],
        batch: tuple,
    ) -> Any:
        """Compute a loss function on this process's batch; the parameters keep the gradients.

        Returns:
            The result of the loss function.
        """
        loss = optimizer.network.parallelism.adapt_loss(as_loss(loss_function))
        loss = replace(loss, precision=optimizer.precision)
        self.look()
        result, gradients = optimizer.gradients(loss, *optimizer.prepared(batch))
        for name, gradient in gradients.items():
            self.put_gradient(name, gradient)
        return result

    # The network
    # ------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs for this process's batch."""
        self.look()
        return self.given(*args, **kwargs)

    @property
    def module(self) -> Any:
        """The network as it was given."""
        return self.given

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the given network, or else of the abstract one.

        Raises:
            AttributeError: Neither has it.
        """
        if name.startswith("__") or "network" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        owner = self.given if hasattr(self.given, name) else self.network
        return getattr(owner, name)


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


def _native_parameters(network: AbstractNetwork) -> set[int]:
    """Return the identities of the native parameters."""
    return {
        id(slot.native)
        for slot in network.neutral_slots().values()
        if slot.is_parameter
    }
