"""Pooling: sizes in ceil mode, what padding counts for, windows that share a maximum, adaptive
sizes."""

import itertools
from functools import cache

import pytest
import torch

from deliralike.nn import geometry
from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    LayerCase,
    agree_all,
    normal,
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
    """Of three sizes; in ceil mode those that are not the same in both modes."""
    windows = [window for window in WINDOWS if window[0] in (5, 8, 11)]
    return [window for window in windows if not ceil_mode or has_one_more_in_ceil_mode(*window)]


def max_pools(ceil_mode):
    def pools(pool, x):
        return [pool(x[:, :, :n], *w, ceil_mode=ceil_mode) for n, *w in windows_in(ceil_mode)]

    return FunctionCase(
        lambda nn, x: pools(nn.max_pool1d, x),
        lambda x: pools(F.max_pool1d, x),
        [normal(0, 2, 1, 11)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_max_pools_agree_in_combinations_of_size_kernel_stride_and_padding(name):
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
def test_average_pools_agree_in_combinations_of_size_kernel_stride_and_padding(name):
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
