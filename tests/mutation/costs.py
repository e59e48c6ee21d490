"""A pytest plugin that writes what each test takes; `tests.mutation.reach` lays it into the marked
copy."""

import json
import os
import time
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    begin = time.monotonic()
    result = yield
    with open(Path(os.environ["MUTATION_REACH"], "costs"), "a") as file:
        file.write(json.dumps([item.nodeid, time.monotonic() - begin]) + "\n")
    return result
