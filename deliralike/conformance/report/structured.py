"""Reports for programs: proofs as nests of plain values, fit for JSON, and back.

A proof is a mapping with

- ``schema`` and ``version``: ``"deliralike.proof"`` and `VERSION`, greater when a key has changed;
- ``verdict``: ``"proved"``, ``"diverges"`` or ``"undecided"``;
- ``reached`` and ``headline``: the last level that passed; the first sentence of the report;
- ``reference``, ``candidate`` and ``match``: texts;
- ``precision``, ``versions`` and ``batch``: mappings of texts; that of ``precision`` has one for
  each side;
- ``notes``, ``seconds`` and ``date``: a list of texts; a number; a day, ``"2026-11-25"``;
- ``levels``: a list of mappings with ``name``, ``title``, ``status``, ``worst``, ``notes``,
  ``figures`` and ``findings``.

A level's ``findings`` are a list of mappings: the fields of `Finding`, and ``text``, its sentence;
``explanation`` is None or has the fields of `Explanation`, and ``text``; its ``causes`` are the
same as data, each with ``setting``, ``value`` and ``usual``.

Several proofs are ``{"schema": "deliralike.proofs", "version", "verdict", "headline", "proofs":
[...]}``. JSON has no word for numbers that are not finite: they are the texts ``"NaN"``,
``"Infinity"`` and ``"-Infinity"``, which JavaScript's ``Number`` and Python's ``float`` read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from deliralike.conformance.by_name import without
from deliralike.conformance.causes import Cause
from deliralike.conformance.findings import Explanation, Finding, Level
from deliralike.conformance.kinds import Named
from deliralike.conformance.proof_data import P, ProofData, ProofsData
from deliralike.errors import SettingError

VERSION = 1
T = TypeVar("T")
ONE, SEVERAL = "deliralike.proof", "deliralike.proofs"
# Written for readers, not read again.
_DERIVED = ("schema", "version", "verdict", "reached", "headline", "text")
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def of_proof(proof: ProofData) -> dict[str, Any]:
    """A proof as plain values."""
    derived = {"verdict": proof.verdict, "reached": proof.reached, "headline": proof.headline}
    return {"schema": ONE, "version": VERSION, **derived, **_fields(proof)}


def of_proofs(proofs: ProofsData[Any]) -> dict[str, Any]:
    """Several proofs as plain values."""
    derived = {"verdict": proofs.verdict, "headline": proofs.headline}
    each = list(map(of_proof, proofs))
    return {"schema": SEVERAL, "version": VERSION, **derived, "proofs": each}


def proof(make: Callable[..., P], values: Named) -> P:
    """The proof that the values came from; `make` is its class.

    Raises:
        SettingError: It is no proof, or one of another version.
    """
    _refuse_others(values, ONE)
    try:
        return _made(make, values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingError(
            f"this proof lacks something, or has what no proof has: {error!r}."
        ) from error


def proofs_of(values: Named) -> list[Named]:
    """The single ones among several.

    Raises:
        SettingError: There are none, or of another version.
    """
    _refuse_others(values, SEVERAL)
    return list(values["proofs"])


def is_several(values: Named) -> bool:
    """Whether these are several proofs."""
    return values.get("schema") == SEVERAL


def read(path: Path) -> dict[str, Any]:
    """The values in a file.

    Raises:
        SettingError: It is no JSON of a mapping.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingError(f"{str(path)!r} is no JSON: {error}.") from error
    if not isinstance(values, dict):
        raise SettingError(
            f"{str(path)!r} holds a {type(values).__name__}; wanted a proof saved as JSON."
        )
    return values


def plain(value: Any) -> Any:
    """A nest of numbers, texts and arrays as JSON can hold it.

    Raises:
        SettingError: Something else is in it.

    Example:
        >>> plain({"worst": float("inf"), "by_layer": (np.float32(0.5), np.arange(2))})
        {'worst': 'Infinity', 'by_layer': [0.5, [0, 1]]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Cause | Level):
        return _fields(value)
    if isinstance(value, Finding | Explanation):
        return _fields(value) | {"text": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, other in _NOT_FINITE.items() if repr(other) == repr(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SettingError(
        f"a report holds numbers, texts, lists and mappings; it got a {type(value).__name__}: "
        f"{value!r}."
    )


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)}


def _refuse_others(values: Named, schema: str) -> None:
    if values.get("schema") != schema or values.get("version") != VERSION:
        got = f"{values.get('schema')!r}, version {values.get('version')!r}"
        raise SettingError(
            f"expected {schema!r}, version {VERSION}; got {got}. Save it again with this version."
        )


_PARTS = {"levels": Level, "findings": Finding, "explanation": Explanation, "causes": Cause}


def _made(kind: Callable[..., T], values: Named) -> T:
    """What the values of one of our classes came from."""
    found = without(values, _DERIVED)
    for name, value in found.items():
        part = _PARTS.get(name)
        if part is not None and isinstance(value, list):
            found[name] = tuple(_made(part, one) for one in value)
        elif part is not None and value is not None:
            found[name] = _made(part, value)
        elif isinstance(value, list):
            found[name] = tuple(value)
        else:
            found[name] = _revived(value)
    return kind(**found)


def _revived(value: Any) -> Any:
    """A nest with its numbers that are not finite again."""
    if isinstance(value, dict):
        return {name: _revived(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_revived, value))
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
