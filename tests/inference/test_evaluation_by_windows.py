"""Evaluation and prediction of a trainer whose outputs come from windows."""

import numpy as np
import pytest

from deliralike import rules
from deliralike.inference import SlidingWindowInferer, sliding_window_inference
from deliralike.training import Trainer
from deliralike.training.metrics import Dice
from tests.inference.test_sliding_window import BACKENDS, network, picture


@pytest.mark.parametrize("backend", BACKENDS)
def test_metrics_losses_and_predictions_are_those_of_the_stitched_outputs(backend):
    inputs = picture(13, 9, samples=3)
    labels = np.random.default_rng(1).integers(0, 3, (3, 13, 9))
    settings = {"roi_size": (7, 5), "sw_batch_size": 4}
    outputs = sliding_window_inference(inputs, predictor=network("torch"), **settings)
    inferer = SlidingWindowInferer(**settings)
    trainer = Trainer(
        network(backend), rules.rule("sgd", lr=0.1), metrics=["dice"], inferer=inferer
    )
    figures = trainer.evaluate((inputs, labels), batch_size=2)
    assert figures["dice/mean"] == pytest.approx(
        Dice()(outputs, labels)["mean"], rel=1e-12
    )
    shifted = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
    wanted = -np.take_along_axis(shifted, labels[:, np.newaxis], axis=1).mean()
    assert figures["loss"] == pytest.approx(wanted, rel=1e-12)
    found = np.concatenate(list(trainer.predict(inputs, batch_size=2)))
    np.testing.assert_allclose(found, outputs, rtol=0, atol=1e-12)
