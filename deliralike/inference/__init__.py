"""Inference around a trained network: outputs for whole pictures from those for windows."""

from deliralike.inference.sliding_window import (
    SlidingWindowInferer,
    sliding_window_inference,
)

__all__ = ["SlidingWindowInferer", "sliding_window_inference"]
