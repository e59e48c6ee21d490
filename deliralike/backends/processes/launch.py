"""The commands that start several processes of a Python module: torchrun's, mpiexec's, and one of
our own for JAX.
"""

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
    """What connects processes with networks of a backend unless told otherwise: MPI where the
    engine is not installed.

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
    """The command that starts so many processes of a module on each node, and its environment
    variables.

    Args:
        engine: ``"torch"``, ``"mpi"``, ``"chainermn"`` or ``"jax"``.
        module: The module's name and its arguments.
        nodes, node, address: How many machines there are, which of them this is, and ``host:port``
            of the first one, for torch and JAX; MPI finds the machines by itself, from Slurm or a
            file of hosts.
        restarts: How often all processes are started again when one of them fails; by torchrun, or
            by `watched`.
        environment: What the variables are now; those of this process when None.

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
    given = dict(os.environ if environment is None else environment)
    own = max(
        1, (os.cpu_count() or 1) // processes
    )  # threads; more of them than cores make each other slow
    given = {"OMP_NUM_THREADS": str(own)} | given | {ENGINE: engine}
    if engine in _OVER_MPI:
        return _mpiexec(engine, processes, nodes, module), _of_root_user() | given
    if nodes > 1 and not address:
        raise SettingError(f"{nodes} nodes: say where the first one is, address='host:port'")
    if engine == "jax":
        return _starting(processes, nodes, node, address, module), given
    return _torchrun(processes, nodes, node, address, restarts, module), given


def watched(
    engine: str, command: Sequence[str], environment: Mapping[str, str], restarts: int = 0
) -> int:
    """Run a launcher to its end, with all signals passed on; the exit code, 128 and its number
    after a signal.

    After a failure torchrun starts the processes again by itself; the other launchers are started
    again here. What processes have left by `say_at_the_end` is said when the launcher has said all
    that it says.
    """
    with tempfile.TemporaryDirectory() as folder:
        last_words = Path(folder) / "last-words"
        code = _watched(
            engine, command, dict(environment) | {LAST_WORDS: str(last_words)}, restarts
        )
        if last_words.exists():
            print(last_words.read_text(), file=sys.stderr, flush=True)
    return code


def _watched(
    engine: str, command: Sequence[str], environment: Mapping[str, str], restarts: int
) -> int:
    if engine == "torch":
        return _code_of(command, environment, first_as=None)[0]
    # at SIGTERM and Ctrl-C mpiexec kills its processes at once, before they can save; this one it
    # passes on
    first_as = signal.SIGUSR1 if engine in _OVER_MPI else signal.SIGTERM
    for number in range(restarts + 1):
        count = {RESTART: str(number), MAX_RESTARTS: str(restarts)}
        code, asked = _code_of(command, dict(environment) | count, first_as=first_as)
        if code == 0 or asked:
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
    """The exit code of a command, and whether a signal came; the first one is passed on as
    another.
    """
    came: list[int] = []
    # in a session of its own, so that Ctrl-C comes once
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )

    def handle(number: int, frame: object) -> None:
        came.append(number)
        process.send_signal(number if first_as is None or len(came) > 1 else first_as)

    before = {
        each: signal.signal(each, handle)
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    }
    try:
        code = process.wait()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return (128 + came[0], True) if came else (code, False)


def _torchrun(
    processes: int, nodes: int, node: int, address: str, restarts: int, module: Sequence[str]
) -> list[str]:
    if importlib.util.find_spec("torch") is None:
        raise ProcessError(
            "torchrun comes with PyTorch, which is not installed: pip install "
            "'deliralike[torch]', or choose the engine mpi"
        )
    # static: the other way of finding each other ignores which node this is, and looks the first
    # one up by host name
    place = [
        "--nnodes",
        str(nodes),
        "--node-rank",
        str(node),
        "--rdzv-backend",
        "static",
        "--rdzv-endpoint",
        address,
    ]
    where = ["--standalone"] if nodes == 1 else place
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(processes),
        *where,
        "--max-restarts",
        str(restarts),
        "--no-python",
        sys.executable,
        "-m",
        *module,
    ]


def _starting(
    processes: int, nodes: int, node: int, address: str, module: Sequence[str]
) -> list[str]:
    if importlib.util.find_spec("jax") is None:
        raise ProcessError(
            "the engine jax needs JAX, which is not installed: pip install 'deliralike[jax]'"
        )
    places = map(str, (processes, processes * nodes, processes * node))
    return [sys.executable, "-m", "deliralike.backends.processes.spawn", *places, address, *module]


def _mpiexec(engine: str, processes: int, nodes: int, module: Sequence[str]) -> list[str]:
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        raise ProcessError(
            f"the engine {engine} needs mpiexec and mpi4py: pip install 'deliralike[mpi]'"
        )
    version = subprocess.run(
        [found, "--version"], capture_output=True, text=True, check=False, env=_quiet()
    ).stdout
    # Open MPI gives a process one core and refuses more processes than cores, unless it is told;
    # MPICH does not
    free = [] if "HYDRA" in version else ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
    return [
        found,
        "-n",
        str(processes * nodes),
        *free,
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        *module,
    ]


def _of_root_user() -> dict[str, str]:
    """Open MPI refuses the superuser, whom a container may know alone, unless it is told twice."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict.fromkeys(names, "1") if os.geteuid() == 0 else {}


def _quiet() -> dict[str, str]:
    return dict(os.environ) | _of_root_user()
