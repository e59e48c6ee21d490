"""Pooling and unpooling against torch, a plain NumPy window, and finite differences."""

import itertools

import chainer.functions as F
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")

SIZES = {1: (11,), 2: (9, 7), 3: (7, 5, 6)}
MAXIMA = {
    1: torch.nn.functional.max_pool1d,
    2: torch.nn.functional.max_pool2d,
    3: torch.nn.functional.max_pool3d,
}
MEANS = {
    1: torch.nn.functional.avg_pool1d,
    2: torch.nn.functional.avg_pool2d,
    3: torch.nn.functional.avg_pool3d,
}


def _windows(x, kernel, stride, pad, cover_all):
    """For each output position, the part of `x` below its window: {position: array (batch,
    channels, values)}."""
    spans = []
    for size in x.shape[2:]:
        room = size + 2 * pad - kernel
        count = (-(-room // stride) if cover_all else room // stride) + 1
        starts = [i * stride - pad for i in range(count)]
        spans.append([slice(max(start, 0), max(min(start + kernel, size), 0)) for start in starts])
    positions = itertools.product(*(range(len(span)) for span in spans))
    return {
        position: x[(..., *(span[i] for span, i in zip(spans, position, strict=True)))].reshape(
            *x.shape[:2], -1
        )
        for position in positions
    }


@pytest.mark.parametrize("cover_all", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 0), (3, 2, 1), (4, 3, 1)])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_max_pooling_takes_the_largest_of_each_window(
    ndim, kernel, stride, pad, cover_all, rng, slope
):
    x = rng.permutation(6 * np.prod(SIZES[ndim])).reshape(3, 2, *SIZES[ndim]).astype("float64")

    def pool(x):
        return F.max_pooling_nd(x, kernel, stride, pad, cover_all=cover_all)

    y = pool(x).array
    expected = {p: w.max(-1) for p, w in _windows(x, kernel, stride, pad, cover_all).items()}
    assert y.shape[2:] == tuple(np.max(list(expected), axis=0) + 1)
    for position, value in expected.items():
        np.testing.assert_array_equal(y[(..., *position)], value)
    slope(pool, x, step=1e-3)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_max_pooling_without_cover_all_is_that_of_torch(ndim, rng, agree):
    agree(
        lambda x: F.max_pooling_nd(x, 3, 2, 1, cover_all=False),
        lambda x: MAXIMA[ndim](x, 3, 2, 1),
        rng.normal(size=(3, 2, *SIZES[ndim])),
    )


@pytest.mark.parametrize("pad_value", [0, None])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_average_pooling_counts_the_padding_only_as_zeros(ndim, pad_value, rng, agree):
    agree(
        lambda x: F.average_pooling_nd(x, 3, 2, 1, pad_value=pad_value),
        lambda x: MEANS[ndim](x, 3, 2, 1, count_include_pad=pad_value == 0),
        rng.normal(size=(3, 2, *SIZES[ndim])),
    )


def test_average_pooling_2d_is_that_of_torch(rng, agree):
    agree(
        lambda x: F.average_pooling_2d(x, 3, 2, 1),
        lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1),
        rng.normal(size=(3, 2, 9, 7)),
    )


def test_the_indexes_of_max_pooling_count_within_the_window(rng):
    x = rng.normal(size=(1, 1, 4, 6))
    y, indexes = F.max_pooling_2d(x, 2, 2, return_indices=True)
    patches = x.reshape(2, 2, 3, 2).transpose(0, 2, 1, 3).reshape(2, 3, 4)
    np.testing.assert_array_equal(indexes[0, 0], patches.argmax(-1))
    np.testing.assert_array_equal(y.array[0, 0], patches.max(-1))


def test_upsampling_puts_the_maxima_back_where_they_were(rng):
    x = rng.normal(size=(2, 3, 4, 6))
    y, indexes = F.max_pooling_2d(x, 2, 2, return_indices=True)
    back = F.upsampling_2d(y, indexes, 2, 2, outsize=(4, 6)).array
    tensor, places = torch.nn.functional.max_pool2d(torch.tensor(x), 2, 2, return_indices=True)
    np.testing.assert_array_equal(
        back, torch.nn.functional.max_unpool2d(tensor, places, 2, 2).numpy()
    )


@pytest.mark.parametrize("cover_all", [True, False])
def test_unpooling_repeats_each_value(cover_all, rng, slope):
    x = rng.normal(size=(2, 3, 5, 3))
    y = F.unpooling_2d(x, 2, cover_all=cover_all).array
    repeated = x.repeat(2, axis=2).repeat(2, axis=3)
    np.testing.assert_array_equal(y, repeated[..., :-1, :-1] if cover_all else repeated)
    slope(lambda x: F.unpooling_2d(x, 2, cover_all=cover_all), x)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_unpooling_nd_adds_up_overlapping_windows(ndim, rng, agree):
    sizes = tuple(size // 2 for size in SIZES[ndim])
    transposes = {
        1: torch.nn.functional.conv_transpose1d,
        2: torch.nn.functional.conv_transpose2d,
        3: torch.nn.functional.conv_transpose3d,
    }
    agree(
        lambda x: F.unpooling_nd(x, 3, 2, 1, cover_all=False),
        lambda x: transposes[ndim](
            x, torch.ones(2, 1, *[3] * ndim, dtype=x.dtype), stride=2, padding=1, groups=2
        ),
        rng.normal(size=(3, 2, *sizes)),
    )


def test_global_average_pooling_is_a_mean(rng, agree):
    agree(
        lambda x: F.average(x, axis=(2, 3)), lambda x: x.mean((2, 3)), rng.normal(size=(3, 2, 5, 7))
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_pooling_keeps_the_dtype(dtype, rng):
    x = rng.normal(size=(2, 3, 7, 5)).astype(dtype)
    assert {F.max_pooling_2d(x, 3, 2).dtype, F.average_pooling_2d(x, 3, 2).dtype} == {
        np.dtype(dtype)
    }
