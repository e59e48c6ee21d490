"""What cannot work is refused, on every backend in the same words, and errors name the layer's
path."""

import re
from functools import partial

import numpy as np
import pytest

from deliralike.errors import (
    ArgumentError,
    DtypeError,
    IndexRangeError,
    OperationError,
    SettingError,
    ShapeError,
)
from tests.nn.agreement import get, hold, normal, shelf

# Layer, settings, shape of the input, and what the message says after "Layer at 'layer': ".
SHAPES = {
    "channels": (
        "Conv2d",
        {"args": (3, 4, 3)},
        (2, 4, 5, 5),
        "got an input of shape (2, 4, 5, 5), wanted (batch, 3, height, width)",
    ),
    "1d": ("Conv1d", {"args": (3, 4, 3)}, (2, 3), "wanted (batch, 3, length)"),
    "small": (
        "Conv2d",
        {"args": (3, 4, 5)},
        (2, 3, 4, 9),
        "an input of shape (2, 3, 4, 9) is too small, the output would have size (0, 5)",
    ),
    "transposed": (
        "ConvTranspose2d",
        {"args": (3, 4, 3)},
        (2, 2, 4, 4),
        "wanted (batch, 3, height, width)",
    ),
    "linear": (
        "Linear",
        {"args": (3, 4)},
        (3, 5),
        "got an input of shape (3, 5), wanted (..., 3)",
    ),
    "batch norm": (
        "BatchNorm2d",
        {"args": (3,)},
        (2, 4, 3, 3),
        "wanted (batch, 3, height, width)",
    ),
    "one value": (
        "BatchNorm2d",
        {"args": (3,)},
        (1, 3, 1, 1),
        "batch statistics need more than one value per channel, got shape (1, 3, 1, 1): use a "
        "larger batch, or evaluation mode",
    ),
    "instance norm": (
        "InstanceNorm2d",
        {"args": (3,)},
        (2, 4, 3, 3),
        "wanted (batch, 3, height, width)",
    ),
    "one value of an instance": (
        "InstanceNorm1d",
        {"args": (3,)},
        (2, 3, 1),
        "need more than one value per channel",
    ),
    "group norm": ("GroupNorm", {"args": (2, 4)}, (2, 3, 3), "wanted (batch, 4, ...)"),
    "layer norm": ("LayerNorm", {"args": ((3, 4),)}, (2, 4, 3), "wanted (..., 3, 4)"),
    "prelu": ("PReLU", {"args": (3,)}, (2, 4), "wanted (batch, 3, ...)"),
    "max pool": (
        "MaxPool2d",
        {"args": (3,)},
        (2, 3, 5),
        "wanted (batch, channels, height, width)",
    ),
    "max pool small": (
        "MaxPool2d",
        {"args": (3,)},
        (2, 3, 5, 2),
        "is too small, the output would have size (1, 0)",
    ),
    "adaptive pool": (
        "AdaptiveAvgPool2d",
        {"args": (3,)},
        (2, 3, 5),
        "wanted (batch, channels, height, width)",
    ),
    "channel dropout": (
        "Dropout2d",
        {},
        (2, 3, 5),
        "wanted (batch, channels, height, width)",
    ),
    "recurrence": ("LSTM", {"args": (3, 2)}, (4, 2, 5), "wanted (..., 3)"),
    "recurrence axes": (
        "GRU",
        {"args": (3, 2)},
        (4, 3),
        "wanted three axes: (time, batch, 3)",
    ),
    **{
        f"{layer} of one sample": (layer, {"args": (3, 2)}, (3,), "axes: (batch, 3)")
        for layer in ("RNNCell", "LSTMCell", "GRUCell")
    },
}


def test_a_wrong_shape_is_refused_with_the_path_of_the_layer(name):
    layers = {f"layer{index}": case[:2] for index, case in enumerate(SHAPES.values())}
    network = shelf(name, layers).train()
    refused = {}
    for path, (label, (layer, _, shape, message)) in zip(
        layers, SHAPES.items(), strict=True
    ):
        (x,) = network.backend.prepare((normal(0, *shape),), network)
        refused[label] = refusal(
            lambda: getattr(network, path)(x),
            ShapeError,
            f"{layer} at '{path}': .*{re.escape(message)}",
        )
    assert not mistakes(refused)


def test_one_value_of_an_instance_is_refused_in_evaluation_too(name):
    network = shelf(name, {"norm": SHAPES["one value of an instance"][:2]}).eval()
    (x,) = network.backend.prepare((normal(0, 2, 3, 1),), network)
    with pytest.raises(
        ShapeError, match="InstanceNorm1d at 'norm': .*more than one value"
    ):
        network.norm(x)


def refusal(call, error, message):
    """What is wrong with how a call is refused; None if nothing is."""
    try:
        call()
    except (
        Exception
    ) as raised:  # also another error than the wanted one is told with the case
        if not isinstance(raised, error):
            return (
                f"raised {type(raised).__name__}: {raised}\n    wanted {error.__name__}"
            )
        return (
            None
            if re.search(message, str(raised))
            else f"{raised}\n    does not say {message}"
        )
    return "was not refused"


def mistakes(refused):
    return "\n".join(f"{label}: {wrong}" for label, wrong in refused.items() if wrong)


# Layer, settings, and a part of the message.
SETTINGS = {
    "channels": ("Conv2d", {"args": (0, 4, 3)}, "in_channels"),
    "kernel": ("Conv2d", {"args": (3, 4, (3, 3, 3))}, "kernel_size"),
    "padding": ("Conv2d", {"args": (3, 4, 3), "padding": -1}, "padding"),
    "padding name": ("Conv2d", {"args": (3, 4, 3), "padding": "full"}, "padding"),
    "same with stride": (
        "Conv2d",
        {"args": (3, 4, 3), "padding": "same", "stride": 2},
        "padding",
    ),
    "groups": ("Conv2d", {"args": (3, 4, 3), "groups": 2}, "groups"),
    "output padding": (
        "ConvTranspose2d",
        {"args": (3, 4, 3), "output_padding": 1},
        "output_padding",
    ),
    "padding row": ("Embedding", {"args": (3, 4), "padding_idx": 3}, "padding_idx"),
    "group norm": ("GroupNorm", {"args": (2, 3)}, "num_channels"),
    "heads": ("MultiheadAttention", {"args": (5, 2)}, "num_heads"),
    "layers": ("GRU", {"args": (3, 2, 0)}, "num_layers"),
    "probability": ("Dropout", {"p": 1.5}, "1.5"),
    "no epsilon": ("BatchNorm2d", {"args": (3, 0.0)}, "BatchNorm2d: eps=0.0"),
    "one recurrent layer": ("LSTM", {"args": (3, 4), "dropout": 2.0}, "2.0"),
    "pool padding": ("AvgPool2d", {"args": (3,), "padding": 2}, "padding"),
    "shuffle": ("PixelShuffle", {"args": (0,)}, "upscale_factor"),
    "half a kernel": (
        "Conv2d",
        {"args": (3, 4, 2.5)},
        "kernel_size=2.5 must be a whole",
    ),
    "half of one kernel": (
        "AvgPool2d",
        {"args": ((2.5, 2),)},
        "kernel_size=(2.5, 2) must be a whole",
    ),
    "a kernel in words": ("Conv1d", {"args": (3, 4, "3")}, "kernel_size='3'"),
    "half a size": ("AdaptiveAvgPool2d", {"args": (2.0,)}, "output_size=2.0"),
    "half a stride": ("MaxPool1d", {"args": (2,), "stride": 1.5}, "stride=1.5"),
    "no probability": ("Dropout", {"p": None}, "None"),
    "a probability in words": ("Dropout2d", {"p": "0.5"}, "'0.5'"),
    "an epsilon in words": (
        "BatchNorm1d",
        {"args": (3, "1e-5")},
        "BatchNorm1d: eps='1e-5' must be a number",
    ),
    "a flag in words": (
        "LSTM",
        {"args": (3, 4), "batch_first": "yes"},
        "LSTM: batch_first='yes' must be true or false",
    ),
    "half a width": (
        "LayerNorm",
        {"args": (1.5,)},
        "LayerNorm: normalized_shape=1.5 must be a whole number",
    ),
    "no width": ("LayerNorm", {"args": (-1,)}, "normalized_shape=(-1,): every number"),
    "half a row": ("Embedding", {"args": (3, 4, 1.5)}, "Embedding: padding_idx=1.5"),
    "a projection in words": ("LSTM", {"args": (3, 4), "proj_size": "2"}, "proj_size"),
    "width of keys": (
        "MultiheadAttention",
        {"args": (4, 2), "kdim": -1},
        "MultiheadAttention: kdim=-1 must be",
    ),
    "half a margin": ("ZeroPad2d", {"args": (1.5,)}, "ZeroPad2d: padding=1.5"),
    "half a window": ("LPPool2d", {"args": (2, 1.5)}, "LPPool2d: kernel_size=1.5"),
    "an axis in words": ("Softmax", {"args": ("1",)}, "Softmax: dim='1'"),
    "no sizes": ("Unflatten", {"args": (1, 2)}, "Unflatten: unflattened_size=2"),
    "a bound in words": ("Hardtanh", {"args": ("0",)}, "Hardtanh: min_val='0'"),
}


def test_a_setting_that_makes_no_sense_is_refused_and_named(name):
    refused = {
        label: refusal(
            partial(hold, name, layer, settings), SettingError, re.escape(message)
        )
        for label, (layer, settings, message) in SETTINGS.items()
    }
    assert not mistakes(refused)


def test_numbers_of_numpy_are_settings(name):
    one, two = np.int64(1), np.int64(2)
    layers = {
        "layer0": ("LayerNorm", {"args": (two, np.float32(1e-5))}),
        "layer1": ("ReflectionPad1d", {"args": (one,)}),
        "layer2": ("Conv1d", {"args": (two, one, one), "bias": np.bool_(False)}),
    }
    network = shelf(name, layers)
    (x,) = network.backend.prepare((normal(0, 3, 2, 2),), network)
    y = network.layer2(network.layer1(network.layer0(x)))
    assert tuple(y.shape) == (3, 1, 4)


# Layer, settings, input, and what the message says after the name and path of the layer.
INPUTS = {
    "a list": ("Conv2d", {"args": (3, 4, 3)}, [1.0, 2.0], "([1.0, 2.0])"),
    "a list in a pool": ("MaxPool2d", {"args": (2,)}, [1.0, 2.0], "([1.0, 2.0])"),
    "a list in a norm": ("BatchNorm1d", {"args": (2,)}, [1.0, 2.0], "([1.0, 2.0])"),
    "a list activated": ("ReLU", {}, [1.0, 2.0], "([1.0, 2.0])"),
    "nothing": ("Linear", {"args": (2, 3)}, None, "(None)"),
    "a text": ("GRU", {"args": (2, 3)}, "x", "('x')"),
    "too many axes": ("Upsample", {"args": (3,)}, (1, 1, 2, 2, 2, 2), "(float64 (1, "),
}


def test_an_input_that_is_no_array_is_refused_with_the_path_of_the_layer(name):
    layers = {f"layer{index}": case[:2] for index, case in enumerate(INPUTS.values())}
    network = shelf(name, layers)
    refused = {}
    for path, (label, (layer, _, x, given)) in zip(layers, INPUTS.items(), strict=True):
        if isinstance(x, tuple):
            (x,) = network.backend.prepare((normal(0, *x),), network)
        call = partial(getattr(network, path), x)
        message = re.escape(f"{layer} at '{path}': cannot be computed of {given}")
        refused[label] = refusal(call, OperationError, message)
    assert not mistakes(refused)


@pytest.mark.parametrize("layer", ["Sigmoid", "Tanh", "Softsign", "Hardtanh"])
def test_whole_numbers_are_not_activated(name, layer):
    network = hold(name, layer)
    (x,) = network.backend.prepare((np.array([1, 2]),), network)
    with pytest.raises(DtypeError, match="int.*, wanted floating numbers"):
        network.layer(x)


def test_an_odd_axis_is_not_halved(name):
    network = hold(name, "GLU")
    (x,) = network.backend.prepare((normal(0, 2, 3),), network)
    with pytest.raises(ShapeError, match="glu: axis -1 of shape .* has 3 elements"):
        network.layer(x)


def test_an_ignored_label_among_probabilities_is_refused(name):
    network = hold(name, "CrossEntropyLoss", {"ignore_index": 1})
    x = normal(0, 2, 3)
    logits, target = network.backend.prepare((x, np.full((2, 3), 1 / 3)), network)
    with pytest.raises(SettingError, match="ignore_index=1 is for labels"):
        network.layer(logits, target)


def test_an_unknown_argument_is_refused_and_the_known_ones_named(name):
    refused = {}
    for layer, *args in [
        ("Conv2d", 3, 4, 3),
        ("Linear", 3, 4),
        ("LSTM", 3, 4),
        ("MaxPool2d", 2),
        ("Dropout",),
    ]:
        made = partial(hold, name, layer, {"args": tuple(args), "strides": 2})
        refused[layer] = refusal(
            made, ArgumentError, f"{layer}: .*strides.* Its arguments are "
        )
    assert not mistakes(refused)


CALLS = {
    "cross-entropy target": (
        lambda nn, x, i: nn.cross_entropy(x, i[:2]),
        ShapeError,
        "cross_entropy: target has shape (2,); logits of shape (3, 4) want (3,)",
    ),
    "cross-entropy logits": (
        lambda nn, x, i: nn.cross_entropy(x[0], i),
        ShapeError,
        "cross_entropy: logits have shape (4,)",
    ),
    "cross-entropy label": (
        lambda nn, x, i: nn.cross_entropy(x, i + 2),
        IndexRangeError,
        "cross_entropy: target: 4 is out of range, wanted whole numbers from 0 to 3 (or -100, "
        "which is ignored)",
    ),
    "cross-entropy type": (
        lambda nn, x, i: nn.cross_entropy(x, x[:, 0]),
        SettingError,
        "wanted whole numbers",
    ),
    "cross-entropy weight": (
        lambda nn, x, i: nn.cross_entropy(x, i, x[0, :2]),
        ShapeError,
        "weight has shape (2,); wanted one for each of 4 classes",
    ),
    "cross-entropy smoothing": (
        lambda nn, x, i: nn.cross_entropy(x, i, label_smoothing=2.0),
        SettingError,
        "label_smoothing=2.0",
    ),
    "reduction": (
        lambda nn, x, i: nn.cross_entropy(x, i, reduction="avg"),
        SettingError,
        "reduction='avg'; wanted 'mean', 'sum' or 'none'",
    ),
    "mse": (
        lambda nn, x, i: nn.mse_loss(x, x[:, 0]),
        ShapeError,
        "mse_loss: shapes (3, 4) and (3,) differ; nothing is broadcast",
    ),
    "margin ranking": (
        lambda nn, x, i: nn.margin_ranking_loss(x[:, :1], x[:, 1], x[:, 2]),
        ShapeError,
        "got inputs of shapes (3, 1) and (3,) and (3,), wanted as many axes in each",
    ),
    "cosine embedding": (
        lambda nn, x, i: nn.cosine_embedding_loss(x, x, i[:, None]),
        ShapeError,
        "cosines and targets: got inputs of shapes (3,) and (3, 1)",
    ),
    "triplet margin": (
        lambda nn, x, i: nn.triplet_margin_loss(x, x, x[0]),
        ShapeError,
        "triplet_margin_loss: got inputs of shapes (3, 4) and (3, 4) and (4,)",
    ),
    "fold": (
        lambda nn, x, i: nn.fold(x, (2, 2), 2),
        ShapeError,
        "fold: got an input of shape (3, 4), wanted (batch, channels * 4, 1)",
    ),
    "huber": (
        lambda nn, x, i: nn.huber_loss(x, x, delta=0.0),
        SettingError,
        "huber_loss: delta=0.0 must be above 0",
    ),
    "bce": (
        lambda nn, x, i: nn.bce_with_logits(x, x[:1]),
        ShapeError,
        "bce_with_logits: shapes",
    ),
    "split to none": (
        lambda nn, x, i: nn.chunk(x, 0),
        SettingError,
        "chunk: chunks=0 must be a whole number of at least 1",
    ),
    "dice": (lambda nn, x, i: nn.dice_loss(x, x[:1]), ShapeError, "dice_loss: shapes"),
    "one hot": (
        lambda nn, x, i: nn.one_hot(i, 2, like=x),
        IndexRangeError,
        "one_hot: target: 2 is out of range, wanted whole numbers from 0 to 1",
    ),
    "take": (
        lambda nn, x, i: nn.take(x, i + 1),
        IndexRangeError,
        "take: index: 3 is out of range, wanted whole numbers from 0 to 2",
    ),
    "take along": (
        lambda nn, x, i: nn.take_along(x, i[:, None] + 2, 1),
        IndexRangeError,
        "take_along: index: 4 is out of range",
    ),
    "take type": (
        lambda nn, x, i: nn.take(x, x),
        SettingError,
        "take: index: got an array of",
    ),
    "embedding": (
        lambda nn, x, i: nn.embedding(i - 1, x),
        IndexRangeError,
        "embedding: index: -1 is out of range",
    ),
    "split": (
        lambda nn, x, i: nn.split(x, [1, 2], dim=1),
        ShapeError,
        "split: sizes [1, 2] add up to 3, but axis 1 has 4 elements",
    ),
    "split size": (
        lambda nn, x, i: nn.split(x, 0, dim=1),
        SettingError,
        "split: sizes=0 must be a whole number of at least 1",
    ),
    "squeeze": (
        lambda nn, x, i: nn.squeeze(x, 1),
        ShapeError,
        "squeeze: axis 1 of shape (3, 4) has length 4, wanted 1",
    ),
    "pad mode": (
        lambda nn, x, i: nn.pad(x, [(1, 1)], "wrap"),
        SettingError,
        "pad: mode='wrap'; wanted 'constant', 'reflect', 'replicate' or 'circular'",
    ),
    "pad pairs": (
        lambda nn, x, i: nn.pad(x, [1, 1, 1]),
        SettingError,
        "pad: pad=[1, 1, 1]; wanted (before, after)",
    ),
    "pad away": (
        lambda nn, x, i: nn.pad(x, [(-3, -2)]),
        ShapeError,
        "crops more than the 4 elements of an axis",
    ),
    "reflect": (
        lambda nn, x, i: nn.pad(x, [(4, 0)], "reflect"),
        SettingError,
        "reflecting by (4, 0) needs more than 4 elements, not 4",
    ),
    "interpolate both": (
        lambda nn, x, i: nn.interpolate(x[None], 3, 2.0),
        SettingError,
        "give either size or scale_factor",
    ),
    "interpolate mode": (
        lambda nn, x, i: nn.interpolate(x[None], 3, mode="bilinear"),
        SettingError,
        "wanted 'nearest', 'nearest-exact', 'linear', 'bicubic' (two axes) or 'area' for an ",
    ),
    "interpolate corners": (
        lambda nn, x, i: nn.interpolate(x[None], 3, align_corners=True),
        SettingError,
        "align_corners=True is for mode='linear'",
    ),
    "interpolate to nothing": (
        lambda nn, x, i: nn.interpolate(x[None], scale_factor=0.1),
        ShapeError,
        "leaves nothing of shape (1, 3, 4)",
    ),
    "gelu": (
        lambda nn, x, i: nn.gelu(x, "fast"),
        SettingError,
        "gelu: approximate='fast'; wanted 'none' or 'tanh'",
    ),
    "rank": (
        lambda nn, x, i: nn.max_pool2d(x, 2),
        ShapeError,
        "max_pool2d: got an input of shape (3, 4), wanted 4 axes",
    ),
    "shuffle": (
        lambda nn, x, i: nn.pixel_shuffle(x[None, :, :, None], 2),
        SettingError,
        "pixel_shuffle: channels=3 cannot be divided by upscale_factor**2=4",
    ),
    "groups": (
        lambda nn, x, i: nn.group_norm(x, 3),
        SettingError,
        "group_norm: channels=4 cannot be divided by num_groups=3",
    ),
    "output padding": (
        lambda nn, x, i: nn.conv_transpose(x[None], x[:, :2, None], output_padding=2),
        SettingError,
        "output_padding=(2,) must be smaller than stride=(1,) or dilation=(1,)",
    ),
}


def test_a_call_that_cannot_work_is_refused(network):
    x, index = network.backend.prepare((normal(0, 3, 4), np.array([0, 1, 2])), network)
    refused = {
        label: refusal(partial(call, network.nn, x, index), error, re.escape(message))
        for label, (call, error, message) in CALLS.items()
    }
    assert not mistakes(refused)


def test_an_index_outside_of_the_table_and_fractions_are_refused(name):
    network = hold(name, "Embedding", {"args": (5, 3)})
    for index in (5, -1):
        (x,) = network.backend.prepare((np.array([[0, index]]),), network)
        with pytest.raises(
            IndexRangeError,
            match=f"{index} is out of range, wanted whole numbers from 0 to 4",
        ):
            network(x)
    (x,) = network.backend.prepare((np.array([[0.0, 1.0]]),), network)
    with pytest.raises(
        SettingError,
        match=re.escape("wanted whole numbers (int64): convert it before the call"),
    ):
        network(x)


def test_an_output_size_out_of_reach_is_refused(name):
    network = hold(name, "ConvTranspose1d", {"args": (3, 4, 3), "stride": 2})
    (x,) = network.backend.prepare((normal(0, 2, 3, 4),), network)
    with pytest.raises(
        ShapeError,
        match=re.escape(
            "ConvTranspose1d at 'layer': output_size=(12,) cannot be reached; wanted (9,) to (10,)"
        ),
    ):
        network.layer(x, output_size=12)


def test_masks_and_tokens_of_wrong_shapes_are_refused(name):
    network = hold(name, "MultiheadAttention", {"args": (4, 2), "batch_first": True})
    for mask, shape in [
        ("attn_mask", (3, 3)),
        ("attn_mask", (5, 3, 4)),
        ("key_padding_mask", (2, 3)),
    ]:
        q, k, m = network.backend.prepare(
            (normal(0, 2, 3, 4), normal(0, 2, 4, 4), np.zeros(shape, bool)), network
        )
        with pytest.raises(
            ShapeError,
            match=re.escape(
                f"MultiheadAttention at 'layer': got {mask} of shape {shape}, wanted"
            ),
        ):
            network.layer(q, k, k, **{mask: m})
    for shapes in [((3, 4), (3, 4)), ((2, 3, 4), (1, 3, 4))]:
        q, k = network.backend.prepare(
            tuple(normal(0, *shape) for shape in shapes), network
        )
        with pytest.raises(
            ShapeError, match=re.escape("wanted (batch, tokens, 4) with one batch size")
        ):
            network.layer(q, k, k)


def test_a_state_of_a_wrong_shape_is_refused(name):
    network = hold(name, "GRU", {"args": (3, 2)})
    x, h = network.backend.prepare((normal(0, 4, 2, 3), normal(0, 1, 3, 2)), network)
    with pytest.raises(
        ShapeError,
        match=re.escape(
            "GRU at 'layer': got a state of shape (1, 3, 2), wanted (1, 2, 2)"
        ),
    ):
        network.layer(x, h)


def test_the_written_once_vocabulary_is_not_a_backend_that_users_see():
    from deliralike import backends

    assert get("written once") is not backends.get("torch")


@pytest.mark.parametrize("lengths", [(3, 4), (4, 3)])
def test_vectors_of_two_lengths_have_no_product(backend, lengths):
    one, other = (backend.array(np.ones(length), "float64") for length in lengths)
    with pytest.raises(
        ShapeError,
        match="dot: got inputs of shapes .* wanted two vectors of one length",
    ):
        backend.nn.dot(one, other)


@pytest.mark.parametrize("function", ["softmax", "log_softmax", "softmin"])
def test_a_softmax_over_no_axis_is_none_over_all_of_them(backend, function):
    with pytest.raises(ShapeError, match="there is no axis None in an array of 2 axes"):
        getattr(backend.nn, function)(backend.array(np.ones((2, 3))), None)


HOST_ARRAY = np.array([0, 2])


def test_a_numpy_array_is_computed_with_or_refused_with_what_to_do(backend):
    x = backend.array(np.arange(6.0).reshape(2, 3))
    calls = {
        "cross_entropy": (x, HOST_ARRAY),
        "concatenate": ([x, np.ones((1, 3))], 0),
        "one_hot": (HOST_ARRAY, 3),
    }
    for function, arguments in calls.items():
        call = partial(getattr(backend.nn, function), *arguments)
        if backend.nn.takes_host_arrays:
            call()
            continue
        with pytest.raises(OperationError, match="is a NumPy array, see nn.constant"):
            call()
        with pytest.raises(OperationError) as refused:  # whose arrays are all its own
            backend.nn.matmul(x, x)
        assert "NumPy" not in str(refused.value)
