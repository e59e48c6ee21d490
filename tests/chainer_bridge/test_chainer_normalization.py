"""Settings that are scalars of NumPy, and normalization in another type."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from deliralike import wrap

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")


SMALL = np.float64(0.1)
WITH_NUMPY_SCALARS = {
    "layer": lambda x, ones: F.layer_normalization(x, ones, ones, eps=SMALL),
    "local response": lambda x, ones: F.local_response_normalization(
        x, k=SMALL, alpha=SMALL, beta=SMALL
    ),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", WITH_NUMPY_SCALARS)
def test_a_numpy_scalar_among_the_settings_does_not_widen_the_arrays(name, dtype, rng):
    x = chainer.Variable(rng.normal(size=(5, 3)).astype(dtype))
    y = WITH_NUMPY_SCALARS[name](x, np.ones(3, dtype))
    F.sum(y).backward()
    assert (y.dtype, x.grad.dtype) == (np.dtype(dtype), np.dtype(dtype))


@pytest.mark.parametrize("training", [True, False])
def test_a_copy_in_another_type_normalizes_in_it_without_gamma_and_beta(rng, training):
    link = L.BatchNormalization(3, eps=1e-3, use_gamma=False, use_beta=False)
    x = rng.normal(1, 2, size=(4, 3, 5))
    mean, variance = rng.normal(size=3), rng.uniform(0.5, 2, size=3)
    link.avg_mean[...], link.avg_var[...] = mean, variance
    copy = wrap(link).backend.in_dtype(wrap(link), "float64")
    with chainer.using_config("train", training):
        y = copy(chainer.Variable(x))
    if training:
        mean, variance = x.mean((0, 2)), x.var((0, 2))
    else:
        mean, variance = (
            value.astype("float32").astype(float) for value in (mean, variance)
        )
    expected = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-3)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y.array, expected, rtol=1e-12)
    assert link(x.astype("float32")).dtype == np.float32
