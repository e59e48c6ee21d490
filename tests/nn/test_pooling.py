"""Pooling: sizes in ceil mode, what padding counts for, windows that share a maximum, adaptive
sizes."""

import itertools

import pytest
import torch

from deliralike.nn import geometry

F = torch.nn.functional
# size, kernel, stride, padding: 96 in all
WINDOWS = [
    (n, k, s, p)
    for n, k, s, p in itertools.product(range(4, 12), (2, 3), (1, 2, 3), (0, 1))
]


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_the_length_after_pooling_is_pytorchs(ceil_mode):
    for n, k, s, p in WINDOWS:
        expected = F.max_pool1d(
            torch.zeros(1, 1, n), k, s, p, ceil_mode=ceil_mode
        ).shape[2]
        assert geometry.pool_size(n, k, s, p, 1, ceil_mode) == expected, (n, k, s, p)
        before, after = geometry.pool_pads(n, k, s, p, 1, ceil_mode)
        assert (n + before + after - k) // s + 1 == expected, (n, k, s, p)
