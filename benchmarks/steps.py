"""The training step of ResNet-18 against the same network written by hand.

The batch holds 16 images of 3x64x64; the optimizer is SGD with momentum.
"""

import importlib

import numpy as np

from benchmarks.timing import Ratio, compare_fresh
from deliralike import backends, zoo
from deliralike.optim.rules import rule

LIMITS = {"torch": 1.02, "chainer": 1.02, "jax": 1.05}
# Rounds with networks made anew, and pairs of steps in each; JAX compiles in each round.
ROUNDS = {"torch": (8, 12), "chainer": (3, 6), "jax": (2, 8)}


def run() -> list[Ratio]:
    """One ratio for each backend."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(16, 3, 64, 64)).astype(np.float32)
    labels = rng.integers(0, 1000, 16)
    return [_one(name, images, labels) for name in LIMITS]


def _one(name: str, images: np.ndarray, labels: np.ndarray) -> Ratio:
    backend = backends.get(name)
    by_hand = importlib.import_module(f"benchmarks.by_hand.{name}_resnet")

    def make():
        network = zoo.build("resnet18", backend=name)
        optimizer = backend.optimizer(rule("sgd", lr=0.01, momentum=0.9), network)
        ours = lambda: float(backend.numpy(optimizer.update(_loss, images, labels)))  # noqa: E731
        return ours, by_hand.training_step(images, labels)

    rounds, pairs = ROUNDS[name]
    return compare_fresh(
        f"ResNet-18 step, {name} by hand",
        make,
        rounds=rounds,
        pairs=pairs,
        limit=LIMITS[name],
    )


def _loss(network, images, labels):
    return network.nn.cross_entropy(network(images), labels)
