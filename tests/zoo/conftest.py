"""What all tests of the zoo share."""

import os
import sys


def pytest_runtest_teardown(item, nextitem):
    """Forget a case's results and compiled programs after its last test, or a process grows to many
    gigabytes.

    Under pytest-xdist a case's tests follow each other; without it they do not, and results are
    kept to the end.
    """
    if (
        "PYTEST_XDIST_WORKER" in os.environ
        and _group(item) is not None
        and _group(item) != _group(nextitem)
    ):
        from tests.zoo import case

        for results in (
            case.theirs,
            case.ours,
            case.built,
            case.computed,
            case.start_state,
        ):
            results.cache_clear()
        if "jax" in sys.modules:
            sys.modules["jax"].clear_caches()


def _group(item):
    mark = item.get_closest_marker("xdist_group") if item is not None else None
    return mark and mark.args[0]
