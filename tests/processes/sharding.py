"""What the processes of the tests do: steps of networks that are spread over them."""

import gc
import math
import time
import warnings

import numpy as np
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, OffloadPolicy
from torch.distributed.tensor import DTensor, Shard

from deliralike import FullyShardedDataParallel, Network, in_replicas, zoo
from deliralike.data import Loader
from deliralike.errors import CapabilityError
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.rules import rule
from deliralike.training import Checkpoint, Trainer
from deliralike.training.metrics import Accuracy, CrossEntropy
from tests.processes import steps, subjects, training

RULES = {
    "sgd": lambda: rule(
        "sgd", lr=0.1, momentum=0.9, weight_decay=0.1
    ),  # alone in feeling how long gradients are
    "adamw": lambda: rule("adamw", lr=0.01, weight_decay=0.1),
    "lamb": lambda: rule("lamb", lr=0.01, weight_decay=0.1),
    "adafactor": lambda: rule("adafactor", lr=0.01, weight_decay=0.1),
    "muon": lambda: rule("muon", lr=0.01),
}


def _maker(kind):
    def make(network):
        groups = {"*.bias": {"weight_decay": 0.0}}
        optimizer = network.backend.optimizer(RULES[kind](), network, groups=groups)
        optimizer.pre_update_hooks += [ClipNorm(0.05)] if kind == "lamb" else []
        return optimizer

    return make


def sgd_within(network):
    """Gradients are clipped by their largest element, of which some processes have no part."""
    optimizer = network.backend.optimizer(RULES["sgd"](), network)
    optimizer.pre_update_hooks.append(ClipNorm(0.01, math.inf))
    return optimizer


OPTIMIZERS = {"clipped sgd": subjects.clipped_sgd, "sgd within": sgd_within} | {
    kind: _maker(kind) for kind in RULES
}


def train(processes, sizes, keywords):
    """The updates of one of several processes."""
    subject = subjects.subject("torch")
    network = FullyShardedDataParallel(subject.network, processes, **keywords)
    steps.KEPT.append(network)
    share = steps.share_of(steps.batch(sum(sizes)), sizes, processes.rank)
    sits_out = None if sizes[processes.rank] else True
    return steps.updates(network, OPTIMIZERS, subject.loss, share, sits_out)


def alone(samples):
    subject = subjects.subject("torch")
    return steps.updates(
        subject.network, OPTIMIZERS, subject.loss, steps.batch(samples)
    )


def by_keywords(processes):
    """The losses of three updates in float32, and of which types and parts parameters are, for
    PyTorch's keywords."""
    settings = {
        "none": {},
        "mp_policy": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)},
        "offload_policy": {"offload_policy": OffloadPolicy()},
        "shard_placement_fn": {
            "shard_placement_fn": lambda parameter: Shard(parameter.ndim - 1)
        },
    }
    return {
        name: _in_float32(processes, keywords) for name, keywords in settings.items()
    }


def _in_float32(processes, keywords):
    network = zoo.build(
        "mlp", backend="torch", in_features=14, hidden=[10], out_features=4, seed=1
    )
    if processes.count > 1:
        network = FullyShardedDataParallel(network, processes, **keywords)
    steps.KEPT.append(network)
    generator = np.random.default_rng(3)
    samples = generator.normal(size=(7, 14)), generator.integers(0, 4, 7)
    share = (
        samples
        if processes.count == 1
        else steps.share_of(samples, [4, 3], processes.rank)
    )
    optimizer = network.backend.optimizer(rule("sgd", lr=0.5), network)
    with network.training_mode(True):
        losses = [
            network.backend.number(optimizer.update(steps.mean_loss, *share))
            for _ in range(3)
        ]
    parts = [
        [str(p.dtype), list(p.to_local().shape)]
        for p in network.parameters()
        if isinstance(p, DTensor)
    ]
    return [losses, parts]


# Bytes
# -----------------------------------------------------------------------------

WIDE = {
    "in_features": 7,
    "hidden": [129, 65, 33],
    "out_features": 5,
}  # no width is a multiple of the processes


def wide():
    return zoo.build("mlp", backend="torch", dtype="float64", **WIDE)


def held(processes, limit):
    """The bytes of parameters, optimizer states and of all tensors that are alive, after some
    updates. A thread of gloo may hold what it has gathered a moment longer: wait until no more than
    a limit is alive, or half a minute."""
    before = _alive()
    network = FullyShardedDataParallel(
        wide(), processes, smallest=2000
    )  # two layers; two with the root
    steps.KEPT.append(network)
    optimizer = network.backend.optimizer(rule("adam", lr=0.01), network)
    steps.KEPT.append(optimizer)
    x, labels = np.ones((2, 7)), np.zeros(2, np.int64)
    gc.collect()
    with network.training_mode(True):
        for _ in range(2):
            optimizer.update(
                lambda net, x, labels: net.nn.cross_entropy(net(x), labels), x, labels
            )
    network.zero_grad()
    network.eval()(network.backend.array(x))
    # first of all: reading the network would give away what it has gathered
    alive = _alive() - before
    end = time.monotonic() + 30
    while alive > limit and time.monotonic() < end:
        time.sleep(0.1)
        alive = _alive() - before
    parts = {
        name: slot.native.to_local() for name, slot in network.neutral_slots().items()
    }
    states = [
        value
        for held in optimizer.native.state.values()
        for value in held.values()
        if value.dim()
    ]
    state_bytes = sum(value.to_local().nbytes for value in states)
    return {
        "parts": {name: list(part.shape) for name, part in parts.items()},
        "states": state_bytes,
        "parameters": sum(part.nbytes for part in parts.values()),
        "alive": alive,
    }


def _alive():
    """The bytes of all storages that a tensor holds."""
    gc.collect()
    storages = {}
    for each in (each for each in gc.get_objects() if isinstance(each, torch.Tensor)):
        local = each.to_local() if hasattr(each, "to_local") else each
        storages[local.untyped_storage().data_ptr()] = local.untyped_storage().nbytes()
    return sum(storages.values())


# Parameters that are not used everywhere, and what cannot work
# -----------------------------------------------------------------------------


def unused(processes):
    """Which parameters one update moves, where each process uses another one and nobody uses a
    third."""
    network = steps.TwoPaths.on("torch", dtype="float64")()
    network = FullyShardedDataParallel(network, processes)
    steps.KEPT.append(network)
    return steps.moved(processes, network)


def windows(processes):
    """The weights after windows of two optimizers that are open at the same time: first each uses
    its own layer, then that of the other one."""
    network = steps.TwoPaths.on("torch", dtype="float64")()
    network = FullyShardedDataParallel(network, processes)
    steps.KEPT.append(network)
    optimizers = []
    for parameters in ("first.*", "second.*"):
        optimizer = network.backend.optimizer(
            rule("sgd", lr=1.0, weight_decay=0.5), network, parameters=parameters
        )
        optimizer.accumulate = 3
        optimizers.append(optimizer)
    with network.training_mode(True):
        for paths in ((-1.0, 1.0), (1.0, -1.0)):
            for optimizer, path in zip(optimizers, paths, strict=True):
                optimizer.update(
                    lambda net, x: net.nn.sum(net(x)), np.full((2, 3), path)
                )
            for optimizer in optimizers:
                optimizer.flush()
    return {name: each.tolist() for name, each in network.neutral_state().items()}


class Forgetful(Network):
    """A batch norm that has the statistics of each batch, and no others."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(3, 2)
        self.norm = self.nn.BatchNorm1d(2, track_running_stats=False)

    def forward(self, x):
        return self.norm(self.fc(x))


def forgetful(processes, sizes):
    """The updates of a process that has the samples of the first batch, or none."""
    network = FullyShardedDataParallel(
        Forgetful.on("torch", seed=2, dtype="float64")(), processes
    )
    steps.KEPT.append(network)
    share = steps.share_of(steps.rows_of_numbers(sum(sizes)), sizes, processes.rank)
    sits_out = None if sizes[processes.rank] else True
    optimizers = {"sgd": lambda over: over.backend.optimizer(RULES["sgd"](), over)}
    return steps.updates(network, optimizers, steps.squares, share, sits_out)


class Penalised(Network):
    """A layer, and another one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = self.nn.Linear(3, 4), self.nn.Linear(4, 1)

    def forward(self, x):
        return self.second(self.nn.tanh(self.first(x)))


def _penalty(network, x):
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
    return (gradient**2).sum()


def refused(processes):
    """What the errors say of what cannot work."""
    network = FullyShardedDataParallel(
        Penalised.on("torch", dtype="float64")(), processes
    )
    steps.KEPT.append(network)
    optimizer = network.backend.optimizer(rule("sgd", lr=1.0), network)
    x = np.ones((2, 3))
    attempts = {
        "inside": lambda: optimizer.update(lambda net, x: net.nn.sum(net.first(x)), x),
        "graph": lambda: in_replicas(lambda net, x: net.nn.sum(net(x)))(
            network, network.backend.array(x)
        ),
        "gradients": lambda: network.backend.gradients(
            lambda net, x: net.nn.sum(net(x)), network, x
        ),
        "penalty": lambda: optimizer.update(_penalty, x),
    }
    with network.training_mode(True):
        return {name: _error_of(attempt) for name, attempt in attempts.items()}


def _error_of(attempt):
    try:
        attempt()
    except CapabilityError as error:
        return str(error)
    return "no error"


class Choosing(Network):
    """Two layers of equal shape, of which each process may call another one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = self.nn.Linear(3, 3), self.nn.Linear(3, 3)

    def forward(self, x):
        return self.second(x) if self.backend.number(x[0, 0]) > 0 else self.first(x)


def mixed_up(processes):
    """Blocks of equal shape that are gathered by themselves, another one in each process."""
    network = FullyShardedDataParallel(
        Choosing.on("torch", dtype="float64")(), processes, smallest=1
    )
    steps.KEPT.append(network)
    optimizer = network.backend.optimizer(rule("sgd", lr=1.0), network)
    with network.training_mode(True):
        optimizer.update(
            lambda net, x: net.nn.sum(net(x)),
            np.full((2, 3), 1.0 if processes.rank else -1.0),
        )


# Whole runs
# -----------------------------------------------------------------------------


def fitted(processes, folder=None, epochs=training.EPOCHS, resume=None):
    """The run of `training.fitted`, spread over processes."""
    made = trainer(processes, folder)
    steps.KEPT.append(made)
    loader = Loader(
        training.pictures(), training.BATCH, seed=5, transform=training.noisy
    )
    history = made.fit(loader, training.pictures(), epochs=epochs, resume=resume)
    return {
        "losses": [float(loss) for loss in history.losses],
        "metrics": [epoch.held_out for epoch in history.epochs],
        "state": {
            name: value.tolist() for name, value in made.network.neutral_state().items()
        },
    }


def trainer(processes, folder):
    network = zoo.build(
        "resnet8",
        backend="torch",
        in_channels=1,
        num_classes=4,
        seed=1,
        dtype="float64",
    )
    network = FullyShardedDataParallel(network, processes, smallest=2000)
    callbacks = [] if folder is None else [Checkpoint(folder, every_steps=1, keep=None)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "accumulate=2 with batch normalisation")
        return Trainer(
            network,
            rules.rule("adamw", lr=0.01),
            metrics={"accuracy": Accuracy(), "entropy": CrossEntropy()},
            callbacks=callbacks,
            clip_norm=1.0,
            accumulate=2,
            average=0.5,
            seed=5,
        )
