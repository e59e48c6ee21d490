"""Commands are run as from a pipe, where no terminal says how wide it is."""

import pytest

from deliralike.training.experiment import sheets


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch):
    """Forget the width that pytest-xdist gives to its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def no_sheets(monkeypatch):
    """Draw no predictions after each training: a sheet takes longer than the training."""
    monkeypatch.setattr(sheets, "draw_predictions", lambda *_: None)
