"""Validation, evaluation and prediction call a network as its training does."""

import random

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import data, rules
from deliralike.errors import BatchError, DeliralikeError, SettingError
from deliralike.training import Trainer, predict
from deliralike.training.callbacks import Callback
from tests.training.networks import Linear

RNG = np.random.default_rng(4)
X, Y, WEIGHT = (
    RNG.normal(size=(11, 4)),
    RNG.integers(0, 3, 11),
    RNG.uniform(0.1, 3.0, 11),
)

SGD = rules.rule("sgd", lr=0.0)


class Named(Linear):
    """A network that takes its inputs by name only."""

    def forward(self, *, image, shift):
        return self.fc(image) + shift


class Two(Linear):
    """A network of two inputs."""

    def forward(self, x, shift):
        return self.fc(x) + shift


class Optional(Two):
    """A network whose second input may be left out."""

    def forward(self, x, shift=None):
        return self.fc(x) if shift is None else self.fc(x) + shift


def built(backend, network=Linear):
    return network.on(backend.name, seed=2, dtype="float64")()


def scores_of(network, x=X):
    state = network.neutral_state()
    return x @ state["fc.weight"].T + state["fc.bias"]


def entropies(scores, labels=Y):
    return np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]


def held_out(trainer, samples, **options):
    return trainer.fit(samples, samples, **options).epochs[-1].held_out


# Steps and losses of a network's own
# -----------------------------------------------------------------------------


def weighted_loss(network, x, weight, y):
    nn = network.nn
    return nn.mean(weight * nn.cross_entropy(network(x), y, reduction="none"))


class Weighted(Linear):
    """Steps that take the whole batch: a dict, or a tuple whose last part is no target."""

    def parts(self, batch):
        if isinstance(batch, dict):
            return batch["image"], batch["weight"], batch["class"]
        return batch[1], batch[2], batch[0]

    def train_step(self, batch, optimizers):
        return {"own": optimizers["default"].update(weighted_loss, *self.parts(batch))}

    def val_step(self, batch):
        return {
            "own": weighted_loss(self, *self.backend.prepare(self.parts(batch), self))
        }


@pytest.mark.parametrize(
    "samples",
    [{"image": X, "class": Y, "weight": WEIGHT}, (Y, X, WEIGHT)],
    ids=["dict", "tuple"],
)
def test_a_val_step_gets_the_batch_that_the_train_step_gets(backend, samples):
    network = built(backend, Weighted)
    found = held_out(Trainer(network, SGD), samples, batch_size=11)
    wanted = (WEIGHT * entropies(scores_of(network))).mean()
    assert found == {"own": pytest.approx(wanted, rel=1e-12)}


@pytest.mark.parametrize("metrics", [None, ["accuracy"]])
def test_a_loss_of_more_parts_than_the_network_has_inputs_is_validated(
    backend, metrics
):
    network = built(backend)
    found = held_out(
        Trainer(network, SGD, weighted_loss, metrics), (X, WEIGHT, Y), batch_size=11
    )
    scores = scores_of(network)
    assert found["loss"] == pytest.approx(
        (WEIGHT * entropies(scores)).mean(), rel=1e-12
    )
    assert found.get("accuracy", 0.0) == (
        metrics and (scores.argmax(1) == Y).mean() or 0.0
    )


def test_the_parts_that_are_inputs_can_be_said(backend):
    network = built(backend)

    def loss(prediction, target):
        labels, weight = target
        nn = network.nn
        return nn.mean(weight * nn.cross_entropy(prediction, labels, reduction="none"))

    trainer = Trainer(network, SGD, {"mine": loss}, inputs=1)
    history = trainer.fit((X, Y, WEIGHT), (X, Y, WEIGHT), batch_size=11)
    wanted = (WEIGHT * entropies(scores_of(network))).mean()
    assert history.losses == pytest.approx([wanted], rel=1e-12)
    assert history.epochs[0].held_out["loss"] == pytest.approx(wanted, rel=1e-12)
    rows = np.concatenate(list(trainer.predict(list(zip(X, Y, WEIGHT, strict=True)))))
    assert_allclose(rows, scores_of(network), rtol=1e-12)
    with pytest.raises(
        BatchError, match="inputs=3, and a batch has 3 parts: none is left"
    ):
        Trainer(network, SGD, inputs=3).evaluate((X, Y, WEIGHT))


def test_a_network_that_takes_inputs_by_name_gets_them_by_name_everywhere(backend):
    network = built(backend, Named)
    samples = {"data": {"image": X, "shift": WEIGHT[:, None]}, "label": Y}
    trainer = Trainer(network, SGD, metrics=["accuracy"])
    history = trainer.fit(samples, samples, batch_size=11)
    scores = scores_of(network) + WEIGHT[:, None]
    assert history.losses == pytest.approx([entropies(scores).mean()], rel=1e-12)
    assert history.epochs[0].held_out == {
        "loss": pytest.approx(entropies(scores).mean(), rel=1e-12),
        "accuracy": (scores.argmax(1) == Y).mean(),
    }


def test_a_network_that_gives_its_own_loss_is_called_by_the_loss_alone():
    import chainer

    class Classifier(chainer.links.Classifier):
        def forward(self, *args, **kwargs):
            assert len(args) == 2
            return super().forward(*args, **kwargs)

    def loss(network, x, y):
        return network(x, y)

    network = Classifier(chainer.links.Linear(4, 3))
    x = X.astype(np.float32)
    found = held_out(Trainer(network, SGD, loss), (x, Y), batch_size=11)
    scores = x @ network.predictor.W.array.T + network.predictor.b.array
    assert found == {"loss": pytest.approx(entropies(scores).mean(), rel=1e-5)}


def test_a_network_with_a_train_step_alone_says_that_a_val_step_is_missing():
    class Own(Two):
        def train_step(self, batch, optimizers):
            return {"own": 0.0}

    trainer = Trainer(Own.on("torch")(), SGD)
    with pytest.raises(TypeError) as caught:
        trainer.fit((X, Y), (X, Y))
    assert "Own has a train_step of its own" in "".join(caught.value.__notes__)


# How many parts of a sample are inputs
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("network", [Two, Optional])
def test_a_tuple_in_the_place_of_one_input_is_several_in_training_and_evaluation(
    backend, network
):
    network = built(backend, network)
    samples = ((X, WEIGHT[:, None]), Y)
    history = Trainer(network, SGD).fit(samples, samples, batch_size=11)
    wanted = entropies(scores_of(network) + WEIGHT[:, None]).mean()
    assert history.losses == pytest.approx([wanted], rel=1e-12)
    assert history.epochs[0].held_out["loss"] == pytest.approx(wanted, rel=1e-12)


def of_samples(*parts):
    return list(zip(*parts, strict=True))


def batches_of_four(*parts):
    return data.Loader(parts, 4)


def one_batch(*parts):
    return iter([parts])


@pytest.mark.parametrize("source", [of_samples, batches_of_four, one_batch])
def test_the_second_input_of_samples_without_labels_is_an_input(source):
    network = Two.on("torch", seed=2, dtype="float64")()
    wanted = scores_of(network) + WEIGHT[:, None]
    for parts in ((X, WEIGHT[:, None]), (X, WEIGHT[:, None], Y)):
        assert_allclose(np.concatenate(list(predict(network, source(*parts)))), wanted)


def test_a_part_that_may_be_an_input_or_the_target_is_asked_for():
    network = Optional.on("torch", seed=2, dtype="float64")()
    samples = of_samples(X, WEIGHT[:, None])
    with pytest.raises(
        BatchError, match="takes 1 to 2 inputs: say how many.*inputs=1 where"
    ):
        next(predict(network, samples))
    scores = scores_of(network)
    for inputs, wanted in ((1, scores), (2, scores + WEIGHT[:, None])):
        rows = np.concatenate(list(predict(network, samples, inputs=inputs)))
        assert_allclose(rows, wanted)


# The order of the samples
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
def test_predictions_are_in_the_order_of_the_data_whole(backend, drop_last):
    network = built(backend)
    rows = predict(network, data.Loader((X, Y), 4, shuffle=True, drop_last=drop_last))
    assert_allclose(np.concatenate(list(rows)), scores_of(network), rtol=1e-12)


def random_loader(shuffle):
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return torch.utils.data.DataLoader(pairs, 4, shuffle=shuffle)


def test_predictions_of_a_loader_with_an_order_of_its_own_are_refused():
    network = Linear.on("torch", seed=2, dtype="float64")()
    in_order = np.concatenate(list(predict(network, random_loader(False))))
    assert_allclose(in_order, scores_of(network), rtol=1e-12)
    with pytest.raises(
        SettingError, match="order of the data: a torch.RandomSampler chooses"
    ):
        next(predict(network, random_loader(True)))
    repeated = data.Loader((X, Y), 4, sampler=data.RepeatedSampler(2))
    with pytest.raises(
        SettingError, match="order of the data: a RepeatedSampler chooses"
    ):
        next(predict(network, repeated))


# The first batch of validation data, before the first step
# -----------------------------------------------------------------------------


class CountSteps(Callback):
    def __init__(self):
        self.steps = 0

    def on_step(self, run, step):
        self.steps += 1


@pytest.mark.parametrize(
    ("metrics", "validation", "message"),
    [
        (["top-k"], (X, Y), "top-5 needs at least 5 classes"),
        (
            ["accuracy"],
            (X, np.where(Y == 1, -100, Y)),
            "a label that does not count is named by",
        ),
        (None, (X[:, :3], Y), "got an input of shape"),
        (None, (X, Y.astype(float)), "targets are floating numbers"),
        (None, (X, Y + 5), "out of range"),
    ],
)
def test_errors_of_validation_come_before_the_first_step(
    backend, metrics, validation, message
):
    steps = CountSteps()
    trainer = Trainer(built(backend), SGD, metrics=metrics, callbacks=[steps])
    with pytest.raises(DeliralikeError, match=message):
        trainer.fit((X, Y), validation, batch_size=2)
    assert steps.steps == 0


class Noisy:
    """Samples that draw from global generators."""

    def __init__(self, backend):
        self.draw = torch.rand if backend.name == "torch" else np.random.random

    def __len__(self):
        return 11

    def __getitem__(self, i):
        return X[i] + random.random() + np.random.random() + float(self.draw(())), Y[i]


def test_the_look_at_the_first_batch_leaves_no_trace(backend):
    """Training alone and training with validation draw the same numbers in the first epoch."""
    states = []
    for validation in (None, Noisy(backend)):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        network = built(backend)
        trainer = Trainer(network, rules.rule("sgd", lr=0.1))
        history = trainer.fit(Noisy(backend), validation, batch_size=4)
        states.append(
            np.append(network.neutral_state()["fc.weight"].ravel(), history.losses)
        )
    assert_array_equal(*states)


def test_a_function_is_not_asked_for_the_figure_of_the_first_batch():
    sizes = []

    def size(outputs, targets):
        sizes.append(len(targets))
        return 0.0

    trainer = Trainer(
        Linear.on("torch", dtype="float64")(), SGD, metrics={"size": size}
    )
    trainer.fit((X, Y), data.Loader((X, Y), 4), epochs=2)
    assert sizes == [11, 11]
