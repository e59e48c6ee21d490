"""Pooling: sizes in ceil mode, what padding counts for, windows that share a maximum, adaptive
sizes."""

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from deliralike.nn import geometry
from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    LayerCase,
    agree_all,
    normal,
    numbers,
    per_axis,
    property_test,
    spread,
)

F = torch.nn.functional
# size, kernel, stride, padding: 96 in all
WINDOWS = [
    (n, k, s, p) for n, k, s, p in itertools.product(range(4, 12), (2, 3), (1, 2, 3), (0, 1))
]


def has_one_more_in_ceil_mode(size, *window):
    x = torch.zeros(1, 1, size)
    return F.max_pool1d(x, *window, ceil_mode=True).shape != F.max_pool1d(x, *window).shape


@cache
def windows_in(ceil_mode):
    """In ceil mode those that are not the same in both modes."""
    return [window for window in WINDOWS if not ceil_mode or has_one_more_in_ceil_mode(*window)]


@st.composite
def windows(draw, dilated):
    n = draw(st.integers(1, 3))
    kernel = draw(per_axis(st.integers(1, 4), n))
    half = min(spread(kernel, n)) // 2
    settings = {
        "kernel_size": kernel,
        "stride": draw(st.one_of(st.none(), per_axis(st.integers(1, 4), n))),
        "padding": draw(per_axis(st.integers(0, half), n)),
        "ceil_mode": draw(st.booleans()),
    }
    dilation = draw(per_axis(st.integers(1, 2), n)) if dilated else 1
    settings |= {"dilation": dilation} if dilated else {"count_include_pad": draw(st.booleans())}
    reach = [d * (k - 1) + 1 for k, d in zip(spread(kernel, n), spread(dilation, n), strict=True)]
    pads = (
        (0,) * n if n == 3 and not dilated else spread(settings["padding"], n)
    )  # avg_pool3d wants the kernel's size
    size = [max(1, r - 2 * p) + draw(st.integers(0, 4)) for r, p in zip(reach, pads, strict=True)]
    size = [
        max(s, d) for s, d in zip(size, spread(dilation, n), strict=True)
    ]  # no window holds padding alone
    return n, settings, (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *size)


@property_test(12, case=windows(dilated=True), seed=numbers)
def test_max_pools_of_any_settings_agree(case, seed):
    n, settings, shape = case
    return LayerCase(f"MaxPool{n}d", settings, [normal(seed, *shape)])


@property_test(12, case=windows(dilated=False), seed=numbers)
def test_average_pools_of_any_settings_agree(case, seed):
    n, settings, shape = case
    return LayerCase(f"AvgPool{n}d", settings, [normal(seed, *shape)])


def max_pools(ceil_mode):
    def pools(pool, x):
        return [pool(x[:, :, :n], *w, ceil_mode=ceil_mode) for n, *w in windows_in(ceil_mode)]

    return FunctionCase(
        lambda nn, x: pools(nn.max_pool1d, x),
        lambda x: pools(F.max_pool1d, x),
        [normal(0, 2, 1, 11)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_max_pools_agree_in_96_combinations_of_size_kernel_stride_and_padding(name):
    agree_all(name, {f"{ceil_mode=}": max_pools(ceil_mode) for ceil_mode in (False, True)})


def average_pools(count_include_pad, ceil_mode):
    windows = [window for window in windows_in(ceil_mode) if count_include_pad or window[3]]

    def pools(pool, x):
        return [pool(x[:, :, :n], *w, ceil_mode, count_include_pad) for n, *w in windows]

    return FunctionCase(
        lambda nn, x: pools(nn.avg_pool1d, x),
        lambda x: pools(F.avg_pool1d, x),
        [normal(0, 2, 1, 11)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_average_pools_agree_in_96_combinations_of_size_kernel_stride_and_padding(name):
    agree_all(
        name,
        {
            f"{count_include_pad=} {ceil_mode=}": average_pools(count_include_pad, ceil_mode)
            for count_include_pad in (False, True)
            for ceil_mode in (False, True)
        },
    )


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_the_length_after_pooling_is_pytorchs(ceil_mode):
    for n, k, s, p in WINDOWS:
        expected = F.max_pool1d(torch.zeros(1, 1, n), k, s, p, ceil_mode=ceil_mode).shape[2]
        assert geometry.pool_size(n, k, s, p, 1, ceil_mode) == expected, (n, k, s, p)
        before, after = geometry.pool_pads(n, k, s, p, 1, ceil_mode)
        assert (n + before + after - k) // s + 1 == expected, (n, k, s, p)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_of_equal_maxima_in_a_window_takes_the_gradient(name):
    x = np.random.default_rng(5).integers(0, 2, (2, 3, 7, 6)).astype(float)
    settings = [dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=2, stride=1)]
    agree_all(name, {str(each): LayerCase("MaxPool2d", each, [x]) for each in settings})


@pytest.mark.parametrize("name", NAMES)
def test_in_ceil_mode_one_window_may_be_larger_than_the_input(name):
    shapes = {
        "MaxPool1d": (2, 1, 2),
        "MaxPool2d": (2, 1, 2, 2),
        "AvgPool1d": (2, 1, 2),
        "AvgPool2d": (2, 1, 2, 2),
    }
    settings = {"kernel_size": 3, "stride": 2, "ceil_mode": True}
    agree_all(
        name,
        {layer: LayerCase(layer, settings, [normal(0, *shape)]) for layer, shape in shapes.items()},
    )


@st.composite
def adaptive(draw):
    n = draw(st.integers(1, 3))
    size = [draw(st.integers(1, 7)) for _ in range(n)]
    return n, draw(per_axis(st.integers(1, 8), n)), (2, draw(st.integers(1, 2)), *size)


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@property_test(7, case=adaptive(), seed=numbers)
def test_adaptive_pools_to_smaller_and_larger_sizes_agree(kind, case, seed):
    n, output_size, shape = case
    return LayerCase(
        f"Adaptive{kind}Pool{n}d", {"output_size": output_size}, [normal(seed, *shape)]
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_first_of_equal_maxima_of_an_adaptive_window_takes_the_gradient(name):
    x = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 2.0], [2.0, 2.0, 0.0]]).reshape(1, 1, 3, 3)
    agree_all(
        name,
        {
            f"to {size}": LayerCase("AdaptiveMaxPool2d", {"output_size": size}, [x])
            for size in (2, 1)
        },
    )


def pools_over(n):
    return FunctionCase(
        lambda nn, x: [
            getattr(nn, f"max_pool{n}d")(x, 3, 2, 1),
            getattr(nn, f"avg_pool{n}d")(x, 2),
            getattr(nn, f"adaptive_avg_pool{n}d")(x, 2),
            getattr(nn, f"adaptive_max_pool{n}d")(x, 3),
        ],
        lambda x: [
            getattr(F, f"max_pool{n}d")(x, 3, 2, 1),
            getattr(F, f"avg_pool{n}d")(x, 2),
            getattr(F, f"adaptive_avg_pool{n}d")(x, 2),
            getattr(F, f"adaptive_max_pool{n}d")(x, 3),
        ],
        [normal(n, 2, 2, *(5, 7, 4)[:n])],
    )


@pytest.mark.parametrize("name", NAMES)
def test_pooling_functions_for_a_number_of_axes_agree(name):
    agree_all(name, {f"{n} axes": pools_over(n) for n in (1, 2, 3)})
