"""A pytest plugin that runs the tests of a list in its order, each within its seconds, and says
what became of them; `tests.mutation.runs` lays it into the copy."""

import faulthandler
import functools
import json
import os
from pathlib import Path

import pytest


@functools.cache
def _seconds():
    """The tests of the list, with the seconds that each may take."""
    return json.loads(Path(os.environ["MUTATION_RUN"], "tests.json").read_text())


def _note(*words):
    with open(Path(os.environ["MUTATION_RUN"], "noted.jsonl"), "a") as file:
        file.write(json.dumps(words) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    found = {item.nodeid: item for item in items}
    items[:] = [found[name] for name in _seconds() if name in found]
    _note("collected", "")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    _note("begin", item.nodeid)
    faulthandler.dump_traceback_later(_seconds()[item.nodeid], exit=True)
    result = yield
    faulthandler.cancel_dump_traceback_later()
    _note("end", item.nodeid)
    return result


def pytest_collectreport(report):
    if report.failed:
        _note("import", report.nodeid)


def pytest_runtest_logreport(report):
    if report.failed:
        _note("failed", report.nodeid)
