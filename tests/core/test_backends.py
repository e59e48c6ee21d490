"""How backends are found, and what happens when one is missing or broken."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from deliralike import backends
from deliralike.errors import BackendUnavailable, CapabilityError
from tests.conftest import REQUIRED
from tests.distribution import write_entry_points

ROOT = Path(__file__).parents[2]


def fresh(code: str, folder: Path = ROOT) -> str:
    """What a fresh interpreter prints that runs the code in a folder."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_our_own_backends_are_known():
    assert list(backends.known())[:3] == ["torch", "chainer", "jax"]


def test_every_required_backend_is_available():
    assert set(REQUIRED) <= set(backends.available())


def test_our_own_are_found_without_looking_through_the_installed_packages(
    backend, monkeypatch
):
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda **_: pytest.fail("this takes 20 ms at every call"),
    )
    assert backends.get(backend.name) is backend


def test_every_backend_says_what_it_is(backend):
    assert backend.version().split()[0] == backend.name
    assert backend.devices()
    assert backend.precision()["float64"]


def test_an_unknown_backend_suggests_the_nearest():
    with pytest.raises(
        BackendUnavailable, match="there is no backend 'pytorch'. Did you mean 'torch'?"
    ):
        backends.get("pytorch")


def test_a_missing_package_is_named_with_its_install_command(monkeypatch):
    entry = backends.Entry(
        "deliralike.backends.torch:BACKEND",
        ("torch", "not_installed"),
        "pip install 'deliralike[torch]'",
    )
    monkeypatch.setitem(backends._SHIPPED, "torch", entry)
    with pytest.raises(
        BackendUnavailable,
        match="needs the package 'not_installed', not installed here: pip install",
    ):
        backends.get("torch")
    assert "torch" not in backends.available()


def test_a_broken_framework_disables_only_its_own_backend(tmp_path):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(
        "raise RuntimeError('half an install')"
    )
    out = fresh(f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        from deliralike import backends
        from deliralike.errors import BackendUnavailable
        try:
            backends.get("jax")
        except BackendUnavailable as error:
            print(error)
        print(backends.get("torch").name)
    """)
    assert (
        "failed to load (RuntimeError: half an install); to mend it: pip install 'deliralike[jax]'"
        in out
    )
    assert out.splitlines()[-1] == "torch"


def test_others_register_by_entry_point(tmp_path):
    (tmp_path / "stranger.py").write_text("BACKEND = 'the stranger'")
    entry = "[deliralike.backends]\nstranger = stranger:BACKEND\n"
    write_entry_points(tmp_path, "stranger", entry)
    out = fresh(f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        from deliralike import backends
        print(list(backends.known())[-1], "|", backends.get("stranger"))
    """)
    assert out == "stranger | the stranger"


def test_an_undeclared_capability_is_an_error_that_names_the_backend(backend):
    with pytest.raises(
        CapabilityError, match=f"backend '{backend.name}' does not have 'time_travel'"
    ):
        backend.require("time_travel")


FRAMEWORKS = ("torch", "chainer", "cupy", "jax", "flax", "optax")


def test_importing_changes_no_global_state_and_writes_nothing(tmp_path):
    out = fresh(
        """
        import os, sys, warnings, random, signal, threading
        import numpy
        sys.dont_write_bytecode = True
        def snapshot():
            return (
                dict(os.environ),
                list(warnings.filters),
                random.getstate(),
                str(numpy.random.get_state()),
                numpy.geterr(),
                sorted(dir(numpy)),
                list(sys.meta_path),
                sys.getrecursionlimit(),
                threading.active_count(),
            )
        writes = []
        def record_writes(event, args):
            if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
                writes.append(args)
        sys.addaudithook(record_writes)
        before = snapshot()
        import deliralike
        deliralike.zoo.list()
        after = snapshot()
        print([i for i, (b, a) in enumerate(zip(before, after)) if b != a], writes, os.listdir("."))
    """,
        tmp_path,
    )
    assert out == "[] [] []"


def test_loading_a_backend_loads_no_other_framework_no_accelerator_and_keeps_random_state(
    backend,
):
    own = {"torch": {"torch"}, "chainer": {"chainer"}, "jax": {"jax", "flax", "optax"}}[
        backend.name
    ]
    loaded, kept = fresh(f"""
        import random, sys, numpy
        before = random.getstate(), str(numpy.random.get_state())
        from deliralike import backends
        backends.get({backend.name!r})
        torch = sys.modules.get("torch")
        jax = sys.modules.get("jax")
        print([name for name in {FRAMEWORKS!r} if name in sys.modules and name not in {own!r}])
        print(before == (random.getstate(), str(numpy.random.get_state())),
              torch is None or not torch.cuda.is_initialized(),
              jax is None or not jax._src.xla_bridge._backends)
    """).splitlines()
    assert loaded in ("[]", "['cupy']")
    assert kept == "True True True"
