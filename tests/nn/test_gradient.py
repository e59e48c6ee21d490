"""Gradients within a loss: derivatives of derivatives, of functions and through layers and their
buffers."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from deliralike import Network, backends, build, random
from deliralike.backends.outline import BACKEND as OUTLINE
from deliralike.backends.outline import ShapeArray
from deliralike.errors import ShapeError
from deliralike.optim import rules
from tests.arrays import same_named
from tests.conftest import BACKENDS
from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    LayerCase,
    agree_all,
    agree_function,
    get,
    hold,
    normal,
)


def by_autograd(function, x):
    """The oracle: a gradient that can be differentiated, by PyTorch itself."""
    at = x if x.requires_grad else x.detach().requires_grad_()
    return torch.autograd.grad(function(at), at, create_graph=True)[0]


def attend(query, key, value):
    """PyTorch's own kernels have no second derivative."""
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value


# Of `nn`, or of PyTorch under the same names.
PYTORCH = SimpleNamespace(**{**vars(torch), "scaled_dot_product_attention": attend})
FUNCTIONS = {
    "power": lambda nn, x: x**3.0,
    "exp": lambda nn, x: nn.exp(x) * nn.sin(x),
    "logarithm": lambda nn, x: nn.log(x * x + 1.0),
    "softmax": lambda nn, x: nn.softmax(x, 1) ** 2.0,
    "relu": lambda nn, x: nn.relu(x) ** 2.0,
    "product": lambda nn, x: nn.matmul(x, nn.transpose(x, 0, 1)) ** 2.0,
    "selected": lambda nn, x: nn.max(x, 1).values ** 3.0,
    "sigmoid": lambda nn, x: nn.sigmoid(x) * x,
    "clipped": lambda nn, x: nn.clip(x, -0.5, 0.5) * x * x,
    "attention": lambda nn, x: (
        nn.scaled_dot_product_attention(*[nn.reshape(x, (1, 1, 3, 4))] * 3) ** 2.0
    ),
}


def second_derivative(function):
    def by_pytorch(x):
        return by_autograd(lambda at: function(PYTORCH, at).sum(), x)

    def ours(nn, x):
        return nn.gradient(lambda at: nn.sum(function(nn, at)), x)

    return FunctionCase(ours, by_pytorch, [normal(0, 3, 4)])


def test_second_derivatives_of_functions_agree(name):
    cases = {label: second_derivative(each) for label, each in FUNCTIONS.items()}
    agree_all(name, cases)


def test_third_derivatives_agree(name):
    def ours(nn, x):
        return nn.gradient(
            lambda at: nn.sum(nn.gradient(lambda inner: nn.sum(inner**4.0), at) ** 2.0),
            x,
        )

    agree_function(name, ours, lambda x: 96.0 * x**5, [normal(0, 3, 2)])


def test_only_the_way_through_the_argument_counts(name):
    """The function's other use of the same array is a constant of it."""
    agree_function(
        name,
        lambda nn, x: nn.gradient(lambda at: nn.sum(at * x), x * 2.0),
        lambda x: x * 1.0,
        [normal(0, 3)],
    )


LAYERS = {
    "Linear": ({"args": (6, 3)}, (4, 6)),
    "Conv2d": ({"args": (4, 3, 3), "stride": 2, "padding": 1}, (2, 4, 5, 6)),
    "ConvTranspose2d": ({"args": (4, 3, 4), "stride": 2, "padding": 1}, (2, 4, 3, 4)),
    "BatchNorm2d": ({"args": (4,)}, (3, 4, 2, 3)),
    "InstanceNorm2d": ({"args": (4,), "affine": True}, (2, 4, 3, 3)),
    "GroupNorm": ({"args": (2, 4)}, (2, 4, 3, 3)),
    "LayerNorm": ({"args": (6,)}, (3, 6)),
    "LeakyReLU": ({"args": (0.2,)}, (3, 6)),
    "SiLU": ({}, (3, 6)),
    "GELU": ({}, (3, 6)),
    "MaxPool2d": ({"args": (3, 2, 1)}, (2, 4, 5, 6)),
    "AvgPool2d": ({"args": (2,)}, (2, 4, 4, 6)),
}


def penalised(layer, x):
    if isinstance(layer, torch.nn.Module) and not hasattr(layer, "nn"):
        return by_autograd(lambda at: (layer(at) ** 3.0).sum(), x)
    return layer.nn.gradient(lambda at: layer.nn.sum(layer(at) ** 3.0), x)


def test_penalties_through_layers_agree_with_every_gradient_and_statistic(name):
    agree_all(
        name,
        {
            f"{layer} {training=}": LayerCase(
                layer, settings, [normal(0, *shape)], training, penalised
            )
            for layer, (settings, shape) in LAYERS.items()
            for training in (True, False)
        },
    )


def test_a_gradient_is_at_hand_in_evaluation_without_a_graph(network):
    backend = network.backend
    with backend.evaluating():
        x = backend.prepare(normal(0, 3), network)
        found = network.nn.gradient(lambda at: network.nn.sum(at * at), x)
        np.testing.assert_allclose(backend.numpy(found), 2.0 * normal(0, 3), rtol=1e-14)


@pytest.mark.parametrize("name", [*NAMES, "outline"])
def test_the_function_must_give_a_scalar(name):
    if name == "outline":
        nn, x = OUTLINE.nn, ShapeArray((3,))
    else:
        network = hold(name)
        nn, x = network.nn, get(name).prepare(normal(0, 3), network)
    with pytest.raises(
        ShapeError, match=r"the function's value has shape \(3,\), wanted a scalar"
    ):
        nn.gradient(lambda at: at * 2.0, x)


def test_an_outline_of_a_sum_takes_no_longer_for_a_large_array():
    volume = ShapeArray((2, 4, 1024, 1024, 1024), "float32")
    begin = time.perf_counter()
    assert OUTLINE.nn.sum(volume, (2, 3, -1), keepdim=True).shape == (2, 4, 1, 1, 1)
    assert OUTLINE.nn.mean(volume, 1).shape == (2, 1024, 1024, 1024)
    assert OUTLINE.nn.sum(volume).shape == ()
    assert time.perf_counter() - begin < 1


def test_an_outline_knows_the_shape():
    assert OUTLINE.nn.gradient(
        lambda at: OUTLINE.nn.sum(at), ShapeArray((2, 3))
    ).shape == (2, 3)


class Judge(Network):
    """A small critic with a normalisation, dropout and two calls of one layer."""

    def __init__(self, dropout):
        super().__init__()
        nn = self.nn
        self.conv, self.norm = (
            nn.Conv2d(2, 2, 3, padding=1, bias=False),
            nn.BatchNorm2d(2),
        )
        self.drop, self.fc = nn.Dropout(dropout), nn.Linear(2 * 4 * 4, 1)

    def forward(self, x):
        x = self.norm(self.conv(self.norm(self.conv(x))))
        return self.fc(self.drop(self.nn.flatten(self.nn.silu(x))))


def penalty(network, x):
    nn = network.nn
    return nn.mean(nn.gradient(lambda at: nn.sum(network(at)), x) ** 2.0) + nn.mean(
        network(x) ** 2.0
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_steps_with_a_penalty_and_running_statistics_are_the_same_on_every_backend(
    name,
):
    """Dropout with portable masks; the statistics move in each of the four calls of the
    normalisation."""

    def trained(backend):
        network = build(Judge.on(backend), 0.25, dtype="float64").train()
        optimizer = backend.optimizer(rules.rule("adam", lr=1e-2), network)
        with random.portable(3):
            batches = [normal(step, 3, 2, 4, 4) for step in range(3)]
            losses = [
                float(backend.numpy(optimizer.update(penalty, batch)))
                for batch in batches
            ]
        return losses, network.neutral_state()

    (losses, state), (wanted_losses, wanted) = (
        trained(backends.get(name)),
        trained(backends.get("torch")),
    )
    np.testing.assert_allclose(losses, wanted_losses, rtol=1e-10)
    assert int(state["norm.num_batches_tracked"]) == 12
    same_named(state, wanted)


def test_native_dropout_draws_within_a_gradient(backend):
    network = build(Judge.on(backend), 0.5, dtype="float64").train()
    optimizer = backend.optimizer(rules.rule("sgd", lr=0.0), network)
    losses = {
        float(backend.numpy(optimizer.update(penalty, normal(0, 3, 2, 4, 4))))
        for _ in range(3)
    }
    assert len(losses) == 3
