"""Programs that are kept for later processes, and the announcement of a long compilation."""

import os
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from deliralike import zoo
from deliralike.backends import cache_programs_by_default
from deliralike.backends.jax.compiled import compile_messages
from deliralike.errors import CapabilityError
from deliralike.optim.rules import rule

RUN = """
import jax
import numpy as np
from deliralike import zoo

counts = {f"/jax/compilation_cache/cache_{kind}": 0 for kind in ("hits", "misses")}

def note(event, **details):
    if event in counts:
        counts[event] += 1

jax.monitoring.register_event_listener(note)
network = zoo.build("mlp", backend="jax", in_features=3, hidden=(5,), out_features=2)
batch = np.ones((7, 3), np.float32)
square = lambda net, x: net.nn.mean(net(x) ** 2)
print(float(network.backend.gradients(square, network, batch).loss))
print(*counts.values())
"""


def test_a_second_process_compiles_nothing_anew(tmp_path):
    def call():
        environment = os.environ | {"DELIRALIKE_PROGRAMS": str(tmp_path)}
        command = [sys.executable, "-c", RUN]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        loss, counts = done.stdout.splitlines()
        return float(loss), [int(count) for count in counts.split()]

    first, (hits, misses) = call()
    assert hits == 0
    assert misses > 0
    assert list((tmp_path / "jax").iterdir())
    assert call() == (first, [misses, 0])


FOLDERS = ("DELIRALIKE_PROGRAMS", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR")
FOLDERS += ("TORCHINDUCTOR_CACHE_DIR", "CUPY_CACHE_DIR")


def test_the_command_line_keeps_programs_in_the_users_cache(tmp_path):
    environment = {"HOME": str(tmp_path)}
    for name, value in os.environ.items():
        if name not in (*FOLDERS, "HOME"):
            environment[name] = value
    command = [sys.executable, "-m", "deliralike", "train", "mlp", "--backend", "jax"]
    subprocess.run(
        [*command, "--epochs", "1", "--batch-size", "512"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert list((tmp_path / ".cache" / "deliralike" / "jax").glob("jit_step_of_MLP-*"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "/home/ann/.cache/deliralike"),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/deliralike"),
        ({"JAX_COMPILATION_CACHE_DIR": "/mine"}, None),
        ({"DELIRALIKE_PROGRAMS": ""}, ""),
        ({"DELIRALIKE_PROGRAMS": "/other"}, "/other"),
        ({"XDG_CACHE_HOME": "relative"}, None),
    ],
)
def test_the_environment_decides_where_programs_are_kept(given, expected, monkeypatch):
    for name in FOLDERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    cache_programs_by_default()
    assert os.environ.get("DELIRALIKE_PROGRAMS") == expected


def test_every_backend_keeps_its_programs_or_says_that_it_does_not(
    backend, tmp_path, monkeypatch
):
    monkeypatch.setitem(os.environ, "TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setitem(os.environ, "CUPY_CACHE_DIR", "")
    assert "kept programs" in backend.capabilities
    monkeypatch.setattr(type(backend), "capabilities", frozenset())
    with pytest.raises(CapabilityError, match="kept programs"):
        super(type(backend), backend).cache_programs(tmp_path)


@pytest.fixture
def impatient(monkeypatch):
    """Compilations of more than a tenth of a second are announced."""
    monkeypatch.setattr(compile_messages, "PATIENCE", 0.1)


def slow(network, x):
    """A loss that takes long to trace."""
    time.sleep(0.4)
    return network.nn.mean(network(x) ** 2)


def test_a_long_compilation_is_announced_once(impatient, caplog):
    network = zoo.build(
        "mlp", backend="jax", in_features=3, hidden=(5,), out_features=2
    )
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    for _ in range(2):
        optimizer.update(slow, np.ones((7, 3), np.float32))
    began, ended = (record.getMessage() for record in caplog.records)
    assert began == "compiling step_of_MLP for arrays of (7, 3); it is compiled once"
    assert ended.startswith("compiled step_of_MLP in ")
    assert 0.4 < float(ended.split()[-2]) < 60


def test_a_long_compilation_says_where_its_program_lies(impatient, caplog, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        with compile_messages.announced("step", []):
            time.sleep(0.4)
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
    assert caplog.records[-1].getMessage().endswith(f" s, kept in {tmp_path}")


def test_a_smaller_batch_is_announced_with_what_avoids_its_program(impatient, caplog):
    network = zoo.build(
        "mlp", backend="jax", in_features=3, hidden=(5,), out_features=2
    )
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    for samples in (7, 9, 4):
        optimizer.update(slow, np.ones((samples, 3), np.float32))
    first, larger, smaller = (
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("compiling")
    )
    assert first.endswith("(7, 3); it is compiled once")
    assert larger.endswith("(9, 3); it is compiled once")
    advice = "and was for 9 samples: drop_last=True leaves a smaller last batch out"
    assert advice in smaller


def test_a_short_compilation_is_not_announced(caplog):
    network = zoo.build(
        "mlp", backend="jax", in_features=3, hidden=(5,), out_features=2
    )
    network.backend.gradients(slow, network, np.ones((7, 3), np.float32))
    assert caplog.records == []


def test_of_many_arrays_the_first_are_said(impatient, caplog):
    batch = [np.ones((2, size)) for size in range(1, 10)]
    with compile_messages.announced("step", batch):
        time.sleep(0.4)
    began = caplog.records[0].getMessage()
    assert "(2, 5), (2, 6) and 3 more; " in began and "(2, 7)" not in began
