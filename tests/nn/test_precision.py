"""Types are kept through every layer, and gradients of gradients exist."""

import numpy as np
import pytest

from tests.nn.agreement import NAMES, flat, get, hold, naming, normal, shelf

IMAGE, SERIES, VOLUME, TOKENS = (2, 4, 7, 6), (2, 4, 7), (2, 4, 5, 4, 4), (3, 2, 4)
INDEX = np.array([[0, 1], [2, 2]])

# Settings and the shape of one input: every layer that computes.
LAYERS = {
    "Conv1d": ({"args": (4, 3, 3)}, SERIES),
    "Conv2d": ({"args": (4, 4, 3), "groups": 2, "stride": 2}, IMAGE),
    "Conv3d": ({"args": (4, 3, 3)}, VOLUME),
    "ConvTranspose1d": ({"args": (4, 3, 3)}, SERIES),
    "ConvTranspose2d": ({"args": (4, 3, 3), "stride": 2}, IMAGE),
    "ConvTranspose3d": ({"args": (4, 3, 2)}, VOLUME),
    "BatchNorm1d": ({"args": (4,)}, SERIES),
    "BatchNorm2d": ({"args": (4,), "momentum": None}, IMAGE),
    "BatchNorm3d": ({"args": (4,)}, VOLUME),
    "InstanceNorm1d": ({"args": (4,), "track_running_stats": True}, SERIES),
    "InstanceNorm2d": ({"args": (4,), "affine": True}, IMAGE),
    "InstanceNorm3d": ({"args": (4,)}, VOLUME),
    "GroupNorm": ({"args": (2, 4)}, IMAGE),
    "LayerNorm": ({"args": (6,)}, IMAGE),
    "Linear": ({"args": (6, 3)}, IMAGE),
    "Embedding": ({"args": (5, 3), "padding_idx": 0}, None),
    "PReLU": ({"args": (4,)}, IMAGE),
    "LSTM": ({"args": (4, 3, 2), "bidirectional": True}, TOKENS),
    "GRU": ({"args": (4, 3)}, TOKENS),
    "Dropout": ({}, IMAGE),
    "Dropout1d": ({}, SERIES),
    "Dropout2d": ({}, IMAGE),
    "Dropout3d": ({}, VOLUME),
    "DropPath": ({}, IMAGE),
    "MaxPool1d": ({"args": (2,)}, SERIES),
    "MaxPool2d": ({"args": (3, 2, 1)}, IMAGE),
    "MaxPool3d": ({"args": (2,)}, VOLUME),
    "AvgPool1d": ({"args": (2,)}, SERIES),
    "AvgPool2d": ({"args": (3, 2, 1), "count_include_pad": False}, IMAGE),
    "AvgPool3d": ({"args": (2,)}, VOLUME),
    "AdaptiveAvgPool1d": ({"args": (3,)}, SERIES),
    "AdaptiveAvgPool2d": ({"args": (3,)}, IMAGE),
    "AdaptiveAvgPool3d": ({"args": (1,)}, VOLUME),
    "AdaptiveMaxPool1d": ({"args": (3,)}, SERIES),
    "AdaptiveMaxPool2d": ({"args": (3,)}, IMAGE),
    "AdaptiveMaxPool3d": ({"args": (2,)}, VOLUME),
    "Upsample": ({"scale_factor": 1.5, "mode": "linear", "align_corners": True}, IMAGE),
    "PixelShuffle": ({"args": (2,)}, IMAGE),
    "Flatten": ({}, IMAGE),
    "Identity": ({}, IMAGE),
    "ReLU": ({}, IMAGE),
    "ReLU6": ({}, IMAGE),
    "LeakyReLU": ({}, IMAGE),
    "ELU": ({}, IMAGE),
    "SiLU": ({}, IMAGE),
    "GELU": ({}, IMAGE),
    "Hardswish": ({}, IMAGE),
    "Hardsigmoid": ({}, IMAGE),
    "Sigmoid": ({}, IMAGE),
    "Tanh": ({}, IMAGE),
    "Softplus": ({}, IMAGE),
    "Softmax": ({"args": (1,)}, IMAGE),
    "LogSoftmax": ({"args": (1,)}, IMAGE),
    "RMSNorm": ({"args": (6,)}, IMAGE),
    "LocalResponseNorm": ({"args": (3,)}, IMAGE),
    "RNN": ({"args": (4, 3)}, TOKENS),
    "TransformerEncoderLayer": ({"args": (4, 2, 5), "dropout": 0.0}, TOKENS),
    "CELU": ({"args": (0.5,)}, IMAGE),
    "SELU": ({}, IMAGE),
    "GLU": ({"args": (1,)}, IMAGE),
    "Mish": ({}, IMAGE),
    "Hardtanh": ({}, IMAGE),
    "Hardshrink": ({}, IMAGE),
    "Softshrink": ({}, IMAGE),
    "Tanhshrink": ({}, IMAGE),
    "Softsign": ({}, IMAGE),
    "Threshold": ({"args": (0.1, 2.0)}, IMAGE),
    "LogSigmoid": ({}, IMAGE),
    "Softmin": ({"args": (1,)}, IMAGE),
    "Softmax2d": ({}, IMAGE),
    "LPPool1d": ({"args": (2.0, 2)}, SERIES),
    "LPPool2d": ({"args": (2.0, 3)}, IMAGE),
    "LPPool3d": ({"args": (2.0, 2)}, VOLUME),
    "ConstantPad2d": ({"args": (1, 0.5)}, IMAGE),
    "ZeroPad2d": ({"args": (1,)}, IMAGE),
    "CircularPad2d": ({"args": (1,)}, IMAGE),
    "ReflectionPad2d": ({"args": (1,)}, IMAGE),
    "ReplicationPad2d": ({"args": (1,)}, IMAGE),
    "UpsamplingBilinear2d": ({"scale_factor": 2}, IMAGE),
    "UpsamplingNearest2d": ({"scale_factor": 2}, IMAGE),
    "PixelUnshuffle": ({"args": (1,)}, IMAGE),
    "ChannelShuffle": ({"args": (2,)}, IMAGE),
    "Unfold": ({"args": (3,)}, IMAGE),
    "Unflatten": ({"args": (1, (2, 2))}, IMAGE),
    "AlphaDropout": ({}, IMAGE),
    "FeatureAlphaDropout": ({}, IMAGE),
}

# Containers, layers of several inputs, and those that stand there in another number of dimensions.
OTHERS = {"MultiheadAttention", "Sequential", "ModuleList", "ModuleDict", "ParameterList"}
OTHERS |= {"ParameterDict", "EmbeddingBag", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"}
OTHERS |= {"Bilinear", "CosineSimilarity", "PairwiseDistance", "Fold"}
OTHERS |= {"LSTMCell", "GRUCell", "RNNCell"}
OTHERS |= {"Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerDecoderLayer"}
PADDING = {"ConstantPad", "ZeroPad", "CircularPad", "ReflectionPad", "ReplicationPad"}
OTHERS |= {f"{kind}{dims}d" for kind in PADDING for dims in (1, 3)}

INPUTS = [INDEX if shape is None else normal(0, *shape) for _, shape in LAYERS.values()]


def test_every_layer_is_in_the_table():
    from deliralike.nn.layers import LAYERS as ALL

    computing = {name for name in ALL if not name.startswith("_") and "Loss" not in name}
    assert computing == set(LAYERS) | OTHERS


def in_double_precision():
    """PyTorch's outputs in float64, by layer."""
    network, found = all_layers("torch", "float64"), {}
    for layer, x in zip(LAYERS, INPUTS, strict=True):
        (given,) = network.backend.prepare((x,), network)
        found[layer] = [
            network.backend.numpy(y) for y in flat(getattr(network, f"the_{layer}")(given))
        ]
    return found


def all_layers(name, dtype):
    """Every layer in one network, in training mode but for those that draw at random."""
    layers = {f"the_{layer}": (layer, settings) for layer, (settings, _) in LAYERS.items()}
    network = shelf(name, layers, dtype, seed=1)
    for layer in LAYERS:
        getattr(network, f"the_{layer}").train("Drop" not in layer)
    return network


def type_name(array):
    return str(array.dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_float32_and_close_to_float64(name):
    """In one program; the gradients of the outputs' products with ones, with respect to these, are
    the outputs."""
    network, wanted, types = all_layers(name, "float32"), in_double_precision(), {}

    def loss(network, inputs, ones):
        total = 0.0
        for layer, x, factors in zip(LAYERS, inputs, ones, strict=True):
            with naming(layer):
                outputs = flat(getattr(network, f"the_{layer}")(x))
                types[layer] = {type_name(y) for y in outputs}
                total = total + sum(
                    network.nn.sum(y * one) for y, one in zip(outputs, factors, strict=True)
                )
        return total

    ones = [[np.ones(y.shape, np.float32) for y in outputs] for outputs in wanted.values()]
    found = network.backend.gradients(loss, network, INPUTS, ones)
    assert {layer: kinds for layer, kinds in types.items() if kinds != {"float32"}} == {}
    kept = {key: str(value.dtype) for key, value in network.neutral_state().items()}
    assert {key: kind for key, kind in kept.items() if kind not in ("float32", "int64")} == {}
    of_inputs = dict(zip(LAYERS, found.inputs[0], strict=True))
    gradients = found.parameters | {
        layer: y for layer, y in of_inputs.items() if layer != "Embedding"
    }
    assert {
        key: str(y.dtype) for key, y in gradients.items() if y is not None and y.dtype != np.float32
    } == {}
    for (layer, outputs), mine in zip(wanted.items(), found.inputs[1], strict=True):
        for low, high in zip(mine, outputs, strict=True):
            np.testing.assert_allclose(low, high, rtol=1e-4, atol=1e-5, err_msg=layer)


FUNCTIONS = {
    "cross_entropy": lambda nn, x: nn.cross_entropy(
        x, nn.constant(np.array([1, 0, 2]), like=x), label_smoothing=0.1
    ),
    "bce_with_logits": lambda nn, x: nn.bce_with_logits(x, nn.zeros(x.shape, like=x)),
    "dice_loss": lambda nn, x: nn.dice_loss(
        nn.softmax(x, 1), nn.one_hot(nn.constant(np.array([1, 0, 2]), like=x), 4, like=x)
    ),
    "focal_loss": lambda nn, x: nn.focal_loss(x, nn.constant(np.array([1, 0, 2]), like=x), 1.5),
    "binary_focal_loss": lambda nn, x: nn.binary_focal_loss(
        x, nn.zeros(x.shape, like=x), gamma=1.5
    ),
    "generalized_dice_loss": lambda nn, x: nn.generalized_dice_loss(
        nn.softmax(x, 1), nn.softmax(-x, 1)
    ),
    "tversky_loss": lambda nn, x: nn.tversky_loss(nn.softmax(x, 1), nn.softmax(-x, 1), gamma=0.75),
    "kl_gaussian": lambda nn, x: nn.kl_gaussian(x, x),
    "kl_divergence": lambda nn, x: nn.kl_divergence(nn.log_softmax(x, 1), nn.softmax(-x, 1)),
    "discriminator_loss": lambda nn, x: nn.discriminator_loss(x, -x, "hinge"),
    "gradient_penalty": lambda nn, x: nn.gradient_penalty(
        lambda at: nn.sum(at**2.0, 1), x, -x, nn.sigmoid(x[:, 0])
    ),
    "deep_supervision": lambda nn, x: nn.deep_supervision(
        nn.mse_loss, [x[None], x[None][:, :, ::2]], x[None]
    ),
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


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_float32_stay_float32(name):
    types = {}

    def loss(network, x):
        total = 0.0
        for label, function in FUNCTIONS.items():
            with naming(label):
                outputs = flat(function(network.nn, x))
                types[label] = {type_name(y) for y in outputs}
                total = total + sum(network.nn.sum(y) for y in outputs)
        return total

    found = get(name).gradients(loss, hold(name, dtype="float32"), normal(0, 3, 4))
    assert {label: kinds for label, kinds in types.items() if kinds != {"float32"}} == {}
    assert found.inputs[0].dtype == np.float32
