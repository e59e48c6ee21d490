"""Batch, instance, group and layer normalisation: outputs, gradients and running statistics."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from deliralike import Network, backends, build
from tests.nn.agreement import (
    LayerCase,
    agree_all,
    agree_function,
    normal,
    numbers,
    property_test,
    values_agree,
)

F = torch.nn.functional
epsilons = st.sampled_from([1e-5, 1e-3, 1e-12, 0.8])
momenta = st.sampled_from([0.1, 0.01, 3e-4, 1.0, None])


@st.composite
def batch_norms(draw):
    n, channels = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    settings = {
        "num_features": channels,
        "eps": draw(epsilons),
        "momentum": draw(momenta),
        "affine": draw(st.booleans()),
        "track_running_stats": draw(st.booleans()),
    }
    shape = (
        draw(st.integers(2, 4)),
        channels,
        *(draw(st.integers(1, 4)) for _ in range(n)),
    )
    return f"BatchNorm{max(n, 1)}d", settings, shape


@property_test(14, case=batch_norms(), training=st.booleans(), seed=numbers)
def test_batch_norms_of_any_settings_agree(case, training, seed):
    layer, settings, shape = case
    return LayerCase(
        layer, settings, [normal(seed, *shape, shift=0.5)], training=training, seed=seed
    )


def test_batch_norm_is_exact_where_the_mean_is_far_larger_than_the_deviation(name):
    x = normal(0, 4, 3, 5, 5, shift=1e4)
    agree_all(
        name,
        {
            f"training={training}": LayerCase(
                "BatchNorm2d", {"num_features": 3}, [x], training
            )
            for training in (True, False)
        },
    )


def test_norms_of_tiny_values_keep_their_epsilon(name):
    x = normal(3, 2, 2, 3, 3, scale=1e-3)
    agree_all(
        name,
        {
            layer: LayerCase(layer, {"num_features": 2}, [x])
            for layer in ("BatchNorm2d", "InstanceNorm2d")
        },
    )


def test_normalize_agrees_also_at_and_near_zero(name):
    x, dims = normal(0, 3, 4, 5), (1, -1)
    x[1], x[2] = 0.0, 1e-14

    def ours(nn, x):
        return [nn.normalize(x, dim=dim) for dim in dims]

    def by_pytorch(x):
        return [F.normalize(x, dim=dim) for dim in dims]

    values_agree(name, ours, by_pytorch, [x])
    agree_function(name, ours, by_pytorch, [normal(1, 3, 4, 5)])


def test_the_gradient_of_normalize_at_zero_is_finite(name):
    x = np.zeros((2, 3))
    agree_function(name, lambda nn, x: nn.normalize(x, eps=0.5), lambda x: x / 0.5, [x])


# Gradients that do not lie as the input does
# -----------------------------------------------------------------------------


def test_norms_shift_also_where_they_do_not_scale(backend):
    x, shift, weight = normal(0, 3, 4, 5), normal(1, 4), normal(2, 3, 4, 5)

    def loss(network, x, shift):
        nn = network.nn
        last = nn.permute(
            nn.layer_norm(nn.permute(x, (0, 2, 1)), (4,), bias=shift), (0, 2, 1)
        )
        norms = nn.batch_norm_train(x, bias=shift)[0] + 2 * nn.group_norm(
            x, 2, bias=shift
        )
        return nn.sum((norms + 3 * last) * backend.array(weight))

    found = backend.gradients(
        loss, build(Network.on(backend), dtype="float64"), x, shift
    )
    x, shift = (torch.tensor(each, requires_grad=True) for each in (x, shift))
    norms = F.batch_norm(x, None, None, training=True) + 2 * F.group_norm(x, 2)
    norms = norms + 3 * F.layer_norm(x.mT, (4,)).mT + 6 * shift[:, None]
    wanted = (norms * torch.tensor(weight)).sum()
    wanted.backward()
    assert_allclose(found.loss, wanted.item(), rtol=0, atol=1e-12)
    for got, tensor in zip(found.inputs, (x, shift), strict=True):
        assert_allclose(got, tensor.grad.numpy(), rtol=0, atol=1e-12)


def placed(values, layout):
    """An image with its channels last as a batch of one."""
    tensor = torch.tensor(values).permute(2, 0, 1)[None]
    return tensor.contiguous() if layout == "in C order" else tensor


@pytest.mark.parametrize("image", ["in C order", "channels last"])
@pytest.mark.parametrize("gradient", ["in C order", "channels last"])
def test_batch_norm_of_one_image_in_evaluation_reads_gradients_as_they_lie(
    image, gradient
):
    layer = build(backends.get("torch").nn.BatchNorm2d, 4, dtype="float64").eval()
    weights = normal(1, 3, 5, 4)
    tensor = placed(normal(0, 3, 5, 4), image).requires_grad_()
    layer(tensor).backward(placed(weights, gradient))
    found = tensor.grad[0].permute(1, 2, 0)
    assert_allclose(found, weights / np.sqrt(1.0 + 1e-5), rtol=1e-12)


@pytest.mark.parametrize("kind", ["BatchNorm2d", "InstanceNorm2d"])
@pytest.mark.parametrize("image", ["in C order", "channels last"])
@pytest.mark.parametrize("gradient", ["in C order", "channels last"])
def test_norms_of_one_image_on_pytorch_read_gradients_as_they_lie(
    kind, image, gradient
):
    """PyTorch 2.13 itself takes the strides of such a batch for another layout."""
    layer = build(
        getattr(backends.get("torch").nn, kind), 4, affine=True, dtype="float64"
    )
    x, weights = normal(0, 3, 5, 4), normal(1, 3, 5, 4)
    tensor = placed(x, image).requires_grad_()
    layer(tensor).backward(placed(weights, gradient))
    centred = x - x.mean((0, 1))
    standard = centred / np.sqrt(x.var((0, 1)) + 1e-5)
    slopes = (
        weights - weights.mean((0, 1)) - standard * (weights * standard).mean((0, 1))
    )
    wanted = slopes / np.sqrt(x.var((0, 1)) + 1e-5)
    assert_allclose(tensor.grad[0].permute(1, 2, 0), wanted, rtol=0, atol=1e-12)
    assert_allclose(layer.weight.grad, (weights * standard).sum((0, 1)), atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("size", [(1, 3), (3, 1), (1, 1, 3)])
@pytest.mark.parametrize("image", ["in C order", "channels last"])
def test_batch_norm_on_pytorch_reads_gradients_of_flat_images_as_they_lie(
    image, size, training
):
    """PyTorch 2.13 itself takes the strides of an axis of length one for another layout."""
    kind = f"BatchNorm{len(size)}d"
    layer = build(getattr(backends.get("torch").nn, kind), 4, dtype="float64")
    layer.train(training)
    x, weights = normal(0, 2, 4, *size), normal(1, 2, 4, *size)
    tensor, gradient = torch.tensor(x), torch.tensor(weights)
    if image == "in C order":
        gradient = as_it_lies_transposed(gradient)
    else:
        tensor = as_it_lies_transposed(tensor)
    tensor.requires_grad_()
    layer(tensor).backward(gradient)

    def mean(values):
        return values.mean((0, *range(2, x.ndim)), keepdims=True)

    deviation = np.sqrt(mean((x - mean(x)) ** 2) + 1e-5)
    standard = (x - mean(x)) / deviation
    wanted = (weights - mean(weights) - standard * mean(weights * standard)) / deviation
    if not training:
        wanted = weights / np.sqrt(1.0 + 1e-5)
    assert_allclose(tensor.grad.numpy(), wanted, rtol=0, atol=1e-12)


def as_it_lies_transposed(tensor):
    """A batch of images that lie with their axes after the first in the opposite order."""
    dims = (0, *range(tensor.dim() - 1, 0, -1))
    return tensor.permute(dims).contiguous().permute(dims)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_norms_are_those_of_pytorch_for_whoever_asks_for_their_class(rank):
    """Start values and groups without weight decay are often chosen by class."""
    nn = backends.get("torch").nn
    for kind in (f"BatchNorm{rank}d", f"InstanceNorm{rank}d"):
        layer = build(getattr(nn, kind), 3, affine=True)
        assert isinstance(layer, getattr(torch.nn, kind))
