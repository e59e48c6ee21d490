"""Other numbers for parameters that are zero at the start.

A head, a scale or a branch that starts at zero hides all that lies before it: its outputs and the
gradients behind it are zero whatever the network computes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from deliralike.conformance.kinds import Arrays, Tensors
from deliralike.conformance.pairs import Sides, is_certain

SCALE = 0.1


def fill_zeros(sides: Sides, null: Iterable[str]) -> list[str]:
    """Give parameters that hold nothing but zeros other numbers, the same on both sides.

    Where it is not certain which tensor is which, nothing is changed: zeros that belong to one
    tensor could go to another. Nor is it where the gradients of vectors alone vanish, as those of
    biases before a normalisation do whatever the weights are.

    Args:
        sides: Both sides, whose networks are changed.
        null: The reference's parameters whose gradients are zero.

    Returns:
        The names of the changed parameters in the reference.
    """
    if not is_certain(sides.match):
        return []
    reference, candidate = sides.reference.network, sides.candidate.network
    state = reference.neutral_state()
    if all(state[name].ndim < 2 for name in null):
        return []
    drawn: dict[int, np.ndarray] = {}  # by the parameter itself: tied ones stay equal
    filled = {}
    for name, slot in reference.neutral_slots().items():
        if slot.is_parameter and slot.trainable and not np.any(state[name]):
            filled[name] = drawn.setdefault(
                id(slot.native), _numbers(name, state[name])
            )
    if filled:
        reference.load_neutral_state({**state, **filled})
        candidate.load_neutral_state(
            _of_candidate(sides, {**state, **filled}), strict=False
        )
    return list(filled)


def _numbers(name: str, like: np.ndarray) -> np.ndarray:
    """Draw normal numbers that float32 holds exactly."""
    generator = np.random.default_rng([0, zlib.crc32(name.encode())])
    drawn = SCALE * generator.standard_normal(like.shape)
    return drawn.astype(np.float32).astype(like.dtype)


def _of_candidate(sides: Sides, state: Arrays) -> Tensors:
    if sides.match is None:
        return dict(state)
    return dict(sides.match.to_candidate(state))
