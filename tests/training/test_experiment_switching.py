"""The same settings on another backend are the same run: to rounding in float64, from the start and
after a resume."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from deliralike import backends
from deliralike.training.curves import figure_of
from deliralike.training.experiment import Experiment, Settings
from deliralike.training.history import History, Step
from tests.training.experiments import StopAt

pytestmark = pytest.mark.usefixtures("drawn")
OTHERS = [name for name in ("chainer", "jax") if name in backends.available()]

# 1438 samples in batches of 240 are 6 steps an epoch, the last of them on 238 samples.
SETTINGS = Settings(
    network="mlp",
    network_settings={"hidden": [13], "dropout": 0.3},
    dtype="float64",
    batch_size=240,
    epochs=3,
    seed=5,
    transforms=[
        "flip",
        {"name": "crop", "size": 8, "padding": 1},
        {"name": "noise", "std": [0.0, 0.2]},
    ],
    optimizer="adamw",
    optimizer_settings={"lr": 0.03, "weight_decay": 0.01},
    groups={"*.bias": {"weight_decay": 0.0}},
    schedule="one_cycle",
    clip_norm=0.5,
    average=0.9,
    metrics=["accuracy", "loss"],
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The whole run on PyTorch."""
    return Experiment(SETTINGS).run(tmp_path_factory.mktemp("torch") / "run")


def differences(found, reference):
    """The largest relative difference of the losses, of the figures of every epoch, and of the
    final weights."""
    weights, wanted = (
        load_file(result.folder / "weights.safetensors")
        for result in (found, reference)
    )
    assert weights.keys() == wanted.keys()
    epochs = [
        np.array([list(each.held_out.values()) for each in result.history.epochs])
        for result in (found, reference)
    ]
    return [
        relative(found.history.losses, reference.history.losses),
        relative(*epochs),
        max(relative(weights[name], wanted[name]) for name in wanted),
    ]


def relative(found, wanted):
    assert np.shape(found) == np.shape(wanted)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize(
    ("first", "second"),
    [("torch", OTHERS[0]), (OTHERS[-1], "torch")],
)
def test_a_run_that_was_stopped_within_an_epoch_goes_on_with_another_backend(
    first, second, reference, tmp_path
):
    with pytest.raises(KeyboardInterrupt):
        Experiment(SETTINGS, backend=first).run(tmp_path / "run", callbacks=[StopAt(8)])
    found = Experiment(SETTINGS, backend=second).run(tmp_path / "run", resume=True)
    assert len(found.history.losses) == 18
    assert max(differences(found, reference)) < 1e-10
    assert found.settings.backend == second


def test_a_resumed_run_is_drawn_beside_the_same_steps_of_the_other():
    """It has the records of the steps after its checkpoint alone."""
    losses = [8.0, 7.0, 6.0, 5.0, 4.0]
    whole = [Step(number, 0, loss, 0.1, 8) for number, loss in enumerate(losses)]
    resumed = [*whole[3:4], Step(4, 0, 4.4, 0.1, 8)]
    runs = {"one": History(whole), "two": History(resumed)}
    (line, _) = figure_of(runs, "", None).axes[-1].lines
    np.testing.assert_array_equal(line.get_xdata(), [3, 4])
    np.testing.assert_allclose(line.get_ydata(), [1e-17, 0.1], rtol=1e-12)
