"""What every test may use: the backends, by name. A backend that cannot be loaded fails its tests,
it skips none."""

import ctypes
import gc
import os
import random
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from deliralike import backends
from deliralike.zoo import registry, table

REQUIRED = ("torch", "chainer", "jax")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # read when JAX is first used
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # it would ask the hosts of tests
# No test reads programs that an earlier one compiled, or writes into the user's cache.
os.environ["DELIRALIKE_PROGRAMS"] = ""

# XLA compiles in a quarter of the time without most of its optimisations and with its older code
# generator; the values are the same up to rounding. DELIRALIKE_TEST_XLA=full: as users have it.
if os.environ.get("DELIRALIKE_TEST_XLA", "quick") == "quick":
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    if version("jaxlib").startswith(
        ("0.9.", "0.10.")
    ):  # later ones stop at an unknown flag
        os.environ["XLA_FLAGS"] = (
            os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
        )
# For work on one backend: DELIRALIKE_TEST_BACKENDS=torch
BACKENDS = tuple(
    os.environ.get("DELIRALIKE_TEST_BACKENDS", ",".join(REQUIRED)).split(",")
)


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Each backend in turn."""
    return backends.get(request.param)


# Start values that a test leaves to a framework's global generator are the same in each run.
# DELIRALIKE_TEST_SEED=1: other ones, by which to look for what is right by chance alone.
SEED = os.environ.get("DELIRALIKE_TEST_SEED", "0")


def number_of(name):
    """The seed of a file or test."""
    return zlib.crc32(f"{SEED} {name}".encode())


def seed_all(name):
    """Seed the global generators by the name of a file or test."""
    number = number_of(name)
    random.seed(number)
    np.random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


def pytest_collectstart(collector):
    """Seed what a file draws when it is imported."""
    seed_all(collector.nodeid)


@pytest.fixture
def restored_zoo():
    """What a test registers is gone after it."""
    yield
    for name in registry._architectures.keys() - table.rows().keys():
        del registry._architectures[name]


@pytest.fixture(autouse=True)
def seeded(request):
    """Seed what a test draws, so that it does not depend on the tests before it: from the global
    generators, and from those of its file."""
    seed_all(request.node.nodeid)
    for value in vars(request.module).values():
        if isinstance(value, np.random.Generator):
            fresh = np.random.default_rng(number_of(request.node.nodeid))
            value.bit_generator.state = fresh.bit_generator.state


@pytest.fixture(autouse=True)
def files_of_a_test_are_not_imported_by_the_next(tmp_path_factory):
    """A ``models.py`` that a test has written is gone after it, and so is the module."""
    before, path = set(sys.modules), list(sys.path)
    yield
    folder = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
            del sys.modules[name]
    sys.path[:] = path


def pytest_collection_finish():
    """Leave what collecting has made to no later collection of garbage."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def caches_end_with_their_file(request):
    """What a file of tests keeps in caches is of no use to the next one, once the process is
    large."""
    yield
    if memory() > LARGE:
        for value in vars(request.module).values():
            if (
                hasattr(value, "cache_clear")
                and value.__module__ == request.module.__name__
            ):
                value.cache_clear()
        give_back()


# MB: of a process whose files of tests clean up, and by how much it grows before all is collected;
# two processes have to fit into 8 GB.
LARGE, GROWTH = 1500, 500
grown = [LARGE]


def memory():
    """The process's resident memory, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def give_back():
    """Give freed memory back to the system, which the C library keeps half of otherwise, and
    workers reach 7 GB.

    The collector looks at what is left the next time here alone; it took a fifth of a whole run.
    """
    if memory() < grown[0]:
        return
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()  # a program takes 1.4 MB
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    grown[0] = memory() + GROWTH


@pytest.fixture
def optimised():
    """XLA with its optimisations, where bits count: without them it fuses the same sums in one way
    or another."""
    if "jax" not in BACKENDS:
        yield
        return
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
