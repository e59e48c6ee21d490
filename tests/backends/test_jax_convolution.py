"""Convolutions that JAX computes in forms of our own, against JAX's convolution.

Values, both gradients, gradients of gradients, forward mode and `vmap`.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import enable_x64, export
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends
from deliralike.backends.jax import convolution
from deliralike.backends.jax.compiled.gradients import (
    aux_and_gradient,
)
from deliralike.backends.jax.convolution import Geometry, convolve, convolve_transposed

NN = backends.get("jax").nn

# (input, kernel, settings); what the form is called
CASES = {
    "stride 2": (
        (2, 6, 9, 11),
        (6, 1, 3, 3),
        Geometry((2, 2), ((1, 1),) * 2, (1, 1), (1, 1), 6),
    ),
    "two kernels a channel": (
        (2, 3, 9, 11),
        (6, 1, 3, 5),
        Geometry((2, 1), ((1, 0), (2, 3)), (1, 1), (2, 1), 3),
    ),
    "transposed": ((2, 6, 9), (6, 1, 3), Geometry((1,), ((1, 2),), (3,), (2,), 6)),
    "edges cut off": (
        (2, 3, 9, 11),
        (3, 1, 3, 2),
        Geometry((2, 3), ((-1, 2), (1, -3)), (1, 1), (1, 2), 3),
    ),
    "volumes": (
        (2, 4, 5, 6, 7),
        (8, 1, 3, 2, 3),
        Geometry((2, 1, 3), ((1, 1),) * 3, (1, 1, 1), (1, 1, 1), 4),
    ),
    "groups": (
        (2, 12, 9, 11),
        (6, 4, 3, 3),
        Geometry((2, 2), ((1, 1),) * 2, (1, 1), (1, 1), 3),
    ),
    "many groups": (
        (2, 22, 9, 11),
        (11, 2, 3, 3),
        Geometry((2, 2), ((1, 1),) * 2, (2, 1), (1, 1), 11),
    ),
    "patches": (
        (2, 3, 9, 11),
        (5, 3, 4, 3),
        Geometry((4, 3), ((0, 0),) * 2, (1, 1), (1, 1), 1),
    ),
    "planes": (
        (2, 3, 12, 9, 8),
        (5, 3, 3, 2, 3),
        Geometry((2, 1, 2), ((1, 0), (1, 1), (0, 2)), (1, 1, 1), (3, 1, 1), 1),
    ),
    "transposed planes": (
        (2, 3, 4, 5, 3),
        (5, 3, 2, 3, 2),
        Geometry((1, 1, 1), ((1, 2), (1, 1), (0, 1)), (2, 3, 2), (1, 1, 1), 1),
    ),
    "groups of volumes": (
        (2, 6, 12, 9, 8),
        (4, 3, 3, 2, 3),
        Geometry((2, 1, 2), ((1, 0), (1, 1), (0, 2)), (1, 1, 1), (1, 1, 1), 2),
    ),
    "small output": (
        (2, 3, 4, 5),
        (5, 3, 3, 5),
        Geometry((1, 2), ((0, 1),) * 2, (1, 1), (1, 1), 1),
    ),
    "many kernels": (
        (1, 2, 9, 8),
        (23, 2, 3, 2),
        Geometry((2, 1), ((2, 0), (-1, 1)), (1, 1), (3, 1), 1),
    ),
}
FORMS = {
    "_depthwise": (
        "stride 2",
        "two kernels a channel",
        "transposed",
        "edges cut off",
        "volumes",
    ),
    "_part_by_part": ("groups", "many groups", "groups of volumes"),
    "_in_planes": ("planes", "transposed planes"),
    "_by_product": ("patches", "small output", "many kernels"),
}
FIRST = [names[0] for names in FORMS.values()]
# (input of the convolution, kernel, settings of the convolution)
TRANSPOSED = {
    "kernel above stride": (
        (2, 3, 9, 11),
        (5, 3, 4, 3),
        Geometry((2, 2), ((1, 0), (1, 1)), (1, 1), (1, 1), 1),
    ),
    "few windows, no stride": (
        (1, 3, 7, 5),
        (23, 3, 3, 2),
        Geometry((1, 1), ((0, 1), (1, 1)), (1, 1), (2, 3), 1),
    ),
    "side by side": (
        (2, 3, 8, 9),
        (5, 3, 2, 3),
        Geometry((2, 3), ((0, 0),) * 2, *[(1, 1)] * 2, 1),
    ),
    "gaps and dilation": (
        (1, 2, 11, 6, 7),
        (3, 2, 2, 1, 3),
        Geometry((3, 2, 1), ((0, 0), (0, 0), (1, 2)), (1, 1, 1), (2, 1, 2), 1),
    ),
}


def derivatives(function, x, weight):
    """The value of a convolution and its derivatives, up to the second ones."""
    y, pull = jax.vjp(function, x, weight)
    cotangent = jnp.cos(jnp.arange(y.size).reshape(y.shape))

    def of_gradients(x, weight):
        gradients = jax.vjp(function, x, weight)[1](cotangent * function(x, weight))
        return sum(jnp.sum(gradient**3) for gradient in gradients)

    return (
        y,
        pull(cotangent),
        jax.grad(of_gradients, (0, 1))(x, weight),
        jax.jvp(function, (x, weight), (x**2, weight + 1))[1],
    )


def first_derivatives(function, x, weight):
    """The value of a convolution and its first derivatives."""
    y, pull = jax.vjp(function, x, weight)
    return y, pull(jnp.cos(jnp.arange(y.size).reshape(y.shape)))


def of_batches(function, x, weight):
    """The gradients for each of several kernels, and of several inputs, by `vmap`."""

    def loss(x, weight):
        return jnp.sum(function(x, weight) ** 2)

    weights = jnp.stack([weight, weight + 1, weight**2], axis=1)
    each_weight = jax.vmap(jax.grad(loss, (0, 1)), (None, 1))
    each_image = jax.vmap(jax.grad(loss, (0, 1)), (0, None))
    return each_weight(x, weights), each_image(jnp.stack([x, x + 1]), weight)


@pytest.mark.parametrize(
    ("name", "transformed"),
    [
        *((name, derivatives) for name in FIRST),
        *((name, of_batches) for name in FIRST),
        *((name, first_derivatives) for name in CASES if name not in FIRST),
    ],
)
def test_a_convolution_agrees_with_jaxs_own_in_value_and_derivatives(name, transformed):
    x_shape, kernel, settings = CASES[name]

    def ours(x, weight):
        return convolve(x, weight, settings)

    assert_equal(transformed, ours, partial(jaxs_own, settings), x_shape, kernel)


@pytest.mark.parametrize("transformed", [derivatives, of_batches])
def test_planes_that_are_convolved_in_parts_agree_too(transformed, monkeypatch):
    monkeypatch.setattr(convolution, "_MOST_AT_ONCE", 64)
    settings = Geometry((2, 1, 2), ((1, 0), (1, 1), (0, 2)), (1,) * 3, (1,) * 3, 1)
    x_shape, kernel = (3, 3, 10, 9, 7), (5, 3, 3, 2, 3)
    assert convolution._parts_in_cache((15, 9, 7, 9)) == 5

    def ours(x, weight):
        return convolve(x, weight, settings)

    assert_equal(transformed, ours, partial(jaxs_own, settings), x_shape, kernel)


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_is_the_gradient_of_jaxs_own(name):
    x_shape, kernel, settings = TRANSPOSED[name]
    counts = settings.counts(x_shape[2:], kernel[2:])

    def ours(y, weight):
        return convolve_transposed(y, weight, x_shape[2:], settings)

    def jaxs(y, weight):
        zeros = jnp.zeros((y.shape[0], *x_shape[1:]), y.dtype)
        return jax.vjp(lambda x: jaxs_own(settings, x, weight), zeros)[1](y)[0]

    assert_equal(derivatives, ours, jaxs, (x_shape[0], kernel[0], *counts), kernel)


def jaxs_own(settings, x, weight):
    """JAX's convolution."""
    return jax.lax.conv_general_dilated(
        x,
        weight,
        settings.stride,
        settings.pads,
        settings.lhs_dilation,
        settings.dilation,
        feature_group_count=settings.groups,
    )


def assert_equal(transformed, ours, jaxs, x_shape, kernel):
    """Compare what is made of two functions of an input and a kernel."""
    generator = np.random.default_rng(5)
    x, weight = generator.normal(size=x_shape), generator.normal(size=kernel)
    with enable_x64(True):
        got, wanted = (
            jax.tree.leaves(jax.jit(partial(transformed, function))(x, weight))
            for function in (ours, jaxs)
        )
    for a, b in zip(got, wanted, strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max())


@pytest.mark.parametrize("form", FORMS)
def test_the_cases_are_those_of_the_form(form):
    for name in FORMS[form]:
        assert convolution._form(*CASES[name]).__name__ == form


@pytest.mark.parametrize("name", FORMS["_by_product"])
def test_a_product_sums_over_one_axis_so_that_xla_copies_no_kernel(name):
    x_shape, kernel, settings = CASES[name]
    traced = jax.make_jaxpr(convolution._by_product, static_argnums=2)(
        np.zeros(x_shape), np.zeros(kernel), settings
    )
    (product,) = [each for each in traced.eqns if each.primitive.name == "dot_general"]
    (of_first, of_second), _ = product.params["dimension_numbers"]
    assert len(of_first) == len(of_second) == 1


@pytest.mark.parametrize("open_sizes", ["b, 3, 4, 5", "b, 3, h, w"])
def test_an_exported_convolution_takes_any_size(open_sizes):
    _, kernel, settings = CASES["small output"]
    generator = np.random.default_rng(5)
    weight = generator.normal(size=kernel)

    def ours(x):
        return convolve(x, weight, settings)

    with enable_x64(True):
        known = ["h >= 4", "w >= 5"] if "h" in open_sizes else []
        shape = export.symbolic_shape(open_sizes, constraints=known)
        program = export.export(jax.jit(ours))(jax.ShapeDtypeStruct(shape, np.float64))
        for batch, more in ((1, 0), (7, 9)):
            more = more if "h" in open_sizes else 0
            x = generator.normal(size=(batch, 3, 4 + more, 5 + more))
            wanted = jaxs_own(settings, x, weight)
            assert_allclose(program.call(x), wanted, rtol=0, atol=1e-13)


def test_half_precision_is_summed_in_single():
    x = np.random.default_rng(5).normal(size=(1, 4, 9, 9)).astype("bfloat16")
    weight = np.random.default_rng(6).normal(size=(4, 1, 7, 7)).astype("bfloat16")
    settings = Geometry((1, 1), ((3, 3), (3, 3)), (1, 1), (1, 1), 4)
    exact = convolve(x.astype("float32"), weight.astype("float32"), settings)
    result = convolve(jnp.asarray(x), jnp.asarray(weight), settings)
    assert result.dtype == "bfloat16"
    assert_array_equal(result, exact.astype("bfloat16"))


def test_a_depthwise_convolution_is_computed_once_for_all_its_uses():
    """XLA counts what its loops compute; a norm uses its input three times."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(2, 6, 16, 16))
    weight = generator.normal(size=(6, 1, 7, 7))
    settings = Geometry((1, 1), ((3, 3), (3, 3)), (1, 1), (1, 1), 6)

    def function(x, weight):
        y = convolve(NN.sigmoid(x), weight, settings)
        return NN.layer_norm(NN.permute(y, (0, 2, 3, 1)), (6,))

    with enable_x64(True):
        costs = jax.jit(function).lower(x, weight).compile().cost_analysis()
    once = 2 * weight.size * 2 * 16 * 16
    assert once < costs["flops"] < 1.5 * once
    assert costs["transcendentals"] < 4 * x.size


ORDERS = {
    "channels last": (
        lambda x: jnp.moveaxis(x, 1, -1),
        lambda x: jnp.moveaxis(x, -1, 1),
    ),
    "transposed": (jnp.transpose, jnp.transpose),
    "every second element": (lambda x: jnp.repeat(x, 2, -1), lambda x: x[..., ::2]),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_another_order_in_memory_give_the_same_gradients(form, order):
    x_shape, kernel, settings = CASES[FORMS[form][0]]
    there, back = ORDERS[order]
    generator = np.random.default_rng(5)
    with enable_x64(True):
        x = jnp.asarray(generator.normal(size=x_shape))
        weight = jnp.asarray(generator.normal(size=kernel))
        shape = jaxs_own(settings, x, weight).shape
        cotangent = jnp.asarray(generator.normal(size=shape))

        @jax.jit
        def gradients(*arrays):
            x, weight, cotangent = map(back, arrays)
            y, pull = jax.vjp(partial(convolve, settings=settings), x, weight)
            return y, *pull(cotangent)

        wanted, pull = jax.vjp(partial(jaxs_own, settings), x, weight)
        found = gradients(*map(there, (x, weight, cotangent)))
        for a, b in zip(found, (wanted, *pull(cotangent)), strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max())


def test_a_gradient_tells_what_took_no_part():
    generator = np.random.default_rng(5)
    weight = generator.normal(size=(4, 3, 3, 3))
    settings = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)

    def function(at):
        return jnp.sum(NN.relu(convolve(at["x"], weight, settings))), at["x"]

    with enable_x64(True):
        at = {"x": generator.normal(size=(2, 3, 11, 9)), "unused": np.ones(2)}
        _, gradient = aux_and_gradient(function, jax.tree.map(jnp.asarray, at))
        wanted = jax.grad(lambda x: function({"x": x})[0])(at["x"])
    assert gradient["unused"] is None
    assert_allclose(gradient["x"], wanted, rtol=1e-12, atol=1e-13)
