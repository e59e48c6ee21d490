"""The interface that a backend provides; everything above it is written once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NoReturn

from deliralike.errors import CapabilityError
from deliralike.network.base import AbstractNetwork
from deliralike.network.interface import Gradients, Networks
from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS
from deliralike.parallel.interface import Processes
from deliralike.weights.framework_files import Files

__all__ = ["Backend", "Gradients"]


class Backend(Networks[AbstractNetwork], Files, Processes):
    """The interface of one framework: its arrays, networks, files and processes.

    Attributes:
        nn: The vocabulary: functions, and layers bound to this backend.
        lacks: Names of functions and layers of `nn` that the backend does not have: a call raises
            `CapabilityError`.
        modules: The framework's own modules by what they hold: ``"nn"``, ``"functional"``,
            ``"optim"``, ``"lr_scheduler"``.
    """

    nn: Functions
    lacks: ClassVar[frozenset[str]] = frozenset()
    modules: ClassVar[Mapping[str, Any]] = {}

    def bind(
        self,
        functions: Functions,
        base: type[AbstractNetwork],
        layers: Mapping[str, type] | None = None,
    ) -> None:
        """Connect this backend, its functions and its base of networks.

        Args:
            functions: The functions of `nn`; the layers become attributes of them.
            base: The native class that networks written once are bound to.
            layers: Native layers by name, which take the place of those written once.
        """
        self.nn = functions
        base.nn = functions  # type: ignore[assignment]  # with the layers below
        functions.backend_name = self.name
        self.network_base = base
        base.backend = self
        native_layers = layers or {}
        for name, layer in LAYERS.items():
            setattr(functions, name, native_layers.get(name) or layer.on(self))
        for name in self.lacks:
            setattr(functions, name, partial(self._refuse_lacking, name))

    def _refuse_lacking(self, name: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise CapabilityError(
            f"backend {self.name!r} declares that it does not have the function or layer {name!r}"
        )
