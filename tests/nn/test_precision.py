"""Types are kept through every layer, and gradients of gradients exist."""

import numpy as np
import pytest
import torch

from tests.nn.agreement import BACKENDS, NAMES, flat, get, hold, normal, same

IMAGE, SERIES, VOLUME, TOKENS = (2, 4, 7, 6), (2, 4, 7), (2, 4, 5, 4, 4), (3, 2, 4)
INDEX = np.array([[0, 1], [2, 2]])

# Settings and the shape of one input: every layer that computes.
LAYERS = {
    "Conv1d": ({"args": (4, 3, 3)}, SERIES), "Conv2d": ({"args": (4, 4, 3), "groups": 2, "stride": 2}, IMAGE),
    "Conv3d": ({"args": (4, 3, 3)}, VOLUME), "ConvTranspose1d": ({"args": (4, 3, 3)}, SERIES),
    "ConvTranspose2d": ({"args": (4, 3, 3), "stride": 2}, IMAGE), "ConvTranspose3d": ({"args": (4, 3, 2)}, VOLUME),
    "BatchNorm1d": ({"args": (4,)}, SERIES), "BatchNorm2d": ({"args": (4,), "momentum": None}, IMAGE),
    "BatchNorm3d": ({"args": (4,)}, VOLUME), "InstanceNorm1d": ({"args": (4,), "track_running_stats": True}, SERIES),
    "InstanceNorm2d": ({"args": (4,), "affine": True}, IMAGE), "InstanceNorm3d": ({"args": (4,)}, VOLUME),
    "GroupNorm": ({"args": (2, 4)}, IMAGE), "LayerNorm": ({"args": (6,)}, IMAGE), "Linear": ({"args": (6, 3)}, IMAGE),
    "Embedding": ({"args": (5, 3), "padding_idx": 0}, None), "PReLU": ({"args": (4,)}, IMAGE),
    "LSTM": ({"args": (4, 3, 2), "bidirectional": True}, TOKENS), "GRU": ({"args": (4, 3)}, TOKENS),
    "Dropout": ({}, IMAGE), "Dropout1d": ({}, SERIES), "Dropout2d": ({}, IMAGE), "Dropout3d": ({}, VOLUME),
    "DropPath": ({}, IMAGE), "MaxPool1d": ({"args": (2,)}, SERIES), "MaxPool2d": ({"args": (3, 2, 1)}, IMAGE),
    "MaxPool3d": ({"args": (2,)}, VOLUME), "AvgPool1d": ({"args": (2,)}, SERIES),
    "AvgPool2d": ({"args": (3, 2, 1), "count_include_pad": False}, IMAGE), "AvgPool3d": ({"args": (2,)}, VOLUME),
    "AdaptiveAvgPool1d": ({"args": (3,)}, SERIES), "AdaptiveAvgPool2d": ({"args": (3,)}, IMAGE),
    "AdaptiveAvgPool3d": ({"args": (1,)}, VOLUME), "AdaptiveMaxPool1d": ({"args": (3,)}, SERIES),
    "AdaptiveMaxPool2d": ({"args": (3,)}, IMAGE), "AdaptiveMaxPool3d": ({"args": (2,)}, VOLUME),
    "Upsample": ({"scale_factor": 1.5, "mode": "linear", "align_corners": True}, IMAGE),
    "PixelShuffle": ({"args": (2,)}, IMAGE), "Flatten": ({}, IMAGE), "Identity": ({}, IMAGE), "ReLU": ({}, IMAGE),
    "ReLU6": ({}, IMAGE), "LeakyReLU": ({}, IMAGE), "ELU": ({}, IMAGE), "SiLU": ({}, IMAGE), "GELU": ({}, IMAGE),
    "Hardswish": ({}, IMAGE), "Hardsigmoid": ({}, IMAGE), "Sigmoid": ({}, IMAGE), "Tanh": ({}, IMAGE),
    "Softplus": ({}, IMAGE), "Softmax": ({"args": (1,)}, IMAGE), "LogSoftmax": ({"args": (1,)}, IMAGE),
}  # fmt: skip


def test_every_layer_is_in_the_table():
    from deliralike.nn.layers import LAYERS as ALL

    others = {"MultiheadAttention", "Sequential", "ModuleList", "ModuleDict"}
    assert {name for name in ALL if not name.startswith("_")} == set(LAYERS) | others


def outputs_of(name, dtype, layer):
    settings, shape = LAYERS[layer]
    network = hold(name, layer, settings, dtype=dtype, seed=1).train("Drop" not in layer)
    x = INDEX if shape is None else normal(0, *shape)
    found = flat(network(*network.backend.prepare((x,), network)))
    assert {str(value.dtype) for value in network.neutral_state().values()} <= {dtype, "int64"}
    return [network.backend.numpy(y) for y in found]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_float32_and_close_to_float64(name, layer):
    for low, high in zip(outputs_of(name, "float32", layer), outputs_of("torch", "float64", layer), strict=True):
        assert str(low.dtype) == "float32"
        np.testing.assert_allclose(low, high, rtol=1e-4, atol=1e-5)


FUNCTIONS = {
    "cross_entropy": lambda nn, x: nn.cross_entropy(x, nn.constant(np.array([1, 0, 2]), like=x), label_smoothing=0.1),
    "bce_with_logits": lambda nn, x: nn.bce_with_logits(x, nn.zeros(x.shape, like=x)),
    "dice_loss": lambda nn, x: nn.dice_loss(
        nn.softmax(x, 1), nn.one_hot(nn.constant(np.array([1, 0, 2]), like=x), 4, like=x)
    ),
    "focal_loss": lambda nn, x: nn.focal_loss(x, nn.constant(np.array([1, 0, 2]), like=x), 1.5),
    "binary_focal_loss": lambda nn, x: nn.binary_focal_loss(x, nn.zeros(x.shape, like=x), gamma=1.5),
    "generalized_dice_loss": lambda nn, x: nn.generalized_dice_loss(nn.softmax(x, 1), nn.softmax(-x, 1)),
    "tversky_loss": lambda nn, x: nn.tversky_loss(nn.softmax(x, 1), nn.softmax(-x, 1), gamma=0.75),
    "kl_gaussian": lambda nn, x: nn.kl_gaussian(x, x),
    "kl_divergence": lambda nn, x: nn.kl_divergence(nn.log_softmax(x, 1), nn.softmax(-x, 1)),
    "discriminator_loss": lambda nn, x: nn.discriminator_loss(x, -x, "hinge"),
    "gradient_penalty": lambda nn, x: nn.gradient_penalty(lambda at: nn.sum(at**2.0, 1), x, -x, nn.sigmoid(x[:, 0])),
    "deep_supervision": lambda nn, x: nn.deep_supervision(nn.mse_loss, [x[None], x[None][:, :, ::2]], x[None]),
    "l1_loss": lambda nn, x: nn.l1_loss(x, x * 0.5),
    "normalize": lambda nn, x: nn.normalize(x),
    "var": lambda nn, x: nn.var(x, 1, correction=1),
    "pad": lambda nn, x: nn.pad(x, [(1, 2)], value=0.1),
    "clip": lambda nn, x: nn.clip(x, -0.5, 0.5),
    "where": lambda nn, x: nn.where(x > 0, x, 0.1),
    "mean": lambda nn, x: nn.mean(x),
    "constant": lambda nn, x: x * nn.constant(np.array(0.1), like=x),
    "attention": lambda nn, x: nn.attention(x[None], x[None], x[None]),
    "nearest": lambda nn, x: nn.interpolate(x[None], scale_factor=1.7),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_float32_stay_float32(name, function):
    network = hold(name, dtype="float32")
    (x,) = network.backend.prepare((normal(0, 3, 4),), network)
    outputs = flat(FUNCTIONS[function](network.nn, x))
    assert {str(network.backend.numpy(y).dtype) for y in outputs} == {"float32"}


# Gradients of gradients: the sum of the squares of the input's gradient, by finite differences of the first gradient.
TWICE = {
    "Conv2d": {"args": (4, 3, 3), "stride": 2, "padding": 1}, "ConvTranspose2d": {"args": (4, 3, 3), "stride": 2},
    "Linear": {"args": (6, 3)}, "BatchNorm2d": {"args": (4,)}, "LeakyReLU": {"args": (0.2,)},
    "MaxPool2d": {"args": (3, 2, 1)}, "AvgPool2d": {"args": (2,)}, "GELU": {}, "LayerNorm": {"args": (6,)},
}  # fmt: skip


@pytest.mark.parametrize("layer", TWICE)
@pytest.mark.parametrize("name", BACKENDS)
def test_second_derivatives_agree(name, layer):
    backend = get(name)
    if "double_backward" not in backend.capabilities:
        pytest.fail(f"{name} does not declare double_backward")
    x, direction = normal(0, *IMAGE), normal(1, *IMAGE)
    network = hold(name, layer, TWICE[layer])
    state = {
        key: 0.5 * normal(2, *v.shape) if v.dtype == np.float64 else v for key, v in network.neutral_state().items()
    }
    network.load_neutral_state(state)
    found = backend_second_derivative(backend, network, x, direction)
    oracle = hold("torch", layer, TWICE[layer])
    oracle.load_neutral_state(state)
    tensor = torch.tensor(x, requires_grad=True)
    (first,) = torch.autograd.grad((oracle(tensor) ** 2).sum(), tensor, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.tensor(direction)).sum(), tensor)
    same(found, second.numpy(), "second derivative")


def backend_second_derivative(backend, network, x, direction):
    """The gradient of <gradient, direction>, in each framework's own words."""
    if backend.name == "torch":
        tensor = torch.tensor(x, requires_grad=True)
        (first,) = torch.autograd.grad((network(tensor) ** 2).sum(), tensor, create_graph=True)
        return torch.autograd.grad((first * torch.tensor(direction)).sum(), tensor)[0].numpy()
    if backend.name == "chainer":
        import chainer

        variable = chainer.Variable(x)
        y = network(variable)
        (first,) = chainer.grad([network.nn.sum(y * y)], [variable], enable_double_backprop=True)
        (second,) = chainer.grad([network.nn.sum(first * direction)], [variable])
        return second.array
    import jax
    from flax import nnx

    definition, state = nnx.split(network)

    def loss(x):
        y = nnx.merge(definition, state, copy=True)(x)
        return (y * y).sum()

    return np.asarray(jax.grad(lambda x: (jax.grad(loss)(x) * direction).sum())(jax.numpy.asarray(x)))
