"""Explanations of layers and functions: each wrong convention is written anew in NumPy."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from deliralike import backends
from deliralike.conformance.explain import explain
from deliralike.conformance.masks import Masks
from tests.conformance.accusing import accused, explained, numbers


def known(explanation, *words):
    """Whether the cause was found and says what is wanted."""
    assert explanation is not None
    assert explanation.known, str(explanation)
    assert explanation.match <= 1e-10
    assert all(word in explanation.cause for word in words), explanation.cause


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
    mean, count = x.mean(axes, keepdims=True), np.prod([x.shape[a] for a in axes])
    var = ((x - mean) ** 2).sum(axes, keepdims=True) / (count - ddof)
    if constant:
        mean, var = mean.real, var.real
    if not batch:
        mean, var = column(w["running_mean"]), column(w["running_var"])
    root = np.sqrt(var) + eps if outside else np.sqrt(var + eps)
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
            lambda w, x: bn(w, x[:, ::-1]),
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


def norm(w, x, axes, shape, eps=1e-5, ddof=0, centred=True, outside=False):
    mean = x.mean(axes, keepdims=True) if centred else 0.0
    count = np.prod([x.shape[a] for a in axes])
    var = ((x - mean) ** 2).sum(axes, keepdims=True) / (count - ddof)
    y = (x - mean) / (np.sqrt(var) + eps if outside else np.sqrt(var + eps))
    return (
        y * w["weight"].reshape(shape) + w["bias"].reshape(shape)
        if "weight" in w
        else y
    )


def grouped(w, x, groups, **how):
    n, c, *size = x.shape
    y = norm({}, x.reshape(n, groups, -1), (2,), None, **how).reshape(x.shape)
    return y * w["weight"].reshape(1, c, 1, 1) + w["bias"].reshape(1, c, 1, 1)


TOKENS = numbers(2, 5, 4) + 0.5
AFFINE = {"weight": numbers(4, seed=1), "bias": numbers(4, seed=2)}


LAYER = partial(norm, axes=(2,), shape=(4,))


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
            "LayerNorm", settings, (TOKENS,), partial(LAYER, **how), state=AFFINE
        ),
        words,
    )


@pytest.mark.parametrize("groups", [4, 1])
def test_group_norm(groups):
    settings = {"num_groups": 2, "num_channels": 4}
    found = explained(
        "GroupNorm", settings, (IMAGES,), partial(grouped, groups=groups), state=AFFINE
    )
    known(found, f"groups={groups} instead of 2")


def test_instance_norm():
    def by_batch(w, x):
        return norm({}, x, (0, 2, 3), None)

    known(
        explained("InstanceNorm2d", {"num_features": 4}, (IMAGES,), by_batch),
        "batch statistics",
    )


# Convolution
# -----------------------------------------------------------------------------


def windows(x, kernel, stride, dilation=(1, 1)):
    """Each window of a padded image: (n, c, oh, ow, kh, kw)."""
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation
    oh = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1
    ow = (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    out = np.empty((*x.shape[:2], oh, ow, kh, kw), x.dtype)
    for i, j in product(range(kh), range(kw)):
        out[..., i, j] = x[
            :,
            :,
            i * dh : i * dh + sh * (oh - 1) + 1 : sh,
            j * dw : j * dw + sw * (ow - 1) + 1 : sw,
        ]
    return out


def convolved(x, weight, pads, stride=1, dilation=1, groups=1, mode="constant"):
    x = np.pad(x, ((0, 0), (0, 0), *pads), mode=mode)
    seen = windows(x, weight.shape[2:], (stride, stride), (dilation, dilation))
    each, out = x.shape[1] // groups, weight.shape[0] // groups
    parts = [
        np.einsum(
            "nchwij,ocij->nohw",
            seen[:, g * each : (g + 1) * each],
            weight[g * out : (g + 1) * out],
        )
        for g in range(groups)
    ]
    return np.concatenate(parts, 1)


def conv(w, x, pads=((1, 1), (1, 1)), change=lambda weight: weight, **how):
    return convolved(x, change(w["weight"]), pads, **how) + w["bias"].reshape(
        1, -1, 1, 1
    )


SMALL = numbers(2, 3, 6, 6, seed=3)
CONV = {"in_channels": 3, "out_channels": 3, "kernel_size": 3, "padding": 1}


@pytest.mark.parametrize(
    ("settings", "candidate", "words"),
    [
        (
            CONV | {"stride": 2},
            partial(conv, pads=((0, 1), (0, 1)), stride=2),
            ["asymmetric SAME"],
        ),
        (CONV, partial(conv, change=lambda w: w[:, :, ::-1, ::-1]), ["kernel flipped"]),
        (
            CONV,
            partial(conv, change=lambda w: w.transpose(1, 0, 2, 3)),
            ["axes permuted to (1, 0, 2, 3)"],
        ),
        (CONV, partial(conv, mode="reflect"), ["reflect padding"]),
        (CONV, partial(conv, stride=2), ["stride=2 instead of 1"]),
        (
            CONV,
            lambda w, x: conv(w, x) - w["bias"].reshape(1, -1, 1, 1),
            ["bias missing"],
        ),
        (
            CONV,
            lambda w, x: conv(w, x) + w["bias"].reshape(1, -1, 1, 1),
            ["scale of bias 2"],
        ),
        (CONV, lambda w, x: conv(w, x[:, ::-1]), ["RGB and BGR"]),
        (
            CONV,
            lambda w, x: conv(w, x / 255.0),
            ["scale of input (or weight) 0.0039"],
        ),
        (
            CONV,
            lambda w, x: conv(w, x) * (conv(w, x) > 0),
            ["output goes through relu"],
        ),
    ],
)
def test_convolution(settings, candidate, words):
    x = SMALL if settings["in_channels"] == 3 else numbers(2, 4, 5, 5, seed=4)
    known(explained("Conv2d", settings, (x,), candidate), *words)


def transposed(x, weight, stride, padding, extra, flip=False):
    n, c, h, w = x.shape
    weight = weight[:, :, ::-1, ::-1] if flip else weight
    k = weight.shape[2]
    full = np.zeros(
        (
            n,
            weight.shape[1],
            (h - 1) * stride + k + extra,
            (w - 1) * stride + k + extra,
        ),
        np.result_type(x, weight),
    )
    for i, j in product(range(h), range(w)):
        full[:, :, i * stride : i * stride + k, j * stride : j * stride + k] += (
            np.einsum("nc,coij->noij", x[:, :, i, j], weight)
        )
    return full


def test_transposed_convolution():
    x, settings = (
        numbers(2, 2, 3, 3),
        {
            "in_channels": 2,
            "out_channels": 3,
            "kernel_size": 3,
            "stride": 2,
            "padding": 1,
            "output_padding": 1,
        },
    )

    def cut(w, x, flip=False):
        y = transposed(x, w["weight"], 2, 1, 1, flip)[:, :, 1:7, 1:7]
        return y + w["bias"].reshape(1, -1, 1, 1)

    assert explained("ConvTranspose2d", settings, (x,), cut) is None
    known(
        explained("ConvTranspose2d", settings, (x,), partial(cut, flip=True)),
        "not flipped",
    )


# Pooling and resizing
# -----------------------------------------------------------------------------


def pooled(w, x, pads, fill=-np.inf, reduce=np.max, kernel=3, stride=2):
    x = np.pad(x, ((0, 0), (0, 0), *pads), constant_values=fill)
    return reduce(windows(x, (kernel, kernel), (stride, stride)), (4, 5))


def average_without_padding(w, x):
    total = pooled(w, x, ((1, 1), (1, 1)), 0.0, np.sum)
    return total / pooled(w, np.ones(x.shape), ((1, 1), (1, 1)), 0.0, np.sum)


POOL = {"kernel_size": 3, "stride": 2, "padding": 1}
NEGATIVE = -np.abs(numbers(1, 2, 6, 6, seed=5)) - 0.1


ROUND = ((1, 1), (1, 1))
INCLUDED = {"count_include_pad": False}


@pytest.mark.parametrize(
    ("kind", "settings", "candidate", "words"),
    [
        ("MaxPool2d", {}, partial(pooled, pads=ROUND, fill=0.0), "padded with zeros"),
        ("MaxPool2d", {}, partial(pooled, pads=((0, 1), (0, 1))), "asymmetric SAME"),
        ("MaxPool2d", {"ceil_mode": True}, partial(pooled, pads=ROUND), "ceil"),
        ("MaxPool2d", {}, partial(pooled, pads=((1, 2), (1, 2))), "ceil"),
        ("MaxPool2d", {}, average_without_padding, "average"),
        ("AvgPool2d", {}, average_without_padding, "average excluding padding"),
        (
            "AvgPool2d",
            INCLUDED,
            lambda w, x: pooled(w, x, ROUND, 0.0, np.sum) / 9,
            "average including padding",
        ),
    ],
)
def test_pooling(kind, settings, candidate, words):
    known(explained(kind, POOL | settings, (NEGATIVE,), candidate), words)


@pytest.mark.parametrize(("reduce", "words"), [(np.max, "maximum instead of average")])
def test_adaptive_pooling(reduce, words):
    def pooled(w, x):
        return reduce(x, axis=(2, 3), keepdims=True)

    known(
        explained("AdaptiveAvgPool2d", {"output_size": 1}, (NEGATIVE,), pooled), words
    )


def resized(w, x, out, position, nearest=False, antialias=1.0):
    for axis in (2, 3):
        n = x.shape[axis]
        matrix = np.zeros((out, n))
        for o in range(out):
            p = position(o, n, out)
            if nearest:
                matrix[o, min(max(int(np.floor(p)), 0), n - 1)] = 1
            else:
                p = p if antialias > 1 else min(max(p, 0), n - 1)
                row = np.maximum(0, 1 - np.abs(np.arange(n) - p) / antialias)
                matrix[o] = row / row.sum()
        x = np.moveaxis(np.tensordot(x, matrix, (axis, 1)), -1, axis)
    return x


FIVE = numbers(1, 2, 5, 5, seed=6)


POSITIONS = {
    "align_corners=True": lambda o, n, m: o * (n - 1) / (m - 1),
    "align_corners=False": lambda o, n, m: (o + 0.5) * n / m - 0.5,
    "nearest neighbours (floor)": lambda o, n, m: o * n / m,
    "nearest-exact": lambda o, n, m: (o + 0.5) * n / m,
}
LINEAR = {"size": 8, "mode": "linear"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (LINEAR, "align_corners=True"),
        (LINEAR | {"align_corners": True}, "align_corners=False"),
        (LINEAR, "nearest neighbours (floor)"),
        ({"size": 8}, "nearest-exact"),
    ],
)
def test_resizing(settings, words):
    nearest = words.startswith("nearest")
    other = partial(resized, out=8, position=POSITIONS[words], nearest=nearest)
    known(explained("Upsample", settings, (FIVE,), other), words)


def test_resizing_with_antialiasing():
    other = partial(
        resized, position=POSITIONS["align_corners=False"], out=3, antialias=5 / 3
    )
    known(
        explained("Upsample", {"size": 3, "mode": "linear"}, (FIVE,), other),
        "antialias",
    )


# Activations
# -----------------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def clipped(x, low, high):
    return np.where(x.real < low, low, np.where(x.real > high, high, x))


def softmax(x, axis):
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


FLAT = numbers(4, 5, seed=8) * 5


@pytest.mark.parametrize(
    ("kind", "function", "words"),
    [
        ("GELU", gelu_tanh, "gelu (tanh approximation) instead of gelu"),
        ("GELU", lambda x: x * sigmoid(1.702 * x), "1.702"),
        ("GELU", lambda x: x * (x.real > 0), "relu instead of gelu"),
        (
            "LeakyReLU",
            lambda x: np.where(x.real > 0, x, 0.137 * x),
            "negative_slope=0.137",
        ),
        ("ELU", lambda x: np.where(x.real > 0, x, 0.7 * (np.exp(x) - 1)), "alpha=0.7"),
        ("SiLU", lambda x: x * sigmoid(1.3 * x), "beta=1.3"),
        ("Hardsigmoid", lambda x: clipped(0.2 * x + 0.5, 0, 1), "0.2"),
        (
            "Hardswish",
            lambda x: x * clipped(0.15 * x + 0.5, 0, 1),
            "slope=0.15 instead of 0.1666",
        ),
        ("ReLU", lambda x: x, "identity"),
        ("Tanh", sigmoid, "sigmoid instead of tanh"),
        ("SiLU", lambda x: x * np.tanh(np.log(1 + np.exp(x))), "mish"),
        (
            "leaky_relu",
            lambda x: np.where(x.real > 0, x, 0.2 * x),
            "negative_slope=0.2 instead of",
        ),
        ("Softmax", lambda x: softmax(x, 0), "over axis 0 instead of 1"),
        ("Softmax", lambda x: np.log(softmax(x, 1)), "log_softmax instead of softmax"),
    ],
)
def test_activations(kind, function, words):
    settings = {"dim": 1} if kind == "Softmax" else {}
    known(explained(kind, settings, (FLAT,), lambda w, x: function(x)), words)


def test_a_factor_of_the_output_is_named():
    found = explained("Tanh", {}, (FLAT,), lambda w, x: 6.0 * np.tanh(x))
    known(found, "scale of output 6")


# Shapes, linear maps, tables, chance
# -----------------------------------------------------------------------------


def largest(x, axis):
    """The maximum by real parts, along an axis."""
    return np.take_along_axis(x, x.real.argmax(axis, keepdims=True), axis).squeeze(axis)


IMAGE, THREE = numbers(2, 3, 2, 2), numbers(2, 3, 5)


@pytest.mark.parametrize(
    ("kind", "args", "function", "words"),
    [
        (
            "concatenate",
            ([FIVE, FIVE[:, :1] * 2, FIVE * 3], 1),
            lambda xs: np.concatenate([xs[2], xs[0], xs[1]], 1),
            "order of concatenation [2, 0, 1]",
        ),
        ("flatten", (IMAGE,), lambda x: x.transpose(0, 2, 3, 1).reshape(2, -1), "NHWC"),
        (
            "flatten",
            (IMAGE,),
            lambda x: x.transpose(0, 1, 3, 2).reshape(2, -1),
            "(1, 3, 2)",
        ),
        ("mean", (THREE, (1,)), lambda x: x.sum(1), "sum instead of mean"),
        (
            "mean",
            (THREE, (1, 2)),
            lambda x: largest(x.reshape(2, 15), 1),
            "maximum instead of mean",
        ),
    ],
)
def test_shapes(kind, args, function, words):
    known(explained(kind, {}, args, lambda w, x, *rest: function(x)), words)


def test_a_factor_of_a_product_is_transposed():
    args = numbers(3, 3), numbers(3, 3, seed=1)
    known(explained("matmul", {}, args, lambda w, x, y: x @ y.T), "transposed")


def test_linear():
    def made(w, x, change=lambda weight: weight, bias=1.0):
        return x @ change(w["weight"]).T + bias * w["bias"]

    settings = {"in_features": 4, "out_features": 4}
    known(
        explained(
            "Linear", settings, (FLAT[:, :4],), partial(made, change=np.transpose)
        ),
        "transposed",
    )
    known(
        explained("Linear", settings, (FLAT[:, :4],), partial(made, bias=0.0)),
        "bias missing",
    )
    known(
        explained("Linear", settings, (FLAT[:, :4],), partial(made, bias=2.0)),
        "scale of bias 2",
    )
    known(
        explained("Linear", settings, (FLAT[:, :4],), lambda w, x: np.tanh(made(w, x))),
        "output goes through tanh",
    )
    known(
        explained("Linear", settings, (FLAT[:, :4],), lambda w, x: x + 0.0),
        "does nothing",
    )


INDEX = np.array([[1, 0, 3], [0, 4, 1]])


def test_embedding():
    settings, weight = (
        {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": 0},
        numbers(5, 3),
    )

    def rows(w, index, scale=1.0, padding=None):
        found = w["weight"][index] * scale
        return (
            found
            if padding is None
            else np.where((index == padding)[..., None], found.real, found)
        )

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
    assert (
        explained(
            "MaxPool2d", POOL, (NEGATIVE,), partial(pooled, pads=((1, 1), (1, 1)))
        )
        is None
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda g: 0 * g, "zero"),
        (lambda g: None, "missing"),
    ],
)
def test_gradients_alone(change, word):
    right = accused("Conv2d", CONV, (SMALL,), conv)
    parameters = {
        **right.candidate.parameters,
        "weight": change(right.candidate.parameters["weight"]),
    }
    found = explain(
        replace(right, candidate=replace(right.candidate, parameters=parameters)),
        backends.get("torch"),
    )
    assert found is not None and found.known
    assert ("weight" in found.cause and word in found.cause) or (
        word in ("zero", "missing") and "without a gradient" in found.cause
    )


@pytest.mark.parametrize("backend", ["chainer", "jax"])
def test_variants_run_on_every_backend(backend):
    found = explained(
        "LayerNorm",
        {"normalized_shape": 4},
        (TOKENS,),
        partial(LAYER, eps=1e-6),
        state=AFFINE,
        backend=backend,
    )
    known(found, "eps=1e-06")


def test_losses_of_the_vocabulary():
    logits, labels = numbers(6, 4), np.array([0, 3, 2, 2, 1, 1])

    def summed(w, z, t):
        p = softmax(z, 1)
        return -sum(np.log(p[i, label]) for i, label in enumerate(t))

    known(
        explained("cross_entropy", {}, (logits, labels), summed), "sum instead of mean"
    )


# Blocks of classes of their own
# -----------------------------------------------------------------------------


def test_a_far_guess_is_not_printed_as_a_near_one():
    def made(w, x):
        y = x @ w["weight"].T + w["bias"]
        return np.sqrt(y * y + 0.3) - 0.1 * y * y

    found = explained(
        "Linear", {"in_features": 4, "out_features": 4}, (FLAT[:, :4],), made
    )
    assert found is None or "nearest" not in str(found)
