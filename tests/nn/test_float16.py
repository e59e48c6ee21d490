"""Norms and averages of float16, whose squares and sums go beyond its largest number, 65504: values
and gradients are PyTorch's, which adds in float32."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from deliralike import DataParallel, build
from tests.parallel.networks import devices

F = torch.nn.functional
RNG = np.random.default_rng(0)
LARGE = (RNG.normal(size=(4, 8, 5)) * 400).astype(np.float16)  # with squares of 160,000
SMALL = (RNG.normal(size=(4, 8, 5)) * 1e-2).astype(np.float16)
MANY = RNG.normal(size=(64, 2, 40, 40)).astype(np.float16)  # 102,400 of each channel

CASES = {
    "var": lambda nn, f, x: nn.var(x * 0.1, 1),
    "std": lambda nn, f, x: nn.std(x, 1),
    "std_mean": lambda nn, f, x: nn.std_mean(x, 1)[0],
    "norm": lambda nn, f, x: nn.norm(x, 2, 1),
    "normalize": lambda nn, f, x: f.normalize(x),
    "cosine_similarity": lambda nn, f, x: f.cosine_similarity(x, x + 100, 1),
    "pairwise_distance": lambda nn, f, x: f.pairwise_distance(x, x * 2.0),
    "group_norm": lambda nn, f, x: f.group_norm(x, 4),
    "instance_norm": lambda nn, f, x: f.instance_norm(x),
    "layer_norm": lambda nn, f, x: f.layer_norm(x, (8, 5)),
    "rms_norm": lambda nn, f, x: f.rms_norm(x, (5,)),
    "batch_norm": lambda nn, f, x: batch_norm(nn, x),
    "avg_pool1d": lambda nn, f, x: f.avg_pool1d(x * 0.0 + 20000.0, 5),
}


def batch_norm(nn, x):
    if nn is torch:
        return F.batch_norm(x, None, None, training=True)
    return nn.batch_norm_train(x)[0]


def compare(backend, function, x):
    nn = backend.nn
    given = backend.array(x, "float16")
    factors = np.linspace(-1.0, 1.0, x.size)

    def total(nn, f, x, constant):
        y = function(nn, f, x)
        weights = constant(factors[: math.prod(y.shape)])
        return nn.sum(nn.reshape(y, (-1,)) * weights)

    found = function(nn, nn, given)
    assert str(found.dtype).endswith("float16")
    gradient = nn.gradient(
        lambda x: total(nn, nn, x, lambda values: nn.constant(values, like=x)), given
    )
    tensor = torch.tensor(x, requires_grad=True)
    wanted = function(torch, F, tensor)
    total(torch, F, tensor, lambda values: torch.tensor(values).half()).backward()
    limits = {"rtol": 2e-2, "atol": 2e-2}
    assert_allclose(backend.numpy(found), wanted.detach().numpy(), **limits)
    assert_allclose(backend.numpy(gradient), tensor.grad.numpy(), **limits)


@pytest.mark.filterwarnings("ignore:overflow encountered")  # a variance of 160,000
@pytest.mark.parametrize("case", CASES)
def test_squares_of_large_numbers_do_not_overflow(backend, case):
    compare(backend, CASES[case], LARGE)


@pytest.mark.parametrize("case", ["var", "std", "batch_norm", "group_norm"])
def test_sums_of_many_squares_do_not_overflow(backend, case):
    function = {
        "var": lambda nn, f, x: nn.var(x),
        "std": lambda nn, f, x: nn.std(x),
        "batch_norm": lambda nn, f, x: batch_norm(nn, x),
        "group_norm": lambda nn, f, x: f.group_norm(nn.permute(x, (1, 0, 2, 3)), 1),
    }[case]
    compare(backend, function, MANY)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_layer_in_16_bits_adds_the_epsilon_of_float32(backend, dtype):
    if dtype not in backend.dtypes:
        pytest.skip(f"{backend.name} has no {dtype}")
    found = backend.nn.rms_norm(backend.array(SMALL, dtype), (5,))
    wanted = F.rms_norm(torch.tensor(SMALL).to(getattr(torch, dtype)), (5,))
    found = backend.numpy(backend.nn.cast(found, "float32"))
    assert_allclose(found, wanted.float().numpy(), rtol=2e-2)


def test_statistics_over_replicas_do_not_overflow(backend):
    network = build(backend.nn.BatchNorm2d, 2, dtype="float16").train()
    replicated = DataParallel(network, devices(backend, 2), buffers="sync")
    found = backend.to_numpy(replicated(backend.prepare(MANY, replicated)))
    wanted = F.batch_norm(torch.tensor(MANY), None, None, training=True)
    assert_allclose(found, wanted.numpy(), atol=1e-2)
    variance = replicated.neutral_state()["running_var"]
    assert_allclose(variance, 1.0, atol=1e-2)
