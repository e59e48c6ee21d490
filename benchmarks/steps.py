"""The training step of ResNet-18 (batch 16, 3x64x64, SGD with momentum) against the same network written by hand."""

import importlib

import numpy as np

from benchmarks.timing import Ratio, compare
from deliralike import backends, zoo
from deliralike.rules import rule

LIMITS = {"torch": 1.02, "chainer": 1.02, "jax": 1.05}


def run() -> list[Ratio]:
    """One ratio for each backend."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(16, 3, 64, 64)).astype(np.float32)
    labels = rng.integers(0, 1000, 16)
    return [_one(name, images, labels) for name in LIMITS]


def _one(name: str, images: np.ndarray, labels: np.ndarray) -> Ratio:
    backend = backends.get(name)
    network = zoo.build("resnet18", backend=name)
    optimizer = backend.optimizer(rule("sgd", lr=0.01, momentum=0.9), network)

    def ours() -> float:
        return float(backend.numpy(optimizer.update(_loss, images, labels)))

    theirs = importlib.import_module(f"benchmarks.by_hand.{name}_resnet").training_step(images, labels)
    pairs = 8 if name == "chainer" else 24
    return compare(f"ResNet-18 step, {name} by hand", ours, theirs, pairs=pairs, limit=LIMITS[name])


def _loss(network, images, labels):
    return network.nn.cross_entropy(network(images), labels)
