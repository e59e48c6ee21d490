"""Small runs that draw on everything a resume must bring back, written once for the tests of it."""

import warnings

import numpy as np

from deliralike import Network, backends, data
from deliralike.optim import rules
from deliralike.training import Trainer, schedules


class Small(Network):
    """Convolution, norm, dropout, linear: running statistics, a mode and chance."""

    def __init__(self, p=0.3):
        super().__init__()
        self.conv = self.nn.Conv2d(1, 3, 3, padding=1, bias=False)
        self.bn = self.nn.BatchNorm2d(3)
        self.dropout = self.nn.Dropout(p)
        self.fc = self.nn.Linear(3 * 35, 3)

    def forward(self, x):
        return self.fc(
            self.dropout(self.nn.flatten(self.nn.relu(self.bn(self.conv(x)))))
        )


class Pair(Network):
    """Two blocks with an optimizer each, whose losses pull against each other, as in a GAN."""

    def __init__(self):
        super().__init__()
        self.maker = self.nn.Sequential(
            self.nn.Linear(4, 5), self.nn.Dropout(0.2), self.nn.Linear(5, 6)
        )
        self.judge = self.nn.Sequential(
            self.nn.Linear(6, 5), self.nn.ReLU(), self.nn.Linear(5, 1)
        )

    def forward(self, x):
        return self.judge(self.maker(x))

    def train_step(self, batch, optimizers):
        noise, real = batch
        return {
            "judge": optimizers["judge"].update(judge_loss, noise, real),
            "maker": optimizers["maker"].update(maker_loss, noise),
        }


def judge_loss(network, noise, real):
    return network.nn.mean(
        network.judge(network.maker(noise)) ** 2 + (network.judge(real) - 1.0) ** 2
    )


def maker_loss(network, noise):
    return network.nn.mean((network.judge(network.maker(noise)) - 1.0) ** 2)


def samples(count=26, dtype="float64"):
    generator = np.random.default_rng(3)
    return data.Samples(
        generator.normal(size=(count, 1, 7, 5)).astype(dtype),
        generator.integers(0, 3, count),
    )


def noisy(sample, generator):
    """A transform that draws from its own generator and from the global ones, as foreign transforms
    do."""
    image, label = sample
    return image + 0.1 * generator.normal(
        size=image.shape
    ) + 1e-3 * np.random.normal(), label


def loader(source=None, seed=5):
    return data.Loader(
        samples() if source is None else source, 6, seed=seed, transform=noisy
    )  # batches of 6 6 6 6 2


def trainer(backend, *callbacks, seed=1, dtype="float64", rule=None, **options):
    network = Small.on(backend, seed=seed, dtype=dtype)()
    settings = {
        "seed": 7,
        "accumulate": 2,
        "clip_norm": 0.5,
        "average": 0.9,
        "schedule": schedules.Cosine(steps=40),
    }
    rule = rule or rules.rule("adam", lr=0.02)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "accumulate=2 with batch normalisation")
        return Trainer(network, rule, callbacks=callbacks, **(settings | options))


def pair_trainer(backend, *callbacks, seed=1, dtype="float32", **options):
    network = Pair.on(backend, seed=seed, dtype=dtype)()
    both = {
        "maker": rules.rule("adam", lr=0.01),
        "judge": rules.rule("sgd", lr=0.02, momentum=0.9),
    }
    return Trainer(
        network, both, callbacks=callbacks, **({"seed": 7, "rng": "native"} | options)
    )


def pair_loader():
    generator = np.random.default_rng(4)
    return data.Loader(
        (generator.normal(size=(20, 4)), generator.normal(size=(20, 6))), 6, seed=5
    )


def outcome(trained):
    """Weights, buffers, averages and optimizer states by name."""
    found = {
        f"network/{name}": value
        for name, value in trained.network.neutral_state().items()
    }
    for optimizer_name, optimizer in trained.optimizers.items():
        found |= {
            f"{optimizer_name}/{name}": value
            for name, value in optimizer.neutral_state().items()
        }
    average = {} if trained.average is None else trained.average.neutral_state()
    return found | {f"average/{name}": value for name, value in average.items()}


def start_all_chance(seed):
    """Every generator that native draws come from, as in a fresh process."""
    np.random.seed(seed)
    for name in ("torch", "chainer", "jax"):
        backends.get(name).seed(seed)


def differing(first, second):
    """The names of arrays that are not the same bit for bit."""
    assert first.keys() == second.keys()
    return [name for name in first if first[name].tobytes() != second[name].tobytes()]
