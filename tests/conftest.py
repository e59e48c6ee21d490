"""What every test may use: the backends, by name. A backend that cannot be loaded fails its tests, it skips none."""

import os

import pytest

from deliralike import backends

REQUIRED = ("torch", "chainer", "jax")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # read when JAX is first used
# For work on one backend: DELIRALIKE_TEST_BACKENDS=torch
BACKENDS = tuple(os.environ.get("DELIRALIKE_TEST_BACKENDS", ",".join(REQUIRED)).split(","))


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Each backend in turn."""
    return backends.get(request.param)
