"""Crews of processes end with the tests, and must end well."""

import pytest

from tests.processes import crews


@pytest.fixture(scope="session", autouse=True)
def ended_crews():
    """Those that the tests have started."""
    yield
    crews.end_all()
