"""A framework whose layers are dicts, as MLX's are: on top of the backend that the guide's tests
hold."""

import pytest

from deliralike.conformance import suite
from tests.conformance.stranger import StrangerBackend
from tests.conformance.stranger.functional import StrangerFunctions
from tests.conformance.stranger.network import AbstractStrangerNetwork
from tests.distribution import write_entry_points


class AbstractMappingNetwork(AbstractStrangerNetwork, dict):
    """A dict, which is false as long as it is empty."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class MappingBackend(StrangerBackend):
    name = "mapping"


@pytest.fixture
def backend(monkeypatch, tmp_path):
    entry = f"[deliralike.backends]\nmapping = {__name__}:BACKEND\n"
    write_entry_points(tmp_path, "mapping", entry)
    monkeypatch.syspath_prepend(tmp_path)
    return BACKEND


BACKEND = MappingBackend()
BACKEND.bind(StrangerFunctions(), AbstractMappingNetwork)


def test_layers_that_are_dicts_are_layers(backend):
    report = suite.run(backend, only="networks/*")
    assert report.passed, str(report)
    passed = [result.check for result in report.results if result.outcome == "passed"]
    assert {
        "networks/containers",
        "networks/copies",
        "networks/layers that would be overlooked",
    } <= set(passed)
