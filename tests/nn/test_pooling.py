"""Pooling: sizes in ceil mode, what padding counts for, windows that share a maximum, adaptive sizes."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from deliralike.nn import geometry
from tests.nn.agreement import NAMES, agree, agree_function, normal, numbers, per_axis, property_test, spread

F = torch.nn.functional
# size, kernel, stride, padding: 96 in all
WINDOWS = [(n, k, s, p) for n, k, s, p in itertools.product(range(4, 12), (2, 3), (1, 2, 3), (0, 1))]


def has_one_more_in_ceil_mode(size, *window):
    x = torch.zeros(1, 1, size)
    return F.max_pool1d(x, *window, ceil_mode=True).shape != F.max_pool1d(x, *window).shape


LARGER = [window for window in WINDOWS if has_one_more_in_ceil_mode(*window)]  # the others are the same in both modes


@st.composite
def windows(draw, dilated):
    n = draw(st.integers(1, 3))
    kernel = draw(per_axis(st.integers(1, 4), n))
    half = min(spread(kernel, n)) // 2
    settings = {"kernel_size": kernel, "stride": draw(st.one_of(st.none(), per_axis(st.integers(1, 4), n))),
                "padding": draw(per_axis(st.integers(0, half), n)), "ceil_mode": draw(st.booleans())}  # fmt: skip
    dilation = draw(per_axis(st.integers(1, 2), n)) if dilated else 1
    settings |= {"dilation": dilation} if dilated else {"count_include_pad": draw(st.booleans())}
    reach = [d * (k - 1) + 1 for k, d in zip(spread(kernel, n), spread(dilation, n), strict=True)]
    pads = (0,) * n if n == 3 and not dilated else spread(settings["padding"], n)  # avg_pool3d wants the kernel's size
    size = [max(1, r - 2 * p) + draw(st.integers(0, 4)) for r, p in zip(reach, pads, strict=True)]
    size = [max(s, d) for s, d in zip(size, spread(dilation, n), strict=True)]  # no window holds padding alone
    return n, settings, (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *size)


@property_test(12, case=windows(dilated=True), seed=numbers)
def test_max_pools_of_any_settings_agree(name, case, seed):
    n, settings, shape = case
    agree(name, f"MaxPool{n}d", settings, [normal(seed, *shape)])


@property_test(12, case=windows(dilated=False), seed=numbers)
def test_average_pools_of_any_settings_agree(name, case, seed):
    n, settings, shape = case
    agree(name, f"AvgPool{n}d", settings, [normal(seed, *shape)])


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_max_pools_agree_in_96_combinations_of_size_kernel_stride_and_padding(name, ceil_mode):
    def pools(pool, x):
        return [pool(x[:, :, :n], *w, ceil_mode=ceil_mode) for n, *w in (LARGER if ceil_mode else WINDOWS)]

    agree_function(name, lambda nn, x: pools(nn.max_pool1d, x), lambda x: pools(F.max_pool1d, x), [normal(0, 2, 1, 11)])


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_average_pools_agree_in_96_combinations_of_size_kernel_stride_and_padding(name, count_include_pad, ceil_mode):
    windows = LARGER if ceil_mode else WINDOWS
    windows = windows if count_include_pad else [window for window in windows if window[3]]

    def pools(pool, x):
        return [pool(x[:, :, :n], *w, ceil_mode, count_include_pad) for n, *w in windows]

    agree_function(name, lambda nn, x: pools(nn.avg_pool1d, x), lambda x: pools(F.avg_pool1d, x), [normal(0, 2, 1, 11)])


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_length_after_pooling_is_pytorchs(window, ceil_mode):
    n, k, s, p = window
    expected = F.max_pool1d(torch.zeros(1, 1, n), k, s, p, ceil_mode=ceil_mode).shape[2]
    assert geometry.pool_size(n, k, s, p, 1, ceil_mode) == expected
    before, after = geometry.pool_pads(n, k, s, p, 1, ceil_mode)
    assert (n + before + after - k) // s + 1 == expected


@pytest.mark.parametrize("settings", [dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=2, stride=1)])
@pytest.mark.parametrize("name", NAMES)
def test_the_first_of_equal_maxima_in_a_window_takes_the_gradient(name, settings):
    x = np.random.default_rng(5).integers(0, 2, (2, 3, 7, 6)).astype(float)
    agree(name, "MaxPool2d", settings, [x])


@pytest.mark.parametrize("layer", ["MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d"])
@pytest.mark.parametrize("name", NAMES)
def test_in_ceil_mode_one_window_may_be_larger_than_the_input(name, layer):
    shape = (2, 1, 2) if layer.endswith("1d") else (2, 1, 2, 2)
    agree(name, layer, {"kernel_size": 3, "stride": 2, "ceil_mode": True}, [normal(0, *shape)])


@st.composite
def adaptive(draw):
    n = draw(st.integers(1, 3))
    size = [draw(st.integers(1, 7)) for _ in range(n)]
    return n, draw(per_axis(st.integers(1, 8), n)), (2, draw(st.integers(1, 2)), *size)


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@property_test(7, case=adaptive(), seed=numbers)
def test_adaptive_pools_to_smaller_and_larger_sizes_agree(name, kind, case, seed):
    n, output_size, shape = case
    agree(name, f"Adaptive{kind}Pool{n}d", {"output_size": output_size}, [normal(seed, *shape)])


@pytest.mark.parametrize("name", NAMES)
def test_the_first_of_equal_maxima_of_an_adaptive_window_takes_the_gradient(name):
    x = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 2.0], [2.0, 2.0, 0.0]]).reshape(1, 1, 3, 3)
    agree(name, "AdaptiveMaxPool2d", {"output_size": 2}, [x])
    agree(name, "AdaptiveMaxPool2d", {"output_size": 1}, [x])


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_pooling_functions_for_a_number_of_axes_agree(name, n):
    agree_function(
        name,
        lambda nn, x: [getattr(nn, f"max_pool{n}d")(x, 3, 2, 1), getattr(nn, f"avg_pool{n}d")(x, 2),
                       getattr(nn, f"adaptive_avg_pool{n}d")(x, 2), getattr(nn, f"adaptive_max_pool{n}d")(x, 3)],
        lambda x: [getattr(F, f"max_pool{n}d")(x, 3, 2, 1), getattr(F, f"avg_pool{n}d")(x, 2),
                   getattr(F, f"adaptive_avg_pool{n}d")(x, 2), getattr(F, f"adaptive_max_pool{n}d")(x, 3)],
        [normal(n, 2, 2, *(5, 7, 4)[:n])],
    )  # fmt: skip
