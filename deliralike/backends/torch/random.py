"""The generators of native random masks, and where they are.

Inside replicas they are reproducible, and different in each replica and each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np
import torch

from deliralike.parallel.replicas.context import Replica
from deliralike.parallel.replicas.context import current as current_replica

_generators: WeakKeyDictionary[Replica, dict[torch.device, torch.Generator]] = WeakKeyDictionary()


def draws_masks(module: torch.nn.Module) -> bool:
    """Whether a layer draws its masks by `deliralike.nn`; PyTorch's own layers draw from its global
    generator.
    """
    return getattr(module, "draws_masks", False)


def draws_by_key() -> bool:
    """Whether masks are to come from a replica's own generator."""
    here = current_replica()
    return here is not None and here.seed != 0


@torch.compiler.disable
def keyed_bernoulli(probability: torch.Tensor) -> torch.Tensor:
    """Ones with these probabilities, from the generator of the replica that runs."""
    return torch.bernoulli(probability, generator=_generator(probability.device))


def _generator(device: torch.device) -> torch.Generator:
    """Keyed by the call's seed and the replica's index; each draw moves it on."""
    here = current_replica()
    assert here is not None  # see `draws_by_key`
    of_replica = _generators.setdefault(here, {})
    if device not in of_replica:
        key = np.random.SeedSequence([here.seed, here.index]).generate_state(1, np.uint64)
        of_replica[device] = torch.Generator(device).manual_seed(int(key[0]))
    return of_replica[device]


def state() -> dict[str, np.ndarray]:
    """Where PyTorch's own generators are, that of the CPU and those of CUDA's devices, if these are
    in use.
    """
    of_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    named = {f"cuda:{index}": value for index, value in enumerate(of_devices)}
    return {
        name: value.numpy().copy()
        for name, value in {"cpu": torch.get_rng_state(), **named}.items()
    }


def load_state(state: Mapping[str, np.ndarray]) -> None:
    """Let the generators go on from there; those of devices that are not here are left out."""
    torch.set_rng_state(torch.tensor(state["cpu"]))
    for index in range(torch.cuda.device_count()):
        if f"cuda:{index}" in state:
            torch.cuda.set_rng_state(torch.tensor(state[f"cuda:{index}"]), index)
