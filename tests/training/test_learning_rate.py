"""The learning-rate finder: its curve is that of a loop by hand, and it leaves no trace."""

import random

import numpy as np
import pytest
import torch

from deliralike import Network, rules
from deliralike.errors import ArgumentError, SettingError
from deliralike.training import (
    LearningRates,
    Trainer,
    WeightAverage,
    curves,
    find_learning_rate,
)
from tests.conftest import BACKENDS

RNG = np.random.default_rng(3)
X = RNG.normal(size=(13, 5))
Y = X @ RNG.normal(size=(5, 2)) + 0.1 * RNG.normal(size=(13, 2))


class Line(Network):
    """A linear map."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(x)


class Rich(Network):
    """What a step changes beside parameters: running statistics, and the place in the masks."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.first, self.norm = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.dropout, self.head = nn.Dropout(0.3), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.dropout(self.nn.relu(self.norm(self.first(x)))))


def by_hand(weights, start, end, steps):
    """Rates, losses and smoothed losses of gradient descent in PyTorch, until they diverge."""
    layer = torch.nn.Linear(5, 2).double()
    layer.load_state_dict(
        {name: torch.tensor(value) for name, value in weights.items()}
    )
    rates, losses, smoothed, average = [], [], [], 0.0
    for step in range(steps):
        rate = start * (end / start) ** (step / (steps - 1))
        loss = torch.nn.functional.mse_loss(layer(torch.tensor(X)), torch.tensor(Y))
        gradients = torch.autograd.grad(loss, list(layer.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
                parameter -= rate * gradient
        average = 0.9 * average + 0.1 * loss.item()
        rates.append(rate)
        losses.append(loss.item())
        smoothed.append(average / (1 - 0.9 ** (step + 1)))
        if smoothed[-1] > 4 * min(smoothed):
            break
    return rates, losses, smoothed


def test_the_curve_is_that_of_a_loop_by_hand(backend):
    network = Line.on(backend, dtype="float64", seed=1)()
    trainer = Trainer(network, rules.rule("sgd", lr=0.1))
    weights = {
        name.removeprefix("fc."): each for name, each in network.neutral_state().items()
    }
    wanted = by_hand(weights, 1e-4, 100.0, 40)
    curve = find_learning_rate(
        trainer, (X, Y), start=1e-4, end=100.0, steps=40, batch_size=13
    )
    assert curve.diverged and 10 < len(curve.rates) == len(wanted[0]) < 40
    for found, each in zip(
        (curve.rates, curve.losses, curve.smoothed), wanted, strict=True
    ):
        np.testing.assert_allclose(found, each, rtol=1e-12)


def test_the_curve_is_the_same_on_every_backend():
    """With masks of dropout, batch normalisation, and Adam, whose own learning rate rests."""
    found = []
    for name in BACKENDS:
        trainer = Trainer(
            Rich.on(name, dtype="float64", seed=1)(), rules.rule("adam", lr=0.1)
        )
        found.append(find_learning_rate(trainer, (X, Y), steps=25, batch_size=5))
    for curve in found[1:]:
        np.testing.assert_allclose(curve.losses, found[0].losses, rtol=1e-9)
        assert curve.suggestion == pytest.approx(found[0].suggestion)


def everything(trainer):
    """All that a step may change, as arrays and texts."""
    [optimizer] = trainer.optimizers.values()
    state = {
        f"network/{key}": each for key, each in trainer.network.neutral_state().items()
    }
    state |= {
        f"optimizer/{key}": each for key, each in optimizer.neutral_state().items()
    }
    state |= {
        f"average/{key}": each
        for key, each in trainer.average.state()["weights"].items()
    }
    state["numpy"], state["python"] = (
        np.random.get_state()[1],
        np.array(random.getstate()[1]),
    )
    if trainer.network.backend.name == "torch":
        state["torch"] = torch.get_rng_state().numpy()
    modes = [block.training for _, block in trainer.network.named_blocks()]
    return state, (modes, optimizer.lr, optimizer.updated, dict(trainer.base_lr))


class Failing:
    """A dataset whose samples run out, and that draws from the global generators."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        random.random(), np.random.random(), torch.rand(1)
        self.count -= 1
        if self.count < 0:
            raise OSError("the disk is gone")
        return X[index], Y[index]


@pytest.mark.parametrize("count", [10**6, 20])
def test_nothing_is_left_behind_after_an_error_too(backend, count):
    def trained():
        network = Rich.on(backend, dtype="float64", seed=1)()
        average = WeightAverage(network, decay=0.9)
        trainer = Trainer(
            network, rules.rule("adam", lr=0.02), average=average, accumulate=2
        )
        trainer.optimizers["default"].post_update_hooks.append(
            WeightAverage(network, decay=0.5)
        )
        trainer.fit((X, Y), batch_size=5)
        return trainer

    with pytest.warns(UserWarning, match="accumulate=2 with batch normalisation"):
        trainer, other = trained(), trained()
    before, rest = everything(trainer)
    if count < 100:
        with pytest.raises(OSError, match="the disk is gone"):
            find_learning_rate(trainer, Failing(count), steps=9, batch_size=5)
    else:
        find_learning_rate(trainer, Failing(count), steps=9, batch_size=5)
    after, rest_after = everything(trainer)
    assert rest_after == rest
    assert after.keys() == before.keys()
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value, err_msg=key)
    losses = [
        each.fit((X, Y), epochs=2, batch_size=5).losses for each in (trainer, other)
    ]
    np.testing.assert_array_equal(*losses)
    hooks = [
        each.optimizers["default"].post_update_hooks[-1].state()
        for each in (trainer, other)
    ]
    np.testing.assert_equal(hooks[0], hooks[1])


def test_a_suggestion_follows_its_rule():
    """Of a curve that falls by 0.1, then 0.5, then 0.2, and grows; its ends are noise."""
    rates = [10.0**power for power in range(-9, 1)]
    smoothed = [9.0, 1.0, 0.9, 0.9, 0.8, 0.3, 0.1, 0.1, 5.0, 0.7]
    curve = LearningRates(rates, smoothed, smoothed)
    assert curve.suggestion == 1e-4
    assert curve.suggest("minimum") == pytest.approx(1e-4)
    with pytest.raises(SettingError, match="falls at no learning rate from 1e-09 to 1"):
        LearningRates(rates, smoothed, [1.0] * 10).suggest()
    with pytest.raises(
        SettingError, match="rule='valley' must be one of 'steepest', 'minimum'"
    ):
        curve.suggest("valley")


def test_a_loss_that_is_not_finite_ends_the_search():
    trainer = Trainer(Line.on("torch", seed=1)(), rules.rule("sgd", lr=0.1))
    curve = find_learning_rate(
        trainer, (X, Y), start=1.0, end=1e38, steps=50, bound=1e300
    )
    assert curve.diverged
    assert np.isfinite(curve.losses).all()
    assert len(curve.rates) < 50


class Pair(Network):
    """Two blocks with an optimizer each."""

    def __init__(self):
        super().__init__()
        self.one, self.two = self.nn.Linear(5, 2), self.nn.Linear(5, 2)

    def forward(self, x):
        return self.one(x) + self.two(x)

    def train_step(self, batch, optimizers, losses=None):
        x, y = batch
        loss = optimizers["one"].update(fitted, x, y)
        optimizers["two"].update(fitted, x, y)
        return {"loss": loss}


def fitted(network, x, y):
    return network.nn.mse_loss(network(x), y)


def test_the_rate_of_one_of_several_optimizers_grows():
    each = {name: rules.rule("sgd", lr=0.01) for name in ("one", "two")}
    trainer = Trainer(Pair.on("torch", seed=1)(), each)
    curve = find_learning_rate(
        trainer, (X, Y), start=1e-3, end=1e-1, steps=5, optimizer="two"
    )
    np.testing.assert_allclose(curve.rates, np.logspace(-3, -1, 5))
    assert [one.lr for one in trainer.optimizers.values()] == [0.01, 0.01]
    with pytest.raises(
        ArgumentError, match="the trainer has no optimizer 'too'. Did you mean 'two'"
    ):
        find_learning_rate(trainer, (X, Y), optimizer="too")


def test_a_curve_is_drawn_with_its_suggestion(tmp_path):
    smoothed = [1.0, 0.9, 0.2, 3.0]
    curve = LearningRates([0.01, 0.1, 1.0, 10.0], smoothed, smoothed)
    text = curves.draw_learning_rates(curve, tmp_path / "lr.svg").read_text()
    assert "steepest: 1" in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": 0.0}, "start=0.0 must be above 0 and below end=10.0"),
        ({"start": 1.0, "end": 0.1}, "start=1.0 must be above 0 and below end=0.1"),
        ({"steps": 2}, "steps=2 must be a whole number of at least 3"),
        ({"smoothing": 1.0}, "smoothing=1.0 must be below 1"),
        ({"bound": 1.0}, "bound=1.0 must be above 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings, message):
    trainer = Trainer(Line.on("torch")(), rules.rule("sgd", lr=0.1))
    with pytest.raises(SettingError, match=message):
        find_learning_rate(trainer, (X, Y), **settings)
