"""Nested containers: what goes through `nest` keeps its types, keys and order."""

from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

from deliralike import nest
from deliralike.errors import StructureError

Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        [1, [2, (3,)]],
        {"b": 1, "a": 2},
        Pair(1, [2]),
        OrderedDict(b=1, a=2),
        defaultdict(list, {"x": 1}),
        deque([1, 2], maxlen=5),
        [],
        {},
        (),
        None,
        [None, 1],
        "text",
    ],
    ids=repr,
)
def test_map_keeps_types_keys_and_order(value):
    same = nest.map(lambda leaf: leaf, value)
    assert same == value
    assert type(same) is type(value)
    if isinstance(value, dict):
        assert list(same) == list(value)
    if isinstance(value, deque):
        assert same.maxlen == value.maxlen


def test_none_is_a_leaf():
    assert nest.leaves({"a": None, "b": [1]}) == [None, 1]


def test_paths_are_code_that_reaches_the_leaf():
    batch = {"image": [10, 20], "pair": Pair(1, {"x": 2})}
    for path, leaf in nest.leaves_with_paths(batch, root="batch"):
        assert eval(path, {"batch": batch}) == leaf


def test_map_takes_several_nests():
    assert nest.map(lambda a, b: a - b, [1, (5,)], [1, (2,)]) == [0, (3,)]


def test_nests_that_differ_are_an_error():
    with pytest.raises(StructureError, match="nests differ in structure"):
        nest.map(lambda a, b: a, {"a": 1}, {"b": 1})


def test_an_error_of_the_function_stays_what_it_is():
    def refuse(leaf):
        raise ValueError("not this leaf")

    with pytest.raises(ValueError, match="not this leaf") as caught:
        nest.map(refuse, [1])
    assert not isinstance(caught.value, StructureError)
