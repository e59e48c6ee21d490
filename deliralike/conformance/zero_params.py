"""Other numbers for parameters that are zero at the start.

A head, a scale or a branch that starts at zero hides all that lies before it: its outputs and the
gradients behind it are zero whatever the network computes.
"""

from __future__ import annotations

import zlib

import numpy as np

from deliralike.conformance.pairs import Sides, is_certain

SCALE = 0.1


def fill_zeros(sides: Sides) -> list[str]:
    """Give parameters that hold nothing but zeros other numbers, the same on both sides.

    Where it is not certain which tensor is which, nothing is changed: zeros that belong to one
    tensor could go to another.

    Returns:
        The names of the changed parameters in the reference.
    """
    if not is_certain(sides.match):
        return []
    reference, candidate = sides.reference.network, sides.candidate.network
    state = reference.neutral_state()
    drawn: dict[int, np.ndarray] = {}  # by the parameter itself: tied ones stay equal
    filled = {}
    for name, slot in reference.neutral_slots().items():
        if slot.is_parameter and slot.trainable and not np.any(state[name]):
            filled[name] = drawn.setdefault(
                id(slot.native), _numbers(name, state[name])
            )
    if filled:
        state |= filled
        reference.load_neutral_state(state)
        if sides.match is not None:
            state = dict(sides.match.to_candidate(state))
        candidate.load_neutral_state(state, strict=False)
    return list(filled)


def _numbers(name: str, like: np.ndarray) -> np.ndarray:
    """Draw positive numbers, as a root may be taken of them, that float32 holds exactly."""
    generator = np.random.default_rng([0, zlib.crc32(name.encode())])
    drawn = SCALE * np.abs(generator.standard_normal(like.shape))
    return drawn.astype(np.float32).astype(like.dtype)
