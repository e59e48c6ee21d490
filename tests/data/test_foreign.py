"""Loaders and datasets of other libraries where a loader is wanted, told by what they have."""

import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from deliralike import data
from deliralike.errors import ArgumentError, BatchError, SettingError
from deliralike.network.batch_names import inputs_and_label
from deliralike.training import Callback, checkpoint, evaluate, predict
from deliralike.training.state import gather
from tests.training import small_runs

X, Y = small_runs.samples(11)


def tensors():
    return TensorDataset(torch.tensor(X), torch.tensor(Y))


def torch_loader(**options):
    return DataLoader(tensors(), batch_size=4, **options)


class Rows(Dataset):
    """A dataset whose samples are dicts, under names in use."""

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return {"idx": index, "image": X[index], "label": Y[index]}


class Endless(IterableDataset):
    """A stream of single samples."""

    def __iter__(self):
        return iter(zip(X, Y))


class Graphs:
    """Batches that are objects with attributes, and tell their fields by ``to_dict``."""

    class Graph:
        def __init__(self, **fields):
            vars(self).update(fields)

        def to_dict(self):
            return dict(vars(self))

    def __iter__(self):
        for begin in range(0, len(X), 4):
            rows = slice(begin, begin + 4)
            yield self.Graph(
                x=torch.tensor(X[rows]), y=torch.tensor(Y[rows]), edges=[[0], [1]]
            )


class TfDataset:
    """What `tf.data.Dataset` shows: an iterable of its own tensors, with a way to NumPy."""

    def __init__(self, is_batched=True):
        self.is_batched = is_batched

    def __iter__(self):
        raise AssertionError("read as NumPy arrays")

    def __len__(self):
        return 3

    def as_numpy_iterator(self):
        if not self.is_batched:
            return zip(X, Y, strict=True)
        return iter(
            [(X[begin : begin + 4], Y[begin : begin + 4]) for begin in range(0, 11, 4)]
        )


def pairs():
    for begin in range(0, len(X), 4):
        yield X[begin : begin + 4], Y[begin : begin + 4]


IN_ORDER = {
    "torch DataLoader": torch_loader,
    "DataLoader of dicts": lambda: DataLoader(Rows(), batch_size=4),
    "DataLoader of a stream": lambda: DataLoader(Endless(), batch_size=4),
    "objects": Graphs,
    "tf.data": TfDataset,
    "generator": pairs,
    "function": lambda: data.Batches(pairs),
}


def run(backend, train, validation=None, **options):
    """Losses, figures of validation, and scores after an epoch in batches of four."""
    trainer = small_runs.trainer(backend, metrics=["accuracy"])
    history = trainer.fit(train, validation, epochs=1, batch_size=4, **options)
    return list(history.losses), [epoch.held_out for epoch in history.epochs], trainer


@pytest.mark.parametrize(
    ("backend", "kinds"),
    [
        ("torch", tuple(IN_ORDER)),
        ("chainer", ("torch DataLoader",)),
        ("jax", ("torch DataLoader",)),
    ],
)
def test_each_source_trains_and_evaluates_as_its_arrays_do(backend, kinds, subtests):
    samples = data.Samples(X, Y)
    wanted = run(backend, data.Loader(samples, 4, shuffle=False), samples)
    wanted_scores = np.concatenate(list(predict(wanted[2].network, X)))
    for kind in kinds:
        make = IN_ORDER[kind]
        with subtests.test(kind=kind):
            losses, figures, trainer = run(backend, make(), make())
            assert (
                losses == wanted[0]
                and figures[0]["accuracy"] == wanted[1][0]["accuracy"]
            )
            assert figures[0]["loss"] == pytest.approx(wanted[1][0]["loss"], rel=1e-12)
            scores = np.concatenate(list(trainer.predict(make(), batch_size=4)))
            np.testing.assert_allclose(scores, wanted_scores, rtol=1e-12)
            assert evaluate(
                trainer.network, make(), metrics=["accuracy"], batch_size=4
            ) == {"accuracy": wanted[1][0]["accuracy"]}


def test_a_dataset_with_a_length_and_items_is_shuffled_by_the_seed_like_arrays():
    options = {"batch_size": 4, "seed": 3}
    wanted = data.Loader((X, Y), **options).batches(epoch=2)
    for (inputs, labels), batch in zip(
        wanted, data.loader_of(tensors(), **options).batches(epoch=2), strict=True
    ):
        assert np.array_equal(inputs, batch[0]) and np.array_equal(labels, batch[1])


# Order and position
# -----------------------------------------------------------------------------


def order(loader, epoch, first=0):
    found = [
        np.flatnonzero((X == row).all(1))
        for batch in loader.batches(epoch, first)
        for row in batch[0]
    ]
    return np.concatenate(found).tolist() if found else []


def test_the_order_of_a_shuffled_dataloader_follows_from_seed_and_epoch():
    orders = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(orders))
        loader = data.loader_of(torch_loader(shuffle=True), seed=seed)
        orders.append([order(loader, epoch) for epoch in range(2)])
    assert orders[0] == orders[1] != orders[2]
    first, second = orders[0]
    assert sorted(first) == sorted(second) == list(range(11)) and first != second
    assert order(loader, 1, first=1) == orders[2][1][4:]


def test_the_random_state_of_torch_and_of_the_loaders_generator_stay():
    generator = torch.Generator().manual_seed(7)
    loader = torch_loader(shuffle=True, generator=generator)
    states = torch.get_rng_state(), generator.get_state()
    keyed = order(data.loader_of(loader, seed=0), 0)
    assert (
        order(data.loader_of(loader, seed=5), 0) == keyed
    )  # by the generator's own seed
    assert loader.generator is generator and loader.sampler.generator is generator
    assert torch.equal(states[0], torch.get_rng_state())
    assert torch.equal(states[1], generator.get_state())
    own_sampler = torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(tensors()), 4, False
    )
    by_batches = DataLoader(tensors(), batch_sampler=own_sampler)
    assert order(data.loader_of(by_batches), 0) == order(data.loader_of(by_batches), 0)


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_sampler_is_told_the_epoch(in_batches):
    sampler = torch.utils.data.DistributedSampler(
        tensors(), num_replicas=1, rank=0, seed=5
    )
    by_batches = torch.utils.data.BatchSampler(sampler, 4, False)
    source = DataLoader(tensors(), batch_sampler=by_batches)
    loader = data.loader_of(source if in_batches else torch_loader(sampler=sampler))
    sampler.set_epoch(2)
    wanted = list(sampler)
    sampler.set_epoch(0)
    assert order(loader, 2) == wanted != order(loader, 1)


def test_a_sampler_may_have_a_generator_of_numpy():
    class Drawn(torch.utils.data.Sampler):
        def __init__(self):
            self.generator = np.random.default_rng(0)

        def __iter__(self):
            return iter(self.generator.permutation(11).tolist())

        def __len__(self):
            return 11

    wanted = np.random.default_rng(0).permutation(11).tolist()
    assert order(data.loader_of(torch_loader(sampler=Drawn())), 0) == wanted


class Keep(Callback):
    """Write a checkpoint after four steps, inside of the second epoch."""

    def __init__(self, folder):
        self.folder = folder

    def on_step(self, run, step):
        if run.step == 4:
            checkpoint.write(self.folder, gather(run))


def resumed(tmp_path, make):
    """The losses of a run, and of one that goes on from the middle of its second epoch."""
    whole = small_runs.trainer("torch", [Keep(tmp_path / "c")]).fit(make(), epochs=2)
    return whole.losses, small_runs.trainer("torch").fit(
        make(), epochs=2, resume=tmp_path / "c"
    ).losses


def test_a_run_on_a_dataloader_is_resumed_inside_of_an_epoch(tmp_path):
    with warnings.catch_warnings(action="error"):
        whole, rest = resumed(tmp_path, lambda: torch_loader(shuffle=True))
    assert len(whole) == 6 and rest.tolist() == whole[4:].tolist()


def test_a_source_that_does_not_repeat_its_order_is_told_of_when_a_run_is_resumed(
    tmp_path,
):
    generator = np.random.default_rng(0)

    class Unkeyed:
        def __iter__(self):
            for rows in np.split(generator.permutation(11), [4, 8]):
                yield X[rows], Y[rows]

    with pytest.warns(
        UserWarning,
        match="batch 0 of epoch 1 is not the one .* tests.Unkeyed does not repeat",
    ):
        resumed(tmp_path, Unkeyed)


# What cannot be done
# -----------------------------------------------------------------------------


def test_a_generator_is_refused_for_several_epochs_before_the_first_step():
    seen = []

    class Watch(Callback):
        def on_step(self, run, step):
            seen.append(step)

    trainer = small_runs.trainer("torch", [Watch()])
    for train, validation in ((pairs(), None), (data.Batches(pairs), pairs())):
        with pytest.raises(
            SettingError, match="epochs=2: pairs can be read once.*Batches"
        ):
            trainer.fit(train, validation, epochs=2)
    assert not seen
    assert len(trainer.fit(data.Batches(pairs), epochs=2).losses) == 6


def test_a_list_of_batches_is_read_in_its_order():
    """A list cannot be hashed."""
    rows = np.arange(6).reshape(3, 2)
    assert [batch.tolist() for batch in data.Batches(list(rows)).batches()] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


def test_what_gives_nothing_is_refused():
    with pytest.raises(BatchError, match="had no batch in epoch 0"):
        list(data.Batches(list).batches())
    with pytest.raises(
        SettingError, match="first is 9, and .* ended after 3 batches in epoch 0"
    ):
        list(data.Batches(pairs).batches(first=9))
    with pytest.raises(
        ArgumentError, match="^Batches come from an iterable, .* not from"
    ):
        data.Batches(3)


def test_batches_have_the_length_of_their_source():
    assert len(data.loader_of(torch_loader())) == 3
    with pytest.raises(
        ArgumentError, match="number of batches is unknown: pairs has no length"
    ):
        len(data.Batches(pairs))
    with pytest.raises(
        SettingError, match="cannot be shared out over processes: give the dataset"
    ):
        data.Batches(pairs).shared(0, 2)


def test_a_dict_has_inputs_and_label_under_usual_names():
    assert inputs_and_label({"data": 1, "label": 2, "image": 3}) == (1, 2)
    assert inputs_and_label({"labels": 2, "pixel_values": 1}) == (1, 2)
    with pytest.raises(BatchError, match="the batch has no 'label'"):
        inputs_and_label({"image": 1, "colour": 2})


# The libraries themselves, where they are installed
# -----------------------------------------------------------------------------


def test_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(
        {"x": X.tolist(), "label": Y.tolist(), "text": ["a"] * 11}
    )
    wanted = run("torch", (X, Y))[0]
    assert run("torch", table)[0] == pytest.approx(wanted, rel=1e-6)  # it holds float32
    in_order = run("torch", data.Loader((X, Y), 4, shuffle=False))[0]
    stream = table.to_iterable_dataset().with_format("numpy")
    batches = data.Batches(lambda: stream.iter(batch_size=4))
    assert run("torch", batches)[0] == pytest.approx(in_order, rel=1e-6)
    with pytest.raises(ArgumentError, match="gives single samples, wanted batches"):
        data.loader_of(stream)


def test_a_stream_of_single_samples_is_refused():
    with pytest.raises(
        ArgumentError, match="tests.Endless gives single samples, .*: a DataLoader"
    ):
        data.loader_of(Endless())


def test_loaders_of_grain():
    grain = pytest.importorskip("grain")
    source = grain.MapDataset.source(list(zip(X, Y)))
    wanted = run("torch", (X, Y))[0]
    in_order = run("torch", data.Loader((X, Y), 4, shuffle=False))[0]
    assert run("torch", source)[0] == wanted
    assert run("torch", source.batch(4))[0] == in_order
    assert run("torch", source.to_iter_dataset().batch(4))[0] == in_order
    sampler = grain.samplers.IndexSampler(11, num_epochs=1, seed=0)
    loader = grain.DataLoader(
        data_source=list(zip(X, Y)),
        sampler=sampler,
        operations=[grain.transforms.Batch(4)],
    )
    assert run("torch", loader)[0] == in_order


@pytest.mark.parametrize(
    "source", [zip(X, Y, strict=True), TfDataset(is_batched=False)]
)
def test_single_samples_in_the_place_of_batches_are_refused(source):
    message = r"single samples, wanted batches: dataset.batch\(32\), or a list"
    with pytest.raises(BatchError, match=message):
        next(data.loader_of(source).batches())
