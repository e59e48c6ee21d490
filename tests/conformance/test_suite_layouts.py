"""The suite finds arithmetic that was written for one memory layout, in a backend of a stranger's
and in our own."""

import re

import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from deliralike import backends
from deliralike.conformance import suite
from deliralike.conformance.suite.layouts import LAYOUTS
from tests.conformance.stranger import BACKEND as STRANGER
from tests.conftest import BACKENDS

FUNCTIONS = type(STRANGER.nn)
LAYERS = STRANGER.nn
RIGHT = {"sum": FUNCTIONS.sum}
STRIDED = [name for name in BACKENDS if backends.get(name).strided]


def with_gradient(function, slope):
    """A function of autograd's with this gradient: ``slope(g, y, x)``."""
    node = primitive(function)
    defvjp(node, lambda y, x: lambda g: slope(g, y, x))
    return lambda self, x, *rest: node(x)


# Mistakes, each right for arrays in C order
# -----------------------------------------------------------------------------


def add_to_a_reshape(g, y, x):
    gx = g * 1.0  # lies as the gradient does, so that rows may be a copy
    rows = gx.reshape(-1)
    rows *= (1.0 - y * y).reshape(rows.shape)
    return gx


def in_the_order_of_memory(x):
    return np.exp(x.ravel(order="K")).reshape(x.shape)


def write_to_the_input(x):
    return np.tanh(x, out=x if x.flags.writeable else None)


def write_to_the_gradient(g, y, x):
    if g.ndim and g.flags.writeable:
        g *= y * (1.0 - y)
        return g
    return g * y * (1.0 - y)


def cos_without_signs(x):
    """The cosine of an array that is read by the absolute values of its strides."""
    return np.cos(
        np.flip(x, [axis for axis, stride in enumerate(x.strides) if stride < 0])
    )


def sum_of_stored_elements(self, x, dim=None, keepdim=False):
    if dim == (0, 2) and getval(x).strides[0] == 0:
        x = x[:1]
    return RIGHT["sum"](self, x, dim, keepdim)


def statistics_in_the_order_of_memory(self, x):
    values = getval(x)
    y, mean, var = self.nn.batch_norm_train(x, self.weight, self.bias, self.eps)
    rows = (
        values.ravel(order="K")
        .reshape(values.shape)
        .swapaxes(0, 1)
        .reshape(len(mean), -1)
    )
    self._update(rows.mean(1), rows.var(1), rows.shape[1])
    return y


# What is planted where, the check that finds it, and what it says.
PLANTED = {
    "adding to a reshape in a gradient": (
        (FUNCTIONS, "tanh", with_gradient(np.tanh, add_to_a_reshape)),
        "functions/tanh",
        "inputs all axes reversed, gradients all axes reversed: gradient of input 0",
    ),
    "reading in the order of memory": (
        (
            FUNCTIONS,
            "exp",
            with_gradient(in_the_order_of_memory, lambda g, y, x: g * y),
        ),
        "functions/exp",
        "inputs all axes reversed, .*: output 0",
    ),
    "writing to an input": (
        (
            FUNCTIONS,
            "tanh",
            with_gradient(write_to_the_input, lambda g, y, x: g * (1.0 - y * y)),
        ),
        "functions/tanh",
        ": input afterwards 0: at",
    ),
    "writing to a gradient": (
        (
            FUNCTIONS,
            "sigmoid",
            with_gradient(lambda x: 1 / (1 + np.exp(-x)), write_to_the_gradient),
        ),
        "functions/sigmoid",
        ": gradient that another array gets 0",
    ),
    "ignoring the signs of strides": (
        (
            FUNCTIONS,
            "cos",
            with_gradient(cos_without_signs, lambda g, y, x: -g * np.sin(x)),
        ),
        "functions/cos",
        "inputs negative strides, .*: output 0",
    ),
    "counting a broadcast element once": (
        (FUNCTIONS, "sum", sum_of_stored_elements),
        "functions/sum of two axes",
        "inputs one for all along the first axis, .*: output 0",
    ),
    "running statistics in the order of memory": (
        (LAYERS.BatchNorm2d, "forward", statistics_in_the_order_of_memory),
        "layers/BatchNorm2d",
        "inputs .*: running_mean afterwards",
    ),
}


def failure(backend, check):
    (result,) = suite.run(backend, check).results
    return result.message if result.outcome == "failed" else None


@pytest.mark.parametrize("title", PLANTED)
def test_a_mistake_about_memory_is_found(title, monkeypatch):
    (kind, name, wrong), check, words = PLANTED[title]
    with monkeypatch.context() as patch:
        patch.setattr(
            "deliralike.conformance.suite.rows.agree_in_every_layout",
            lambda *args: None,
        )
        patch.setattr(kind, name, wrong)
        assert failure(STRANGER, check) is None  # in C order it is right
    monkeypatch.setattr(kind, name, wrong)
    found = failure(STRANGER, check)
    assert found is not None and re.search(words, found), found


# That the arrays lie as they are said to lie
# -----------------------------------------------------------------------------


def observed(backend, monkeypatch):
    """Strides of what reaches group norm in its check, as its input and as the gradient."""
    inputs, gradients = set(), set()
    kind = type(backend.nn)
    right = kind.group_norm

    def bytes_between(array):
        return (
            array.strides
            if isinstance(array, np.ndarray)
            else tuple(8 * s for s in array.stride())
        )

    def watch(self, x, *args):
        y = right(self, x, *args)
        inputs.add(bytes_between(getattr(x, "array", getval(x))))
        if backend.name == "torch" and y.requires_grad:
            y.register_hook(lambda g: gradients.add(bytes_between(g)))
        if backend.name == "stranger":
            y = note(y)
        return y

    def noted(g):
        gradients.add(bytes_between(g))
        return g

    note = primitive(lambda y: y.view())
    defvjp(note, lambda y, x: noted)
    monkeypatch.setattr(kind, "group_norm", watch)
    if backend.name == "chainer":
        norm = pytest.importorskip(
            "deliralike.backends.chainer.kernels.norms"
        ).GroupNorm
        derive = norm.derive

        def watched(self, arguments, found):
            gradients.add(bytes_between(found[0]))
            return derive(self, arguments, found)

        monkeypatch.setattr(norm, "derive", watched)
    assert failure(backend, "functions/group_norm") is None
    return inputs, gradients


# PyTorch has no negative strides, and autograd adds to zeros what it takes or sums.
GRADIENTS = {
    "chainer": LAYOUTS,
    "torch": (*LAYOUTS[:4], *LAYOUTS[5:]),
    "stranger": LAYOUTS[:4],
}


@pytest.mark.parametrize("name", [*STRIDED, "stranger"])
def test_inputs_and_gradients_arrive_in_each_layout(name, monkeypatch):
    backend = STRANGER if name == "stranger" else backends.get(name)
    inputs, gradients = observed(backend, monkeypatch)
    x = np.zeros((2, 4, 3, 3))
    of_inputs = GRADIENTS["torch"] if name == "torch" else LAYOUTS
    assert {layout.of(x).strides for layout in of_inputs} <= inputs
    assert {layout.of(x).strides for layout in GRADIENTS[name]} <= gradients


def test_layouts_of_the_host_hold_the_values():
    x = np.arange(24.0).reshape(2, 3, 4)
    for layout in LAYOUTS:
        if not layout.name.startswith("one for all"):
            np.testing.assert_array_equal(layout.of(x), x)
    np.testing.assert_array_equal(LAYOUTS[-2].of(x), np.broadcast_to(x[:1], x.shape))
    np.testing.assert_array_equal(
        LAYOUTS[-1].of(x), np.broadcast_to(x[..., :1], x.shape)
    )


def test_a_backend_whose_arrays_have_no_strides_is_left_alone(monkeypatch):
    monkeypatch.setattr(type(STRANGER), "strided", False)
    (kind, name, wrong), check, _ = PLANTED["reading in the order of memory"]
    monkeypatch.setattr(kind, name, wrong)
    assert failure(STRANGER, check) is None
