"""The gradient of a transposed convolution, against torch."""

import chainer
import chainer.functions as F
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("batch", [3, 4])
def test_the_weight_of_a_first_deconvolution_gets_its_gradient(batch, rng):
    x = rng.normal(size=(batch, 4, 5, 3))
    weight = rng.normal(size=(4, 2, 3, 3))
    parameter = chainer.Parameter(weight)
    F.sum(F.deconvolution_2d(x, parameter, stride=2) ** 2).backward()
    tensor = torch.tensor(weight, requires_grad=True)
    (
        torch.nn.functional.conv_transpose2d(torch.tensor(x), tensor, stride=2) ** 2
    ).sum().backward()
    np.testing.assert_allclose(parameter.grad, tensor.grad.numpy(), rtol=1e-10)
