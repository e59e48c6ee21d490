"""Settings name a transform of training batches, mixup or CutMix: what is mixed, which loss takes
it, and on which data it is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from deliralike import Network, backends, data
from deliralike.data.keyed_rng import keyed_generator
from deliralike.errors import SettingError
from deliralike.training import predict
from deliralike.training.experiment import Experiment, Settings, build_network
from deliralike.training.experiment.building import complete, loaders
from tests.conftest import BACKENDS
from tests.losses import mean_square_error

pytestmark = pytest.mark.usefixtures("drawn")
# 30 samples in batches of 8 are 4 steps an epoch, the last of them on 6 samples.
SETTINGS = Settings(
    network="mlp",
    network_settings={"hidden": [7]},
    dtype="float64",
    batch_size=8,
    epochs=2,
    seed=3,
    batch_transforms=["mixup"],
)


def dataset(labels=None, task="classification", classes=("a", "b", "c")):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(30, 2, 5, 3)).astype(np.float32)
    samples = data.Samples(inputs, np.arange(30) % 3 if labels is None else labels)
    return data.Dataset("own", samples, samples, classes, task)


def experiment(**changes):
    return Experiment(SETTINGS, dataset=dataset(), **changes)


def mixed_by_hand(batch, epoch, number, alpha=0.2):
    """The formula of Zhang et al. 2018, with the loader's generator of that batch."""
    generator = keyed_generator(3, "data/batch_transform", epoch, number)
    inputs, labels = batch
    others = generator.permutation(len(labels))
    shares = generator.beta(alpha, alpha, len(labels))
    rows = np.zeros((len(labels), 3))
    mixed = []
    for i, (j, share) in enumerate(zip(others, shares, strict=True)):
        mixed.append(share * inputs[i] + (1 - share) * inputs[j])
        rows[i, labels[i]] += share
        rows[i, labels[j]] += 1 - share
    return np.stack(mixed), rows


def test_training_batches_are_those_that_numpy_mixes_and_no_others():
    settings = complete(SETTINGS, dataset())
    train, held_out = loaders(settings, dataset())
    plain, _ = loaders(settings.with_(batch_transforms=()), dataset())
    batches = zip(train.batches(1), plain.batches(1), strict=True)
    for number, (found, before) in enumerate(batches):
        for array, wanted in zip(found, mixed_by_hand(before, 1, number), strict=True):
            assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)
    (judged,) = held_out.batches()
    assert judged.inputs.tolist() == dataset().held_out.inputs.tolist()
    assert judged.labels.tolist() == dataset().held_out.labels.tolist()


def test_the_number_of_classes_is_taken_from_the_data_when_it_is_left_out():
    (found,) = complete(SETTINGS, dataset()).batch_transforms
    assert found == {"name": "mixup", "num_classes": 3}
    more = SETTINGS.with_(
        batch_transforms=[{"name": "cutmix", "num_classes": 5, "alpha": 2.0}]
    )
    (found,) = complete(more, dataset()).batch_transforms
    assert found == {"name": "cutmix", "num_classes": 5, "alpha": 2.0}


def test_the_loss_is_the_cross_entropy_of_the_mixed_rows_on_every_backend(tmp_path):
    results = [experiment(backend=name).run(tmp_path / name) for name in BACKENDS]
    settings = complete(SETTINGS.with_(batch_transforms=()), dataset())
    first = next(loaders(settings, dataset())[0].batches())
    inputs, rows = mixed_by_hand(first, 0, 0)
    network = build_network(settings.with_(backend=BACKENDS[0]), dataset())
    (scores,) = predict(network, inputs)
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    # the mixed inputs and rows that the loader gives are in float32
    assert results[0].history.losses[0] == pytest.approx(
        -(rows * log_p).sum(1).mean(), rel=1e-6
    )
    for result in results[1:]:
        assert_allclose(result.history.losses, results[0].history.losses, rtol=1e-10)
        assert result.metrics == pytest.approx(results[0].metrics, rel=1e-10)


def test_a_run_with_another_transform_of_batches_is_another_run(tmp_path):
    folder = experiment(batch_transforms=(), epochs=1).run(tmp_path / "run").folder
    with pytest.raises(
        SettingError, match=r"cannot go on with batch_transforms=.*'mixup'"
    ):
        experiment().run(folder, resume=True)
    result = experiment().run(folder, resume=True, accept=["batch_transforms"])
    assert len(result.history.steps) == 8
    stronger = experiment(epochs=3, batch_transforms=[{"name": "mixup", "alpha": 1.0}])
    with pytest.raises(SettingError, match="holds a run with batch_transforms="):
        stronger.run(folder, resume=True)
    # of a finished run the settings count that it was made with, not those that its file says now
    text = (folder / "settings.toml").read_text()
    (folder / "settings.toml").write_text(
        text.replace('name = "mixup"', 'name = "mixup", alpha = 1.0')
    )
    with pytest.raises(SettingError, match="holds a run with batch_transforms="):
        stronger.run(folder, resume=True)


class OwnStep(Network):
    """A network whose own step takes no losses."""

    def __init__(self, in_features, num_classes):
        super().__init__()
        self.fc = self.nn.Linear(in_features, num_classes)

    def forward(self, x):
        return self.fc(self.nn.flatten(x, 1))

    def train_step(self, batch, optimizers):
        return {"loss": optimizers["default"].update(mean_square_error, *batch)}


def test_a_step_and_losses_of_ones_own_get_the_rows(backend, tmp_path):
    own = experiment(
        network=f"{__name__}:OwnStep", network_settings={}, backend=backend.name
    )
    by_step = own.run(tmp_path / "step").history.losses
    with_losses = Experiment(
        own.settings.with_(network="mlp", network_settings={"hidden": []}),
        dataset=dataset(),
        losses={"weighted": lambda scores, rows: weighted(backend.nn, scores, rows)},
    )
    found = with_losses.run(tmp_path / "losses").history.losses
    assert np.isfinite(by_step).all() and len(by_step) == len(found) == 8
    reference = backends.get(BACKENDS[0])
    same = Experiment(
        with_losses.settings.with_(backend=reference.name),
        dataset=dataset(),
        losses={"weighted": lambda scores, rows: weighted(reference.nn, scores, rows)},
    )
    wanted = same.run(tmp_path / "reference").history.losses
    assert_allclose(found, wanted, rtol=1e-10)


def weighted(nn, scores, rows):
    """Class weights, label smoothing, and the overlap of segmentation."""
    weight = nn.constant(np.array([1.0, 0.5, 2.0]), like=scores)
    entropy = nn.cross_entropy(scores, rows, weight=weight, label_smoothing=0.1)
    return entropy + nn.dice_loss(nn.softmax(scores, dim=1), rows)


def test_losses_of_classes_alone_say_that_they_take_no_probabilities(backend, tmp_path):
    own = Experiment(
        SETTINGS,
        backend=backend.name,
        dataset=dataset(),
        losses={"focal": backend.nn.focal_loss},
    )
    with pytest.raises(
        ValueError, match="probabilities, as mixup makes them, are for cross_entr"
    ):
        own.run(tmp_path / "focal")
    wider = own.with_(network_settings={"out_features": 4})
    wider.losses = None
    message = r"\(8, 3\); logits of shape \(8, 4\) want \(8,\); probabilities .* shape of logits"
    with pytest.raises(ValueError, match=message):
        wider.run(tmp_path / "wider")


def test_data_without_classes_are_refused(tmp_path):
    measured = Experiment(
        SETTINGS, dataset=dataset(classes=()), network_settings={"out_features": 3}
    )
    with pytest.raises(
        SettingError, match="batch_transforms: Mixup: num_classes=0 must be"
    ):
        measured.run(tmp_path / "run")
