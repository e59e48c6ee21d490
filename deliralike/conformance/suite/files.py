"""Checks of weight files: safetensors and back, into a network, and to NumPy's names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from deliralike import weights
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import agree, equal, made, native, refused, values
from deliralike.conformance.suite.nets import SMALL, Small
from deliralike.errors import CapabilityError, StateError

_IMAGES = values(3, 2, 5, 4)


@check("files", "L0")
def safetensors(backend: Backend) -> None:
    """What is written is the neutral state; what is loaded gives the same outputs."""
    network, twin = made(backend, Small, seed=1), made(backend, Small, seed=2)
    network(native(backend, _IMAGES))  # so that the statistics are no longer those of the start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        weights.write(path, network)
        stored = weights.read(path)
        equal("names in the file", sorted(stored), sorted(SMALL))
        for name, value in network.neutral_state().items():
            agree(f"{name} in the file", stored[name], value, 0.0)
            equal(f"the type of {name} in the file", stored[name].dtype, value.dtype)
        weights.load(twin, path)
        weights.write(path, {"something": np.ones(2)})
        with refused("a file with other weights", StateError):
            weights.load(twin, path)
    x = native(backend, _IMAGES)
    agree(
        "outputs with loaded weights",
        backend.numpy(twin.eval()(x)),
        backend.numpy(network.eval()(x)),
        0.0,
    )


@check("files", "L0", "weight files")
def files_of_its_own(backend: Backend) -> None:
    """The framework's own weight file, if the backend declares one, keeps the neutral state."""
    state = made(backend, Small, seed=1).neutral_state()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights"
            backend.write_weights(path, state)
            stored = backend.read_weights(path)
    except CapabilityError as error:
        raise StateError(f"the backend overrides write_weights, but: {error}") from error
    for name, value in state.items():
        agree(f"{name} in the framework's own file", stored.get(name), value, 0.0)
