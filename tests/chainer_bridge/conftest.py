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
    """A check: outputs and gradients of a Chainer function are those of a torch oracle, and of
    finite differences."""
    return _agree


def _agree(function, oracle, *arrays, tolerance=1e-9):
    torch = pytest.importorskip("torch")
    outputs, gradients = _chainer_side(function, arrays)
    tensors = [
        torch.tensor(array, requires_grad=array.dtype.kind == "f") for array in arrays
    ]
    expected = _listed(oracle(*tensors))
    assert [y.shape for y in outputs] == [tuple(y.shape) for y in expected]
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(
            ours, theirs.detach().numpy(), rtol=tolerance, atol=tolerance
        )
    sum((y * torch.tensor(_weights(y.shape))).sum() for y in expected).backward()
    for ours, tensor in zip(gradients, tensors, strict=True):
        if tensor.grad is not None:
            np.testing.assert_allclose(
                ours, tensor.grad.numpy(), rtol=tolerance, atol=tolerance
            )
    _slope(function, *arrays)


def _slope(function, *arrays, step=1e-6, tolerance=1e-6):
    _, gradients = _chainer_side(function, arrays)
    directions = [_weights(array.shape) * (array.dtype.kind == "f") for array in arrays]

    def moved(by):
        outputs, _ = _chainer_side(
            function,
            [
                (array + by * d).astype(array.dtype)
                for array, d in zip(arrays, directions, strict=True)
            ],
        )
        return sum(float((y * _weights(y.shape)).sum()) for y in outputs)

    numerical = (moved(step) - moved(-step)) / (2 * step)
    analytical = sum(
        float((gradient * d).sum())
        for gradient, d in zip(gradients, directions, strict=True)
        if gradient is not None
    )
    np.testing.assert_allclose(analytical, numerical, rtol=tolerance, atol=tolerance)


def _chainer_side(function, arrays):
    import chainer
    import chainer.functions as F

    variables = [
        chainer.Variable(array, requires_grad=array.dtype.kind == "f")
        for array in arrays
    ]
    outputs = _listed(function(*variables))
    sum(F.sum(y * _weights(y.shape).astype(y.dtype)) for y in outputs).backward()
    return [y.array for y in outputs], [x.grad for x in variables]


def _weights(shape):
    return np.random.default_rng(11).normal(size=shape)


def _listed(outputs):
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
