"""Arrays of two layouts are brought together by shape, by values, and by what was seen before."""

import numpy as np
import pytest

from deliralike.conformance.matching.layouts import (
    Layouts,
    Transform,
    align,
    flattenings,
    transforms,
)
from deliralike.errors import ShapeError
from tests.conformance import ports

CHANCE = np.random.default_rng(3)


def normal(*shape):
    return CHANCE.normal(size=shape)


def test_shapes_decide_where_only_one_order_fits():
    last = {
        (2, 3): (1, 0),
        (2, 3, 5): (0, 2, 1),
        (2, 3, 5, 7): (0, 2, 3, 1),
        (2, 3, 4, 5, 6): (0, 2, 3, 4, 1),
    }
    for shape, axes in last.items():
        reference = normal(*shape)
        found = align(reference, np.transpose(reference, axes))
        np.testing.assert_array_equal(np.transpose(np.transpose(reference, axes), found), reference)
    assert align(normal(2, 3), normal(2, 4)) is None
    assert align(normal(2, 3), normal(3)) is None
    assert align(normal(4), normal(4)) == (0,)


def test_values_decide_where_shapes_do_not():
    reference = normal(4, 4, 4)
    for axes in ((0, 2, 1), (1, 0, 2), (2, 1, 0)):
        nearly = np.transpose(reference, axes) * (1 + 1e-4)
        assert align(reference, nearly) == tuple(np.argsort(axes))
    constant = np.ones((4, 4, 4))
    assert align(constant, constant) == (0, 1, 2)
    assert align(reference, normal(4, 4, 4), preferred=[(0, 2, 1)]) == (0, 2, 1)


def test_what_was_seen_is_preferred_for_arrays_of_as_many_axes():
    layouts = Layouts()
    assert layouts.align(normal(2, 5, 5), normal(2, 5, 5)) == (0, 1, 2)
    assert layouts.align(normal(2, 3, 5), normal(2, 5, 3)) == (0, 2, 1)
    assert layouts.align(normal(2, 5, 5), normal(2, 5, 5)) == (0, 2, 1)
    assert layouts.align(normal(2, 2), normal(2, 2)) == (0, 1)
    assert layouts.seen == {3: [(0, 2, 1)]}


def test_nests_go_there_and_back():
    reference = {"image": normal(2, 3, 5, 7), "parts": [normal(2, 4), None]}
    last = {"image": np.moveaxis(reference["image"], 1, -1), "parts": [reference["parts"][0], None]}
    layouts = Layouts()
    given = layouts.to_reference(last, reference)
    np.testing.assert_array_equal(given["image"], reference["image"])
    back = layouts.to_candidate(reference, last)
    np.testing.assert_array_equal(back["image"], last["image"])
    assert back["parts"][1] is None
    with pytest.raises(
        ShapeError, match=r"\(2, 3\) cannot be laid out as the reference's \(2, 4\)"
    ):
        layouts.to_reference(normal(2, 3), normal(2, 4))


def test_the_layout_in_which_a_network_runs_is_found():
    batch = ports.batch("cnn")
    layouts = Layouts()
    (given,) = layouts.input_for(ports.build("cnn", "jax", 1), batch)
    np.testing.assert_array_equal(given, np.moveaxis(batch[0], 1, -1))
    assert layouts.seen == {4: [(0, 3, 1, 2)]}
    (same,) = Layouts().input_for(ports.build("cnn", "chainer", 1), batch)
    assert same is batch[0]


def test_a_network_that_runs_in_no_layout_says_what_was_tried():
    network = ports.build("cnn", "jax", 1)
    before = network.neutral_state()
    tried = r"as it is \[\(2, 4, 7, 5\)\].*channels last \[\(2, 7, 5, 4\)\]"
    with pytest.raises(ShapeError, match=f"(?s)FlaxCnn runs in no layout.*{tried}"):
        Layouts().input_for(network, (normal(2, 4, 7, 5),))
    for name, value in network.neutral_state().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ((6, 4), (4, 6)),
        ((8, 3, 2, 5), (2, 5, 3, 8)),
        ((6, 4), (4, 2, 3)),
        ((2, 3, 4), (4, 6)),
        ((12,), (3, 4)),
        ((), ()),
    ],
)
def test_transforms_lead_there_and_back(start, end):
    value = normal(*start)
    options = transforms(start, end)
    assert options
    for transform in options:
        there = transform.apply(value)
        assert there.shape == end
        np.testing.assert_array_equal(np.sort(there, axis=None), np.sort(value, axis=None))
        np.testing.assert_array_equal(transform.invert(there), value)


def test_usual_transforms_come_first():
    kernel = normal(3, 3, 3, 3)
    turned = transforms(kernel.shape, kernel.shape)[1]
    np.testing.assert_array_equal(turned.apply(kernel), kernel.transpose(2, 3, 1, 0))
    query = normal(6, 4)  # (heads * size, in), as PyTorch has it
    heads = transforms(query.shape, (4, 3, 2))[0]
    np.testing.assert_array_equal(heads.apply(query), query.T.reshape(4, 3, 2))
    assert str(heads) == "as (3, 2, 4), axes (2, 0, 1)"


def test_flattened_pixels():
    image, weight = normal(2, 4, 3, 5), normal(6, 60)
    forward = next(t for t in flattenings(weight.shape, [4]) if t.split == (6, 4, 15))
    first = image.reshape(2, -1) @ weight.T
    last = np.moveaxis(image, 1, -1).reshape(2, -1) @ forward.apply(weight).T
    np.testing.assert_allclose(first, last, rtol=1e-12)
    assert flattenings((6, 60), [7, 1]) == ()
    assert isinstance(forward, Transform)
