"""The trainer: what it validates by, windows of batches, several optimizers, devices, and bad
input."""

import numpy as np
import pytest

from deliralike import backends, data, zoo
from deliralike.errors import ArgumentError, SettingError
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm
from deliralike.training import EarlyStopping, Trainer
from tests.arrays import same_named

RNG = np.random.default_rng(0)
SAMPLES = data.Samples(RNG.normal(size=(23, 5)), RNG.integers(0, 3, 23))
SGD = rules.rule("sgd", lr=0.1, momentum=0.9)


def network(name="torch", **options):
    return zoo.build(
        "mlp",
        backend=name,
        in_features=5,
        hidden=(7,),
        out_features=3,
        dtype="float64",
        **options,
    )


def cross_entropy(scores, labels):
    shifted = scores - scores.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return -log_p[np.arange(len(labels)), labels]


def weights_by_hand(state):
    return [
        state[name]
        for name in (
            "layers.0.weight",
            "layers.0.bias",
            "layers.1.weight",
            "layers.1.bias",
        )
    ]


def scores_by_hand(net, x):
    w0, b0, w1, b1 = weights_by_hand(net.neutral_state())
    return np.maximum(x @ w0.T + b0, 0.0) @ w1.T + b1


def test_losses_stand_beside_metrics_unless_one_has_their_name():
    net = network()
    doubled = {
        "twice": lambda scores, labels: net.nn.cross_entropy(scores, labels) * 2.0
    }
    found = Trainer(net, SGD, doubled, ["accuracy"]).evaluate(SAMPLES, batch_size=7)
    wanted = cross_entropy(scores_by_hand(net, SAMPLES.inputs), SAMPLES.labels).mean()
    assert list(found) == ["loss", "accuracy"]
    assert found["loss"] == pytest.approx(2 * wanted, rel=1e-12)
    found = Trainer(net, SGD, doubled, ["loss"]).evaluate(SAMPLES)
    assert found == {"loss": pytest.approx(wanted, rel=1e-12)}


def test_several_losses_are_summed_and_each_is_recorded():
    net = network()
    losses = {
        name: lambda scores, labels, f=factor: net.nn.cross_entropy(scores, labels) * f
        for name, factor in (("one", 1.0), ("three", 3.0))
    }
    step, *_ = Trainer(net, SGD, losses).fit(SAMPLES, batch_size=23).steps
    assert list(step.losses) == ["loss", "one", "three"]
    assert step.losses["three"] == pytest.approx(3 * step.losses["one"], rel=1e-12)
    assert (
        step.loss
        == step.losses["loss"]
        == pytest.approx(4 * step.losses["one"], rel=1e-12)
    )


@pytest.mark.parametrize(
    ("replicas", "accumulate", "sizes"), [(1, 2, [8, 8, 7]), (2, 4, [16, 7])]
)
def test_windows_of_batches_are_big_batches_and_the_last_one_may_be_smaller(
    backend, replicas, accumulate, sizes
):
    """Of four batches in a window the last window has two: it waits for no more of them."""
    devices = None if replicas == 1 else [backend.devices()[0]] * replicas
    runs = []
    for batch_size, count in ((4 * accumulate, 1), (4, accumulate)):
        net = network(backend.name, seed=3)
        trainer = Trainer(net, SGD, devices=devices, accumulate=count, clip_norm=0.5)
        history = trainer.fit(SAMPLES, epochs=2, batch_size=batch_size)
        assert trainer.optimizers["default"].steps == 2 * len(sizes)
        runs.append((history, trainer.network.neutral_state()))
    (one, whole), (two, windows) = runs
    assert (
        [step.samples for step in two.steps]
        == [step.samples for step in one.steps]
        == sizes * 2
    )
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-12)
    same_named(windows, whole)


def test_an_optimizer_that_accumulates_keeps_doing_so():
    traces = []
    for given, accumulate in ((3, None), (1, 3)):
        net = network()
        optimizer = net.backend.optimizer(SGD, net)
        optimizer.accumulate = given
        history = Trainer(net, optimizer, accumulate=accumulate).fit(
            SAMPLES, batch_size=4
        )
        assert [step.samples for step in history.steps] == [12, 11]
        traces.append(history.losses.tolist())
    assert traces[0] == traces[1]


def test_a_rule_under_the_name_of_a_block_updates_that_block_only():
    net = network()
    before = net.neutral_state()
    Trainer(net, {"layers.1": SGD}).fit(SAMPLES, batch_size=23)
    changed = [
        name
        for name, value in net.neutral_state().items()
        if not np.array_equal(value, before[name])
    ]
    assert changed == ["layers.1.weight", "layers.1.bias"]


def test_a_stream_of_batches_is_trained_on_without_knowing_its_length():
    stream = data.Batches(lambda: data.Loader(SAMPLES, 8).batches())
    history = Trainer(network(), SGD).fit(stream, epochs=2)
    assert [step.samples for step in history.steps] == [8, 8, 7, 8, 8, 7]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"rng": "portabel"},
            SettingError,
            "rng='portabel' is unknown. Did you mean 'portable'?",
        ),
        ({"optimizer": {}}, SettingError, "there is no optimizer: give an update rule"),
        (
            {"optimizer": 0.1},
            ArgumentError,
            "optimizer 'default' is a float, wanted a rule",
        ),
        (
            {"schedule": {"generater": None}},
            SettingError,
            "there is no optimizer 'generater' for a schedule",
        ),
        (
            {"accumulate": 0},
            SettingError,
            "accumulate=0 must be a whole number of at least 1",
        ),
        ({"clip_norm": -1.0}, SettingError, "clip_norm=-1.0 must be a number above 0"),
        (
            {"loss_scale": 512.0},
            SettingError,
            "loss_scale=512.0 belongs to a shorter type",
        ),
        ({"clip_value": 0.0}, SettingError, "max_value=0.0 must be above 0"),
        ({"precision": "float8"}, SettingError, "there is no mixed precision 'float8'"),
    ],
)
def test_a_trainer_that_cannot_be_made_says_why(options, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        Trainer(network(), **({"optimizer": SGD} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"callbacks": EarlyStopping("loss")}, "callbacks=.* must be a list"),
        ({"callbacks": [EarlyStopping]}, "callbacks: .* is no callback"),
        ({"devices": 2}, "devices=2 must be a list, each entry a text, or None"),
        ({"buffers": "snyc"}, "buffers='snyc' is unknown. Did you mean 'sync'"),
        ({"average": "0.9"}, "decay='0.9' must be a number"),
        ({"layer_decay": "0.75"}, "layer_decay='0.75' must be a number, or None"),
        ({"inferer": 3}, "inferer=3 must be a function, or None"),
        ({"compile": "max-autotune"}, "compile='max-autotune' must be true or false"),
    ],
)
def test_arguments_of_another_type_are_named(options, message):
    with pytest.raises(SettingError, match=message):
        Trainer(network(), SGD, **options)


def test_a_name_that_is_accepted_stands_in_a_list():
    with pytest.raises(SettingError, match="accept='loss' must be a list"):
        Trainer(network(), SGD).fit(SAMPLES, accept="loss")


def test_a_trainer_takes_what_users_of_mmengine_write():
    """``clip_grad`` and ``loss_scale`` as dictionaries."""
    trainer = Trainer(
        zoo.build("mlp", backend="torch", in_features=3, out_features=2),
        SGD,
        precision="float16",
        loss_scale=dict(init_scale=512.0, growth_interval=5, backoff_factor=0.25),
        clip_norm=dict(max_norm=35, norm_type=1),
    )
    (optimizer,) = trainer.optimizers.values()
    assert (optimizer.loss_scale.value, optimizer.loss_scale.growth_interval) == (
        512.0,
        5,
    )
    optimizer.loss_scale.observe(False)
    assert optimizer.loss_scale.value == 128.0
    assert ClipNorm(35, 1) in optimizer.pre_update_hooks


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_batch_normalisation_with_several_batches_in_one_update_is_warned_of(backend):
    net = zoo.build("resnet8", backend=backend, in_channels=1, num_classes=3)
    with pytest.warns(
        UserWarning,
        match=r"accumulate=3 with batch normalisation \(\d+ layers, first '.*bn1'\)",
    ):
        Trainer(net, SGD, accumulate=3)


def test_an_optimizer_of_another_network_is_refused():
    other = network()
    with pytest.raises(
        ArgumentError, match="updates another network than the one that is trained"
    ):
        Trainer(network(), backends.get("torch").optimizer(SGD, other))


def test_a_step_that_returns_no_losses_by_name_is_refused():
    class Odd(type(network()).written_once):
        def train_step(self, batch, optimizers):
            return 1.0

    net = Odd.on("torch")(5, 3)
    with pytest.raises(
        ArgumentError,
        match="train_step of Odd gave a float: it returns its losses by name",
    ):
        Trainer(net, SGD).fit(SAMPLES)


def native_linear(backend, weight):
    """A layer of the framework's own, from 5 to 3 without a bias, and what reads its weight."""
    if backend.name == "torch":
        import torch

        layer = torch.nn.Linear(5, 3, bias=False)
    elif backend.name == "chainer":
        from chainer import links

        layer = links.Linear(5, 3, nobias=True)
    else:
        from flax import nnx

        layer = nnx.Linear(5, 3, use_bias=False, rngs=nnx.Rngs(0))
    backends.wrap(layer).load_neutral_state({"weight": weight})
    return layer


def native_sgd(backend, layer, lr):
    if backend.name == "torch":
        import torch

        return torch.optim.SGD(layer.parameters(), lr=lr)
    if backend.name == "chainer":
        from chainer import optimizers

        return optimizers.SGD(lr)
    import optax

    return optax.inject_hyperparams(optax.sgd)(learning_rate=lr)


def test_a_native_network_is_taken_with_an_optimizer_of_its_framework(backend):
    x, y = (RNG.normal(size=(7, size)).astype(np.float32) for size in (5, 3))
    weight = RNG.normal(size=(3, 5)).astype(np.float32)
    layer = native_linear(backend, weight)
    Trainer(layer, native_sgd(backend, layer, 0.5)).fit((x, y), epochs=1, batch_size=7)
    after = weight - 0.5 * 2 / y.size * (x @ weight.T - y).T @ x
    np.testing.assert_allclose(
        backends.wrap(layer).neutral_state()["weight"], after, atol=1e-5
    )
