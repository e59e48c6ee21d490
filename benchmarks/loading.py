"""An epoch of batches from the loader against a loop that slices shuffled arrays."""

import numpy as np

from benchmarks.timing import Ratio, compare
from deliralike import data

BATCH = 32


def run() -> list[Ratio]:
    """Small batches, where five microseconds show, and large ones, which are copies of memory."""
    digits = data.load("digits").train
    rng = np.random.default_rng(0)
    pictures = data.Samples(
        rng.normal(size=(512, 3, 112, 112)).astype(np.float32), rng.integers(0, 10, 512)
    )
    return [_one("digits", digits, None), _one("3x112x112", pictures, 1.2)]


def _one(name: str, samples: data.Samples, limit: float | None) -> Ratio:
    loader = data.Loader(samples, BATCH)
    epochs = iter(range(10**6))
    rng = np.random.default_rng(0)

    def theirs() -> object:
        order = rng.permutation(len(samples.labels))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            batch = (
                samples.inputs[chosen],
                samples.labels[chosen],
            )  # alive while the next is made, as in a loop
        return batch

    def ours() -> None:
        for _ in loader.batches(next(epochs)):
            pass

    return compare(
        f"an epoch of {name} in batches, slicing", ours, theirs, pairs=60, limit=limit
    )
