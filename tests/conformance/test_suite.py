"""The suite on our own backends, all three required; and its own rules: what counts as what, and
the report."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deliralike import backends
from deliralike.conformance import suite
from deliralike.conformance.finite_differences import differences
from deliralike.conformance.suite import plugin
from deliralike.conformance.suite.comparing import refused
from deliralike.errors import BackendUnavailable, SettingError, UnknownName
from deliralike.parallel.replicas.network import (
    AccumulateGradients,
    CopyParameters,
    Replicas,
)
from tests.conformance.stranger import BACKEND as STRANGER
from tests.conftest import BACKENDS
from tests.nn import vocabulary
from tests.nn.drawn_calls import TABLE

ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(__file__).parents[2])
}  # for a Python of its own
# What our own backends do not declare: Chainer has no weight files that are read without running
# code, and flax's are read alone.
_FILES = {"files/files of its own"}
UNDECLARED = {"torch": set(), "chainer": _FILES, "jax": _FILES}


# JAX compiles each check anew, so these are left to `tests/nn`, which compares them with PyTorch's
# there, many in one program: outputs and gradients.
OF_PYTORCH = {f"layers/{row.name}" for row in vocabulary.LAYERS}
OF_PYTORCH |= {f"functions/{name}" for name in TABLE}


def checks_of_backends():
    for name in BACKENDS:
        for check in suite.CHECKS:
            if name != "jax" or str(check) not in OF_PYTORCH:
                yield pytest.param(name, check, id=f"{name}-{check}")


@pytest.mark.parametrize(("name", "check"), list(checks_of_backends()))
def test_our_backends_pass(name, check, request):
    plugin.settle(check, backends.get(name), None, request.node)


def test_our_backends_declare_all_but_what_is_listed(backend):
    missing = {
        str(check)
        for check in suite.CHECKS
        if not all(suite.declares(backend, need) for need in check.needs)
    }
    assert (missing, backend.lacks) == (UNDECLARED[backend.name], frozenset())


# What a check is
# -----------------------------------------------------------------------------


def test_every_check_has_a_place_in_the_matrix():
    assert {check.level for check in suite.CHECKS} == set(suite.LEVELS)
    assert len({str(check) for check in suite.CHECKS}) == len(suite.CHECKS) > 150


def test_checks_are_functions_that_need_no_pytest_and_no_other_framework():
    code = """
        import sys
        from deliralike.conformance import suite
        check = next(check for check in suite.CHECKS if str(check) == "functions/exp")
        assert check(suite.resolve("tests.conformance.stranger:BACKEND")) is None
        print([name for name in ("pytest", "torch", "jax", "chainer") if name in sys.modules])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert run.stdout.strip() == "[]", run.stderr


def test_a_difference_names_its_first_place():
    with pytest.raises(
        suite.Disagreement,
        match=r"^y: at \(0, 1\) got .*2\.5.*, wanted .*2\.0.*limit 1e-10",
    ):
        suite.agree(
            "y", np.array([[1.0, 2.5], [3.0, 4.5]]), np.array([[1.0, 2.0], [3.0, 4.0]])
        )
    with pytest.raises(suite.Disagreement, match="y: got shape .2,., wanted .2, 1."):
        suite.agree("y", np.ones(2), np.ones((2, 1)))
    with pytest.raises(suite.Disagreement, match="y: got None, wanted an array"):
        suite.agree("y", None, np.ones(2))
    with pytest.raises(suite.Disagreement, match="int64, wanted one of float64"):
        suite.agree("y", np.ones(2, int), np.ones(2))
    with pytest.raises(suite.Disagreement, match=r"at \(1,\)"):
        suite.agree("y", np.array([1.0, np.nan]), np.ones(2))
    with pytest.raises(suite.Disagreement, match=r"at \(1,\)"):
        suite.agree("labels", np.array([1, 3]), np.array([1, 2]))
    suite.agree("y", np.array([1.0 + 1e-12, 2.0]), np.array([1.0, 2.0]))


def test_what_is_not_refused_is_an_error():
    with (
        pytest.raises(suite.Disagreement, match="it: was accepted, wanted ValueError"),
        refused("it", ValueError),
    ):
        pass
    with (
        pytest.raises(suite.Disagreement, match="it: raised KeyError"),
        refused("it", ValueError),
    ):
        raise KeyError("x")


def test_finite_differences_are_of_fourth_order():
    x = np.array([0.3, -1.2])
    np.testing.assert_allclose(
        differences(lambda at: float(np.sin(3 * at).sum()), [x], 0),
        3 * np.cos(3 * x),
        rtol=1e-9,
    )


# What counts as what
# -----------------------------------------------------------------------------


class Lacking(type(STRANGER)):
    """The stranger without a function, a layer, a capability and float64."""

    lacks = frozenset({"erf", "LSTM"})
    capabilities = frozenset()
    dtypes = ("float32",)


@pytest.fixture
def lacking():
    """It shares the stranger's network base, which is given back."""
    from tests.conformance.stranger.functional import StrangerFunctions
    from tests.conformance.stranger.network import AbstractStrangerNetwork

    backend = Lacking()
    backend.bind(StrangerFunctions(), AbstractStrangerNetwork)
    yield backend
    AbstractStrangerNetwork.backend, AbstractStrangerNetwork.nn = STRANGER, STRANGER.nn


def outcomes(backend, *names, **options):
    report = suite.run(backend, names, **options)
    return {result.check: (result.outcome, result.message) for result in report.results}


def test_what_is_not_declared_is_not_run_and_counted(lacking):
    found = outcomes(
        lacking,
        "functions/erf",
        "functions/exp",
        "layers/LSTM",
        "replicas/outputs",
        "second derivatives/gradient within a loss",
        "functions/layer_norm of large means",
    )
    assert found == {
        "functions/erf": ("not declared", "declared to be lacking: erf"),
        "functions/exp": ("passed", ""),  # in float32
        "layers/LSTM": ("not declared", "declared to be lacking: LSTM"),
        "replicas/outputs": ("not declared", "not declared: replicas"),
        "second derivatives/gradient within a loss": (
            "not declared",
            "not declared: double_backward",
        ),
        "functions/layer_norm of large means": (
            "not declared",
            "not declared: float64",
        ),
    }


def test_a_backend_without_float64_is_checked_in_float32(lacking):
    report = suite.run(lacking, ["functions/*", "losses/*"])
    assert report.passed, report
    assert report.header["checked in"] == "float32 on cpu (limit 0.0001)"
    assert (
        report.count()["not declared"] > 2 and report.count("functions")["passed"] > 60
    )


def test_what_is_declared_and_raises_fails(monkeypatch):
    monkeypatch.setattr(
        type(STRANGER.nn), "erf", lambda self, x: STRANGER.require("erf")
    )
    outcome, message = outcomes(STRANGER, "functions/erf")["functions/erf"]
    assert outcome == "failed" and message.startswith(
        "CapabilityError: backend 'stranger' does not have 'erf'"
    )


def test_an_expected_failure_has_a_reason_and_is_strict(monkeypatch):
    reasons = {"functions/exp": "known bug 7"}
    assert outcomes(STRANGER, "functions/exp", expected=reasons) == {
        "functions/exp": (
            "failed",
            "it passes, but is expected to fail (known bug 7): take it off the list",
        )
    }
    monkeypatch.setattr(type(STRANGER.nn), "exp", lambda self, x: self.sin(x))
    report = suite.run(STRANGER, "functions/exp", expected=reasons)
    (result,) = report.results
    assert report.passed and result.outcome == "expected failure"
    assert result.message.startswith("known bug 7 (exp: output: at (0, 0) got")
    with pytest.raises(SettingError, match="has no reason"):
        suite.run(STRANGER, "functions/exp", expected={"functions/exp": " "})
    with pytest.raises(
        UnknownName, match="no check 'functions/expp'. Did you mean 'functions/exp'"
    ):
        suite.run(STRANGER, "functions/exp", expected={"functions/expp": "x"})


def test_names_that_are_none():
    with pytest.raises(UnknownName, match="no check matches 'optimisers"):
        suite.run(STRANGER, "optimisers/*")
    with pytest.raises(
        BackendUnavailable,
        match="no backend at 'nowhere.backend:BACKEND' .ModuleNotFoundError",
    ):
        suite.run("nowhere.backend:BACKEND")
    assert suite.resolve("tests.conformance.stranger:BACKEND") is STRANGER
    assert suite.resolve("torch") is backends.get("torch")


WRONG = {
    "functions/derivative of relu at 0": (
        "relu",
        lambda right: lambda self, x: x * self.cast(x >= 0, x),
    ),
    "windows/convolve with a stride": (
        "convolve",
        lambda right: (
            lambda self, x, w, stride, *rest: right(
                self, x, w, (1,) * len(stride), *rest
            )
        ),
    ),
}


@pytest.mark.parametrize("check", WRONG)
def test_our_own_backends_fail_when_they_are_broken(backend, check, monkeypatch):
    name, wrong = WRONG[check]
    kind = type(backend.nn)
    monkeypatch.setattr(kind, name, wrong(getattr(kind, name)))
    assert [result.outcome for result in suite.run(backend, check).results] == [
        "failed"
    ]


def nothing(*args, **kwargs):
    return None


# What the stranger does not declare, or what shows otherwise there, broken on PyTorch.
def zeroed(read):
    """A reader of states that finds zeros."""

    def read_zeros(path):
        state = read(path)[""]
        return {"": {name: value * 0 for name, value in state.items()}}

    return staticmethod(read_zeros)


BEYOND = {
    "replicas/outputs": lambda patch, torch: patch.setattr(
        Replicas,
        "gather",
        lambda self, outputs, sizes: torch.concatenate(outputs[::-1], 0),
    ),
    "replicas/updates": lambda patch, torch: patch.setattr(
        AccumulateGradients, "__call__", lambda self, optimizer, gradients: gradients
    ),
    "replicas/storage and names": lambda patch, torch: patch.setattr(
        CopyParameters, "__call__", nothing
    ),
    "networks/buffers keep no graph": lambda patch, torch: patch.delattr(
        torch.network_base, "__setattr__"
    ),
    "chance/states of generators": lambda patch, torch: patch.setattr(
        type(torch), "load_random_state", nothing
    ),
    "files/files of its own": lambda patch, torch: patch.setattr(
        type(torch),
        "read_states",
        zeroed(torch.read_states),
    ),
}


@pytest.mark.parametrize("check", BEYOND)
def test_what_goes_beyond_the_minimum_fails_when_it_is_broken(check, monkeypatch):
    torch = backends.get("torch")
    assert [result.outcome for result in suite.run(torch, check).results] == ["passed"]
    BEYOND[check](monkeypatch, torch)
    (result,) = suite.run(torch, check).results
    assert result.outcome == "failed" and "Error:" not in result.message


# The report
# -----------------------------------------------------------------------------


def test_the_report_is_a_matrix(monkeypatch):
    monkeypatch.setattr(type(STRANGER.nn), "exp", lambda self, x: self.sin(x))
    told = []
    report = suite.run(
        STRANGER,
        ["functions/exp", "functions/log", "functions/sigmoid at -20.0", "replicas/*"],
        tell=told.append,
    )
    assert tuple(told) == report.results and not report.passed
    assert report.matrix() == {
        "functions": {"L1": {"passed": 1, "failed": 1}, "L7": {"passed": 1}},
        "replicas": {"L6": {"not declared": 3}},
    }
    text = str(report)
    rows = [
        line.split("  ")
        for line in text.splitlines()
        if line.startswith(("functions", "replicas"))
    ]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["functions", "1 of 2 !", ".", "1 of 1"],
        ["replicas", ".", "3-", "."],
    ]
    assert "FAILED functions/exp (L1): exp: output: at (0, 0) got" in text
    assert text.endswith("6 checks: 2 passed, 1 failed, 3 not declared")
    assert report.header["backend"] == "stranger" and report.header[
        "framework"
    ].startswith("autograd 1.")
    assert report.header["precision"] == {"float64": "on"} and report.header[
        "devices"
    ] == ["cpu"]
    plain = json.loads(json.dumps(report.as_json()))
    assert plain["matrix"]["functions"]["L1"] == {"passed": 1, "failed": 1}
    assert [r["check"] for r in plain["results"] if r["outcome"] == "failed"] == [
        "functions/exp"
    ]


# Under pytest
# -----------------------------------------------------------------------------


def command(**options):
    """What pytest hands to the plugin's hooks: the options of a command, and a stash."""
    given = {
        "backend": ["tests.conformance.stranger:BACKEND"],
        "report": None,
        "expected": None,
    }
    option = SimpleNamespace(help=False, **given | options)
    return SimpleNamespace(
        option=option, stash=pytest.Stash(), pluginmanager=Registered()
    )


class Registered(list):
    """In the place of a plugin manager: the plugins that were registered."""

    def register(self, plugin, name):
        self.append(plugin)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"functions/expp": "why"}', "functions/expp"),
        ('{"functions/exp": ', "Expecting value"),
        (None, "No such file"),
    ],
    ids=["unknown check", "no JSON", "no file"],
)
def test_expected_failures_that_cannot_be_read_are_refused(text, words, tmp_path):
    path = tmp_path / "known.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(
        pytest.UsageError, match=f"--expected .*known.json: .*({words})"
    ):
        plugin.pytest_configure(command(expected=str(path)))


def test_a_report_holds_the_results_among_what_other_plugins_keep(tmp_path):
    config, lines = command(report=str(tmp_path / "out.json")), []
    plugin.pytest_configure(config)
    plugin.pytest_sessionstart(SimpleNamespace(config=config))
    (collector,) = config.pluginmanager
    item = SimpleNamespace(user_properties=[("costs", {"cases": 1}), ("xfail", "no")])
    check = next(check for check in suite.CHECKS if str(check) == "functions/exp")
    plugin.settle(check, STRANGER, None, item)
    for when in ("setup", "call", "teardown"):
        collector.pytest_runtest_logreport(
            SimpleNamespace(when=when, user_properties=item.user_properties)
        )
    reporter = SimpleNamespace(section=lines.append, write_line=lines.append)
    plugin.pytest_terminal_summary(reporter, config)
    written = json.loads((tmp_path / "out.json").read_text())
    assert list(written) == ["stranger"]
    assert [each["check"] for each in written["stranger"]["results"]] == [
        "functions/exp"
    ]
    assert lines[0] == "conformance of stranger" and lines[-1].startswith("report: ")


def pytest_run(folder, *arguments):
    """A pytest of its own, from outside of this repository's folders."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        *arguments,
    ]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT
    )


def test_the_command_for_a_backend_elsewhere(tmp_path):
    expected = tmp_path / "known.toml"
    expected.write_text('"arrays/there and back" = "not so"\n')
    run = pytest_run(
        tmp_path,
        "--pyargs",
        "deliralike.conformance",
        "--backend",
        "tests.conformance.stranger:BACKEND",
        "--report",
        "out.json",
        "--expected",
        str(expected),
        "-k",
        "arrays or replicas",
        "-n1",
    )
    assert run.returncode == 1, run.stdout
    reports = json.loads((tmp_path / "out.json").read_text())
    assert list(reports) == ["stranger"]
    counts = reports["stranger"]["counts"]
    assert (counts["failed"], counts["not declared"], counts["passed"] > 5) == (
        1,
        3,
        True,
    )
    (failed,) = [
        result
        for result in reports["stranger"]["results"]
        if result["outcome"] == "failed"
    ]
    assert (
        failed["message"]
        == "it passes, but is expected to fail (not so): take it off the list"
    )
    assert "conformance of stranger" in run.stdout and "autograd" in run.stdout


def test_a_command_without_a_backend_says_what_is_missing(tmp_path):
    run = pytest_run(tmp_path, "--pyargs", "deliralike.conformance")
    assert run.returncode == 4 and "name a backend: --backend NAME" in run.stderr
    given = ("--backend", "torch", "--backend", "nowhere")
    run = pytest_run(tmp_path, "--pyargs", "deliralike.conformance", *given)
    assert run.returncode == 4 and "there is no backend 'nowhere'" in run.stderr


def test_other_runs_are_left_alone(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--backend')\n"
        "    parser.addoption('--report')\n"
    )
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n"
        "def test_other(request):\n"
        "    assert request.config.getoption('--backend') == '3'\n"
        "    assert 'deliralike' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    run = pytest_run(tmp_path, "--backend", "3", "--report", "x")
    assert run.returncode == 0, run.stdout


def test_two_lines_in_an_authors_own_tests(tmp_path):
    (tmp_path / "test_mine.py").write_text(
        "from deliralike.conformance.suite.plugin import conformance_tests\n"
        "test_conformance = conformance_tests("
        "'tests.conformance.stranger:BACKEND', ['functions/exp', 'replicas/*'])\n"
        "test_missing = conformance_tests('nowhere:BACKEND', 'arrays/*')\n"
    )
    run = pytest_run(tmp_path, "-rs")
    assert (
        "1 passed" in run.stdout
        and "3 skipped" in run.stdout
        and "not declared: replicas" in run.stdout
    )
    of_arrays = sum(check.capability == "arrays" for check in suite.CHECKS)
    assert (
        f"{of_arrays} failed" in run.stdout
    )  # a backend that cannot be loaded skips nothing
