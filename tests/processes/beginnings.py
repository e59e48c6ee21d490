"""Runs that begin unlike in one of the processes of the tests."""

import numpy as np

from deliralike import Network
from deliralike.data import Loader
from deliralike.errors import ProcessError
from deliralike.optim import rules
from deliralike.training import Trainer
from deliralike.training.callbacks import Callback
from deliralike.training.schedules import Cosine


class Line(Network):
    def __init__(self):
        super().__init__()
        self.line = self.nn.Linear(2, 3)

    def forward(self, x):
        return self.line(x)


class UsedSamples(Callback):
    """The samples of each batch that this process has used."""

    main_only = False

    def __init__(self):
        self.numbers = []

    def on_step(self, run, step):
        self.numbers += [int(number) for number in run.latest_batches[-1][0][:, 0]]


def samples(count=64):
    """Their first number is their place."""
    return np.stack([np.arange(count), np.zeros(count)], 1).astype(
        np.float32
    ), np.arange(count) % 3


def drawn_anew(samples, seed, epoch):
    """A sampler that does not follow the seed."""
    return np.random.default_rng().permutation(samples)


def other(rank):
    """What one process does unlike the others: keywords of the trainer, of fit, and the data."""
    sgd, adam = rules.rule("sgd", lr=0.1), rules.rule("adam", lr=0.1)
    return {
        "nothing": ({}, {}, samples()),
        "seed": ({"seed": rank}, {}, samples()),
        "rng": ({"rng": ["portable", "native"][rank]}, {}, samples()),
        "length": ({}, {}, samples(64 - 3 * rank)),
        "batches": ({}, {"batch_size": 8 + rank}, samples()),
        "drop_last": ({}, {"drop_last": bool(rank)}, samples()),
        "epochs": ({}, {"epochs": 1 + rank}, samples()),
        "accumulate": ({"accumulate": 1 + rank}, {}, samples()),
        "rule": ({"optimizer": [sgd, adam][rank]}, {}, samples()),
        "rate": ({"optimizer": rules.rule("sgd", lr=0.1 + rank)}, {}, samples()),
        "clipping": ({"clip_norm": [None, 2.5][rank]}, {}, samples()),
        "average": ({"average": [None, 0.5][rank]}, {}, samples()),
        "schedule": ({"schedule": [None, Cosine(8)][rank]}, {}, samples()),
        "validation": ({}, {"validation": samples(30 + rank)}, samples()),
        "loader": ({}, {}, Loader(samples(), 8, seed=7 * rank)),
        "order": ({}, {}, Loader(samples(), 8, sampler=drawn_anew)),
    }


def begin(processes, names):
    """What each beginning ends in: the error, and the samples used."""
    found = []
    for name in names:
        options, of_fit, given = other(processes.rank)[name]
        seen, of_fit = UsedSamples(), {"epochs": 1, "batch_size": 8, **of_fit}
        network = Line.on("torch", seed=2)()
        options = {"optimizer": rules.rule("sgd", lr=0.1), **options}
        trainer = Trainer(network, callbacks=[seen], processes=processes, **options)
        before = processes.collectives["all_gather"]
        try:
            trainer.fit(given, **of_fit)
            error = ""
        except ProcessError as refused:
            error = str(refused)
        found.append(
            [error, seen.numbers, processes.collectives["all_gather"] - before]
        )
    return found
