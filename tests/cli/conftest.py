"""Commands are run as from a pipe, where no terminal says how wide it is."""

import pytest


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch):
    """Forget the width that pytest-xdist gives to its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)
