"""Parameters in lists and dicts: names, values and gradients as with PyTorch's containers."""

import numpy as np
from numpy.testing import assert_array_equal

from deliralike import Network
from deliralike.nn import start
from tests.nn.agreement import get


class Scales(Network):
    """Factors for each of two channels, and a list of shifts."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.factors = nn.ParameterDict({"first": nn.Parameter((2,), start.ONES)})
        self.factors["second"] = nn.Parameter((1,), start.ONES)
        self.shifts = nn.ParameterList([nn.Parameter((2,), start.ZEROS)])

    def forward(self, x):
        return x * self.factors["first"] * self.factors["second"] + self.shifts[0]


def test_parameters_in_containers_belong_to_the_network(name):
    network = Scales.on(get(name))()
    assert list(network.neutral_state()) == [
        "factors.first",
        "factors.second",
        "shifts.0",
    ]
    assert list(network.factors) == ["first", "second"]
    x = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)
    found = network.backend.gradients(lambda net, x: net.nn.sum(net(x)), network, x)
    assert_array_equal(found.parameters["factors.first"], [4.0, 7.0])
    assert_array_equal(found.parameters["factors.second"], [11.0])
    assert_array_equal(found.parameters["shifts.0"], [2.0, 2.0])
