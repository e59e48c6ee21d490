"""What an engine must provide, and the table of those that are registered."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from deliralike.errors import ProcessError, SettingError, suggestion
from deliralike.parallel.processes.group import ProcessGroup

ENTRY_POINTS = "deliralike.engines"
# In the order in which they are asked whether they started a process: MPI comes before
# torch.distributed, since ``srun --mpi=pmix`` sets the variables of both.
_SHIPPED = {
    "mpi": "deliralike.backends.processes.mpiexec:MPI",
    "chainermn": "deliralike.backends.processes.mpiexec:CHAINERMN",
    "torch": "deliralike.backends.processes.torchrun:ENGINE",
    "jax": "deliralike.backends.processes.jax_runtime:ENGINE",
}


@dataclass(frozen=True)
class Launch:
    """What is to be launched, and where.

    Attributes:
        processes: The number of processes on each node.
        module: The module's name and its arguments.
        nodes: The number of machines.
        node: The number of this machine.
        address: ``host:port`` of the first machine; empty where there is one alone.
        restarts: How often all processes are started again when one of them fails.
    """

    processes: int
    module: Sequence[str]
    nodes: int = 1
    node: int = 0
    address: str = ""
    restarts: int = 0


class Engine(ABC):
    """What moves the bytes between processes: how they are launched, and how they join.

    An instance is registered by an entry point of the group ``deliralike.engines``. Its module
    imports no framework until processes join.

    Attributes:
        name: What users call it.
        package: The package that it needs.
        finds_nodes: Whether it finds the machines by itself, so that no address has to be given.
        restarts_itself: Whether its launcher starts failed processes again.
        first_signal: The signal that its launcher gets for the first one that arrives; None for
            that one itself.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    finds_nodes: ClassVar[bool] = False
    restarts_itself: ClassVar[bool] = False
    first_signal: ClassVar[int | None] = None

    @abstractmethod
    def command(self, launch: Launch) -> list[str]:
        """Return the command that starts the processes of this node.

        Raises:
            ProcessError: The launcher is not installed.
        """

    @abstractmethod
    def join(self, timeout: float) -> ProcessGroup:
        """Return the group of processes that this one was started with.

        Args:
            timeout: Seconds after which a process that others wait for is given up.

        Raises:
            ProcessError: This process was not started by a launcher, or others have not come.
        """

    def environment(self) -> dict[str, str]:
        """Return variables that the launcher needs beside those of the user."""
        return {}

    def has_started_this_process(self) -> bool:
        """Return whether environment variables say that its launcher started this process."""
        return False

    def is_installed(self) -> bool:
        """Return whether the package that it needs is installed; nothing is imported."""
        return importlib.util.find_spec(self.package) is not None


def names() -> list[str]:
    """Return the names of all engines; our own come first.

    Example:
        >>> names()[:4]
        ['mpi', 'chainermn', 'torch', 'jax']
    """
    return list(_targets())


def get(name: str) -> Engine:
    """Return the engine of that name.

    Raises:
        SettingError: There is none.
        ProcessError: The package that registers it is broken.
    """
    # Our own come first, without a search through the installed packages, which takes 10 ms.
    if name in _SHIPPED:
        return _load(name, _SHIPPED[name])
    targets = _targets()
    if name not in targets:
        raise SettingError(f"there is no engine {name!r}. {suggestion(name, targets)}")
    return _load(name, targets[name])


def find_launcher() -> str | None:
    """Return the name of the engine whose launcher started this process, or None.

    Our own are asked first. An engine that cannot be loaded has started nothing.
    """
    for name, target in _targets().items():
        with suppress(ProcessError):  # a broken package disables only its own engine
            if _load(name, target).has_started_this_process():
                return name
    return None


def _load(name: str, target: str) -> Engine:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    # A broken installation may fail in any way.
    except Exception as error:
        raise ProcessError(
            f"the engine {name!r} cannot be loaded from {target!r} ({type(error).__name__}: "
            f"{error}): repair or remove the package that registers it"
        ) from error


def _targets() -> dict[str, str]:
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return _SHIPPED | {
        point.name: point.value for point in points if point.name not in _SHIPPED
    }
