"""A block whose class has a ``train`` of its own, in a network on each backend."""

import pytest

from deliralike import Network


class Frozen(Network):
    """Its norm stays in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.norm = self.nn.BatchNorm1d(2)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.norm(x)


class Outer(Network):
    def __init__(self):
        super().__init__()
        self.body = Frozen()
        self.norm = self.nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(self.body(x))


def modes(network):
    return {path: block.training for path, block in network.named_blocks()}


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_a_train_of_a_blocks_own_holds_within_another_network(backend):
    network = Outer.on(backend)()
    everywhere = {"": True, "body": True, "body.norm": True, "norm": True}
    assert modes(network) == everywhere  # nobody has called it yet
    with network.training_mode(True):
        assert modes(network) == {**everywhere, "body.norm": False}
    assert modes(network) == everywhere
    network.train()
    assert modes(network) == {**everywhere, "body.norm": False}
    network.eval()
    assert modes(network) == dict.fromkeys(everywhere, False)
    alone = Frozen.on(backend)()
    with alone.training_mode(True):
        assert modes(alone) == {"": True, "norm": False}
