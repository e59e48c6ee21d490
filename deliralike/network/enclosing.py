"""A network around another one, which a wrapped native network and a replicated one are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from deliralike.network.base import AbstractNetwork


class Written:
    """Written is a descriptor of a method that an enclosing network takes from the inner one.

    Asked of the class, it gives the method of every network.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Note the name of the method."""
        self.name = name

    def __get__(self, network: Any, owner: type) -> Callable[..., Any]:
        """The method, of a network or of its class."""
        return (
            getattr(super(EnclosingNetwork, owner), self.name)
            if network is None
            else network._written(self.name)
        )


class EnclosingNetwork(AbstractNetwork):
    """An enclosing network wraps another network.

    Its steps, `closure` and `prepare_batch` are those that the inner network was written with.

    A public attribute that only the inner network has is found here, too, so that a loss which
    reads ``network.critic`` computes with the network as it was written, wrapped and in each
    replica.

    Attributes:
        enclosed: The name of the attribute that holds the inner network.
    """

    enclosed: str
    closure: Any = Written()
    prepare_batch: Any = Written()

    def train_step(
        self, batch: Any, optimizers: Any, *losses: Any, **options: Any
    ) -> dict[str, Any]:
        """The step that the inner network was written with, or that of every network.

        A native network's own step gets the arrays of the batch as native ones, on the network's
        device.
        """
        return self._step("train_step", batch, optimizers, *losses, **options)

    def val_step(self, batch: Any, *losses: Any, **options: Any) -> Any:
        """The step that the inner network was written with; see `train_step`."""
        return self._step("val_step", batch, *losses, **options)

    def test_step(self, batch: Any, *losses: Any, **options: Any) -> Any:
        """The step that the inner network was written with; see `train_step`."""
        return self._step("test_step", batch, *losses, **options)

    def _step(self, name: str, batch: Any, *arguments: Any, **options: Any) -> Any:
        if has_own(self, name) and not isinstance(innermost(self), AbstractNetwork):
            batch = self.backend.prepare(batch, self)
        return self._written(name)(batch, *arguments, **options)

    def _written(self, name: str) -> Callable[..., Any]:
        """Return the method of that name that the inner network was written with.

        Otherwise it is the one that every network has.
        """
        if not has_own(self, name):
            base = self.backend.network_base
            return inspect.getattr_static(base, name).__get__(self, base)
        owner = type(innermost(self))
        return inspect.getattr_static(owner, name).__get__(self._self_in_steps(), owner)

    def _self_in_steps(self) -> Any:
        """What a step that the inner network was written with has as ``self``."""
        return innermost(self)

    def __getattr__(self, name: str) -> Any:
        """A public attribute of the inner network."""
        try:
            return super().__getattr__(name)  # type: ignore[misc]  # that of a framework
        except AttributeError:
            if name.startswith("_") or name == self.enclosed:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}"
                ) from None
        return getattr(getattr(self, self.enclosed), name)


def innermost(network: Any) -> Any:
    """Return the network as it was written, native or not.

    It is the given one, or the one inside of all wrappers.
    """
    while isinstance(network, EnclosingNetwork):
        network = getattr(network, network.enclosed)
    return network


def has_own(network: Any, name: str) -> bool:
    """Whether a network was written with a method of its own where every network has one."""
    own = inspect.getattr_static(type(innermost(network)), name, None)
    return own is not None and own is not inspect.getattr_static(AbstractNetwork, name)


class Inside:
    """Inside is what a replicated network's own step has as ``self``.

    It is the network as it was written, which runs as replicas.

    What every network of the backend answers, calls above all, is answered by the replicated
    network. Attributes are those of the network that was written, and its other methods get this
    object, too.
    """

    def __init__(self, network: EnclosingNetwork) -> None:
        """Stand for a replicated network."""
        object.__setattr__(self, "_network", network)

    @property  # type: ignore[misc]  # it is asked for, and not set
    def __class__(self) -> Any:
        """The class of the network that was written: ``super()`` in a step asks for it."""
        return type(innermost(self._network))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the replicas, gathered."""
        return self._network(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """See the class."""
        network, written = self._network, innermost(self._network)
        if hasattr(network.backend.network_base, name) or not hasattr(written, name):
            return getattr(network, name)
        own = inspect.getattr_static(type(written), name, None)
        return (
            own.__get__(self, type(written)) if hasattr(own, "__get__") else getattr(written, name)
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the network that was written."""
        setattr(innermost(self._network), name, value)
