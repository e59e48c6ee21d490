"""Memory of large networks, given back before the next level needs it."""

import ctypes
import gc
import math
import sys

from deliralike.network.base import AbstractNetwork

LARGE = (
    10**7
)  # parameters; to look through a whole process takes longer than a small one is worth


def collect(network: AbstractNetwork) -> None:
    """Give back what a level has held, if the network is large.

    Copies refer to their optimizers, and these to them, so they have to be collected.
    """
    if is_large(network):
        gc.collect()
        # glibc keeps freed memory for later, in pieces that may be too small then.
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                trim(0)


def forget_programs(*networks: AbstractNetwork) -> None:
    """Free what backends have compiled, if the networks are large and need other programs next."""
    if is_large(networks[0]):
        for backend in {network.backend for network in networks}:
            backend.forget_programs()
        collect(networks[0])


def is_large(network: AbstractNetwork) -> bool:
    """Return whether a network has so many parameters that its memory counts."""
    return (
        sum(math.prod(slot.shape) for slot in network.neutral_slots().values()) >= LARGE
    )
