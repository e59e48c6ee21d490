"""Native masks after a seed depend on the draws since, and on nothing that was built before."""

import copy

import numpy as np
import pytest

from deliralike import DataParallel, Network


class Dropping(Network):
    def __init__(self):
        super().__init__()
        self.drop = self.nn.Dropout(0.5)
        self.linear = self.nn.Linear(1, 1)

    def forward(self, x):
        return self.drop(x)


def masks(network, calls=1):
    x = network.backend.prepare(np.ones((4, 50)), network)
    return np.stack([network.backend.numpy(network(x)) for _ in range(calls)])


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_seed_gives_the_same_masks_however_many_networks_there_were(
    backend, replicas
):
    seen = []
    for others in (0, 3):
        kept = [Dropping.on(backend)() for _ in range(others)]
        network = DataParallel(Dropping.on(backend)(), backend.devices()[:1] * replicas)
        backend.seed(7)
        seen.append(masks(network, calls=2))
        del kept
    np.testing.assert_array_equal(*seen)


def test_networks_from_before_and_after_a_seed_have_other_masks(backend):
    before = Dropping.on(backend)()
    backend.seed(7)
    after = Dropping.on(backend)()
    assert not np.array_equal(masks(before), masks(after))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("calls_before", [0, 1])
def test_a_deep_copy_has_other_masks_than_its_original(backend, replicas, calls_before):
    network = DataParallel(Dropping.on(backend)(), backend.devices()[:1] * replicas)
    if calls_before:
        masks(network)
    twin = copy.deepcopy(network)
    assert not np.array_equal(masks(network), masks(twin))
