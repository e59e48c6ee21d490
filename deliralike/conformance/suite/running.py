"""Running checks on a backend: which are declared, which fail, and which are expected to."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import deliralike
from deliralike import backends
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import CAPABILITIES, CHECKS, Check
from deliralike.conformance.suite.comparing import LIMITS, Disagreement, dtype_of
from deliralike.conformance.suite.report import (
    EXPECTED,
    FAILED,
    PASSED,
    UNDECLARED,
    Report,
    Result,
)
from deliralike.errors import (
    BackendUnavailable,
    CapabilityError,
    SettingError,
    UnknownName,
    matching,
    suggestion,
)


def run(
    backend: str | Backend,
    only: str | Iterable[str] = "*",
    expected: Mapping[str, str] | None = None,
    tell: Callable[[Result], None] | None = None,
) -> Report:
    """Check a backend.

    Args:
        backend: A backend, its name, or where it is: ``"mypackage.backend:BACKEND"``.
        only: Patterns of names of checks, such as ``"optimizers/*"``; all when not given.
        expected: Checks that are known to fail, each with the reason. One of them that passes is a
            failure.
        tell: Called with each result as it comes.

    Raises:
        BackendUnavailable: There is no such backend.
        UnknownName: A pattern matches no check, or an expected failure is none of the checks.

    Example:
        >>> report = run("torch", only="functions/exp")
        >>> report.passed, report.count()
        (True, {'passed': 1})
    """
    backend = resolve(backend)
    expected = known(expected or {})
    results = []
    for check in chosen(only):
        results.append(result_of(check, backend, expected.get(str(check))))
        if tell is not None:
            tell(results[-1])
    return Report(header(backend), tuple(results))


def resolve(backend: str | Backend) -> Backend:
    """A backend by its name, or by the module and attribute where it is.

    Raises:
        BackendUnavailable: It cannot be imported; the message says why.
    """
    if not isinstance(backend, str):
        return backend
    module, colon, attribute = backend.partition(":")
    if not colon:
        return backends.get(backend)
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a broken package may fail in any way
        raise BackendUnavailable(
            f"there is no backend at {backend!r} ({type(error).__name__}: {error}): name it by "
            "module and attribute, such as 'mypackage.backend:BACKEND', and install its framework"
        ) from error


def chosen(only: str | Iterable[str] = "*") -> list[Check]:
    """The checks whose names match one of some patterns, in the order of the report.

    Raises:
        UnknownName: A pattern matches none.
    """
    patterns = [only] if isinstance(only, str) else list(only)
    names = [str(check) for check in CHECKS]
    chosen: set[str] = set()
    for pattern in patterns:
        chosen.update(matching(pattern, names, "no check"))
    found = [check for check in CHECKS if str(check) in chosen]
    return sorted(
        found, key=lambda check: CAPABILITIES.index(check.capability)
    )  # stable


def known(expected: Mapping[str, str]) -> dict[str, str]:
    """Expected failures by check.

    Raises:
        UnknownName: One is no check.
        SettingError: One has no reason.
    """
    names = [str(check) for check in CHECKS]
    for name, reason in expected.items():
        if name not in names:
            raise UnknownName(
                f"expected failures: there is no check {name!r}. {suggestion(name, names)}"
            )
        if not isinstance(reason, str) or not reason.strip():
            raise SettingError(
                f"expected failures: {name!r} has no reason: say why it fails"
            )
    return dict(expected)


def result_of(check: Check, backend: Backend, reason: str | None) -> Result:
    """What a check finds; `reason` is why it is expected to fail, None where it is not."""
    begun = time.perf_counter()
    outcome, message = _outcome(check, backend)
    if reason is not None and outcome == FAILED:
        outcome, message = EXPECTED, f"{reason} ({message})"
    elif reason is not None and outcome == PASSED:
        outcome = FAILED
        message = f"it passes, but is expected to fail ({reason}): take it off the list"
    seconds = time.perf_counter() - begun
    return Result(str(check), check.capability, check.level, outcome, message, seconds)


def _outcome(check: Check, backend: Backend) -> tuple[str, str]:
    if missing := [need for need in check.needs if not declares(backend, need)]:
        return UNDECLARED, f"not declared: {', '.join(missing)}"
    try:
        check(backend)
    except Exception as error:  # noqa: BLE001
        text = " ".join(str(error).split())
        lacking = [name for name in sorted(backend.lacks) if repr(name) in text]
        if isinstance(error, CapabilityError) and lacking:
            return UNDECLARED, f"declared to be lacking: {', '.join(lacking)}"
        kind = "" if isinstance(error, Disagreement) else f"{type(error).__name__}: "
        return FAILED, kind + text
    return PASSED, ""


# What a backend declares by having a method of its own.
_BY_METHOD = {
    "replicas": "replicate",
    "random state": "random_state",
    "weight files": "write_weights",
    "changes of type": "set_dtype",
}


def declares(backend: Backend, need: str) -> bool:
    """Return whether a backend declares a capability.

    ``"float64"`` and ``"replicas"`` are capabilities too, as is ``"registered"`` by its name.
    """
    if need in _BY_METHOD:
        return getattr(type(backend), _BY_METHOD[need]) is not getattr(
            Backend, _BY_METHOD[need]
        )
    if need == "registered":
        return backend.name in backends.known()
    return need in backend.dtypes or need in backend.capabilities


def header(backend: Backend) -> dict[str, Any]:
    """What is tested."""
    dtype = dtype_of(backend)
    beside = [need for need in (*_BY_METHOD, "registered") if declares(backend, need)]
    return {
        "backend": backend.name,
        "framework": backend.version(),
        "deliralike": deliralike.__version__,
        "devices": backend.devices(),
        "checked in": f"{dtype} on {backend.devices()[0]} (limit {LIMITS[dtype]:g})",
        "precision": backend.precision(),
        "declares": [*backend.dtypes, *sorted(backend.capabilities), *beside],
        "lacks": sorted(backend.lacks),
    }
