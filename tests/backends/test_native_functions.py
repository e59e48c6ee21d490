"""Calls of the frameworks' own functions are seen as calls of the functions of `nn`."""

import importlib
import threading

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from jax.nn import softmax as from_import

from deliralike import backends, nest
from deliralike.backends import native_calls
from deliralike.backends.chainer.arrays import chainer

chainer_relu = chainer.functions.relu

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(0.2, 2.0, size=shape)


def whole(below, *shape):
    return RNG.integers(0, below, size=shape)


class Empty:
    """A network without blocks, for a hook that wants one."""

    def named_blocks(self):
        yield "", self


def natively(backend, values):
    """A nest with arrays of a backend in the place of NumPy arrays."""
    return nest.map(
        lambda leaf: backend.array(leaf) if isinstance(leaf, np.ndarray) else leaf, values
    )


def followed(backend, function, args, kwargs):
    """The neutral calls of a function that is called natively: name, arguments, result."""
    calls = []

    def around(name, call, args, kwargs):
        result = call(*args, **kwargs)
        calls.append((name, backend.to_numpy(args), backend.to_numpy(result)))
        return result

    with backend.native_functions_called_through(Empty(), around):
        result = function(*args, **kwargs)
    return calls, result


X = array(2, 3, 4)
PICTURE = array(2, 4, 6, 7)
LAST = array(2, 6, 7, 4)
LABELS = whole(5, 6)
SCORES = array(6, 5)


def method(name):
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def of(module, name):
    """A function that is looked up when it is called, as code does."""
    return lambda *args, **kwargs: getattr(importlib.import_module(module), name)(*args, **kwargs)


F, T = "torch.nn.functional", "torch"
N, JN, L, X_, OP = "jax.nn", "jax.numpy", "jax.lax", "flax.nnx", "optax"
C = "chainer.functions"
HEADS = [array(2, 5, 3, 4) for _ in range(3)]

# The neutral name, the framework, the function, its arguments
CASES = [
    ("relu", "torch", of(F, "relu"), (X,)),
    ("relu", "torch", of(F, "relu"), (X,), {"inplace": False}),
    ("relu", "torch", of(T, "relu"), (X,)),
    ("relu", "torch", method("relu"), (X,)),
    ("relu6", "torch", of(F, "relu6"), (5 * X,)),
    ("silu", "torch", of(F, "silu"), (X,)),
    ("hardsigmoid", "torch", of(F, "hardsigmoid"), (X,)),
    ("hardswish", "torch", of(F, "hardswish"), (X,)),
    ("sigmoid", "torch", of(T, "sigmoid"), (X,)),
    ("sigmoid", "torch", method("sigmoid"), (X,)),
    ("tanh", "torch", of(T, "tanh"), (X,)),
    ("softplus", "torch", of(F, "softplus"), (X,)),
    ("leaky_relu", "torch", of(F, "leaky_relu"), (X, 0.3)),
    ("leaky_relu", "torch", of(F, "leaky_relu"), (X,), {"negative_slope": 0.3}),
    ("elu", "torch", of(F, "elu"), (X,), {"alpha": 0.5}),
    ("gelu", "torch", of(F, "gelu"), (X,)),
    ("gelu", "torch", of(F, "gelu"), (X,), {"approximate": "tanh"}),
    ("prelu", "torch", of(F, "prelu"), (X, array(3))),
    ("softmax", "torch", of(F, "softmax"), (X,), {"dim": 1}),
    ("softmax", "torch", of(T, "softmax"), (X, 0)),
    ("softmax", "torch", method("softmax"), (X, -1)),
    ("log_softmax", "torch", method("log_softmax"), (X, 1)),
    ("linear", "torch", of(F, "linear"), (X, array(5, 4), array(5))),
    ("layer_norm", "torch", of(F, "layer_norm"), (X, (4,), array(4), array(4), 0.1)),
    ("group_norm", "torch", of(F, "group_norm"), (PICTURE, 2), {"eps": 0.1}),
    ("batch_norm", "torch", of(F, "batch_norm"), (PICTURE, array(4), positive(4)), {"eps": 0.1}),
    ("normalize", "torch", of(F, "normalize"), (X,), {"dim": 2}),
    ("conv", "torch", of(F, "conv2d"), (PICTURE, array(6, 2, 3, 3)), {"groups": 2, "padding": 1}),
    ("conv", "torch", of(F, "conv1d"), (X, array(5, 3, 2), array(5), 2)),
    ("conv_transpose", "torch", of(F, "conv_transpose2d"), (PICTURE, array(4, 5, 2, 2), None, 2)),
    ("max_pool", "torch", of(F, "max_pool2d"), (PICTURE, 3, 2, 1), {"ceil_mode": True}),
    ("max_pool", "torch", of(F, "max_pool1d"), (X, 2)),
    ("avg_pool", "torch", of(F, "avg_pool2d"), (PICTURE, 3), {"count_include_pad": False}),
    ("adaptive_avg_pool", "torch", of(F, "adaptive_avg_pool2d"), (PICTURE, (2, 3))),
    ("adaptive_max_pool", "torch", of(F, "adaptive_max_pool2d"), (PICTURE, 1)),
    ("interpolate", "torch", of(F, "interpolate"), (PICTURE,), {"scale_factor": 2}),
    (
        "interpolate",
        "torch",
        of(F, "interpolate"),
        (PICTURE, (9, 8)),
        {"mode": "bilinear", "align_corners": True},
    ),
    ("pixel_shuffle", "torch", of(F, "pixel_shuffle"), (PICTURE, 2)),
    ("pad", "torch", of(F, "pad"), (PICTURE, (1, 2, 3, 0)), {"value": 2.0}),
    ("embedding", "torch", of(F, "embedding"), (LABELS, array(5, 3))),
    ("attention", "torch", of(F, "scaled_dot_product_attention"), HEADS, {"is_causal": True}),
    ("attention", "torch", of(F, "scaled_dot_product_attention"), HEADS, {"scale": 0.3}),
    (
        "attention",
        "torch",
        of(F, "scaled_dot_product_attention"),
        (*HEADS, np.tril(np.ones((3, 3), bool))),
    ),
    ("cross_entropy", "torch", of(F, "cross_entropy"), (SCORES, LABELS)),
    (
        "cross_entropy",
        "torch",
        of(F, "cross_entropy"),
        (SCORES, LABELS, positive(5)),
        {"ignore_index": 2, "label_smoothing": 0.1, "reduction": "sum"},
    ),
    (
        "bce_with_logits",
        "torch",
        of(F, "binary_cross_entropy_with_logits"),
        (X, positive(2, 3, 4)),
        {"pos_weight": positive(4)},
    ),
    ("mse_loss", "torch", of(F, "mse_loss"), (X, X[::-1].copy())),
    ("l1_loss", "torch", of(F, "l1_loss"), (X, X[::-1].copy()), {"reduction": "sum"}),
    *((name, "torch", of(T, name), (positive(3, 4),)) for name in ("exp", "log", "sqrt", "erf")),
    *((name, "torch", method(name), (X,)) for name in ("sin", "cos", "abs", "tanh")),
    ("clamp", "torch", of(T, "clamp"), (X,), {"min": -0.5, "max": 0.5}),
    ("where", "torch", of(T, "where"), (X > 0, X, 2 * X)),
    ("where", "torch", method("where"), (X, X > 0, 2 * X)),
    ("sum", "torch", method("sum"), (X,)),
    ("mean", "torch", method("mean"), (X, (0, 2), True)),
    ("max_along", "torch", method("max"), (X, 1)),
    ("max_along", "torch", of(T, "amax"), (X, -1, True)),
    ("var", "torch", method("var"), (X, 1)),
    ("var", "torch", of(T, "var"), (X, (1, 2)), {"unbiased": False}),
    ("matmul", "torch", of(T, "bmm"), (X, array(2, 4, 5))),
    ("matmul", "torch", lambda x, y: x @ y, (X, array(4, 5))),
    ("matmul", "torch", of(T, "einsum"), ("bij,jk->bik", X, array(4, 5))),
    ("matmul", "torch", of(T, "einsum"), ("bqhd,bkhd->bhqk", HEADS[0], array(2, 6, 3, 4))),
    ("matmul", "torch", of(T, "einsum"), ("bhqk,bkhd->bqhd", array(2, 3, 6, 5), HEADS[0])),
    ("einsum", "torch", of(T, "einsum"), ("bij,bij->b", X, X)),
    ("concatenate", "torch", of(T, "cat"), ([X, X], -1)),
    ("stack", "torch", of(T, "stack"), ([X, X], 1)),
    ("flatten", "torch", method("flatten"), (X, 1)),
    ("reshape", "torch", method("view"), (X, 2, -1)),
    ("reshape", "torch", of(T, "reshape"), (X, (6, 4))),
    ("permute", "torch", method("permute"), (X, 2, 0, 1)),
    ("transpose", "torch", method("transpose"), (X, 1, 2)),
    ("squeeze", "torch", method("squeeze"), (X[:, :1], 1)),
    ("expand_dims", "torch", method("unsqueeze"), (X, 1)),
    ("flip", "torch", of(T, "flip"), (X, (1,))),
    ("roll", "torch", of(T, "roll"), (X, 1, 2)),
    ("take_along", "torch", of(T, "gather"), (X, 1, whole(3, 2, 2, 4))),
    ("take", "torch", method("index_select"), (X, 1, whole(3, 5))),
    ("stop_gradient", "torch", method("detach"), (X,)),
    *(
        (name, "jax", of(N, name), (3 * X,))
        for name in ("relu", "relu6", "silu", "sigmoid", "tanh")
    ),
    *((name, "jax", of(X_, name), (X,)) for name in ("relu", "silu", "tanh", "softplus")),
    ("silu", "jax", of(N, "swish"), (X,)),
    ("hardsigmoid", "jax", of(N, "hard_sigmoid"), (3 * X,)),
    ("hardswish", "jax", of(X_, "hard_swish"), (3 * X,)),
    ("leaky_relu", "jax", of(N, "leaky_relu"), (X,), {"negative_slope": 0.2}),
    ("elu", "jax", of(N, "elu"), (X, 0.5)),
    ("gelu", "jax", of(N, "gelu"), (X,)),
    ("gelu", "jax", of(X_, "gelu"), (X,), {"approximate": False}),
    ("softmax", "jax", of(N, "softmax"), (X,)),
    ("softmax", "jax", of(X_, "softmax"), (X,), {"axis": 0}),
    ("log_softmax", "jax", of(N, "log_softmax"), (X, 1)),
    ("attention", "jax", of(N, "dot_product_attention"), HEADS, {"is_causal": True}),
    ("attention", "jax", of(X_, "dot_product_attention"), HEADS, {"is_causal": True}),
    ("attention", "jax", of(N, "dot_product_attention"), HEADS, {"scale": 0.3}),
    (
        "attention",
        "jax",
        of(X_, "dot_product_attention"),
        HEADS,
        {"mask": np.tril(np.ones((1, 1, 5, 5), bool))},
    ),
    ("max_pool", "jax", of(X_, "max_pool"), (LAST, (3, 2)), {"strides": (2, 2)}),
    (
        "max_pool",
        "jax",
        of(X_, "max_pool"),
        (LAST, (3, 3)),
        {"strides": (1, 1), "padding": "SAME"},
    ),
    (
        "avg_pool",
        "jax",
        of(X_, "avg_pool"),
        (LAST, (3, 3)),
        {"padding": ((1, 1), (1, 1)), "count_include_pad": False},
    ),
    ("interpolate", "jax", of("jax.image", "resize"), (LAST, (2, 12, 14, 4), "nearest")),
    ("interpolate", "jax", of("jax.image", "resize"), (LAST, (2, 9, 14, 4), "bilinear")),
    (
        "conv",
        "jax",
        of(L, "conv_general_dilated"),
        (LAST, array(3, 3, 2, 6), (2, 2), ((1, 1), (1, 1))),
        {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": 2},
    ),
    (
        "conv",
        "jax",
        of(L, "conv_general_dilated"),
        (PICTURE, array(5, 4, 3, 3), (1, 1), "SAME"),
        {"rhs_dilation": (2, 1)},
    ),
    (
        "cross_entropy",
        "jax",
        of(OP, "softmax_cross_entropy_with_integer_labels"),
        (SCORES, LABELS),
    ),
    (
        "cross_entropy",
        "jax",
        of(OP, "softmax_cross_entropy_with_integer_labels"),
        (LAST, whole(4, 2, 6, 7)),
    ),
    (
        "bce_with_logits",
        "jax",
        of(OP, "sigmoid_binary_cross_entropy"),
        (X, positive(2, 3, 4)),
    ),
    ("mse_loss", "jax", of(OP, "squared_error"), (X, X[::-1].copy())),
    *((name, "jax", of(JN, name), (positive(3, 4),)) for name in ("exp", "log", "sqrt")),
    *((name, "jax", of(JN, name), (X,)) for name in ("sin", "cos", "abs", "tanh")),
    ("erf", "jax", of("jax.scipy.special", "erf"), (X,)),
    ("clamp", "jax", of(JN, "clip"), (X, -0.5, 0.5)),
    ("where", "jax", of(JN, "where"), (X > 0, X, 2 * X)),
    ("sum", "jax", of(JN, "sum"), (X,), {"axis": (0, 2)}),
    ("mean", "jax", method("mean"), (X, -1)),
    ("max_along", "jax", of(JN, "max"), (X,), {"axis": 1, "keepdims": True}),
    ("var", "jax", method("var"), (X,), {"axis": 1, "ddof": 1}),
    ("matmul", "jax", of(JN, "matmul"), (X, array(4, 5))),
    ("matmul", "jax", lambda x, y: x @ y, (X, array(4, 5))),
    ("matmul", "jax", of(JN, "dot"), (X, array(4, 5))),
    ("matmul", "jax", of(JN, "einsum"), ("bij,jk->bik", X, array(4, 5))),
    ("matmul", "jax", of(JN, "einsum"), ("bqhd,bkhd->bhqk", HEADS[0], array(2, 6, 3, 4))),
    ("matmul", "jax", of(JN, "einsum"), ("bhqk,bkhd->bqhd", array(2, 3, 6, 5), HEADS[0])),
    ("einsum", "jax", of(JN, "einsum"), ("bij,bij->b", X, X)),
    ("concatenate", "jax", of(JN, "concatenate"), ([X, X],), {"axis": -1}),
    ("stack", "jax", of(JN, "stack"), ([X, X], 1)),
    ("reshape", "jax", of(JN, "reshape"), (X, (2, -1))),
    ("reshape", "jax", method("reshape"), (X, 2, -1)),
    ("permute", "jax", of(JN, "transpose"), (X, (2, 0, 1))),
    ("permute", "jax", method("transpose"), (X, 2, 0, 1)),
    ("transpose", "jax", of(JN, "swapaxes"), (X, 1, 2)),
    ("squeeze", "jax", of(JN, "squeeze"), (X[:, :1], 1)),
    ("expand_dims", "jax", of(JN, "expand_dims"), (X, 1)),
    ("flip", "jax", of(JN, "flip"), (X, 1)),
    ("roll", "jax", of(JN, "roll"), (X, 1, 2)),
    ("pad", "jax", of(JN, "pad"), (X, ((0, 0), (1, 2), (0, 1)))),
    ("take", "jax", of(JN, "take"), (X, whole(3, 5)), {"axis": 1}),
    ("broadcast_to", "jax", of(JN, "broadcast_to"), (X[:, :1], (2, 3, 4))),
    ("stop_gradient", "jax", of(L, "stop_gradient"), (X,)),
    *((name, "chainer", of(C, name), (3 * X,)) for name in ("relu", "relu6", "sigmoid", "tanh")),
    *((name, "chainer", of(C, name), (positive(3, 4),)) for name in ("exp", "log", "sqrt")),
    *((name, "chainer", of(C, name), (X,)) for name in ("sin", "cos", "erf", "softplus")),
    ("abs", "chainer", of(C, "absolute"), (X,)),
    ("leaky_relu", "chainer", of(C, "leaky_relu"), (X,)),
    ("elu", "chainer", of(C, "elu"), (X,), {"alpha": 0.5}),
    ("clamp", "chainer", of(C, "clip"), (X, -0.5, 0.5)),
    ("relu6", "chainer", of(C, "clipped_relu"), (X, 6.0)),
    ("prelu", "chainer", of(C, "prelu"), (X, array(3))),
    ("softmax", "chainer", of(C, "softmax"), (X,)),
    ("log_softmax", "chainer", of(C, "log_softmax"), (X,), {"axis": 2}),
    ("where", "chainer", of(C, "where"), (X > 0, X, 2 * X)),
    ("sum", "chainer", of(C, "sum"), (X,), {"axis": (0, 2)}),
    ("mean", "chainer", of(C, "mean"), (X,), {"axis": 1}),
    ("max_along", "chainer", of(C, "max"), (X,), {"axis": 1, "keepdims": True}),
    ("matmul", "chainer", of(C, "matmul"), (X, array(2, 4, 5))),
    ("matmul", "chainer", of(C, "einsum"), ("bij,jk->bik", X, array(4, 5))),
    ("matmul", "chainer", of(C, "einsum"), ("bqhd,bkhd->bhqk", HEADS[0], array(2, 6, 3, 4))),
    ("matmul", "chainer", of(C, "einsum"), ("bhqk,bkhd->bqhd", array(2, 3, 6, 5), HEADS[0])),
    ("einsum", "chainer", of(C, "einsum"), ("bij,bij->b", X, X)),
    ("linear", "chainer", of(C, "linear"), (X, array(5, 4), array(5)), {"n_batch_axes": 2}),
    ("conv", "chainer", of(C, "convolution_2d"), (PICTURE, array(5, 4, 3, 3), None, 2, 1)),
    (
        "conv_transpose",
        "chainer",
        of(C, "deconvolution_2d"),
        (PICTURE, array(4, 5, 2, 2)),
        {"stride": 2},
    ),
    ("max_pool", "chainer", of(C, "max_pooling_2d"), (PICTURE, 3, 2)),
    ("max_pool", "chainer", of(C, "max_pooling_2d"), (PICTURE, 2), {"cover_all": False}),
    ("avg_pool", "chainer", of(C, "average_pooling_2d"), (PICTURE, 3, 2, 1)),
    (
        "batch_norm",
        "chainer",
        of(C, "fixed_batch_normalization"),
        (PICTURE, array(4), array(4), array(4), positive(4)),
    ),
    ("layer_norm", "chainer", of(C, "layer_normalization"), (SCORES, array(5), array(5), 0.1)),
    ("group_norm", "chainer", of(C, "group_normalization"), (PICTURE, 2, array(4), array(4))),
    ("embedding", "chainer", of(C, "embed_id"), (LABELS, array(5, 3))),
    ("interpolate", "chainer", of(C, "resize_images"), (PICTURE, (9, 8))),
    ("cross_entropy", "chainer", of(C, "softmax_cross_entropy"), (SCORES, LABELS)),
    (
        "cross_entropy",
        "chainer",
        of(C, "softmax_cross_entropy"),
        (SCORES, LABELS),
        {"reduce": "no", "ignore_label": 2},
    ),
    ("mse_loss", "chainer", of(C, "mean_squared_error"), (X, 2 * X)),
    ("l1_loss", "chainer", of(C, "mean_absolute_error"), (X, 2 * X)),
    ("concatenate", "chainer", of(C, "concat"), ([X, X],)),
    ("stack", "chainer", of(C, "stack"), ([X, X],), {"axis": 1}),
    ("reshape", "chainer", of(C, "reshape"), (X, (2, -1))),
    ("reshape", "chainer", of(C, "flatten"), (X,)),
    ("permute", "chainer", of(C, "transpose"), (X,), {"axes": (2, 0, 1)}),
    ("transpose", "chainer", of(C, "swapaxes"), (X, 1, 2)),
    ("squeeze", "chainer", of(C, "squeeze"), (X[:, :1], 1)),
    ("expand_dims", "chainer", of(C, "expand_dims"), (X, 1)),
    ("flip", "chainer", of(C, "flip"), (X, 1)),
    ("pad", "chainer", of(C, "pad"), (X, ((0, 0), (1, 2), (0, 1)), "constant")),
    ("broadcast_to", "chainer", of(C, "broadcast_to"), (X[:, :1], (2, 3, 4))),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{n} {c[1]} {c[0]}" for n, c in enumerate(CASES)])
def test_a_neutral_call_gives_what_the_function_of_nn_gives(case):
    """The functions of `nn` are those of another framework."""
    wanted, name, function, args, *named = case
    backend = backends.get(name)
    own = natively(backend, (args, named[0] if named else {}))
    calls, result = followed(backend, function, *own)
    plain = nest.leaves(backend.to_numpy(function(*own[0], **own[1])))
    for left, right in zip(plain, nest.leaves(backend.to_numpy(result)), strict=True):
        np.testing.assert_array_equal(left, right)
    assert [call[0] for call in calls] == [wanted]
    other = backends.get("chainer" if name == "torch" else "torch")
    found = other.to_numpy(getattr(other.nn, wanted)(*natively(other, calls[0][1])))
    pairs = zip(nest.leaves(found), nest.leaves(calls[0][2]), strict=True)
    for left, right in (pair for pair in pairs if pair[0] is not None):
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-6)


# Networks, and what is left as it was
# -----------------------------------------------------------------------------


def chainer_net(relu):
    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.fc = chainer.links.Linear(4, 3)

        def forward(self, x):
            return relu(self.fc(x))

    return Net()


def jax_net(relu, attribute):
    class Net(nnx.Module):
        def __init__(self):
            self.fc = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
            self.act = attribute

        def __call__(self, x):
            return self.act(relu(self.fc(x)))

    return Net()


def names_in(network, x, calls):
    """A network's loss and gradients, with its calls of native functions noted."""
    backend = network.backend

    def around(name, call, args, kwargs):
        calls.append(name)
        return call(*args, **kwargs)

    def loss(network, x):
        with backend.native_functions_called_through(network, around):
            y = network(x)
        return backend.nn.sum(y * y)

    return backend.gradients(loss, network, x)


def plain_loss(network, x):
    y = network(x)
    return network.backend.nn.sum(y * y)


@pytest.mark.parametrize("where", ["a module", "a closure", "an attribute", "a list"])
def test_functions_are_followed_wherever_code_holds_them(where):
    nets = {
        "a module": lambda: ModuleNet(),
        "a closure": lambda: jax_net(from_import, nnx.tanh),
        "an attribute": lambda: jax_net(nnx.relu, from_import),
        "a list": lambda: nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), from_import),
    }
    calls = []
    network = backends.get("jax").wrap(nets[where]())
    names_in(network, array(2, 4), calls)
    assert "softmax" in calls


class ModuleNet(nnx.Module):
    """Calls a function that its module has imported by name."""

    def __init__(self):
        self.fc = nnx.Linear(4, 3, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return from_import(self.fc(x))


def test_functions_that_chainer_code_imported_by_name_are_followed():
    calls = []
    network = backends.get("chainer").wrap(chainer_net(chainer_relu))
    names_in(network, array(2, 4).astype("f"), calls)
    assert calls == ["relu"]


def networks():
    """A native network of each framework that calls functions in several ways."""
    return [torch_net(), ModuleNet(), chainer_net(chainer_relu)]


def torch_net():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 3)

        def forward(self, x):
            return torch.nn.functional.relu(self.fc(x), inplace=True).softmax(-1)

    return Net()


@pytest.mark.parametrize("net", networks(), ids=["torch", "jax", "chainer"])
def test_gradients_are_those_without_a_hook(net):
    network, x = backends.of(net).wrap(net), array(2, 4).astype("f")
    calls = []
    plain, found = (
        network.backend.gradients(plain_loss, network, x),
        names_in(network, x, calls),
    )
    assert calls
    assert found.loss == pytest.approx(plain.loss, rel=1e-6)
    for name, value in plain.parameters.items():
        np.testing.assert_allclose(found.parameters[name], value, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.inputs[0], plain.inputs[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("net", networks(), ids=["torch", "jax", "chainer"])
def test_everything_is_as_before_after_an_error(net):
    network, x = backends.of(net).wrap(net), array(2, 4).astype("f")
    spaces = [jax.nn, jax.numpy, jax.lax, nnx, chainer.functions, torch.nn.functional]
    before = [dict(vars(space)) for space in (*spaces, jax.core.Tracer, chainer.Variable)]
    own = dict(globals())

    def raising(name, call, args, kwargs):
        raise ZeroDivisionError("planted")

    def loss(network, x):
        with network.backend.native_functions_called_through(network, raising):
            return network.backend.nn.sum(network(x))

    with pytest.raises(ZeroDivisionError, match="planted"):
        network.backend.gradients(loss, network, x)
    after = [dict(vars(space)) for space in (*spaces, jax.core.Tracer, chainer.Variable)]
    for left, right in zip([*before, own], [*after, dict(globals())], strict=True):
        assert {key: id(value) for key, value in left.items()} == {
            key: id(value) for key, value in right.items()
        }
    calls = []
    names_in(network, x, calls)
    assert calls


@pytest.mark.parametrize("name", ["torch", "jax", "chainer"])
def test_other_threads_are_not_followed(name):
    function = {"torch": of(F, "relu"), "jax": of(N, "relu"), "chainer": of(C, "relu")}[name]
    backend, calls = backends.get(name), []
    x = backend.array(array(3, 2))

    def around(name, call, args, kwargs):
        calls.append(name)
        return call(*args, **kwargs)

    with backend.native_functions_called_through(Empty(), around):
        thread = threading.Thread(target=lambda: function(x))
        thread.start()
        thread.join()
        assert calls == []
        function(x)
    function(x)
    assert calls == ["relu"]


@pytest.mark.parametrize("how", ["vmap", "jit", "scan", "checkpoint", "grad"])
def test_jax_programs_within_the_network_are_left_alone(how):
    """What is traced apart must not be carried out of it."""
    ways = {
        "vmap": lambda f, x: jax.vmap(f)(x),
        "jit": lambda f, x: jax.jit(f)(x),
        "scan": lambda f, x: jax.lax.scan(lambda carry, row: (carry, f(row)), 0.0, x)[1],
        "checkpoint": lambda f, x: jax.checkpoint(f)(x),
        "grad": lambda f, x: jax.grad(lambda y: jax.numpy.sum(f(y)))(x),
    }
    kept = []

    def around(name, call, args, kwargs):
        result = call(*args, **kwargs)
        kept.append((name, result))
        return result

    def run(x):
        with backends.get("jax").native_functions_called_through(Empty(), around):
            y = jax.nn.tanh(ways[how](jax.nn.relu, x))
        return jax.numpy.sum(y), [result for _, result in kept]

    x = jax.numpy.asarray(array(3, 2))
    (loss, seen), _ = jax.jit(jax.value_and_grad(run, has_aux=True))(x)
    assert [name for name, _ in kept] == ["tanh"]
    np.testing.assert_allclose(loss, np.sum(seen[0]), rtol=1e-6)


def test_vmap_of_torch_is_left_alone():
    calls = []

    def around(name, call, args, kwargs):
        calls.append(name)
        return call(*args, **kwargs)

    x = torch.randn(3, 4)
    with backends.get("torch").native_functions_called_through(Empty(), around):
        y = torch.func.vmap(torch.relu)(x)
        torch.relu(x)
    assert calls == ["relu"]
    torch.testing.assert_close(y, x.clamp_min(0.0))


def test_what_is_written_in_place_is_seen_by_code_that_goes_on_with_it():
    x = torch.tensor([-1.0, 2.0])

    def around(name, call, args, kwargs):
        return call(args[0] + 1.0, *args[1:]) * 10.0

    with backends.get("torch").native_functions_called_through(Empty(), around):
        y = torch.nn.functional.relu(x, inplace=True)
    assert y is x
    assert x.tolist() == [0.0, 30.0]


def test_a_function_that_nn_does_not_have_comes_by_its_own_name():
    backend = backends.get("torch")
    (call,), _ = followed(backend, torch.logsumexp, (backend.array(X), 1), {})
    assert call[0] == "logsumexp"
    assert len(call[1]) == 1
    (call,), _ = followed(
        backend, torch.nn.functional.gelu, (backend.array(X),), {"approximate": "none"}
    )
    assert call[0] == "gelu"


def test_settings_that_nn_does_not_have_are_not_taken_for_others():
    backend = backends.get("torch")
    (call,), _ = followed(backend, torch.nn.functional.softplus, (backend.array(X),), {"beta": 2.0})
    assert call[0] == "torch.nn.functional.softplus"
    scores = backend.array(SCORES)
    (call,), _ = followed(
        backend, torch.nn.functional.cross_entropy, (scores, scores.softmax(1)), {}
    )
    assert call[0] == "torch.nn.functional.cross_entropy"


def test_single_layers_of_a_framework_are_no_code_of_a_user():
    calls = []
    network = backends.get("jax").wrap(nnx.Linear(4, 3, rngs=nnx.Rngs(0)))
    names_in(network, array(2, 4), calls)
    assert calls == []


def test_padding_words_are_those_of_tensorflow():
    assert native_calls.padding_of("SAME", (5,), (3,), (2,)) == [(1, 1)]
    assert native_calls.padding_of("SAME", (6,), (3,), (2,)) == [(0, 1)]
    assert native_calls.padding_of("VALID", (6,), (3,), (2,)) == [(0, 0)]


def test_the_class_of_arrays_is_found_in_a_trace():
    from deliralike.backends.jax import native_functions

    native_functions._array_classes.cache_clear()
    found = []
    jax.jit(lambda x: found.append(native_functions._array_classes()) or x)(1.0)
    assert type(jax.numpy.zeros(())) in found[0]
