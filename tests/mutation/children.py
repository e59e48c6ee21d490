"""A pytest plugin (``-p tests.mutation.children``): coverage in the processes that a test starts,
under its name.

coverage starts by itself in every Python whose environment names a file of settings. That file
takes the name of the test from the variable that pytest keeps for it.
"""

import os
from pathlib import Path


def pytest_sessionstart(session):
    if session.config.getoption("numprocesses", None) and not hasattr(
        session.config, "workerinput"
    ):
        return  # the workers of pytest-xdist have coverage of their own
    os.environ.setdefault("COVERAGE_FILE", str(session.config.rootpath / ".coverage"))
    os.environ["COVERAGE_PROCESS_START"] = str(Path(__file__).with_name("children.ini"))
