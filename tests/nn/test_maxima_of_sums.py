"""Gradients of maxima of what a compiler computes twice, and may round in two ways."""

import numpy as np
import torch

from deliralike import Network, start


class Largest(Network):
    def __init__(self):
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.GroupNorm(2, 6)
        self.scale = nn.Parameter((6, 1, 1), start.Normal())

    def forward(self, x):
        nn = self.nn
        h = self.norm(x + nn.relu(self.conv(x)))
        h = h * nn.broadcast_to(self.scale, h.shape)
        return nn.amax(nn.reshape(h, (*h.shape[:2], -1)), dim=2)


def by_pytorch(state, x):
    state = {
        name: torch.tensor(value, requires_grad=True) for name, value in state.items()
    }
    x = torch.tensor(x)
    conv = torch.conv2d(x, state["conv.weight"], state["conv.bias"], padding=1)
    h = torch.group_norm(
        x + torch.relu(conv), 2, state["norm.weight"], state["norm.bias"]
    )
    (h * state["scale"]).amax((2, 3)).sum().backward()
    return {name: value.grad.numpy() for name, value in state.items()}


def test_the_gradient_is_where_the_maximum_is(backend):
    x = np.random.default_rng(0).standard_normal((3, 6, 7, 9))
    network = Largest.on(backend, dtype="float64", seed=3)()
    found = network.backend.gradients(
        lambda network, x: network.nn.sum(network(x)), network, x
    )
    wanted = by_pytorch(network.neutral_state(), x)
    for parameter, value in found.parameters.items():
        came = network.backend.to_numpy(value)
        np.testing.assert_allclose(
            came, wanted[parameter], atol=1e-12, err_msg=parameter
        )
