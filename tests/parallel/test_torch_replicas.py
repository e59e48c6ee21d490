"""Replicated networks on PyTorch: what only a ``torch.nn.Module`` has, against the same module on
one device."""

import copy
import dataclasses
import threading

import pytest
import torch
from torch import nn

from deliralike import backends, in_replicas
from deliralike.backends.torch import (
    DataParallelTorchNetwork,
    DataParallelTorchOptimizer,
)
from deliralike.errors import CapabilityError, DeviceError, ReplicaError, ShapeError
from deliralike.network import build
from deliralike.optim.loss import LossResult
from deliralike.optim.rules import SGD
from deliralike.parallel.batches.scatter import Shares
from tests.arrays import same_named

BACKEND = backends.get("torch")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(3)


def batch(samples=7, features=3):
    return torch.randn(samples, features, dtype=torch.float64)


def layers(*modules):
    return nn.Sequential(*modules).double()


def over(module, count=3, **settings):
    return DataParallelTorchNetwork(module, ["cpu"] * count, **settings)


def squared(network, x):
    return (network(x) ** 2).mean()


LOSSES = {"gathered": squared, "in replicas": in_replicas(squared)}
both_losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def trained(network, loss, x, steps=3, **rule):
    """The state after some steps."""
    network = BACKEND.wrap(network)
    optimizer = BACKEND.optimizer(SGD(lr=0.1, **({"momentum": 0.9} | rule)), network)
    for _ in range(steps):
        optimizer.update(loss, x)
    return network.neutral_state()


def same_training(
    module, x, loss, count=3, steps=3, tolerance=1e-12, rule=None, **settings
):
    """Replicas train a module to the same state as one device."""
    network = over(copy.deepcopy(module), count, **settings)
    wanted = trained(module, squared, x, steps, **rule or {})
    same_named(
        trained(network, loss, x, steps, **rule or {}), wanted, tolerance=tolerance
    )
    return network


class Watched(nn.Module):
    """Notes what it sees in each replica."""

    def __init__(self, look):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.look, self.seen = look, []

    def forward(self, x):
        self.seen.append(self.look(self))
        return self.fc(x)


# Storage, structure
# -----------------------------------------------------------------------------


def test_it_is_a_module_with_the_names_of_the_one_given():
    module = layers(nn.Linear(3, 4), nn.BatchNorm1d(4))
    network = over(module)
    assert list(network.state_dict()) == list(module.state_dict())
    assert (
        dict(network.named_parameters()).keys()
        == dict(module.named_parameters()).keys()
    )
    assert dict(network.named_buffers()).keys() == dict(module.named_buffers()).keys()
    assert list(network.modules()) == list(module.modules())
    assert list(network.children()) == list(module.children())
    assert network.get_submodule("1") is module[1]
    assert repr(network).startswith(
        "DataParallelTorchNetwork(\n  devices=['cpu', 'cpu', 'cpu']"
    )


def test_as_a_part_of_a_larger_module_it_is_saved_and_loaded_with_it():
    larger = nn.ModuleDict({"inside": over(layers(nn.Linear(3, 2), nn.BatchNorm1d(2)))})
    other = nn.ModuleDict({"inside": layers(nn.Linear(3, 2), nn.BatchNorm1d(2))})
    other["inside"][1].running_mean.fill_(3.0)
    assert list(larger.state_dict()) == list(other.state_dict())
    larger.load_state_dict(other.state_dict())
    larger.eval()
    x = batch()
    assert torch.equal(larger["inside"](x), other.eval()["inside"](x))
    assert not any(replica.training for replica in larger["inside"].replicas)


def test_hooks_on_the_wrapper_run_once_for_the_whole_batch():
    network, seen = over(layers(nn.Linear(3, 2))), []
    network.register_forward_hook(
        lambda module, args, output: seen.append((module, len(output)))
    )
    network(batch(7))
    assert seen == [(network, 7)]


def test_changing_the_type_reaches_every_replica():
    network = over(layers(nn.Linear(3, 2))).float()
    assert network(batch().float()).dtype == torch.float32
    assert network.double()(batch()).dtype == torch.float64
    assert {p.dtype for replica in network.replicas for p in replica.parameters()} == {
        torch.float64
    }


def test_moving_it_to_another_device_is_refused():
    network = over(layers(nn.Linear(3, 2)))
    with pytest.raises(
        DeviceError,
        match=r"stay on their devices, \['cpu', 'cpu', 'cpu'\]; to use 'meta' move the",
    ):
        network.to("meta")
    assert network.module[0].weight.device.type == "cpu"


def test_a_module_on_another_device_than_the_first_is_refused():
    with pytest.raises(
        DeviceError,
        match=r"the network is on 'meta', the first device is 'cpu': move it there, or build",
    ):
        over(nn.Linear(3, 2, device="meta"))


def test_all_parameters_are_frozen_and_thawed_in_every_replica():
    network = over(layers(nn.Linear(3, 2)))
    for flag in (False, True):
        network.requires_grad_(flag)
        parameters = [p for replica in network.replicas for p in replica.parameters()]
        assert [parameter.requires_grad for parameter in parameters] == [flag] * 6


def test_torchscript_modules_are_refused():
    class Scripted(torch.jit.ScriptModule):
        pass

    with pytest.raises(
        CapabilityError,
        match="of TorchScript cannot be replicated: replicate the module that it was",
    ):
        over(nn.Sequential(Scripted(), nn.Linear(3, 2)))


# Hooks and reparametrisations
# -----------------------------------------------------------------------------


def test_a_hook_that_is_a_method_gets_the_replicas_own_object():
    class Hooked(nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            self.register_forward_hook(self.check)

        def check(self, module, args, output):
            assert self is module

    over(Hooked())(torch.ones(3, 3))


def _clamped(weight, seen):
    """Keep the whole gradient's numbers between -1 and 1."""

    def clamp(gradient):
        seen.append(gradient.clone())
        return gradient.clamp(-1, 1)

    return weight.register_hook(clamp)


def _halved(weight, seen):
    """Halve the whole gradient once it is there."""

    def halve(parameter):
        seen.append(parameter.grad.clone())
        parameter.grad.mul_(0.5)

    return weight.register_post_accumulate_grad_hook(halve)


GRADIENT_HOOKS = {
    "register_hook": (_clamped, 1.0),
    "register_post_accumulate_grad_hook": (_halved, 10.5),
}
LOOPS = {
    "gathered": lambda network, x: BACKEND.optimizer(SGD(lr=1.0), network).update(
        summed, x
    ),
    "in replicas": lambda network, x: BACKEND.optimizer(SGD(lr=1.0), network).update(
        in_replicas(summed, "sum"), x
    ),
    "PyTorch's loop": lambda network, x: stepped(network, x),
}


def summed(network, x):
    return network(x).sum()


def stepped(network, x):
    optimizer = DataParallelTorchOptimizer.from_optimizer_class(
        torch.optim.SGD, network, lr=1.0
    )
    network(x).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize(("hook", "step"), GRADIENT_HOOKS.values(), ids=GRADIENT_HOOKS)
def test_hooks_of_parameters_act_once_on_the_gradient_of_the_whole_batch(
    hook, step, run
):
    """Rows 0 to 6 in shares of 3, 2 and 2: the whole gradient is 21, of which a hook leaves 1, or
    half."""
    module, seen, x = (
        nn.Linear(1, 1, bias=False).double(),
        [],
        torch.arange(7.0).double()[:, None],
    )
    network = over(module)
    handle, before = hook(module.weight, seen), module.weight.item()
    for number in (1, 2):
        run(network, x)
        assert [gradient.item() for gradient in seen] == [21.0] * number
        assert before - module.weight.item() == pytest.approx(number * step)
        network.zero_grad()
    handle.remove()
    run(network, x)
    assert len(seen) == 2
    assert before - module.weight.item() == pytest.approx(2 * step + 21.0)
    assert [replica.native.weight.item() for replica in network.replicas] == [
        module.weight.item()
    ] * 3


def test_gradients_from_before_a_hook_are_kept_and_untouched_by_it():
    module, x = (
        nn.Linear(1, 1, bias=False).double(),
        torch.arange(7.0).double()[:, None],
    )
    network = over(module)
    network(x).sum().backward()
    module.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    network(x).sum().backward()
    DataParallelTorchOptimizer(
        torch.optim.SGD(network.parameters()), network
    ).accumulate()
    assert module.weight.grad.item() == 21.0 + 1.0


# Lazily shaped parameters
# -----------------------------------------------------------------------------


def test_making_lazy_parameters_leaves_other_buffers_alone():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.LazyLinear(2)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.calls = self.calls + 1
            return self.fc(x)

    network = over(Counting())
    network(batch().float())
    assert int(network.module.calls) == 1
    assert network.training
    assert network.module.fc.training


def test_a_network_without_shapes_is_changed_and_loaded_before_its_first_call():
    def lazy():
        return nn.Sequential(nn.Linear(3, 4), nn.LazyBatchNorm1d()).double()

    network, single = over(lazy(), buffers="sync"), lazy()
    for module in (network, single):
        module.apply(lambda part: None)
        module.load_state_dict({"0.bias": torch.ones(4)}, strict=False)
        module.load_state_dict({"0.weight": torch.ones(4, 3)}, strict=False)
        module.eval().train()
    x = batch()
    torch.testing.assert_close(network(x), single(x))
    torch.testing.assert_close(network.state_dict(), single.state_dict())


# What threads have of their own
# -----------------------------------------------------------------------------


MODES = {
    "no_grad": (torch.no_grad, lambda _: torch.is_grad_enabled(), False),
    "inference": (
        torch.inference_mode,
        lambda _: torch.is_inference_mode_enabled(),
        True,
    ),
    "autocast": (
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda _: torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        torch.bfloat16,
    ),
    "autocast cache": (
        lambda: torch.autocast("cpu", cache_enabled=False),
        lambda _: torch.is_autocast_cache_enabled(),
        False,
    ),
    "autocast on GPUs": (
        lambda: torch.autocast(
            "cuda", dtype=torch.float16, enabled=torch.cuda.is_available()
        ),
        lambda _: torch.is_autocast_enabled("cuda"),
        torch.cuda.is_available(),
    ),
    "default device": (
        lambda: torch.device("meta"),
        lambda _: torch.empty(1).device.type,
        "meta",
    ),
    "anomaly": (
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda _: torch.is_anomaly_enabled(),
        True,
    ),
}


@pytest.mark.parametrize(("context", "look", "wanted"), MODES.values(), ids=MODES)
@pytest.mark.filterwarnings(
    "ignore:Anomaly Detection", "ignore:User provided device_type of 'cuda'"
)
def test_modes_of_the_calling_thread_hold_in_replicas(context, look, wanted):
    network, x = over(Watched(look)), torch.ones(6, 3)
    with context():
        network(x)
    assert network.module.seen == [wanted] * 3


def test_lstms_of_float16_are_computed_in_float32_in_the_replicas_threads_too():
    """CPUs have none of float16."""

    class States(nn.LSTM):
        def forward(self, x):
            return super().forward(x)[0]

    single = States(3, 4, batch_first=True)
    losses = []
    for network in (BACKEND.wrap(copy.deepcopy(single)), over(single)):
        optimizer = BACKEND.optimizer(SGD(lr=0.1), network)
        optimizer.compute_in("float16")
        x = torch.linspace(-1, 1, 7 * 2 * 3).reshape(7, 2, 3)
        losses.append(optimizer.update(squared, x).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_hooks_on_saved_tensors_hold_in_replicas():
    packed = []
    network, x = over(layers(nn.Linear(3, 2), nn.Tanh())), batch()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(threading.current_thread().name) or t, lambda t: t
    ):
        y = network(x)
    y.sum().backward()
    assert {"replica 0", "replica 1", "replica 2"} <= {*packed}


def test_threads_are_shared_out_and_given_back():
    before = torch.get_num_threads()
    network = over(Watched(lambda _: torch.get_num_threads()), 2)
    try:
        torch.set_num_threads(6)
        network(torch.ones(4, 3))
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            network(torch.ones(4, 5))
        assert {*network.module.seen} == {3}
        assert torch.get_num_threads() == 6
    finally:
        torch.set_num_threads(before)


# Batch normalisation
# -----------------------------------------------------------------------------


class OfMyOwn(nn.BatchNorm1d):
    def forward(self, x):
        return super().forward(x) * 2.0


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x):
        return nn.functional.batch_norm(
            x, self.mean, self.var, training=self.training, momentum=0.3
        )


NORM_LAYERS = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(4),
    "BatchNorm3d": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 1, 1)), nn.BatchNorm3d(2), nn.Flatten()
    ),
    "a plain average": lambda: nn.BatchNorm1d(4, momentum=None),
    "without weights": lambda: nn.BatchNorm1d(4, affine=False),
    "without statistics": lambda: nn.BatchNorm1d(4, track_running_stats=False),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(4),
    "a class of my own": lambda: OfMyOwn(4),
    "the function": Functional,
}


@pytest.mark.parametrize("norm", NORM_LAYERS.values(), ids=NORM_LAYERS)
@pytest.mark.parametrize("samples", [7, 3], ids=["shares of 3, 2, 2", "shares of 1"])
@both_losses
def test_pytorchs_own_batch_norms_are_synchronised(norm, samples, loss):
    module = layers(nn.Linear(3, 4), norm(), nn.Tanh(), nn.Linear(4, 2))
    network = same_training(module, batch(samples), loss, buffers="sync", steps=4)
    assert type(network.module[1]) is type(module[1])


def test_one_value_in_the_whole_batch_is_refused(within):
    network = over(layers(nn.BatchNorm1d(3)), buffers="sync")
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        within(network, batch(1))
    two = over(layers(nn.BatchNorm1d(3)), 2, buffers="sync")
    assert within(two, batch(2)).shape == (2, 3)


def test_statistics_without_a_counter_are_settled_too():
    network = over(Functional().double())
    network(torch.randn(6, 4, dtype=torch.float64))
    network.module.eval()
    x = torch.randn(6, 4, dtype=torch.float64)
    torch.testing.assert_close(network(x), network.module(x), rtol=1e-12, atol=1e-12)


# Buffers
# -----------------------------------------------------------------------------


class Buffers(nn.Module):
    """Changes one buffer in place and puts new tensors in the place of two others; one takes part
    in the graph."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("in_place", torch.zeros(3))
        self.register_buffer("renewed", torch.ones(3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = self.fc(x * self.renewed)
        with torch.no_grad():
            if self.training:
                self.in_place += x.mean(0)
                self.renewed = self.renewed * 0.5 + x.mean(0)
                self.calls = self.calls + len(x)
        return y


@pytest.mark.parametrize("policy", ["root", "mean", "sync"])
def test_buffers_follow_the_declared_policy(policy):
    network, x = over(Buffers().double(), buffers=policy), batch(7)
    y = network(x)
    means = [share.mean(0) for share in x.split([3, 2, 2])]
    wanted = (
        means[0]
        if policy != "mean"
        else sum(m * n for m, n in zip(means, (3, 2, 2), strict=True)) / 7
    )
    for replica in network.replicas:
        module = replica.native
        torch.testing.assert_close(module.in_place, wanted, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(module.renewed, 0.5 + wanted, rtol=1e-12, atol=1e-12)
        assert int(module.calls) == 3
    assert len({replica.native.renewed.data_ptr() for replica in network.replicas}) == 3
    y.sum().backward()  # settling has not touched what the graph holds
    wanted = x.sum(0).expand(2, 3)
    torch.testing.assert_close(
        network.module.fc.weight.grad, wanted, rtol=1e-12, atol=1e-12
    )


def test_two_forwards_before_one_backward_are_possible():
    network = over(layers(nn.Linear(3, 4), nn.BatchNorm1d(4)), buffers="sync")
    plain = copy.deepcopy(network.module)
    first, second = batch(), batch()
    (network(first) * network(second)).sum().backward()
    (plain(first) * plain(second)).sum().backward()
    found = network.module[0].weight.grad
    torch.testing.assert_close(found, plain[0].weight.grad, rtol=1e-10, atol=1e-10)


def test_in_evaluation_buffers_stay_the_same_objects():
    network = over(layers(nn.BatchNorm1d(3))).eval()
    x = batch().requires_grad_()
    network(x).sum().backward()
    before = [[*replica.buffers()] for replica in network.replicas]
    with torch.inference_mode():
        network(batch())
    after = [[*replica.buffers()] for replica in network.replicas]
    assert all(
        one is other
        for a, b in zip(before, after, strict=True)
        for one, other in zip(a, b, strict=True)
    )


def test_buffers_changed_by_hand_reach_the_replicas():
    network = over(Buffers().double()).eval()
    network(batch())
    network.module.renewed.fill_(0.0)
    torch.testing.assert_close(network(batch()), network.module.fc.bias.expand(7, 2))


def test_after_training_under_inference_mode_gradients_are_possible():
    network = over(layers(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    with torch.inference_mode():
        network(batch())
    network.eval()
    plain, x = copy.deepcopy(network.module), batch()
    for net in (network, plain):
        net(x).sum().backward()
    found = network.module[0].weight.grad
    torch.testing.assert_close(found, plain[0].weight.grad, rtol=1e-12, atol=1e-12)


def test_after_an_error_the_replicas_have_the_roots_buffers():
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            y = self.norm(x)
            if len(x) == 3:
                raise KeyError("three", "samples")
            return y

    network = over(Failing().double(), 2)
    with pytest.raises(KeyError, match="'three', 'samples'") as caught:
        network(batch(7))
    assert caught.value.__notes__ == ["raised in replica 1 of 2 on cpu"]
    root, other = (replica.native.norm for replica in network.replicas)
    assert torch.equal(root.running_mean, other.running_mean)
    assert root.running_mean is not other.running_mean


# Gradients and optimizers
# -----------------------------------------------------------------------------


def test_sparse_and_dense_gradients_add_up():
    dense, sparse = torch.ones(3), torch.tensor([0.0, 2.0, 0.0]).to_sparse()
    wanted = [1.0, 3.0, 1.0]
    assert BACKEND.add(sparse, dense, "cpu").tolist() == wanted
    assert BACKEND.add(dense, sparse, "cpu").tolist() == wanted
    assert BACKEND.add(sparse, sparse.clone(), "cpu").to_dense().tolist() == [
        0.0,
        4.0,
        0.0,
    ]


@pytest.mark.parametrize(
    ("devices", "at_once"), [(("cpu", "cpu"), False), (("cpu", "cuda:0"), True)]
)
def test_backward_runs_once_for_all_where_a_device_has_one_thread_for_it(
    monkeypatch, devices, at_once
):
    network, called = over(layers(nn.Linear(3, 2)), 2), []
    monkeypatch.setattr(
        network, "settings", dataclasses.replace(network.settings, devices=devices)
    )
    kind = type(network.parallelism)
    monkeypatch.setattr(
        kind, "forward_backward_at_once", lambda _, *arguments: called.append(arguments)
    )
    monkeypatch.setattr(kind, "scatter", lambda *_: Shares([], ()))
    monkeypatch.setattr(kind, "run", lambda *_, **__: [LossResult(torch.zeros(()))])
    network.parallelism.forward_backward(
        in_replicas(squared), torch.Tensor.backward, batch()
    )
    assert bool(called) == at_once


class FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise UnicodeDecodeError("utf-8", b"abc", 0, 1, "in backward")


def test_a_loss_that_calls_the_whole_network_from_a_replica_is_refused(within):
    network = over(layers(nn.Linear(3, 2)))
    with pytest.raises(
        ReplicaError,
        match="a replica calls the replicated network that it belongs to: a loss in repl",
    ):
        within(in_replicas(lambda _, x: network(x).sum()), network, batch())


def test_an_error_in_backward_keeps_its_type_and_ends_the_others(within):
    def loss(network, x):
        y = network(x)
        return (FailsBackward.apply(y) if len(x) == 2 else y).sum()

    network = over(layers(nn.Linear(3, 4), nn.BatchNorm1d(4)), 2, buffers="sync")
    optimizer = BACKEND.optimizer(SGD(lr=0.1), network)
    with pytest.raises(UnicodeDecodeError, match="in backward") as caught:
        within(optimizer.update, in_replicas(loss), batch(5))
    assert "raised in replica 1 of 2 on cpu" in caught.value.__notes__
    within(optimizer.update, in_replicas(squared), batch(5))


# Chance
# -----------------------------------------------------------------------------


def test_no_random_number_is_drawn_where_no_mask_is():
    network = over(nn.Sequential(nn.Linear(3, 3), build(BACKEND.nn.Dropout, 0.5)))
    network.eval()
    state = torch.get_rng_state()
    network(torch.ones(4, 3))
    assert torch.equal(torch.get_rng_state(), state)
    network.train()
    network(torch.ones(4, 3))
    assert not torch.equal(torch.get_rng_state(), state)


# Compiled networks
# -----------------------------------------------------------------------------


@both_losses
def test_a_compiled_network_can_be_replicated(loss):
    plain, x = layers(nn.Linear(3, 4), nn.Tanh()), batch()
    network = over(torch.compile(copy.deepcopy(plain), backend="eager"))
    found = trained(network, loss, x)
    wanted = trained(plain, squared, x)
    same_named(
        {name.removeprefix("_orig_mod."): value for name, value in found.items()},
        wanted,
    )


def test_a_network_that_was_compiled_in_place_is_refused():
    module = layers(nn.Linear(3, 2))
    network = over(module)
    module.compile(backend="eager")
    for replicate in (lambda: over(module), lambda: network(batch())):
        with pytest.raises(
            CapabilityError,
            match="compiled in place by module.compile.. cannot be replicated: wrap what",
        ):
            replicate()


def test_synchronised_layers_need_two_values(within):
    norm = nn.BatchNorm1d(2, track_running_stats=False)
    network = over(layers(norm), 2, buffers="sync")
    with pytest.raises(ShapeError, match=r"got shape \(1, 2, 0\): use a larger batch"):
        within(network, torch.zeros(2, 2, 0, dtype=torch.float64))


def test_memory_that_is_made_anew_is_copied_to_the_replicas():
    network = over(layers(nn.Linear(3, 2))).to_empty(device="cpu")
    root, *others = (list(replica.parameters()) for replica in network.replicas)
    for other in others:
        torch.testing.assert_close(other, root, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "before", [True, False], ids=["before wrapping", "after wrapping"]
)
@both_losses
def test_hooks_run_once_in_each_replica(before, loss):
    module, seen = layers(nn.Linear(3, 2), nn.ReLU()), []
    network = None if before else over(module)
    module.register_forward_pre_hook(lambda m, args: seen.append(("pre", len(args[0]))))
    module[0].register_forward_hook(
        lambda m, args, output: seen.append(("forward", len(output)))
    )
    module[1].register_full_backward_hook(
        lambda m, into, out: seen.append(("backward", len(out[0])))
    )
    BACKEND.optimizer(SGD(lr=0.1), network or over(module)).update(loss, batch(7))
    assert sorted(seen) == sorted(
        (what, size) for what in ("pre", "forward", "backward") for size in (3, 2, 2)
    )
