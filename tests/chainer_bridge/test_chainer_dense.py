"""Linear maps, embeddings, activations and losses against torch and finite differences."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")

ACTIVATIONS = {
    "relu": (F.relu, torch.relu),
    "leaky_relu": (
        lambda x: F.leaky_relu(x, 0.1),
        lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    ),
    "elu": (lambda x: F.elu(x, 0.7), lambda x: torch.nn.functional.elu(x, 0.7)),
    "selu": (F.selu, torch.selu),
    "sigmoid": (F.sigmoid, torch.sigmoid),
    "tanh": (F.tanh, torch.tanh),
    "softplus": (F.softplus, torch.nn.functional.softplus),
    "clipped_relu": (lambda x: F.clipped_relu(x, 1.5), lambda x: x.clamp(0, 1.5)),
    "relu6": (F.relu6, torch.nn.functional.relu6),
    "swish": (lambda x: F.swish(x, np.ones(x.shape[1:])), torch.nn.functional.silu),
    "hard_sigmoid": (F.hard_sigmoid, lambda x: (0.2 * x + 0.5).clamp(0, 1)),
    "gelu": (lambda x: 0.5 * x * (1 + F.erf(x / 2**0.5)), torch.nn.functional.gelu),
    "softmax": (lambda x: F.softmax(x, axis=1), lambda x: torch.softmax(x, 1)),
    "log_softmax": (lambda x: F.log_softmax(x, axis=1), lambda x: torch.log_softmax(x, 1)),
    "maxout": (lambda x: F.maxout(x, 3), lambda x: x.reshape(x.shape[0], 2, 3, -1).amax(2)),
    "logsumexp": (lambda x: F.logsumexp(x, axis=1), lambda x: torch.logsumexp(x, 1)),
    "cumsum": (lambda x: F.cumsum(x, axis=1), lambda x: x.cumsum(1)),
    "prelu": (lambda x: F.prelu(x, np.array(0.3)), lambda x: torch.where(x > 0, x, 0.3 * x)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_that_of_torch(name, rng, agree):
    agree(*ACTIVATIONS[name], 2 * rng.normal(size=(5, 6, 3)))


def test_linear_multiplies_with_the_transposed_weight(rng, agree):
    arrays = [rng.normal(size=shape) for shape in [(5, 3), (7, 3), (7,)]]
    agree(F.linear, torch.nn.functional.linear, *arrays)


def test_linear_over_several_batch_axes(rng, agree):
    arrays = [rng.normal(size=shape) for shape in [(5, 2, 3), (7, 3), (7,)]]
    agree(lambda *a: F.linear(*a, n_batch_axes=2), torch.nn.functional.linear, *arrays)


def test_bilinear_is_a_sum_over_both_inputs(rng):
    x, y, w = (rng.normal(size=shape).astype("float32") for shape in [(5, 3), (5, 2), (3, 2, 7)])
    np.testing.assert_allclose(
        F.bilinear(x, y, w).array, np.einsum("bi,bj,ijk->bk", x, y, w), rtol=1e-4, atol=1e-5
    )


def test_an_embedding_picks_rows_and_adds_up_their_gradients(rng, agree):
    ids = np.array([[1, 4, 1], [0, 4, 4]])
    agree(
        lambda w: F.embed_id(ids, w),
        lambda w: torch.nn.functional.embedding(torch.tensor(ids), w),
        rng.normal(size=(5, 3)),
    )


def test_an_ignored_label_embeds_as_zeros_and_gets_no_gradient(rng):
    weight = chainer.Variable(rng.normal(size=(5, 3)))
    y = F.embed_id(np.array([1, -1, 4]), weight, ignore_label=-1)
    F.sum(y).backward()
    np.testing.assert_array_equal(y.array[1], np.zeros(3))
    np.testing.assert_array_equal(weight.grad.sum(1), [0, 3, 0, 0, 3])


@pytest.mark.parametrize("reduce", ["mean", "no"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(7, 4), (3, 4, 5, 2)], ids=str)
def test_softmax_cross_entropy_divides_by_the_labels_that_count(
    shape, weighted, reduce, rng, agree
):
    labels = rng.integers(-1, 4, size=(shape[0], *shape[2:]))
    weights = rng.uniform(0.5, 2, size=4) if weighted else None

    def oracle(x):
        given = None if weights is None else torch.tensor(weights)
        options = {"weight": given, "ignore_index": -1, "reduction": "none"}
        losses = torch.nn.functional.cross_entropy(x, torch.tensor(labels), **options)
        return losses if reduce == "no" else losses.sum() / (labels != -1).sum()

    agree(
        lambda x: F.softmax_cross_entropy(
            x, labels, class_weight=weights, reduce=reduce, normalize=True
        ),
        oracle,
        rng.normal(size=shape),
    )


def test_softmax_cross_entropy_without_normalize_divides_by_the_batch(rng):
    x, labels = rng.normal(size=(3, 4, 5)), rng.integers(0, 4, size=(3, 5))
    loss = F.softmax_cross_entropy(x, labels, normalize=False).array
    expected = (
        torch.nn.functional.cross_entropy(torch.tensor(x), torch.tensor(labels), reduction="sum")
        / 3
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-12)


def test_sigmoid_cross_entropy_ignores_minus_one(rng, agree):
    labels = rng.integers(-1, 2, size=(5, 3))

    def oracle(x):
        target = torch.tensor(labels, dtype=x.dtype)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(x, target, reduction="none")
        return losses[target >= 0].mean()

    agree(lambda x: F.sigmoid_cross_entropy(x, labels), oracle, rng.normal(size=(5, 3)))


LOSSES = {
    "mean_squared_error": (F.mean_squared_error, torch.nn.functional.mse_loss),
    "mean_absolute_error": (F.mean_absolute_error, torch.nn.functional.l1_loss),
    "huber_loss": (
        lambda x, y: F.huber_loss(x, y, 0.5),
        lambda x, y: torch.nn.functional.huber_loss(x, y, delta=0.5, reduction="none").sum(1),
    ),
    "bernoulli_nll": (
        lambda x, y: F.bernoulli_nll(F.sigmoid(x), y),
        lambda x, y: torch.nn.functional.binary_cross_entropy_with_logits(
            y, torch.sigmoid(x), reduction="sum"
        ),
    ),
    "gaussian_kl_divergence": (
        F.gaussian_kl_divergence,
        lambda mean, ln_var: (0.5 * (mean**2 + ln_var.exp() - ln_var - 1)).sum(),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_that_of_torch(name, rng, agree):
    agree(*LOSSES[name], rng.normal(size=(5, 3)), rng.normal(size=(5, 3)))


def test_accuracy_leaves_ignored_labels_out():
    scores = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]], "float32")
    assert F.accuracy(scores, np.array([1, 1, -1]), ignore_label=-1).array == 0.5


def test_connectionist_temporal_classification_is_that_of_torch(rng, agree):
    lengths, label_lengths = np.array([5, 4], "int32"), np.array([2, 1], "int32")
    labels = np.array([[1, 2], [2, 0]], "int32")
    agree(
        lambda x: F.connectionist_temporal_classification(
            list(x), labels, 0, lengths, label_lengths, reduce="no"
        ),
        lambda x: torch.nn.functional.ctc_loss(
            x.log_softmax(2),
            torch.tensor(labels),
            torch.tensor(lengths),
            torch.tensor(label_lengths),
            reduction="none",
        ),
        rng.normal(size=(5, 2, 4)),
    )


def test_negative_sampling_pulls_the_label_and_pushes_the_samples(rng, slope):
    samples = np.array([[0, 3, 1], [0, 2, 2], [0, 4, 3]])
    labels = np.array([2, 0, 1], "int32")
    x, weight = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))

    def loss(x, weight):
        return F.negative_sampling(x, labels, weight, lambda shape: samples.copy(), 2)

    scores = np.einsum("ij,ikj->ik", x, weight[np.c_[labels, samples[:, 1:]]]) * [-1, 1, 1]
    np.testing.assert_allclose(loss(x, weight).array, np.log1p(np.exp(scores)).sum(), rtol=1e-12)
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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_linear_link_computes_in_the_dtype_of_the_configuration(dtype, rng):
    with chainer.using_config("dtype", np.dtype(dtype)):
        link = L.Linear(3, 2)
    y = link(rng.normal(size=(5, 3)).astype(dtype))
    loss = F.softmax_cross_entropy(y, np.array([0, 1, 1, 0, 1]))
    loss.backward()
    assert {link.W.dtype, link.b.dtype, y.dtype, loss.dtype, link.W.grad.dtype} == {np.dtype(dtype)}


@pytest.mark.parametrize("scalar", [2, 2.0, np.float32(2)], ids=repr)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_scalar_does_not_widen_a_variable(dtype, scalar, rng):
    x = chainer.Variable(rng.uniform(1, 2, size=(3, 2)).astype(dtype))
    results = [x + scalar, scalar - x, x * scalar, scalar / x, x**scalar, scalar**x, x / scalar]
    assert {y.dtype for y in results} == {np.dtype(dtype)}
