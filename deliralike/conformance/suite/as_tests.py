"""The tests of ``pytest --pyargs deliralike.conformance --backend NAME``: see `plugin`."""

from __future__ import annotations

from typing import Any

import pytest

from deliralike.conformance.suite.check import Check
from deliralike.conformance.suite.plugin import settle


def test_conformance(
    backend: Any,
    check: Check,
    reason: str | None,
    request: pytest.FixtureRequest,
) -> None:
    """One check of one backend."""
    settle(check, backend, reason, request.node)
