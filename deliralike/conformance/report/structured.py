"""Reports for programs: proofs as nests of plain values, fit for JSON.

A proof is a mapping with

- ``schema`` and ``version``: ``"deliralike.proof"`` and `VERSION`, greater when a key has changed;
- ``verdict``: ``"proved"``, ``"diverges"`` or ``"undecided"``;
- ``headline``: the first sentence of the report;
- ``reference``, ``candidate`` and ``match``: texts;
- ``precision``, ``versions`` and ``batch``: mappings of texts; that of ``precision`` has one for
  each side;
- ``seconds`` and ``date``: a number; a day, ``"2026-11-25"``;
- ``levels``: a list of mappings with ``name``, ``title``, ``status``, ``worst``, ``notes``,
  ``figures`` and ``findings``.

A level's ``findings`` are a list of mappings: the fields of `Finding`, and ``text``, its sentence;
``explanation`` is None or has the fields of `Explanation`, and ``text``.

Several proofs are ``{"schema": "deliralike.proofs", "version", "verdict", "headline", "proofs":
[...]}``. JSON has no word for numbers that are not finite: they are the texts ``"NaN"``,
``"Infinity"`` and ``"-Infinity"``, which JavaScript's ``Number`` and Python's ``float`` read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from deliralike.conformance.findings import Explanation, Finding, Level
from deliralike.conformance.proof_data import ProofData, ProofsData
from deliralike.errors import SettingError

VERSION = 1
ONE, SEVERAL = "deliralike.proof", "deliralike.proofs"
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def of(report: ProofData | ProofsData[Any]) -> dict[str, Any]:
    """A proof, or several, as plain values."""
    derived = {"verdict": report.verdict, "headline": report.headline}
    if isinstance(report, ProofData):
        return {"schema": ONE, "version": VERSION, **derived, **_fields(report)}
    proofs = list(map(of, report))
    return {"schema": SEVERAL, "version": VERSION, **derived, "proofs": proofs}


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
    if isinstance(value, Level):
        return _fields(value)
    if isinstance(value, Finding | Explanation):
        return _fields(value) | {"text": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE[str(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SettingError(
        f"a report holds numbers, texts, lists and mappings; it got a {type(value).__name__}: "
        f"{value!r}."
    )


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
