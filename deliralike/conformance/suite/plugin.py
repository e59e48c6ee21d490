"""The suite under pytest: a test for each check, options for outside backends, and a report.

In one's own tests::

    from deliralike.conformance.suite.plugin import conformance_tests

    test_conformance = conformance_tests("mypackage.backend:BACKEND")

Without any tests of one's own, ``pytest --pyargs deliralike.conformance --backend
mypackage.backend:BACKEND``; pytest loads this module for that command alone (see
`deliralike_pytest`).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from deliralike import backends
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import Check
from deliralike.conformance.suite.report import (
    EXPECTED,
    FAILED,
    UNDECLARED,
    Report,
    Result,
)
from deliralike.conformance.suite.running import (
    chosen,
    header,
    known,
    resolve,
    result_of,
)
from deliralike.errors import BackendUnavailable, DeliralikeError

_TESTS = Path(__file__).with_name("as_tests.py")
_PROPERTY = "deliralike"
_results = pytest.StashKey[dict[str, list[Result]]]()


def conformance_tests(
    backend: str | Backend,
    only: str | Iterable[str] = "*",
    expected: Mapping[str, str] | None = None,
) -> Callable[..., None]:
    """A test function with one case for each check; assign it to a name that begins with ``test_``.

    Args:
        backend, only, expected: As for `run`. A backend that cannot be loaded fails every case;
            none is skipped.
    """
    reasons = known(expected or {})

    @pytest.mark.parametrize("check", chosen(only), ids=str)
    def test(check: Check, request: pytest.FixtureRequest) -> None:
        settle(check, resolve(backend), reasons.get(str(check)), request.node)

    return test


def settle(check: Any, backend: Any, reason: str | None, item: Any) -> None:
    """Run a check as a pytest item.

    An undeclared one is skipped, an expected failure is an xfail, and any other failure fails.
    """
    result = result_of(check, backend, reason)
    # it comes back with the test's report, from worker processes, too
    item.user_properties.append(
        (_PROPERTY, {"backend": backend.name, "result": asdict(result)})
    )
    if result.outcome == FAILED:
        pytest.fail(result.message, pytrace=False)
    if result.outcome == UNDECLARED:
        pytest.skip(result.message)
    if result.outcome == EXPECTED:
        pytest.xfail(result.message)


# The options
# -----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the command takes."""
    group = parser.getgroup(
        "deliralike.conformance", "what any backend of deliralike must do"
    )
    group.addoption(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="the backend to check: its name, or 'mypackage.backend:BACKEND'; several times for several; "
        "'available' for all that are installed; one that is missing ends the command",
    )
    group.addoption(
        "--report", metavar="PATH", help="write what was found, by backend, as JSON"
    )
    group.addoption(
        "--expected",
        metavar="PATH",
        help="a TOML or JSON file of checks that are known to fail, each with the reason",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a command whose backends are none, and expected failures that are none."""
    if not config.option.help and not _backends(config):
        raise pytest.UsageError(
            "name a backend: --backend NAME or --backend mypackage.backend:BACKEND"
        )
    if (
        config.option.report is not None
        and not Path(config.option.report).absolute().parent.is_dir()
    ):
        raise pytest.UsageError(
            f"--report {config.option.report}: there is no such folder"
        )
    config.stash[_results] = {}
    _expected(config)


def _backends(config: pytest.Config) -> list[Backend]:
    """The backends to check, each once."""
    given: list[str] = []
    for each in config.option.backend:
        given += backends.available() if each == "available" else [each]
    try:
        return list(map(resolve, dict.fromkeys(given)))
    except BackendUnavailable as error:
        raise pytest.UsageError(f"--backend: {error}") from error


def _expected(config: pytest.Config) -> dict[str, str]:
    if config.option.expected is None:
        return {}
    path = Path(config.option.expected)
    try:
        text = path.read_text(encoding="utf-8")
        return known(
            json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        )
    except (OSError, ValueError, DeliralikeError) as error:
        raise pytest.UsageError(f"--expected {path}: {error}") from error


# The tests
# -----------------------------------------------------------------------------


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """The module of tests, whatever patterns of file names are configured."""
    if file_path == _TESTS:
        return pytest.Module.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case for each backend and check."""
    if (
        metafunc.module.__name__.rpartition(".")[2] != _TESTS.stem
        or metafunc.function.__name__ != "test_conformance"
    ):
        return
    reasons, rows = _expected(metafunc.config), []
    for backend, check in product(_backends(metafunc.config), chosen()):
        reason, words = reasons.get(str(check)), f"{backend.name}-{check}"
        rows.append(pytest.param(backend, check, reason, id=words))
    metafunc.parametrize(("backend", "check", "reason"), rows)


# The report
# -----------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Collect results as they come, from worker processes as well."""
    session.config.pluginmanager.register(
        _Collector(session.config.stash[_results]), "deliralike-conformance-results"
    )


class _Collector:
    def __init__(self, results: dict[str, list[Result]]) -> None:
        self.results = results

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a check found."""
        if report.when == "call":
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    found: Any = value
                    self.results.setdefault(found["backend"], []).append(
                        Result(**found["result"])
                    )


def _reports(config: pytest.Config) -> dict[str, Report]:
    found = config.stash[_results]
    reports = {}
    for backend in _backends(config):
        if backend.name in found:
            reports[backend.name] = Report(header(backend), tuple(found[backend.name]))
    return reports


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The header and matrix of each backend; and the file, if one is wanted."""
    reports = _reports(config)
    for name, report in reports.items():
        terminalreporter.section(f"conformance of {name}")
        terminalreporter.write_line(str(report))
    if config.option.report is not None:
        path = Path(config.option.report)
        path.write_text(
            json.dumps(
                {name: report.as_json() for name, report in reports.items()}, indent=1
            )
            + "\n"
        )
        terminalreporter.write_line(f"report: {path}")
