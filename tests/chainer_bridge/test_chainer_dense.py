"""Linear maps, embeddings, activations and losses against torch and finite differences."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")


def test_negative_sampling_pulls_the_label_and_pushes_the_samples(rng, slope):
    samples = np.array([[0, 3, 1], [0, 2, 2], [0, 4, 3]])
    labels = np.array([2, 0, 1], "int32")
    x, weight = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))

    def loss(x, weight):
        return F.negative_sampling(x, labels, weight, lambda shape: samples.copy(), 2)

    scores = np.einsum("ij,ikj->ik", x, weight[np.c_[labels, samples[:, 1:]]]) * [
        -1,
        1,
        1,
    ]
    np.testing.assert_allclose(
        loss(x, weight).array, np.log1p(np.exp(scores)).sum(), rtol=1e-12
    )
    slope(loss, x, weight)


def test_hierarchical_softmax_is_a_distribution_over_the_leaves(rng):
    with chainer.using_config("dtype", np.dtype("float64")):
        link = L.BinaryHierarchicalSoftmax(3, ((0, 1), (2, 3)))
    x = rng.normal(size=(1, 3))
    link.cleargrads()
    total = sum(F.exp(-link(x, np.array([leaf], "int32"))) for leaf in range(4))
    total.backward()
    np.testing.assert_allclose(total.array, 1, rtol=1e-12)
    np.testing.assert_allclose(link.W.grad, np.zeros((3, 3)), atol=1e-12)
