"""The names that PyTorch's users know, with their signatures: on CPU devices, against the module on
one device."""

import copy
import inspect
import pickle

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
    BatchError,
    CapabilityError,
    DeviceError,
    SettingError,
    StateError,
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


def gradients(module):
    return {name: parameter.grad for name, parameter in module.named_parameters()}


# Functions
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "scatter",
        "scatter_kwargs",
        "gather",
        "replicate",
        "parallel_apply",
        "data_parallel",
    ]
    + ["DataParallel", *(f"SynchronizedBatchNorm{n}d" for n in (1, 2, 3))],
)
def test_names_take_the_arguments_of_pytorchs(name):
    originals = (
        vars(torch.nn.parallel) | vars(torch.nn.parallel.scatter_gather) | vars(nn)
    )
    original = originals[name.removeprefix("Synchronized")]
    ours, theirs = (
        inspect.signature(function).parameters
        for function in (getattr(names, name), original)
    )
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values()
    ]


def test_scatter_kwargs_shares_both_by_one_count():
    inputs, kwargs = names.scatter_kwargs(
        (torch.arange(5), "name"), {"mask": torch.arange(5)}, ["cpu"] * 2
    )
    assert [(x.tolist(), name) for x, name in inputs] == [
        ([0, 1, 2], "name"),
        ([3, 4], "name"),
    ]
    assert [share["mask"].tolist() for share in kwargs] == [[0, 1, 2], [3, 4]]
    assert names.scatter_kwargs((torch.arange(2),), None, ["cpu"] * 2)[1] == ({}, {})
    with pytest.raises(BatchError, match=r"args\[0\] has 5, kwargs\['mask'\] has 4"):
        names.scatter_kwargs((torch.arange(5),), {"mask": torch.arange(4)}, ["cpu"] * 2)


def test_gradients_of_every_replica_land_on_the_module_that_was_replicated():
    module, x = network(nn.BatchNorm1d(4)), batch()
    replicas = names.replicate(module, ["cpu"] * 3)
    assert replicas[0] is module
    assert [len(list(replica.parameters())) for replica in replicas] == [6] * 3
    pointers = [
        {tensor.data_ptr() for tensor in replica.state_dict().values()}
        for replica in replicas
    ]
    assert len(set.union(*pointers)) == sum(map(len, pointers))
    for replica in replicas:
        squared(replica, x).backward()
    wanted = copy.deepcopy(module)
    wanted.zero_grad()
    (squared(wanted, x) * 3).backward()
    same(gradients(module), gradients(wanted))


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


@pytest.mark.parametrize(
    "wrap",
    [
        lambda module: names.DataParallel(module, ["cpu"] * 3),
        lambda module: DataParallelTorchNetwork(module, ["cpu"] * 3, buffers="mean"),
        lambda module: lambda rows: names.data_parallel(module, rows, ["cpu"] * 3),
    ],
    ids=["DataParallel", "DataParallelTorchNetwork", "data_parallel"],
)
def test_leaves_that_are_buffers_or_attributes_get_the_whole_gradient(wrap):
    """That of ``sum((x f + o) k l)`` over seven rows, twice, by hand, where f is 2 and the others
    are 1."""
    module, rows = Leaves(), torch.arange(21.0).reshape(7, 3)
    parallel = wrap(module)
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


def test_detached_replicas_send_no_gradients():
    module = network()
    replicas = names.replicate(module, ["cpu"] * 2, detach=True)
    assert replicas[0] is not module
    assert not any(
        parameter.requires_grad
        for replica in replicas
        for parameter in replica.parameters()
    )
    assert torch.equal(
        replicas[1](torch.ones(1, 3).double()), module(torch.ones(1, 3).double())
    )


def test_parallel_apply_calls_each_module_on_its_own_arguments():
    def scaled(x, by=1.0):
        return x * by

    inputs = [torch.ones(2), (torch.ones(1),), [torch.ones(3), 5.0]]
    outputs = names.parallel_apply([scaled] * 3, inputs, [{}, {"by": 3.0}, {}])
    assert [output.tolist() for output in outputs] == [
        [1.0, 1.0],
        [3.0],
        [5.0, 5.0, 5.0],
    ]


def test_parallel_apply_carries_modes_and_errors():
    def grad_enabled(x):
        if len(x) == 3:
            raise UnicodeDecodeError("utf-8", b"abc", 0, 1, "no")
        return torch.is_grad_enabled()

    with torch.no_grad():
        assert names.parallel_apply(
            [grad_enabled] * 2, [torch.ones(2), torch.ones(2)]
        ) == [
            False,
            False,
        ]
    with pytest.raises(UnicodeDecodeError, match="no") as caught:
        names.parallel_apply([grad_enabled] * 2, [torch.ones(2), torch.ones(3)])
    assert caught.value.__notes__ == ["raised in replica 1 of 2 on cpu"]


def test_parallel_apply_wants_as_many_of_everything():
    with pytest.raises(
        ArgumentError,
        match="2 modules, 1 inputs, 2 kwargs and 1 devices: wanted as many of each",
    ):
        names.parallel_apply([abs, abs], [torch.ones(1)])


# DataParallel
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [7, 2, 1])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_network_trains_with_any_optimizer_as_on_one_device(samples, optimizer):
    plain = network()
    parallel = names.DataParallel(copy.deepcopy(plain), ["cpu"] * 3)
    x = batch(samples)
    for net in (plain, parallel):
        steps = optimizer(net.parameters(), lr=0.01)
        for _ in range(4):
            steps.zero_grad()
            squared(net, x).backward()
            steps.step()
    same(parallel.module.state_dict(), plain.state_dict())


def test_it_is_one_of_pytorchs_with_its_names():
    parallel = names.DataParallel(network(), ["cpu", torch.device("cpu")])
    assert isinstance(parallel, torch.nn.DataParallel)
    assert list(parallel.state_dict()) == [
        f"module.{name}" for name in parallel.module.state_dict()
    ]
    assert parallel.device_ids == ["cpu", "cpu"]
    other = pickle.loads(pickle.dumps(parallel))
    x = batch()
    assert torch.equal(other(x), parallel(x))


def test_without_devices_it_is_the_module():
    module, x = network(), batch()
    parallel = names.DataParallel(module)
    assert parallel.device_ids == (
        [] if not torch.cuda.is_available() else parallel.device_ids
    )
    if not torch.cuda.is_available():
        assert torch.equal(parallel(x), module(x))
    assert torch.equal(names.DataParallel(module, ["cpu"])(x), module(x))
    with pytest.raises(
        DeviceError, match="device_ids is empty; None stands for all GPUs"
    ):
        names.DataParallel(module, [])


def test_a_parameter_that_is_elsewhere_is_refused():
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(
        DeviceError,
        match=r"'1.weight' is on 'meta', wanted on the first device 'cpu': move the module",
    ):
        names.DataParallel(module, ["cpu", "cpu"])(torch.ones(4, 3))


def test_what_the_first_share_does_to_the_module_stays():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.calls = nn.BatchNorm1d(3), 0

        def forward(self, x):
            self.calls += 1
            return self.norm(x)

    module, x = Counting().double(), batch(7)
    parallel = names.DataParallel(module, ["cpu"] * 2)
    parallel(x)
    parallel(x)
    assert module.calls == 2
    assert int(module.norm.num_batches_tracked) == 2
    torch.testing.assert_close(
        module.norm.running_mean, x[:4].mean(0) * 0.19, rtol=1e-12, atol=1e-12
    )


def test_every_step_may_be_overridden():
    class Mine(names.DataParallel):
        def __init__(self, *args):
            super().__init__(*args)
            self.called = []

        def replicate(self, module, device_ids):
            self.called.append(("replicate", len(device_ids)))
            return super().replicate(module, device_ids)

        def scatter(self, inputs, kwargs, device_ids):
            self.called.append(("scatter", len(device_ids)))
            return super().scatter(inputs, kwargs, device_ids)

        def parallel_apply(self, replicas, inputs, kwargs):
            self.called.append(("parallel_apply", len(replicas)))
            return super().parallel_apply(replicas, inputs, kwargs)

        def gather(self, outputs, output_device):
            self.called.append(("gather", output_device))
            return super().gather(outputs, output_device) + 1

    module, x = network(), batch(2)
    mine = Mine(module, ["cpu"] * 3, "cpu")
    assert torch.equal(
        mine(x),
        module(x[:1]).new_tensor(torch.cat([module(x[:1]), module(x[1:])]).tolist())
        + 1,
    )
    assert mine.called == [
        ("scatter", 3),
        ("replicate", 2),
        ("parallel_apply", 2),
        ("gather", "cpu"),
    ]


def test_parameters_without_a_shape_are_made_once_on_the_module():
    """With the start values, and then the gradients, of one device."""
    both, x = (
        [
            nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(2))
            for _ in range(2)
        ],
        batch().float(),
    )
    plain, parallel = both[0], names.DataParallel(both[1], ["cpu"] * 3)
    for net in (plain, parallel):
        torch.manual_seed(5)
        net(x).sum().backward()
    for name, gradient in gradients(plain).items():
        torch.testing.assert_close(gradients(parallel.module)[name], gradient)
    assert names.data_parallel(nn.LazyLinear(2), x, ["cpu"] * 3).shape == (7, 2)
    with pytest.raises(
        StateError,
        match="replicate: a parameter of the module has no shape yet: call the module",
    ):
        names.replicate(nn.LazyLinear(2), ["cpu"] * 2)


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)
def test_a_replica_that_is_asked_to_clear_gradients_warns_as_pytorchs_do():
    module = network()
    first, second = names.replicate(module, ["cpu"] * 2)
    with pytest.warns(
        UserWarning, match="from a module created with nn.DataParallel.. has no effect"
    ):
        second[0].zero_grad()
    first.zero_grad()


@pytest.mark.parametrize(
    "around", [lambda net: net, nn.Sequential], ids=["itself", "within another"]
)
def test_a_module_with_lasting_replicas_is_not_replicated_again(around):
    lasting = DataParallelTorchNetwork(network(), ["cpu"] * 2)
    with pytest.raises(SettingError, match="is replicated already: replicate"):
        names.DataParallel(around(lasting), ["cpu"] * 2)(batch())


# Synchronised batch norm
# -----------------------------------------------------------------------------

SHAPES = {1: (7, 4, 5), 2: (7, 4, 3, 5), 3: (7, 4, 3, 1, 5)}
WRAPPERS = {
    "DataParallel": lambda module: names.DataParallel(module, ["cpu"] * 3),
    "DataParallelTorchNetwork": lambda module: DataParallelTorchNetwork(
        module, ["cpu"] * 3
    ),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("samples", [7, 3])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_synchronised_batch_norm_is_that_of_the_whole_batch(wrap, momentum, samples, n):
    layer = getattr(names, f"SynchronizedBatchNorm{n}d")(4, momentum=momentum).double()
    plain = getattr(nn, f"BatchNorm{n}d")(4, momentum=momentum).double()
    for parameter in (*layer.parameters(), *plain.parameters()):
        parameter.data.copy_(torch.linspace(0.5, 2.0, 4))
    parallel = wrap(layer)
    for step in range(2):
        x = torch.randn(samples, *SHAPES[n][1:], dtype=torch.float64) * 3 + step
        inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        outputs = [
            net(given) for net, given in zip((parallel, plain), inputs, strict=True)
        ]
        torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
        for output in outputs:
            (output**3).sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-9, atol=1e-9)
    same(layer.state_dict(), plain.state_dict())
    parallel.eval()
    torch.testing.assert_close(parallel(x), plain.eval()(x), rtol=1e-12, atol=1e-12)


def test_what_is_converted_keeps_ties_modes_and_classes_of_my_own():
    class Mine(nn.BatchNorm1d):
        pass

    shared, mine = nn.BatchNorm1d(3, momentum=None, affine=False).eval(), Mine(3)
    first, second, third = names.convert_model(nn.Sequential(shared, shared, mine))
    assert first is second
    assert third is mine
    assert (type(first), first.momentum, first.affine, first.training) == (
        names.SynchronizedBatchNorm1d,
        None,
        False,
        False,
    )
    assert type(names.convert_model(shared)) is names.SynchronizedBatchNorm1d
    assert type(shared) is nn.BatchNorm1d
    parallel = names.convert_model(
        names.DataParallel(nn.Sequential(nn.BatchNorm1d(3)), ["cpu"] * 2, dim=0)
    )
    assert type(parallel) is names.DataParallelWithCallback
    assert parallel.device_ids == ["cpu", "cpu"]
    assert type(parallel.module[0]) is names.SynchronizedBatchNorm1d
    assert (
        type(names.convert_model(torch.nn.DataParallel(nn.BatchNorm1d(3))).module)
        is names.SynchronizedBatchNorm1d
    )


def test_batch_norms_made_in_a_patched_block_are_synchronised():
    before = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
    with pytest.raises(LookupError, match="enough"), names.patch_sync_batchnorm():
        made = [getattr(nn, f"BatchNorm{n}d")(3) for n in (1, 2, 3)]
        raise LookupError("enough")
    assert [type(layer).__name__ for layer in made] == [
        f"SynchronizedBatchNorm{n}d" for n in (1, 2, 3)
    ]
    assert (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d) == before


def test_the_small_number_may_be_the_least_variance():
    """One channel's variance is below eps, the other's above; by the definition of each mode."""
    x = torch.tensor([[0.0, 0.0], [0.1, 6.0], [0.2, 3.0]], dtype=torch.float64)
    parallel = names.DataParallelWithCallback(
        names.SynchronizedBatchNorm1d(2, eps=0.5).double(), ["cpu"] * 2
    )
    centred, var = x - x.mean(0), x.var(0, unbiased=False)
    try:
        names.set_sbn_eps_mode("clamp")
        torch.testing.assert_close(
            parallel(x),
            centred / torch.stack([torch.tensor(0.5).double(), var[1]]).sqrt(),
        )
    finally:
        names.set_sbn_eps_mode("plus")
    torch.testing.assert_close(parallel(x), centred / (var + 0.5).sqrt())
    with pytest.raises(
        SettingError,
        match="set_sbn_eps_mode: mode='clmp' is unknown. Did you mean 'clamp'",
    ):
        names.set_sbn_eps_mode("clmp")


# Callbacks
# -----------------------------------------------------------------------------


class Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.log = []

    def __data_parallel_replicate__(self, context, copy_id):
        assert isinstance(context, names.CallbackContext)
        context.seen = [*getattr(context, "seen", ()), copy_id]
        self.log.append((copy_id, context))

    def forward(self, x):
        return self.inner(x)


def test_the_callbacks_come_before_each_forward_the_masters_first():
    module = Called()
    parallel = names.ReplicationCallbackDataParallel(module, ["cpu"] * 3)
    parallel(torch.ones(6, 3))
    assert [copy_id for copy_id, _ in module.log] == [0, 1, 2]
    assert len({id(context) for _, context in module.log}) == 1
    assert module.log[0][1].seen == [0, 1, 2]
    parallel(torch.ones(6, 3))
    assert [copy_id for copy_id, _ in module.log] == [0, 1, 2] * 2


@pytest.mark.parametrize("times", [1, 2])
def test_a_data_parallel_can_be_patched(times):
    module = Called()
    parallel = names.DataParallel(module, ["cpu"] * 2)
    for _ in range(times):
        names.patch_replication_callback(parallel)
    parallel(torch.ones(6, 3))
    assert [copy_id for copy_id, _ in module.log] == [0, 1]
    with pytest.raises(ArgumentError, match="wants a DataParallel, not a Called"):
        names.patch_replication_callback(module)


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
    modules = [Called(), Called()]
    names.execute_replication_callbacks(modules)
    assert [module.log[0][0] for module in modules] == [0, 1]
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


def test_sparse_gradients_reach_the_module():
    """Token k is seen k times, so its row gets k."""
    table = nn.Embedding(5, 3, sparse=True)
    tokens = torch.tensor([1, 4, 2, 4, 3, 4, 2, 4, 3, 3])
    names.DataParallel(table, ["cpu"] * 3)(tokens).sum().backward()
    assert table.weight.grad.is_sparse
    assert torch.equal(
        table.weight.grad.to_dense(), torch.arange(5.0)[:, None].expand(5, 3)
    )
