"""Engines are registered: another package's is launched and joined as ours are."""

import sys

import pytest

from deliralike import join
from deliralike.backends.processes import engine as engines
from deliralike.backends.processes.launch import launched, usual_engine
from deliralike.errors import ProcessError, SettingError
from tests.distribution import write_entry_points

MODULE = """
import os
from deliralike.backends.processes.engine import Engine
from deliralike.parallel import SingleProcess

class Pigeons(Engine):
    name = package = "pigeons"

    def command(self, launch):
        return ["fly", str(launch.processes * launch.nodes), *launch.module]

    def join(self, timeout):
        group = SingleProcess()
        group.patience = timeout
        return group

    def environment(self):
        return {"PIGEONS": "2"}

    def has_started_this_process(self):
        return "PIGEON_FROM" in os.environ

LOFT = Pigeons()
"""
ENTRY_POINTS = """[deliralike.engines]
broken = no_such_package:ENGINE
pigeons = pigeons:LOFT
torch = pigeons:LOFT
"""


@pytest.fixture
def pigeons(tmp_path, monkeypatch):
    (tmp_path / "pigeons.py").write_text(MODULE)
    write_entry_points(tmp_path, "pigeons", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("pigeons", None)


def test_an_engine_of_another_package_is_launched_and_joined(pigeons):
    command, variables = launched(
        "pigeons", 3, ["program", "x"], nodes=2, address="here:1"
    )
    assert command == ["fly", "6", "program", "x"]
    assert variables["PIGEONS"] == "2" and variables["DELIRALIKE_ENGINE"] == "pigeons"
    assert join("pigeons", timeout=7.0).patience == 7.0
    assert usual_engine("pigeons") == "pigeons"


def test_an_engine_of_another_package_does_not_replace_ours(pigeons):
    assert engines.names() == ["mpi", "chainermn", "torch", "jax", "broken", "pigeons"]
    assert type(engines.get("torch")).__name__ == "TorchDistributed"


def test_an_engine_that_finds_no_machines_asks_for_the_first_one(pigeons):
    with pytest.raises(SettingError, match="2 nodes: say where the first one is"):
        launched("pigeons", 1, ["program"], nodes=2)


def test_an_unknown_engine_is_refused_with_the_nearest(pigeons):
    with pytest.raises(SettingError, match="no engine 'pigeon'.*'pigeons'"):
        join("pigeon")


def test_an_engine_of_another_package_is_found_by_what_its_launcher_sets(
    pigeons, monkeypatch
):
    monkeypatch.setenv("PIGEON_FROM", "the tower")
    assert join(timeout=3.0).patience == 3.0


def test_a_broken_package_disables_only_its_own_engine(pigeons):
    assert join().count == 1
    with pytest.raises(
        ProcessError,
        match="'broken' cannot be loaded.*no_such_package.*repair or remove",
    ):
        join("broken")
