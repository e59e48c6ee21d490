"""What the processes of the tests do: whole runs of the trainer."""

import warnings

import numpy as np

from deliralike import backends, zoo
from deliralike.data import Loader
from deliralike.optim import rules
from deliralike.parallel import SingleProcess
from deliralike.training import Checkpoint, Trainer
from deliralike.training.metrics import Accuracy, CrossEntropy
from tests.processes import comparing

SAMPLES, BATCH = 29, 7  # the last batch has one sample: fewer than there are processes
EPOCHS = 3


def pictures():
    generator = np.random.default_rng(3)
    return generator.normal(size=(SAMPLES, 1, 9, 9)), generator.integers(0, 4, SAMPLES)


def data():
    return Loader(pictures(), BATCH, seed=5, transform=noisy)


def trainer(backend, processes, folder=None, every_steps=1):
    network = zoo.build(
        "resnet8",
        backend=backend,
        in_channels=1,
        num_classes=4,
        seed=1,
        dtype="float64",
    )
    callbacks = (
        []
        if folder is None
        else [Checkpoint(folder, every_steps=every_steps, keep=None)]
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "accumulate=2 with batch normalisation")
        return Trainer(
            network,
            rules.rule("sgd", lr=0.1, momentum=0.9),
            metrics={"accuracy": Accuracy(), "entropy": CrossEntropy()},
            callbacks=callbacks,
            processes=processes,
            clip_norm=1.0,
            accumulate=2,
            seed=5,
        )


def fitted(processes, backend, folder=None, epochs=EPOCHS, resume=None):
    """A run: losses, metrics, samples and the weights in the end."""
    made = trainer(backend, processes, folder)
    history = made.fit(data(), pictures(), epochs=epochs, resume=resume)
    return {
        "losses": [float(loss) for loss in history.losses],
        "samples": [step.samples for step in history.steps],
        "metrics": [epoch.held_out for epoch in history.epochs],
        "state": {
            name: value.tolist() for name, value in made.network.neutral_state().items()
        },
        "main": made.is_main,
    }


def spread_out(processes):
    """A run of a network of which each process holds a part: losses and metrics; five batches,
    which two share."""
    generator = np.random.default_rng(3)
    samples = generator.normal(size=(SAMPLES, 11)), generator.integers(0, 4, SAMPLES)
    network = zoo.build(
        "mlp",
        backend="torch",
        in_features=11,
        hidden=(16,),
        out_features=4,
        seed=1,
        dtype="float64",
    )
    if processes.count > 1:
        network = backends.FullyShardedDataParallel(network, processes)
    made = Trainer(
        network,
        rules.rule("adam", lr=0.01),
        metrics={"accuracy": Accuracy(), "entropy": CrossEntropy()},
        processes=processes,
        seed=5,
    )
    history = made.fit(Loader(samples, BATCH, seed=5), samples, epochs=2)
    state = {name: value.tolist() for name, value in network.neutral_state().items()}
    return {
        "losses": [float(loss) for loss in history.losses],
        "state": state,
        "metrics": [epoch.held_out for epoch in history.epochs],
    }


def noisy(sample, generator):
    """Augmentation that is drawn for each sample."""
    return sample[0] + 0.1 * generator.standard_normal(sample[0].shape), sample[1]


def alone(backend, **options):
    return fitted(SingleProcess(), backend, **options)


def largest_difference(one, other):
    """Of losses, metrics and weights."""
    kept = (
        {name: each[name] for name in ("losses", "metrics", "state") if name in each}
        for each in (one, other)
    )
    return comparing.largest_difference(*kept, least=1e-3)
