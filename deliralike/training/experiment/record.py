"""The version of the code, the origin of network and data, and the environment of a run."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

import deliralike
from deliralike import data, own_code, zoo
from deliralike.network.base import AbstractNetwork
from deliralike.training.identity.code_digest import digest
from deliralike.training.identity.values import array_text

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
    if commit:
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    else:
        changes = None
    return {
        "deliralike": deliralike.__version__,
        "commit": commit,
        "changed": None if changes is None else bool(changes),
    }


def origin(network: str, dataset: data.Dataset) -> dict[str, Any]:
    """Return what tells a run's network and samples from others of the same name.

    And what a new sample must be: its shape, below which its whole numbers are, its columns in a
    table, the classes, the task.

    ``"network_file"`` and its digest are those of code of one's own; None for the zoo's.

    Args:
        network: The name in the settings.

    Example:
        >>> entry = origin("mlp", data.load("digits"))
        >>> entry["network_file"], len(entry["samples"])
        (None, 16)
    """
    file = None
    if own_code.is_name(network):
        file = own_code.file_of(own_code.load(network))
    return {
        "command": shlex.join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]]),
        "network_file": None if file is None else str(file.resolve()),
        "network_digest": None if file is None else digest(file.read_bytes()),
        "samples": digest_of(dataset),
        "classes": list(dataset.classes),
        "sample_shape": list(dataset.sample_shape),
        "below": zoo.Input.like(dataset.held_out.inputs).below,
        "columns": list(dataset.columns),
        "task": dataset.task,
    }


def digest_of(dataset: data.Dataset) -> str:
    """Return a text that tells all samples of a dataset, and their split, from others.

    Example:
        >>> digits = data.load("digits")
        >>> digest_of(digits) == digest_of(data.load("digits", seed=1))
        False
    """
    return digest(repr(list(map(array_text, (*dataset.train, *dataset.held_out)))))


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
        "threads": {
            pool["internal_api"]: pool["num_threads"] for pool in threadpool_info()
        },
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
