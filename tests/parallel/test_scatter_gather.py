"""Scatter and gather: one is the inverse of the other, over any nest, on every backend."""

import dataclasses
import re
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import optree
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends, nest
from deliralike.backends.chainer.arrays import (
    chainer,
)  # before any other import of Chainer
from deliralike.errors import BatchError, SettingError, ShapeError, StructureError
from deliralike.parallel.batches.gather import gather
from deliralike.parallel.batches.scatter import (
    ARGUMENTS,
    scatter,
    split_batch,
)
from tests.parallel.networks import Dense, built

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Sample:
    first: object
    second: object = None
    made: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    inner: object


class Record(dict):
    """A dict with an attribute."""

    tag: object = None


class Registered:
    def __init__(self, *children):
        self.children = children


optree.register_pytree_node(
    Registered,
    lambda node: (node.children, None),
    lambda _, children: Registered(*children),
    namespace="deliralike",
)


def record(items, tag):
    made = Record(items)
    made.tag = tag
    return made


def same(first, second, backend):
    """Whether two leaves are alike: types, data types and values."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray) or backend.is_array(first):
        values = [
            value if isinstance(value, np.ndarray) else backend.numpy(value)
            for value in (first, second)
        ]
        return first.dtype == second.dtype and np.array_equal(*values)
    return first == second or first != first


def same_nest(first, second, backend):
    """Whether two nests are alike: compared here, container by container, without the library's own
    recursion."""
    if type(first) is not type(second):
        return False
    children = children_of(first)
    if children is None:
        return same(first, second, backend)
    others = children_of(second)
    return list(children) == list(others) and all(
        same_nest(children[k], others[k], backend) for k in children
    )


def children_of(value):
    if isinstance(value, Record):
        return {**value, "its own tag": value.tag}
    if isinstance(value, dict):
        factory = (
            {"its own factory": value.default_factory}
            if isinstance(value, defaultdict)
            else {}
        )
        return dict(value) | factory
    if isinstance(value, deque):
        return dict(enumerate([*value, value.maxlen]))
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, Registered):
        return dict(enumerate(value.children))
    if dataclasses.is_dataclass(value):
        return {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
        }
    return None


PLAIN = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.sampled_from([len, max, b"raw", 1j]),
)
DTYPES = ["float32", "float64", "int64", "int8", "bool"]


def arrays(size, dim, backend):
    """Arrays with one to three axes that agree on their size along `dim`, of the backend or of
    NumPy."""
    least = dim + 1 if dim >= 0 else -dim

    @st.composite
    def draw_one(draw):
        axes = draw(st.integers(least, 3))
        shape = [draw(st.integers(0, 3)) for _ in range(axes)]
        shape[dim] = size
        value = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 100
        value = value.astype(draw(st.sampled_from(DTYPES)))
        kind = draw(st.sampled_from(["native", "native", "host", "text", "object"]))
        if kind == "native":
            return backend.array(value)
        return (
            value if kind == "host" else value.astype(str if kind == "text" else object)
        )

    return draw_one()


def containers(children):
    keys = st.lists(st.sampled_from("dcba"), max_size=3, unique=True)
    dicts = keys.flatmap(
        lambda names: st.tuples(*[children] * len(names)).map(
            lambda vs: dict(zip(names, vs))
        )
    )
    lists = st.lists(children, max_size=3)
    return st.one_of(
        lists,
        lists.map(tuple),
        dicts,
        dicts.map(OrderedDict),
        dicts.map(lambda items: defaultdict(list, items)),
        lists.map(lambda items: deque(items, maxlen=5)),
        st.builds(Pair, children, children),
        st.builds(Sample, children, children),
        st.builds(Frozen, children),
        st.builds(record, dicts, children),
        lists.map(lambda items: Registered(*items)),
    )


def nests(size, dim, backend):
    return st.recursive(arrays(size, dim, backend) | PLAIN, containers, max_leaves=6)


# JAX compiles a program for each new shape, so it gets one number of devices a nest, the others get
# each.
EXAMPLES = {True: 3, False: 10}  # where shapes are compiled, and where not


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_gather_is_the_inverse_of_scatter(backend, dim):
    compiled = backend.name == "jax"
    device = backend.devices()[0]

    @settings(
        max_examples=EXAMPLES[compiled],
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(data=st.data(), size=st.integers(0, 40), devices=st.integers(1, 8))
    def holds(data, size, devices):
        batch = data.draw(nests(size, dim, backend))
        for count in [devices] if compiled else range(1, 9):
            shares = split_batch(batch, [device] * count, dim, backend=backend)
            assert len(shares.nests) == len(shares.sizes) <= max(1, min(count, size))
            assert same_nest(gather(shares.nests, dim, backend=backend), batch, backend)

    holds()


# The partition
# -----------------------------------------------------------------------------


def many(backend, count):
    return [backend.devices()[0]] * count


def on_host(backend, value):
    return backend.numpy(value)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 19])
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_shares_are_those_of_numpy(backend, size, devices):
    array = np.arange(size * 6, dtype="float32").reshape(2, size, 3)
    found = split_batch(
        {"x": backend.array(array)}, many(backend, devices), 1, backend=backend
    )
    wanted = [share for share in np.array_split(array, devices, axis=1) if share.size]
    assert found.sizes == tuple(share.shape[1] for share in wanted)
    for share, expected in zip(found.nests, wanted, strict=True):
        assert_array_equal(on_host(backend, share["x"]), expected)


def test_an_empty_batch_is_one_empty_share(backend):
    shares = split_batch(
        [backend.array(np.zeros((0, 2), "float32")), "x"],
        many(backend, 3),
        backend=backend,
    )
    assert shares.sizes == (0,)
    assert shares.nests[0][0].shape == (0, 2)


@pytest.mark.parametrize(
    "batch", [(), {}, {"a": [], "b": {}}, [None, "x", 3]], ids=repr
)
def test_a_batch_without_arrays_is_one_share(backend, batch):
    shares = split_batch(batch, many(backend, 3), backend=backend)
    assert shares.nests == [batch]
    assert shares.sizes == (0,)


def test_arguments_by_position_and_by_name_share_one_count(backend):
    x = backend.array(np.arange(5, dtype="float32"))
    shares = split_batch(
        ((x, len), {"y": x, "flag": True}),
        many(backend, 2),
        backend=backend,
        root=ARGUMENTS,
    )
    (args, kwargs) = shares.nests[1]
    assert [args[0].shape, kwargs["y"].shape] == [(2,), (2,)]
    assert (args[1], kwargs["flag"]) == (len, True)


def test_an_array_without_axes_goes_to_each_device_that_takes_part(backend):
    batch = {
        "x": backend.array(np.zeros((2, 3), "float32")),
        "scale": backend.array(np.float32(4)),
    }
    shares = scatter(batch, many(backend, 5), backend=backend)
    assert [float(on_host(backend, share["scale"])) for share in shares] == [4, 4]


@pytest.mark.parametrize("kind", [str, object])
def test_numpy_arrays_of_text_and_objects_are_split_and_stay_numpy(backend, kind):
    names = np.array(["ant", "bee", "cat"], dtype=kind)
    first, second = scatter({"names": names}, many(backend, 2), backend=backend)
    assert first["names"].tolist() == ["ant", "bee"]
    assert second["names"].tolist() == ["cat"]
    assert second["names"].dtype == names.dtype


# Errors of scatter
# -----------------------------------------------------------------------------


def test_arrays_that_disagree_on_the_batch_size_are_named(backend):
    batch = {"image": backend.array(np.zeros((4, 2))), "label": np.zeros(3)}
    message = (
        "the arrays of a batch must agree on their size along dim 0: "
        "batch['image'] has 4, batch['label'] has 3."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        scatter(batch, many(backend, 2), backend=backend)


def test_arguments_that_disagree_are_named_as_one_writes_them(backend):
    arguments = ((np.zeros(4),), {"y": np.zeros(3)})
    with pytest.raises(
        BatchError, match=re.escape("dim 0: args[0] has 4, kwargs['y'] has 3.")
    ):
        split_batch(arguments, many(backend, 2), backend=backend, root=ARGUMENTS)


@pytest.mark.parametrize("dim", [1, -2])
def test_an_array_with_too_few_axes_is_named(backend, dim):
    batch = Pair(backend.array(np.zeros((2, 3))), [backend.array(np.zeros(3))])
    message = (
        f"batch.second[0] has shape (3,), so there is no dim {dim} to split it along: "
        "give another dim"
    )
    with pytest.raises(BatchError, match=re.escape(message)):
        scatter(batch, many(backend, 2), dim, backend=backend)


def test_an_array_of_another_framework_is_refused(backend):
    other = backends.get("jax" if backend.name == "torch" else "torch").array(
        np.zeros(3)
    )
    with pytest.raises(
        BatchError,
        match=re.escape("batch['x'] is a") + ".* no array of NumPy's or of backend",
    ):
        scatter({"x": other}, many(backend, 2), backend=backend)


@pytest.mark.parametrize("name", [None, "torch", "chainer", "jax"])
def test_nests_that_change_from_call_to_call_are_split_and_joined_as_if_each_were_the_first(
    name,
):
    backend = backends.get(name) if name else None
    devices = ["@numpy" if name == "chainer" else "cpu"] * 2

    def of(*shape):
        return np.arange(np.prod(shape, dtype=int)).reshape(shape)

    masked = np.ma.masked_array(of(5, 2), of(5, 2) % 3 == 0)
    sequence = [
        {"a": of(5, 2), "b": of(5)},
        {"b": of(5, 2), "c": of(5)},  # the same types, other keys
        {"a": of(7, 2), "b": of(7)},  # another size
        {"a": of(7, 2), "b": np.array(3.0)},  # an array without axes
        {"a": of(5, 2), "b": masked},
        {"a": of(5, 2), "b": of(5).astype(">i4")},
        [of(5, 2), "name"],
        [of(5, 2), of(5, 3)],
    ]
    for batch in sequence * 2:
        shares = scatter(batch, devices, backend=backend)
        found = gather(shares, backend=backend, others="equal")
        for path, leaf in nest.leaves_with_paths(batch):
            pieces = [dict(nest.leaves_with_paths(share))[path] for share in shares]
            joined = dict(nest.leaves_with_paths(found))[path]
            if not np.shape(leaf):
                assert pieces == [leaf, leaf]
                continue
            cut = (len(leaf) + 1) // 2
            for piece, wanted in zip(
                [*pieces, joined], [leaf[:cut], leaf[cut:], leaf], strict=True
            ):
                assert type(piece) is type(leaf) and piece.dtype == leaf.dtype
                assert_array_equal(
                    np.ma.getmaskarray(piece), np.ma.getmaskarray(wanted)
                )
                assert_array_equal(np.ma.getdata(piece), np.ma.getdata(wanted))


def test_without_a_backend_only_numpy_arrays_are_split():
    array = backends.get("torch").array(np.zeros(3))
    scatter(
        [array], ["cpu", "cpu"], backend=backends.get("torch")
    )  # which is remembered
    with pytest.raises(
        BatchError,
        match=re.escape(
            "batch[0] is a Tensor of shape (3,), which is no array of NumPy's: convert it"
        ),
    ):
        scatter([array], ["cpu", "cpu"])


@pytest.mark.parametrize("devices", [[], "cpu"])
def test_devices_are_a_list_of_at_least_one(devices):
    with pytest.raises(SettingError, match="wanted a list of at least one device"):
        scatter([np.zeros(3)], devices)


def test_dim_is_a_whole_number():
    with pytest.raises(
        SettingError, match=r"scatter: dim='0' is a str, wanted a whole number"
    ):
        scatter([np.zeros(3)], ["cpu"], "0")
    with pytest.raises(
        SettingError, match="gather: dim=None is a NoneType, wanted a whole number"
    ):
        gather([np.zeros(3)], None)
    assert gather([np.zeros((3, 1)), np.ones((3, 1))], np.int64(1)).shape == (3, 2)


# The spec
# -----------------------------------------------------------------------------


def test_a_spec_says_what_is_split_copied_and_kept(backend):
    shared, settings_ = [1, 2], {"depth": [1]}
    batch = OrderedDict(
        x=backend.array(np.arange(3, dtype="float32")),
        names=["a", "b", "c"],
        weight=backend.array(np.arange(2, dtype="float32")),
        host=np.arange(7),
        kept=shared,
        settings=settings_,
    )
    spec = {
        "x": None,
        "names": "split",
        "weight": "copy",
        "host": "keep",
        "kept": "keep",
        "settings": "copy",
    }
    shares = scatter(batch, many(backend, 2), spec=spec, backend=backend)
    assert [share["names"] for share in shares] == [["a", "b"], ["c"]]
    assert all(type(share) is OrderedDict for share in shares)
    for share in shares:
        assert_array_equal(on_host(backend, share["weight"]), [0, 1])
        assert share["weight"] is not batch["weight"]
        assert share["host"] is batch["host"]
        assert (
            share["settings"] == settings_
            and share["settings"]["depth"] is not settings_["depth"]
        )
    back = gather(shares, spec=spec, backend=backend)
    assert same_nest(back, batch, backend)


def test_what_was_copied_is_gathered_on_a_device_that_is_named(backend):
    shares = [backend.array(np.arange(2.0)) for _ in range(2)]
    (device,) = many(backend, 1)
    weight = gather(shares, device=device, spec="copy", backend=backend)
    assert_array_equal(on_host(backend, weight), [0, 1])


@pytest.mark.parametrize("name", ["torch", "chainer"])
def test_a_copy_has_storage_of_its_own(name):
    backend = backends.get(name)
    weight, scalar, host = (
        backend.array(np.zeros((2, 3), "float32")),
        backend.array(np.float32(1)),
        np.zeros(3),
    )
    spec = ("copy", "copy", "copy", "split")
    for share in scatter(
        (weight, scalar, host, ["a", "b"]), many(backend, 2), spec=spec, backend=backend
    ):
        for copied in share[:3]:
            copied[...] = 7
    assert [
        float(on_host(backend, weight).sum()),
        float(on_host(backend, scalar)),
        host.sum(),
    ] == [
        0,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (None, [4, 4, None, None]),
        (
            {"x": "split", "w": "copy", "name": "keep", "deep": {"y": "copy"}},
            [None, None, None, 4],
        ),
    ],
    ids=["without a spec", "with one"],
)
def test_samples_are_counted_in_the_leaves_that_are_split(backend, spec, wanted):
    batch = {
        "x": backend.array(np.zeros((4, 2))),
        "w": backend.array(np.zeros(4)),
        "name": "train",
        "deep": {"y": backend.array(np.float32(1))},
    }
    counts = split_batch(batch, backend.devices()[:1], 0, spec, backend).counts
    leaves = dict(
        zip(
            (path for path, _ in nest.leaves_with_paths(batch, "")), counts, strict=True
        )
    )
    assert sorted(leaves.values(), key=str) == sorted(wanted, key=str)
    assert leaves["['x']"] == 4


def test_one_word_may_stand_for_a_whole_batch(backend):
    batch = {
        "x": backend.array(np.arange(3, dtype="float32")),
        "deep": {"names": ("a", "b", "c")},
        "empty": (),
    }
    shares = scatter(batch, many(backend, 2), spec="split", backend=backend)
    assert [share["deep"]["names"] for share in shares] == [("a", "b"), ("c",)]
    assert same_nest(gather(shares, spec="split", backend=backend), batch, backend)


@pytest.mark.parametrize(
    "value", [3, None, "text", np.float32(1), np.array(1.0)], ids=repr
)
def test_what_cannot_be_split_is_an_error_under_an_explicit_split(backend, value):
    with pytest.raises(
        BatchError,
        match=re.escape("batch['v'] cannot be split, being ")
        + ".*say 'copy' or 'keep'",
    ):
        scatter(
            {"v": value, "x": np.zeros(3)},
            many(backend, 2),
            spec={"v": "split", "x": None},
            backend=backend,
        )


def test_a_spec_that_does_not_fit_names_the_path(backend):
    batch = {"x": [np.zeros(3), np.zeros(3)], "y": np.zeros(3)}
    with pytest.raises(
        StructureError,
        match=re.escape(
            "batch is a dict with keys ['x'] in the spec and with keys ['x', 'y'] here."
        ),
    ):
        scatter(batch, many(backend, 2), spec={"x": "split"}, backend=backend)
    with pytest.raises(
        StructureError,
        match=re.escape(
            "batch['x'] is a list of length 1 in the spec and of length 2 here."
        ),
    ):
        scatter(
            batch, many(backend, 2), spec={"x": ["split"], "y": None}, backend=backend
        )
    with pytest.raises(
        StructureError, match=re.escape("args[0] is a list of length 1 in the spec")
    ):
        split_batch(
            ((np.zeros(3),), {}),
            many(backend, 2),
            spec=((["split"],), {}),
            backend=backend,
            root=ARGUMENTS,
        )


def test_an_unknown_word_is_an_error_with_a_suggestion(backend):
    with pytest.raises(
        SettingError,
        match=re.escape("the spec says 'spilt' of batch['x']. Did you mean 'split'?"),
    ):
        scatter(
            {"x": np.zeros(3)}, many(backend, 2), spec={"x": "spilt"}, backend=backend
        )


# Gather
# -----------------------------------------------------------------------------


def scalars_of(backend, *values):
    return [{"loss": backend.array(np.float32(value))} for value in values]


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scalars_become_a_vector_for_any_dim(backend, dim):
    vector = gather(scalars_of(backend, 1, 2, 4), dim, backend=backend)["loss"]
    assert_array_equal(on_host(backend, vector), [1, 2, 4])
    one = gather(scalars_of(backend, 3), dim, backend=backend)["loss"]
    assert_array_equal(on_host(backend, one), [3])


@pytest.mark.parametrize(
    ("scalars", "sizes", "wanted"),
    [
        ("sum", None, 7),
        ("mean", None, 7 / 3),
        ("mean", (2, 1, 1), 2),
        ("mean", (0, 0, 0), 7 / 3),
        ("sum", (3, 2, 1), 7),
    ],
)
def test_scalars_are_reduced_by_a_declared_rule(backend, scalars, sizes, wanted):
    reduced = gather(
        scalars_of(backend, 1, 2, 4), scalars=scalars, sizes=sizes, backend=backend
    )["loss"]
    assert (
        backend.is_array(reduced),
        reduced.shape,
        on_host(backend, reduced).dtype,
    ) == (
        True,
        (),
        np.float32,
    )
    assert_allclose(on_host(backend, reduced), wanted, rtol=1e-6)


def test_flags_that_are_added_are_counted(backend):
    flags = [True, True, False, True]
    outputs = [backend.array(np.asarray(flag)) for flag in flags]
    count = gather(outputs, scalars="sum", backend=backend)
    assert int(on_host(backend, count)) == sum(flags)


class Odd:
    """Its comparison is no truth value."""

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None

    def __repr__(self):
        return "Odd()"


@pytest.mark.parametrize(
    "leaf",
    [3, "text", None, len, float("nan"), b"raw", {1, 2}, Odd()],
    ids=lambda x: type(x).__name__,
)
def test_other_leaves_are_returned_once(backend, leaf):
    assert gather([[leaf], [leaf]], backend=backend)[0] is leaf


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, 2), ("a", "b"), (1, 1.0), (len, max), (Odd(), Odd()), ({1}, {2}), (None, 0)],
    ids=repr,
)
def test_other_leaves_that_differ_are_an_error_or_a_list(backend, first, second):
    message = (
        f"output['n'] is {first!r} on replica 0 and {second!r} on replica 1: "
        "return an array, or gather with"
    )
    with pytest.raises(StructureError, match=re.escape(message)):
        gather([{"n": first}, {"n": second}], backend=backend)
    found = gather([{"n": first}, {"n": second}], others="list", backend=backend)["n"]
    assert [found[0] is first, found[1] is second] == [True, True]


def test_nan_made_anew_equals_nan(backend):
    assert np.isnan(gather([float("nan"), float("nan")], backend=backend))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"a": 1},
            {"b": 1},
            "output is a dict with keys ['a'] on replica 0 and with keys ['b'] on replica 1.",
        ),
        (
            {"y": (1, [2])},
            {"y": (1, [])},
            "output['y'][1] is a list of length 1 on replica 0 and of length 0 on replica 1.",
        ),
        (
            [1, [2]],
            [1, 3],
            "output[1] is a list of length 1 on replica 0 and 3 on replica 1.",
        ),
        (
            Frozen([1]),
            Frozen([]),
            "output.inner is a list of length 1 on replica 0 and of length 0 on replica 1.",
        ),
        (
            record({"a": 1}, 2),
            record({}, 2),
            "output is a Record with fields ['a', 'tag'] on replica 0 and with fields",
        ),
    ],
)
@pytest.mark.parametrize("others", ["equal", "list"])
def test_outputs_that_are_built_differently_name_the_path(
    backend, first, second, message, others
):
    with pytest.raises(StructureError, match=re.escape(message)):
        gather([first, second], others=others, backend=backend)


def test_the_replica_that_differs_is_named(backend):
    with pytest.raises(
        StructureError,
        match=re.escape(
            "output is a list of length 0 on replica 0 and of length 1 on replica 2"
        ),
    ):
        gather([[], [], [1]], backend=backend)


def test_an_array_on_one_replica_and_a_number_on_another(backend):
    array = backend.array(np.zeros(2))
    for pair, message in [
        (
            [array, 1],
            r"output\['y'\] is an? \w+ of shape \(2,\) on replica 0 and 1 on replica 1\.",
        ),
        (
            [1, array],
            r"output\['y'\] is 1 on replica 0 and an? \w+ of shape \(2,\) on replica 1\.",
        ),
        (
            [array, [array]],
            r"output\['y'\] is an? \w+ of shape \(2,\) on replica 0 and a list of length 1 on",
        ),
    ]:
        with pytest.raises(StructureError, match=message):
            gather([{"y": value} for value in pair], backend=backend)


@pytest.mark.parametrize(
    ("shapes", "dim", "message"),
    [
        (
            [(2, 3), (2, 4)],
            0,
            "output['y'] has shape (2, 3) on replica 0 and (2, 4) on replica 1: they may differ "
            "along dim 0",
        ),
        (
            [(0,), (2, 3)],
            0,
            "output['y'] has shape (0,) on replica 0 and (2, 3) on replica 1",
        ),
        (
            [(2, 3), (1, 3)],
            -1,
            "output['y'] has shape (2, 3) on replica 0 and (1, 3) on replica 1: they may differ "
            "along dim -1",
        ),
        (
            [(2, 3), (2, 3), (2, 4)],
            0,
            "output['y'] has shape (2, 3) on replica 0 and (2, 4) on replica 2",
        ),
        (
            [(2,), (2,)],
            1,
            "output['y'] has shape (2,) on replica 0, so there is no dim 1 to join it along",
        ),
        ([(2,), (3,)], -2, "output['y'] has shape (2,) on replica 0"),
    ],
)
def test_arrays_that_do_not_fit_name_path_and_shapes(backend, shapes, dim, message):
    outputs = [{"y": backend.array(np.zeros(shape, "float32"))} for shape in shapes]
    with pytest.raises(ShapeError, match=re.escape(message)):
        gather(outputs, dim, backend=backend)


@pytest.mark.parametrize(
    ("outputs", "options", "message"),
    [
        ([], {}, "gather: there are no outputs, wanted those of at least one replica"),
        (
            [1],
            {"scalars": "means"},
            "gather: scalars='means' is unknown. Did you mean 'mean'?",
        ),
        (
            [1],
            {"others": "lists"},
            "gather: others='lists' is unknown. Did you mean 'list'?",
        ),
        ([1, 1], {"sizes": (3,)}, "gather: sizes=(3,) are 1, but there are 2 outputs"),
    ],
)
def test_settings_that_make_no_sense_are_errors(outputs, options, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        gather(outputs, **options)


# Gradients
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "count"), [(0, 1), (0, 3), (1, 2), (-1, 3), (-2, 2)])
def test_gradients_go_through_scatter_and_gather(backend, dim, count):
    """Of arrays joined, of scalars stacked and averaged, and of one that is copied, by hand."""
    x, scale = np.linspace(-1, 1, 15).reshape(5, 3), np.array(0.7)
    weights = np.cos(np.arange(15.0)).reshape(5, 3)

    def loss(network, x, scale, weights):
        nn = network.nn
        batch = {"x": x, "scale": scale}
        shares = scatter(batch, many(backend, count), dim, backend=backend)
        squares = [
            share["x"] * share["x"] * share["scale"] * (i + 1)
            for i, share in enumerate(shares)
        ]
        sums = [nn.sum(square) for square in squares]
        joined, stacked = gather(list(zip(squares, sums)), dim, backend=backend)
        mean = gather(
            sums, scalars="mean", sizes=range(1, len(sums) + 1), backend=backend
        )
        return nn.sum(joined * weights) + nn.sum(stacked * stacked) + 3.0 * mean

    found = backend.gradients(loss, built(backend, Dense), x, scale, weights)
    of_x, of_scale, factors = [], 0.0, 3.0 / sum(range(1, count + 1))
    parts = (np.array_split(each, count, axis=dim) for each in (x, weights))
    for i, (share, weight) in enumerate(zip(*parts, strict=True), start=1):
        square = share**2 * i
        slope = weight + 2 * scale * square.sum() + factors * i
        of_x.append(2 * share * scale * i * slope)
        of_scale += (square * slope).sum()
    assert_allclose(found.inputs[0], np.concatenate(of_x, axis=dim), rtol=1e-12)
    assert_allclose(found.inputs[1], of_scale, rtol=1e-12)


def test_chainer_keeps_arrays_arrays_and_variables_variables():
    backend = backends.get("chainer")
    batch = {
        "raw": np.zeros((3, 2)),
        "variable": chainer.Variable(np.zeros((3, 2))),
        "number": chainer.Variable(np.ones(())),
    }
    shares = scatter(batch, many(backend, 2), backend=backend)
    kinds = [[type(share[key]) for key in batch] for share in shares]
    assert kinds == [[np.ndarray, chainer.Variable, chainer.Variable]] * 2
    assert [type(value) for value in gather(shares, backend=backend).values()] == kinds[
        0
    ]


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_share_on_torch_may_be_changed_in_place(needs_gradient):
    weight = torch.ones(3, requires_grad=True)
    x = torch.zeros(4, 3, requires_grad=needs_gradient) * 1
    share = scatter([x], ["cpu", "cpu"], backend=backends.get("torch"))[1][0]
    share.add_(weight)
    share.sum().backward()
    assert_array_equal(weight.grad.numpy(), [2, 2, 2])


def test_all_else_goes_to_every_device_as_it_is(backend):
    others = {
        "number": 3,
        "name": "train",
        "none": None,
        "function": len,
        "object": object(),
        "scalar": np.float32(2),
    }
    batch = {"x": backend.array(np.zeros((4, 1), "float32")), **others}
    for share in scatter(batch, many(backend, 2), backend=backend):
        assert all(share[key] is value for key, value in others.items())


def test_lists_of_samples_agree_with_the_arrays(backend):
    batch = {"x": backend.array(np.zeros(3)), "names": ["a", "b"]}
    with pytest.raises(
        BatchError, match=re.escape("dim 0: batch['names'] has 2, batch['x'] has 3.")
    ):
        scatter(batch, many(backend, 2), spec="split", backend=backend)
