"""Inference around a trained network: windows, padded batches, test-time augmentation."""

from deliralike.inference.augmentation import (
    Augmented,
    View,
    augmented_inference,
    combined,
    flips,
    rotations,
)
from deliralike.inference.padded_batches import PaddedBatchInferer
from deliralike.inference.sliding_window import (
    SlidingWindowInferer,
    sliding_window_inference,
)

__all__ = [
    "Augmented",
    "PaddedBatchInferer",
    "SlidingWindowInferer",
    "View",
    "augmented_inference",
    "combined",
    "flips",
    "rotations",
    "sliding_window_inference",
]
