"""The base of networks around another network: wrapped native ones and replicated ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from deliralike.network.base import AbstractNetwork
from deliralike.network.copying import CopiedWithFunctions
from deliralike.network.core import unwrap


class InnerMethod:
    """InnerMethod is a descriptor of a method that a wrapper takes from the inner one.

    On the class itself it is the method of every network.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Note the name of the method."""
        self.name = name

    def __get__(self, network: Any, owner: type) -> Callable[..., Any]:
        """Return the method of a network or of its class."""
        if network is None:
            return getattr(super(WrapperNetwork, owner), self.name)
        return network._inner_method(self.name)  # noqa: SLF001  # of this module


class WrapperNetwork(AbstractNetwork):
    """A wrapper holds another network.

    Its steps, `closure` and `prepare_batch` are those that the inner network was written with.

    A public attribute that only the inner network has is an attribute of the wrapper too:
    a loss that reads ``network.critic`` works with the network as it was written, with the wrapped
    one and in each replica.

    Attributes:
        enclosed: The name of the attribute that holds the inner network.
    """

    enclosed: str
    closure: Any = InnerMethod()
    prepare_batch: Any = InnerMethod()

    def train_step(
        self, batch: Any, optimizers: Any, *losses: Any, **options: Any
    ) -> dict[str, Any]:
        """Make the training step of the inner network's class, or that of every network.

        A native network's own step gets the arrays of the batch as native ones, on the network's
        device.
        """
        return self._step("train_step", batch, optimizers, *losses, **options)

    def val_step(self, batch: Any, *losses: Any, **options: Any) -> Any:
        """Make the validation step of the inner network's class; see `train_step`."""
        return self._step("val_step", batch, *losses, **options)

    def test_step(self, batch: Any, *losses: Any, **options: Any) -> Any:
        """Make the test step of the inner network's class; see `train_step`."""
        return self._step("test_step", batch, *losses, **options)

    def _step(self, name: str, batch: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(unwrap(self), AbstractNetwork) and has_own(self, name):
            batch = self.backend.prepare(batch, self)
        return self._inner_method(name)(batch, *arguments, **options)

    def _inner_method(self, name: str) -> Callable[..., Any]:
        """Return the method of that name that the inner network was written with.

        Otherwise it is the one that every network has.
        """
        if not has_own(self, name):
            base = self.backend.network_base
            return inspect.getattr_static(base, name).__get__(self, base)
        owner = type(unwrap(self))
        return inspect.getattr_static(owner, name).__get__(self._self_in_steps(), owner)

    def _self_in_steps(self) -> Any:
        """Return what a step that the inner network was written with has as ``self``."""
        return unwrap(self)

    def __getattr__(self, name: str) -> Any:
        """Return a public attribute of the inner network.

        Raises:
            AttributeError: The name is private, or the inner network has no such attribute.
        """
        try:
            return super().__getattr__(name)  # type: ignore[misc]  # that of a framework
        except AttributeError:
            if name.startswith("_") or name == self.enclosed:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}"
                ) from None
        return getattr(getattr(self, self.enclosed), name)


def has_own(network: Any, name: str) -> bool:
    """Return whether a network's class has its own version of a method of every network."""
    own = inspect.getattr_static(type(unwrap(network)), name, None)
    return own is not None and own is not inspect.getattr_static(AbstractNetwork, name)


class NativeWrapper(CopiedWithFunctions, WrapperNetwork):
    """A network that wraps one written for a framework alone."""

    enclosed = "native"


class StepSelf:
    """StepSelf is what a replicated network's own step has as ``self``.

    It looks like the network as it was written, and runs as replicas: calls, and whatever else
    every network of the backend has, go to the replicated network. Other attributes are those of
    the network as it was written, whose methods get this object, too.
    """

    def __init__(self, network: WrapperNetwork) -> None:
        """Stand for a replicated network."""
        object.__setattr__(self, "_network", network)

    @property  # type: ignore[misc]  # it is read, and never set
    def __class__(self) -> Any:
        """The class of the network as it was written: ``super()`` in a step reads it."""
        return type(unwrap(self._network))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the replicas, gathered."""
        return self._network(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the replicated network or of the one inside; see the class."""
        network = self._network
        inner = unwrap(self._network)
        if hasattr(network.backend.network_base, name) or not hasattr(inner, name):
            return getattr(network, name)
        own = inspect.getattr_static(type(inner), name, None)
        if hasattr(own, "__get__"):
            return own.__get__(self, type(inner))
        return getattr(inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the network as it was written."""
        setattr(unwrap(self._network), name, value)
