"""Replicas on Chainer: what each owns, what reaches its thread, and what of it comes back."""

import functools
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import DataParallel, Network, backends
from deliralike.errors import DeviceError
from deliralike.optim import rules
from deliralike.parallel import current_replica, in_replicas
from deliralike.parallel.replicas.run_in_threads import _controller
from tests.arrays import same_named

CHAINER = backends.get("chainer")
import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402

from deliralike.backends.chainer import DataParallelChainerNetwork  # noqa: E402

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def double_precision():
    """Chainer's own links in float64."""
    np.random.seed(12)  # start values of Chainer's own links
    with chainer.using_config("dtype", np.float64):
        yield


class Small(chainer.Chain):
    """Convolution with stride 2, batch normalisation, linear: Chainer's own, as its users write
    them."""

    def __init__(self, inputs=3 * 3 * 2):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(2, 3, 3, stride=2, pad=1, nobias=True)
            self.bn = L.BatchNormalization(3)
            self.fc = L.Linear(inputs, 4)

    def forward(self, x):
        return self.fc(F.relu(self.bn(self.conv(x))))


def images(samples):
    return RNG.normal(size=(samples, 2, 5, 3)), RNG.integers(0, 4, samples).astype(
        np.int32
    )


def over(module, replicas=2, **settings):
    return DataParallelChainerNetwork(module, ["@numpy"] * replicas, **settings)


def gradients_of(network, loss, *batch):
    """The gradients that one device finds, by Chainer's own names."""
    network.cleargrads()
    loss(network, *batch).backward()
    return {
        name: None if p.grad is None else p.grad.copy()
        for name, p in sorted(network.namedparams())
    }


# What a replica owns
# -----------------------------------------------------------------------------


def test_an_optimizer_and_gradients_of_before_stay_the_roots_alone():
    module = Small()
    optimizer = chainer.optimizers.Adam().setup(module)
    module.fc.W.grad = np.full_like(module.fc.W.array, 2.0)
    rule = module.fc.W.update_rule
    copied = over(module).replicas[1].native.fc.W
    assert module.fc.W.update_rule is rule and optimizer.target is module
    assert (module.fc.W.grad == 2.0).all()
    assert copied.update_rule is None and copied.grad is None


def test_parameters_that_get_their_shape_on_the_root_alone_reach_the_replicas():
    network, x = over(chainer.Sequential(L.Linear(None, 5))), RNG.normal(size=(4, 3))
    wanted = network.module(x).array
    assert_allclose(network(x).array, wanted, rtol=1e-14)


def test_parameters_without_a_shape_are_made_in_replicas_that_took_no_part():
    network = over(chainer.Sequential(L.Linear(None, 5)), 4)
    network(RNG.normal(size=(2, 3)))
    weights = [replica.native[0].W.array for replica in network.replicas]
    assert all((weight == weights[0]).all() for weight in weights)
    assert all(not np.shares_memory(weights[0], weight) for weight in weights[1:])
    assert type(network.module[0].W.initializer).__name__ == "LeCunNormal"


def test_settings_are_shared_and_arrays_are_copied():
    module = Small()
    module.options, module.table, module.helper = {"p": 1}, np.ones(3), lambda: 1
    replica = over(module).replicas[1].native
    assert replica.options is module.options and replica.helper is module.helper
    assert not np.shares_memory(replica.table, module.table)


# What follows the root
# -----------------------------------------------------------------------------


class Moded(Network):
    def __init__(self):
        super().__init__()
        self.bn, self.fc = self.nn.BatchNorm1d(3), self.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(self.bn(x)), self.training, self.bn.training


@pytest.mark.parametrize(("block", "config"), [(False, True), (True, False)])
def test_training_modes_and_chainers_setting_reach_the_replicas(block, config):
    root = Moded.on("chainer")()
    network = DataParallel(root, ["@numpy", "@numpy"])
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    root.bn.training = block
    with chainer.using_config("train", config):
        assert network(x)[1:] == (config, block and config)


def test_the_state_of_a_recurrent_link_is_each_replicas_own_and_is_reset_in_all():
    np.random.seed(1)
    alone = L.LSTM(3, 4)
    network = over(alone.copy("copy"))
    steps = [RNG.normal(size=(5, 3)) for _ in range(3)]
    for _ in range(2):
        alone.reset_state()
        network.module.reset_state()
        for x in steps:
            wanted, found = alone(x).array, network(x).array
            assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


# Link hooks
# -----------------------------------------------------------------------------


class Counting(chainer.LinkHook):
    name = "Counting"

    def __init__(self):
        self.calls = []

    def forward_postprocess(self, args):
        self.calls.append((current_replica().index, args.link.name, args.out.shape[0]))


@pytest.mark.parametrize("before", [True, False])
def test_a_hook_on_a_link_runs_once_in_each_replica(before):
    module, hook = Small(), Counting()
    network = over(module) if not before else None
    module.fc.add_hook(hook)
    network = network or over(module)
    network(images(5)[0])
    assert sorted(hook.calls) == [(0, "fc", 3), (1, "fc", 2)]
    module.fc.delete_hook("Counting")
    network(images(5)[0])
    assert len(hook.calls) == 2


def test_spectral_normalisation_works_in_replicas():
    np.random.seed(2)
    alone = chainer.Sequential(
        L.Linear(3, 4).add_hook(chainer.link_hooks.SpectralNormalization())
    )
    network = over(alone.copy("copy"), 2)
    x = RNG.normal(size=(5, 3))
    for _ in range(3):
        wanted = gradients_of(alone, lambda net, x: F.sum(net(x) ** 2), x)
        network.cleargrads()
        F.sum(network(x) ** 2).backward()
        network.parallelism.accumulate_gradients()
        same_named({name: p.grad for name, p in network.namedparams()}, wanted)
        assert_allclose(network.module[0].W_u, alone[0].W_u, rtol=1e-13)
    hooks = [
        replica.native[0].local_link_hooks["SpectralNormalization"]
        for replica in network.replicas
    ]
    assert hooks[0] is not hooks[1]  # it holds its link's weights while that runs
    assert isinstance(network.replicas[1].native[0].W, chainer.Parameter)


# What reaches a replica's thread
# -----------------------------------------------------------------------------


class Watching(chainer.Link):
    """Notes what its thread sees."""

    def __init__(self, look):
        super().__init__()
        self.look, self.found = look, []
        with self.init_scope():
            self.W = chainer.Parameter(1.0, (1,))

    def forward(self, x):
        self.found.append(self.look())
        return x * self.W


def seen_in_replicas(look, **settings):
    link = Watching(look)
    over(link, 2, **settings)(np.ones((3, 1)))
    return link.found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train", False),
        ("enable_backprop", False),
        ("own_entry", "mine"),
        ("dtype", np.float16),
    ],
)
def test_the_callers_settings_reach_each_thread(name, value):
    with chainer.using_config(name, value):
        assert seen_in_replicas(lambda: getattr(chainer.config, name)) == [value, value]


@pytest.mark.parametrize("parallel", [True, False])
def test_what_a_replica_sets_is_not_left_behind(parallel):
    def look():
        before = getattr(chainer.config, "left_behind", None)
        chainer.config.left_behind = 1
        return before

    assert seen_in_replicas(look, parallel=parallel) == [None, None]
    assert not hasattr(chainer.config, "left_behind")


def test_each_replica_runs_with_its_device_as_the_current_one(monkeypatch):
    entered, native = [], chainer.using_device

    def using_device(device):
        entered.append((threading.current_thread().name, str(device)))
        return native(device)

    link = Watching(lambda: (threading.current_thread().name, "@numpy") in entered)
    network = over(link)
    monkeypatch.setattr(chainer, "using_device", using_device)
    network(np.ones((3, 1)))
    assert link.found == [True, True]


class Functions(chainer.FunctionHook):
    name = "Functions"

    def __init__(self):
        self.forward, self.backward = [], []

    def forward_postprocess(self, function, in_data):
        self.forward.append(
            (current_replica() and current_replica().index, function.label)
        )

    def backward_postprocess(self, function, in_data, out_grad):
        self.backward.append(
            (current_replica() and current_replica().index, function.label)
        )


def test_function_hooks_see_each_replica_forward_and_backward():
    network, hook, x = over(L.Linear(3, 2)), Functions(), RNG.normal(size=(5, 3))
    with hook:
        network.parallelism.forward_backward(
            in_replicas(lambda net, x: F.sum(net(x))), lambda loss: loss.backward(), x
        )
    for calls in (hook.forward, hook.backward):
        assert {(0, "LinearFunction"), (1, "LinearFunction")} <= set(calls)
    assert not chainer.get_function_hooks()


@pytest.mark.parametrize("threads", [2, 1])
def test_blas_threads_are_shared_out_and_given_back(threads):
    def count():
        return {
            library.num_threads
            for library in _controller(0).select(user_api="blas").lib_controllers
        }

    with _controller(0).limit(limits=threads, user_api="blas"):
        assert seen_in_replicas(count) == [{1}, {1}]
        assert count() == {threads}


class Reporting(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(3, 2)

    def forward(self, x):
        y = self.fc(x)
        chainer.report({"mean": F.mean(y), "name": f"of {len(x)}"}, self)
        chainer.report({"rows": len(x)})
        chainer.report({"deep": F.mean(y)}, self.fc)
        return y


def test_what_replicas_report_becomes_one_report():
    network, reporter, x = (
        over(Reporting()),
        chainer.Reporter(),
        RNG.normal(size=(5, 3)),
    )
    reporter.add_observer("main", network)
    reporter.add_observers("main", network.namedlinks(skipself=True))
    with reporter:
        y = network(x)
    found = reporter.observation
    assert found.keys() == {"main/mean", "main/name", "rows", "main/fc/deep"}
    assert found["main/mean"].array == pytest.approx(y.array.mean(), rel=1e-13)
    assert found["main/fc/deep"].array == pytest.approx(y.array.mean(), rel=1e-13)
    assert found["main/name"] == "of 3" and found["rows"] == pytest.approx(
        (3 * 3 + 2 * 2) / 5
    )


# Sums over replicas
# -----------------------------------------------------------------------------


def in_each_replica(function, shares, in_threads=False):
    """Run a function of a replica and its share on bare replicas."""
    network = over(L.Linear(1, 1), len(shares), buffers="sync")
    from deliralike.parallel.batches.scatter import Shares

    return network.parallelism.run(
        lambda _, share: function(current_replica(), share),
        Shares(shares, tuple(map(len, shares))),
        in_threads,
    )


def test_the_sum_over_replicas_is_differentiable_twice_in_threads(within):
    values = [RNG.normal(size=(size, 3)) for size in (3, 1)]

    def energy(here, x):
        return F.sum(
            F.exp(x) * F.broadcast_to(here.all_sum(F.sum(x**2, 0), "energy"), x.shape)
        )

    def penalty(here, value):
        x = chainer.Variable(value)
        (gradient,) = chainer.grad([energy(here, x)], [x], enable_double_backprop=True)
        F.sum(gradient**2).backward()
        return gradient.array, x.grad

    found = within(in_each_replica, penalty, values, True)
    x = chainer.Variable(np.concatenate(values))
    (gradient,) = chainer.grad(
        [F.sum(F.exp(x) * F.broadcast_to(F.sum(x**2, 0), x.shape))],
        [x],
        enable_double_backprop=True,
    )
    F.sum(gradient**2).backward()
    assert_allclose(
        np.concatenate([first for first, _ in found]), gradient.array, rtol=1e-12
    )
    assert_allclose(np.concatenate([second for _, second in found]), x.grad, rtol=1e-11)


# Chainer's own batch normalisation
# -----------------------------------------------------------------------------

NORMS = {
    "channels": lambda: L.BatchNormalization(3, decay=0.7, eps=1e-3),
    "no scale": lambda: L.BatchNormalization(3, use_gamma=False, use_beta=False),
    "each pixel": lambda: L.BatchNormalization((3, 4, 5)),
    "axes": lambda: L.BatchNormalization(axis=(0, 2)),
}


@pytest.mark.parametrize(
    "inside", [False, True], ids=["loss on gathered outputs", "loss in replicas"]
)
@pytest.mark.parametrize("samples", [5, 2])
@pytest.mark.parametrize("kind", NORMS)
def test_synchronised_native_batch_normalisation_is_that_of_the_whole_batch(
    kind, samples, inside, within
):
    alone = chainer.Sequential(NORMS[kind]())
    x, weights = (
        RNG.normal(1.0, 2.0, size=(samples, 3, 4, 5)),
        RNG.normal(size=(samples, 3, 4, 5)),
    )
    alone(x)
    network = over(alone.copy("copy"), 2, buffers="sync")
    if kind != "no scale":
        for net in (alone, network):
            net[0].gamma.array[...] = np.linspace(0.5, 2.0, net[0].gamma.size).reshape(
                net[0].gamma.shape
            )
        network.copy_parameters()

    def loss(net, x, weights):
        return F.sum(net(x) ** 3 * weights)

    wanted = gradients_of(alone, loss, x, weights)
    network.cleargrads()
    if inside:
        within(
            network.parallelism.forward_backward,
            in_replicas(loss, "sum"),
            lambda value: value.backward(),
            x,
            weights,
        )
    else:
        within(loss, network, x, weights).backward()
    network.parallelism.accumulate_gradients()
    same_named({name: p.grad for name, p in network.namedparams()}, wanted, 1e-10)
    assert_allclose(network(x).array, alone(x).array, rtol=1e-11, atol=1e-12)
    for replica in network.replicas:
        assert_allclose(replica.native[0].avg_mean, alone[0].avg_mean, rtol=1e-12)
        assert_allclose(replica.native[0].avg_var, alone[0].avg_var, rtol=1e-12)


# Persistent values
# -----------------------------------------------------------------------------


class Counters(chainer.Link):
    """A number, a whole number, an array, a whole array and a word that each replica changes in its
    own way."""

    def __init__(self):
        super().__init__()
        for name, value in {
            "number": 0.0,
            "whole": 0,
            "array": np.zeros(2),
            "wholes": np.zeros(2, np.int64),
            "word": "",
        }.items():
            self.add_persistent(name, value)

    def forward(self, x):
        samples = len(x)
        self.number, self.whole, self.word = float(samples), samples, f"of {samples}"
        self.array += samples
        self.wholes += samples
        return x


def persistent(link):
    return {
        name: np.asarray(vars(link)[name]).tolist() for name in sorted(link._persistent)
    }


@pytest.mark.parametrize(
    ("policy", "mean"), [("root", 3.0), ("mean", (3 * 3 + 2 * 2) / 5), ("sync", 3.0)]
)
def test_persistent_values_follow_the_policy_in_every_replica(policy, mean):
    network = over(Counters(), 2, buffers=policy)
    network(np.ones((5, 1)))
    wanted = {
        "array": [mean, mean],
        "number": mean,
        "whole": 3,
        "wholes": [3, 3],
        "word": "of 3",
    }
    for replica in network.replicas:
        found = persistent(replica.native)
        assert found == {
            name: pytest.approx(value) if name in ("array", "number") else value
            for name, value in wanted.items()
        }
    assert isinstance(network.module.whole, int) and isinstance(
        network.module.number, float
    )


def test_averages_that_nobody_moved_are_not_rounded():
    network = over(Small(), 3, buffers="mean")
    network.module.bn.avg_mean[...] = before = RNG.normal(size=3)
    with chainer.using_config("train", False):
        for _ in range(3):
            network(images(7)[0])
    assert all(
        (replica.native.bn.avg_mean == before).all() for replica in network.replicas
    )


# Native random layers
# -----------------------------------------------------------------------------


class Dropping(Network):
    """Two dropouts; one replica may be slow."""

    slow = None

    def __init__(self, p=0.5):
        super().__init__()
        self.dropout = self.nn.Dropout(p)

    def forward(self, x):
        if self.slow == current_replica().index:
            time.sleep(0.05)
        return self.dropout(self.dropout(x))


def masks(network, seed=None, samples=4):
    if seed is not None:
        CHAINER.seed(seed)
    return network(np.ones((samples, 100), np.float32)).array != 0


def test_native_dropout_does_not_depend_on_which_thread_comes_first():
    network = DataParallel(Dropping.on("chainer")(), ["@numpy", "@numpy"])
    found = []
    for network.root.slow in (0, 1):
        found.append(masks(network, 5))
    assert_array_equal(*found)


def test_a_call_without_random_layers_draws_nothing():
    network = over(Small())
    CHAINER.seed(3)
    wanted = np.random.rand()
    CHAINER.seed(3)
    network(images(5)[0])
    assert np.random.rand() == wanted


# Gradients and optimizers
# -----------------------------------------------------------------------------


class TwoParts(Network):
    def __init__(self):
        super().__init__()
        nn = self.nn
        self.generator, self.critic, self.unused = (
            nn.Linear(3, 4),
            nn.Linear(4, 2),
            nn.Linear(2, 2),
        )

    def forward(self, x):
        return self.critic(self.nn.tanh(self.generator(x)))


def two_parts(replicas):
    network = TwoParts.on("chainer", seed=1, dtype="float64")()
    return network if replicas == 1 else DataParallel(network, ["@numpy"] * replicas)


def squares(network, x):
    return network.nn.mean(network(x) ** 2)


class SumOfParameters(chainer.Link):
    """Chainer gives both parameters one array as their gradient."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.p, self.q = (
                chainer.Parameter(np.ones(3)),
                chainer.Parameter(np.ones(3)),
            )

    def forward(self, x):
        return x * F.broadcast_to(self.p + self.q, x.shape)


def test_parameters_that_share_one_gradient_array_are_accumulated_once_each():
    x, alone = RNG.normal(size=(5, 3)), SumOfParameters()
    network = over(alone.copy("copy"), 3)
    wanted = gradients_of(alone, lambda net, x: F.sum(net(x)), x)
    network.cleargrads()
    F.sum(network(x)).backward()
    network.parallelism.accumulate_gradients()
    same_named({name: p.grad for name, p in network.namedparams()}, wanted)


def test_optimizers_over_the_same_parameters_keep_rules_of_their_own():
    def run(over_again):
        network, x = two_parts(1), RNG.normal(size=(5, 3)) * 0 + 1
        first = CHAINER.optimizer(rules.SGD(lr=0.1, momentum=0.9), network)
        first.update(squares, x)
        if over_again:
            CHAINER.optimizer(rules.Adam(lr=0.5), network)
        first.update(squares, x)
        return first.neutral_state()

    same_named(run(True), run(False))


def test_a_second_optimizer_does_not_thaw_what_is_frozen():
    network = two_parts(2)
    one = CHAINER.optimizer(rules.SGD(lr=0.1), network, parameters="generator.*")
    network.set_trainable("generator.*", False)
    two = CHAINER.optimizer(rules.SGD(lr=0.1, weight_decay=0.1), network)
    before = network.neutral_state()["generator.weight"]
    for optimizer in (two, one):
        optimizer.update(squares, RNG.normal(size=(5, 3)))
    assert_array_equal(network.neutral_state()["generator.weight"], before)
    network.set_trainable("generator.*", True)
    one.update(squares, RNG.normal(size=(5, 3)))
    assert (network.neutral_state()["generator.weight"] != before).any()


def test_updates_that_chainer_was_told_to_leave_out_are_left_out_by_every_optimizer():
    network, x = two_parts(2), RNG.normal(size=(5, 3))
    optimizers = [CHAINER.optimizer(rules.SGD(lr=0.1), network) for _ in range(2)]
    network.disable_update()
    before = network.neutral_state()
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.update(squares, x)
    same_named(network.neutral_state(), before, 0)
    assert not network.update_enabled  # of parameters that took no part neither
    network.enable_update()
    optimizers[0].update(squares, x)
    assert (network.neutral_state()["critic.bias"] != before["critic.bias"]).any()


# Devices
# -----------------------------------------------------------------------------


def test_a_replicated_network_does_not_move():
    network = over(Small())
    assert network.to_device("@numpy") is network
    with pytest.raises(
        DeviceError, match="move the network first, then replicate it anew"
    ):
        chainer.Chain(inside=network).device_resident_accept(
            visitor_to_another_device()
        )


def visitor_to_another_device():
    from chainer.device_resident import _ToDeviceVisitor

    class Other(type(chainer.get_device("@numpy"))):
        name = "@other"

        def __eq__(self, other):
            return self is other

        __hash__ = None

    return _ToDeviceVisitor(Other())


def test_the_network_must_be_on_the_first_device(monkeypatch):
    monkeypatch.setattr(type(CHAINER), "devices", lambda self: ["@numpy", "@cupy:0"])
    with pytest.raises(
        DeviceError, match="the network is on '@numpy', the first device is '@cupy:0'"
    ):
        DataParallelChainerNetwork(Small(), ["@cupy:0", "@numpy"])


def test_a_first_call_with_parameters_without_a_shape_moves_running_statistics_once():
    def lazy():
        return chainer.Sequential(L.Linear(None, 5), L.BatchNormalization(axis=0))

    x = RNG.normal(size=(6, 3))
    np.random.seed(2)
    alone = lazy()
    alone(x)
    np.random.seed(2)
    network = over(lazy(), 2, buffers="sync")
    network(x)
    assert_allclose(network.module[1].avg_mean, alone[1].avg_mean, rtol=1e-13)
    assert_allclose(network.module[1].avg_var, alone[1].avg_var, rtol=1e-13)


class Indirect(chainer.Chain):
    """Reaches its layers through a bound method and a partial function."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(3, 2)
        self.bound, self.partial = self.layer, functools.partial(call, self.fc)

    def layer(self, x):
        return self.fc(x)

    def forward(self, x, way):
        return getattr(self, way)(x)


def call(function, x):
    return function(x)


@pytest.mark.parametrize("way", ["bound", "partial"])
def test_functions_that_hold_the_network_are_the_replicas_own(way):
    network = over(Indirect())
    network.cleargrads()
    F.sum(network(RNG.normal(size=(5, 3)), way)).backward()
    assert_array_equal(network.replicas[1].native.fc.b.grad, [2.0, 2.0])
    assert_array_equal(network.module.fc.b.grad, [3.0, 3.0])


def test_a_persistent_value_added_later_follows_the_policy():
    network = over(L.Linear(3, 2), buffers="mean")
    network.module.add_persistent("late", np.zeros(2))
    network(RNG.normal(size=(5, 3)))
    network.module.late += 4.0
    network(RNG.normal(size=(5, 3)))
    assert_array_equal(network.replicas[1].native.late, [4.0, 4.0])
    assert not np.shares_memory(network.replicas[1].native.late, network.module.late)


def test_finetuning_counts_alike_in_all_replicas(within):
    alone = chainer.Sequential(L.BatchNormalization(3))
    network = over(alone.copy("copy"), 2, buffers="sync")
    x = np.random.default_rng(0).normal(
        size=(5, 3)
    )  # a mean near zero is not known to 1e-13
    for _ in range(3):
        alone[0](x, finetune=True)
        shares = network.parallelism.scatter(((x,), {}))
        within(
            network.parallelism.run,
            lambda net, args: net.native[0](*args[0], finetune=True),
            shares,
        )
    assert [replica.native[0].N for replica in network.replicas] == [3, 3]
    assert_allclose(network.module[0].avg_mean, alone[0].avg_mean, rtol=1e-13)
    assert_allclose(network.module[0].avg_var, alone[0].avg_var, rtol=1e-13)
