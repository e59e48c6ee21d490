"""What the processes of the tests do: steps on a share of a batch."""

import numpy as np
import torch

from deliralike import Network, backends, in_replicas, nest, random
from deliralike.data import Loader
from deliralike.errors import DeliralikeError
from deliralike.optim.rules import rule
from deliralike.training import Callback, Trainer
from tests.parallel import native_norms
from tests.parallel.networks import Convolutional
from tests.processes import subjects

STEPS = 2
KEPT = []  # networks that live until the process ends, as those of a script do


def batch(samples=7):
    return subjects.batch(samples)


def updates(network, optimizers, loss, share, sits_out=None):
    """The losses and the parameters after some updates by each optimizer, from the same start."""
    found = {}
    start = network.neutral_state()
    for name, make in optimizers.items():
        network.load_neutral_state(start)
        optimizer, losses = make(network), []
        for step in range(STEPS):
            with random.portable(0, step), network.training_mode(True):
                if sits_out is None:
                    result = optimizer.update(loss, *share)
                else:
                    with network.empty_share():
                        result = optimizer.update(loss, *share)
            losses.append(
                network.backend.number(
                    result[0] if isinstance(result, tuple) else result
                )
            )
        found[name] = {
            "losses": losses,
            "state": {k: v.tolist() for k, v in network.neutral_state().items()},
        }
    return found


def share_of(given, sizes, rank):
    """The samples of one process; of one that has none, those of the first sample in its place."""
    begin = sum(sizes[:rank])
    rows = slice(begin, begin + sizes[rank]) if sizes[rank] else slice(0, 1)
    return nest.map(lambda leaf: leaf[rows], given)


def train(processes, backend, sizes, in_backward=None):
    """The updates of one of several processes."""
    subject = subjects.subject(backend)
    network = backends.DistributedDataParallel(
        subject.network, processes, in_backward=in_backward
    )
    KEPT.append(network)
    share = share_of(batch(sum(sizes)), sizes, processes.rank)
    sits_out = None if sizes[processes.rank] else True
    found = updates(network, subject.optimizers, subject.loss, share, sits_out)
    return (
        found | {"sums": processes.collectives["all_reduce"]}
        if in_backward is not None
        else found
    )


def alone(backend, samples):
    """The updates of one process that sees the whole batch."""
    subject = subjects.subject(backend)
    return updates(subject.network, subject.optimizers, subject.loss, batch(samples))


class TwoPaths(Network):
    """A path that the second process alone takes, and one that nobody takes."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (self.nn.Linear(3, 2) for _ in range(3))

    def forward(self, x):
        return self.second(x) if self.backend.number(x[0, 0]) > 0 else self.first(x)


def unused(processes, backend, in_backward=None):
    """Which parameters one update moves, and those that nobody has used."""
    network = TwoPaths.on(backend, dtype="float64")()
    return moved(
        processes,
        backends.DistributedDataParallel(network, processes, in_backward=in_backward),
    )


def moved(processes, network):
    """Which parameters of `TwoPaths` one update moves, where the second process takes the second
    path."""
    optimizer = network.backend.optimizer(
        rule("sgd", lr=1.0, weight_decay=0.5), network
    )
    before = network.neutral_state()
    x = np.full((2, 3), 1.0 if processes.rank == 1 else -1.0)
    with network.training_mode(True):
        optimizer.update(lambda net, x: net.nn.sum(net(x)), x)
    after = network.neutral_state()
    return {
        "updated": sorted(optimizer.updated),
        "moved": sorted(n for n in before if (before[n] != after[n]).any()),
        "first": after["first.weight"].tolist(),
        "second": after["second.weight"].tolist(),
    }


def collectives(processes, accumulate, in_backward=None):
    """How often gradients were sent in six micro-batches."""
    subject = subjects.subject("torch")
    network = backends.DistributedDataParallel(
        subject.network, processes, in_backward=in_backward
    )
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    optimizer.accumulate = accumulate
    share = share_of(batch(7), [4, 3], processes.rank)
    with network.training_mode(True):
        for _ in range(6):
            optimizer.update(subject.loss, *share)
    return [processes.collectives["all_reduce"], optimizer.steps]


class Line(Network):
    """No buffers, so that there is nothing to tell of a step but gradients and the loss."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


def rows_of_numbers(samples):
    numbers = np.random.default_rng(5)
    return numbers.normal(size=(samples, 3)), numbers.normal(size=(samples, 2))


def squares(network, x, y):
    return network.nn.mean((network(x) - y) ** 2)


def squares_and_rows(network, x, y):
    return squares(network, x, y), x[:, 0]


def quiet(processes, sizes):
    """Steps whose shares all processes know: losses, messages, and what goes along with them."""
    network = Line.on("torch", seed=3, dtype="float64")()
    network = backends.DistributedDataParallel(network, processes, in_backward={})
    KEPT.append(network)
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    x, y = share_of(rows_of_numbers(sum(sizes)), sizes, processes.rank)
    found, before = {"names": sorted(dict(network.module.named_parameters()))}, {}
    with network.training_mode(True):
        with network.parallelism.share_sizes(sizes):
            before = processes.collectives.copy()
            found["losses"] = [float(optimizer.update(squares, x, y)) for _ in range(2)]
            found["sent"] = dict(processes.collectives - before)
            found["rows"] = optimizer.update(squares_and_rows, x, y)[1].tolist()
            if processes.rank == 1:
                processes.request("to end")
            optimizer.update(squares, x, y)
            found["agreed"] = processes.agreed
            processes.clear_request()
            optimizer.update(squares, x, y)
            found["agreed again"] = processes.agreed
            if processes.rank == 1:
                x = x * np.nan
            found["nan"] = str(float(optimizer.update(squares, x, y)))
        found["errors"] = []
        for wrong in (sizes[::-1], sizes[:1], [0] * len(sizes)):
            try:
                with network.parallelism.share_sizes(wrong):
                    optimizer.update(squares, x, y)
            except DeliralikeError as error:
                found["errors"].append(f"{type(error).__name__}: {error}")
    return found


def quiet_training(processes, transform):
    """How many messages each step of a trainer takes, with and without a transform of batches."""
    network = Line.on("torch", seed=3, dtype="float64")()
    network = backends.DistributedDataParallel(network, processes, in_backward={})
    KEPT.append(network)
    counts = []

    class Counting(Callback):
        def on_step(self, run, step):
            counts.append(processes.collectives["all_gather"])

    trainer = Trainer(
        network, rule("sgd", lr=0.1), callbacks=[Counting()], processes=processes
    )
    twice = (
        (lambda batch: nest.map(lambda leaf: np.repeat(leaf, 2, 0), batch))
        if transform
        else None
    )
    trainer.fit(Loader(rows_of_numbers(7), 3, batch_transform=twice), epochs=1)
    return np.diff(counts).tolist()


def messages(processes, backend, buffers, in_backward=None, dtype="float64"):
    """The buffers after one update, how often each kind of message was sent for it, and in which
    order.

    The convolution's weights are known, so that the statistics of a share are NumPy's to compute.
    """
    network = Convolutional.on(backend, seed=3, dtype=dtype)()
    network = backends.DistributedDataParallel(
        network, processes, buffers=buffers, in_backward=in_backward
    )
    optimizer, order = network.backend.optimizer(rule("sgd", lr=0.1), network), []
    begin, before = processes.begin_all_gather_object, processes.collectives.copy()
    processes.begin_all_gather_object = lambda topic, value: (
        order.append(topic) or begin(topic, value)
    )
    if backend == "torch":
        network.module.fc.bias.register_hook(lambda gradient: order.append("backward"))
    with network.training_mode(True):
        optimizer.update(mean_loss, *share_of(batch(7), [4, 3], processes.rank))
    sent = processes.collectives - before
    state = {
        name: value.tolist()
        for name, value in network.neutral_state().items()
        if "running" in name
    }
    return {"state": state, "sent": dict(sent), "order": order}


def started(processes):
    """The weights with which processes start whose own start values differ, and the next number of
    PyTorch's."""
    network = Convolutional.on("torch", seed=processes.rank, dtype="float64")()
    network.bn.running_mean.fill_(processes.rank)
    torch.manual_seed(processes.rank)
    network = backends.DistributedDataParallel(network, processes)
    return [
        {name: value.tolist() for name, value in network.neutral_state().items()},
        float(torch.rand(())),
    ]


class Random(Network):
    """Dropout, and no batch norm."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = (
            self.nn.Linear(70, 9),
            self.nn.Dropout(0.4),
            self.nn.Linear(9, 4),
        )

    def forward(self, x):
        return self.last(self.drop(self.nn.tanh(self.first(self.nn.flatten(x)))))


def _random(backend):
    network = Random.on(backend, seed=2, dtype="float64")()
    losses = {
        "denominator": in_replicas(subjects.sum_and_weight, "denominator"),
        "mean": mean_loss,
        "weighted mean": weighted_mean,
    }
    return network, losses


def mean_loss(network, x, labels):
    """Which declares nothing."""
    return network.nn.cross_entropy(network(x), labels, ignore_index=-1)


def weighted_mean(network, x, labels):
    """With class weights and labels that are ignored, and nothing declared."""
    scores = network(x)
    weight = network.nn.constant(np.array([1.0, 5.0, 0.2, 2.0]), scores)
    return network.nn.cross_entropy(scores, labels, weight, ignore_index=2)


def train_random(processes, backend, sizes, loss):
    """The updates of one of several processes, of a network with dropout."""
    network, losses = _random(backend)
    network = backends.DistributedDataParallel(network, processes)
    x, labels = batch(sum(sizes))
    share = share_of((x, np.abs(labels) % 4), sizes, processes.rank)
    optimizers = {"clipped sgd": subjects.clipped_sgd}
    return updates(
        network,
        optimizers,
        losses[loss],
        share,
        None if sizes[processes.rank] else True,
    )


def alone_random(backend, samples, loss):
    """The updates of one process that sees the whole batch."""
    network, losses = _random(backend)
    x, labels = batch(samples)
    return updates(
        network,
        {"clipped sgd": subjects.clipped_sgd},
        losses[loss],
        (x, np.abs(labels) % 4),
    )


def synchronised(processes):
    """A batch norm on JAX over processes."""
    network = backends.DistributedDataParallel(
        subjects.subject("jax").network, processes
    )
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    with network.training_mode(True):
        optimizer.update(subjects.subject("jax").loss, *subjects.batch(3))


def norms_of_frameworks(processes, sizes):
    """Each network that may hold a batch norm of its framework's own, after an update; or why there
    is none."""
    rows = share_of(norm_rows(sum(sizes)), sizes, processes.rank)
    found = {backend: {} for backend in native_norms.NORMS}
    for backend, of_kinds in found.items():
        for kind, make in native_norms.KINDS.items():
            try:
                network = backends.DistributedDataParallel(make(backend), processes)
                of_kinds[kind] = native_norms.stepped(network, rows)
            except DeliralikeError as error:
                of_kinds[kind] = f"{type(error).__name__}: {error}"
    return found


def norm_rows(count):
    """What goes into those batch norms."""
    return np.random.default_rng(4).normal(1, 2, size=(count, native_norms.CHANNELS))


def pending(processes, mixed):
    """Two sums under way at once, waited for in the other order; or begun in another order by the
    second process."""
    found = {}
    for dtype in ("float64", "float32", "float16", "int64"):
        layers = {
            name: [
                np.arange(k * 3, dtype=dtype).reshape(k, 3) + processes.rank,
                np.full((), k, dtype),
            ]
            for name, k in (("layers.0", 5), ("layers.1", 5))
        }
        order = list(layers)[::-1] if mixed and processes.rank == 1 else list(layers)
        under_way = {
            name: processes.begin_all_reduce(name, layers[name]) for name in order
        }
        sums = [each.wait() for each in (under_way["layers.1"], under_way["layers.0"])]
        found[dtype] = [
            [str(array.dtype), array.tolist()] for pair in sums for array in pair
        ]
    return found


def compilations_of_epochs(processes):
    """Return what XLA compiled at each step of three epochs, whose last batch is smaller."""
    import jax  # here, as the other functions need none

    compiled, by_step = [], []

    def note(event, seconds, **settings):
        if event.endswith("backend_compile_duration"):
            compiled.append(str(settings.get("fun_name")))

    class Count(Callback):
        def on_step(self, run, step):
            by_step.append([*compiled])
            compiled.clear()

    jax.monitoring.register_event_duration_secs_listener(note)
    network = (Random).on("jax", seed=4)()
    trainer = Trainer(
        network, rule("sgd", lr=0.1), callbacks=[Count()], processes=processes
    )
    inputs = np.ones((19, 70), np.float32)
    labels = np.arange(19) % 4
    trainer.fit((inputs, labels), (inputs[:9], labels[:9]), epochs=3, batch_size=8)
    return by_step
