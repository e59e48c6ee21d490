"""Normalization and dropout against torch and NumPy formulas."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from deliralike import wrap

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")

SHAPES = [(5, 3), (5, 3, 7), (3, 3, 5, 4), (2, 3, 3, 2, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_normalization_is_that_of_torch(shape, rng, agree):
    axis = (0, *range(2, len(shape)))
    agree(
        lambda x, g, b: F.batch_normalization(x, g, b, eps=1e-3, axis=axis),
        lambda x, g, b: torch.nn.functional.batch_norm(
            x, None, None, g, b, training=True, eps=1e-3
        ),
        rng.normal(1, 2, size=shape),
        rng.normal(size=3),
        rng.normal(size=3),
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fixed_batch_normalization_uses_the_given_statistics(shape, rng, agree):
    axis = (0, *range(2, len(shape)))
    agree(
        lambda x, g, b, m, v: F.fixed_batch_normalization(x, g, b, m, v, eps=1e-3, axis=axis),
        lambda x, g, b, m, v: torch.nn.functional.batch_norm(
            x, m.detach(), v.detach(), g, b, eps=1e-3
        ),
        rng.normal(1, 2, size=shape),
        rng.normal(size=3),
        rng.normal(size=3),
        rng.normal(size=3),
        rng.uniform(0.5, 2, size=3),
    )


def test_the_running_variance_is_the_unbiased_one_as_in_torch(rng):
    x = rng.normal(1, 2, size=(4, 3, 5, 3))
    link, module = (
        L.BatchNormalization(3, decay=0.9, eps=1e-5, dtype=np.float64),
        torch.nn.BatchNorm2d(3).double(),
    )
    with chainer.using_config("train", True):
        link(x)
        link(2 * x)
    module(torch.tensor(x))
    module(torch.tensor(2 * x))
    np.testing.assert_allclose(link.avg_mean, module.running_mean, rtol=1e-12)
    np.testing.assert_allclose(link.avg_var, module.running_var, rtol=1e-12)


def test_batch_normalization_normalizes_with_the_biased_variance(rng):
    x = rng.normal(size=(5, 3))
    y = F.batch_normalization(x, np.ones(3), np.zeros(3), eps=1e-5).array
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-12)


def test_evaluation_uses_the_running_statistics_and_leaves_them_alone(rng):
    link = L.BatchNormalization(3, dtype=np.float64)
    with chainer.using_config("train", True):
        link(rng.normal(size=(5, 3, 4)))
    mean, variance = link.avg_mean.copy(), link.avg_var.copy()
    x = rng.normal(size=(2, 3, 4))
    with chainer.using_config("train", False):
        y = link(x).array
    np.testing.assert_allclose(
        y, (x - mean[:, None]) / np.sqrt(variance[:, None] + link.eps), rtol=1e-12
    )
    np.testing.assert_array_equal([link.avg_mean, link.avg_var], [mean, variance])


def test_finetune_makes_the_running_mean_a_plain_mean(rng):
    link = L.BatchNormalization(3, dtype=np.float64)
    batches = rng.normal(size=(4, 5, 3))
    link.start_finetuning()
    with chainer.using_config("train", True):
        for batch in batches:
            link(batch, finetune=True)
    np.testing.assert_allclose(link.avg_mean, batches.mean((0, 1)), rtol=1e-12)


def test_a_float16_batch_is_normalized_with_float32_statistics(rng):
    x = rng.normal(size=(5, 3, 4)).astype("float16")
    link = L.BatchNormalization(3, dtype=np.float16)
    with chainer.using_config("train", True):
        y = link(x)
    expected = (x - x.mean((0, 2), keepdims=True, dtype=float)) / x.std(
        (0, 2), keepdims=True, dtype=float
    )
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.array, expected, atol=1e-2)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_normalization_is_that_of_torch(groups, rng, agree):
    agree(
        lambda x, g, b: F.group_normalization(x, groups, g, b, eps=1e-3),
        lambda x, g, b: torch.nn.functional.group_norm(x, groups, g, b, eps=1e-3),
        rng.normal(1, 2, size=(3, 6, 5, 3)),
        rng.normal(size=6),
        rng.normal(size=6),
    )


def test_layer_normalization_is_that_of_torch(rng, agree):
    agree(
        lambda x, g, b: F.layer_normalization(x, g, b, eps=1e-3),
        lambda x, g, b: torch.nn.functional.layer_norm(x, (7,), g, b, eps=1e-3),
        rng.normal(1, 2, size=(5, 7)),
        rng.normal(size=7),
        rng.normal(size=7),
    )


def test_l2_normalization_adds_eps_to_the_norm(rng, agree):
    agree(
        lambda x: F.normalize(x, eps=1e-3, axis=1),
        lambda x: x / (x.norm(dim=1, keepdim=True) + 1e-3),
        rng.normal(size=(5, 3, 2)),
    )


def test_local_response_normalization_sums_where_torch_averages(rng, agree):
    agree(
        lambda x: F.local_response_normalization(x, n=5, k=2, alpha=1e-2, beta=0.75),
        lambda x: torch.nn.functional.local_response_norm(x, 5, alpha=5e-2, beta=0.75, k=2),
        rng.normal(size=(2, 7, 3, 5)),
    )


SMALL = np.float64(0.1)
WITH_NUMPY_SCALARS = {
    "batch": lambda x, ones: F.batch_normalization(x, ones, ones, eps=SMALL),
    "group": lambda x, ones: F.group_normalization(x, 3, ones, ones, eps=SMALL),
    "layer": lambda x, ones: F.layer_normalization(x, ones, ones, eps=SMALL),
    "l2": lambda x, ones: F.normalize(x, eps=SMALL),
    "local response": lambda x, ones: F.local_response_normalization(
        x, k=SMALL, alpha=SMALL, beta=SMALL
    ),
    "dropout": lambda x, ones: F.dropout(x, SMALL),
    "clip": lambda x, ones: F.clip(x, -SMALL, SMALL),
    "leaky relu": lambda x, ones: F.leaky_relu(x, SMALL),
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", WITH_NUMPY_SCALARS)
def test_a_numpy_scalar_among_the_settings_does_not_widen_the_arrays(name, dtype, rng):
    x = chainer.Variable(rng.normal(size=(5, 3)).astype(dtype))
    y = WITH_NUMPY_SCALARS[name](x, np.ones(3, dtype))
    F.sum(y).backward()
    assert (y.dtype, x.grad.dtype) == (np.dtype(dtype), np.dtype(dtype))


def test_dropout_keeps_about_the_wanted_share_and_scales_it():
    x = chainer.Variable(np.ones((211, 101), "float32"))
    with chainer.using_config("train", True):
        y = F.dropout(x, 0.3)
    F.sum(y).backward()
    np.testing.assert_allclose(np.unique(y.array), [0, 1 / 0.7], rtol=1e-6)
    np.testing.assert_allclose((y.array != 0).mean(), 0.7, atol=0.01)
    np.testing.assert_array_equal(x.grad, y.array)


def test_dropout_does_nothing_in_evaluation(rng):
    x = rng.normal(size=(5, 3))
    with chainer.using_config("train", False):
        np.testing.assert_array_equal(F.dropout(x, 0.5).array, x)


def test_dropout_takes_a_given_mask(rng):
    x, mask = rng.normal(size=(5, 3)), rng.integers(0, 2, size=(5, 3)) * 2.0
    with chainer.using_config("train", True):
        np.testing.assert_array_equal(F.dropout(x, 0.5, mask=mask).array, x * mask)


def test_the_numpy_seed_decides_what_dropout_drops():
    draws = []
    with chainer.using_config("train", True):
        for _ in range(2):
            np.random.seed(3)
            draws.append(F.dropout(np.ones((7, 5), "float32")).array)
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("training", [True, False])
def test_a_copy_in_another_type_normalizes_in_it_without_gamma_and_beta(rng, training):
    link = L.BatchNormalization(3, eps=1e-3, use_gamma=False, use_beta=False)
    x = rng.normal(1, 2, size=(4, 3, 5))
    mean, variance = rng.normal(size=3), rng.uniform(0.5, 2, size=3)
    link.avg_mean[...], link.avg_var[...] = mean, variance
    copy = wrap(link).backend.in_dtype(wrap(link), "float64")
    with chainer.using_config("train", training):
        y = copy(chainer.Variable(x))
    if training:
        mean, variance = x.mean((0, 2)), x.var((0, 2))
    else:
        mean, variance = (value.astype("float32").astype(float) for value in (mean, variance))
    expected = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-3)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y.array, expected, rtol=1e-12)
    assert link(x.astype("float32")).dtype == np.float32
