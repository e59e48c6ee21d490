"""Names, shapes and counts, against published numbers and lists written out here."""

from itertools import product

import pytest

from deliralike import zoo


def test_small_residual_networks_have_the_size_that_the_paper_states(subtests):
    millions = {20: 0.27, 32: 0.46, 44: 0.66, 56: 0.85, 110: 1.7}
    for depth, shortcut in product(millions, "AB"):
        n = (depth - 2) // 6
        weights = 9 * (
            3 * 16
            + 2 * n * 16 * 16
            + (16 + (2 * n - 1) * 32) * 32
            + (32 + (2 * n - 1) * 64) * 64
        )
        norms = 2 * (16 + 2 * n * (16 + 32 + 64))
        linear = 64 * 10 + 10
        projections = (16 * 32 + 2 * 32 + 32 * 64 + 2 * 64) if shortcut == "B" else 0
        with subtests.test(depth=depth, shortcut=shortcut):
            parameters = zoo.outline(f"resnet{depth}", shortcut=shortcut).parameters
            assert parameters == weights + norms + linear + projections
            if shortcut == "A":  # the paper's own choice for CIFAR-10
                assert parameters / 1e6 == pytest.approx(millions[depth], abs=0.03)


def test_resnet8_is_the_smallest_of_them():
    weights = 9 * (16 + 2 * 16 * 16 + (16 + 32) * 32 + (32 + 64) * 64)
    assert (
        zoo.outline("resnet8").parameters
        == weights + 2 * (16 + 2 * (16 + 32 + 64)) + 650
    )
