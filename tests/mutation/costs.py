"""A pytest plugin that writes what each test takes, and empties caches after it;
`tests.mutation.reach` lays it into the marked copy."""

import functools
import json
import os
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    begin = time.monotonic()
    result = yield
    with open(Path(os.environ["MUTATION_REACH"], "costs"), "a") as file:
        file.write(json.dumps([item.nodeid, time.monotonic() - begin]) + "\n")
    _clear_caches()
    return result


def _clear_caches():
    """Let the next test compute what this one has: it would not be seen to reach it otherwise.

    All caches of the tests, but of the package only those of limited size: what may be dropped at
    any time is no object on whose identity anything depends, as a class is.
    """
    for module in list(sys.modules.values()):
        if not _is_in(module, ROOT):
            continue
        for value in list(vars(module).values()):
            if isinstance(value, functools._lru_cache_wrapper) and (
                value.cache_parameters()["maxsize"] is not None
                or _is_in(sys.modules.get(value.__module__), ROOT / "tests")
            ):
                value.cache_clear()


def _is_in(module, folder):
    return (getattr(module, "__file__", None) or "").startswith(str(folder))
