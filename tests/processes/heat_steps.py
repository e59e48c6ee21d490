"""What the processes of the tests do: data parallelism by heat's names."""

import numpy as np
import torch

import deliralike.compat.heat as ht
from deliralike import zoo
from deliralike.optim.rules import rule
from tests.losses import mean_square_error

STEPS, SAMPLES = (
    4,
    8,
)  # shares are of equal size, and losses are means: so their mean is the loss of the whole batch
KEPT = []  # networks that live until the process ends, as those of a script do


def batches():
    rng = np.random.default_rng(5)
    return [
        (rng.normal(size=(SAMPLES, 5)), rng.normal(size=(SAMPLES, 3)))
        for _ in range(STEPS)
    ]


def share(array, processes):
    """The rows of one process; all of them without processes."""
    if processes is None:
        return array
    own = SAMPLES // processes.count
    return array[processes.rank * own : (processes.rank + 1) * own]


def listed(state):
    return {name: np.asarray(value).tolist() for name, value in state.items()}


def over(processes, inside, native, blocking=True, **settings):
    """A network and its optimizers over processes; as they are without processes."""
    if processes is None:
        return inside, native
    if isinstance(native, list):
        optimizer = [ht.optim.DataParallelOptimizer(each) for each in native]
    else:
        optimizer = ht.optim.DataParallelOptimizer(native)
    network = ht.nn.DataParallel(inside, processes, optimizer, blocking, **settings)
    KEPT.append(network)
    return network, optimizer


class Tied(torch.nn.Module):
    """Two layers of one weight, and a parameter of the network's own."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 6)
        self.inside = torch.nn.Linear(6, 6)
        self.tied = torch.nn.Linear(6, 6)
        self.tied.weight = self.inside.weight
        self.scale = torch.nn.Parameter(torch.ones(6))
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x):
        x = torch.tanh(self.first(x)) * self.scale
        x = torch.nn.functional.linear(x, self.inside.weight) + self.inside.bias
        return self.head(self.tied(x))


def tied(seed=0):
    torch.manual_seed(seed)
    return Tied().double()


def grouped(network, kind="sgd"):
    """An optimizer with two groups."""
    biases = [p for name, p in network.named_parameters() if "bias" in name]
    others = [p for name, p in network.named_parameters() if "bias" not in name]
    groups = [{"params": others}, {"params": biases, "lr": 0.05, "weight_decay": 0.0}]
    if kind == "adam":
        return torch.optim.Adam(groups, lr=0.02, weight_decay=0.1)
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.1)


def torch_states(processes, kind, blocking, clears="first", bucket_bytes=300):
    """The weights after some steps."""
    inside = tied(processes.rank if processes else 0)
    native = grouped(inside, kind)
    network, optimizer = over(
        processes, inside, native, blocking, bucket_bytes=bucket_bytes
    )
    schedule = torch.optim.lr_scheduler.StepLR(native, 2, 0.5)
    for x, y in batches():
        if clears == "first":
            optimizer.zero_grad()
        outputs = network(torch.from_numpy(share(x, processes)))
        if clears == "zeros":
            optimizer.zero_grad(set_to_none=False)
        loss = ((outputs - torch.from_numpy(share(y, processes))) ** 2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    return listed(network.state_dict())


WAYS = [("sgd", "first"), ("adam", "zeros"), ("sgd", "never")]


def torch_ways(processes):
    """Blocking and not, with gradients cleared before forward, by zeros after it, and never."""
    return [
        [torch_states(processes, kind, blocking, clears) for blocking in (True, False)]
        for kind, clears in WAYS
    ]


# Networks that are written once
# -----------------------------------------------------------------------------


def written_once(processes):
    """Steps as functions, with one of deliralike's optimizers; the learning rate changes after each
    step."""
    return [_written_once(processes, blocking) for blocking in (True, False)]


def _written_once(processes, blocking):
    settings = {"in_features": 5, "out_features": 3, "dtype": "float64"}
    seed = processes.rank if processes else 0
    network = zoo.build("mlp", backend="torch", seed=seed, **settings)
    groups = {"*.bias": {"lr": 0.02}}
    inside = network.backend.optimizer(rule("adam", lr=0.1), network, groups=groups)
    network, optimizer = over(processes, network, inside, blocking)
    network.train()
    for x, y in batches():
        optimizer.update(mean_square_error, share(x, processes), share(y, processes))
        inside.lr = inside.lr * 0.5
    return [listed(network.neutral_state()), inside.steps]


# What heat does wrong
# -----------------------------------------------------------------------------


def plain(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)
    ).double()


def made(processes, blocking):
    inside = plain()
    native = torch.optim.SGD(inside.parameters(), lr=0.1)
    network, optimizer = over(processes, inside, native, blocking, bucket_bytes=100)
    return inside, optimizer, network


def backward(network, processes, number):
    x, y = (torch.from_numpy(share(each, processes)) for each in batches()[number])
    ((network(x) - y) ** 2).mean().backward()


def two_steps(processes, blocking, between=lambda *_: None, before=lambda *_: None):
    """Two steps with something done before each of them, and after."""
    inside, optimizer, network = made(processes, blocking)
    for number in range(2):
        optimizer.zero_grad()
        backward(network, processes, number)
        before(inside, optimizer, network)
        optimizer.step()
        between(inside, optimizer, network)
    return inside, optimizer, network


def clip_inside(inside, optimizer, network):
    torch.nn.utils.clip_grad_norm_(inside.parameters(), 0.1)


def clip_network(inside, optimizer, network):
    torch.nn.utils.clip_grad_norm_(network.parameters(), 0.1)


def other_rate(inside, optimizer, network):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5


def evaluate(inside, optimizer, network):
    network.eval()
    network.train()


ACTIONS = {
    "clips the module": {"before": clip_inside},
    "clips the network": {"before": clip_network},
    "changes the rate after the step": {"between": other_rate},
    "evaluates after each step": {"between": evaluate},
}


def flaws(processes):
    """Each with blocking updates and without."""
    found = {}
    for name, action in ACTIONS.items():
        found[name] = [
            listed(two_steps(processes, blocking, **action)[2].state_dict())
            for blocking in (True, False)
        ]
    found["several optimizers"] = several_optimizers(processes)
    found["two paths"] = [two_paths(processes, blocking) for blocking in (True, False)]
    found["messages"] = messages(processes)
    found["short"] = [short(processes, blocking) for blocking in (True, False)]
    found["two backward passes"] = [
        two_backward(processes, blocking) for blocking in (True, False)
    ]
    return found


def several_optimizers(processes):
    """The weights after two steps of two optimizers, each of one layer."""
    inside = plain()
    natives = [torch.optim.SGD(inside[place].parameters(), lr=0.1) for place in (0, 2)]
    network, optimizers = over(processes, inside, natives, False)
    for number in range(2):
        backward(network, processes, number)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return listed(network.state_dict())


class TwoPaths(torch.nn.Module):
    """Layers of equal shape: the root takes the first, another process the second, and nobody the
    third."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (
            torch.nn.Linear(3, 2, bias=False).double() for _ in range(3)
        )

    def forward(self, x, path):
        return (self.first if path == 0 else self.second)(x)


def two_paths(processes, blocking):
    torch.manual_seed(0)
    inside = TwoPaths()
    optimizer = ht.optim.DataParallelOptimizer(
        torch.optim.SGD(inside.parameters(), lr=1.0, weight_decay=0.5)
    )
    network = ht.nn.DataParallel(inside, processes, optimizer, blocking, bucket_bytes=1)
    KEPT.append(network)
    before = listed(network.state_dict())
    network(
        torch.full((1, 3), 2.0 + processes.rank).double(), processes.rank
    ).sum().backward()
    optimizer.step()
    return [before, listed(network.state_dict())]


def messages(processes):
    """How many sums three steps take, and which exchanges."""
    found = []
    for blocking in (True, False):
        before = dict(processes.collectives)
        inside, optimizer, network = made(processes, blocking)
        for number in range(3):
            optimizer.zero_grad()
            backward(network, processes, number)
            optimizer.step()
        now = processes.collectives
        found.append(
            [
                now["all_reduce"] - before.get("all_reduce", 0),
                now["all_gather"] - before.get("all_gather", 0),
            ]
        )
    return found


def short(processes, blocking):
    """Gradients of float32 on the wire as bfloat16."""
    torch.manual_seed(0)
    inside = torch.nn.Linear(5, 40)
    optimizer = ht.optim.DataParallelOptimizer(
        torch.optim.SGD(inside.parameters(), lr=1.0)
    )
    network = ht.nn.DataParallel(
        inside, processes, optimizer, blocking, wire="bfloat16"
    )
    before = {name: p.clone() for name, p in network.state_dict().items()}
    torch.manual_seed(processes.rank)
    factors = torch.randn(40)
    (network(torch.ones(1, 5)) * factors).sum().backward()
    own = {"weight": factors[:, None].expand(40, 5), "bias": factors}
    optimizer.step()
    moved = {
        name: (before[name] - p).detach() for name, p in network.named_parameters()
    }
    return [listed(moved), listed(own)]


def two_backward(processes, blocking):
    """Gradients that add up over two passes before a step."""
    inside, optimizer, network = made(processes, blocking)
    for _ in range(2):
        optimizer.zero_grad()
        for number in range(2):
            backward(network, processes, number)
        outputs = [
            network(torch.from_numpy(share(batches()[number][0], processes)))
            for number in (2, 3)
        ]
        for output in outputs:  # without a forward pass between them
            (output**2).mean().backward()
        optimizer.step()
    return listed(network.state_dict())


def other_layer_frozen(processes):
    """Processes that train different layers of one shape."""
    inside = TwoPaths()
    (inside.first if processes.rank else inside.second).requires_grad_(False)
    optimizer = ht.optim.DataParallelOptimizer(
        torch.optim.SGD(inside.parameters(), lr=1.0)
    )
    network = ht.nn.DataParallel(inside, processes, optimizer, True, bucket_bytes=1)
    network(torch.ones(1, 3).double(), processes.rank).sum().backward()
