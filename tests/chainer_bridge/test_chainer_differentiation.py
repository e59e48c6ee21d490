"""Distributions and sparse products."""

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer import distributions

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)], ids=str)
def test_a_categorical_gives_the_log_probability_of_each_index(shape, rng):
    p = rng.dirichlet(np.ones(4), size=shape[:-1])
    indices = rng.integers(0, 4, size=shape[:-1])
    expected = np.log(np.take_along_axis(p, np.asarray(indices)[..., None], -1)[..., 0])
    categorical = distributions.Categorical(p)
    np.testing.assert_allclose(
        categorical.log_prob(np.asarray(indices)).array, expected, rtol=1e-12
    )
    np.testing.assert_allclose(
        categorical.log_prob(chainer.Variable(np.asarray(indices))).array,
        expected,
        rtol=1e-12,
    )


def _mostly_zero(rng, shape, dtype):
    return (rng.normal(size=shape) * (rng.random(size=shape) < 0.4)).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float16", 1e-2), ("float32", 1e-5), ("float64", 1e-12)]
)
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize(
    ("transa", "transb"), [(False, False), (True, False), (False, True)]
)
def test_a_sparse_product_is_the_dense_one_with_its_gradients(
    transa, transb, batch, dtype, tolerance, rng
):
    dense = _mostly_zero(rng, (*batch, *((4, 5) if transa else (5, 4))), dtype)
    other = rng.normal(size=(*batch, *((3, 4) if transb else (4, 3)))).astype(dtype)
    sparse, variable = (
        chainer.utils.to_coo(dense, requires_grad=True),
        chainer.Variable(other),
    )
    y = F.sparse_matmul(sparse, variable, transa=transa, transb=transb)
    F.sum(y).backward()
    assert (y.dtype, variable.grad.dtype) == (np.dtype(dtype), np.dtype(dtype))
    tensors = [
        torch.tensor(a.astype("float64"), requires_grad=True) for a in (dense, other)
    ]
    left, right = (
        t.mT if flag else t for t, flag in zip(tensors, (transa, transb), strict=True)
    )
    (left @ right).sum().backward()
    np.testing.assert_allclose(
        y.array, (left @ right).detach(), rtol=tolerance, atol=tolerance
    )
    np.testing.assert_allclose(
        variable.grad, tensors[1].grad, rtol=tolerance, atol=tolerance
    )
    assert np.isfinite(sparse.data.grad).all()
