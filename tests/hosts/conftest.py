"""Two machines with 50 ms and 100 Mbit/s between them, or a skip that says why there are none."""

import pytest

from tests.hosts.link import LinkNotAllowed, link


@pytest.fixture
def nodes():
    connection = link()
    try:
        made = connection.__enter__()
    except LinkNotAllowed as error:
        pytest.skip(f"no slow link here: {error}")
    yield made
    connection.__exit__(None, None, None)
