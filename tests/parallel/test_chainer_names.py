"""The names that Chainer's users know: the wrapper, the optimizer, its hooks, and Chainer's own
trainer with them."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends
from deliralike.errors import (
    OptimizerError,
    ShapeError,
)
from deliralike.optim import rules
from deliralike.parallel import in_replicas
from tests.arrays import same_named

CHAINER = backends.get("chainer")
import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402
from chainer import training  # noqa: E402
from chainer.training import extensions  # noqa: E402

from deliralike.backends.chainer import (  # noqa: E402
    AbstractChainerNetwork,
    DataParallelChainerNetwork,
    DataParallelChainerOptimizer,
    ParallelOptimizerCumulateGradientsHook,
    ParallelOptimizerUpdateModelParameters,
)

RNG = np.random.default_rng(8)
HOST = "@numpy"


@pytest.fixture(autouse=True)
def double_precision():
    """Chainer's own links in float64, from the same start values in every run."""
    np.random.seed(12)
    with chainer.using_config("dtype", np.float64):
        yield


class Classifier(AbstractChainerNetwork):
    """A network as delira's users write it: `forward` gives a dict."""

    def __init__(self, features=6, classes=3):
        super().__init__()
        self.hidden, self.out = L.Linear(features, 5), L.Linear(5, classes)

    def forward(self, x):
        return {"pred": self.out(F.tanh(self.hidden(x)))}


class Plain(chainer.Chain):
    def __init__(self, norm=False):
        super().__init__()
        with self.init_scope():
            self.hidden = L.Linear(6, 5)
            self.norm = L.BatchNormalization(5) if norm else F.identity
            self.out = L.Linear(5, 3)

    def forward(self, x):
        return self.out(F.tanh(self.norm(self.hidden(x))))


def over(module, replicas=2, **settings):
    return DataParallelChainerNetwork(module, [HOST] * replicas, **settings)


# Names, counts, files
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [Plain, Classifier, lambda: L.Linear(6, 3)],
    ids=["chain", "abstract", "link"],
)
def test_parameters_names_and_counts_are_the_modules(make):
    module = make()
    network = over(module, 3)
    assert dict(network.namedparams()).keys() == dict(module.namedparams()).keys()
    assert {id(p) for p in network.params()} == {id(p) for p in module.params()}
    assert network.count_params() == module.count_params()
    assert [name for name, _ in network.namedlinks()] == [
        name for name, _ in module.namedlinks()
    ]
    assert len(list(network.links())) == len(list(module.links()))


@pytest.mark.parametrize(
    "first", [True, False], ids=["from the wrapper", "from the bare network"]
)
@pytest.mark.parametrize(
    "make", [lambda: Plain(norm=True), Classifier], ids=["chain", "abstract"]
)
def test_a_file_fits_the_wrapper_and_the_bare_network(make, first, tmp_path):
    bare, network = make(), over(make(), 3)
    source, target = (network, bare) if first else (bare, network)
    chainer.serializers.save_npz(tmp_path / "weights.npz", source)
    with np.load(tmp_path / "weights.npz") as file:
        assert "hidden/W" in file.files
    chainer.serializers.load_npz(tmp_path / "weights.npz", target)
    x = RNG.normal(size=(7, 6))
    with chainer.using_config("train", False):
        wanted, found = (
            getattr(y, "array", y) for y in (_output(bare, x), _output(network, x))
        )
    assert_allclose(found, wanted, rtol=1e-13)


def _output(network, x):
    y = network(x)
    return y["pred"] if isinstance(y, dict) else y


def test_copied_parameters_reach_every_replica():
    source, network, x = Plain(), over(Plain(), 3), RNG.normal(size=(7, 6))
    network.copyparams(source)
    assert_allclose(network(x).array, source(x).array, rtol=1e-13)


def test_its_text_shows_devices_and_tree():
    assert repr(over(Classifier())).startswith(
        "DataParallelChainerNetwork(\n  devices=['@numpy', '@numpy']\n  (module): Class"
    )


@pytest.mark.parametrize("name", ["cleargrads", "zerograds"])
def test_gradients_are_cleared_in_every_replica(name):
    network = over(Plain(), 3)
    F.sum(network(RNG.normal(size=(5, 6)))).backward()
    assert all(
        p.grad.any()
        for replica in network.replicas
        for p in replica.native.out.params()
    )
    getattr(network, name)()
    of_root, *of_others = [
        [p.grad for p in replica.params()] for replica in network.replicas
    ]
    assert of_others == [[None] * len(of_root)] * 2
    assert all(
        grad is None if name == "cleargrads" else not grad.any() for grad in of_root
    )


# The optimizer
# -----------------------------------------------------------------------------


def wrapped(rule=None, network=None):
    return DataParallelChainerOptimizer(rule or chainer.optimizers.Adam()).setup(
        network or over(Plain())
    )


def test_it_is_an_optimizer_of_chainers():
    assert isinstance(wrapped(), chainer.Optimizer)


@pytest.mark.parametrize(
    "wrong",
    [None, "SGD", chainer.optimizers.SGD(), int, L.Linear],
    ids=lambda wrong: f"{type(wrong).__name__} {getattr(wrong, '__name__', '')}",
)
def test_a_class_that_is_none_is_an_error(wrong):
    with pytest.raises(
        OptimizerError,
        match=r"optim_cls=.* is no class of optimizers, wanted one such as chainer.optimizers",
    ):
        DataParallelChainerOptimizer.from_optimizer_class(wrong)


@pytest.mark.parametrize("wrong", [None, chainer.optimizers.SGD, "SGD"], ids=repr)
def test_only_an_optimizer_can_be_wrapped(wrong):
    with pytest.raises(
        RuntimeError,
        match="wraps an optimizer such as .* from_optimizer_class makes one",
    ) as caught:
        DataParallelChainerOptimizer(wrong)
    assert isinstance(caught.value, OptimizerError) and isinstance(
        caught.value, TypeError
    )


def test_deliras_names_of_modules_devices_axis_and_optimizer():
    """As its users read them: a loop over replicas, the devices, the axis of samples, the optimizer
    inside."""
    link = Plain()
    network = DataParallelChainerNetwork(link, [HOST, HOST, HOST], batch_dim=1)
    assert network.modules[0] is link and len(network.modules[1:]) == 2
    assert all(
        type(copied) is Plain and copied is not link for copied in network.modules[1:]
    )
    assert (network.devices, network.dim) == ([HOST] * 3, 1)
    assert type(over(Classifier()).modules[1]) is Classifier
    rule = chainer.optimizers.Adam()
    optimizer = DataParallelChainerOptimizer(rule).setup(network)
    assert optimizer._optimizer is rule
    for name in ("DataParallelCumulateGradients", "DataParallelUpdateModelParams"):
        optimizer.remove_hook(name)


def test_the_class_is_made_with_its_own_arguments():
    optimizer = DataParallelChainerOptimizer.from_optimizer_class(
        chainer.optimizers.MomentumSGD, 0.3, momentum=0.5
    )
    assert type(optimizer.optimizer) is chainer.optimizers.MomentumSGD
    assert (optimizer.lr, optimizer.momentum) == (0.3, 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0.5),
        ("t", 7),
        ("epoch", 3),
        ("use_auto_new_epoch", True),
        ("_loss_scale", 2.0),
        ("eta", 0.1),
        ("hyperparam", chainer.optimizer.Hyperparameter()),
        ("something_new", 1),
        ("_post_update_hooks", {}),
    ],
)
def test_every_attribute_is_that_of_the_optimizer_inside(name, value):
    optimizer = wrapped()
    setattr(optimizer, name, value)
    assert (
        getattr(optimizer.optimizer, name) is value
        and getattr(optimizer, name) is value
    )


def test_an_attribute_that_is_not_there_is_missed():
    with pytest.raises(
        AttributeError, match="'Adam' object has no attribute 'learning_rate'"
    ):
        wrapped().learning_rate


def test_its_state_is_saved_and_loaded_as_the_optimizers_inside(tmp_path):
    network, x = over(Plain()), RNG.normal(size=(5, 6))
    optimizer = wrapped(chainer.optimizers.Adam(), network)
    optimizer.update(lambda x: F.sum(network(x) ** 2), x)
    chainer.serializers.save_npz(tmp_path / "optimizer.npz", optimizer)
    alone = chainer.optimizers.Adam().setup(network.module.copy("copy"))
    chainer.serializers.load_npz(tmp_path / "optimizer.npz", alone)
    assert alone.t == 1
    assert_array_equal(
        alone.target.out.W.update_rule.state["m"],
        network.module.out.W.update_rule.state["m"],
    )


def test_it_can_be_copied():
    optimizer = pickle.loads(
        pickle.dumps(DataParallelChainerOptimizer(chainer.optimizers.SGD(lr=0.3)))
    )
    assert optimizer.lr == 0.3 and copy.deepcopy(optimizer).lr == 0.3


def test_the_neutral_optimizer_finds_the_rate_of_a_wrapped_adam():
    network = over(Plain())
    neutral = CHAINER.wrap_optimizer(
        DataParallelChainerOptimizer(chainer.optimizers.Adam(alpha=0.125)), network
    )
    assert neutral.lr == 0.125
    neutral.lr = 0.5
    assert neutral.native.alpha == 0.5


# Its hooks
# -----------------------------------------------------------------------------


RULES = {
    "SGD": lambda: chainer.optimizers.SGD(lr=0.1),
    "MomentumSGD": lambda: chainer.optimizers.MomentumSGD(lr=0.1),
    "Adam": lambda: chainer.optimizers.Adam(alpha=0.05),
}


def trained(network, optimizer, loss=None, steps=5, samples=7):
    rng = np.random.default_rng(2)
    for _ in range(steps):
        x, y = (
            rng.normal(size=(samples, 6)),
            rng.integers(0, 3, samples).astype(np.int32),
        )
        if loss is None:
            optimizer.update(lambda x, y: F.softmax_cross_entropy(network(x), y), x, y)
        else:
            optimizer.update(loss, x, y)
    return {name: p.array for name, p in sorted(network.namedparams())}


def train_both(rule, replicas=2, prepare=lambda optimizer: None, **options):
    """Train a network alone and over replicas, compare them, and return both."""
    alone = Plain()
    network = over(alone.copy("copy"), replicas)
    single, optimizer = RULES[rule]().setup(alone), wrapped(RULES[rule](), network)
    prepare(single)
    prepare(optimizer)
    wanted = trained(alone, single)
    same_named(trained(network, optimizer), wanted, **options)
    return network, wanted


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("rule", RULES)
def test_steps_are_those_of_one_device(rule, replicas):
    network, wanted = train_both(rule, replicas)
    for replica in network.replicas:
        parameters = sorted(replica.native.namedparams())
        same_named({name: p.array for name, p in parameters}, wanted)


def test_hooks_that_the_user_adds_to_a_plain_optimizer_do_the_same():
    alone = Plain()
    network = over(alone.copy("copy"), 2)
    optimizer = RULES["Adam"]().setup(network)
    optimizer.add_hook(ParallelOptimizerCumulateGradientsHook())
    optimizer.add_hook(ParallelOptimizerUpdateModelParameters())
    same_named(
        trained(network, optimizer), trained(alone, RULES["Adam"]().setup(alone))
    )


def clip(optimizer):
    for parameter in optimizer.target.params():
        np.clip(parameter.array, -0.1, 0.1, out=parameter.array)


# Before an update hooks see the accumulated gradient; what they do after it is copied.
HOOKS = {
    "gradient clipping": (chainer.optimizer_hooks.GradientClipping(0.1), "pre"),
    "weight decay": (chainer.optimizer_hooks.WeightDecay(0.1), "pre"),
    "clipped weights": (clip, "post"),
}


@pytest.mark.parametrize(("hook", "timing"), HOOKS.values(), ids=HOOKS)
def test_the_users_hooks_do_what_they_do_on_one_device(hook, timing):
    train_both(
        "SGD", 3, lambda optimizer: optimizer.add_hook(hook, "own", timing=timing)
    )


def test_an_update_on_gradients_that_are_there_accumulates_them():
    alone, x = Plain(), RNG.normal(size=(5, 6))
    network = over(alone.copy("copy"), 2)
    for net, optimizer in (
        (alone, RULES["SGD"]().setup(alone)),
        (network, wrapped(RULES["SGD"](), network)),
    ):
        net.cleargrads()
        F.sum(net(x) ** 2).backward()
        optimizer.update()
    same_named(
        {n: p.array for n, p in network.namedparams()},
        {n: p.array for n, p in alone.namedparams()},
    )


def test_a_loss_of_each_replica_that_is_not_made_one_is_an_error():
    model = over(L.Classifier(Plain()), 2)
    optimizer = wrapped(RULES["SGD"](), model)
    x, y = RNG.normal(size=(5, 6)), RNG.integers(0, 3, 5).astype(np.int32)
    with pytest.raises(
        ShapeError, match=r"this one has shape \(2,\): .* scalars='mean'"
    ):
        optimizer.update(model, x, y)


def test_a_gradient_that_is_not_finite_in_one_replica_stops_the_update_under_loss_scaling():
    network = over(Plain(), 2)
    optimizer, before = (
        wrapped(RULES["SGD"](), network),
        network.module.out.W.array.copy(),
    )
    optimizer.loss_scaling()
    x = RNG.normal(size=(4, 6))
    x[3] = np.inf
    with (
        pytest.warns(UserWarning, match="Non finite number"),
        np.errstate(all="ignore"),
    ):
        optimizer.update(lambda x: F.sum(network(x) * 0.0), x)
    assert_array_equal(network.module.out.W.array, before)


@pytest.mark.parametrize("inside", [False, True])
def test_loss_scaling_gives_the_same_steps(inside):
    alone, scales = Plain(), []
    network = over(alone.copy("copy"), 2)
    optimizer = wrapped(RULES["SGD"](), network)
    optimizer.loss_scaling(scale=128.0)
    optimizer.add_hook(
        lambda optimizer: scales.append(network.module.out.W._loss_scale), "scales"
    )
    loss = (
        in_replicas(lambda net, x, y: F.softmax_cross_entropy(net(x), y))
        if inside
        else None
    )
    same_named(
        trained(network, optimizer, loss),
        trained(alone, RULES["SGD"]().setup(alone)),
        1e-11,
    )
    assert scales == [128.0] * 5


def test_a_chainer_optimizer_with_hooks_does_not_accumulate_twice_behind_the_neutral_one():
    alone = Plain()
    network = over(alone.copy("copy"), 2)

    def loss(net, x, y):
        return F.softmax_cross_entropy(net(x), y)

    wanted = trained(
        CHAINER.wrap(alone),
        _Neutral(
            CHAINER.wrap_optimizer(RULES["SGD"]().setup(alone), CHAINER.wrap(alone)),
            loss,
        ),
    )
    found = trained(
        network,
        _Neutral(
            CHAINER.wrap_optimizer(wrapped(RULES["SGD"](), network), network), loss
        ),
    )
    same_named(
        found, {name.removeprefix("/native"): value for name, value in wanted.items()}
    )


def test_a_replicated_network_inside_another_is_kept_in_step_by_the_neutral_optimizer():
    alone = L.Classifier(Plain())
    model = L.Classifier(over(alone.predictor.copy("copy"), 2))
    x, y = RNG.normal(size=(5, 6)), RNG.integers(0, 3, 5).astype(np.int32)
    for net in map(CHAINER.wrap, (alone, model)):
        optimizer = CHAINER.optimizer(rules.Adam(lr=0.05), net)
        for _ in range(3):
            optimizer.update(lambda net, x, y: net(x, y), x, y)
    same_named(
        {n: p.array for n, p in model.namedparams()},
        {n: p.array for n, p in alone.namedparams()},
    )


class _Neutral:
    """A neutral optimizer that `trained` can call."""

    def __init__(self, optimizer, loss):
        self.optimizer, self.loss = optimizer, loss

    def update(self, _, *batch):
        self.optimizer.update(self.loss, *batch)


# Chainer's own trainer
# -----------------------------------------------------------------------------


def train_with_chainer(model, optimizer, folder, loss_func=None, device=None):
    """Two epochs with an evaluator, a schedule, a log and a snapshot; the log and the trainer."""
    rng = np.random.default_rng(6)
    data = chainer.datasets.TupleDataset(
        rng.normal(size=(22, 6)), rng.integers(0, 3, 22).astype(np.int32)
    )
    np.random.seed(5)
    batches = chainer.iterators.SerialIterator(data, 5, shuffle=True)
    validation = chainer.iterators.SerialIterator(data, 7, repeat=False, shuffle=False)
    updater = training.StandardUpdater(
        batches, optimizer, device=device, loss_func=loss_func
    )
    trainer = training.Trainer(updater, (2, "epoch"), out=str(folder))
    trainer.extend(extensions.Evaluator(validation, model))
    trainer.extend(extensions.ExponentialShift("lr", 0.5), trigger=(1, "epoch"))
    trainer.extend(extensions.snapshot(filename="snapshot.npz"), trigger=(1, "epoch"))
    log = extensions.LogReport(trigger=(1, "epoch"), filename=None)
    trainer.extend(log)
    trainer.run()
    return log.log, trainer


MODELS = {
    "the classifier replicated": lambda net, n: over(
        L.Classifier(net), n, scalars="mean", buffers="sync"
    ),
    "the network replicated": lambda net, n: L.Classifier(over(net, n, buffers="sync")),
}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_chainers_trainer_trains_replicas_as_one_device(kind, norm, tmp_path):
    alone = Plain(norm)
    model = MODELS[kind](alone.copy("copy"), 2)
    alone = L.Classifier(alone)
    logs = []
    for net, optimizer in (
        (alone, chainer.optimizers.MomentumSGD(lr=0.1).setup(alone)),
        (
            model,
            DataParallelChainerOptimizer.from_optimizer_class(
                chainer.optimizers.MomentumSGD, lr=0.1
            ).setup(model),
        ),
    ):
        log, trainer = train_with_chainer(net, optimizer, tmp_path, device=HOST)
        assert (
            optimizer.epoch == 2
            and optimizer.lr == pytest.approx(0.025)
            and optimizer.t == trainer.updater.iteration
        )
        logs.append(log)
    same_named(
        {n: p.array for n, p in model.namedparams()},
        {n: p.array for n, p in alone.namedparams()},
    )
    if norm:
        norms = [
            next(link for link in net.links() if isinstance(link, L.BatchNormalization))
            for net in (alone, model)
        ]
        assert_allclose(norms[1].avg_var, norms[0].avg_var, rtol=1e-12)
    for found, wanted in zip(logs[1], logs[0], strict=True):
        for key in (
            "main/loss",
            "main/accuracy",
            "validation/main/loss",
            "validation/main/accuracy",
        ):
            assert found[key] == pytest.approx(wanted[key], rel=1e-12), key
