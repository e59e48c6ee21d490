"""What a run's future depends on is compared on resume: named when it differs, taken on purpose,
never accused."""

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest

from deliralike import Network, data
from deliralike.errors import CheckpointError
from deliralike.optim import rules
from deliralike.training import Checkpoint, Checkpoints, Trainer, schedules
from deliralike.training.identity.values import (
    array_text,
    described,
    differences,
)
from tests.conftest import BACKENDS

SCALE = 2.0


class Tower(Network):
    def __init__(self, width=6, rate=0.1):
        super().__init__()
        self.stem = self.nn.Linear(3, width)
        self.drop = self.nn.Dropout(rate)
        self.head = self.nn.Linear(width, 4)

    def forward(self, signal):
        return self.head(self.drop(self.nn.relu(self.stem(signal))))


def entropy(net, signal, kind):
    return net.nn.cross_entropy(net(signal), kind)


def scaled_entropy(net, signal, kind):
    return SCALE * net.nn.cross_entropy(net(signal), kind)


@dataclass
class Shift:
    by: float = 0.25

    def __call__(self, pair):
        return pair[0] + np.float32(self.by), pair[1]


def pairs(shift=0.0, label=0):
    generator = np.random.default_rng(8)
    signals = generator.normal(size=(11, 3)).astype(np.float32)
    kinds = generator.integers(0, 4, 11)
    signals[5, 1] += shift
    kinds[7] = (kinds[7] + label) % 4
    return data.Samples(signals, kinds)


def fitted(
    backend,
    *watchers,
    source=None,
    rule=None,
    loss=entropy,
    transform=Shift(),
    rate=0.1,
    epochs=1,
    **options,
):
    """Three updates an epoch."""
    given = {
        name: options.pop(name) for name in ("resume", "accept") if name in options
    }
    rule = rule or rules.rule("sgd", lr=0.1, momentum=0.9)
    settings = {
        "average": 0.9,
        "schedule": schedules.Cosine(30),
        "clip_norm": 2.0,
    } | options
    trainer = Trainer(
        Tower.on(backend, seed=3)(rate=rate), rule, loss, callbacks=watchers, **settings
    )
    loader = data.Loader(pairs() if source is None else source, 4, transform=transform)
    history = trainer.fit(loader, epochs=epochs, **given)
    return trainer, history


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A checkpoint of one epoch on each backend that was asked for."""
    found = {}

    def of(backend):
        if backend not in found:
            folder = tmp_path_factory.mktemp(backend)
            fitted(backend, Checkpoint(folder))
            found[backend] = Checkpoints.latest(folder)
        return found[backend]

    return of


CHANGES = {
    "optimizer": (
        {"rule": rules.rule("adam", lr=0.1)},
        "optimizer.default was SGD, here it is Adam",
    ),
    "momentum": (
        {"rule": rules.rule("sgd", lr=0.1, momentum=0.5)},
        "optimizer.default.momentum was 0.9, here it is 0.5",
    ),
    "data": (
        {"source": pairs(shift=1e-6)},
        r"data.inputs was float32 \(11, 3\), digest \w+, here it is float32",
    ),
    "augmentation": (
        {"transform": Shift(0.5)},
        "transform.by was 0.25, here it is 0.5",
    ),
    "dropout": (
        {"rate": 0.3},
        "network.rate was 0.1, here it is 0.3; network.drop.p was 0.1, here it is 0.3",
    ),
    "loss": (
        {"loss": scaled_entropy},
        "loss was function entropy, here it is function scaled_entropy",
    ),
    "clipping": ({"clip_norm": 1.5}, "clip_norm.default was 2.0, here it is 1.5"),
    "averaging decay": ({"average": 0.5}, "average.decay was 0.9, here it is 0.5"),
    "schedule": (
        {"schedule": schedules.Cosine(31)},
        "schedule.default.steps was 30, here it is 31",
    ),
}


# What is compared is the same on all backends, but for networks and rules.
OF_THE_BACKEND = ("momentum", "dropout")
ON = [
    (name, change)
    for name in BACKENDS
    for change in CHANGES
    if name == "torch" or change in OF_THE_BACKEND
]


@pytest.mark.parametrize(("backend", "change"), ON)
def test_what_differs_is_named_with_both_values_and_taken_on_purpose(
    backend, change, written
):
    options, message = CHANGES[change]
    with pytest.raises(CheckpointError, match=message) as caught:
        fitted(backend, epochs=2, resume=written(backend), **options)
    names = re.search(r"accept=\[(.*?)\]", str(caught.value))[1]
    accept = [name.strip("'") for name in names.split(", ")]
    _, history = fitted(
        backend, epochs=2, resume=written(backend), accept=accept, **options
    )
    assert len(history.steps) == 3
    assert np.isfinite(history.losses).all()


def test_another_optimizer_begins_anew_with_its_own_rate(backend, written):
    rule, options = rules.rule("adam", lr=0.003), {"schedule": None, "epochs": 2}
    accept = ["optimizer", "schedule"]
    trainer, _ = fitted(
        backend.name, rule=rule, resume=written(backend.name), accept=accept, **options
    )
    state = trainer.optimizers["default"].neutral_state()
    assert trainer.optimizers["default"].lr == 0.003
    assert {
        name: float(value) for name, value in state.items() if name.endswith("/step")
    } == dict.fromkeys(
        ("stem.weight/step", "stem.bias/step", "head.weight/step", "head.bias/step"),
        3.0,
    )
    assert int(state["steps"]) == 6


def test_only_what_is_accepted_is_taken(written):
    with pytest.raises(CheckpointError) as caught:
        fitted(
            "torch",
            loss=scaled_entropy,
            clip_norm=1.0,
            resume=written("torch"),
            accept=["loss"],
            epochs=2,
        )
    assert "clip_norm.default was 2.0" in str(caught.value)
    assert "loss was" not in str(caught.value)


def test_an_average_and_a_schedule_that_come_later_begin_there(backend, tmp_path):
    fitted(backend.name, Checkpoint(tmp_path), average=None, schedule=None)
    changes = {"average": 0.0, "schedule": schedules.StepDecay(3, gamma=0.5)}
    trainer, history = fitted(
        backend.name,
        epochs=2,
        resume=Checkpoints.latest(tmp_path),
        accept=["average", "schedule"],
        **changes,
    )
    assert [step.lr for step in history.steps] == pytest.approx([0.05] * 3)
    own = trainer.network.neutral_state()
    for (
        name,
        value,
    ) in (
        trainer.average.neutral_state().items()
    ):  # with a decay of 0 it is the latest weights
        assert np.allclose(value, own[name], rtol=1e-6), name


def test_data_that_end_before_the_position_are_refused(tmp_path):
    fitted("torch", Checkpoint(tmp_path, every_epochs=None, every_steps=2, keep=None))
    within, between = Checkpoints.all(tmp_path)
    fewer = pairs().take(slice(4))  # one batch
    options = {"source": fewer, "epochs": 2, "accept": ["data", "samples"]}
    with pytest.raises(
        CheckpointError,
        match="stands after batch 2 of its epoch, and an epoch has 1 here",
    ):
        fitted("torch", resume=within, **options)
    assert len(fitted("torch", resume=between, **options)[1].steps) == 1


def test_a_setting_that_a_run_changes_by_itself_is_not_compared(tmp_path):
    counts = []

    class Counting:
        def __init__(self):
            self.calls = 0

        def __call__(self, net, signal, kind):
            self.calls += 1
            counts.append(self.calls)
            return net.nn.cross_entropy(net(signal), kind)

    loss = Counting()
    fitted("torch", Checkpoint(tmp_path), loss=loss)
    fitted("torch", epochs=2, resume=Checkpoints.latest(tmp_path), loss=loss)
    assert counts == [1, 2, 3, 4, 5, 6]


# Values as texts
# -----------------------------------------------------------------------------

SCRIPT = """
import functools, threading
import numpy as np
from deliralike.training.identity.values import described

WEIGHT = 0.5

def helper(value):
    return value in {"red", "green", "blue", "white"}

def made(limit):
    def loss(prediction, target, *, eps=1e-3):
        '''What it does.'''
        return helper(prediction) * WEIGHT + limit * eps
    return loss

class Source:
    def __init__(self):
        self.root = "/tmp/%s/pictures" % np.random.randint(10**9)
        self.lock = threading.Lock()
        self.names = ["a", "b"]
        self.colours = {"red", "green", "blue"}
        self.me = self
    def __getitem__(self, index):
        return helper(index)

values = [
    made(3),
    functools.partial(made(2), 1),
    lambda x: x * 2,
    Source(),
    np.arange(5, dtype=">f4"),
    [np.full(3, i) for i in range(40)],
    {"deep": [Source()]},
    np.random.default_rng(0),
    object(),
]
for value in values:
    for path, text in described("value", value).items():
        print(path, text)
"""


def test_texts_are_the_same_in_every_process_and_hold_no_place(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    run = [sys.executable, str(tmp_path / "script.py")]
    first, second = (
        subprocess.run(
            run,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, **_environment()},
        )
        for seed in ("1", "2")
    )
    assert first.stdout == second.stdout
    assert "0x" not in first.stdout
    assert "value.limit 3" in first.stdout
    assert "value.WEIGHT 0.5" in first.stdout
    assert "value.root 'pictures'" in first.stdout
    assert "value.lock unknown" in first.stdout


def _environment():
    return {
        name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"
    }


def function_of(text, **names):
    space = {"__name__": "written_by_hand", **names}
    exec(textwrap.dedent(text), space)  # as different files have them
    return space["loss"]


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ("def loss(p, t):\n    # a remark\n\n    return p - 2 * t", False),
        ("def loss(p, target):\n    'What it is.'\n    return p - 2 * target", False),
        ("def loss(p, t):\n    return p - 3 * t", True),
        ("def loss(p, t):\n    return p + 2 * t", True),
        ("def loss(p, t=1):\n    return p - 2 * t", True),
    ],
)
def test_functions_differ_by_what_they_compute(other, differs):
    first = described("loss", function_of("def loss(p, t):\n    return p - 2 * t"))
    assert bool(differences(first, described("loss", function_of(other)))) is differs


def test_arrays_above_the_limit_are_sampled_over_their_whole_length():
    array = np.zeros((1000, 7))
    text = array_text(array, most=800 * 7)
    array[::10] += 1  # every tenth row is read
    assert array_text(array, most=800 * 7) != text
    assert array_text(np.zeros((0, 3))) != array_text(np.zeros((0, 4)))
    assert (
        array_text(np.arange(3, dtype=">i8")).split()[-1]
        == array_text(np.arange(3, dtype="<i8")).split()[-1]
    )


# Networks and optimizers of a framework's own
# -----------------------------------------------------------------------------


def torch_parts(rate, momentum):
    import torch

    layers = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(rate)
    )
    module = torch.nn.Sequential(layers, torch.nn.Linear(5, 4))
    return module, torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum)


def chainer_parts(rate, momentum):
    import chainer

    class Chain(chainer.Chain):
        def __init__(self):
            super().__init__()
            self.rate = rate
            with self.init_scope():
                self.first, self.norm = (
                    chainer.links.Linear(3, 5),
                    chainer.links.BatchNormalization(5),
                )
                self.last = chainer.links.Linear(5, 4)

        def __call__(self, x):
            return self.last(
                chainer.functions.dropout(self.norm(self.first(x)), self.rate)
            )

    chain = Chain()
    return chain, chainer.optimizers.MomentumSGD(lr=0.1, momentum=momentum).setup(chain)


def jax_parts(rate, momentum):
    from flax import nnx

    rngs = nnx.Rngs(0)
    layers = [
        nnx.Linear(3, 5, rngs=rngs),
        nnx.BatchNorm(5, rngs=rngs),
        nnx.Dropout(rate, rngs=rngs),
    ]
    module = nnx.Sequential(*layers, nnx.Linear(5, 4, rngs=rngs))
    return module, rules.rule("sgd", lr=0.1, momentum=momentum)


PARTS = {"torch": torch_parts, "chainer": chainer_parts, "jax": jax_parts}


def native_trainer(backend, *watchers, rate=0.2, momentum=0.9):
    module, optimizer = PARTS[backend.name](rate, momentum)
    network = backend.wrap(module)
    if not isinstance(optimizer, rules.Rule):
        optimizer = backend.wrap_optimizer(optimizer, network)
    return Trainer(network, optimizer, entropy, callbacks=watchers, rng="native")


def test_networks_and_optimizers_of_a_frameworks_own_are_compared_by_their_numbers(
    backend, tmp_path
):
    native_trainer(backend, Checkpoint(tmp_path)).fit(pairs(), epochs=1, batch_size=4)
    latest = Checkpoints.latest(tmp_path)
    history = native_trainer(backend).fit(
        pairs(), epochs=2, batch_size=4, resume=latest
    )
    assert len(history.steps) == 3
    with pytest.raises(CheckpointError, match=r"network[.\w]* was 0.2, here it is 0.3"):
        native_trainer(backend, rate=0.3).fit(
            pairs(), epochs=2, batch_size=4, resume=latest
        )
    with pytest.raises(
        CheckpointError, match=r"optimizer.default[.\w]* was 0.9, here it is 0.5"
    ):
        native_trainer(backend, momentum=0.5).fit(
            pairs(), epochs=2, batch_size=4, resume=latest
        )
