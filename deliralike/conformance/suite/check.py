"""What a check is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deliralike.backends.base import Backend
from deliralike.conformance.suite.comparing import dtype_of

LEVELS = {
    "L0": "names, shapes, types",
    "L1": "numbers",
    "L4": "one update",
    "L6": "replicas",
    "L7": "edges",
}
CAPABILITIES = (
    "arrays",
    "functions",
    "windows",
    "layers",
    "losses",
    "networks",
    "gradients",
    "second derivatives",
    "optimizers",
    "chance",
    "replicas",
    "files",
)
Function = Callable[[Backend], None]


@dataclass(frozen=True)
class Check:
    """One thing that a backend must do.

    Attributes:
        capability: The row of the report: one of `CAPABILITIES`.
        level: The column: a key of `LEVELS`.
        name: What is checked; unique within its capability.
        function: Called with a backend; raises an error that names the first place that differs,
            else returns None.
        needs: What a backend has to declare for it: a capability, ``"float64"``, ``"replicas"`` or
            ``"registered"``.
    """

    capability: str
    level: str
    name: str
    function: Function
    needs: tuple[str, ...] = ()

    def __call__(self, backend: Backend) -> None:
        """Check a backend.

        Raises:
            Disagreement: It computes something else.
        """
        backend.check_dtype(
            dtype_of(backend)
        )  # where a type must be asked for before it is there, it is asked for
        self.function(backend)

    def __str__(self) -> str:
        """Return the check's name in reports and expected failures: ``"functions/exp"``."""
        return f"{self.capability}/{self.name}"


CHECKS: list[Check] = []


def check(
    capability: str, level: str, *needs: str, name: str = ""
) -> Callable[[Function], Function]:
    """Make a function ``function(backend)`` a check; its name is the function's, in words."""

    def decorate(function: Function) -> Function:
        words = name or function.__name__.replace("_", " ")
        CHECKS.append(Check(capability, level, words, function, needs))
        return function

    return decorate
