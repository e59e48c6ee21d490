"""The generators of native random masks inside replicas: reproducible, and different in each replica and each call."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch

from deliralike.parallel.replica import Replica
from deliralike.parallel.replica import current as current_replica

_generators: WeakKeyDictionary[Replica, dict[torch.device, torch.Generator]] = WeakKeyDictionary()


def draws_masks(module: torch.nn.Module) -> bool:
    """Whether a layer draws its masks by `deliralike.nn`; PyTorch's own layers draw from its global generator."""
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
