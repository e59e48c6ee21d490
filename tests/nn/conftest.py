"""What the tests of the vocabulary share: each implementation of it in turn, by name."""

import pytest

from tests.nn.agreement import NAMES, hold


@pytest.fixture(params=NAMES)
def name(request):
    """Each backend, and the vocabulary exactly as it is written once."""
    return request.param


@pytest.fixture
def network(name):
    """A network of double precision whose `nn` is tested."""
    return hold(name)
