"""What the processes of the tests do: updates by themselves, and averages; and what NumPy makes of
them."""

import numpy as np
import torch

from deliralike import backends, in_replicas, random, zoo
from deliralike.data import Loader
from deliralike.optim.rules import rule
from deliralike.parallel import LocalSGD
from deliralike.training import Checkpoint, Trainer
from tests.losses import cross_entropy
from tests.processes import steps, training

RATE, MOMENTUM = 0.05, 0.9


def data(step, sizes):
    """The whole batch of a step: inputs, targets and what each sample counts for."""
    generator = np.random.default_rng([7, step])
    samples = sum(sizes)
    return (
        generator.normal(size=(samples, 3)),
        generator.normal(size=(samples, 2)),
        generator.uniform(1, 3, samples),
    )


def squared(network, x, y, counts):
    """A mean over samples."""
    nn = network.nn
    return nn.sum((network(x) - y) ** 2) / len(y)


def weighted(network, x, y, counts):
    """A sum and its denominator, which is not the number of samples."""
    nn = network.nn
    return nn.sum(nn.sum((network(x) - y) ** 2, 1) * counts), nn.sum(counts)


LOSSES = {"mean": squared, "denominator": in_replicas(weighted, "denominator")}


def train(processes, backend, plan, updates, sizes_of, loss, in_backward=None):
    """The parameters after each update, as this process has them, and the messages sent in it."""
    network = steps.Line.on(backend, seed=4, dtype="float64")()
    network = backends.DistributedDataParallel(
        network, processes, averaging=_plan(plan), in_backward=in_backward
    )
    steps.KEPT.append(network)
    optimizer = network.backend.optimizer(
        rule("sgd", lr=RATE, momentum=MOMENTUM), network
    )
    found = []
    with network.training_mode(True):
        for step in range(updates):
            sizes, before = sizes_of[step % len(sizes_of)], processes.collectives.copy()
            share = steps.share_of(data(step, sizes), sizes, processes.rank)
            if sizes[processes.rank]:
                optimizer.update(LOSSES[loss], *share)
            else:
                with network.empty_share():
                    optimizer.update(LOSSES[loss], *share)
            sent = processes.collectives - before
            found.append(
                {
                    "own": _lists_of(network.root),
                    "sent": [sent["all_gather"], sent["all_reduce"]],
                }
            )
    found.append(
        {"own": _lists_of(network), "sent": []}
    )  # read as a whole: all are equal
    return found


def _plan(settings):
    settings = dict(settings)
    if isinstance(settings["every"], list):  # JSON has no whole numbers for keys
        settings["every"] = dict(settings["every"])
    return LocalSGD(**settings)


def _lists_of(network):
    return {name: value.tolist() for name, value in network.neutral_state().items()}


def by_numpy(plan, updates, sizes_of, loss, count):
    """The parameters of each process after each update, and averaged in the end, by the formulas
    alone."""
    plan = dict(plan)
    levels = (
        dict(plan["every"])
        if isinstance(plan["every"], list)
        else {plan["every"]: count}
    )
    warmup = plan.get("warmup", 0)
    start = steps.Line.on("torch", seed=4, dtype="float64")().neutral_state()
    own = [
        np.hstack([start["fc.weight"], start["fc.bias"][:, None]]) for _ in range(count)
    ]
    velocity = [np.zeros((2, 4)) for _ in range(count)]
    seen = {size: np.zeros(count) for size in levels.values()}
    found = []
    for step in range(updates):
        sizes = sizes_of[step % len(sizes_of)]
        x, y, counts = data(step, sizes)
        x, counts = (
            np.hstack([x, np.ones((len(x), 1))]),
            counts if loss == "denominator" else np.ones(len(x)),
        )
        owner = np.repeat(np.arange(count), sizes)
        group = count if step < warmup else 1
        for rank in range(count):
            rows = owner // group == rank // group
            if not rows.any():
                continue
            error = (
                2
                * (x[rows] @ own[rank].T - y[rows])
                * counts[rows, None]
                / counts[rows].sum()
            )
            velocity[rank] = MOMENTUM * velocity[rank] + error.T @ x[rows]
            if step >= warmup:
                for level in seen.values():
                    level[rank] += counts[rows].sum()
        own = [
            p - RATE * v if (owner // group == rank // group).any() else p
            for rank, (p, v) in enumerate(zip(own, velocity, strict=True))
        ]
        due = [
            size
            for period, size in levels.items()
            if step >= warmup and (step + 1 - warmup) % period == 0
        ]
        if due:
            own = _averaged(own, seen, max(due), count)
        found.append([p.copy() for p in own])
    return [*found, _averaged(own, seen, count, count) if updates > warmup else own]


def _averaged(own, seen, size, count):
    new = list(own)
    for begin in range(0, count, size):
        ranks, weights = range(begin, begin + size), seen[size][begin : begin + size]
        if weights.sum():
            mean = (
                sum(
                    weight * own[rank]
                    for rank, weight in zip(ranks, weights, strict=True)
                )
                / weights.sum()
            )
            for rank in ranks:
                new[rank] = mean
    for level in seen:
        if level <= size:
            seen[level][:] = 0.0
    return new


def largest_difference(wanted, came):
    """Over updates and processes."""
    worst = 0.0
    for step, of_ranks in enumerate(wanted):
        for rank, matrix in enumerate(of_ranks):
            own = came[rank][step]["own"]
            found = np.hstack([own["fc.weight"], np.array(own["fc.bias"])[:, None]])
            worst = max(
                worst, float(np.abs(found - matrix).max() / np.abs(matrix).max())
            )
    return worst


# Whole runs
# -----------------------------------------------------------------------------


def fitted(processes, backend, folder):
    """Whether all processes have the same parameters, metrics and checkpoints, and draw other
    masks."""
    network = zoo.build(
        "mlp",
        backend=backend,
        in_features=81,
        hidden=[6],
        out_features=4,
        seed=1,
        dropout=0.4,
        dtype="float64",
    )
    network = backends.DistributedDataParallel(
        network, processes, averaging=LocalSGD(every=4, warmup=1)
    )
    steps.KEPT.append(network)
    trainer = Trainer(
        network, rule("sgd", lr=0.1), callbacks=[Checkpoint(folder)], seed=5
    )
    pictures = training.pictures()
    history = trainer.fit(Loader(pictures, training.BATCH, seed=5), pictures, epochs=2)
    apart = network.root.neutral_state()
    with random.portable(0, 0), network.training_mode(True):
        x, labels = pictures[0][:4], pictures[1][:4]  # the same samples in each process
        loss = trainer.optimizers["default"].update(cross_entropy, x, labels)
    return {
        "metrics": [epoch.held_out for epoch in history.epochs],
        "loss": float(network.backend.number(loss)),
        "state": {name: value.tolist() for name, value in apart.items()},
    }


def normalised(processes):
    """The buffers of a batch norm before and after parameters are read, with other statistics in
    each process."""
    subject = steps.subjects.subject("torch")
    network = backends.DistributedDataParallel(
        subject.network, processes, averaging=LocalSGD(every=100)
    )
    steps.KEPT.append(network)
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    sizes = [4, 3]
    with network.training_mode(True):
        optimizer.update(
            subject.loss, *steps.share_of(steps.batch(7), sizes, processes.rank)
        )
    before, weight = (
        network.root.neutral_state(),
        network.parallelism.state.averaging.weights[2],
    )
    network.eval()
    after = network.root.neutral_state()
    names = [name for name in before if "running" in name or "tracked" in name]
    return {
        "weight": weight,
        **{
            key: {name: state[name].tolist() for name in names}
            for key, state in (("before", before), ("after", after))
        },
    }


class Turned(torch.nn.Module):
    """A matrix of complex numbers, and a mean of outputs that is saved."""

    def __init__(self):
        super().__init__()
        start = torch.tensor([[1 + 1j, 2j], [0.5, -1j], [1j, 1]])
        self.matrix = torch.nn.Parameter(start.to(torch.complex128))
        self.register_buffer("mean", torch.zeros(2, dtype=torch.complex128))

    def forward(self, x):
        outputs = x.to(torch.complex128) @ self.matrix
        if self.training:
            self.mean = outputs.detach().mean(0)
        return outputs


def turned_loss(network, x, y):
    return ((network(x) - y).abs() ** 2).mean()


def turned(processes, buffers="sync"):
    """Complex numbers after updates by shares, each followed by an average, or alone."""
    network = backends.wrap(Turned())
    share = data(0, [7])[:2]
    if processes is not None:
        share = steps.share_of(share, [4, 3], processes.rank)
        plan = LocalSGD(every=1) if buffers == "sync" else None
        network = backends.DistributedDataParallel(
            network, processes, averaging=plan, buffers=buffers
        )
        steps.KEPT.append(network)
    optimizer = network.backend.optimizer(rule("sgd", lr=RATE), network)
    with network.training_mode(True):
        for _ in range(2):
            optimizer.update(turned_loss, *share)
    state = network.neutral_state().items()
    return {name: value.view(float).tolist() for name, value in state}
