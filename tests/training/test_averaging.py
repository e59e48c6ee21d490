"""Averaged weights: the formulas in NumPy, the network's own weights untouched, replicas, resuming,
the trainer."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from deliralike import DataParallel, Network, data
from deliralike.errors import ArgumentError, SettingError, StateError
from deliralike.optim.rules import rule
from deliralike.training import Trainer, WeightAverage, evaluate
from tests.losses import cross_entropy
from tests.parallel.networks import Small, batch_of, devices

X, Y = batch_of(7)


def build(backend, count=1, dtype="float64"):
    net = Small.on(backend, dtype=dtype)(p=0.0)
    net = (
        DataParallel(net, devices(backend, count), buffers="sync") if count > 1 else net
    )
    return net, backend.optimizer(rule("sgd", lr=0.3), net)


@cache  # tests leave what they get as it was
def trained(backend, count=1, steps=7):
    """The weights at the start and after each step of a network that was trained, and its average
    of each case."""
    net, optimizer = build(backend, count)
    averages = {case: make(net) for case, (make, _) in CASES.items()}
    optimizer.post_update_hooks += averages.values()
    states = [net.neutral_state()]
    for _ in range(steps):
        optimizer.update(cross_entropy, X, Y)
        states.append(net.neutral_state())
    return states, averages


def with_decay(backend, count=1, steps=7):
    """The weights after each step, and their exponential average."""
    states, averages = trained(backend, count, steps)
    return states, averages["decay"]


def assert_average(average, states, of):
    found = average.neutral_state()
    assert list(found) == list(states[-1])
    for name, value in found.items():
        if value.dtype.kind == "f":
            wanted = of([state[name] for state in states])
            assert_allclose(value, wanted, rtol=1e-12, atol=1e-14, err_msg=name)
            continue
        assert value == len(states) - 1


def exponential(decays):
    """The average in NumPy: it begins as the first weights; `decays` follow by update."""

    def of(values):
        total = values[0]
        for value, decay in zip(values[1:], decays, strict=True):
            total = decay * total + (1 - decay) * value
        return total

    return of


CASES = {
    "decay": (lambda net: WeightAverage(net, 0.6), exponential([0.6] * 7)),
    "none": (lambda net: WeightAverage(net, 0.0), exponential([0.0] * 7)),
}


@pytest.mark.parametrize("case", CASES)
def test_seven_steps_give_the_average_of_the_formula(backend, case):
    states, averages = trained(backend)
    assert_average(averages[case], states, CASES[case][1])


@pytest.mark.parametrize("count", [1, 2])
def test_inside_applied_the_network_and_its_replicas_compute_with_the_average(
    backend, count
):
    states, average = with_decay(backend, count)
    net = average.network
    plain, _ = build(backend)
    plain.load_neutral_state(average.neutral_state())
    outputs = {}
    for name, each in (("plain", plain), ("averaged", net)):
        with average.swap_in(), each.training_mode(False):
            outputs[name] = backend.numpy(each(backend.array(X)))
    assert_allclose(outputs["averaged"], outputs["plain"], rtol=1e-12)
    with net.training_mode(False):
        own = backend.numpy(net(backend.array(X)))
    assert abs(own - outputs["averaged"]).max() > 1e-3
    plain.load_neutral_state(states[-1])
    with plain.training_mode(False):
        assert_allclose(own, backend.numpy(plain(backend.array(X))), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2])
def test_after_applied_the_network_has_its_own_weights_bit_for_bit_also_when_it_raises(
    backend, count
):
    states, average = with_decay(backend, count)
    with pytest.raises(ZeroDivisionError), average.swap_in() as net:
        assert not np.array_equal(
            net.neutral_state()["fc.weight"], states[-1]["fc.weight"]
        )
        raise ZeroDivisionError
    assert_equal(average.network.neutral_state(), states[-1])


def test_what_a_batch_changes_inside_applied_is_forgotten(backend):
    """A forward pass in training mode moves the running statistics: neither the network nor the
    average keep that."""
    states, average = with_decay(backend)
    before = average.neutral_state()
    with average.swap_in() as net:
        net(backend.array(100.0 * X))
    for name in before:
        assert_array_equal(
            average.network.neutral_state()[name], states[-1][name], err_msg=name
        )
        assert_array_equal(average.neutral_state()[name], before[name], err_msg=name)


def test_applied_may_be_entered_twice(backend):
    states, average = with_decay(backend)
    wanted = average.neutral_state()["fc.weight"]
    with average.swap_in() as net:
        with average.swap_in():
            pass
        assert_array_equal(net.neutral_state()["fc.weight"], wanted)
    assert_array_equal(net.neutral_state()["fc.weight"], states[-1]["fc.weight"])


def test_training_on_averaged_weights_is_an_error(backend):
    _, average = with_decay(backend, steps=4)
    with (
        pytest.raises(
            StateError, match=r"holds its averaged weights: leave swap_in\(\)"
        ),
        average.swap_in(),
    ):
        average.update()


def test_averages_go_on_bit_for_bit_from_their_states(backend):
    _, whole = trained(backend)
    states, first = trained(backend, steps=4)
    net, optimizer = build(backend)
    net.load_neutral_state(states[-1])
    for case, (make, _) in CASES.items():
        resumed = make(net)
        resumed.load_state(first[case].state())
        optimizer.post_update_hooks.append(resumed)
    for _ in range(3):
        optimizer.update(cross_entropy, X, Y)
    for case, resumed in zip(CASES, optimizer.post_update_hooks, strict=True):
        for name, value in whole[case].neutral_state().items():
            assert_array_equal(
                resumed.neutral_state()[name], value, err_msg=f"{case}: {name}"
            )


def test_loading_a_state_leaves_the_networks_own_weights(backend):
    _, average = with_decay(backend, steps=4)
    net, _ = build(backend, count=2)
    before = net.neutral_state()
    other = WeightAverage(net, 0.6)
    other.load_state(average.state())
    for name, value in before.items():
        assert_array_equal(net.neutral_state()[name], value)
        assert_array_equal(other.neutral_state()[name], average.neutral_state()[name])


def test_the_state_of_another_network_is_refused_and_changes_nothing(backend):
    _, average = with_decay(backend, steps=4)
    state, before = average.state(), average.neutral_state()
    state["weights"] = {**state["weights"], "fc.bias": np.zeros(9)}
    with pytest.raises(
        StateError,
        match="the average is that of another network than Small: .*fc.bias has shape",
    ):
        average.load_state(state)
    assert_equal(average.neutral_state(), before)


class Tied(Network):
    """Two layers that share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (
            self.nn.Linear(3, 3, bias=False),
            self.nn.Linear(3, 3, bias=False),
        )
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


def test_a_tied_parameter_is_averaged_once(backend):
    net = Tied.on(backend, dtype="float64")()
    average = WeightAverage(net, 0.5)
    start = net.neutral_state()["first.weight"]
    net.load_neutral_state({name: start + 1.0 for name in net.neutral_state()})
    average.update()
    for value in average.neutral_state().values():
        assert_allclose(value, start + 0.5, rtol=1e-14)
    assert len(average._values) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 1.0}, "decay=1.0 must be at least 0 and below 1"),
        ({"decay": float("nan")}, "decay=nan must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        WeightAverage(Small.on("torch")(), **settings)


# The trainer
# -----------------------------------------------------------------------------


def test_a_trainer_judges_and_predicts_with_the_average_and_trains_without_it(backend):
    samples = data.Samples(X, Y)
    net, _ = build(backend)
    trainer = Trainer(net, rule("sgd", lr=0.3), average=0.8)
    trainer.fit(samples, samples, epochs=4, batch_size=4)
    plain, _ = build(backend)
    without = Trainer(plain, rule("sgd", lr=0.3))
    without.fit(samples, epochs=4, batch_size=4)
    assert_equal(net.neutral_state(), plain.neutral_state())
    plain.load_neutral_state(trainer.average.neutral_state())
    assert trainer.evaluate(samples)["loss"] == pytest.approx(
        evaluate(plain, samples)["loss"], rel=1e-12
    )
    assert trainer.evaluate(samples)["loss"] != pytest.approx(
        evaluate(net, samples)["loss"], rel=1e-3
    )
    with plain.training_mode(False):
        wanted = backend.numpy(plain(backend.array(X)))
    assert_allclose(next(iter(trainer.predict(X))), wanted, rtol=1e-12)


def test_the_average_of_another_network_is_refused():
    average = WeightAverage(Small.on("torch")())
    with pytest.raises(
        ArgumentError,
        match="average is that of another network than the one that is trained",
    ):
        Trainer(Small.on("torch")(), rule("sgd", lr=0.3), average=average)
    trainer = Trainer(average.network, rule("sgd", lr=0.3), average=average)
    assert trainer.average is average
