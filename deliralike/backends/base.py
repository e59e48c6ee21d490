"""The seam: what a backend must provide. All else is written once, above it."""

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
    """One framework, seen from above: its arrays, networks, files and processes.

    Attributes:
        nn: The vocabulary: functions, and layers bound to this backend.
        lacks: Names of functions and layers of `nn` that it does not have: calling one is an error
            that says so.
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
        """Make this backend's `nn` and `network_base` known to each other.

        `layers` are native ones.
        """
        self.nn, self.network_base = functions, base
        base.backend, base.nn = self, functions
        for name, layer in LAYERS.items():
            setattr(functions, name, (layers or {}).get(name) or layer.on(self))
        for name in self.lacks:
            setattr(functions, name, partial(self._refuse_lacking, name))

    def _refuse_lacking(self, name: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise CapabilityError(
            f"backend {self.name!r} declares that it does not have the function or layer {name!r}"
        )
