"""Batches padded to one size, on every backend."""

import numpy as np
import pytest

from deliralike import DataParallel, Network, backends, rules
from deliralike.errors import BatchError, SettingError
from deliralike.inference import PaddedBatchInferer
from deliralike.training import Trainer, evaluate, predict
from tests.compiled import compilations

BACKENDS = ["torch", "chainer", "jax"]
X = np.random.default_rng(0).normal(size=(7, 5))
LABELS = np.random.default_rng(1).integers(0, 3, 7)


class Scores(Network):
    """A linear map of the sum of the inputs, in a nest."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(5, 3)

    def forward(self, x, *others):
        for other in others:
            x = x + other
        scores = self.fc(x)
        return {"pred": scores, "rest": (self.nn.relu(scores), None)}


class Plain(Scores):
    def forward(self, x):
        return self.fc(x)


class WithAverage(Scores):
    def forward(self, x):
        scores = self.fc(x)
        return {"pred": scores, "average": self.nn.mean(scores, 0)}


class WithTotal(Scores):
    def forward(self, x):
        scores = self.fc(x)
        return scores, self.nn.mean(scores)


def built(backend, network=Scores):
    return network.on(backend, seed=1, dtype="float64")()


def by_numpy(network, x):
    state = network.neutral_state()
    return x @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_predictions_are_those_of_each_sample_alone(backend):
    network = built(backend)
    batches = list(
        predict(network, (X, 2 * X), batch_size=3, inferer=PaddedBatchInferer(3))
    )
    assert [len(batch["pred"]) for batch in batches] == [3, 3, 1]
    wanted = by_numpy(network, 3 * X)
    found = np.concatenate([batch["pred"] for batch in batches])
    positive = np.concatenate([batch["rest"][0] for batch in batches])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(positive, np.maximum(wanted, 0), rtol=0, atol=1e-12)
    assert batches[-1]["rest"][1] is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_and_metrics_see_the_true_samples_only(backend):
    network = built(backend, Plain)
    trainer = Trainer(
        network,
        rules.rule("sgd", lr=0.1),
        metrics=["accuracy"],
        inferer=PaddedBatchInferer(4),
    )
    figures = trainer.evaluate((X, LABELS), batch_size=4)
    scores = by_numpy(network, X)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    assert figures["loss"] == pytest.approx(
        -logs[np.arange(7), LABELS].mean(), rel=1e-12
    )
    assert figures["accuracy"] == np.mean(scores.argmax(1) == LABELS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_share_out_padded_batches(backend):
    network, device = built(backend), backends.get(backend).devices()[0]
    wanted = by_numpy(network, X)
    replicas = DataParallel(network, [device, device])
    batches = predict(replicas, X, batch_size=6, inferer=PaddedBatchInferer(6))
    found = np.concatenate([batch["pred"] for batch in batches])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_jax_compiles_nothing_for_a_smaller_last_batch():
    network = built("jax")
    inferer = PaddedBatchInferer(3)
    batches = predict(network, X, batch_size=3, inferer=inferer)
    next(batches)
    with compilations() as compiled:
        assert len(list(batches)) == 2
        evaluate(network, (X, LABELS), metrics={}, batch_size=3, inferer=inferer)
        assert not compiled
        list(predict(network, X, batch_size=3))  # which shows that they are noticed
    assert compiled


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("samples", [4, 3])
def test_outputs_without_the_batch_first_are_refused_in_full_batches_too(
    backend, samples
):
    inferer = PaddedBatchInferer(4)
    wanted = (
        r"output\['average'\] is an array of shape \(3,\), and PaddedBatchInferer returns .* the 4 "
        "samples of a batch along their first axis: leave it out"
    )
    with pytest.raises(BatchError, match=wanted):
        inferer(X[:samples], built(backend, WithAverage))
    with pytest.raises(BatchError, match=r"output\[1\] is an array of shape \(\)"):
        inferer(X[:samples], built(backend, WithTotal))


def test_outputs_that_are_no_arrays_are_refused():
    with pytest.raises(BatchError, match=r"output\[1\] is 0.5, and Padded"):
        PaddedBatchInferer(4)(X[:3], lambda x: (x, 0.5))


def test_batches_above_the_size_and_sizes_below_one_are_refused():
    with pytest.raises(
        BatchError, match="a batch has 7 samples, .* pads to batch_size=4"
    ):
        PaddedBatchInferer(4)(X, built("torch"))
    with pytest.raises(BatchError, match="at least one sample"):
        PaddedBatchInferer(4)(X[:0], built("torch"))
    with pytest.raises(
        SettingError, match="batch_size=0 must be a whole number of at least 1"
    ):
        PaddedBatchInferer(0)
