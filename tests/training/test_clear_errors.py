"""Inputs that make no sense end in an error of ours that says what was wrong, before anything is
spent on them."""

import json
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest

from deliralike import Network, data, training, zoo
from deliralike.errors import SettingError, StructureError, UnknownName, naming
from deliralike.optim import rules
from deliralike.training.experiment import folder, read_settings
from deliralike.training.experiment.compare import read_runs
from tests.conftest import BACKENDS

SAMPLES = data.Samples(np.ones((6, 3), np.float32), np.zeros(6, np.int64))


def trainer(*callbacks, **options):
    network = zoo.build("mlp", backend=BACKENDS[0], in_features=3, out_features=2)
    return training.Trainer(
        network, rules.rule("sgd", lr=0.5), callbacks=callbacks, **options
    )


@pytest.mark.parametrize(
    "epochs", [float("nan"), 1.5, float("inf"), True, "3", 0, None]
)
def test_epochs_are_a_whole_number(epochs):
    with pytest.raises(
        SettingError, match=r"epochs=.* must be a whole number of at least 1"
    ):
        trainer().fit(SAMPLES, epochs=epochs)


class WithCritic(Network):
    """Its step takes an optimizer by another name than the run has."""

    def __init__(self):
        super().__init__()
        self.critic = self.nn.Linear(3, 2)

    def forward(self, x):
        return self.critic(x)

    def train_step(self, batch, optimizers):
        return optimizers["critic"].update(
            lambda network, x, _: network(x).sum(), *batch
        )


def test_an_optimizer_that_a_run_does_not_have_is_named_with_those_that_it_has():
    network = WithCritic.on(BACKENDS[0])()
    plain = training.Trainer(network, rules.rule("sgd", lr=0.5))
    with pytest.raises(UnknownName, match=r"optimizers\['critic'\], .* has default:"):
        plain.fit(SAMPLES)


class WithAuxiliaryOutput(Network):
    """In training mode the outputs are two, as of GoogLeNet."""

    def __init__(self):
        super().__init__()
        self.first, self.head = self.nn.Linear(3, 2), self.nn.Linear(2, 2)

    def forward(self, x):
        early = self.first(x)
        return (self.head(early), early) if self.training else self.head(early)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_default_loss_of_several_outputs_says_what_to_do(backend):
    network = WithAuxiliaryOutput.on(backend)()
    with pytest.raises(
        StructureError, match=r"gives a tuple of length 2.*losses=.*aux_log"
    ):
        training.Trainer(network, rules.rule("sgd", lr=0.5)).fit(SAMPLES)

    def both(prediction, target):
        outputs = prediction if isinstance(prediction, tuple) else (prediction,)
        return sum(network.nn.cross_entropy(each, target) for each in outputs)

    trainer = training.Trainer(network, rules.rule("sgd", lr=0.5), {"loss": both})
    assert len(trainer.fit(SAMPLES, SAMPLES, batch_size=6).losses) == 1


class WithoutReturn(Network):
    """Its forward pass gives nothing."""

    def __init__(self):
        super().__init__()
        self.head = self.nn.Linear(3, 2)

    def forward(self, x):
        self.head(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forward_without_return_is_told(backend):
    network = WithoutReturn.on(backend)()
    with pytest.raises(StructureError, match="gives None.*end its forward with a"):
        training.Trainer(network, rules.rule("sgd", lr=0.5)).fit(SAMPLES)


def test_more_batches_than_a_computer_counts_make_one_update_an_epoch():
    assert (
        len(trainer(accumulate=10**30).fit(SAMPLES, epochs=2, batch_size=2).steps) == 2
    )


# Settings
# -----------------------------------------------------------------------------


def test_settings_without_an_end_are_refused(tmp_path):
    tables = "{a = " * 3000 + "1" + "}" * 3000
    (tmp_path / "x.toml").write_text(f'network = "mlp"\nnetwork_settings = {tables}')
    with pytest.raises(SettingError, match=r"x.toml' does not hold settings: "):
        read_settings(tmp_path / "x.toml")


def test_a_number_that_no_computer_counts_with_is_refused(tmp_path):
    (tmp_path / "x.toml").write_text(f'network = "mlp"\naccumulate = {10**30}\n')
    with pytest.raises(SettingError, match="must be a whole number of at most 9,223"):
        read_settings(tmp_path / "x.toml")


@pytest.mark.parametrize(
    "settings", [{"hidden": True}, {"hidden": 1.5}, {"hidden": None}]
)
def test_a_setting_of_another_type_is_named(settings):
    with pytest.raises(SettingError, match="mlp: hidden=.* must be a list"):
        zoo.build("mlp", backend=BACKENDS[0], **settings)


def test_the_settings_are_named_with_which_a_network_of_ones_own_fails(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(
        "from deliralike import Network\n"
        "class Net(Network):\n"
        "    def __init__(self, depth=2):\n"
        "        super().__init__()\n"
        "        self.layers = [self.nn.Linear(3, 3) for _ in range(depth)]\n"
    )
    with pytest.raises(
        SettingError, match="cannot be built with depth='x': .*A setting is of"
    ):
        zoo.build(f"{path}:Net", backend=BACKENDS[0], depth="x")


# Records
# -----------------------------------------------------------------------------

GOOD = json.dumps({"kind": "epoch", "epoch": 0, "steps": 3, "held_out": {"loss": 0.25}})
DAMAGED = [
    "[1, 2]",
    "3",
    "null",
    '"text"',
    "{",
    '{"kind": "step"}',
    '{"kind": ["step"]}',
    '{"kind": "epoch", "epoch": "x", "steps": 1}',
    '{"kind": "epoch", "epoch": 0, "steps": 1, "held_out": 3}',
    '{"kind": "epoch", "epoch": 0, "steps": 1, "held_out": {"loss": []}}',
    "\0\0\0",
    "[" * 100_000,
]


def test_a_damaged_record_of_one_run_hides_no_other(tmp_path):
    for name, lines in (("damaged", DAMAGED), ("fine", [])):
        (tmp_path / name).mkdir()
        (tmp_path / name / folder.SETTINGS).write_text('network = "mlp"\n')
        content = "\n".join([*lines, GOOD]).encode() + (
            b"\n\xff\xfe\x00" if lines else b"\n"
        )
        (tmp_path / name / folder.METRICS).write_bytes(content)
    rows = read_runs(tmp_path)
    assert [(row.folder.name, list(row.values)) for row in rows] == [
        ("damaged", [0.25]),
        ("fine", [0.25]),
    ]


def test_a_full_disk_is_told_with_the_files_name():
    with (
        pytest.raises(OSError, match=r"No space left on device: '/dev/full'"),
        naming("/dev/full"),
    ):
        Path("/dev/full").write_text("x")


# Names
# -----------------------------------------------------------------------------


class Named(Network):
    """Arguments may be called as those of the machinery are."""

    def __init__(self, cls=3, args=1, kwargs=1, init_kwargs=1):
        super().__init__()
        self.cls = self.nn.Linear(3, cls)

    def forward(self, x):
        return self.cls(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_may_be_called_cls(backend):
    network = Named.on(backend)(cls=2, init_kwargs=4)
    assert network.init_kwargs["cls"] == 2
    assert network.neutral_state()["cls.weight"].shape == (2, 3)
    assert pickle.loads(pickle.dumps(network)).init_kwargs["init_kwargs"] == 4


# Before the first step, and during validation
# -----------------------------------------------------------------------------


class Steps(training.callbacks.Callback):
    """Counts what was spent."""

    def __init__(self):
        self.count = 0

    def on_step(self, run, step):
        self.count += 1


@pytest.mark.parametrize(
    "validation", [None, SAMPLES], ids=["without validation", "with validation"]
)
@pytest.mark.parametrize(
    "losses", [None, {"a": lambda p, t: p.sum(), "b": lambda p, t: p.sum()}]
)
def test_a_misspelt_metric_is_refused_before_the_first_step(
    tmp_path, validation, losses
):
    watching = [
        training.callbacks.EarlyStopping("acuracy"),
        training.callbacks.Checkpoint(tmp_path / "c", monitor="acuracy"),
    ]
    for each in watching:
        steps = Steps()
        with pytest.raises(UnknownName, match="there is no metric 'acuracy'"):
            trainer(
                steps,
                each,
                metrics={"accuracy": training.metrics.Accuracy()},
                losses=losses,
            ).fit(SAMPLES, validation)
        assert steps.count == 0 and not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["accuracy", "loss", "dice/mean", "a", "b"])
def test_metrics_that_there_will_be_may_be_watched(name):
    losses = {"a": lambda p, t: p.sum(), "b": lambda p, t: p.sum()}
    made = trainer(
        training.callbacks.EarlyStopping(name),
        metrics=["accuracy", "dice"],
        losses=losses,
    )
    assert len(made.fit(SAMPLES, SAMPLES).steps) == 1


def own_loss(network, inputs, labels):
    entropy = network.nn.cross_entropy(network(inputs), labels)
    return entropy, {"entropy": entropy}


def test_names_of_a_loss_function_are_known_before_the_first_step():
    """They are those of one batch of validation data."""
    for name in ("entropy", "loss"):
        made = trainer(training.callbacks.EarlyStopping(name), losses=own_loss)
        assert len(made.fit(SAMPLES, SAMPLES).steps) == 1
    steps = Steps()
    made = trainer(steps, training.callbacks.EarlyStopping("val_loss"), losses=own_loss)
    before = made.network.neutral_state()
    with pytest.raises(
        UnknownName, match="Did you mean 'loss'. .* will give: loss, entropy"
    ):
        made.fit(SAMPLES, SAMPLES)
    assert steps.count == 0
    assert all(
        (made.network.neutral_state()[name] == before[name]).all() for name in before
    )


class Signalling:
    """Validation data during whose first batch a signal comes."""

    def __init__(self, number=None):
        self.number, self.given = number, 0

    def batches(self, epoch):
        for _ in range(50):
            self.given += 1
            if (
                self.number is not None and self.given == 2
            ):  # after the look at the first
                os.kill(os.getpid(), self.number)
            yield (SAMPLES.inputs, SAMPLES.labels)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_validation_after_a_batch_and_the_epoch_is_validated_when_resumed(
    tmp_path, number
):
    whole = trainer().fit(SAMPLES, Signalling(), epochs=2, batch_size=4)
    cut = Signalling(number)
    with pytest.raises(KeyboardInterrupt):
        trainer(training.callbacks.Checkpoint(tmp_path / "c")).fit(
            SAMPLES, cut, epochs=2, batch_size=4
        )
    assert cut.given <= 5
    latest = training.Checkpoints.latest(tmp_path / "c")
    resumed = trainer().fit(
        SAMPLES,
        Signalling(),
        epochs=2,
        batch_size=4,
        resume=latest,
        accept=["validation"],
    )
    assert [each.epoch for each in resumed.epochs] == [0, 1]
    assert resumed.losses.tolist() == whole.losses[2:].tolist()
    assert resumed.held_out("loss").tolist() == whole.held_out("loss").tolist()
