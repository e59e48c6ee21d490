"""Arrays of two layouts are brought together by shape, by values, and by what was seen before."""

import numpy as np

from deliralike.conformance.matching.aligning import Orders, align

CHANCE = np.random.default_rng(3)


def normal(*shape):
    return CHANCE.normal(size=shape)


def only(reference, candidate, orders=None):
    """The one leaf of the alignment of two arrays."""
    found = align(reference, candidate, orders)
    return found.leaves[0] if found.leaves else None


def test_values_decide_whatever_the_order_of_axes():
    orders = {
        (2, 3): (1, 0),
        (2, 3, 5): (0, 2, 1),
        (2, 3, 5, 7): (0, 2, 3, 1),
        (4, 4, 4): (2, 1, 0),
        (2, 3, 4, 5, 6): (0, 2, 3, 4, 1),
    }
    for shape, axes in orders.items():
        reference = normal(*shape)
        leaf = only(reference, np.transpose(reference, axes))
        assert (leaf.transform.axes, leaf.by_value) == (axes, True)


def test_shapes_decide_where_values_do_not():
    leaf = only(normal(2, 3, 5), normal(2, 5, 3))
    assert (leaf.transform.axes, leaf.by_value) == ((0, 2, 1), False)
    assert only(normal(2, 3), normal(2, 4)) is None
    assert only(normal(2, 3), normal(3)) is None


def test_an_order_that_was_used_is_preferred_for_arrays_of_as_many_axes():
    orders = Orders()
    assert only(normal(2, 5, 5), normal(2, 5, 5), orders).transform.axes == (0, 1, 2)
    seen = normal(2, 5, 5)
    only(seen, seen.transpose(0, 2, 1), orders)
    assert only(normal(2, 5, 5), normal(2, 5, 5), orders).transform.axes == (0, 2, 1)
    assert only(normal(2, 2), normal(2, 2), orders).transform.axes == (0, 1)


def test_arguments_in_another_order_and_number_are_found():
    x, h, mask = normal(2, 3, 4), normal(2, 5), np.array([True, False])
    ours, theirs = ((x, (h, h), mask), {}), ({"state": h, "mask": mask}, [normal(7), x])
    found = align(ours, theirs)
    assert found.complete
    assert found.by_value
    new = ((x + 1, (h + 1, h + 1), ~mask), {})
    there = found.there(new, theirs)
    np.testing.assert_array_equal(there[1][1], x + 1)
    np.testing.assert_array_equal(there[0]["state"], h + 1)
    np.testing.assert_array_equal(
        there[1][0], theirs[1][0]
    )  # which the reference does not have
    back = found.back(there, ours)
    np.testing.assert_array_equal(back[0][1][1], h + 1)
    np.testing.assert_array_equal(back[0][2], ~mask)


def test_what_the_candidate_lacks_is_not_complete_and_comes_back_as_none():
    out, state = normal(2, 3, 4), normal(2, 5)
    found = align((out, (state, normal(3, 3))), out)
    assert not found.complete
    back = found.back(out + 1, (out, (state, state)))
    np.testing.assert_array_equal(back[0], out + 1)
    assert back[1] == (None, None)


def test_numbers_of_an_array_that_is_given_twice_are_added():
    x = normal(2, 3)
    found = align((x, x), x)
    (together,) = found.numbers_there([np.ones((2, 3)), 2 * np.ones((2, 3))], 1)
    np.testing.assert_array_equal(together, 3 * np.ones((2, 3)))
