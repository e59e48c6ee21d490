"""The trainer's step against a loop written by hand, on a network so small that overhead shows; and against peers."""

import importlib

from benchmarks.timing import Ratio, compare_fresh
from deliralike import backends, data, rules, zoo
from deliralike.training import Trainer

LIMIT = 1.10
BATCH, HIDDEN, LR, MOMENTUM = 32, 128, 0.05, 0.9


def run() -> list[Ratio]:
    """One ratio for each backend."""
    return [_by_hand(name) for name in ("torch", "chainer", "jax")]


def _by_hand(name: str) -> Ratio:
    samples = data.load("digits").train
    backends.get(name)  # Chainer can be imported when its backend is loaded
    by_hand = importlib.import_module(f"benchmarks.by_hand.{name}_loop")

    def make():
        return ours(name, samples), by_hand.training_epoch(*samples, BATCH, HIDDEN, LR, MOMENTUM)

    return compare_fresh(f"epoch of a small network, {name} by hand", make, rounds=3, pairs=10, limit=LIMIT)


def ours(name: str, samples: data.Samples):
    """A function that trains for one more epoch."""
    network = zoo.build("mlp", backend=name, in_features=64, hidden=(HIDDEN,), out_features=10)
    trainer = Trainer(network, rules.rule("sgd", lr=LR, momentum=MOMENTUM))
    loader = data.Loader(samples, BATCH, drop_last=True)
    return lambda: trainer.fit(loader)
