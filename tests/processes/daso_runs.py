"""What the processes of the tests do: DASO over nodes of two, and the same run in NumPy alone."""

import pickle

import numpy as np
import torch

import deliralike.compat.heat as ht
from deliralike import DistributedDataParallel, Network, backends
from deliralike.errors import ProcessError
from deliralike.optim.rules import rule
from deliralike.parallel import AveragedUpdates, Nodes, Plan
from tests.processes import averaging

NODES, MEMBERS = 2, 2
EPOCHS, BATCHES, SAMPLES = 14, 9, 3
WARMUP, COOLDOWN = 1, 1
RATE, MOMENTUM = 0.1, 0.9
KEPT = []  # optimizers that live until the process ends, as those of a script do


class Small(Network):
    """Two layers: so small that NumPy's derivatives can be written down."""

    def __init__(self):
        super().__init__()
        self.first, self.last = self.nn.Linear(3, 5), self.nn.Linear(5, 2)

    def forward(self, x):
        return self.last(self.nn.tanh(self.first(x)))


class Normed(Network):
    """With running statistics."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = (
            self.nn.Linear(3, 5),
            self.nn.BatchNorm1d(5),
            self.nn.Linear(5, 2),
        )

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


def share(rank, epoch, batch):
    """What one process sees in a batch; each has data of another kind, so that their networks go
    apart."""
    generator = np.random.default_rng([rank, epoch, batch])
    x = generator.normal(size=(SAMPLES, 3)) + 0.3 * rank
    return x, np.stack([np.sin(x[:, 0] + rank), x[:, 1] * x[:, 2]], axis=1)


def squares(network, x, y):
    return network.nn.mean((network(x) - y) ** 2)


def numbers(network):
    return np.concatenate(
        [value.ravel() for value in network.neutral_state().values()]
    ).tolist()


# By heat's names
# -----------------------------------------------------------------------------


def native_optimizer(network):
    """PyTorch's or Chainer's own."""
    if network.backend.name == "torch":
        return torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM)
    return (
        backends.get("chainer")
        .optimizer(rule("sgd", lr=RATE, momentum=MOMENTUM), network)
        .native
    )


def heat(processes, network, largest=8, local_factor=4, **settings):
    given = {
        "total_epochs": EPOCHS,
        "warmup_epochs": WARMUP,
        "cooldown_epochs": COOLDOWN,
        "comm": processes,
        "max_global_skips": largest,
        "local_skip_factor": local_factor,
        "members": MEMBERS,
    }
    optimizer = ht.optim.DASO(native_optimizer(network), **(given | settings))
    optimizer.last_batch = BATCHES
    KEPT.append(optimizer)
    return ht.nn.DataParallelMultiGPU(network, optimizer), optimizer


def step(model, optimizer, x, y):
    """One batch, as users of heat write it."""
    backend = model.module.backend
    optimizer.zero_grad()
    loss = squares(model, *backend.prepare((x, y), model.module))
    loss.backward()
    optimizer.step()


def by_heats_names(processes, backend, largest, local_factor):
    """The numbers of the network after each batch; every process starts with other ones."""
    network = Small.on(backend, seed=processes.rank, dtype="float64")()
    model, optimizer = heat(
        processes, network, largest, local_factor, sending_chunk_size=5
    )
    found = []
    for epoch in range(EPOCHS):
        for batch in range(BATCHES):
            step(model, optimizer, *share(processes.rank, epoch, batch))
            found.append(numbers(network))
        optimizer.epoch_loss_logic(1.0)
    return found


# By optimizers of ours
# -----------------------------------------------------------------------------


def by_updates(processes, backend, largest, local_factor):
    """The same."""
    nodes = Nodes(processes, MEMBERS)
    network = Small.on(backend, seed=processes.rank, dtype="float64")()
    network = DistributedDataParallel(network, nodes.node)
    optimizer = network.backend.optimizer(
        rule("sgd", lr=RATE, momentum=MOMENTUM), network
    )
    plan = Plan(EPOCHS, WARMUP, COOLDOWN, largest, local_factor=local_factor)
    averages = AveragedUpdates(optimizer, nodes, plan, BATCHES)
    found = []
    for epoch in range(EPOCHS):
        for batch in range(BATCHES):
            optimizer.update(squares, *share(processes.rank, epoch, batch))
            found.append(numbers(network))
        averages.end_epoch(1.0)
    return found


def runs(processes, jobs):
    """Some of these runs, one after the other."""
    return [globals()[how](processes, backend, *cycle) for how, backend, cycle in jobs]


# In NumPy
# -----------------------------------------------------------------------------


def in_numpy(paces):
    """The numbers of all processes after each batch, given (B, W, L) of each epoch."""
    start = np.array(numbers(Small.on("torch", seed=0, dtype="float64")()))
    ranks = range(NODES * MEMBERS)
    own, speed = [start.copy() for _ in ranks], [np.zeros_like(start) for _ in ranks]
    found, turn = [[] for _ in ranks], 0
    for epoch, (between, wait, local) in enumerate(paces):
        sent = []  # (batch, due, member, sum)
        for batch in range(BATCHES):
            last = batch == BATCHES - 1
            slopes = [_slope(own[rank], *share(rank, epoch, batch)) for rank in ranks]
            if last or sent or batch % between == 0 or batch % local == 0:
                slopes = [
                    sum(slopes[rank // MEMBERS * MEMBERS :][:MEMBERS]) / MEMBERS
                    for rank in ranks
                ]
            for rank in ranks:
                speed[rank] = MOMENTUM * speed[rank] + slopes[rank]
                own[rank] = own[rank] - RATE * speed[rank]
            for each in [each for each in sent if each[1] == batch]:
                _merge(own, *each, batch)
                sent.remove(each)
            if last or batch % between == 0:
                member = turn % MEMBERS
                total = sum(own[node * MEMBERS + member] for node in range(NODES))
                new = (batch, min(batch + wait, BATCHES - 1), member, total)
                turn += 1
                if new[1] == batch:
                    _merge(own, *new, batch)
                else:
                    sent.append(new)
            for rank in ranks:
                found[rank].append(own[rank].copy())
        assert not sent
    return found


def _merge(own, sent_at, due, member, total, batch):
    waited = batch - sent_at
    for node in range(NODES):
        new = (2 * waited * own[node * MEMBERS + member] + total) / (NODES + 2 * waited)
        for rank in range(node * MEMBERS, (node + 1) * MEMBERS):
            own[rank] = new.copy()


def _slope(flat, x, y):
    """The gradient of the mean squared error of `Small`, by hand."""
    weight, bias, weight_2, bias_2 = np.split(flat, [15, 20, 30])
    weight, weight_2 = weight.reshape(5, 3), weight_2.reshape(2, 5)
    hidden = np.tanh(x @ weight.T + bias)
    error = 2 * (hidden @ weight_2.T + bias_2 - y) / y.size
    inner = (error @ weight_2) * (1 - hidden**2)
    parts = [inner.T @ x, inner.sum(0), error.T @ hidden, error.sum(0)]
    return np.concatenate([part.ravel() for part in parts])


# The rest
# -----------------------------------------------------------------------------


def resumed(processes):
    """The numbers of a run of three epochs, and of one that was broken off in the second, with a
    sum under way."""
    whole, broken = [], []
    for stops, found in ((None, whole), (BATCHES + 5, broken)):
        network = Small.on("torch", dtype="float64")()
        model, optimizer = heat(processes, network, 4, 1)
        for made in range(3 * BATCHES):
            if made == stops:
                states = (
                    network.state_dict(),
                    optimizer.local_optimizer.state_dict(),
                    optimizer.state_dict(),
                )
                under_way = len(optimizer.averages.state.under_way)
                of_network, of_optimizer, of_daso = pickle.loads(pickle.dumps(states))
                network = Small.on("torch", seed=7, dtype="float64")()
                model, optimizer = heat(processes, network, 4, 1)
                network.load_state_dict(of_network)
                optimizer.local_optimizer.load_state_dict(of_optimizer)
                optimizer.load_state_dict(of_daso)
            epoch, batch = divmod(made, BATCHES)
            step(model, optimizer, *share(processes.rank, epoch, batch))
            found.append(numbers(network))
            if batch == BATCHES - 1:
                optimizer.epoch_loss_logic(1.0)
    return {"same": whole == broken, "under way": under_way, "last": whole[-1]}


def statistics(processes):
    """The state after each batch of a network with running statistics."""
    network = Normed.on("torch", seed=1, dtype="float64")()
    model, optimizer = heat(processes, network)
    found = []
    for epoch in range(3):
        for batch in range(BATCHES):
            step(model, optimizer, *share(processes.rank, epoch, batch))
            found.append(
                {
                    name: value.tolist()
                    for name, value in network.neutral_state().items()
                }
            )
        optimizer.epoch_loss_logic(1.0)
    return found


def on_the_wire(processes, wire):
    """Numbers before and after a blocking average whose messages have another type."""
    network = Small.on("torch", dtype="float64")()
    model, optimizer = heat(processes, network, downcast_type=wire)
    before = []
    send = optimizer.averages._send
    optimizer.averages._send = lambda sent: (
        before.extend(numbers(network)),
        send(sent),
    )
    step(model, optimizer, *share(processes.rank, 0, 0))
    return [before, numbers(network)]


def not_finite(processes, epoch, batch):
    """What a process is told where the last one has samples that are not finite, and in which batch
    of the run."""
    network = Small.on("torch", dtype="float64")()
    model, optimizer = heat(processes, network)
    for made in range(3 * BATCHES):
        at = divmod(made, BATCHES)
        x, y = share(processes.rank, *at)
        x = x * np.nan if processes.rank == 3 and at == (epoch, batch) else x
        try:
            step(model, optimizer, x, y)
        except ProcessError as error:
            return [str(error), made]
        if at[1] == BATCHES - 1:
            optimizer.epoch_loss_logic(1.0)
    return []


def epochs(processes, told, made, backend="torch"):
    """The numbers after three epochs, each of as many batches in each process as are told."""
    network = Small.on(backend, dtype="float64")()
    model, optimizer = heat(processes, network)
    optimizer.last_batch = told[processes.rank]
    for epoch in range(3):
        for batch in range(made[processes.rank]):
            step(model, optimizer, *share(processes.rank, epoch, batch))
        optimizer.epoch_loss_logic(1.0)
    return numbers(network)


def other_lengths(processes):
    """What a process is told where epochs differ in length."""
    try:
        epochs(processes, [5, 5, 5, 4], [5, 5, 5, 4])
    except ProcessError as error:
        return str(error)
    return ""


def clipped(processes):
    """The gradients that something sees between backward and the update."""
    network = Small.on("torch", dtype="float64")()
    model, optimizer = heat(processes, network)
    own = []
    squares(model, *map(torch.from_numpy, share(processes.rank, 0, 0))).backward()
    for average in (
        lambda: None,
        optimizer.average_gradients,
        optimizer.average_gradients,
    ):
        average()
        own.append(network.first.bias.grad.tolist())
    return own


def scaled(processes):
    """The numbers after a batch whose loss each process scales by a number of its own."""
    network = Small.on("torch", dtype="float64")()
    model, optimizer = heat(processes, network)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (8 + processes.rank))
    optimizer.add_scaler(scaler)
    scaler.scale(
        squares(model, *map(torch.from_numpy, share(processes.rank, 0, 0)))
    ).backward()
    optimizer.step()
    return numbers(network)


def various(processes):
    """All of these, in one start."""
    return {
        "resumed": resumed(processes),
        "statistics": statistics(processes),
        "halves": on_the_wire(processes, torch.half),
        "bfloat16": on_the_wire(processes, torch.bfloat16),
        "not finite": [not_finite(processes, 0, 4), not_finite(processes, 1, 2)],
        "other lengths": other_lengths(processes),
        "clipped": clipped(processes),
        "scaled": scaled(processes),
        "turned": turned(processes),
    }


def turned(processes):
    """Complex numbers after an epoch, whose messages have a shorter type."""
    nodes = Nodes(processes, MEMBERS)
    network = DistributedDataParallel(averaging.Turned(), nodes.node)
    optimizer = network.backend.optimizer(rule("sgd", lr=RATE), network)
    averages = AveragedUpdates(optimizer, nodes, Plan(EPOCHS), BATCHES, wire="float32")
    for batch in range(BATCHES):
        optimizer.update(averaging.turned_loss, *share(processes.rank, 0, batch))
    averages.end_epoch(1.0)
    state = network.neutral_state().items()
    return {name: value.view(float).tolist() for name, value in state}
