"""Nested containers: what goes through `nest` keeps its types, keys and order."""

import dataclasses
import threading
from collections import (
    Counter,
    OrderedDict,
    UserDict,
    UserList,
    defaultdict,
    deque,
    namedtuple,
)
from functools import cached_property
from typing import Any, Generic, TypeVar

import optree
import pytest
from flax import nnx

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


# Classes that optree does not know
# -----------------------------------------------------------------------------

Value = TypeVar("Value")


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0
    made: Any = dataclasses.field(default="here", init=False)

    def __post_init__(self):
        self.count = getattr(self, "count", 0) + 1
        self.made = "in __post_init__"

    @cached_property
    def norm(self):
        return (self.x**2 + self.y**2) ** 0.5


@dataclasses.dataclass(frozen=True)
class Frozen(Generic[Value]):
    inner: Value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    b: Any
    a: Any = None


class Attributes(dict):
    """Its attributes are its items."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


@dataclasses.dataclass
class Output(OrderedDict):
    """A dataclass that is a dict of its fields, those that are None left out; its methods keep both
    in step."""

    loss: Any = None
    logits: Any = None
    hidden: Any = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self):
        raise NotImplementedError


class Listed(list):
    __slots__ = ("_Listed__private", "tag")


class Grouped(defaultdict):
    pass


def listed():
    made = Listed([1, 2])
    made.tag, made._Listed__private = "tag", [3]
    return made


def times_ten(value):
    return value * 10 if isinstance(value, int) else value


def test_a_dataclass_is_a_container_and_its_own_code_does_not_run():
    point = Point([1, 2], 3)
    point.extra = 4
    new = nest.map(times_ten, {"b": point})["b"]
    assert (type(new), new.x, new.y, new.made, new.extra) == (
        Point,
        [10, 20],
        30,
        "in __post_init__",
        40,
    )
    assert new.count == 10  # __post_init__ would have set it to 1
    assert (point.x, point.extra) == ([1, 2], 4)


def test_a_cached_property_is_not_carried_over():
    point = Point(3, 4)
    assert point.norm == 5
    assert nest.map(times_ten, point).norm == 50


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Frozen((1, Frozen(2))), Frozen((10, Frozen(20)))),
        (Slotted(b=1, a=[2]), Slotted(b=10, a=[20])),
        (UserDict({"b": 1, "a": 2}), UserDict({"b": 10, "a": 20})),
        (UserList([1, [2]]), UserList([10, [20]])),
        (Counter("aab"), Counter({"a": 20, "b": 10})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_containers_are_rebuilt(value, wanted):
    new = nest.map(times_ten, value)
    assert new == wanted
    assert type(new) is type(value)
    for path, leaf in nest.leaves_with_paths(value, root="value"):
        assert eval(path, {"value": value}) == leaf


def test_attributes_of_a_subclass_of_list_are_kept():
    new = nest.map(times_ten, listed())
    assert (type(new), list(new), new.tag, new._Listed__private) == (
        Listed,
        [10, 20],
        "tag",
        [30],
    )


def test_a_default_factory_is_kept():
    new = nest.map(times_ten, Grouped(list, {"b": 1, "a": 2}))
    assert (type(new), new.default_factory, list(new.items())) == (
        Grouped,
        list,
        [("b", 10), ("a", 20)],
    )


def test_attributes_that_are_the_items_stay_so():
    new = nest.map(times_ten, Attributes(b=1, a=[2]))
    assert (new.b, new.a, new["a"] is new.a, list(new)) == (10, [20], True, ["b", "a"])
    new.c = 5
    assert new["c"] == 5


def test_items_and_fields_stay_in_step():
    new = nest.map(times_ten, Output(loss=1, hidden=(2, 3)))
    assert (type(new), list(new.items())) == (
        Output,
        [("loss", 10), ("hidden", (20, 30))],
    )
    assert (new.loss, new.logits, new.hidden is new["hidden"]) == (10, None, True)


def test_a_type_registered_with_optree_is_the_users_affair():
    @dataclasses.dataclass
    class Mine:
        shown: int
        hidden: int

    optree.register_pytree_node(
        Mine,
        lambda mine: ([mine.shown], mine.hidden),
        lambda hidden, shown: Mine(*shown, hidden),
        namespace="deliralike",
    )
    assert nest.map(times_ten, Mine(1, 2)) == Mine(10, 2)
    first, second = Mine(1, 2), Mine(1, 3)
    assert (
        nest.first_difference(first, second, "x")
        == "x is built with 2 here and with 3 there."
    )


def test_a_network_is_a_leaf_though_it_be_a_dataclass(backend):
    @dataclasses.dataclass(eq=False)
    class Net(backend.network_base):
        width: int = 3

        def __init__(self):
            super().__init__()

    assert dataclasses.is_dataclass(Net)
    assert len(nest.leaves([Net()])) == 1


class NativeModule(nnx.Module):
    """Without a ``__call__``."""


@dataclasses.dataclass
class NativeData(NativeModule):
    width: int = 3


def test_a_module_of_flax_is_a_leaf_though_it_be_a_dataclass_that_is_not_called():
    assert len(nest.leaves([NativeData(4)])) == 1


@dataclasses.dataclass
class Called:
    weight: Any = 1

    def __call__(self):
        return self.weight


@dataclasses.dataclass
class Failure(Exception):
    code: int = 1


@pytest.mark.parametrize(
    "value",
    [Called(), Failure(), Point, range(3), {1, 2}, object()],
    ids=lambda value: type(value).__name__,
)
def test_what_is_called_or_more_than_a_container_is_a_leaf(value):
    assert nest.leaves([value])[0] is value


def test_classes_met_by_many_threads_at_once_are_registered_once():
    classes = [dataclasses.make_dataclass(f"Made{index}", ["x"]) for index in range(50)]
    ready, found, failed = threading.Barrier(8), [], []

    def look():
        ready.wait()
        try:
            found.append([nest.leaves(cls([1, 2])) for cls in classes])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert found == [[[1, 2]] * 50] * 8


def test_is_leaf_stops_at_containers():
    assert nest.flatten([[1], (2, 3)], is_leaf=lambda value: type(value) is tuple)[
        0
    ] == [1, (2, 3)]
    assert nest.map(
        len, {"a": ["x", "y"]}, is_leaf=lambda value: type(value) is list
    ) == {"a": 2}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"a": 1},
            {"b": 1},
            "x is a dict with keys ['a'] here and with keys ['b'] there.",
        ),
        (
            {"a": 1},
            OrderedDict(a=1),
            "x is a dict with keys ['a'] here and an OrderedDict with keys ['a'] there.",
        ),
        ([[1]], [[1, 2]], "x[0] is a list of length 1 here and of length 2 there."),
        (
            Pair(1, [2]),
            Pair(1, None),
            "x.second is a list of length 1 here and None there.",
        ),
        (
            Point(1, [2]),
            Point(1, ()),
            "x.y is a list of length 1 here and a tuple of length 0 there.",
        ),
        (
            OrderedDict(a=1, b=2),
            OrderedDict(b=1, a=2),
            "x is an OrderedDict with keys ['a', 'b'] here and with",
        ),
        (
            Output(loss=1),
            Output(logits=1),
            "x is an Output with fields ['loss', 'logits', 'hidden'] here and with",
        ),
        (
            Slotted(b=1),
            Frozen(1),
            "x is a Slotted with fields ['b', 'a'] here and a Frozen with fields ['inner'] there.",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_first_difference_is_named(first, second, message):
    assert nest.first_difference(first, second, "x").startswith(message)
    assert nest.first_difference(first, first, "x") == ""


def test_dicts_of_ones_own_are_alike_in_any_order_of_their_keys():
    """As dicts are; each keeps its own order."""

    class Own(dict):
        pass

    one, other = Own(b=1, a=2), Own(a=3, b=4)
    (leaves, structure), (others, same) = nest.flatten(one), nest.flatten(other)
    assert structure == same and (leaves, others) == ([2, 1], [3, 4])
    assert nest.first_difference(one, other, "x") == ""
    for whole, order in ((structure, "ba"), (same, "ab")):
        assert "".join(nest.unflatten(whole, [5, 6])) == order


def test_a_prefix_may_stop_anywhere_and_have_its_keys_in_any_order():
    whole = OrderedDict(b=[1, 2], a=Point(3, 4))
    prefix = {"a": "p", "b": ["q", None]}
    assert nest.first_difference(prefix, whole, "x", prefix=True) == ""
    grafted = nest.graft(prefix, whole, lambda word, subtree: (word, subtree))
    assert grafted == OrderedDict(b=[("q", 1), (None, 2)], a=("p", Point(3, 4)))
    assert nest.first_difference(
        {"a": [], "b": "q"}, whole, "x", prefix=True
    ).startswith("x['a'] is a list of length 0")
