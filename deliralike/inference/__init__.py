"""Inference around a trained network: windows and test-time augmentation."""

from deliralike.inference.augmentation import (
    Augmented,
    View,
    augmented_inference,
    flips,
)
from deliralike.inference.sliding_window import (
    SlidingWindowInferer,
    sliding_window_inference,
)

__all__ = [
    "Augmented",
    "SlidingWindowInferer",
    "View",
    "augmented_inference",
    "flips",
    "sliding_window_inference",
]
