"""Checkpointed blocks in replicas draw the masks of the first pass again: finite differences."""

import numpy as np
import pytest
import torch

from deliralike import DataParallel, Network, checkpoint_blocks, in_replicas, rules
from deliralike.errors import CapabilityError
from tests.losses import cross_entropy

X = np.linspace(-1, 2, 24).reshape(8, 3)
Y = np.arange(8) % 2


class Block(Network):
    def __init__(self):
        super().__init__()
        self.a = self.nn.Linear(3, 8)
        self.drop = self.nn.Dropout(0.5)
        self.b = self.nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.drop(self.nn.tanh(self.a(x))))


class TwoBlocks(Network):
    def __init__(self):
        super().__init__()
        self.blocks = self.nn.ModuleList([Block(), Block()])
        self.drop = self.nn.Dropout(0.5)
        self.last = self.nn.Linear(3, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(self.drop(x))


def loss_and_change(network, loss, lr):
    """Return the loss of one step, and by how much it changed a weight of the first block."""
    before = network.neutral_state()["blocks.0.a.weight"]
    network.backend.seed(7)
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=lr), network)
    value = network.backend.number(optimizer.update(loss, X, Y))
    return value, network.neutral_state()["blocks.0.a.weight"] - before


@pytest.mark.parametrize("inside", [False, True])
def test_gradients_are_those_of_the_masks_of_the_loss(inside):
    loss = in_replicas(cross_entropy) if inside else cross_entropy
    plain = TwoBlocks.on("torch", dtype="float64")()
    checkpoint_blocks(plain, "blocks.*")
    network = DataParallel(plain, ["cpu"] * 2)
    state = network.neutral_state()
    _, change = loss_and_change(network, loss, 1.0)
    losses = []
    for step in (1e-6, -1e-6):
        moved = state["blocks.0.a.weight"].copy()
        moved[2, 1] += step
        network.load_neutral_state(state | {"blocks.0.a.weight": moved})
        losses.append(loss_and_change(network, loss, 1e-30)[0])
    np.testing.assert_allclose(-change[2, 1], (losses[0] - losses[1]) / 2e-6, rtol=1e-5)


class NativeBlock(Network):
    """A block with the framework's own dropout."""

    def __init__(self):
        super().__init__()
        self.a = self.nn.Linear(3, 2)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.a(x))


class AroundIt(Network):
    def __init__(self):
        super().__init__()
        self.block = NativeBlock()

    def forward(self, x):
        return self.block(x)


def test_draws_that_replicas_share_are_refused_in_checkpointed_blocks():
    network = AroundIt.on("torch", dtype="float64")()
    checkpoint_blocks(network, "block")
    network = DataParallel(network, ["cpu"] * 2)
    with pytest.raises(
        CapabilityError, match="cannot be drawn once more in replicas: use"
    ):
        network(network.backend.prepare(X, network))
