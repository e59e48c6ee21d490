"""Loaders: what is in a batch follows from seed, epoch and number alone, for every kind of
source."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from deliralike import data
from deliralike.errors import ArgumentError, BatchError, SettingError
from tests.data.sources import Squares, in_batches, jittered, scaled

RANDOM = {"transform": jittered, "batch_transform": scaled}


def same(first, second):
    """Whether two lists of batches agree bit for bit, type for type."""
    assert [sorted(batch) for batch in first] == [sorted(batch) for batch in second]
    pairs = [
        (one[key], other[key])
        for one, other in zip(first, second, strict=True)
        for key in one
    ]
    return all(
        one.dtype == other.dtype and np.array_equal(one, other) for one, other in pairs
    )


def labels(batches):
    return [batch["y"].tolist() for batch in batches]


# Sources
# -----------------------------------------------------------------------------


def test_arrays_give_the_batches_of_a_slicing_loop():
    arrays = {"x": np.random.default_rng(0).random((23, 7, 5)), "y": np.arange(23)}
    loader = data.Loader(arrays, 7, seed=3)
    order = data.order(23, seed=3, epoch=2)
    wanted = [
        {key: value[order[at : at + 7]] for key, value in arrays.items()}
        for at in range(0, 23, 7)
    ]
    assert same(list(loader.batches(epoch=2)), wanted)


def test_an_indexable_dataset_gives_the_same_batches_as_its_arrays():
    arrays = {
        "x": np.stack([np.full((3, 2), i**2, np.float32) for i in range(23)]),
        "y": np.arange(23),
    }
    wanted = list(data.Loader(arrays, 7, seed=1).batches(1))
    assert same(list(data.Loader(Squares(), 7, seed=1).batches(1)), wanted)


class Pair(NamedTuple):
    picture: np.ndarray
    rest: dict


def test_named_tuples_and_nested_dicts_are_kept():
    arrays = Pair(
        np.arange(6.0).reshape(3, 2), {"label": [np.arange(3)], "name": "train"}
    )
    (batch,) = data.Loader(arrays, 3, shuffle=False)
    assert isinstance(batch, Pair)
    assert (batch.rest["label"][0].tolist(), batch.rest["name"]) == ([0, 1, 2], "train")


def test_a_list_is_a_list_of_samples():
    batches = data.Loader(
        [(np.ones(2), 0), (np.zeros(2), 1), (np.ones(2), 2)], 2, shuffle=False
    )
    assert [(x.shape, y.tolist()) for x, y in batches] == [
        ((2, 2), [0, 1]),
        ((1, 2), [2]),
    ]


def test_datasets_and_tensors_of_pytorch_are_read():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(
        torch.arange(6.0).reshape(3, 2), torch.arange(3)
    )
    (batch,) = data.Loader(dataset, 3, shuffle=False)
    assert isinstance(batch[0], np.ndarray)
    assert (batch[0].tolist(), batch[1].tolist()) == (
        [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
        [0, 1, 2],
    )


def test_batches_own_their_memory():
    arrays = {"y": np.arange(6)}
    for batch in data.Loader(arrays, 2, shuffle=False):
        batch["y"][:] = -1
    assert arrays["y"].tolist() == list(range(6))


@pytest.mark.parametrize("source", [None, 3, "text", iter([1, 2]), {1, 2}])
def test_what_holds_no_samples_is_refused(source):
    with pytest.raises(
        ArgumentError,
        match=r"from data.Batches\(function\), .*, not from",
    ):
        data.Loader(source)


def test_an_empty_dataset_is_refused():
    with pytest.raises(
        BatchError, match="at least one sample, and this Squares has none"
    ):
        data.Loader(Squares(0))


def test_an_empty_stream_is_an_error():
    with pytest.raises(BatchError, match="list had no batch in epoch 2"):
        list(data.Batches(list).batches(2))


def test_a_stream_that_is_no_iterator_is_an_error():
    with pytest.raises(ArgumentError, match="returned 3, wanted an iterable"):
        list(data.Batches(lambda: 3).batches())


# Lengths
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 23])
def test_every_sample_comes_once(batch_size, drop_last):
    loader = data.Loader(Squares(), batch_size, drop_last=drop_last)
    found = labels(loader)
    left_out = 23 % batch_size if drop_last else 0
    everything = [label for batch in found for label in batch]
    assert len(set(everything)) == len(everything) == 23 - left_out
    assert {len(batch) for batch in found[:-1]} <= {batch_size}
    assert (len(loader), loader.samples) == (len(found), 23)


def test_an_epoch_without_any_batch_is_refused():
    with pytest.raises(
        BatchError, match="5 samples, fewer than the 7 of a batch, and drop_last=True"
    ):
        data.Loader({"y": np.arange(5)}, 7, drop_last=True)


# Order and random numbers
# -----------------------------------------------------------------------------


def test_no_skipped_sample_is_loaded():
    dataset = Squares(23)
    assert len(list(data.Loader(dataset, 5, seed=1).batches(epoch=1, first=3))) == 2
    assert dataset.read == data.order(23, seed=1, epoch=1)[15:].tolist()


@pytest.mark.parametrize(
    "loader",
    [
        data.Loader(Squares(), 5, **RANDOM),
        data.Batches(lambda: in_batches(Squares(), 5)),
    ],
)
@pytest.mark.parametrize("first", [0, 2, 4, 5])
def test_batches_from_a_position_on_are_those_of_the_whole_epoch(loader, first):
    assert same(list(loader.batches(1, first)), list(loader.batches(1))[first:])


def test_a_position_past_the_end_of_a_stream_is_refused():
    stream = data.Batches(lambda: iter([{"y": np.ones(2)}] * 2))
    with pytest.raises(SettingError, match="ended after 2 batches in epoch 0"):
        list(stream.batches(0, 3))


def test_the_random_numbers_of_a_sample_are_known_in_advance():
    """Keyed by hand with NumPy's Philox: a change would make old runs unrepeatable."""
    import hashlib

    path = hashlib.blake2b(b"data/transform", digest_size=8).digest()
    key = np.array([5, int.from_bytes(path, "little")], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 11, 2]))
    loader = data.Loader(
        {"y": np.arange(13)},
        4,
        seed=5,
        transform=lambda s, generator: {**s, "u": generator.random()},
    )
    found = {
        int(y): u for batch in loader.batches(2) for y, u in zip(batch["y"], batch["u"])
    }
    assert found[11] == generator.random()
    assert len(set(found.values())) == 13


def test_a_sample_that_comes_twice_is_transformed_differently():
    twice = data.Loader(
        {"y": np.arange(2)},
        2,
        sampler=lambda samples, seed, epoch: [1, 1, 0, 1],
        transform=lambda s, rng: rng.random(),
    )
    once = data.Loader(
        {"y": np.arange(2)}, 2, shuffle=False, transform=lambda s, rng: rng.random()
    )
    draws = np.concatenate(list(twice.batches()))
    assert len(set(draws)) == 4
    assert [draws[2], draws[0]] == next(once.batches()).tolist()


@pytest.mark.parametrize(
    "transform",
    [
        lambda sample: {"y": sample["y"] + 1},
        lambda sample, step=1: {"y": sample["y"] + step},
        lambda sample, generator: {"y": sample["y"] + generator.integers(1, 2)},
        lambda sample, anything: {"y": sample["y"] + anything.integers(1, 2)},
        lambda sample, generator=None: {"y": sample["y"] + generator.integers(1, 2)},
        lambda sample, *, rng: {"y": sample["y"] + rng.integers(1, 2)},
        lambda sample, step=1, *, rng=None: {"y": sample["y"] + rng.integers(step, 2)},
        lambda *samples: {"y": samples[0]["y"] + len(samples)},
    ],
    ids=[
        "one",
        "default",
        "generator",
        "second",
        "default-generator",
        "by-name",
        "default-by-name",
        "any-number",
    ],
)
def test_a_transform_gets_a_generator_if_its_signature_asks_for_one(transform):
    assert labels(
        data.Loader({"y": np.arange(3)}, 3, shuffle=False, transform=transform)
    ) == [[1, 2, 3]]


def test_functions_written_in_c_are_transforms():
    (batch,) = data.Loader(
        np.arange(3), 3, shuffle=False, transform=np.negative, batch_transform=abs
    )
    assert batch.tolist() == [0, 1, 2]


def test_a_transform_of_a_batch_is_keyed_by_its_number_and_the_epoch():
    loader = data.Loader(
        {"y": np.arange(6)}, 2, batch_transform=lambda batch, rng: rng.random()
    )
    draws = list(loader.batches(1))
    assert len({*draws, *loader.batches(0)}) == 6
    assert list(loader.batches(1, 2)) == draws[2:]


# Positions
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "first", "message"),
    [
        (0, 99, "first is 99, and epoch 0 has 5 batches"),
        (-1, 0, "epoch=-1 must be a whole number of at least 0"),
        (0, 1.5, "first=1.5 must be a whole number of at least 0"),
        (1, 6, "first is 6, and epoch 1 has 5 batches"),
    ],
)
def test_a_position_that_does_not_exist_is_refused(epoch, first, message):
    with pytest.raises(SettingError, match=message):
        data.Loader(Squares(), 5).batches(epoch, first)


# Options
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be a whole number of at least 1"),
        ({"batch_size": 2.0}, "batch_size=2.0 must be a whole number of at least 1"),
        ({"prefetch": -1}, "prefetch=-1 must be a whole number of at least 0"),
        ({"workers": True}, "workers=True must be a whole number of at least 0"),
        (
            {"worker_kind": "proces"},
            "worker_kind 'proces' is unknown. Did you mean 'process'",
        ),
        ({"seed": -1}, "seed must be a whole number"),
        ({"sampler": 3}, "sampler must be callable"),
        (
            {"sampler": data.SequentialSampler(), "shuffle": True},
            "the sampler gives the order",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        data.Loader(Squares(), **options)


@pytest.mark.parametrize("name", ["transform", "batch_transform"])
def test_a_transform_must_be_callable(name):
    with pytest.raises(ArgumentError, match=f"^{name} must be a function, not 3"):
        data.Loader(Squares(), **{name: 3})


# Collation
# -----------------------------------------------------------------------------


def test_samples_of_different_shapes_are_named_with_path_and_shapes():
    samples = [
        {"image": [np.zeros((7, 5))], "y": 0},
        {"image": [np.zeros((7, 6))], "y": 0},
    ]
    with pytest.raises(
        BatchError,
        match=r"sample\['image'\]\[0\] has shape \(7, 5\) at .* 0 .* shape \(7, 6\) at place 1",
    ):
        data.collate(samples)


def test_samples_of_different_structure_are_named():
    with pytest.raises(
        BatchError,
        match=r"sample is a dict with keys \['a'\] at place 0 .* keys \['b'\] at place 1",
    ):
        data.collate([{"a": 1}, {"b": 1}])


def test_scalars_become_arrays_and_other_leaves_stay_if_they_agree():
    found = data.collate(
        [
            {"a": 1.5, "b": True, "c": None, "name": "x"},
            {"a": 2, "b": False, "c": None, "name": "yz"},
        ]
    )
    assert (found["a"].tolist(), found["b"].dtype, found["c"]) == (
        [1.5, 2.0],
        np.bool_,
        None,
    )
    assert found["name"].tolist() == ["x", "yz"]


def test_other_leaves_that_differ_are_refused():
    with pytest.raises(
        BatchError,
        match=r"sample\['c'\] has None at place 0 of the batch and 3 at place 1",
    ):
        data.collate([{"c": None}, {"c": 3}])


def test_no_samples_make_no_batch():
    with pytest.raises(BatchError, match="at least one sample"):
        data.collate([])


def test_a_subset_reads_on_demand_and_checks_its_index():
    dataset = Squares()
    part = data.subset(dataset, np.array([20, 3]))
    assert (len(part), dataset.read) == (2, [])
    assert (part[1]["y"], part[-1]["y"]) == (3, 3)
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 2"):
        part[2]


def test_a_table_is_refused_in_the_place_of_its_arrays():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [0.0, 1.0], "label": [0, 1]})
    with pytest.raises(
        ArgumentError, match=r"a table, a DataFrame.*table\[name\].to_numpy"
    ):
        data.Loader(table)
    batch = next(
        data.Loader((table[["a"]], table["label"]), 2, shuffle=False).batches()
    )
    assert batch[0].tolist() == [[0.0], [1.0]]


def test_the_factory_of_a_stream_may_take_the_epoch():
    loader = data.Batches(
        lambda epoch: [{"y": np.array([10 * epoch + i])} for i in range(3)]
    )
    assert labels(loader.batches(epoch=4)) == [[40], [41], [42]]


@dataclass
class Case:
    picture: np.ndarray
    name: str


def test_a_dataclass_of_arrays_is_a_source():
    (batch,) = data.Loader(Case(np.arange(3), "a"), 3, shuffle=False)
    assert (type(batch), batch.picture.tolist(), batch.name) == (Case, [0, 1, 2], "a")


def doubled(batch):
    return {"x": np.tile(batch["x"], 2)}


doubled.whole_batch = True


def test_a_transform_that_changes_the_number_of_samples_is_not_shared_out():
    """The shares are those of the samples that were read, so the rest would be lost."""
    loader = data.Loader({"x": np.arange(6)}, 4, batch_transform=doubled)
    assert [len(batch["x"]) for batch in loader.batches()] == [8, 4]
    with pytest.raises(BatchError, match="has 8 samples, and 4 were read"):
        list(loader.shared(0, 2).batches())
