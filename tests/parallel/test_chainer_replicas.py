"""Replicas on Chainer: what each owns, what reaches its thread, and what of it comes back."""

import copy
import functools
import threading
import time

import numpy as np
import pytest

from deliralike import DataParallel, Network, backends
from deliralike.errors import DeviceError, ReplicaError, UnknownName
from deliralike.optim import rules
from deliralike.parallel import current_replica, in_replicas
from deliralike.parallel.replicas.run_in_threads import _controller

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
    return RNG.normal(size=(samples, 2, 5, 3)), RNG.integers(0, 4, samples).astype(np.int32)


def over(module, replicas=2, **settings):
    return DataParallelChainerNetwork(module, ["@numpy"] * replicas, **settings)


def cross_entropy(network, x, y):
    return F.softmax_cross_entropy(network(x), y)


def gradients_of(network, loss, *batch):
    """The gradients that one device finds, by Chainer's own names."""
    network.cleargrads()
    loss(network, *batch).backward()
    return {
        name: None if p.grad is None else p.grad.copy() for name, p in sorted(network.namedparams())
    }


def same(found, wanted, tolerance=1e-12):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if value is None:
            assert found[name] is None, name
        else:
            np.testing.assert_allclose(
                found[name], value, rtol=tolerance, atol=tolerance, err_msg=name
            )


# What a replica owns
# -----------------------------------------------------------------------------


def test_replicas_on_one_device_share_no_array():
    network = over(Small(), 3)
    arrays = [
        [
            vars(link)[name]
            for link in replica.links()
            for name in sorted(link._params | link._persistent)
        ]
        for replica in network.replicas
    ]
    for values in zip(*arrays, strict=True):
        raw = [value.array if isinstance(value, chainer.Variable) else value for value in values]
        for index, one in enumerate(raw):
            for other in raw[index + 1 :]:
                assert not isinstance(one, np.ndarray) or not np.shares_memory(one, other)


def test_a_replica_that_changes_leaves_the_users_network_alone():
    module = Small()
    before = module.fc.W.array.copy()
    over(module).replicas[1].native.fc.W.array[...] = 7.0
    np.testing.assert_array_equal(module.fc.W.array, before)


def test_wrapping_changes_neither_weights_nor_random_state_nor_an_optimizer():
    module = Small()
    optimizer = chainer.optimizers.Adam().setup(module)
    module.fc.W.grad = np.full_like(module.fc.W.array, 2.0)
    before = {name: p.array.copy() for name, p in module.namedparams()}
    rule, state = module.fc.W.update_rule, np.random.get_state()
    network = over(module)
    assert all((before[name] == p.array).all() for name, p in module.namedparams())
    assert module.fc.W.update_rule is rule and optimizer.target is module
    assert (module.fc.W.grad == 2.0).all()
    assert network.replicas[1].native.fc.W.update_rule is None
    assert network.replicas[1].native.fc.W.grad is None
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), state, strict=True))


def test_parameters_without_a_shape_start_as_on_one_device():
    def lazy():
        return chainer.Sequential(L.Linear(None, 5), F.relu, L.Linear(None, 4))

    x = RNG.normal(size=(7, 6))
    np.random.seed(4)
    wanted = lazy()(x).array
    after = np.random.rand()
    np.random.seed(4)
    network = over(lazy(), 3)
    np.testing.assert_allclose(network(x).array, wanted, rtol=1e-14)
    assert np.random.rand() == after
    for parameter, *others in network._copies.parameters:
        assert all((other.array == parameter.array).all() for other in others)


def test_parameters_that_get_their_shape_on_the_root_alone_reach_the_replicas():
    network, x = over(chainer.Sequential(L.Linear(None, 5))), RNG.normal(size=(4, 3))
    wanted = network.module(x).array
    np.testing.assert_allclose(network(x).array, wanted, rtol=1e-14)


def test_parameters_without_a_shape_are_made_in_replicas_that_took_no_part():
    network = over(chainer.Sequential(L.Linear(None, 5)), 4)
    network(RNG.normal(size=(2, 3)))
    weights = [replica.native[0].W.array for replica in network.replicas]
    assert all((weight == weights[0]).all() for weight in weights)
    assert all(not np.shares_memory(weights[0], weight) for weight in weights[1:])
    assert type(network.module[0].W.initializer).__name__ == "LeCunNormal"


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
    np.testing.assert_allclose(network.module[1].avg_mean, alone[1].avg_mean, rtol=1e-13)
    np.testing.assert_allclose(network.module[1].avg_var, alone[1].avg_var, rtol=1e-13)


class Tied(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.one, self.two = L.Linear(3, 3), L.Linear(3, 3)
            self.two.W = self.one.W

    def forward(self, x):
        return self.two(F.tanh(self.one(x)))


def test_tied_parameters_stay_tied_in_each_replica():
    x, alone = RNG.normal(size=(5, 3)), Tied()
    network = over(copy.deepcopy(alone))  # Chainer's own `copy` would untie them
    assert all(replica.native.one.W is replica.native.two.W for replica in network.replicas)
    wanted = gradients_of(alone, lambda net, x: F.sum(net(x) ** 2), x)
    network.cleargrads()
    F.sum(network(x) ** 2).backward()
    network.parallelism.accumulate_gradients()
    same({name: p.grad for name, p in network.namedparams()}, wanted)


def test_settings_are_shared_and_arrays_are_copied():
    module = Small()
    module.options, module.table, module.helper = {"p": 1}, np.ones(3), lambda: 1
    replica = over(module).replicas[1].native
    assert replica.options is module.options and replica.helper is module.helper
    assert not np.shares_memory(replica.table, module.table)


def test_links_in_plain_containers_are_those_of_the_replica():
    module = Small()
    module.layers = [module.conv, module.fc]
    replica = over(module).replicas[1].native
    assert replica.layers[0] is replica.conv and replica.layers[1] is replica.fc
    assert replica.conv is not module.conv


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
    np.testing.assert_array_equal(network.replicas[1].native.fc.b.grad, [2.0, 2.0])
    np.testing.assert_array_equal(network.module.fc.b.grad, [3.0, 3.0])


# What follows the root
# -----------------------------------------------------------------------------


class Scaled(chainer.Chain):
    def __init__(self):
        super().__init__()
        self.scale, self.seen = 1.0, None
        with self.init_scope():
            self.fc = L.Linear(3, 2)

    def forward(self, x):
        self.seen = len(x)
        return self.fc(x) * self.scale


def test_an_attribute_set_later_reaches_the_replicas():
    x, network = RNG.normal(size=(5, 3)), over(Scaled())
    before = network(x).array
    network.module.scale = 3.0
    np.testing.assert_allclose(network(x).array, 3.0 * before, rtol=1e-13)


def test_what_a_replica_notes_in_its_forward_stays_its_own():
    network = over(Scaled())
    for _ in range(2):
        network(RNG.normal(size=(5, 3)))
        assert [replica.native.seen for replica in network.replicas] == [3, 2]


def test_what_a_replica_noted_in_a_call_that_failed_stays_its_own(within):
    network = over(Scaled())
    network(RNG.normal(size=(5, 3)))
    with pytest.raises(chainer.utils.type_check.InvalidType):
        within(network, np.ones((4, 5)))
    network.replicas[1].native.seen = "its own"
    network.parallelism.prepare_run()
    assert network.replicas[1].native.seen == "its own"


def test_a_persistent_value_added_later_follows_the_policy():
    network = over(Scaled(), buffers="mean")
    network.module.add_persistent("late", np.zeros(2))
    network(RNG.normal(size=(5, 3)))
    network.module.late += 4.0
    network(RNG.normal(size=(5, 3)))
    np.testing.assert_array_equal(network.replicas[1].native.late, [4.0, 4.0])
    assert not np.shares_memory(network.replicas[1].native.late, network.module.late)


def test_an_attribute_taken_away_later_is_gone_in_the_replicas():
    network = over(Scaled())
    network.module.extra = 1
    network(RNG.normal(size=(4, 3)))
    assert network.replicas[1].native.extra == 1
    del network.module.extra
    network(RNG.normal(size=(4, 3)))
    assert not hasattr(network.replicas[1].native, "extra")


def test_a_layer_replaced_later_is_replaced_in_every_replica():
    network, x = over(Scaled()), RNG.normal(size=(5, 3))
    network(x)
    del network.module.fc
    with network.module.init_scope():
        network.module.fc = L.Linear(3, 7)
    assert network(x).shape == (5, 7)
    np.testing.assert_allclose(network(x).array, network.module(x).array, rtol=1e-13)
    assert network.replicas[1].native.fc is not network.module.fc
    wanted = gradients_of(network.module.copy("copy"), lambda net, x: F.sum(net(x) ** 2), x)
    network.cleargrads()
    F.sum(network(x) ** 2).backward()
    network.parallelism.accumulate_gradients()
    same({name: p.grad for name, p in network.namedparams()}, wanted)


def test_a_parameter_frozen_or_thawed_later_is_so_in_every_replica():
    network, (x, y) = over(Small(), buffers="sync"), images(5)
    network.set_trainable("fc.*", False)
    network.cleargrads()
    cross_entropy(network, x, y).backward()
    assert [replica.native.fc.W.grad for replica in network.replicas] == [None, None]
    assert all(replica.native.conv.W.grad is not None for replica in network.replicas)
    network.set_trainable("fc.*", True)
    network.cleargrads()
    cross_entropy(network, x, y).backward()
    assert all(replica.native.fc.W.grad is not None for replica in network.replicas)


class Moded(Network):
    def __init__(self):
        super().__init__()
        self.bn, self.fc = self.nn.BatchNorm1d(3), self.nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(self.bn(x)), self.training, self.bn.training


@pytest.mark.parametrize(
    ("whole", "block", "config"),
    [
        (True, True, True),
        (False, False, True),
        (True, False, True),
        (False, True, True),
        (True, True, False),
    ],
)
def test_training_modes_reach_the_replicas(whole, block, config):
    root = Moded.on("chainer")()
    network = DataParallel(root, ["@numpy", "@numpy"])
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    network(x)
    root.training, root.bn.training = whole, block
    with chainer.using_config("train", config):
        _, *wanted = root(x)
        _, *found = network(x)
    assert found == wanted == [whole and config, block and config]


def test_the_training_mode_is_the_roots():
    root = Moded.on("chainer")()
    network = DataParallel(root, ["@numpy", "@numpy"])
    network.training = False
    assert (root.training, network.training, root.bn.training) == (False, False, True)
    assert network.train() is network and root.training


def test_wrapping_leaves_what_the_network_was_built_with():
    root = Moded.on("chainer", dtype="float64")()
    network = DataParallel(root, ["@numpy", "@numpy"])
    assert (root.dtype_built, root.bn.dtype_built, network.dtype_name) == ("float64",) * 3


def test_evaluation_mode_held_for_a_block_is_restored():
    network = DataParallel(Moded.on("chainer")(), ["@numpy", "@numpy"])
    with network.training_mode(False):
        assert network(RNG.normal(size=(4, 3)).astype(np.float32))[1:] == (False, False)
    assert network(RNG.normal(size=(4, 3)).astype(np.float32))[1:] == (True, True)


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
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


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
    alone = chainer.Sequential(L.Linear(3, 4).add_hook(chainer.link_hooks.SpectralNormalization()))
    network = over(alone.copy("copy"), 2)
    x = RNG.normal(size=(5, 3))
    for _ in range(3):
        wanted = gradients_of(alone, lambda net, x: F.sum(net(x) ** 2), x)
        network.cleargrads()
        F.sum(network(x) ** 2).backward()
        network.parallelism.accumulate_gradients()
        same({name: p.grad for name, p in network.namedparams()}, wanted)
        np.testing.assert_allclose(network.module[0].W_u, alone[0].W_u, rtol=1e-13)
    hooks = [
        replica.native[0].local_link_hooks["SpectralNormalization"] for replica in network.replicas
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
    [("train", False), ("enable_backprop", False), ("own_entry", "mine"), ("dtype", np.float16)],
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


def test_replicas_run_in_threads_of_their_own():
    names = seen_in_replicas(lambda: threading.current_thread().name)
    assert sorted(names) == ["replica 0", "replica 1"]


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
        self.forward.append((current_replica() and current_replica().index, function.label))

    def backward_postprocess(self, function, in_data, out_grad):
        self.backward.append((current_replica() and current_replica().index, function.label))


def test_function_hooks_see_each_replica_forward_and_backward():
    network, hook, x = over(L.Linear(3, 2)), Functions(), RNG.normal(size=(5, 3))
    with hook:
        network.parallelism.forward_backward(
            in_replicas(lambda net, x: F.sum(net(x))), lambda loss: loss.backward(), x
        )
    for calls in (hook.forward, hook.backward):
        assert {(0, "LinearFunction"), (1, "LinearFunction")} <= set(calls)
    assert not chainer.get_function_hooks()


def test_an_optimizer_runs_a_loss_in_replicas_backward_in_their_threads():
    network, hook = two_parts(2), Functions()
    with hook:
        CHAINER.optimizer(rules.SGD(lr=0.1), network).update(
            in_replicas(squares), RNG.normal(size=(5, 3))
        )
    assert {index for index, _ in hook.backward} == {0, 1}


def test_a_link_hook_for_all_links_sees_each_replica():
    hook, network = Counting(), over(Scaled())
    with hook:
        network.parallelism.run(
            lambda net, arguments: net(*arguments[0]),
            network.parallelism.scatter(((np.ones((5, 3)),), {})),
        )
    assert {(0, "fc", 3), (1, "fc", 2)} <= set(hook.calls)


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
    network, reporter, x = over(Reporting()), chainer.Reporter(), RNG.normal(size=(5, 3))
    reporter.add_observer("main", network)
    reporter.add_observers("main", network.namedlinks(skipself=True))
    with reporter:
        y = network(x)
    found = reporter.observation
    assert found.keys() == {"main/mean", "main/name", "rows", "main/fc/deep"}
    assert found["main/mean"].array == pytest.approx(y.array.mean(), rel=1e-13)
    assert found["main/fc/deep"].array == pytest.approx(y.array.mean(), rel=1e-13)
    assert found["main/name"] == "of 3" and found["rows"] == pytest.approx((3 * 3 + 2 * 2) / 5)


class Failing(chainer.Link):
    def forward(self, x):
        if current_replica().index == 1:
            raise UnicodeDecodeError("utf-8", b"abc", 0, 1, "of three")
        return x


def test_an_error_in_a_replica_keeps_type_traceback_and_says_where(within):
    with pytest.raises(UnicodeDecodeError, match="of three") as caught:
        within(over(Failing()), np.ones((4, 2)))
    assert caught.value.__notes__ == ["raised in replica 1 of 2 on @numpy"]
    assert any(
        entry.name == "forward" and "test_chainer_replicas" in str(entry.path)
        for entry in caught.traceback
    )


def test_after_an_error_the_network_runs_again(within):
    link = Scaled()
    network = over(link, buffers="sync")
    with pytest.raises(chainer.utils.type_check.InvalidType):
        within(network, np.ones((4, 5)))
    assert within(network, np.ones((4, 3))).shape == (4, 2)


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


def test_the_sum_over_replicas_is_differentiable_in_one_graph(within):
    shares = [chainer.Variable(RNG.normal(size=(size, 3))) for size in (3, 1)]

    def energy(here, x):
        return F.sum(x * F.broadcast_to(here.all_sum(F.sum(x**2, 0), "energy"), x.shape))

    total = F.add(*within(in_each_replica, energy, shares))
    total.backward()
    whole = chainer.Variable(np.concatenate([share.array for share in shares]))
    wanted = F.sum(whole * F.broadcast_to(F.sum(whole**2, 0), whole.shape))
    wanted.backward()
    np.testing.assert_allclose(total.array, wanted.array, rtol=1e-13)
    np.testing.assert_allclose(
        np.concatenate([share.grad for share in shares]), whole.grad, rtol=1e-12
    )


def test_the_sum_over_replicas_is_differentiable_twice_in_threads(within):
    values = [RNG.normal(size=(size, 3)) for size in (3, 1)]

    def energy(here, x):
        return F.sum(F.exp(x) * F.broadcast_to(here.all_sum(F.sum(x**2, 0), "energy"), x.shape))

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
    np.testing.assert_allclose(
        np.concatenate([first for first, _ in found]), gradient.array, rtol=1e-12
    )
    np.testing.assert_allclose(np.concatenate([second for _, second in found]), x.grad, rtol=1e-11)


def test_a_replica_that_does_not_come_to_a_sum_is_an_error(within):
    def odd(here, x):
        return here.all_sum(x, "a sum") if here.index else x

    with pytest.raises(
        ReplicaError, match="replica 1 waits for the others at a sum, but replica 0 ended"
    ):
        within(in_each_replica, odd, [np.ones((2, 1)), np.ones((2, 1))])


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
    x, weights = RNG.normal(1.0, 2.0, size=(samples, 3, 4, 5)), RNG.normal(size=(samples, 3, 4, 5))
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
    same({name: p.grad for name, p in network.namedparams()}, wanted, 1e-10)
    np.testing.assert_allclose(network(x).array, alone(x).array, rtol=1e-11, atol=1e-12)
    for replica in network.replicas:
        np.testing.assert_allclose(replica.native[0].avg_mean, alone[0].avg_mean, rtol=1e-12)
        np.testing.assert_allclose(replica.native[0].avg_var, alone[0].avg_var, rtol=1e-12)


def test_synchronised_native_batch_normalisation_gives_the_gradient_of_the_input(within):
    alone = chainer.Sequential(L.BatchNormalization(3))
    network = over(alone.copy("copy"), 2, buffers="sync")
    values, found = RNG.normal(size=(5, 3)), []
    for net in (alone, network):
        x = chainer.Variable(values)
        F.sum(within(net, x) ** 3).backward()
        found.append(x.grad)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10, atol=1e-13)


def test_finetuning_counts_alike_in_all_replicas(within):
    alone = chainer.Sequential(L.BatchNormalization(3))
    network = over(alone.copy("copy"), 2, buffers="sync")
    x = np.random.default_rng(0).normal(size=(5, 3))  # a mean near zero is not known to 1e-13
    for _ in range(3):
        alone[0](x, finetune=True)
        shares = network.parallelism.scatter(((x,), {}))
        within(
            network.parallelism.run,
            lambda net, args: net.native[0](*args[0], finetune=True),
            shares,
        )
    assert [replica.native[0].N for replica in network.replicas] == [3, 3]
    np.testing.assert_allclose(network.module[0].avg_mean, alone[0].avg_mean, rtol=1e-13)
    np.testing.assert_allclose(network.module[0].avg_var, alone[0].avg_var, rtol=1e-13)


def test_synchronisation_leaves_the_users_link_as_it_was(within):
    module = Small()
    network = over(module, 2, buffers="sync")
    within(network, images(5)[0])
    assert "forward" not in vars(module.bn)
    x = images(6)[0]
    np.testing.assert_allclose(module(x).array, module.copy("copy")(x).array, rtol=1e-13)


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
    return {name: np.asarray(vars(link)[name]).tolist() for name in sorted(link._persistent)}


@pytest.mark.parametrize(
    ("policy", "mean"), [("root", 3.0), ("mean", (3 * 3 + 2 * 2) / 5), ("sync", 3.0)]
)
def test_persistent_values_follow_the_policy_in_every_replica(policy, mean):
    network = over(Counters(), 2, buffers=policy)
    network(np.ones((5, 1)))
    wanted = {"array": [mean, mean], "number": mean, "whole": 3, "wholes": [3, 3], "word": "of 3"}
    for replica in network.replicas:
        found = persistent(replica.native)
        assert found == {
            name: pytest.approx(value) if name in ("array", "number") else value
            for name, value in wanted.items()
        }
    assert isinstance(network.module.whole, int) and isinstance(network.module.number, float)


def test_replicas_that_took_no_part_do_not_count_in_the_mean():
    network = over(Counters(), 4, buffers="mean")
    network(np.ones((2, 1)))
    assert [replica.native.number for replica in network.replicas] == [1.0] * 4


def test_averages_that_nobody_moved_are_not_rounded():
    network = over(Small(), 3, buffers="mean")
    network.module.bn.avg_mean[...] = before = RNG.normal(size=3)
    with chainer.using_config("train", False):
        for _ in range(3):
            network(images(7)[0])
    assert all((replica.native.bn.avg_mean == before).all() for replica in network.replicas)


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


def test_native_dropout_is_the_same_under_a_seed_and_other_in_each_call_and_replica():
    network = DataParallel(Dropping.on("chainer")(), ["@numpy", "@numpy"])
    first, second = masks(network, 5), masks(network)
    np.testing.assert_array_equal(masks(network, 5), first)
    np.testing.assert_array_equal(masks(network), second)
    assert (
        (first != second).any()
        and (first[:2] != first[2:]).any()
        and (masks(network, 6) != first).any()
    )


def test_native_dropout_does_not_depend_on_which_thread_comes_first():
    network = DataParallel(Dropping.on("chainer")(), ["@numpy", "@numpy"])
    found = []
    for network.root.slow in (0, 1):
        found.append(masks(network, 5))
    np.testing.assert_array_equal(*found)


def test_native_dropout_keeps_the_share_that_it_should():
    network = DataParallel(Dropping.on("chainer")(), ["@numpy", "@numpy"])
    assert masks(network, 1, 100).mean() == pytest.approx(0.25, abs=0.02)


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
        self.generator, self.critic, self.unused = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.critic(self.nn.tanh(self.generator(x)))


def two_parts(replicas):
    network = TwoParts.on("chainer", seed=1, dtype="float64")()
    return network if replicas == 1 else DataParallel(network, ["@numpy"] * replicas)


def squares(network, x):
    return network.nn.mean(network(x) ** 2)


def test_gradients_of_a_replicated_network_are_sums_under_the_roots_names():
    x = RNG.normal(size=(5, 3))
    wanted, found = (CHAINER.gradients(squares, two_parts(n), x) for n in (1, 3))
    same(found.parameters, wanted.parameters)
    np.testing.assert_allclose(found.inputs[0], wanted.inputs[0], rtol=1e-12)
    assert found.parameters["unused.weight"] is None and found.loss == pytest.approx(
        wanted.loss, rel=1e-13
    )


def test_adding_gradients_leaves_shared_arrays_alone():
    total = np.ones(3)
    np.testing.assert_array_equal(CHAINER.add(total, np.full(3, 2.0), "@numpy"), [3.0, 3.0, 3.0])
    np.testing.assert_array_equal(total, np.ones(3))
    assert not np.shares_memory(CHAINER.add(None, total, "@numpy"), total)


class SumOfParameters(chainer.Link):
    """Chainer gives both parameters one array as their gradient."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.p, self.q = chainer.Parameter(np.ones(3)), chainer.Parameter(np.ones(3))

    def forward(self, x):
        return x * F.broadcast_to(self.p + self.q, x.shape)


def test_parameters_that_share_one_gradient_array_are_accumulated_once_each():
    x, alone = RNG.normal(size=(5, 3)), SumOfParameters()
    network = over(alone.copy("copy"), 3)
    wanted = gradients_of(alone, lambda net, x: F.sum(net(x)), x)
    network.cleargrads()
    F.sum(network(x)).backward()
    network.parallelism.accumulate_gradients()
    same({name: p.grad for name, p in network.namedparams()}, wanted)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("wrap", [lambda loss: loss, in_replicas], ids=["gathered", "in replicas"])
def test_two_optimizers_over_parts_do_as_on_one_device(replicas, wrap):
    steps = [RNG.normal(size=(5, 3)) for _ in range(4)]

    def run(network, loss):
        one = CHAINER.optimizer(rules.Adam(lr=0.1), network, parameters="generator.*")
        two = CHAINER.optimizer(rules.SGD(lr=0.1, momentum=0.9), network, parameters="critic.*")
        for x in steps:
            one.update(loss, x)
            two.update(lambda net, x: -squares(net, x), x)
        return network.neutral_state(), one.neutral_state(), two.neutral_state()

    for found, wanted in zip(
        run(two_parts(replicas), wrap(squares)), run(two_parts(1), squares), strict=True
    ):
        same(found, wanted)


def test_an_optimizer_over_a_part_updates_that_part_alone_and_its_copies():
    network = two_parts(2)
    before = network.neutral_state()
    optimizer = CHAINER.optimizer(rules.SGD(lr=0.1), network, parameters="critic.*")
    optimizer.update(squares, RNG.normal(size=(5, 3)))
    after = network.neutral_state()
    changed = [name for name in after if (after[name] != before[name]).any()]
    assert changed == ["critic.weight", "critic.bias"] == list(optimizer.updated)
    same(network.replicas[1].neutral_state(), after, 0)


def test_optimizers_over_the_same_parameters_keep_rules_of_their_own():
    def run(over_again):
        network, x = two_parts(1), RNG.normal(size=(5, 3)) * 0 + 1
        first = CHAINER.optimizer(rules.SGD(lr=0.1, momentum=0.9), network)
        first.update(squares, x)
        if over_again:
            CHAINER.optimizer(rules.Adam(lr=0.5), network)
        first.update(squares, x)
        return first.neutral_state()

    same(run(True), run(False))


def test_a_second_optimizer_does_not_thaw_what_is_frozen():
    network = two_parts(2)
    one = CHAINER.optimizer(rules.SGD(lr=0.1), network, parameters="generator.*")
    network.set_trainable("generator.*", False)
    two = CHAINER.optimizer(rules.SGD(lr=0.1, weight_decay=0.1), network)
    before = network.neutral_state()["generator.weight"]
    for optimizer in (two, one):
        optimizer.update(squares, RNG.normal(size=(5, 3)))
    np.testing.assert_array_equal(network.neutral_state()["generator.weight"], before)
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
    same(network.neutral_state(), before, 0)
    assert not network.update_enabled  # of parameters that took no part neither
    network.enable_update()
    optimizers[0].update(squares, x)
    assert (network.neutral_state()["critic.bias"] != before["critic.bias"]).any()


def test_a_pattern_that_fits_no_parameter_is_an_error():
    with pytest.raises(UnknownName, match=r"no parameter matches 'generater\.\*'"):
        CHAINER.optimizer(rules.SGD(lr=0.1), two_parts(2), parameters="generater.*")


def penalised(network, x):
    """A gradient penalty: its derivative goes through the derivative of the network."""
    x = chainer.Variable(np.asarray(chainer.backends.cuda.to_cpu(getattr(x, "array", x))))
    (gradient,) = chainer.grad([F.sum(network(x) ** 2)], [x], enable_double_backprop=True)
    return F.mean(F.sum(gradient**2, 1))


@pytest.mark.parametrize("wrap", [lambda loss: loss, in_replicas], ids=["gathered", "in replicas"])
def test_a_gradient_of_a_gradient_goes_through_the_replicas(wrap):
    steps = [RNG.normal(size=(5, 3)) for _ in range(3)]

    def run(network, loss):
        optimizer = CHAINER.optimizer(rules.SGD(lr=0.1), network)
        for x in steps:
            optimizer.update(loss, x)
        return network.neutral_state()

    same(run(two_parts(2), wrap(penalised)), run(two_parts(1), penalised))


def test_replicas_keep_no_gradients_after_an_update():
    network = two_parts(2)
    CHAINER.optimizer(rules.SGD(lr=0.1), network).update(squares, RNG.normal(size=(5, 3)))
    assert all(p.grad is None for p in network.replicas[1].params())


def test_without_the_copy_the_replicas_would_fall_behind():
    network = two_parts(2)
    optimizer = CHAINER.optimizer(rules.SGD(lr=0.1), network)
    optimizer.update(squares, RNG.normal(size=(5, 3)))
    same(network.replicas[1].neutral_state(), network.neutral_state(), 0)
    optimizer.post_update_hooks.clear()
    optimizer.update(squares, RNG.normal(size=(5, 3)))
    assert (
        network.replicas[1].neutral_state()["critic.bias"] != network.neutral_state()["critic.bias"]
    ).any()


# Devices
# -----------------------------------------------------------------------------


def test_a_replicated_network_does_not_move():
    network = over(Small())
    assert network.to_device("@numpy") is network
    with pytest.raises(DeviceError, match="move the network first, then replicate it anew"):
        chainer.Chain(inside=network).device_resident_accept(visitor_to_another_device())


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
