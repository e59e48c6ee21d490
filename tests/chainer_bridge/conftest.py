"""What the tests of Chainer under the bridge share: the bridge itself and the comparison with
independent answers."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("chainer") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from deliralike.backends import chainer_bridge as bridge

    bridge.install()


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def agree():
    """A check: outputs and gradients of a Chainer function are those of a torch oracle."""
    return _agree


def _agree(function, oracle, array):
    import chainer
    import chainer.functions as F

    torch = pytest.importorskip("torch")
    x, tensor = chainer.Variable(array), torch.tensor(array, requires_grad=True)
    found, expected = function(x), oracle(tensor)
    np.testing.assert_allclose(found.array, expected.detach(), rtol=1e-9, atol=1e-9)
    weights = np.random.default_rng(11).normal(size=found.shape)
    F.sum(found * weights).backward()
    (expected * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad, tensor.grad, rtol=1e-9, atol=1e-9)
