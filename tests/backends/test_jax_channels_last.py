"""Programs with the channels last give the values and gradients of the programs that they were made
from."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from deliralike import backends
from deliralike.backends.jax.compiled.channels_last import channels_last
from deliralike.backends.jax.compiled.program import aux_and_gradient

NN = backends.get("jax").nn


def array(*shape):
    return np.random.default_rng(shape).standard_normal(shape)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


W, POINT, DEPTH, ONE = (
    array(6, 3, 3, 2),
    array(6, 3, 1, 1),
    array(6, 1, 3, 3),
    array(4, 6, 1, 1),
)


def conv(x, weight=W, stride=(2, 1), pads=((1, 0), (0, 1)), dilation=(1, 2), groups=1):
    return NN.convolve(x, weight, stride, pads, dilation, groups)


def depthwise(x, stride=(1, 1), weight=DEPTH):
    return conv(x, weight, stride, ((1, 1), (1, 1)), (1, 1), groups=6)


def inner_gradients(function, x):
    """Gradients of sizes about one: large numbers that cancel each other out would be rounding."""
    return jax.grad(lambda x, weight: jnp.sum((function(x, weight) / 20) ** 3), (0, 1))(
        x, DEPTH
    )


def transposed(x):
    return NN.convolve_transposed(
        x, array(3, 2, 3, 3), (2, 2), (1, 0), (1, 1), (1, 1), 1
    )


@jax.custom_jvp
def own(x):
    return x * x


own.defjvp(lambda at, dx: (at[0] ** 2, 2 * at[0] * dx[0]))

FUNCTIONS = {
    "a convolution": conv,
    "one in groups": lambda x: conv(conv(x), DEPTH, groups=6),
    "two depthwise ones": lambda x: depthwise(NN.relu(depthwise(conv(x))), (2, 2)),
    "one over images from several": lambda x: jax.vmap(
        lambda weight: depthwise(conv(x), weight=weight)
    )(jnp.stack([DEPTH, DEPTH**2])),
    "gradients within": lambda x: inner_gradients(
        lambda x, w: depthwise(conv(x), weight=w), x
    ),
    "between norms over the channels": lambda x: (
        NN.permute(
            NN.layer_norm(NN.permute(depthwise(conv(x)), (0, 2, 3, 1)), (6,)),
            (0, 3, 1, 2),
        )
        + conv(x)
    ),
    "another order of axes": lambda x: NN.permute(conv(x), (0, 3, 1, 2)),
    "a pointwise one in groups": lambda x: conv(
        conv(x), array(6, 2, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), groups=3
    ),
    "a pointwise one in groups by JAX": lambda x: lax.conv_general_dilated(
        conv(x), array(6, 2, 1, 1), (1, 1), "VALID", feature_group_count=3
    ),
    "a pointwise one": lambda x: conv(x, POINT, (1, 1), ((0, 0), (0, 0))),
    "a pointwise one with strides": lambda x: conv(x, POINT, (3, 2), ((0, 0), (0, 0))),
    "a pointwise one with padding": lambda x: conv(x, POINT, (1, 1), ((1, 0), (0, 2))),
    "a transposed one": transposed,
    "normalisation": lambda x: NN.batch_norm_train(conv(x), array(6), array(6))[0],
    "layer norm over the channels": lambda x: NN.permute(
        NN.layer_norm(NN.permute(conv(x), (0, 2, 3, 1)), (6,)), (0, 3, 1, 2)
    ),
    "group norm": lambda x: NN.group_norm(conv(x), 3),
    "activations": lambda x: (
        NN.relu(NN.silu(NN.gelu(NN.clip(conv(x), -1.0, 2.0)))) + NN.softplus(conv(x))
    ),
    "a derivative of its own": lambda x: own(conv(x)),
    "pooling by taps": lambda x: NN.max_windows(
        conv(x), (2, 3), (2, 1), ((1, 0), (1, 1)), (1, 1)
    ),
    "pooling by windows": lambda x: NN.max_windows(
        conv(x), (1, 17), (1, 1), ((0, 0), (8, 8)), (1, 1)
    ),
    "average pooling": lambda x: NN.sum_windows(
        conv(x), (3, 2), (2, 2), ((1, 1), (0, 1))
    ),
    "a residual block": lambda x: NN.relu(
        conv(x, POINT, (1, 1), ((0, 0),) * 2) + jnp.tile(x, (1, 2, 1, 1))
    ),
    "squeeze and excite": lambda x: (
        conv(x)
        * NN.sigmoid(
            jnp.tile(
                conv(
                    NN.mean(conv(x), (2, 3), keepdim=True), ONE, (1, 1), ((0, 0),) * 2
                ),
                (1, 2, 1, 1),
            )[:, :6]
        )
    ),
    "broadcasting": lambda x: (
        conv(x)
        + NN.mean(conv(x), 2, keepdim=True)
        * jnp.broadcast_to(conv(x)[:, :, :1], (2, 6, *conv(x).shape[2:]))
    ),
    "a new axis": lambda x: jnp.broadcast_to(conv(x)[..., None], (*conv(x).shape, 2)),
    "concatenation": lambda x: NN.concatenate(
        [conv(x), NN.exp(conv(x)), jnp.ones((2, 1, *conv(x).shape[2:]))], 1
    ),
    "concatenation along positions": lambda x: NN.concatenate([conv(x), conv(x)], 3),
    "splitting": lambda x: sum(jnp.split(conv(x), 3, axis=1)),
    "cutting": lambda x: conv(x)[:, 1:5:2, 1:, ::2],
    "padding": lambda x: NN.pad_constant(
        conv(x), ((0, 0), (0, 2), (1, 0), (3, 1)), 2.0
    ),
    "flipping": lambda x: NN.flip(conv(x), 3) + NN.flip(conv(x), 1),
    "reductions to a table": lambda x: (
        NN.sum(conv(x), (2, 3)),
        NN.max(conv(x), 1),
        NN.sum(conv(x), 0),
        jnp.prod(0.1 * conv(x), (1, 3)),
    ),
    "a choice": lambda x: jnp.where(
        conv(x) > 0, conv(x), array(2, 6, *conv(x).shape[2:])
    ),
    "attention": lambda x: NN.einsum("bcij,bdij->bcd", conv(x), conv(x)),
    "a loop": lambda x: lax.scan(
        lambda c, _: (c * 0.5 + conv(x), None), conv(x), None, 3
    )[0],
    "a branch": lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y, conv(x)),
    "a checkpoint": lambda x: jax.checkpoint(
        lambda x: NN.relu(conv(conv(x), DEPTH, groups=6))
    )(x),
    "nothing to change": lambda x: x[0] @ x[1].swapaxes(1, 2),
}


@partial(jax.jit, static_argnums=0)
def values_and_gradients(functions, x):
    """Of all functions in one program, in which what they have in common is compiled once."""
    return [value_and_gradient(function, x) for function in functions]


def value_and_gradient(function, x):
    outputs, pull = jax.vjp(function, x)
    return outputs, pull(jax.tree.map(jnp.cos, outputs))[0]


def test_values_and_gradients_are_the_same():
    x = jnp.asarray(array(2, 3, 11, 9))
    programs, shapes = zip(
        *(jax.make_jaxpr(each, return_shape=True)(x) for each in FUNCTIONS.values()),
        strict=True,
    )
    wanted = values_and_gradients(tuple(FUNCTIONS.values()), x)
    found = values_and_gradients(
        tuple(channels_last(program) for program in programs), x
    )
    for name, shape, (came, gradient_here), (value, gradient) in zip(
        FUNCTIONS, shapes, found, wanted, strict=True
    ):
        assert [leaf.shape for leaf in came] == [
            leaf.shape for leaf in jax.tree.leaves(shape)
        ], name
        for mine, leaf in zip(came, jax.tree.leaves(value), strict=True):
            np.testing.assert_allclose(mine, leaf, rtol=1e-12, atol=1e-13, err_msg=name)
        np.testing.assert_allclose(
            gradient_here, gradient, rtol=1e-12, atol=1e-12, err_msg=name
        )


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_any_number_of_axes(axes):
    x, weight = (
        jnp.asarray(array(2, 3, *(7, 6, 5)[:axes])),
        array(4, 3, *(3, 2, 3)[:axes]),
    )

    def function(x, weight):
        return NN.relu(
            NN.convolve(x, weight, (2,) * axes, ((1, 1),) * axes, (1,) * axes, 1)
        )

    came = channels_last(jax.make_jaxpr(function)(x, weight))(x, weight)[0]
    np.testing.assert_allclose(came, function(x, weight), rtol=1e-12, atol=1e-13)


NORMS = {
    "batch": lambda x: NN.batch_norm_train(x, array(3), array(3))[0],
    "group": lambda x: NN.group_norm(x, 1, array(3), array(3)),
    "instance": lambda x: NN.instance_norm(x, weight=array(3), bias=array(3)),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_between_convolutions_nothing_is_copied_into_another_order(norm):
    """One copy back to channels first is left: that of the output."""

    def function(x):
        for _ in range(4):
            x = NN.relu(norm(conv(x, W[:3], (1, 1), ((1, 1), (1, 1)))))
        return x

    x = jnp.asarray(array(2, 3, 9, 9))
    text = str(jax.make_jaxpr(channels_last(jax.make_jaxpr(function)(x)))(x))
    assert text.count("conv_general_dilated[") == 4
    assert text.count("permutation=(0, 3, 1, 2)") == 1


def block(x):
    """The first half of a block of ConvNeXt."""
    y = NN.permute(depthwise(x, weight=jnp.ones((6, 1, 3, 3))), (0, 2, 3, 1))
    return x + NN.permute(NN.layer_norm(y, (6,)) @ jnp.ones((6, 6)), (0, 3, 1, 2))


def test_around_depthwise_convolutions_nothing_is_copied_into_another_order():
    def function(x):
        return block(block(conv(x, POINT, (1, 1), ((0, 0), (0, 0)))))

    x = jnp.asarray(array(2, 3, 9, 9))
    text = str(jax.make_jaxpr(channels_last(jax.make_jaxpr(function)(x)))(x))
    assert text.count("channels_last=True") == 2
    assert text.count("permutation=(0, 3, 1, 2)") == 1  # of the output
    assert text.count("permutation=(0, 2, 3, 1)") == 1  # of the input


def test_a_depthwise_convolution_is_computed_once_for_all_its_uses():
    """XLA counts what its loops compute; a norm uses its input three times."""
    x, weight = jnp.asarray(array(2, 6, 16, 16)), jnp.asarray(array(6, 1, 7, 7))

    def function(x, weight):
        y = conv(NN.sigmoid(x), weight, (1, 1), ((3, 3), (3, 3)), (1, 1), groups=6)
        return NN.layer_norm(NN.permute(y, (0, 2, 3, 1)), (6,))

    costs = jax.jit(function).lower(x, weight).compile().cost_analysis()
    once = 2 * weight.size * 2 * 16 * 16
    assert once < costs["flops"] < 1.5 * once
    assert costs["transcendentals"] < 4 * x.size


def test_a_gradient_tells_as_before_what_took_no_part():
    def function(at):
        return jnp.sum(NN.relu(conv(at["x"]))), at["x"]

    at = {"x": jnp.asarray(array(2, 3, 11, 9)), "unused": jnp.asarray(array(2))}
    _, gradient = aux_and_gradient(function, at)
    assert gradient["unused"] is None
    np.testing.assert_allclose(
        gradient["x"],
        jax.grad(lambda x: function({"x": x})[0])(at["x"]),
        rtol=1e-12,
        atol=1e-13,
    )


def test_vmap_and_gradients_of_a_program_with_channels_last():
    images = jnp.asarray(array(3, 2, 3, 9, 7))

    def function(x):
        return depthwise(NN.relu(depthwise(conv(x))), (2, 1))

    program = channels_last(jax.make_jaxpr(function)(images[0]))

    def loss(function, x):
        return jnp.sum(jnp.cos(function(x)))

    each = jax.vmap(jax.value_and_grad(lambda x: loss(lambda x: program(x)[0], x)))
    values, gradients = jax.jit(each)(images)
    for image, value, gradient in zip(images, values, gradients, strict=True):
        wanted = jax.value_and_grad(partial(loss, function))(image)
        np.testing.assert_allclose(value, wanted[0], rtol=1e-12)
        np.testing.assert_allclose(gradient, wanted[1], rtol=1e-11, atol=1e-12)
