"""Chainer's iterators as training data; ChainerMN's are tested over processes."""

import numpy as np
import pytest

from deliralike import zoo
from deliralike.backends.chainer.arrays import chainer
from deliralike.data import Loader
from deliralike.errors import ArgumentError, SettingError
from deliralike.optim import rules
from deliralike.training import Trainer

SIZE = 3


def dataset(samples=8):
    generator = np.random.default_rng(1)
    return chainer.datasets.TupleDataset(
        generator.normal(size=(samples, 5)).astype("f"), generator.integers(0, 2, 8)
    )


def fitted(train):
    network = zoo.build("mlp", backend="chainer", in_features=5, out_features=2)
    return Trainer(network, rules.rule("sgd", lr=0.1), seed=7).fit(
        train, dataset(), epochs=2
    )


@pytest.mark.parametrize(
    "kind", ["SerialIterator", "MultithreadIterator", "MultiprocessIterator"]
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_iterator_trains_as_a_loader_of_its_data(kind, shuffle):
    history = fitted(getattr(chainer.iterators, kind)(dataset(), SIZE, shuffle=shuffle))
    wanted = fitted(Loader(dataset(), SIZE, seed=7, shuffle=shuffle))
    np.testing.assert_array_equal(history.losses, wanted.losses)
    assert [step.samples for step in history.steps] == [3, 3, 2] * 2


def test_in_their_own_order_the_batches_are_those_of_the_iterator():
    native = chainer.iterators.SerialIterator(
        dataset(), SIZE, repeat=False, shuffle=False
    )
    wanted = [chainer.dataset.concat_examples(batch) for batch in native]
    native.reset()
    network = zoo.build("mlp", backend="chainer", in_features=5, out_features=2)
    found = list(network.backend.loader_of(native, 0, None).batches(0))
    for batch, other in zip(found, wanted, strict=True):
        for array, of_native in zip(batch, other, strict=True):
            np.testing.assert_array_equal(array, of_native)


def test_evaluation_takes_iterators():
    trainer = Trainer(
        zoo.build("mlp", backend="chainer", in_features=5, out_features=2),
        rules.rule("sgd", lr=0.1),
    )
    native = chainer.iterators.SerialIterator(
        dataset(), SIZE, repeat=False, shuffle=False
    )
    assert trainer.evaluate(native) == pytest.approx(
        trainer.evaluate(dataset()), rel=1e-6
    )


def test_an_order_of_its_own_and_missing_data_are_refused():
    reverse = chainer.iterators.SerialIterator(
        dataset(), SIZE, order_sampler=lambda order, position: order[::-1]
    )
    with pytest.raises(
        SettingError,
        match="order is drawn by a function: give a deliralike.data.Loader",
    ):
        fitted(reverse)
    with pytest.raises(
        ArgumentError,
        match="Iterator does not tell its dataset: give the trainer the dataset",
    ):
        fitted(chainer.dataset.Iterator())
