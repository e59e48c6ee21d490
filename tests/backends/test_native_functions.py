"""Calls of the frameworks' own functions are seen as calls of the functions of `nn`."""

import subprocess
import sys
import threading
from functools import cache

import jax
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from jax.nn import softmax as from_import
from numpy.testing import assert_allclose, assert_array_equal

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
        lambda leaf: backend.array(leaf) if isinstance(leaf, np.ndarray) else leaf,
        values,
    )


def followed(backend, function, args, kwargs):
    """The neutral calls of a function that is called natively: name, arguments, result."""
    calls = []

    def interceptor(name, call, args, kwargs):
        result = call(*args, **kwargs)
        calls.append((name, backend.to_numpy(args), backend.to_numpy(result)))
        return result

    with backend.intercept_native_functions(Empty(), interceptor):
        result = function(*args, **kwargs)
    return calls, result


X = array(2, 3, 4)
PICTURE = array(2, 4, 6, 7)
LAST = array(2, 6, 7, 4)
LABELS = whole(5, 6)
SCORES = array(6, 5)
Y = array(2, 3, 4)
HEADS = [array(2, 5, 3, 4) for _ in range(3)]


# The framework, the neutral name, and the call as a user's code writes it. Arrays of one shape are
# told apart by `n`.
CASES = """
torch   relu              F.relu(X)
torch   relu              F.relu(X, inplace=False)
torch   relu              torch.relu(X)
torch   relu              X.relu()
torch   relu6             F.relu6(5 * X)
torch   silu              F.silu(X)
torch   hardsigmoid       F.hardsigmoid(X)
torch   hardswish         F.hardswish(X)
torch   sigmoid           torch.sigmoid(X)
torch   sigmoid           X.sigmoid()
torch   tanh              torch.tanh(X)
torch   softplus          F.softplus(X)
torch   leaky_relu        F.leaky_relu(X, 0.3)
torch   leaky_relu        F.leaky_relu(X, negative_slope=0.3)
torch   elu               F.elu(X, alpha=0.5)
torch   gelu              F.gelu(X)
torch   gelu              F.gelu(X, approximate="tanh")
torch   prelu             F.prelu(X, array(3))
torch   softmax           F.softmax(X, dim=1)
torch   softmax           torch.softmax(X, 0)
torch   softmax           X.softmax(-1)
torch   log_softmax       X.log_softmax(1)
torch   linear            F.linear(X, array(5, 4), array(5))
torch   layer_norm        F.layer_norm(X, (4,), array(4), array(4, n=1), 0.1)
torch   group_norm        F.group_norm(PICTURE, 2, eps=0.1)
torch   batch_norm        F.batch_norm(PICTURE, array(4), positive(4), eps=0.1)
torch   normalize         F.normalize(X, dim=2)
torch   conv              F.conv2d(PICTURE, array(6, 2, 3, 3), groups=2, padding=1)
torch   conv              F.conv1d(X, array(5, 3, 2), array(5), 2)
torch   conv_transpose    F.conv_transpose2d(PICTURE, array(4, 5, 2, 2), None, 2)
torch   max_pool          F.max_pool2d(PICTURE, 3, 2, 1, ceil_mode=True)
torch   max_pool          F.max_pool1d(X, 2)
torch   avg_pool          F.avg_pool2d(PICTURE, 3, count_include_pad=False)
torch   adaptive_avg_pool F.adaptive_avg_pool2d(PICTURE, (2, 3))
torch   adaptive_max_pool F.adaptive_max_pool2d(PICTURE, 1)
torch   interpolate       F.interpolate(PICTURE, scale_factor=2)
torch   interpolate       F.interpolate(PICTURE, (9, 8), mode="bilinear", align_corners=True)
torch   pixel_shuffle     F.pixel_shuffle(PICTURE, 2)
torch   pad               F.pad(PICTURE, (1, 2, 3, 0), value=2.0)
torch   embedding         F.embedding(LABELS, array(5, 3))
torch   attention         F.scaled_dot_product_attention(*HEADS, is_causal=True)
torch   attention         F.scaled_dot_product_attention(*HEADS, scale=0.3)
torch   attention         F.scaled_dot_product_attention(*HEADS, lower(3, 3))
torch   cross_entropy     F.cross_entropy(SCORES, LABELS)
torch   cross_entropy     F.cross_entropy(SCORES, LABELS, positive(5), ignore_index=2,
                          label_smoothing=0.1, reduction="sum")
torch   bce_with_logits   F.binary_cross_entropy_with_logits(X, positive(2, 3, 4),
                          pos_weight=positive(4))
torch   mse_loss          F.mse_loss(X, Y)
torch   l1_loss           F.l1_loss(X, Y, reduction="sum")
torch   exp               torch.exp(positive(3, 4))
torch   log               torch.log(positive(3, 4))
torch   sqrt              torch.sqrt(positive(3, 4))
torch   erf               torch.erf(positive(3, 4))
torch   sin               X.sin()
torch   cos               X.cos()
torch   abs               X.abs()
torch   tanh              X.tanh()
torch   clamp             torch.clamp(X, min=-0.5, max=0.5)
torch   where             torch.where(X > 0, X, 2 * X)
torch   where             X.where(X > 0, 2 * X)
torch   sum               X.sum()
torch   mean              X.mean((0, 2), True)
torch   max_along         X.max(1)
torch   max_along         torch.amax(X, -1, True)
torch   var               X.var(1)
torch   var               torch.var(X, (1, 2), unbiased=False)
torch   matmul            torch.bmm(X, array(2, 4, 5))
torch   matmul            X @ array(4, 5)
torch   matmul            torch.einsum("bij,jk->bik", X, array(4, 5))
torch   matmul            torch.einsum("bqhd,bkhd->bhqk", HEADS[0], array(2, 6, 3, 4))
torch   matmul            torch.einsum("bhqk,bkhd->bqhd", array(2, 3, 6, 5), HEADS[0])
torch   einsum            torch.einsum("bij,bij->b", X, X)
torch   concatenate       torch.cat([X, X], -1)
torch   stack             torch.stack([X, X], 1)
torch   flatten           X.flatten(1)
torch   reshape           X.view(2, -1)
torch   reshape           torch.reshape(X, (6, 4))
torch   permute           X.permute(2, 0, 1)
torch   transpose         X.transpose(1, 2)
torch   squeeze           X[:, :1].squeeze(1)
torch   expand_dims       X.unsqueeze(1)
torch   take_along        torch.gather(X, 1, whole(3, 2, 2, 4))
torch   take              X.index_select(1, whole(3, 5))
torch   stop_gradient     X.detach()
jax     relu              jax.nn.relu(3 * X)
jax     relu6             jax.nn.relu6(3 * X)
jax     silu              jax.nn.silu(3 * X)
jax     sigmoid           jax.nn.sigmoid(3 * X)
jax     tanh              jax.nn.tanh(3 * X)
jax     relu              nnx.relu(X)
jax     silu              nnx.silu(X)
jax     tanh              nnx.tanh(X)
jax     softplus          nnx.softplus(X)
jax     silu              jax.nn.swish(X)
jax     hardsigmoid       jax.nn.hard_sigmoid(3 * X)
jax     hardswish         nnx.hard_swish(3 * X)
jax     leaky_relu        jax.nn.leaky_relu(X, negative_slope=0.2)
jax     elu               jax.nn.elu(X, 0.5)
jax     gelu              jax.nn.gelu(X)
jax     gelu              nnx.gelu(X, approximate=False)
jax     softmax           jax.nn.softmax(X)
jax     softmax           nnx.softmax(X, axis=0)
jax     log_softmax       jax.nn.log_softmax(X, 1)
jax     attention         jax.nn.dot_product_attention(*HEADS, is_causal=True)
jax     attention         nnx.dot_product_attention(*HEADS, is_causal=True)
jax     attention         jax.nn.dot_product_attention(*HEADS, scale=0.3)
jax     attention         nnx.dot_product_attention(*HEADS, mask=lower(1, 1, 5, 5))
jax     max_pool          nnx.max_pool(LAST, (3, 2), strides=(2, 2))
jax     max_pool          nnx.max_pool(LAST, (3, 3), strides=(1, 1), padding="SAME")
jax     avg_pool          nnx.avg_pool(LAST, (3, 3), padding=((1, 1), (1, 1)),
                          count_include_pad=False)
jax     interpolate       jax.image.resize(LAST, (2, 12, 14, 4), "nearest")
jax     interpolate       jax.image.resize(LAST, (2, 9, 14, 4), "bilinear")
jax     cross_entropy     optax.softmax_cross_entropy_with_integer_labels(SCORES, LABELS)
jax     cross_entropy     optax.softmax_cross_entropy_with_integer_labels(LAST, whole(4, 2, 6,
                          7))
jax     bce_with_logits   optax.sigmoid_binary_cross_entropy(X, positive(2, 3, 4))
jax     mse_loss          optax.squared_error(X, Y)
jax     exp               jnp.exp(positive(3, 4))
jax     log               jnp.log(positive(3, 4))
jax     sqrt              jnp.sqrt(positive(3, 4))
jax     sin               jnp.sin(X)
jax     cos               jnp.cos(X)
jax     abs               jnp.abs(X)
jax     tanh              jnp.tanh(X)
jax     erf               jax.scipy.special.erf(X)
jax     clamp             jnp.clip(X, -0.5, 0.5)
jax     where             jnp.where(X > 0, X, 2 * X)
jax     sum               jnp.sum(X, axis=(0, 2))
jax     mean              X.mean(-1)
jax     max_along         jnp.max(X, axis=1, keepdims=True)
jax     var               X.var(axis=1, ddof=1)
jax     matmul            jnp.matmul(X, array(4, 5))
jax     matmul            X @ array(4, 5)
jax     matmul            jnp.dot(X, array(4, 5))
jax     matmul            jnp.einsum("bij,jk->bik", X, array(4, 5))
jax     matmul            jnp.einsum("bqhd,bkhd->bhqk", HEADS[0], array(2, 6, 3, 4))
jax     matmul            jnp.einsum("bhqk,bkhd->bqhd", array(2, 3, 6, 5), HEADS[0])
jax     einsum            jnp.einsum("bij,bij->b", X, X)
jax     concatenate       jnp.concatenate([X, X], axis=-1)
jax     stack             jnp.stack([X, X], 1)
jax     reshape           jnp.reshape(X, (2, -1))
jax     reshape           X.reshape(2, -1)
jax     permute           jnp.transpose(X, (2, 0, 1))
jax     permute           X.transpose(2, 0, 1)
jax     transpose         jnp.swapaxes(X, 1, 2)
jax     squeeze           jnp.squeeze(X[:, :1], 1)
jax     expand_dims       jnp.expand_dims(X, 1)
jax     pad               jnp.pad(X, ((0, 0), (1, 2), (0, 1)))
jax     broadcast_to      jnp.broadcast_to(X[:, :1], (2, 3, 4))
jax     stop_gradient     lax.stop_gradient(X)
chainer relu              F.relu(3 * X)
chainer relu6             F.relu6(3 * X)
chainer sigmoid           F.sigmoid(3 * X)
chainer tanh              F.tanh(3 * X)
chainer exp               F.exp(positive(3, 4))
chainer log               F.log(positive(3, 4))
chainer sqrt              F.sqrt(positive(3, 4))
chainer sin               F.sin(X)
chainer cos               F.cos(X)
chainer erf               F.erf(X)
chainer softplus          F.softplus(X)
chainer abs               F.absolute(X)
chainer leaky_relu        F.leaky_relu(X)
chainer elu               F.elu(X, alpha=0.5)
chainer clamp             F.clip(X, -0.5, 0.5)
chainer relu6             F.clipped_relu(X, 6.0)
chainer prelu             F.prelu(X, array(3))
chainer softmax           F.softmax(X)
chainer log_softmax       F.log_softmax(X, axis=2)
chainer where             F.where(X > 0, X, 2 * X)
chainer sum               F.sum(X, axis=(0, 2))
chainer mean              F.mean(X, axis=1)
chainer max_along         F.max(X, axis=1, keepdims=True)
chainer matmul            F.matmul(X, array(2, 4, 5))
chainer matmul            F.einsum("bij,jk->bik", X, array(4, 5))
chainer matmul            F.einsum("bqhd,bkhd->bhqk", HEADS[0], array(2, 6, 3, 4))
chainer matmul            F.einsum("bhqk,bkhd->bqhd", array(2, 3, 6, 5), HEADS[0])
chainer einsum            F.einsum("bij,bij->b", X, X)
chainer linear            F.linear(X, array(5, 4), array(5), n_batch_axes=2)
chainer conv              F.convolution_2d(PICTURE, array(5, 4, 3, 3), None, 2, 1)
chainer conv_transpose    F.deconvolution_2d(PICTURE, array(4, 5, 2, 2), stride=2)
chainer max_pool          F.max_pooling_2d(PICTURE, 3, 2)
chainer max_pool          F.max_pooling_2d(PICTURE, 2, cover_all=False)
chainer avg_pool          F.average_pooling_2d(PICTURE, 3, 2, 1)
chainer batch_norm        F.fixed_batch_normalization(PICTURE, array(4), array(4, n=1),
                          array(4, n=2), positive(4))
chainer layer_norm        F.layer_normalization(SCORES, array(5), array(5, n=1), 0.1)
chainer group_norm        F.group_normalization(PICTURE, 2, array(4), array(4, n=1))
chainer embedding         F.embed_id(LABELS, array(5, 3))
chainer interpolate       F.resize_images(PICTURE, (9, 8))
chainer cross_entropy     F.softmax_cross_entropy(SCORES, LABELS)
chainer cross_entropy     F.softmax_cross_entropy(SCORES, LABELS, reduce="no", ignore_label=2)
chainer mse_loss          F.mean_squared_error(X, 2 * X)
chainer l1_loss           F.mean_absolute_error(X, 2 * X)
chainer concatenate       F.concat([X, X])
chainer stack             F.stack([X, X], axis=1)
chainer reshape           F.reshape(X, (2, -1))
chainer reshape           F.flatten(X)
chainer permute           F.transpose(X, axes=(2, 0, 1))
chainer transpose         F.swapaxes(X, 1, 2)
chainer squeeze           F.squeeze(X[:, :1], 1)
chainer expand_dims       F.expand_dims(X, 1)
chainer pad               F.pad(X, ((0, 0), (1, 2), (0, 1)), "constant")
chainer broadcast_to      F.broadcast_to(X[:, :1], (2, 3, 4))
"""
SPACES = {
    "torch": {"torch": torch, "F": torch.nn.functional},
    "jax": {"jax": jax, "jnp": jax.numpy, "lax": jax.lax, "nnx": nnx, "optax": optax},
    "chainer": {"F": chainer.functions},
}


def cases():
    """The cases, of which one may stand on two lines."""
    return [
        line.split(maxsplit=2)
        for line in CASES.strip().replace("\n" + 26 * " ", " ").split("\n")
    ]


def arrays_of(backend):
    """The names of the cases; an array that is asked for again is the same one."""
    makers = {"array": array, "positive": positive, "whole": whole}
    named = {
        "X": X,
        "Y": Y,
        "PICTURE": PICTURE,
        "LAST": LAST,
        "LABELS": LABELS,
        "SCORES": SCORES,
    }

    def native(make):
        return cache(lambda *shape, n=0: backend.array(make(*shape)))

    return {
        **SPACES[backend.name],
        **{name: native(make) for name, make in makers.items()},
        **natively(backend, named | {"HEADS": HEADS}),
        "lower": native(lambda *shape: np.tril(np.ones(shape, bool))),
    }


@pytest.mark.parametrize(("name", "wanted", "call"), cases(), ids=lambda each: each)
def test_a_neutral_call_gives_what_the_function_of_nn_gives(name, wanted, call):
    """The functions of `nn` are those of another framework."""
    backend = backends.get(name)
    names = arrays_of(backend)
    plain = nest.leaves(backend.to_numpy(eval(call, names)))
    calls, result = followed(backend, lambda: eval(call, names), (), {})
    for left, right in zip(plain, nest.leaves(backend.to_numpy(result)), strict=True):
        assert_array_equal(left, right)
    assert [each[0] for each in calls] == [wanted]
    other = backends.get("chainer" if name == "torch" else "torch")
    found = other.to_numpy(getattr(other.nn, wanted)(*natively(other, calls[0][1])))
    pairs = zip(nest.leaves(found), nest.leaves(calls[0][2]), strict=True)
    for left, right in (pair for pair in pairs if pair[0] is not None):
        assert_allclose(left, right, rtol=2e-5, atol=2e-6)


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

    def interceptor(name, call, args, kwargs):
        calls.append(name)
        return call(*args, **kwargs)

    def loss(network, x):
        with backend.intercept_native_functions(network, interceptor):
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
        "a list": lambda: nnx.Sequential(
            nnx.Linear(4, 3, rngs=nnx.Rngs(0)), from_import
        ),
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
        assert_allclose(found.parameters[name], value, rtol=1e-5, atol=1e-7)
    assert_allclose(found.inputs[0], plain.inputs[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("net", networks(), ids=["torch", "jax", "chainer"])
def test_everything_is_as_before_after_an_error(net):
    network, x = backends.of(net).wrap(net), array(2, 4).astype("f")
    spaces = [jax.nn, jax.numpy, jax.lax, nnx, chainer.functions, torch.nn.functional]
    before = [
        dict(vars(space)) for space in (*spaces, jax.core.Tracer, chainer.Variable)
    ]
    own = dict(globals())

    def raising(name, call, args, kwargs):
        raise ZeroDivisionError("planted")

    def loss(network, x):
        with network.backend.intercept_native_functions(network, raising):
            return network.backend.nn.sum(network(x))

    with pytest.raises(ZeroDivisionError, match="planted"):
        network.backend.gradients(loss, network, x)
    after = [
        dict(vars(space)) for space in (*spaces, jax.core.Tracer, chainer.Variable)
    ]
    for left, right in zip([*before, own], [*after, dict(globals())], strict=True):
        assert {key: id(value) for key, value in left.items()} == {
            key: id(value) for key, value in right.items()
        }
    calls = []
    names_in(network, x, calls)
    assert calls


@pytest.mark.parametrize("name", ["torch", "jax", "chainer"])
def test_other_threads_are_not_followed(name):
    backend, calls = backends.get(name), []
    spaces = {"torch": torch, "jax": jax.nn, "chainer": chainer.functions}
    x = backend.array(array(3, 2))

    def interceptor(name, call, args, kwargs):
        calls.append(name)
        return call(*args, **kwargs)

    with backend.intercept_native_functions(Empty(), interceptor):
        thread = threading.Thread(target=lambda: spaces[name].relu(x))
        thread.start()
        thread.join()
        assert calls == []
        spaces[name].relu(x)
    spaces[name].relu(x)
    assert calls == ["relu"]


@pytest.mark.parametrize("how", ["vmap", "jit", "scan", "checkpoint", "grad"])
def test_jax_programs_within_the_network_are_left_alone(how):
    """What is traced apart must not be carried out of it."""
    ways = {
        "vmap": lambda f, x: jax.vmap(f)(x),
        "jit": lambda f, x: jax.jit(f)(x),
        "scan": lambda f, x: jax.lax.scan(lambda carry, row: (carry, f(row)), 0.0, x)[
            1
        ],
        "checkpoint": lambda f, x: jax.checkpoint(f)(x),
        "grad": lambda f, x: jax.grad(lambda y: jax.numpy.sum(f(y)))(x),
    }
    kept = []

    def interceptor(name, call, args, kwargs):
        result = call(*args, **kwargs)
        kept.append((name, result))
        return result

    def run(x):
        with backends.get("jax").intercept_native_functions(Empty(), interceptor):
            y = jax.nn.tanh(ways[how](jax.nn.relu, x))
        return jax.numpy.sum(y), [result for _, result in kept]

    x = jax.numpy.asarray(array(3, 2))
    (loss, seen), _ = jax.jit(jax.value_and_grad(run, has_aux=True))(x)
    assert [name for name, _ in kept] == ["tanh"]
    assert_allclose(loss, np.sum(seen[0]), rtol=1e-6)


def test_vmap_of_torch_is_left_alone():
    calls = []

    def interceptor(name, call, args, kwargs):
        calls.append(name)
        return call(*args, **kwargs)

    x = torch.randn(3, 4)
    with backends.get("torch").intercept_native_functions(Empty(), interceptor):
        y = torch.func.vmap(torch.relu)(x)
        torch.relu(x)
    assert calls == ["relu"]
    torch.testing.assert_close(y, x.clamp_min(0.0))


def test_what_is_written_in_place_is_seen_by_code_that_goes_on_with_it():
    x = torch.tensor([-1.0, 2.0])

    def interceptor(name, call, args, kwargs):
        return call(args[0] + 1.0, *args[1:]) * 10.0

    with backends.get("torch").intercept_native_functions(Empty(), interceptor):
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
    (call,), _ = followed(
        backend, torch.nn.functional.softplus, (backend.array(X),), {"beta": 2.0}
    )
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


FIRST_CALLS = """
import numpy as np
import torch
from torch.nn import functional as F
from deliralike import backends

backend, x = backends.get("torch"), torch.ones(1, 1, 2, 2)
network = backend.wrap(type("Own", (torch.nn.Module,), {})())


def names():
    found = []

    def interceptor(name, call, args, kwargs):
        found.append(name)
        return call(*args, **kwargs)

    with backend.intercept_native_functions(network, interceptor):
        F.scaled_dot_product_attention(x, x, F.hardsigmoid(x))
    return found


def factors(shape, *_):
    return np.ones(shape)


with backend.preserve_global_state(), backend.override_dropout_masks(factors):
    print(*names())
print(*names())
"""


def test_functions_are_followed_though_a_comparison_replaces_them_before_the_first_call():
    """In a process of its own, where nothing was followed before."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["hardsigmoid attention"] * 2
