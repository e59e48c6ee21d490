"""What users of other libraries hand to a `Trainer` by mistake is refused, with what is wanted."""

import numpy as np
import pytest

from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import ArgumentError
from deliralike.optim import rules
from deliralike.training import Trainer

torch = pytest.importorskip("torch")

SAMPLES = np.ones((6, 3), np.float32), np.arange(6) % 2
SGD = rules.rule("sgd", lr=0.5)


def fit(network, optimizer=SGD, **options):
    return Trainer(network, optimizer, **options).fit(SAMPLES, batch_size=3)


def test_an_optimizer_of_another_module_is_refused():
    other = torch.optim.SGD(torch.nn.Linear(4, 2).parameters(), lr=0.1)
    with pytest.raises(ArgumentError, match=r"none of the network's.*shape \(2, 4\).*that is"):
        fit(torch.nn.Linear(3, 2), other)
    link = chainer.links.Linear(3, 2)
    other = chainer.optimizers.SGD().setup(chainer.links.Linear(4, 2))
    with pytest.raises(ArgumentError, match="holds none of the network's parameters"):
        fit(link, other)


def test_an_optimizer_of_some_of_the_parameters_is_taken():
    network = torch.nn.Linear(3, 2)
    before = network.weight.detach().clone(), network.bias.detach().clone()
    fit(network, torch.optim.SGD([network.bias], lr=0.1))
    assert torch.equal(network.weight, before[0])
    assert not torch.equal(network.bias, before[1])
