"""Which of a node's devices a process takes."""

import pytest

from deliralike.errors import SettingError
from deliralike.parallel import SingleProcess
from deliralike.training.experiment.experiment import device_of_process
from tests.parallel.test_nodes import Played, unlaunched

__all__ = ["unlaunched"]  # used by every test, as it is where it comes from
DEVICES = ("cuda:0", "cuda:1", "cuda:3")


def test_each_process_takes_the_device_of_its_place_on_the_node(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for rank in range(3, 6):  # those of the second node
        monkeypatch.setenv("LOCAL_RANK", str(rank - 3))
        assert (
            device_of_process(DEVICES, Played(rank, 6)) == DEVICES[rank - 3 : rank - 2]
        )


def test_one_device_is_for_all_and_one_process_has_all_devices():
    assert device_of_process(("cpu",), Played(1, 2)) == ("cpu",)
    assert device_of_process((), Played(1, 2)) == ()
    assert device_of_process(DEVICES, SingleProcess()) == DEVICES


def test_more_processes_than_devices_are_an_error():
    with pytest.raises(
        SettingError,
        match="process 3 of 4 .* is number 3 on its node, which has the devices",
    ):
        device_of_process(DEVICES, Played(3, 4))
