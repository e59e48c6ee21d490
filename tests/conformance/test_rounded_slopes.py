"""PyTorch's own functions that are less exact than float64 accuse no port."""

import numpy as np
import pytest

from deliralike import Network, backends
from deliralike.backends.torch.native_functions import intercept_calls
from deliralike.conformance import distance_loss
from tests.conformance.small import loaded

torch = pytest.importorskip("torch")


class Squeezed(torch.nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, stride=2)
        self.gate = torch.nn.Hardsigmoid(inplace)

    def forward(self, x):
        x = self.conv(x)
        return x * self.gate(x.mean((2, 3), keepdim=True))


class Port(Network):
    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(3, 4, 3, stride=2)
        self.gate = self.nn.Hardsigmoid()

    def forward(self, x):
        x = self.conv(x)
        return x * self.gate(self.nn.mean(x, (2, 3), keepdim=True))


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_network_with_hardsigmoid_is_proved(backend, inplace):
    own = torch.nn.functional.hardsigmoid
    batch = (np.random.default_rng(0).standard_normal((3, 3, 7, 9)),)
    port = Port.on(backend)()
    proof = loaded(
        Squeezed(inplace),
        port,
        batch,
        loss=distance_loss,
    )
    assert proof.headline.startswith("PROVED"), proof.headline
    assert torch.nn.functional.hardsigmoid is own


def test_the_slope_is_mended_once_where_calls_are_followed():
    backend = backends.get("torch")
    x = torch.linspace(-1.0, 1.0, 7, dtype=torch.float64, requires_grad=True)

    def interceptor(path, compute, args, kwargs):
        return compute(*args, **kwargs)

    gate = torch.nn.Hardsigmoid()
    with backend.preserve_global_state(), backend.preserve_global_state():
        with intercept_calls([gate], interceptor):
            (gradient,) = torch.autograd.grad(gate(x).sum(), x)
    assert np.abs(gradient.numpy() - 1.0 / 6.0).max() < 1e-16


def test_axes_of_length_one_that_stand_elsewhere_explain_nothing():
    from deliralike.conformance.explain.enumeration import other_axes

    assert list(other_axes((3, 1, 1))) == []
    assert list(other_axes((2, 1, 3))) == [(1, 2, 0), (2, 0, 1), (2, 1, 0)]
