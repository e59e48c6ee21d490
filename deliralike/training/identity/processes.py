"""Comparison of the settings with which the processes of a group begin a run.

The settings are compared in one message before the first step.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from deliralike import data
from deliralike.data import batching
from deliralike.errors import DeliralikeError, ProcessError
from deliralike.training.identity.fingerprints import fingerprints
from deliralike.training.identity.values import Texts, differences
from deliralike.training.run import Run

_ORDER = "the order of the samples, as a checksum"
# Fingerprints that are compared: none of contents, which may have what belongs to one process.
_COMPARED = (
    "accumulate",
    "average",
    "batch_size",
    "clip_norm",
    "clip_value",
    "drop_last",
    "optimizer",
    "order",
    "order_seed",
    "precision",
    "rng",
    "samples",
    "schedule",
    "seed",
)


def refuse_differing(run: Run, validation: Any) -> None:
    """Raise an error in every process if the processes begin with different settings or data.

    Raises:
        ProcessError: The settings differ; the message names each value with its processes.
    """
    processes = run.trainer.processes
    if processes.count == 1:
        return
    everyone = processes.all_gather_object(
        "the settings of fit", _settings(run, validation)
    )
    unlike: Texts = {}
    for other in everyone[1:]:
        unlike |= differences(everyone[0], other)
    if len(unlike) > 1:
        unlike.pop(_ORDER, None)  # follows from the others
    if unlike:
        listed = [
            f"{name}: {_by_process([each.get(name) for each in everyone])}"
            for name in unlike
        ]
        raise ProcessError(
            f"{processes}: processes that train together begin with the same settings and the "
            f"same data, of which each loads its own share, and these differ: {'; '.join(listed)}"
        )


def _settings(run: Run, validation: Any) -> Texts:
    """Return the settings that must be equal, as texts by name."""
    texts: Texts = {}
    for path, text in (run.fingerprints or fingerprints(run)).items():
        if path.partition(".")[0] in _COMPARED:
            texts[path] = text
    others = {
        "epochs": run.epochs,
        "the position": run.place(),
        "losses": _named(run.trainer.losses),
        "metrics": _named(run.trainer.metrics),
        "samples of the validation": _samples_in(validation),
        _ORDER: zlib.crc32(run.loader.order(run.epoch).tobytes()),
    }
    return texts | {name: str(value) for name, value in others.items()}


def _by_process(column: list[str | None]) -> str:
    return ", ".join(
        f"{value or 'absent'} in process {rank}" for rank, value in enumerate(column)
    )


def _samples_in(validation: Any) -> int | None:
    """Return the number of validation samples, where the data have a length."""
    try:
        if isinstance(validation, data.Loader):
            return validation.samples
        if isinstance(validation, tuple | Mapping):
            return batching.size(validation)
        return len(validation)
    except (TypeError, DeliralikeError):
        # There are none, or they are wrong, which evaluation reports.
        return None


def _named(parts: Any) -> Any:
    """Return the names of losses or metrics."""
    if parts is None:
        return None
    if isinstance(parts, Mapping):
        return sorted(parts)
    return getattr(parts, "__qualname__", type(parts).__name__)
