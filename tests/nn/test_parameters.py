"""A parameter is compared, and taken by functions, as any array is."""

import operator

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, rules
from deliralike.conformance.suite.nets import Remembering, Setting
from tests.nn.agreement import get

VALUES = np.array([-1.5, -0.5, 0.0, 0.5, 2.0])
OTHER = VALUES[::-1].copy()


class Pair(Network):
    """Two parameters."""

    def __init__(self):
        super().__init__()
        self.one = self.nn.Parameter(VALUES.shape, VALUES)
        self.other = self.nn.Parameter(OTHER.shape, OTHER)


# What is made of the two parameters, and of their values by NumPy
ROWS = {
    "clamp from below": (
        lambda nn, p, q: nn.clamp(p, min=0.1),
        np.maximum(VALUES, 0.1),
    ),
    "clamp from above": (
        lambda nn, p, q: nn.clamp(p, max=0.1),
        np.minimum(VALUES, 0.1),
    ),
    "maximum": (lambda nn, p, q: nn.maximum(p, q), np.maximum(VALUES, OTHER)),
    "minimum": (lambda nn, p, q: nn.minimum(p, 0.0 * q), np.minimum(VALUES, 0.0)),
    "sign": (lambda nn, p, q: nn.sign(p), np.sign(VALUES)),
    "trunc": (lambda nn, p, q: nn.trunc(p), np.trunc(VALUES)),
    "isnan": (lambda nn, p, q: nn.isnan(p), np.isnan(VALUES)),
    "nan_to_num": (lambda nn, p, q: nn.nan_to_num(p), VALUES),
    "atan2": (lambda nn, p, q: nn.atan2(p, q), np.arctan2(VALUES, OTHER)),
    "asinh": (lambda nn, p, q: nn.asinh(p), np.arcsinh(VALUES)),
    "leaky_relu": (
        lambda nn, p, q: nn.leaky_relu(p),
        np.maximum(VALUES, 0.01 * VALUES),
    ),
    "relu6": (lambda nn, p, q: nn.relu6(p), np.clip(VALUES, 0.0, 6.0)),
}
for _compare in (
    operator.lt,
    operator.le,
    operator.eq,
    operator.ne,
    operator.gt,
    operator.ge,
):
    _name = _compare.__name__
    ROWS |= {
        f"{_name} of two": (
            lambda nn, p, q, to=_compare: to(p, q),
            _compare(VALUES, OTHER),
        ),
        f"{_name} of an array": (
            lambda nn, p, q, to=_compare: to(p * 1.0, q),
            _compare(VALUES, OTHER),
        ),
        f"{_name} of a number": (
            lambda nn, p, q, to=_compare: to(p, 0.5),
            _compare(VALUES, 0.5),
        ),
    }


def test_parameters_are_taken_as_arrays_are(name, subtests):
    network = Pair.on(get(name), dtype="float64")()
    for label, (ours, expected) in ROWS.items():
        with subtests.test(row=label):
            found = ours(network.nn, network.one, network.other)
            found = network.backend.to_numpy(network.nn.cast(found, "float64"))
            assert_allclose(found, expected.astype(np.float64), rtol=1e-14)


class Table(Network):
    """A table whose columns are taken in an order that is kept as a buffer."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.values = nn.Parameter((2, 5), np.arange(10.0).reshape(2, 5))
        self.order = nn.Buffer(np.array([4, 0, 3]))
        self.chosen = nn.Buffer(np.array([True, False, True]))

    def forward(self, x):
        return self.values[:, self.order] + self.order[self.chosen][0] + x


def test_a_parameter_is_indexed_by_a_buffer(name):
    network = Table.on(get(name), dtype="float64")()
    (x,) = network.backend.prepare((np.zeros((2, 3)),), network)
    wanted = np.arange(10.0).reshape(2, 5)[:, [4, 0, 3]] + 4
    assert_array_equal(network.backend.to_numpy(network(x)), wanted)


def test_the_value_of_a_buffer_has_no_gradient(backend):
    network = Setting.on(backend, dtype="float64")()
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
    x = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
    factor = np.array([0.5, 2.0, -1.0])
    optimizer.update(lambda network, x: network.nn.sum(network(x)), x)
    mean = (x * factor).mean(0)
    state = network.neutral_state()
    assert_allclose(state["mean"], mean)
    assert_allclose(state["factor"], factor - 0.1 * (x * mean).sum(0))


def test_a_state_outlives_an_update_and_is_not_saved(backend):
    network = Remembering.on(backend, dtype="float64")()
    assert list(network.neutral_state()) == ["factor"]
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
    x = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
    factor, last = np.array([0.5, 2.0, -1.0]), 1.0
    for _ in range(3):
        optimizer.update(lambda network, x: network.nn.sum(network(x)), x)
        network.last = network.nn.detach(network.last[...])
        last, slope = x * factor * last, (x * last).sum(0)
        factor = factor - 0.1 * slope
    found = network.backend.to_numpy(network.last[...])
    assert_allclose(found, last)
    assert_allclose(network.neutral_state()["factor"], factor)


class Filled(Network):
    """A buffer of whatever it is given."""

    def __init__(self, value):
        super().__init__()
        self.value = self.nn.Buffer(value)


@pytest.mark.parametrize(
    "value", [[0.5, 2.0], (3, 4), 1.5, torch.tensor([0.5, 2.0])], ids=repr
)
def test_a_buffer_is_made_of_whatever_numpy_makes_an_array_of(name, value):
    network = Filled.on(get(name), dtype="float64")(value)
    found = network.neutral_state()["value"]
    assert_array_equal(found, np.asarray(value))
    assert found.dtype.kind == np.asarray(value).dtype.kind
