"""Networks of one's own in the place of an architecture of the zoo: written once, or native."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deliralike import own_code
from deliralike.errors import AnotherBackend, DeviceError, SettingError
from deliralike.network.base import AbstractNetwork
from deliralike.zoo.registry import Architecture, parameters_of

if TYPE_CHECKING:
    from deliralike.network.interface import Networks


def architecture(name: str) -> Architecture:
    """Return the architecture of a class or function of one's own.

    Its attributes ``task`` and ``input_shape`` (one sample's, without the batch), where it has
    them, say what it is for.

    Args:
        name: ``"package.module:Name"`` or ``"path/to/file.py:Name"``.

    Raises:
        SettingError: There is no such module, file or name, or it cannot be called.
    """
    made_by = own_code.load(name)
    if not callable(made_by):
        raise SettingError(
            f"{name!r} is of type {type(made_by).__name__}: wanted is the class of a network, or a "
            "function that returns one"
        )
    if _is_network(made_by):
        raise SettingError(
            f"{name!r} is a network already, whose start values no seed decides: name its class, "
            "or a function that creates it and returns it"
        )
    task, shape = getattr(made_by, "task", ""), getattr(made_by, "input_shape", None)
    return UserModel(
        name, made_by, task=task, shape=None if shape is None else tuple(shape)
    )


def _is_network(made_by: Any) -> bool:
    """Return whether it is a network rather than what makes one."""
    if isinstance(made_by, type):
        return False
    backends = importlib.import_module("deliralike.backends")
    return any(
        backend.is_native(made_by) or backend.how_to_bind(made_by)
        for backend in backends.imported()
    )


@dataclass(frozen=True)
class UserModel(Architecture):
    """A network of one's own.

    ``task`` is empty where the network does not say what it is for: it may be used for any. A class
    of another framework is ported (see `deliralike.port`) where the shape of its inputs is known.

    Attributes:
        proof: Whether a port is proved before it is used; None where nothing is to be ported.
    """

    proof: bool | None = True

    def apart(self, settings: Mapping[str, Any]) -> tuple[Architecture, dict[str, Any]]:
        """Return the architecture with its shape and proof taken out of the settings."""
        own, changes = dict(settings), {}
        for word, field in (("input_shape", "shape"), ("proof", "proof")):
            if word in own and word not in self.words:
                changes[field] = own.pop(word)
        return replace(self, **changes), own

    def _build(
        self,
        backend: Networks[Any],
        /,
        *,
        seed: int,
        dtype: str,
        device: Any,
        **settings: Any,
    ) -> Any:
        settings |= self._by_convention(backend, seed, self.arguments(**settings))
        if not hasattr(self.network, "on"):
            backend.seed(seed)  # a native network draws its start values by it
        chosen = {"seed": seed, "dtype": dtype, "device": device}
        network = super()._build(backend, **chosen, **settings)
        if isinstance(network, AbstractNetwork) and network.backend is backend:
            return network
        native_backend = importlib.import_module("deliralike.backends").of(network)
        if native_backend is backend:
            return self._wrapped(network, backend, dtype, device)
        arguments = self.arguments(**settings)
        found = self._ported(backend, native_backend, seed, arguments)
        return found.network(backend.name, **chosen)

    def _ported(
        self,
        backend: Networks[Any],
        own: Networks[Any],
        seed: int,
        arguments: dict[str, Any],
    ) -> Any:
        """Port a class or function of another framework.

        Raises:
            AnotherBackend: It cannot be ported, or the shape of its inputs is not known.
        """
        known = importlib.import_module("deliralike.backends").known()
        wanted = f"choose backend {own.name!r}, or write it once for all of them, as a Network"
        try:
            on_the_way = importlib.import_module("deliralike.port.on_the_way")
            framework = on_the_way.framework_of(self.network, arguments)
        except ModuleNotFoundError:
            framework, wanted = (
                None,
                f"{wanted}; pip install 'deliralike[port]' does that",
            )
        if framework is None or self.proof is None or backend.name not in known:
            raise self._of_another(backend, own, wanted)
        if self.shape is None:
            wanted += (
                ", or say input_shape=(3, 64, 64) (--input 3x64x64), and it is ported"
            )
            raise self._of_another(backend, own, wanted)
        inputs = self.sample(3, seed=seed, **arguments)
        found = on_the_way.port_of(self.name, self.network, inputs, arguments, seed)
        if self.proof:
            on_the_way.prove(found, self.name, backend.name)
        return found

    def _of_another(
        self, backend: Networks[Any], own: Networks[Any], wanted: str
    ) -> AnotherBackend:
        return AnotherBackend(
            f"{self.name} is a network of {own.name}, and was asked for on {backend.name}: {wanted}"
        )

    def _by_convention(
        self, backend: Networks[Any], seed: int, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments that were not given, and that the framework's conventions give.

        Raises:
            SettingError: The network cannot be created without another one.
        """
        conventional = backend.constructor_arguments(seed)
        chosen = {}
        missing = []
        for name, parameter in parameters_of(self.network).items():
            has_value = parameter.default is not parameter.empty or name in arguments
            if has_value or parameter.kind in _OPEN_ENDED:
                continue
            if name in conventional:
                chosen[name] = conventional[name]
            else:
                missing.append(name)
        if missing:
            self._check_convention_of_another(backend, seed, missing)
            raise SettingError(
                f"{self.name} needs {' and '.join(map(repr, missing))}, which neither the data nor "
                f"the settings give: --set {missing[0]}=..., or name a function that needs none"
            )
        return chosen

    def _check_convention_of_another(
        self, backend: Networks[Any], seed: int, missing: Sequence[str]
    ) -> None:
        """Raise AnotherBackend where another framework's conventions give these arguments."""
        for other in importlib.import_module("deliralike.backends").imported():
            if other is not backend and {*missing} <= {
                *other.constructor_arguments(seed)
            }:
                raise AnotherBackend(
                    f"{self.name} needs {' and '.join(map(repr, missing))}, as networks of "
                    f"{other.name} do, and was asked for on {backend.name}: choose backend "
                    f"{other.name!r}"
                )

    def _wrapped(
        self, network: Any, backend: Networks[Any], dtype: str, device: Any
    ) -> Any:
        """Wrap a framework's own network."""
        backends = importlib.import_module("deliralike.backends")
        wrapped = backends.wrap(network)
        wanted = backend.check_device(device)
        if device is not None and wanted != backend.check_device(wrapped.device_name):
            raise DeviceError(
                f"{self.name} has put itself on {wrapped.device_name!r}, and {device!r} was asked "
                "for: move it where it is created"
            )
        if wrapped.dtype_name != dtype:
            backend.set_dtype(wrapped, backend.check_dtype(dtype))
        return wrapped


_OPEN_ENDED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
