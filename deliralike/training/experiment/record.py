"""The version of the code and the environment of a run."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

import deliralike
from deliralike.network.base import AbstractNetwork

_PATIENCE = 10.0  # seconds that git may take


def code_version(folder: str | Path = ".") -> dict[str, Any]:
    """Return the version of the package, and the commit of the working tree around `folder`.

    ``"commit"`` is None where there is no git, or no working tree; ``"changed"`` is whether files
    under version control differ from the commit.

    Example:
        >>> sorted(code_version())
        ['changed', 'commit', 'deliralike']
    """
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no") if commit else None
    return {
        "deliralike": deliralike.__version__,
        "commit": commit,
        "changed": None if changes is None else bool(changes),
    }


def environment(network: AbstractNetwork) -> dict[str, Any]:
    """Return the versions, devices, precision flags and threads that results may depend on."""
    backend = network.backend
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "numpy": np.__version__,
        "backend": backend.version(),
        "devices": list(backend.devices()),
        "device": network.device_name,
        "precision": backend.precision(),
        "threads": {pool["internal_api"]: pool["num_threads"] for pool in threadpool_info()},
    }


def _git(folder: str | Path, *arguments: str) -> str | None:
    """Return the output of git; None if git is not installed, fails or takes too long."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_PATIENCE
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
