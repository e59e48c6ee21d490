"""Level L0: each difference in what two networks are made of is found, and right ports have
none."""

import numpy as np
import pytest
import torch
from torch import nn

from deliralike import zoo
from deliralike.conformance import matching
from deliralike.conformance.levels import structure
from deliralike.conformance.subject import Subject
from tests.conformance import ports
from tests.conftest import BACKENDS


def mlp(backend="torch", seed=0, **options):
    """Of three features, a hidden layer of 64 and two classes."""
    return zoo.build(
        "mlp",
        backend=backend,
        in_features=3,
        out_features=2,
        seed=seed,
        dtype="float64",
        **options,
    )


def found(reference, candidate, match=None, **options):
    """Where and what, for each finding."""
    level = structure.level(Subject(reference), Subject(candidate), match, **options)
    assert (level.status == "failed") == bool(level.findings)
    return [(finding.place, finding.what) for finding in level.findings]


@pytest.mark.parametrize("backend", BACKENDS)
def test_networks_written_once_are_equal_from_one_seed(backend):
    level = structure.level(Subject(mlp()), Subject(mlp(backend)))
    assert (level.name, level.status, level.worst, level.findings, level.notes) == (
        "L0",
        "passed",
        0.0,
        (),
        (),
    )
    assert level.figures["parameters"][0] == mlp().count_parameters()


@pytest.mark.parametrize("name", ports.PORTS)
@pytest.mark.parametrize(
    ("ours", "theirs"), [("torch", "jax"), ("jax", "chainer"), ("chainer", "torch")]
)
def test_right_ports_pass_through_their_match(name, ours, theirs):
    reference, candidate = ports.build(name, ours, 1), ports.build(name, theirs, 2)
    match = matching.propose(reference, candidate)
    before = structure.level(Subject(reference), Subject(candidate), match)
    compared = {pair.reference[0].source for pair in match.names}
    assert {finding.place for finding in before.findings} == compared
    assert max(finding.difference for finding in before.findings) == before.worst
    candidate.load_neutral_state(
        match.to_candidate(reference.neutral_state()), strict=False
    )
    after = structure.level(Subject(reference), Subject(candidate), match)
    assert (after.status, after.findings, after.worst) == ("passed", (), 0.0)


def test_start_values_are_judged_or_loaded():
    reference, candidate = mlp(), mlp(seed=1)
    judged = structure.level(Subject(reference), Subject(candidate))
    assert ("layers.0.weight", "weight of layers.0.weight") in found(
        reference, candidate
    )
    wanted = (
        reference.neutral_state()["layers.0.weight"]
        - candidate.neutral_state()["layers.0.weight"]
    )
    size = np.linalg.norm(wanted) / np.linalg.norm(
        reference.neutral_state()["layers.0.weight"]
    )
    assert judged.findings[0].difference == pytest.approx(size, rel=1e-12)
    loaded = structure.level(Subject(reference), Subject(candidate), weights="load")
    assert (loaded.status, loaded.worst) == ("passed", None)
    assert "Start values differ in" in loaded.notes[0]


def test_one_bit_is_a_difference_and_a_cast_is_not():
    reference, candidate = mlp(), mlp()
    narrow = zoo.build(
        "mlp", backend="chainer", in_features=3, out_features=2, seed=0, dtype="float32"
    )
    assert found(reference, narrow) == []
    state = candidate.neutral_state()
    state["layers.0.bias"][0] = np.nextafter(state["layers.0.bias"][0], 1)
    candidate.load_neutral_state(state)
    assert found(reference, candidate) == [("layers.0.bias", "weight of layers.0.bias")]
    state["layers.0.bias"][0] += 1e-5
    narrow.load_neutral_state(state)
    assert found(reference, narrow) == [("layers.0.bias", "weight of layers.0.bias")]


def test_zeros_in_the_reference_are_compared_too():
    reference, candidate = mlp(), mlp()
    state = reference.neutral_state()
    reference.load_neutral_state({**state, "layers.0.bias": state["layers.0.bias"] * 0})
    assert found(reference, candidate) == [("layers.0.bias", "weight of layers.0.bias")]


class Parts(nn.Module):
    """A network whose parts can be changed one by one."""

    def __init__(self, hidden=4, extra=False, tied=False, frozen=False, buffer=False):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(7, hidden), nn.BatchNorm1d(hidden)
        self.head = nn.Linear(hidden, 7, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        if extra:
            self.extra = nn.Linear(hidden, hidden)
        scale = torch.ones(3)
        self.scale = None
        if buffer:
            del self.scale
            self.register_buffer("scale", scale)
        else:
            self.scale = nn.Parameter(scale)
        self.norm.weight.requires_grad_(not frozen)


def parts(seed=1, **options):
    network = ports.filled(ports.made(lambda: Parts(**options), "torch"), seed)
    with torch.no_grad():
        network.native.scale.fill_(1.0)
    return network


def test_names_on_one_side_only():
    reference, candidate = parts(), parts(extra=True)
    extra = [
        ("extra.weight", "in the candidate only"),
        ("extra.bias", "in the candidate only"),
    ]
    assert [
        each for each in found(reference, candidate) if each[0].startswith("extra")
    ] == extra
    missing = [
        ("extra.weight", "missing in the candidate"),
        ("extra.bias", "missing in the candidate"),
    ]
    assert [
        each for each in found(candidate, reference) if each[0].startswith("extra")
    ] == missing


def test_shapes_roles_and_frozen_parameters():
    reference = parts()
    shapes = found(reference, parts(hidden=5), weights="load")
    assert ("norm.running_var", "shape (5,), in the reference (4,)") in shapes
    assert {place for place, _ in shapes} == set(reference.neutral_state()) - {
        "scale",
        "norm.num_batches_tracked",
    }
    assert found(reference, parts(frozen=True)) == [
        ("norm.weight", "frozen, in the reference trainable")
    ]
    assert found(parts(frozen=True), reference) == [
        ("norm.weight", "trainable, in the reference frozen")
    ]
    assert found(reference, parts(buffer=True), weights="load") == [
        ("scale", "a buffer, in the reference a parameter")
    ]


def test_ties():
    tied, untied = parts(tied=True), parts()
    untied.load_neutral_state(tied.neutral_state())
    assert found(tied, untied) == [
        ("head.weight", "not tied to embedding.weight, as in the reference")
    ]
    assert found(untied, tied) == [
        ("head.weight", "tied to embedding.weight, in the reference by itself")
    ]
    other = parts(tied=True)
    other.load_neutral_state(tied.neutral_state())
    assert found(tied, other) == []
    assert found(tied, other, matching.propose(tied, other)) == []
    assert (
        found(tied, untied, matching.propose(tied, untied))[0][1]
        == "not tied to embedding.weight, as in the reference"
    )


def test_what_a_match_leaves_over_is_found():
    reference, candidate = parts(extra=True), ports.build("lstm", "torch", 2)
    match = matching.propose(reference, candidate)
    places = {place: what for place, what in found(reference, candidate, match)}
    assert places["extra.weight"] == "missing in the candidate"
    assert places["rnn.weight_ih_l0"] == "in the candidate only"
