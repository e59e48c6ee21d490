"""Memory of large networks, given back before the next level needs it."""

import gc
import math

from deliralike.network.base import AbstractNetwork

LARGE = 10**6  # parameters; to look through a whole process takes longer than a small one is worth


def collect(network: AbstractNetwork) -> None:
    """Collect copies that refer to their optimizers, and these to them, if the network is large."""
    if sum(math.prod(slot.shape) for slot in network.neutral_slots().values()) >= LARGE:
        gc.collect()
