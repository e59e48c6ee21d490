"""``deliralike launch``: other subcommands in several processes."""

import csv
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from deliralike.backends.processes import jax_runtime, torchrun
from deliralike.backends.processes import join as joining
from deliralike.backends.processes import launch as launching
from deliralike.backends.processes.join import join
from deliralike.backends.processes.launch import launched
from deliralike.cli import launch
from deliralike.errors import ProcessError, SettingError
from deliralike.parallel.processes.group import RankInfo
from deliralike.training.experiment.folder import read_status
from tests.cli.test_commands import run

TRAIN = [
    "train",
    "mlp",
    "--set",
    "hidden=[9]",
    "--batch-size",
    "200",
    "--set",
    "dtype=float64",
]
WAIT = 600  # seconds


def losses(folder):
    with (folder / "steps.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run in one process, on PyTorch; other backends and processes come to the same numbers."""
    folder = tmp_path_factory.mktemp("runs") / "alone"
    run(*TRAIN, "--epochs", 2, "--out", folder)
    return folder


def free_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        return other.getsockname()[1]


# Over the other engines, runs that a signal ends are compared below.
def test_two_nodes_train_as_one_process_and_the_first_writes_and_shows(alone, tmp_path):
    """Started in the other order; on one machine, whose second address is the meeting point."""
    several, port = tmp_path / "several", free_port()
    command = [
        sys.executable,
        "-m",
        "deliralike",
        "launch",
        "--processes",
        "1",
        "--nodes",
        "2",
    ]
    command += ["--address", f"127.0.0.2:{port}"]
    started = [
        subprocess.Popen(
            [*command, "--node", node, *TRAIN, "--epochs", "2", "--out", str(several)],
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in "10"
    ]
    second, first = [process.communicate(timeout=WAIT)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], second + first
    shown = ("held-out accuracy", "in 2 processes, writing to")
    assert [first.count(words) for words in shown] == [1, 1]
    assert [second.count(words) for words in shown] == [0, 0]
    assert losses(several) == pytest.approx(losses(alone), rel=1e-11)
    drawn = {"predictions.png", "confusion.png"}  # by a run in one process
    assert {p.name for p in several.iterdir()} | drawn == {
        p.name for p in alone.iterdir()
    }


# Variables that srun of Slurm 22.05 set in the second task of a step on two nodes, recorded from a
# job, with other nodes: the step has two of three, and was started on a machine that has no task
# (192.0.2.1, where nobody answers).
OF_STEP = {
    "SLURM_JOB_ID": "1078",
    "SLURM_JOB_NODELIST": "localhost,n[1-2]",
    "SLURM_LAUNCH_NODE_IPADDR": "192.0.2.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NODELIST": "localhost,n[1-2]",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "localhost,n1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_TASKS_PER_NODE": "1(x3)",
}
GATHER = """
from deliralike.backends.processes.join import join
processes = join(timeout=60)
print(processes.all_gather_object("here", processes.rank))
processes.close()
"""


def test_under_slurm_the_tasks_of_a_step_meet_on_its_first_node():
    """Whichever node the step was started from."""
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", GATHER],
            env=os.environ | OF_STEP | {"SLURM_PROCID": rank, "SLURM_NODEID": rank},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    printed = [task.communicate(timeout=WAIT)[0] for task in tasks]
    assert printed == ["[0, 1]\n"] * 2


def test_under_slurm_steps_that_run_at_once_meet_at_different_ports(monkeypatch):
    """JAX would choose one port for all steps of a job."""
    ports = {"torch": [], "jax": []}

    class Backend:
        @staticmethod
        def join(timeout, rank_info=None):
            assert rank_info is None
            ports["jax"].append(int(os.environ["JAX_COORDINATOR_PORT"]))

    monkeypatch.setattr(jax_runtime, "get", lambda name: Backend)
    for step in range(50):
        with monkeypatch.context() as of_step:
            of_step.setattr(os, "environ", OF_STEP | {"SLURM_STEP_ID": str(step)})
            ports["torch"].append(int(torchrun._rank_in_slurm().address[-5:]))
            jax_runtime.ENGINE.join(timeout=1)
    assert ports["torch"] == ports["jax"]
    assert len(set(ports["jax"])) == 50
    assert all(29_500 <= port < 30_500 for port in ports["jax"])


def test_under_slurm_the_address_may_be_given(monkeypatch):
    monkeypatch.setattr(
        torchrun.os, "environ", OF_STEP | {"SLURM_STEP_NODELIST": "gpu[07-9]"}
    )
    assert torchrun._rank_in_slurm() == RankInfo(1, 2, "gpu07:29578")
    torchrun.os.environ |= {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4000"}
    assert torchrun._rank_in_slurm() == RankInfo(1, 2, "10.0.0.7:4000")


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n[1-2]", "n1"),
        ("n2", "n2"),
        ("n[07-12,20],gpu3", "n07"),
        ("gpu3,n[1-2]", "gpu3"),
        ("r[1-2]n[03-04]", "r1n03"),
        ("a-b[9,11-13]", "a-b9"),
    ],
)
def test_the_first_host_is_what_scontrol_show_hostnames_says_first(nodes, first):
    """Its answers, of Slurm 22.05."""
    assert torchrun._first_host(nodes) == first


@pytest.mark.parametrize(
    ("variables", "engine"),
    [
        ({"SLURM_STEP_NUM_TASKS": "2", "PMIX_RANK": "0"}, "mpi"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, "torch"),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}, None),  # a batch script by itself
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpi"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"PMI_SIZE": "4", "PMI_RANK": "1"}, "mpi"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            "torch",
        ),
    ],
)
def test_the_engine_is_that_of_whatever_started_the_process(
    variables, engine, monkeypatch
):
    monkeypatch.setattr(joining.os, "environ", variables)
    assert joining._started_by() == engine


def test_wrong_settings_end_all_processes_with_one_message(tmp_path):
    (tmp_path / "there").mkdir()
    train = [*TRAIN, "--backend", "chainer", "--out", str(tmp_path / "there")]
    command = [sys.executable, "-m", "deliralike", "launch", "--processes", "2"]
    done = subprocess.run(
        [*command, "--engine", "mpi", *train],
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode != 0
    assert "exists already and is left as it is" in done.stderr


LONG_RUN = [
    *TRAIN,
    "--epochs",
    "30",
    "--set",
    "checkpoints.every_steps=3",
]  # which a signal reaches before its end


@pytest.fixture(scope="module")
def long_alone(tmp_path_factory):
    """A long run in one process, on PyTorch."""
    folder = tmp_path_factory.mktemp("runs") / "alone"
    run(*LONG_RUN, "--out", folder)
    return folder


# Over MPI, `tests.processes.test_faults` sends one.
@pytest.mark.parametrize(("engine", "name"), [("torch", "SIGINT"), ("jax", "SIGTERM")])
def test_a_signal_to_launch_ends_all_after_a_step_and_the_rest_is_the_same(
    engine, name, long_alone, tmp_path
):
    several = tmp_path / "several"
    train = [*LONG_RUN, "--backend", engine, "--out", str(several)]
    command = [
        sys.executable,
        "-m",
        "deliralike",
        "launch",
        "--processes",
        "2",
        "--engine",
        engine,
    ]
    command += train
    with tempfile.TemporaryFile("w+") as output:
        launcher = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        while not (several / "metrics.jsonl").exists() and launcher.poll() is None:
            time.sleep(0.005)
        launcher.send_signal(signal.Signals[name])
        launcher.wait(WAIT)
        output.seek(0)
        said = output.read()
    assert launcher.returncode == 128 + signal.Signals[name], said
    assert "all end after a step" in said
    assert said.splitlines()[-1].endswith(
        f"to go on: deliralike train --resume {several}"
    )
    assert read_status(several).status == "interrupted"
    done = run(*train, "--continue")
    assert f"going on in {several}" in done.stdout, done.stderr
    assert losses(several) == pytest.approx(losses(long_alone), rel=1e-11)


def test_a_run_that_is_continued_begins_once_and_ends_once(tmp_path):
    train = [*TRAIN, "--epochs", 2, "--out", tmp_path / "run", "--continue"]
    first, second = run(*train), run(*train)
    assert "writing to" in first.stdout and "writing to" not in second.stdout
    assert first.stdout.splitlines()[-1] == second.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "mlp", "--continue"], "name it, --out FOLDER"),
        (["launch"], "what is to be run?"),
        (
            ["launch", "--engine", "mpu", "train", "mlp"],
            "there is no engine 'mpu'. Did you mean 'mpi'",
        ),
        (["launch", "--nodes", "2", "train", "mlp"], "say where the first one is"),
        (["launch", "train.py"], "'train.py' is no subcommand"),
        (["launch", "--node", "1", "train", "mlp"], "a node from 0 to 0"),
    ],
)
def test_bad_input_is_refused_with_exit_code_2(arguments, words):
    assert words in " ".join(run(*arguments, code=2).stderr.split())


@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_what_was_wrong_is_the_last_line_behind_what_the_launcher_reports(engine):
    command = [sys.executable, "-m", "deliralike", "launch", "--engine", engine]
    command += ["train", "nosuch", "--backend", engine]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=WAIT
    )
    assert ended.returncode != 0
    assert "the zoo has no 'nosuch'" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "backend"),
    [
        (["train", "mlp"], None),
        (["train", "mlp", "--backend", "jax", "--epochs", "2"], "jax"),
        (["train", "mlp", "--backend=chainer"], "chainer"),
        (["train", "{folder}/settings.toml"], "jax"),
        (["train", "--resume", "{folder}"], "jax"),
        (["train", "{folder}/settings.toml", "--backend", "torch"], "torch"),
        (["train", "{folder}/broken.toml"], None),
    ],
)
def test_the_engine_is_that_of_the_backend(arguments, backend, tmp_path):
    (tmp_path / "settings.toml").write_text('network = "mlp"\nbackend = "jax"\n')
    (tmp_path / "broken.toml").write_text("network = ")
    assert (
        launch._backend_in([argument.format(folder=tmp_path) for argument in arguments])
        == backend
    )


def test_without_its_package_an_engine_gives_way_to_mpi(monkeypatch):
    assert [
        launching.usual_engine(name) for name in ("torch", "chainer", "jax", "stranger")
    ] == [
        "torch",
        "torch",
        "jax",
        "torch",
    ]
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else "there"
    )
    assert [launching.usual_engine(name) for name in ("torch", "chainer", "jax")] == [
        "mpi",
        "mpi",
        "jax",
    ]


def test_threads_are_shared_out_unless_they_are_set(monkeypatch):
    """Nine cores that this process may use, whatever the machine has."""
    monkeypatch.setattr(
        launching.os, "sched_getaffinity", lambda pid: range(9), raising=False
    )
    assert launched("torch", 2, ["m"], environment={})[1]["OMP_NUM_THREADS"] == "4"
    assert (
        launched("torch", 2, ["m"], environment={"OMP_NUM_THREADS": "3"})[1][
            "OMP_NUM_THREADS"
        ]
        == "3"
    )


@pytest.mark.parametrize(("is_terminal", "kind"), [(True, "xterm"), (False, "dumb")])
def test_the_terminal_that_mpiexec_makes_for_processes_is_no_terminal_in_a_log(
    is_terminal, kind, monkeypatch
):
    """Else the log of a job is a bar that is drawn a thousand times, without a line an epoch."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    environment = launched("mpi", 2, ["m"], environment={"TERM": "xterm"})[1]
    assert environment["TERM"] == kind


def test_several_machines_meet_at_an_address():
    command = launched("torch", 4, ["m"], nodes=2, node=1, address="first:29400")[0]
    assert (
        "--nnodes 2 --node-rank 1 --rdzv-backend static --rdzv-endpoint first:29400"
        in " ".join(command)
    )
    assert "-n 8" in " ".join(launched("mpi", 4, ["m"], nodes=2)[0])


def test_a_launcher_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ProcessError, match="PyTorch, which is not installed"):
        launched("torch", 2, ["m"])
    with pytest.raises(
        ProcessError, match=r"needs mpiexec and mpi4py: pip install 'deliralike\[mpi\]'"
    ):
        launched("mpi", 2, ["m"])


def test_joining_without_a_launcher_says_how_to_start():
    with pytest.raises(
        ProcessError,
        match="RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set: start",
    ):
        join("torch")
    with pytest.raises(SettingError, match="no engine 'mpy'. Did you mean 'mpi'"):
        join("mpy")
    assert (join().rank, join().count) == (0, 1)
