"""Several steps in one program are the steps that are made one by one."""

import math
from functools import partial

import numpy as np
import optax
import pytest
import torch

from deliralike import Network, backends, errors, rules, zoo
from deliralike.optim.optimizer import AbstractOptimizer, Moment
from deliralike.training import Trainer, schedules
from deliralike.training.callbacks import Callback, Checkpoint, Checkpoints, StopOnNaN
from deliralike.training.loop import classification_loss

BATCH, COUNT, EPOCHS = 4, 39, 2  # 9 whole batches and one of 3 an epoch


class Small(Network):
    """Batch normalisation, dropout, and a layer that takes no part in the loss."""

    def __init__(self, convolutional=False):
        super().__init__()
        nn = self.nn
        self.first = (
            nn.Conv1d(1, 5, 3, bias=False) if convolutional else nn.Linear(3, 5, bias=False)
        )
        self.norm = nn.BatchNorm1d(5)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(5, 2)
        self.unused = nn.Linear(2, 2)
        self.convolutional = convolutional

    def forward(self, x):
        if self.convolutional:
            x = self.nn.flatten(self.first(self.nn.expand_dims(x, 1)), 1)
        else:
            x = self.first(x)
        return self.head(self.dropout(self.nn.relu(self.norm(x))))


def samples():
    generator = np.random.default_rng(0)
    return generator.normal(size=(COUNT, 3)), generator.integers(0, 2, COUNT)


def trained(backend, steps_per_call=1, *, convolutional=False, callbacks=(), frozen=(), **fit):
    network = Small.on(backend, dtype="float64", seed=3)(convolutional)
    for pattern in frozen:
        network.set_trainable(pattern, False)
    trainer = Trainer(
        network,
        rules.rule("adam", lr=0.05),
        schedule=schedules.Cosine(20),
        clip_norm=0.5,
        callbacks=callbacks,
        steps_per_call=steps_per_call,
    )
    history = trainer.fit(samples(), epochs=EPOCHS, batch_size=BATCH, **fit)
    return history, trainer


def assert_alike(one, other, tolerance):
    np.testing.assert_allclose(one[0].losses, other[0].losses, rtol=tolerance)
    state, wanted = (each[1].network.neutral_state() for each in (one, other))
    assert state.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(state[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("frozen", "convolutional"), [((), False), (("first.*",), True)])
def test_steps_and_records_are_those_of_single_steps(frozen, convolutional):
    settings = {"frozen": frozen, "convolutional": convolutional}
    together, alone = trained("jax", 4, **settings), trained("jax", **settings)
    assert_alike(together, alone, 1e-14)
    for step, wanted in zip(together[0].steps, alone[0].steps, strict=True):
        assert (step.step, step.epoch, step.samples) == (wanted.step, wanted.epoch, wanted.samples)
        assert step.lr == wanted.lr
    optimizers = [each[1].optimizers["default"] for each in (together, alone)]
    states = [optimizer.neutral_state() for optimizer in optimizers]
    for name, value in states[1].items():
        np.testing.assert_allclose(states[0][name], value, rtol=1e-14, err_msg=name)


class Updates(Callback):
    """Counts the calls of the optimizer's single update."""

    def on_start(self, run):
        self.count = 0
        optimizer = run.optimizer
        update = optimizer.update

        def counted(*arguments):
            self.count += 1
            return update(*arguments)

        optimizer.update = counted


def test_only_what_is_left_is_made_alone():
    updates = Updates()
    trained("jax", 4, callbacks=[updates])
    assert updates.count == 2 * (1 + 1)  # the ninth whole batch, and the small one


def test_steps_that_somebody_looks_at_are_made_alone():
    """StopOnNaN keeps the gradients of each update."""
    updates = Updates()
    together = trained("jax", 4, callbacks=[StopOnNaN(), updates])
    assert updates.count == 20
    assert_alike(together, trained("jax"), 1e-14)


def test_a_checkpoint_that_is_due_within_is_written_after_and_resumed(tmp_path):
    class StopIn(Callback):
        def on_step(self, run, step):
            if step.step == 12:
                run.stop("enough")

    callbacks = [StopIn(), Checkpoint(tmp_path, every_epochs=None, every_steps=5, keep=None)]
    first = trained("jax", 4, callbacks=callbacks)
    assert [path.name for path in Checkpoints.all(tmp_path)] == [
        "step-00000008",  # step 5 was due
        "step-00000010",
        "step-00000014",  # step 12 stopped the run
    ]
    rest = trained("jax", 4, resume=Checkpoints.latest(tmp_path))
    whole = trained("jax")
    losses = np.concatenate([first[0].losses, rest[0].losses])
    np.testing.assert_allclose(losses, whole[0].losses, rtol=1e-14)


def test_labels_out_of_range_are_an_error_as_in_single_steps():
    x, y = samples()
    y[:] = 2
    for steps_per_call in (1, 4):
        trainer = Trainer(
            Small.on("jax")(), rules.rule("sgd", lr=0.1), steps_per_call=steps_per_call
        )
        with pytest.raises(errors.IndexRangeError, match="2"):
            trainer.fit((x[:8], y[:8]), batch_size=BATCH // 2)


def updated(at_once, *, kinds=("numpy",), batches=(4, 4, 4), devices=None, loss=None, **settings):
    """Return the parameters, and the loss of each update, of an optimizer that is used directly."""
    network = zoo.build("mlp", backend="jax", in_features=3, out_features=2, dtype="float64")
    if devices is not None:
        network = backends.DataParallel(network, devices)
    optimizer = network.backend.optimizer(rules.rule("adam", lr=0.05), network)
    optimizer.accumulate = settings.get("accumulate", 1)
    optimizer.keep_gradients = settings.get("keep_gradients", False)
    generator = np.random.default_rng(0)
    loss = classification_loss if loss is None else loss
    given = []
    for i, count in enumerate(batches):
        x, y = generator.normal(size=(count, 3)), generator.integers(0, 2, count)
        if kinds[i % len(kinds)] == "native":
            x, y = network.backend.array(x), network.backend.array(y)
        given.append((x, y, *settings.get("extras", [()] * len(batches))[i]))
    moments = [Moment(0.01 * i) for i in range(1, 1 + len(given))]
    if at_once:
        results = optimizer.update_several(loss, given, moments)
    else:
        results = AbstractOptimizer.update_several(optimizer, loss, given, moments)
    return network.neutral_state(), [float(result) for result in results], optimizer


def weighted_loss(network, x, y, factor, name):
    """Depend on a number of the batch that is passed, and on a text that is compiled in."""
    return classification_loss(network, x, y) * factor * len(name)


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": 2, "batches": (4, 4, 4, 4)},
        {"batches": (4, 3, 4)},
        {"kinds": ("native",)},
        {"kinds": ("numpy", "native")},
        {"keep_gradients": True},
        {"devices": ["cpu", "cpu"]},
        {"loss": weighted_loss, "extras": [(0.5, "aa"), (1.5, "aa"), (1.0, "aa")]},
        {"loss": weighted_loss, "extras": [(0.5, "aa"), (1.5, "b"), (1.0, "aa")]},
    ],
    ids=[
        "accumulated",
        "another shape",
        "native",
        "of both kinds",
        "kept gradients",
        "replicas",
        "other numbers",
        "another text",
    ],
)
def test_updates_made_at_once_are_those_made_one_by_one(settings):
    (state, losses, optimizer), (wanted, wanted_losses, one_by_one) = map(
        partial(updated, **settings), (True, False)
    )
    np.testing.assert_allclose(losses, wanted_losses, rtol=1e-14)
    assert optimizer.steps == one_by_one.steps
    assert optimizer.latest_gradients.keys() == one_by_one.latest_gradients.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-13, atol=1e-14, err_msg=name)


MASKED = np.ma.masked_greater(np.arange(12.0).reshape(4, 3), 10)


@pytest.mark.parametrize(
    ("wrong", "reason"), [(MASKED, "has 1 masked"), (torch.ones(4, 3), "is a Tensor of shape")]
)
def test_the_batch_of_several_that_no_backend_takes_is_named(wrong, reason):
    network = zoo.build("mlp", backend="jax", in_features=3, out_features=2)
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
    x, y = np.ones((4, 3)), np.zeros(4, int)
    for place, batches in enumerate([[(wrong, y), (x, y)], [(x, y), (wrong, y)]]):
        with pytest.raises(errors.DtypeError, match=rf"batch\[{place}\]\[0\] {reason}"):
            optimizer.update_several(classification_loss, batches, [Moment()] * 2)
    assert optimizer.steps == 0


@pytest.mark.parametrize("schedule", [None, schedules.Cosine(20)])
def test_an_optimizer_of_optax_makes_the_same_updates(schedule):
    def fitted(steps_per_call):
        network = Small.on("jax", dtype="float64", seed=3)()
        native = optax.inject_hyperparams(optax.adam)(learning_rate=0.05)
        optimizer = network.backend.wrap_optimizer(native, network)
        trainer = Trainer(network, optimizer, schedule=schedule, steps_per_call=steps_per_call)
        return trainer.fit(samples(), batch_size=BATCH), trainer

    assert_alike(fitted(3), fitted(1), 1e-14)


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_backend_without_it_says_so(backend):
    with pytest.raises(errors.CapabilityError, match=f"{backend}.*'several steps'"):
        trained(backend, 4)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"accumulate": 2}, "accumulated gradients"),
        ({"average": 0.9}, "averaged weights"),
        ({"devices": ["cpu", "cpu"]}, "replicas"),
        ({"precision": "float16"}, "a loss scale"),
    ],
)
def test_what_happens_between_steps_is_refused(settings, reason):
    network = zoo.build("mlp", backend="jax", in_features=3, out_features=2)
    with pytest.raises(errors.SettingError, match=f"with {reason} each step is made alone"):
        Trainer(network, rules.rule("sgd", lr=0.1), steps_per_call=2, **settings)


@pytest.mark.parametrize("count", [0, -1, 2.0, True, math.nan])
def test_a_count_is_a_whole_number(count):
    with pytest.raises(errors.SettingError, match="steps_per_call="):
        trained("jax", count)
