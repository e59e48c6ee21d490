"""The names that PyTorch's users know, with their signatures: on CPU devices, against the module on
one device."""

import copy

import pytest
import torch
from torch import nn

import deliralike
from deliralike.backends import torch as names
from deliralike.backends.torch import (
    BACKEND,
    DataParallelTorchNetwork,
    DataParallelTorchOptimizer,
)
from deliralike.errors import (
    ArgumentError,
    CapabilityError,
)
from deliralike.optim.rules import SGD, rule


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(3)


def batch(samples=7, features=3):
    return torch.randn(samples, features, dtype=torch.float64)


def network(*more):
    return nn.Sequential(nn.Linear(3, 4), *more, nn.Tanh(), nn.Linear(4, 2)).double()


def squared(net, x):
    return (net(x) ** 2).mean()


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)


# Gradients
# -----------------------------------------------------------------------------


class Leaves(nn.Module):
    """Leaf tensors that are no parameters of the module: a buffer, an attribute, two in a list."""

    def __init__(self):
        super().__init__()
        self.register_buffer("offset", torch.ones(3, requires_grad=True))
        self.factor = torch.full((3,), 2.0, requires_grad=True)
        self.kept = [torch.ones(3, requires_grad=True), nn.Parameter(torch.ones(3))]
        self.fixed = torch.ones(3)

    def forward(self, rows):
        return (
            (rows * self.factor + self.offset)
            * self.kept[0]
            * self.kept[1]
            * self.fixed
        )

    def leaves(self):
        return {
            "offset": self.offset,
            "factor": self.factor,
            "kept.0": self.kept[0],
            "kept.1": self.kept[1],
        }


def test_leaves_that_are_buffers_or_attributes_get_the_whole_gradient():
    """That of ``sum((x f + o) k l)`` over seven rows, twice, by hand, where f is 2 and the others
    are 1."""
    module, rows = Leaves(), torch.arange(21.0).reshape(7, 3)
    parallel = DataParallelTorchNetwork(module, ["cpu"] * 3, buffers="mean")
    for _ in range(2):
        parallel(rows).sum().backward()
    total = 2 * rows.sum(0)
    kept = 2 * total + 14
    wanted = {
        "offset": torch.full((3,), 14.0),
        "factor": total,
        "kept.0": kept,
        "kept.1": kept,
    }
    same({name: leaf.grad for name, leaf in module.leaves().items()}, wanted)


def test_sparse_gradients_reach_the_module():
    """Token k is seen k times, so its row gets k."""
    table = nn.Embedding(5, 3, sparse=True)
    tokens = torch.tensor([1, 4, 2, 4, 3, 4, 2, 4, 3, 3])
    DataParallelTorchNetwork(table, ["cpu"] * 3)(tokens).sum().backward()
    assert table.weight.grad.is_sparse
    assert torch.equal(
        table.weight.grad.to_dense(), torch.arange(5.0)[:, None].expand(5, 3)
    )


# The optimizer
# -----------------------------------------------------------------------------


def replicated(count=3, *more):
    plain = network(*more)
    return plain, DataParallelTorchNetwork(copy.deepcopy(plain), ["cpu"] * count)


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "Adagrad": (torch.optim.Adagrad, {}),
}


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_ordinary_loop_trains_as_on_one_device(optimizer, options):
    plain, parallel = replicated()
    ours = DataParallelTorchOptimizer.from_optimizer_class(
        optimizer, parallel, **options
    )
    theirs = optimizer(plain.parameters(), **options)
    schedules = [
        torch.optim.lr_scheduler.StepLR(each, 2, 0.5) for each in (ours, theirs)
    ]
    for _ in range(5):
        x = batch()
        for net, each in ((parallel, ours), (plain, theirs)):
            each.zero_grad()
            squared(net, x).backward()
            each.step()
        for schedule in schedules:
            schedule.step()
    same(parallel.state_dict(), plain.state_dict())
    assert (
        ours.param_groups[0]["lr"]
        == theirs.param_groups[0]["lr"]
        < options.get("lr", 0.01)
    )
    for replica in parallel.replicas[1:]:
        same(replica.native.state_dict(), dict(parallel.state_dict()))


def test_it_is_an_optimizer_of_pytorchs_whose_attributes_can_be_read_and_set():
    _, parallel = replicated()
    inner = torch.optim.SGD(parallel.parameters(), lr=0.1)
    optimizer = DataParallelTorchOptimizer(inner, parallel)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.defaults["lr"] == 0.1
    optimizer.defaults = {"lr": 0.2}
    assert inner.defaults == {"lr": 0.2}
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 1.0})
    assert len(inner.param_groups) == 2
    assert repr(optimizer).startswith("DataParallelTorchOptimizer(SGD (")


def test_hooks_registered_later_see_the_accumulated_gradients():
    plain, parallel = replicated()
    optimizer, seen = (
        DataParallelTorchOptimizer.from_optimizer_class(
            torch.optim.SGD, parallel, lr=0.1
        ),
        [],
    )
    optimizer.register_step_pre_hook(
        lambda *_: seen.append(parallel.module[0].weight.grad.clone())
    )
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    x = batch()
    squared(parallel, x).backward()
    squared(plain, x).backward()
    optimizer.step()
    torch.testing.assert_close(seen[0], plain[0].weight.grad, rtol=1e-12, atol=1e-12)
    assert seen[1:] == ["after"]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_reaches_every_replica(set_to_none):
    plain, parallel = replicated()
    ours = DataParallelTorchOptimizer.from_optimizer_class(
        torch.optim.SGD, parallel, lr=0.1
    )
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    for net, each in ((parallel, ours), (plain, theirs)):
        squared(net, torch.ones(5, 3).double()).backward()
        each.zero_grad(set_to_none)
        squared(net, torch.ones(4, 3).double() * 2).backward()
        each.step()
    same(parallel.state_dict(), plain.state_dict())


def test_a_closure_is_accumulated_each_time_that_it_is_called():
    plain, parallel = replicated()
    x, losses = batch(), []
    for net in (parallel, plain):
        options = {"max_iter": 5, "line_search_fn": "strong_wolfe"}
        optimizer = torch.optim.LBFGS(net.parameters(), **options)
        optimizer = (
            DataParallelTorchOptimizer(optimizer, parallel)
            if net is parallel
            else optimizer
        )

        def closure(net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = squared(net, x)
            loss.backward()
            return loss

        losses.append([optimizer.step(closure).item() for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-8)
    assert losses[0][-1] < losses[0][0] / 10
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(
            parallel.state_dict()[name], value, rtol=1e-6, atol=1e-8
        )


def test_over_a_part_of_a_network_it_leaves_the_rest_alone():
    plain, parallel = replicated()
    x = batch()
    results = []
    for net, module in ((parallel, parallel.module), (plain, plain)):
        parts = [module[0].parameters(), module[2].parameters()]
        each = [torch.optim.SGD(part, lr=0.1) for part in parts]
        if net is parallel:
            each = [DataParallelTorchOptimizer(one, parallel) for one in each]
        for step in range(4):
            each[step % 2].zero_grad()
            squared(net, x).backward()
            each[step % 2].step()
        results.append(module.state_dict())
    same(*results)


def test_behind_the_neutral_interface_nothing_is_accumulated_twice():
    plain, parallel = replicated()
    inner = DataParallelTorchOptimizer.from_optimizer_class(
        torch.optim.SGD, parallel, lr=0.1
    )
    ours = BACKEND.wrap_optimizer(inner, parallel)
    theirs, x = BACKEND.optimizer(SGD(lr=0.1), BACKEND.wrap(plain)), batch()
    for _ in range(3):
        ours.update(squared, x)
        theirs.update(squared, x)
    same(dict(parallel.state_dict()), dict(plain.state_dict()))


def test_what_is_no_optimizer_is_refused():
    _, parallel = replicated()
    with pytest.raises(
        ArgumentError, match=r"wants an optimizer, not <class .*SGD'>: give one that"
    ):
        DataParallelTorchOptimizer(torch.optim.SGD, parallel)
    with pytest.raises(ArgumentError, match="wants a class of torch.optim, not None"):
        DataParallelTorchOptimizer.from_optimizer_class(None, parallel)
    with pytest.raises(
        RuntimeError, match="wants an optimizer, not None"
    ):  # as delira has it
        DataParallelTorchOptimizer(None, parallel)


def test_names_and_errors_of_the_ancestors():
    assert names.DataParallelPyTorchNetwork(nn.Linear(3, 2), ["cpu", "cpu"], "cpu", 0)(
        torch.ones(5, 3)
    ).shape == (5, 2)
    with pytest.raises(RuntimeError, match="'cuda:99'"):  # as PyTorch has it
        deliralike.DataParallel(nn.Linear(3, 2), ["cuda:99", "cpu"])


# Replicas within replicas
# -----------------------------------------------------------------------------


def test_a_replicated_block_inside_a_larger_network_is_refused_by_an_optimizer_over_the_whole():
    whole = torch.nn.Sequential(
        DataParallelTorchNetwork(torch.nn.Linear(3, 2), ["cpu", "cpu"]), torch.nn.ReLU()
    )
    network = deliralike.wrap(whole)
    with pytest.raises(
        CapabilityError,
        match="the block '0' of WrappedTorchNetwork is replicated by itself",
    ):
        network.backend.optimizer(rule("sgd", lr=0.1), network)
