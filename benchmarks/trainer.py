"""The trainer against loops by hand and against peers, on networks so small that overhead shows.

The worst case is a multilayer perceptron, whose whole step takes a sixth of a millisecond; LeNet
is the smallest network that people train.
"""

import importlib
from time import process_time

import numpy as np

from benchmarks.by_hand.peers import PEERS
from benchmarks.timing import Ratio, compare_fresh
from deliralike import backends, data, zoo
from deliralike.optim import rules
from deliralike.training import Trainer

LIMIT, LIMIT_OF_PEERS = 1.10, 1.00
BATCH, HIDDEN, LR, MOMENTUM, EPOCHS = 32, 128, 0.05, 0.9, 5
NETWORKS = ("lenet", "mlp")


def run() -> list[Ratio]:
    """One ratio for each backend and network, and one for each peer."""
    by_hand = [
        _by_hand(name, network)
        for network in NETWORKS
        for name in ("torch", "chainer", "jax")
    ]
    return [*by_hand, *map(_peer, PEERS)]


def _by_hand(name: str, network: str) -> Ratio:
    samples = images(network)
    backends.get(name)  # Chainer can be imported when its backend is loaded
    loop = importlib.import_module(f"benchmarks.by_hand.{name}_loop")

    def make():
        return ours(name, samples, network), loop.training_epoch(
            network, *samples, BATCH, HIDDEN, LR, MOMENTUM
        )

    what = f"epoch of {network}, {name} by hand"
    return compare_fresh(
        what, make, rounds=3, pairs=10, limit=LIMIT, clock=process_time
    )


def _peer(name: str) -> Ratio:
    """Return the ratio to a peer."""
    samples = data.load("digits").train

    def make():
        theirs = PEERS[name](*samples, BATCH, HIDDEN, LR, MOMENTUM, EPOCHS)
        backend = name.partition(",")[0].lower()
        return ours(backend, samples, "mlp", EPOCHS), theirs

    what = f"{EPOCHS} epochs of mlp, {name}"
    return compare_fresh(
        what, make, rounds=1, pairs=10, limit=LIMIT_OF_PEERS, clock=process_time
    )


def images(network: str) -> data.Samples:
    """Digits of 8x8 pixels, in a frame of 28x28 for LeNet."""
    inputs, labels = data.load("digits").train
    return data.Samples(
        np.pad(inputs, [(0, 0), (0, 0), (10, 10), (10, 10)])
        if network == "lenet"
        else inputs,
        labels,
    )


def ours(
    backend: str,
    samples: data.Samples,
    network: str = "mlp",
    epochs: int = 1,
):
    """A function that trains for some more epochs."""
    settings = {
        "mlp": {"in_features": 64, "hidden": (HIDDEN,), "out_features": 10},
        "lenet": {"in_channels": 1, "num_classes": 10, "image_size": 28},
    }
    trainer = Trainer(
        zoo.build(network, backend=backend, **settings[network]),
        rules.rule("sgd", lr=LR, momentum=MOMENTUM),
    )
    loader = data.Loader(samples, BATCH, drop_last=True)
    return lambda: trainer.fit(loader, epochs=epochs)
