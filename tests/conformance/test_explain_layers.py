"""Explanations of layers and functions: each wrong convention is written anew in PyTorch."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from deliralike import backends
from deliralike.conformance.explain.search import explain
from deliralike.conformance.masks import Masks
from tests.conformance.accusing import accused, explained, known, numbers

F = torch.nn.functional


# Batch norm
# -----------------------------------------------------------------------------

IMAGES = numbers(3, 4, 3, 2) * 2 + 1
BN_STATE = {
    "weight": numbers(4, seed=1),
    "bias": numbers(4, seed=2),
    "running_mean": numbers(4, seed=3),
    "running_var": numbers(4, seed=4) ** 2 + 0.5,
    "num_batches_tracked": np.array(0),
}


def column(array):
    return array.reshape(1, -1, 1, 1)


def bn(
    w, x, eps=1e-5, batch=True, ddof=0, outside=False, axes=(0, 2, 3), constant=False
):
    mean, var = x.mean(axes, keepdim=True), x.var(axes, correction=ddof, keepdim=True)
    if constant:
        mean, var = mean.detach(), var.detach()
    if not batch:
        mean, var = column(w["running_mean"]), column(w["running_var"])
    root = var.sqrt() + eps if outside else (var + eps).sqrt()
    return (x - mean) / root * column(w["weight"]) + column(w["bias"])


def moved(w, x, momentum=0.1, ddof=1, times=1):
    mean, var = w["running_mean"], w["running_var"]
    for _ in range(times):
        mean = mean * (1 - momentum) + momentum * x.mean((0, 2, 3))
        var = var * (1 - momentum) + momentum * x.var((0, 2, 3), ddof=ddof)
    return {"running_mean": mean, "running_var": var}


@pytest.mark.parametrize(
    ("training", "candidate", "buffers", "words"),
    [
        (True, partial(bn, eps=3.7e-4), moved, ["eps=0.00037 instead of 1e-05"]),
        (
            True,
            bn,
            partial(moved, momentum=0.9),
            ["momentum=0.9 instead of 0.1", "swapped"],
        ),
        (True, bn, partial(moved, ddof=0), ["running variance biased"]),
        (True, bn, partial(moved, times=2), ["updated twice"]),
        (True, bn, None, ["never updated"]),
        (True, partial(bn, ddof=1), moved, ["unbiased variance"]),
        (True, partial(bn, batch=False), None, ["frozen"]),
        (
            True,
            partial(bn, batch=False),
            moved,
            ["running statistics used in training, though moved"],
        ),
        (True, partial(bn, outside=True), moved, ["eps outside of the root"]),
        (True, partial(bn, axes=(2, 3)), moved, ["instance norm"]),
        (
            True,
            partial(bn, constant=True),
            moved,
            ["no gradient through the batch statistics"],
        ),
        (
            True,
            lambda w, x: bn({**w, "weight": w["weight"] + 1}, x),
            moved,
            ["weight plus 1"],
        ),
        (
            True,
            lambda w, x: bn({**w, "bias": w["bias"] * 0}, x),
            moved,
            ["bias missing"],
        ),
        (
            True,
            lambda w, x: bn(w, x) * 0.3,
            moved,
            ["scale of output 0.3 instead of 1"],
        ),
        (
            True,
            lambda w, x: bn(w, x.flip(1)),
            lambda w, x: moved(w, x[:, ::-1]),
            ["reverse order"],
        ),
        (False, partial(bn, batch=True), None, ["batch statistics in evaluation"]),
        (False, partial(bn, batch=False), moved, ["updated in evaluation"]),
    ],
)
def test_batch_norm(training, candidate, buffers, words):
    found = explained(
        "BatchNorm2d",
        {"num_features": 4},
        (IMAGES,),
        candidate,
        training,
        BN_STATE,
        buffers=buffers,
    )
    known(found, *words)


@pytest.mark.parametrize("momentum", [0.1, 0.37])
def test_batch_norm_with_a_momentum_in_the_place_of_a_plain_average(momentum):
    settings, state = (
        {"num_features": 4, "momentum": None},
        BN_STATE | {"num_batches_tracked": np.array(3)},
    )
    known(
        explained(
            "BatchNorm2d",
            settings,
            (IMAGES,),
            bn,
            state=state,
            buffers=partial(moved, momentum=momentum),
        ),
        f"momentum={momentum} instead of a plain average",
    )


# Other norms
# -----------------------------------------------------------------------------


def layer_norm(w, x, eps=1e-5, ddof=0, centred=True, outside=False):
    y = x - x.mean(2, keepdim=True) if centred else x
    var = (y**2).sum(2, keepdim=True) / (x.shape[2] - ddof)
    root = var.sqrt() + eps if outside else (var + eps).sqrt()
    return y / root * w["weight"] + w["bias"]


TOKENS = numbers(2, 5, 4) + 0.5
AFFINE = {"weight": numbers(4, seed=1), "bias": numbers(4, seed=2)}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"eps": 0.0123}, "eps=0.0123"),
        ({"ddof": 1}, "unbiased"),
        ({"centred": False}, "RMS"),
        ({"outside": True}, "outside"),
    ],
)
def test_layer_norm(how, words):
    settings = {"normalized_shape": 4}
    known(
        explained(
            "LayerNorm", settings, (TOKENS,), partial(layer_norm, **how), state=AFFINE
        ),
        words,
    )


@pytest.mark.parametrize("groups", [4, 1])
def test_group_norm(groups):
    settings = {"num_groups": 2, "num_channels": 4}
    found = explained(
        "GroupNorm",
        settings,
        (IMAGES,),
        lambda w, x: F.group_norm(x, groups, w["weight"], w["bias"]),
        state=AFFINE,
    )
    known(found, f"groups={groups} instead of 2")


def test_instance_norm():
    def by_batch(w, x):
        return F.batch_norm(x, None, None, training=True)

    known(
        explained("InstanceNorm2d", {"num_features": 4}, (IMAGES,), by_batch),
        "batch statistics",
    )


# Convolution
# -----------------------------------------------------------------------------


def conv(w, x, pads=(1, 1, 1, 1), change=lambda weight: weight, mode="constant", **how):
    return F.conv2d(F.pad(x, pads, mode), change(w["weight"]), w["bias"], **how)


SMALL = numbers(2, 3, 6, 6, seed=3)
CONV = {"in_channels": 3, "out_channels": 3, "kernel_size": 3, "padding": 1}


@pytest.mark.parametrize(
    ("settings", "candidate", "words"),
    [
        (
            CONV | {"stride": 2},
            partial(conv, pads=(0, 1, 0, 1), stride=2),
            ["asymmetric SAME"],
        ),
        (CONV, partial(conv, change=lambda w: w.flip(2, 3)), ["kernel flipped"]),
        (
            CONV,
            partial(conv, change=lambda w: w.transpose(0, 1)),
            ["axes permuted to (1, 0, 2, 3)"],
        ),
        (CONV, partial(conv, mode="reflect"), ["reflect padding"]),
        (CONV | {"padding_mode": "circular"}, conv, ["mode zeros instead of circular"]),
        (CONV, partial(conv, stride=2), ["stride=2 instead of 1"]),
        (CONV, lambda w, x: conv(w, x.flip(1)), ["RGB and BGR"]),
        (
            CONV,
            lambda w, x: conv(w, x / 255.0),
            ["scale of input (or weight) 0.0039"],
        ),
        (
            CONV,
            lambda w, x: conv(w, x).relu(),
            ["output goes through relu"],
        ),
    ],
)
def test_convolution(settings, candidate, words):
    x = SMALL if settings["in_channels"] == 3 else numbers(2, 4, 5, 5, seed=4)
    known(explained("Conv2d", settings, (x,), candidate), *words)


def test_transposed_convolution():
    steps = {"stride": 2, "padding": 1, "output_padding": 1}
    settings = {"in_channels": 2, "out_channels": 3, "kernel_size": 3, **steps}

    def transposed(w, x, axes=()):
        return F.conv_transpose2d(x, w["weight"].flip(axes), w["bias"], **steps)

    given = "ConvTranspose2d", settings, (numbers(2, 2, 3, 3),)
    assert explained(*given, transposed) is None
    known(explained(*given, partial(transposed, axes=(2, 3))), "not flipped")


# Pooling and resizing
# -----------------------------------------------------------------------------


def largest(w, x, pads=(1, 1, 1, 1), fill=-np.inf):
    return F.max_pool2d(F.pad(x, pads, value=fill), 3, 2)


def average(w, x, padded=False):
    return F.avg_pool2d(x, 3, 2, 1, count_include_pad=padded)


POOL = {"kernel_size": 3, "stride": 2, "padding": 1}
NEGATIVE = -np.abs(numbers(1, 2, 6, 6, seed=5)) - 0.1


INCLUDED = {"count_include_pad": False}


@pytest.mark.parametrize(
    ("kind", "settings", "candidate", "words"),
    [
        ("MaxPool2d", {}, partial(largest, fill=0.0), "padded with zeros"),
        ("MaxPool2d", {}, partial(largest, pads=(0, 1, 0, 1)), "asymmetric SAME"),
        ("MaxPool2d", {"ceil_mode": True}, largest, "ceil"),
        ("MaxPool2d", {}, partial(largest, pads=(1, 2, 1, 2)), "ceil"),
        ("MaxPool2d", {}, average, "average"),
        ("AvgPool2d", {}, average, "average excluding padding"),
        (
            "AvgPool2d",
            INCLUDED,
            partial(average, padded=True),
            "average including padding",
        ),
    ],
)
def test_pooling(kind, settings, candidate, words):
    known(explained(kind, POOL | settings, (NEGATIVE,), candidate), words)


def test_adaptive_pooling():
    given = "AdaptiveAvgPool2d", {"output_size": 1}, (NEGATIVE,)
    found = explained(*given, lambda w, x: x.amax((2, 3), keepdim=True))
    known(found, "maximum instead of average")


FIVE = numbers(1, 2, 5, 5, seed=6)


def resized(w, x, size=8, mode="bilinear", **how):
    return F.interpolate(x, size, mode=mode, **how)


LINEAR = {"size": 8, "mode": "linear"}


SHORTER = {"size": 3, "mode": "linear"}


@pytest.mark.parametrize(
    ("settings", "how", "words"),
    [
        (LINEAR, {"align_corners": True}, "align_corners=True"),
        (LINEAR | {"align_corners": True}, {}, "align_corners=False"),
        (LINEAR, {"mode": "nearest"}, "nearest neighbours (floor)"),
        ({"size": 8}, {"mode": "nearest-exact"}, "nearest-exact"),
        (SHORTER, {"size": 3, "antialias": True}, "antialias"),
    ],
)
def test_resizing(settings, how, words):
    known(explained("Upsample", settings, (FIVE,), partial(resized, **how)), words)


# Activations
# -----------------------------------------------------------------------------


FLAT = numbers(4, 5, seed=8) * 5


@pytest.mark.parametrize(
    ("kind", "function", "words"),
    [
        (
            "GELU",
            partial(F.gelu, approximate="tanh"),
            "gelu (tanh approximation) instead of gelu",
        ),
        ("GELU", lambda x: x * torch.sigmoid(1.702 * x), "1.702"),
        ("GELU", F.relu, "relu instead of gelu"),
        (
            "LeakyReLU",
            partial(F.leaky_relu, negative_slope=0.137),
            "negative_slope=0.137",
        ),
        ("ELU", partial(F.elu, alpha=0.7), "alpha=0.7"),
        ("Hardsigmoid", lambda x: (0.2 * x + 0.5).clamp(0, 1), "0.2"),
        ("ReLU", lambda x: x + 0.0, "identity"),
        ("Tanh", torch.sigmoid, "sigmoid instead of tanh"),
        ("SiLU", F.mish, "mish"),
        (
            "leaky_relu",
            partial(F.leaky_relu, negative_slope=0.2),
            "negative_slope=0.2 instead of",
        ),
        ("Softmax", partial(torch.softmax, dim=0), "over axis 0 instead of 1"),
        (
            "Softmax",
            partial(torch.log_softmax, dim=1),
            "log_softmax instead of softmax",
        ),
    ],
)
def test_activations(kind, function, words):
    settings = {"dim": 1} if kind == "Softmax" else {}
    known(explained(kind, settings, (FLAT,), lambda w, x: function(x)), words)


# Shapes, linear maps, tables, chance
# -----------------------------------------------------------------------------


IMAGE, THREE = numbers(2, 3, 2, 2), numbers(2, 3, 5)


@pytest.mark.parametrize(
    ("kind", "args", "function", "words"),
    [
        (
            "concatenate",
            ([FIVE, FIVE[:, :1] * 2, FIVE * 3], 1),
            lambda xs: torch.cat([xs[2], xs[0], xs[1]], 1),
            "order of concatenation [2, 0, 1]",
        ),
        ("flatten", (IMAGE,), lambda x: x.permute(0, 2, 3, 1).flatten(1), "NHWC"),
        (
            "flatten",
            (IMAGE,),
            lambda x: x.mT.flatten(1),
            "(1, 3, 2)",
        ),
        ("mean", (THREE, (1,)), lambda x: x.sum(1), "sum instead of mean"),
        (
            "mean",
            (THREE, (1, 2)),
            lambda x: x.flatten(1).amax(1),
            "maximum instead of mean",
        ),
    ],
)
def test_shapes(kind, args, function, words):
    known(explained(kind, {}, args, lambda w, x, *rest: function(x)), words)


def test_a_factor_of_a_product_is_transposed():
    args = numbers(3, 3), numbers(3, 3, seed=1)
    known(explained("matmul", {}, args, lambda w, x, y: x @ y.T), "transposed")


def linear(w, x, change=lambda weight: weight, bias=1.0):
    return F.linear(x, change(w["weight"]), bias * w["bias"])


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (partial(linear, change=torch.t), "transposed"),
        (partial(linear, bias=0.0), "bias missing"),
        (partial(linear, bias=2.0), "scale of bias 2"),
        (lambda w, x: x + 0.0, "does nothing"),
    ],
)
def test_linear(candidate, words):
    settings = {"in_features": 4, "out_features": 4}
    known(explained("Linear", settings, (FLAT[:, :4],), candidate), words)


INDEX = np.array([[1, 0, 3], [0, 4, 1]])


def test_embedding():
    settings, weight = (
        {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": 0},
        numbers(5, 3),
    )

    def rows(w, index, scale=1.0, padding=None):
        return F.embedding(index, w["weight"] * scale, padding)

    state = {"weight": weight}
    made = partial(explained, "Embedding", settings, (INDEX,), state=state)
    assert made(partial(rows, padding=0)) is None
    known(made(rows), "padding row")
    known(made(partial(rows, scale=1.23, padding=0)), "scale of weight 1.23")


@pytest.mark.parametrize(
    ("training", "factor", "word"),
    [
        (True, 1.0, "unscaled"),
        (True, 0.7, "multiplied by what is kept"),
        (True, 1 / 0.25, "p=0.75 instead of 0.3"),
        (False, 1 / 0.7, "on in evaluation"),
        (False, 0.7, "scaled in evaluation"),
    ],
)
def test_dropout(training, factor, word):
    """It scales in a comparison, and drops nothing."""
    with Masks().forced(backends.get("torch")):
        given = ("Dropout", {"p": 0.3}, (FLAT,), lambda w, x: x * factor, training)
        known(explained(*given), word)


# What is no convention
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-3, 3e-9])
def test_a_random_perturbation_has_no_cause(size):
    right = accused(
        "BatchNorm2d", {"num_features": 4}, (IMAGES,), bn, True, BN_STATE, buffers=moved
    )
    noise = size * numbers(*IMAGES.shape, seed=7)
    found = explain(
        replace(
            right,
            candidate=replace(right.candidate, outputs=right.candidate.outputs + noise),
        ),
        backends.get("torch"),
    )
    assert found is None or not found.known


def test_right_ones_have_nothing_to_explain():
    assert (
        explained(
            "BatchNorm2d",
            {"num_features": 4},
            (IMAGES,),
            bn,
            True,
            BN_STATE,
            buffers=moved,
        )
        is None
    )
    assert explained("Conv2d", CONV, (SMALL,), conv) is None
    assert explained("MaxPool2d", POOL, (NEGATIVE,), largest) is None


@pytest.mark.parametrize(
    "change", [lambda g: 0 * g, lambda g: None], ids=["zero", "missing"]
)
def test_gradients_alone(change):
    right = accused("Conv2d", CONV, (SMALL,), conv)
    parameters = {
        **right.candidate.parameters,
        "weight": change(right.candidate.parameters["weight"]),
    }
    found = explain(
        replace(right, candidate=replace(right.candidate, parameters=parameters)),
        backends.get("torch"),
    )
    known(found, "weight without a gradient")


@pytest.mark.parametrize("backend", ["chainer", "jax"])
def test_variants_run_on_every_backend(backend):
    found = explained(
        "LayerNorm",
        {"normalized_shape": 4},
        (TOKENS,),
        partial(layer_norm, eps=1e-6),
        state=AFFINE,
        backend=backend,
    )
    known(found, "eps=1e-06")


def test_losses_of_the_vocabulary():
    logits, labels = numbers(6, 4), np.array([0, 3, 2, 2, 1, 1])

    def summed(w, z, t):
        return F.cross_entropy(z, t, reduction="sum")

    known(
        explained("cross_entropy", {}, (logits, labels), summed), "sum instead of mean"
    )


# Blocks of classes of their own
# -----------------------------------------------------------------------------


def test_a_far_guess_is_not_printed_as_a_near_one():
    def made(w, x):
        y = linear(w, x)
        return (y * y + 0.3).sqrt() - 0.1 * y * y

    found = explained(
        "Linear", {"in_features": 4, "out_features": 4}, (FLAT[:, :4],), made
    )
    assert found is None or "nearest" not in str(found)
