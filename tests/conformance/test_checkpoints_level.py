"""The level "checkpoints": planted mistakes are detected and located; right pairs give no alarm."""

import copy

import numpy as np
import pytest

from deliralike import backends, build
from deliralike.conformance.levels import checkpoints
from deliralike.conformance.subject import Subject
from deliralike.optim import rules
from deliralike.training import classification_loss
from tests.planted import checkpoints as planted
from tests.planted.fixtures import fixture


def _sgd(network):
    return network.backend.optimizer(rules.rule("sgd", lr=0.01, momentum=0.9), network)


def _adam(network):
    return network.backend.optimizer(rules.rule("adam", lr=0.01), network)


BOTH = {"sgd": _sgd, "adam": _adam}


def _subject(name, backend, optimizers=BOTH):
    subject, batch = fixture(name, backend)
    return subject.but(optimizers=optimizers), batch


@pytest.mark.parametrize("mistake", planted.MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_detected_and_located(mistake, tmp_path):
    (reference, batch), (right, _) = (
        _subject(mistake.fixture, "torch"),
        _subject(mistake.fixture, "chainer"),
    )
    level = checkpoints.level(reference, mistake.plant(right), batch, tmp_path)
    assert level.status == "failed"
    assert any(text in one.place for one in level.findings for text in mistake.place)


def _state(subject, name, updates=2):
    """The state of one of a subject's optimizers as it writes it after some updates."""
    batch = np.arange(6.0).reshape(2, 3) / 7, np.array([0, 1])
    optimizer = subject.optimizers[name](copy.deepcopy(subject.network))
    for _ in range(updates):
        optimizer.update(classification_loss, *batch)
    return optimizer.neutral_state()


def _only(state, end):
    return {name: value for name, value in state.items() if name.endswith(end)}


# The mistake, the optimizer, what it should write of the right state; the rest stays.
WRITTEN = [
    ("momentum not written", "sgd", "/momentum_buffer", lambda state: {}),
    (
        "momentum times the learning rate",
        "sgd",
        "/momentum_buffer",
        lambda state: {name: -0.01 * value for name, value in state.items()},
    ),
    (
        "step count one late",
        "adam",
        "/step",
        lambda state: {name: value - 1 for name, value in state.items()},
    ),
    (
        "moments exchanged",
        "adam",
        ("/exp_avg", "/exp_avg_sq"),
        lambda state: {
            name.removesuffix("_sq") if name.endswith("_sq") else f"{name}_sq": value
            for name, value in state.items()
        },
    ),
]


@pytest.mark.parametrize(("name", "optimizer", "end", "change"), WRITTEN)
def test_a_planted_optimizer_writes_what_its_name_says(name, optimizer, end, change):
    network = build(backends.get("torch").nn.Linear, 3, 2, dtype="float64")
    right = Subject(network, optimizers=BOTH)
    mistake = next(each for each in planted.MISTAKES if each.name == f"optimizer: {name}")
    expected, written = _state(right, optimizer), _state(mistake.plant(right), optimizer)
    changed = _only(expected, end)
    assert changed
    unchanged = {name: value for name, value in expected.items() if name not in changed}
    expected = unchanged | change(changed)
    assert written.keys() == expected.keys()
    assert all(np.array_equal(written[key], expected[key]) for key in expected)


def test_there_are_as_many_mistakes_as_names():
    assert len({mistake.name for mistake in planted.MISTAKES}) == len(planted.MISTAKES) >= 20


@pytest.mark.parametrize("name", ["convolutional", "tied"])
@pytest.mark.parametrize("other", ["chainer", "torch"])
def test_right_pairs_give_no_alarm(name, other, tmp_path):
    (reference, batch), (candidate, _) = _subject(name, "torch"), _subject(name, other)
    before = reference.network.neutral_state()
    level = checkpoints.level(reference, candidate, batch, tmp_path)
    assert level.status == "passed", level.findings
    assert level.figures["files"]["reference to candidate"][:3] == [".safetensors", ".npz", ".pth"]
    assert (
        ("chainer" in level.notes[0]) == (other == "chainer") if level.notes else other == "torch"
    )
    after = reference.network.neutral_state()
    assert all(np.array_equal(before[each], after[each]) for each in before)


@pytest.mark.parametrize("name", ["convolutional", "tied"])
def test_a_right_pair_with_jax_gives_no_alarm(name, tmp_path):
    (reference, batch), (candidate, _) = (
        _subject(name, "torch", {"adam": _adam}),
        _subject(name, "jax", {"adam": _adam}),
    )
    level = checkpoints.level(reference, candidate, batch, tmp_path)
    assert level.status == "passed", level.findings
    assert ".msgpack" in level.figures["files"]["reference to candidate"]


def test_networks_with_other_names_are_compared_by_their_pairs(tmp_path):
    (reference, batch), (candidate, _) = _subject("tasks", "torch"), _subject("tasks", "torch")
    assert backends.get("torch") is reference.network.backend

    class Renamed(type(reference.network).written_once):
        def __init__(self):
            super().__init__()
            self.head = self.fc
            del self.fc

        def forward(self, x):
            return self.head(x)

    network = Renamed.on("torch", dtype="float64")()
    names = {"fc.weight": "head.weight", "fc.bias": "head.bias"}
    network.load_neutral_state({names[k]: v for k, v in reference.network.neutral_state().items()})
    assert (
        checkpoints.level(reference, candidate.but(network=network), batch, tmp_path, names).status
        == "passed"
    )
    assert (
        checkpoints.level(reference, candidate.but(network=network), batch, tmp_path).status
        == "failed"
    )


def test_a_tied_parameter_has_one_state_under_its_first_name(backend):
    """Else a checkpoint of one backend would not be read by the other."""
    subject, batch = _subject("tied", backend)
    optimizer = _sgd(subject.network)
    optimizer.update(subject.loss, *batch)
    assert {key.rpartition("/")[0] for key in optimizer.neutral_state()} - {""} == {
        "embedding.weight",
        "square.weight",
        "square.bias",
        "other.weight",
        "other.bias",
    }
