"""Interpolation, nearest and linear, in 1 to 3 dimensions."""

import itertools

import numpy as np
import pytest
import torch

from deliralike.nn import geometry
from tests.nn.agreement import (
    FunctionCase,
    agree_all,
    normal,
)

LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def resize(x, size=None, scale_factor=None, mode="nearest", align_corners=False):
    """PyTorch's, which takes `align_corners` for linear modes only, and names them by the number of
    axes."""
    if mode == "nearest":
        return torch.nn.functional.interpolate(x, size, scale_factor, mode)
    return torch.nn.functional.interpolate(
        x, size, scale_factor, LINEAR[x.dim() - 2], align_corners
    )


def nearest(old, new):
    return FunctionCase(
        lambda nn, x: nn.interpolate(x, size=new),
        lambda x: x[:, :, np.arange(new) * old // new],
        [normal(0, 1, 1, old)],
    )


def test_nearest_neighbours_are_exact_where_pytorch_rounds(name):
    agree_all(
        name,
        {
            f"{old} to {new}": nearest(old, new)
            for old in (1, 14, 5)
            for new in (46, 41, 49, 7)
        },
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_nearest_neighbour_is_pytorchs_but_for_its_rounding(dtype):
    for old, new in itertools.product(range(1, 24), range(1, 40)):
        expected = resize(
            torch.arange(float(old), dtype=dtype).reshape(1, 1, old), size=new
        ).flatten()
        rounded = [
            i for i in range(new) if i * old % new == 0
        ]  # where a rounding error may change the neighbour
        keep = np.setdiff1d(np.arange(new), rounded)
        np.testing.assert_array_equal(
            geometry.nearest_index(old, new, None)[keep], expected[keep]
        )


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.7, 0.9, 1.1, 1.3, 1.7, 2.3, 3.3, 7.1])
def test_the_nearest_neighbour_of_a_scale_is_pytorchs_but_for_its_rounding(scale):
    for old in range(10, 40):
        expected = resize(
            torch.arange(float(old), dtype=torch.float64).reshape(1, 1, old),
            scale_factor=scale,
        ).flatten()
        positions = np.arange(len(expected)) / scale
        keep = np.flatnonzero(np.abs(positions - np.round(positions)) > 1e-5)
        assert len(expected) == geometry.resized(old, scale)
        np.testing.assert_array_equal(
            geometry.nearest_index(old, len(expected), scale)[keep], expected[keep]
        )


def of_scale(mode, size, scale, antialias):
    """PyTorch's values alone are the oracle: it has other derivatives where no size changes."""
    settings = {"scale_factor": scale, "mode": mode, "antialias": antialias}
    elements = int(np.prod(size))
    basis = torch.eye(elements, dtype=torch.float64).reshape(elements, 1, *size)
    rows = torch.nn.functional.interpolate(basis, **settings).flatten(1)
    return FunctionCase(
        lambda nn, x: nn.interpolate(x, **settings),
        lambda x: (x.flatten(1) @ rows).reshape(x.shape),
        [normal(0, 2, 1, *size)],
    )


def test_a_scale_that_changes_no_size_counts_as_in_pytorch(name):
    cases = {}
    for mode, antialias in itertools.product(("bilinear", "bicubic"), (False, True)):
        cases[f"{mode} {antialias=}"] = of_scale(mode, (4, 3), 1.2, antialias)
    for mode, size in (("linear", (4,)), ("trilinear", (4, 3, 3)), ("nearest", (4, 3))):
        cases[mode] = of_scale(mode, size, 1.2, False)
    for size in ((4,), (4, 3), (4, 3, 2)):
        cases[f"nearest-exact {size}"] = of_scale("nearest-exact", size, 1.2, False)
    agree_all(name, cases)
