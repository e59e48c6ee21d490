"""What is done around a trained network: windows over large inputs, and test-time augmentation."""

from deliralike.inference.augmentation import (
    Augmented,
    View,
    augmented_inference,
    combined,
    flips,
    rotations,
)
from deliralike.inference.sliding_window import SlidingWindowInferer, sliding_window_inference

__all__ = [
    "Augmented",
    "SlidingWindowInferer",
    "View",
    "augmented_inference",
    "combined",
    "flips",
    "rotations",
    "sliding_window_inference",
]
