"""Start several processes of a Python module: with torchrun, mpiexec, or, for JAX, `spawn`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deliralike.backends import known
from deliralike.backends.processes.join import ENGINE, ENGINES, LAST_WORDS, MAX_RESTARTS, RESTART
from deliralike.errors import ProcessError, SettingError, suggestion

_OVER_MPI = ("mpi", "chainermn")


def usual_engine(backend: str | None = None) -> str:
    """Return the default engine for networks of a backend; MPI where that one is not installed.

    Example:
        >>> usual_engine("torch"), usual_engine("jax"), usual_engine()
        ('torch', 'jax', 'torch')
    """
    entry = known().get(backend or "")
    engine = "torch" if entry is None else entry.engine
    return engine if importlib.util.find_spec(engine) is not None else "mpi"


def launched(
    engine: str,
    processes: int,
    module: Sequence[str],
    *,
    nodes: int = 1,
    node: int = 0,
    address: str = "",
    restarts: int = 0,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts `processes` processes on each node, and its environment.

    Args:
        engine: ``"torch"``, ``"mpi"``, ``"chainermn"`` or ``"jax"``.
        module: The module's name and its arguments.
        nodes, node, address: How many machines there are, which of them this is, and ``host:port``
            of the first one, for torch and JAX; MPI finds the machines by itself, from Slurm or a
            host file.
        restarts: How often all processes are started again when one of them fails; by torchrun, or
            by `watched`.
        environment: The environment variables to start from; those of this process when None.

    Raises:
        SettingError: There is no such engine, or the address is missing.
        ProcessError: The engine's launcher is not installed.

    Example:
        >>> launched("torch", 2, ["deliralike", "train"], environment={})[0][1:6]
        ['-m', 'torch.distributed.run', '--nproc-per-node', '2', '--standalone']
    """
    if engine not in ENGINES:
        raise SettingError(f"there is no engine {engine!r}. {suggestion(engine, ENGINES)}")
    if processes < 1 or not 0 <= node < nodes:
        raise SettingError(
            f"processes={processes}, nodes={nodes}, node={node}: wanted one process at least, and "
            f"a node from 0 to {max(nodes - 1, 0)}"
        )
    # more threads than cores slow each other down
    threads = max(1, (os.cpu_count() or 1) // processes)
    variables = {"OMP_NUM_THREADS": str(threads)}
    variables.update(os.environ if environment is None else environment)
    variables[ENGINE] = engine
    if engine in _OVER_MPI:
        return _mpiexec(engine, processes, nodes, module), _of_root_user() | variables
    if nodes > 1 and not address:
        raise SettingError(f"{nodes} nodes: say where the first one is, address='host:port'")
    if engine == "jax":
        return _spawn(processes, nodes, node, address, module), variables
    return _torchrun(processes, nodes, node, address, restarts, module), variables


def watched(
    engine: str, command: Sequence[str], environment: Mapping[str, str], restarts: int = 0
) -> int:
    """Run a launcher to its end and return its exit code; signals are passed on to it.

    After a signal the code is 128 plus the signal's number. After a failure torchrun restarts the
    processes by itself; the other launchers are started again here. Lines that processes have left
    with `say_at_the_end` are printed after the last output of the launcher.
    """
    with tempfile.TemporaryDirectory() as folder:
        last_words = Path(folder) / "last-words"
        variables = dict(environment) | {LAST_WORDS: str(last_words)}
        code = _watched(engine, command, variables, restarts)
        if last_words.exists():
            print(last_words.read_text(), file=sys.stderr, flush=True)
    return code


def _watched(
    engine: str, command: Sequence[str], environment: Mapping[str, str], restarts: int
) -> int:
    if engine == "torch":
        return _code_of(command, environment, first_as=None)[0]
    # at SIGTERM and Ctrl-C mpiexec kills its processes at once, before they can save their state;
    # SIGUSR1 it passes on
    first_as = signal.SIGUSR1 if engine in _OVER_MPI else signal.SIGTERM
    for number in range(restarts + 1):
        variables = dict(environment) | {RESTART: str(number), MAX_RESTARTS: str(restarts)}
        code, has_signal = _code_of(command, variables, first_as=first_as)
        if code == 0 or has_signal:
            break
        if number < restarts:
            print(
                f"deliralike: a process has failed: restart {number + 1} of {restarts}",
                file=sys.stderr,
                flush=True,
            )
    return code


def _code_of(
    command: Sequence[str], environment: Mapping[str, str], first_as: int | None
) -> tuple[int, bool]:
    """Run a command and return its exit code, and whether this process received a signal.

    The command receives the first signal as `first_as`, where that is not None, and all later ones
    as they are.
    """
    signals: list[int] = []
    # in a session of its own, so that the command receives Ctrl-C only once
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )

    def handle(number: int, frame: object) -> None:
        signals.append(number)
        is_first = len(signals) == 1
        process.send_signal(first_as if is_first and first_as is not None else number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    former = {number: signal.signal(number, handle) for number in numbers}
    try:
        code = process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if signals:
        return 128 + signals[0], True
    return code, False


def _torchrun(
    processes: int, nodes: int, node: int, address: str, restarts: int, module: Sequence[str]
) -> list[str]:
    if importlib.util.find_spec("torch") is None:
        raise ProcessError(
            "torchrun comes with PyTorch, which is not installed: pip install "
            "'deliralike[torch]', or choose the engine mpi"
        )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    if nodes == 1:
        command += ["--standalone"]
    else:
        # static: the dynamic rendezvous ignores the node's rank, and looks up the first node by
        # its host name
        command += ["--nnodes", str(nodes), "--node-rank", str(node)]
        command += ["--rdzv-backend", "static", "--rdzv-endpoint", address]
    command += ["--max-restarts", str(restarts)]
    return [*command, "--no-python", sys.executable, "-m", *module]


def _spawn(processes: int, nodes: int, node: int, address: str, module: Sequence[str]) -> list[str]:
    if importlib.util.find_spec("jax") is None:
        raise ProcessError(
            "the engine jax needs JAX, which is not installed: pip install 'deliralike[jax]'"
        )
    numbers = map(str, (processes, processes * nodes, processes * node))
    return [sys.executable, "-m", "deliralike.backends.processes.spawn", *numbers, address, *module]


def _mpiexec(engine: str, processes: int, nodes: int, module: Sequence[str]) -> list[str]:
    beside_python = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside_python) if beside_python.exists() else shutil.which("mpiexec")
    if mpiexec is None or importlib.util.find_spec("mpi4py") is None:
        raise ProcessError(
            f"the engine {engine} needs mpiexec and mpi4py: pip install 'deliralike[mpi]'"
        )
    version = subprocess.run(
        [mpiexec, "--version"],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ) | _of_root_user(),
    ).stdout
    command = [mpiexec, "-n", str(processes * nodes)]
    if "HYDRA" not in version:
        # unlike MPICH, Open MPI binds a process to one core and refuses more processes than cores
        command += ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
    return [*command, sys.executable, "-m", "mpi4py", "-m", *module]


def _of_root_user() -> dict[str, str]:
    """Return the variables without which Open MPI refuses the root user, a container's only one."""
    if os.geteuid() != 0:
        return {}
    return dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
