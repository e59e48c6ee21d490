"""What all tests of the zoo share."""

import pytest

from tests.conftest import BACKENDS


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """JAX compiles without most of its optimisations: the same values up to rounding, in a third of the time."""
    if "jax" not in BACKENDS:
        yield
        return
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
