"""Checks of weight files: safetensors and back, into a network, and to NumPy's names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from deliralike import weights
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree_all,
    build_network,
    equal,
    output,
    refused,
    values,
)
from deliralike.conformance.suite.nets import SMALL, Small
from deliralike.errors import CapabilityError, StateError


@check("files", "L0")
def safetensors(backend: Backend) -> None:
    """What is written is the neutral state, and what is loaded is what was written."""
    network, twin = (
        build_network(backend, Small, seed=1),
        build_network(backend, Small, seed=2),
    )
    # so that the statistics are no longer those of the start
    output(backend, network, values(3, 2, 5, 4))
    state = network.neutral_state()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        weights.write(path, network)
        stored = weights.read(path)
        equal("names in the file", sorted(stored), sorted(SMALL))
        agree_all("in the file", stored, state, 0.0)
        for name, value in state.items():
            equal(f"the type of {name} in the file", stored[name].dtype, value.dtype)
        weights.load(twin, path)
        agree_all("that was loaded", twin.neutral_state(), state, 0.0)
        weights.write(path, {"something": np.ones(2)})
        with refused("a file with other weights", StateError):
            weights.load(twin, path)


@check("files", "L0", "weight files")
def files_of_its_own(backend: Backend) -> None:
    """The framework's own weight file, if the backend declares one, keeps the neutral state."""
    state = build_network(backend, Small, seed=1).neutral_state()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights"
            backend.write_weights(path, state)
            stored = next(iter(backend.read_states(path).values()))
    except CapabilityError as error:
        raise StateError(
            f"the backend overrides write_weights, but: {error}"
        ) from error
    agree_all("in the framework's own file", stored, state, 0.0)
