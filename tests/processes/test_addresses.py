"""What is wrong with the address or the environment of processes is said."""

import datetime
import socket

import pytest

from deliralike.backends.processes import environment
from deliralike.backends.torch.distributed import process_group
from deliralike.errors import ProcessError, SettingError
from deliralike.parallel.processes.group import RankInfo


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_a_variable_that_is_no_number_is_named(monkeypatch, name):
    monkeypatch.setenv(name, "x")
    with pytest.raises(
        SettingError, match=f"the variable {name} of the environment is 'x'"
    ):
        environment.number(name)


def test_a_time_limit_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv(environment.PATIENCE, "long")
    with pytest.raises(
        SettingError, match="DELIRALIKE_TIMEOUT of the environment is 'long'"
    ):
        environment.time_limit()


def test_a_port_that_another_program_has_is_said_to_be_in_use():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        own = RankInfo(0, 2, f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(
            ProcessError, match="is in use by another program: set MASTER_PORT"
        ):
            process_group._begin(own, datetime.timedelta(seconds=2))
