"""What the processes of `test_wrapping` do: networks of several parts, communication hooks,
anomalies, steps."""

import numpy as np
import torch

from deliralike import DistributedDataParallel, Network, in_replicas, is_model_wrapper
from deliralike.optim.rules import rule
from deliralike.parallel import SingleProcess
from deliralike.training import Trainer
from deliralike.zoo.generative.dcgan import Discriminator, Generator
from tests.losses import mean_square
from tests.processes import steps, subjects

KEPT = []  # networks that live until the process ends, as those of a script do


def kept(network):
    KEPT.append(network)
    return network


# Several parts
# -----------------------------------------------------------------------------


class Adversaries(Network):
    """DCGAN's two networks as parts of one, and a part that nothing trains."""

    def __init__(self):
        super().__init__()
        self.generator = Generator(
            latent_size=3, width=2, out_channels=1, image_size=16
        )
        self.discriminator = Discriminator(in_channels=1, width=2, image_size=16)
        self.contrast = self.nn.Linear(1, 1)

    def forward(self, noise):
        return self.generator(noise)

    def train_step(self, batch, optimizers):
        real, noise = batch["data"], batch["noise"]
        told = optimizers["discriminator"].update(TELL_APART, real, noise)
        return {
            "discriminator": told,
            "generator": optimizers["generator"].update(FOOL, noise),
        }


def _scores(network, pictures, real):
    nn = network.nn
    scores = network.discriminator(network.contrast(pictures[..., None])[..., 0])
    return nn.bce_with_logits(scores, nn.zeros(scores.shape, scores) + float(real))


def tell_apart(network, real, noise):
    made = network.nn.stop_gradient(network.generator(noise))
    return _scores(network, real, True) + _scores(network, made, False)


def fool(network, noise):
    return _scores(network, network.generator(noise), True)


TELL_APART, FOOL = map(in_replicas, (tell_apart, fool))
SAMPLES, BATCH = (
    7,
    4,
)  # the last batch has three samples, so one of four processes has none


def pictures():
    rng = np.random.default_rng(3)
    data, noise = rng.normal(size=(SAMPLES, 1, 16, 16)), rng.normal(size=(SAMPLES, 3))
    return [{"data": data[n], "noise": noise[n]} for n in range(SAMPLES)]


def made(processes, in_backward=None):
    network = Adversaries.on("torch", seed=1, dtype="float64")()
    network.set_trainable("contrast.*", False)
    return network, kept(
        DistributedDataParallel(network, processes, in_backward=in_backward)
    )


def adversaries(processes, in_backward=None, accumulate=1):
    """Losses and weights of a run with two optimizers, and how many sums were made after
    backward."""
    before, (network, over) = (
        processes.collectives["all_reduce"],
        made(processes, in_backward),
    )
    rules = {name: rule("adam", lr=0.01) for name in ("discriminator", "generator")}
    history = Trainer(over, rules, accumulate=accumulate, seed=4).fit(
        pictures(), epochs=2, batch_size=BATCH
    )
    return {
        "losses": [list(step.losses.values()) for step in history.steps],
        "state": {
            name: value.tolist() for name, value in network.neutral_state().items()
        },
        "sums": processes.collectives["all_reduce"] - before,
    }


def several_adversaries(processes, settings):
    return [adversaries(processes, *each) for each in settings]


def adversaries_alone(accumulate):
    return adversaries(SingleProcess(), accumulate=accumulate)


def sent(processes):
    """How many numbers the buckets of each update hold, and how many parameters each part has."""
    sizes = []

    def counting(group, bucket):
        sizes.append(bucket.buffer().numel())
        mean = bucket.buffer() / processes.count
        return (
            torch.distributed.all_reduce(mean, group=group, async_op=True)
            .get_future()
            .then(lambda f: f.value()[0])
        )

    network, over = made(processes, {"parts": True, "comm_hook": counting})
    optimizers = {
        name: over.backend.optimizer(rule("sgd", lr=0.1), over, f"{name}.*")
        for name in ("discriminator", "generator")
    }
    batch = {
        name: np.stack([each[name] for each in pictures()[:2]])
        for name in ("data", "noise")
    }
    with over.training_mode(True):
        for _ in range(3):
            over.train_step(batch, optimizers)
    return [
        sizes,
        [
            getattr(network, name).count_parameters()
            for name in ("discriminator", "generator")
        ],
    ]


def thawed(processes):
    """The weights after steps with a part frozen, with all thawed, and after a step with one added
    by hand."""
    network = Adversaries.on("torch", seed=1, dtype="float64")()
    over = kept(
        DistributedDataParallel(network, processes, in_backward={"parts": True})
    )
    optimizer = over.backend.optimizer(rule("sgd", lr=0.1), over)
    rows = (
        slice(2 * processes.rank, 2 * processes.rank + 2)
        if processes.count > 1
        else slice(0, 4)
    )
    noise = np.stack([each["noise"] for each in pictures()])[rows]
    with over.training_mode(True):
        for pattern, trainable in (("discriminator.*", False), ("*", True)):
            over.set_trainable(pattern, trainable)
            optimizer.update(FOOL, noise)
    return {name: value.tolist() for name, value in network.neutral_state().items()}


# Keywords and hooks
# -----------------------------------------------------------------------------


def keyworded(processes, sizes, cases):
    """The updates of one of several processes with each of the keywords."""
    found = []
    for keywords in cases:
        subject = subjects.subject("torch")
        if "device_mesh" in keywords:
            keywords = {"device_mesh": processes.mesh("cpu")}
        network = kept(
            DistributedDataParallel(subject.network, processes, in_backward=keywords)
        )
        share = steps.share_of(steps.batch(sum(sizes)), sizes, processes.rank)
        found.append(steps.updates(network, subject.optimizers, subject.loss, share))
    return found


class Wide(Network):
    """Matrices that are worth compressing, in several buckets."""

    def __init__(self):
        super().__init__()
        self.layers = self.nn.Sequential(*(self.nn.Linear(12, 12) for _ in range(5)))

    def forward(self, x):
        return self.layers(x)


def hooked(processes, cases):
    """The gradients of some updates with each hook (those of a plain sum first), and each process's
    own first ones."""
    x = np.random.default_rng(5).normal(size=(2, 7, 12))[processes.rank][
        : 4 - processes.rank
    ]
    return [_with_hook(processes, keywords, x) for keywords in [None, *cases]]


def _with_hook(processes, keywords, x, updates=5):
    network = Wide.on("torch", seed=3, dtype="float64")()
    over = kept(DistributedDataParallel(network, processes, in_backward=keywords))
    optimizer = over.backend.optimizer(rule("sgd", lr=0.0), over)
    optimizer.keep_gradients, found = True, []
    own = network.backend.gradients(mean_square, network, x).parameters
    with over.training_mode(True):
        for _ in range(updates):
            optimizer.update(mean_square, x)
            latest = over.backend.to_numpy(optimizer.latest_gradients)
            found.append({name: value.tolist() for name, value in latest.items()})
    return [found, {name: value.tolist() for name, value in own.items()}]


# Anomalies
# -----------------------------------------------------------------------------


class Branches(Network):
    """Layers that some processes use."""

    def __init__(self, norm):
        super().__init__()
        nn = self.nn
        self.first, self.second, self.never = (
            nn.Linear(3, 2),
            nn.Linear(3, 2),
            nn.Linear(3, 2),
        )
        self.dead, self.half_dead, self.broken = (
            nn.Linear(3, 2, bias=False) for _ in range(3)
        )
        self.bn = nn.BatchNorm1d(2) if norm else nn.Identity()

    def forward(self, x):
        return self.bn(self.first(x))


def anomalies(processes, backend, in_backward=None):
    """What is found, in words and numbers, whether anything has changed by it, and what an update
    then moves."""
    network = Branches.on(backend, seed=0, dtype="float64")(backend != "jax")
    over = kept(DistributedDataParallel(network, processes, in_backward=in_backward))
    rank, before = processes.rank, network.neutral_state()

    def loss(network, x):
        y = (
            network.bn((network.first if rank == 0 else network.second)(x))
            + network.dead(x) * 0.0
        )
        y = y + network.half_dead(x) * float(rank)
        bad = network.nn.mean(network.broken(x) * (float("nan") if rank == 1 else 1.0))
        return network.nn.mean(y * y) + bad

    x = np.random.default_rng(1).normal(size=(3, 2, 3))[rank]
    with over.training_mode(True):
        if rank == 2:
            with over.empty_share():
                found = over.detect_anomalous_params(loss, x)
        else:
            found = over.detect_anomalous_params(loss, x)
    after = network.neutral_state()
    return {
        "text": str(found),
        "unused": found.unused,
        "zero": found.zero,
        "not_finite": found.not_finite,
        "unused_in": [share.unused for share in found.of_processes.values()],
        "any": bool(found),
        "processes": list(found.of_processes),
        "same": all(np.array_equal(before[n], after[n]) for n in before),
        "left": [
            name
            for name, slot in network.neutral_slots().items()
            if getattr(slot.native, "grad", None) is not None
        ],
    }


# Steps and wrappers
# -----------------------------------------------------------------------------


def wrappers_of_torch(processes):
    """Whether PyTorch's own wrappers, and modules that hold them, are known as such."""
    from torch.distributed.fsdp import fully_shard  # which takes as long as all else

    distributed = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    sharded = fully_shard(torch.nn.Linear(3, 2), mesh=processes.mesh("cpu"))
    both = torch.nn.ModuleDict({"a": distributed, "b": sharded, "c": torch.nn.ReLU()})
    mixed = torch.nn.ModuleDict({"a": distributed, "b": torch.nn.Linear(2, 2)})
    ours = kept(DistributedDataParallel(torch.nn.Linear(3, 2), processes))
    networks = distributed, sharded, both, ours, mixed, distributed.module
    found = [is_model_wrapper(each) for each in networks]
    distributed._remove_autograd_hooks()
    return found
