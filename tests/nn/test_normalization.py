"""Batch, instance, group and layer normalisation: outputs, gradients and running statistics."""

import numpy as np
import pytest
import torch

from deliralike import Network, backends, build
from tests.conftest import BACKENDS
from tests.nn.agreement import (
    NAMES,
    LayerCase,
    agree_all,
    agree_function,
    normal,
)

F = torch.nn.functional


@pytest.mark.parametrize("name", NAMES)
def test_batch_norm_is_exact_where_the_mean_is_far_larger_than_the_deviation(name):
    x = normal(0, 4, 3, 5, 5, shift=1e4)
    agree_all(
        name,
        {
            f"training={training}": LayerCase("BatchNorm2d", {"num_features": 3}, [x], training)
            for training in (True, False)
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_norms_of_tiny_values_keep_their_epsilon(name):
    x = normal(3, 2, 2, 3, 3, scale=1e-3)
    agree_all(
        name,
        {
            layer: LayerCase(layer, {"num_features": 2}, [x])
            for layer in ("BatchNorm2d", "InstanceNorm2d")
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_normalize_at_zero_is_finite(name):
    x = np.zeros((2, 3))
    agree_function(name, lambda nn, x: nn.normalize(x, eps=0.5), lambda x: x / 0.5, [x])


# Gradients that do not lie as the input does
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKENDS)
def test_a_batch_norm_shifts_also_where_it_does_not_scale(name):
    def loss(network, x, shift):
        return network.nn.sum(network.nn.batch_norm_train(x, bias=shift)[0] ** 3.0)

    backend, x, shift = backends.get(name), normal(0, 3, 4, 5), normal(1, 4)
    found = backend.gradients(loss, build(Network.on(backend), dtype="float64"), x, shift)
    x, shift = (torch.tensor(each, requires_grad=True) for each in (x, shift))
    wanted = (F.batch_norm(x, None, None, bias=shift, training=True) ** 3.0).sum()
    wanted.backward()
    np.testing.assert_allclose(found.loss, wanted.item(), rtol=0, atol=1e-12)
    for got, tensor in zip(found.inputs, (x, shift), strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=0, atol=1e-12)


def placed(values, layout):
    """An image with its channels last as a batch of one."""
    tensor = torch.tensor(values).permute(2, 0, 1)[None]
    return tensor.contiguous() if layout == "in C order" else tensor


@pytest.mark.parametrize("image", ["in C order", "channels last"])
@pytest.mark.parametrize("gradient", ["in C order", "channels last"])
def test_batch_norm_of_one_image_in_evaluation_reads_gradients_as_they_lie(image, gradient):
    layer = build(backends.get("torch").nn.BatchNorm2d, 4, dtype="float64").eval()
    weights = normal(1, 3, 5, 4)
    tensor = placed(normal(0, 3, 5, 4), image).requires_grad_()
    layer(tensor).backward(placed(weights, gradient))
    found = tensor.grad[0].permute(1, 2, 0)
    np.testing.assert_allclose(found, weights / np.sqrt(1.0 + 1e-5), rtol=1e-12)


@pytest.mark.parametrize("kind", ["BatchNorm2d", "InstanceNorm2d"])
@pytest.mark.parametrize("image", ["in C order", "channels last"])
@pytest.mark.parametrize("gradient", ["in C order", "channels last"])
def test_norms_of_one_image_on_pytorch_read_gradients_as_they_lie(kind, image, gradient):
    """PyTorch 2.13 itself takes the strides of such a batch for another layout."""
    layer = build(getattr(backends.get("torch").nn, kind), 4, affine=True, dtype="float64")
    x, weights = normal(0, 3, 5, 4), normal(1, 3, 5, 4)
    tensor = placed(x, image).requires_grad_()
    layer(tensor).backward(placed(weights, gradient))
    centred = x - x.mean((0, 1))
    standard = centred / np.sqrt(x.var((0, 1)) + 1e-5)
    slopes = weights - weights.mean((0, 1)) - standard * (weights * standard).mean((0, 1))
    wanted = slopes / np.sqrt(x.var((0, 1)) + 1e-5)
    np.testing.assert_allclose(tensor.grad[0].permute(1, 2, 0), wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.weight.grad, (weights * standard).sum((0, 1)), atol=1e-12)
