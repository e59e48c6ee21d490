"""Linear maps, embeddings, activations and losses against torch and finite differences."""

import chainer.functions as F
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
