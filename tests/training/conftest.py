"""Fixtures of the tests of training."""

import pytest

from deliralike.training.experiment import run


@pytest.fixture
def drawn(monkeypatch):
    """The files that curves are to be drawn into. None is drawn: a picture takes longer than such a
    training.

    Runs in fixtures with the scope of a module come before this and are drawn.
    """
    files = []
    monkeypatch.setattr(
        run, "draw_curves", lambda histories, file, title: files.append(file)
    )
    return files
