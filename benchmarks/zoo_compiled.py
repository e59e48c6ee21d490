"""The networks of `benchmarks.zoo` under ``torch.compile``.

Compiling them takes about a quarter of an hour.
"""

from benchmarks.timing import Ratio
from benchmarks.zoo import ON_TORCH, on_torch


def run() -> list[Ratio]:
    """Forward pass and training step of each."""
    return [
        ratio
        for name in ON_TORCH
        for ratio in on_torch(name, compiled=True, rounds=1, pairs=20)
    ]
