"""Networks written three times by hand are matched: the map is right where the outputs are equal
afterwards."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from torch import nn

from deliralike.conformance import matching
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.matching.settling import settle
from deliralike.conformance.pairs import bring_together
from deliralike.conformance.subject import Subject
from deliralike.errors import ShapeError, UnknownName
from tests.conformance import ports

DIRECTIONS = [("torch", "jax"), ("jax", "chainer"), ("chainer", "torch")]


def turned(network, arrays, axes):
    """Pictures in another order of the axes where the network is flax's."""
    if network.backend.name != "jax":
        return arrays
    return tuple(np.transpose(x, axes) if np.ndim(x) == 4 else x for x in arrays)


def outputs(network, inputs):
    """What a network gives in evaluation for pictures with the channels first."""
    given = ports.outputs(network, turned(network, inputs, (0, 2, 3, 1)))
    return turned(network, (given,), (0, 3, 1, 2))[0]


def moved(match, reference, candidate, inputs):
    """The difference of the outputs, once the candidate has the reference's weights."""
    candidate.load_neutral_state(
        match.to_candidate(reference.neutral_state()), strict=False
    )
    return relative_difference(outputs(reference, inputs), outputs(candidate, inputs))


def loss(network, x):
    """A loss that tells any two outputs apart."""
    nn, y = network.backend.nn, network(x)
    return nn.sum(y * y * nn.constant(np.arange(1.0, 1.0 + y.shape[1]), like=y))


def settled(reference, candidate, batch):
    """The match once what is open was settled by running."""
    return bring_together(
        [Subject(reference, loss), Subject(candidate, loss)], batch, {}
    ).match


@pytest.mark.parametrize("name", ports.PORTS)
@pytest.mark.parametrize(("ours", "theirs"), DIRECTIONS)
def test_a_port_by_hand_computes_the_same_once_its_weights_came_through_the_map(
    name, ours, theirs
):
    reference, candidate = ports.build(name, ours, 1), ports.build(name, theirs, 2)
    match = matching.propose(reference, candidate)
    assert moved(match, reference, candidate, ports.batch(name)) < 1e-10


@pytest.mark.parametrize("name", ports.PORTS)
@pytest.mark.parametrize(("ours", "theirs"), DIRECTIONS)
def test_a_state_comes_back_as_it_went(name, ours, theirs):
    reference, candidate = ports.build(name, ours, 1), ports.build(name, theirs, 2)
    match, state = matching.propose(reference, candidate), candidate.neutral_state()
    if any(
        len(pair.candidate) > 1 for pair in match.names
    ):  # two biases there are one here: the second is then zero
        state = match.to_candidate(match.to_reference(state))
    back = match.to_candidate(match.to_reference(state))
    assert set(back) == {
        key for key in state if not key.endswith("num_batches_tracked")
    }
    for key, value in back.items():
        np.testing.assert_array_equal(value, state[key], err_msg=key)


# How it is decided
# -----------------------------------------------------------------------------


class Chain(nn.Module):
    """Linear layers of one shape under the names given, called in the order given."""

    def __init__(self, names, order=None):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(5, 5))
        self.order = order or names

    def forward(self, x):
        for name in self.order:
            x = getattr(self, name)(x).tanh()
        return x


def chain(*names, seed=1, order=None):
    return ports.filled(ports.made(lambda: Chain(names, order), "torch"), seed)


def partners(match):
    return {pair.reference[0].source: pair.candidate[0].source for pair in match.names}


def decisions(match):
    return {pair.decided for pair in match.names}


def test_equal_names_are_taken_as_they_are_even_where_values_were_exchanged():
    reference, candidate = chain("a", "b"), chain("a", "b")
    state = candidate.neutral_state()
    candidate.load_neutral_state(
        {name: state[{"a": "b", "b": "a"}[name[0]] + name[1:]] for name in state}
    )
    match = matching.propose(reference, candidate)
    assert partners(match) == {name: name for name in state}
    assert decisions(match) == {"name"}


def test_values_decide_where_names_say_nothing():
    reference, candidate = chain("a", "b", "c"), chain("x", "y", "z", seed=2)
    state = reference.neutral_state()
    wanted = {"a": "z", "b": "x", "c": "y"}
    candidate.load_neutral_state(
        {f"{wanted[name[0]]}{name[1:]}": value for name, value in state.items()}
    )
    match = matching.propose(reference, candidate)
    assert partners(match) == {name: f"{wanted[name[0]]}{name[1:]}" for name in state}
    assert decisions(match) == {"value"}
    assert not match.ambiguous


def test_order_alone_is_not_certain_and_the_alternatives_are_named():
    match = matching.propose(chain("a", "b", "c"), chain("x", "y", "z", seed=2))
    assert partners(match)["b.weight"] == "y.weight"
    assert len(match.ambiguous) == 6
    assert match.ambiguous[2].alternatives == ("x.weight", "z.weight")
    assert "b.weight   y.weight           order; or x.weight, z.weight" in str(match)


def test_numbers_count_within_their_series():
    reference = chain("layer1", "layer2", "layer3")
    match = matching.propose(reference, chain("block_2", "block_0", "block_1", seed=2))
    assert [partners(match)[f"layer{n}.weight"] for n in (1, 2, 3)] == [
        "block_0.weight",
        "block_1.weight",
        "block_2.weight",
    ]
    assert decisions(match) == {"name"}
    assert not match.ambiguous


def test_running_both_decides_what_is_ambiguous():
    reference = chain("a", "b", "c")
    candidate = chain("x", "y", "z", seed=2, order=("z", "x", "y"))
    before = candidate.neutral_state()
    decided = settled(
        reference, candidate, (np.random.default_rng(0).normal(size=(3, 5)),)
    )
    assert [partners(decided)[f"{name}.bias"] for name in "abc"] == [
        "z.bias",
        "x.bias",
        "y.bias",
    ]
    assert not decided.ambiguous
    assert decided.blocks["a"] == "z"
    np.testing.assert_equal(candidate.neutral_state(), before)


def test_every_order_of_a_group_is_tried_until_outputs_agree():
    match = matching.propose(chain("a", "b", "c"), chain("x", "y", "z", seed=2))
    wanted = {"a.weight": "y.weight", "b.weight": "z.weight", "c.weight": "x.weight"}

    def merit(tried):
        found = partners(tried)
        return all(found[name] == wanted[name] for name in wanted), (True, 0, -1.0)

    found = settle(match, merit)
    assert found.agrees
    assert {name: partners(found.match)[name] for name in wanted} == wanted
    assert not found.match.ambiguous
    nothing = settle(match, lambda tried: (False, (True, 0, -1.0)))
    assert nothing.exhausted
    assert nothing.match.names == match.names


def test_what_cannot_all_be_tried_is_not_exhausted():
    names = [f"{letter}{letter}" for letter in "abcdefg"]
    match = matching.propose(chain(*names), chain(*(name[0] for name in names), seed=2))
    assert not settle(match, lambda tried: (False, (True, 0, -1.0))).exhausted


def test_values_that_were_exchanged_in_copying_are_a_difference_where_names_say_so():
    reference = chain("conv1", "conv2", "conv3")
    candidate = chain("layer_conv1", "layer_conv2", "layer_conv3", seed=2)
    state, other = reference.neutral_state(), {"1": "2", "2": "1", "3": "3"}
    candidate.load_neutral_state(
        {
            f"layer_conv{other[name[4]]}{name[5:]}": value
            for name, value in state.items()
        }
    )
    assert (
        partners(matching.propose(reference, candidate))["conv1.weight"]
        == "layer_conv2.weight"
    )
    decided = settled(
        reference, candidate, (np.random.default_rng(0).normal(size=(3, 5)),)
    )
    assert partners(decided)["conv1.weight"] == "layer_conv1.weight"
    assert not decided.ambiguous


class ChannelsFirst(ports.FlaxCnn):
    """A port that takes care to flatten as PyTorch does."""

    def __call__(self, x):
        x = nnx.relu(self.norm_a(self.stem(x)))
        x = nnx.relu(self.norm_b(self.body(x)))
        return self.classifier(x.transpose(0, 3, 1, 2).reshape(len(x), -1))


def test_the_order_of_flattened_pixels_is_found_by_running():
    batch = ports.batch("cnn")
    for kind, flattened in ((ports.FlaxCnn, True), (ChannelsFirst, False)):
        reference = ports.build("cnn", "torch", 1)
        candidate = ports.filled(ports.made(kind, "jax"), 2)
        match = matching.propose(reference, candidate)
        assert any(pair.layouts for pair in match.names)
        decided = settled(reference, candidate, batch)
        last = next(
            pair for pair in decided.names if pair.reference[0].name == "fc.weight"
        )
        assert last.transform.plain is not flattened
        assert not decided.ambiguous
        assert moved(decided, reference, candidate, batch) < 1e-10


# Layouts and parts
# -----------------------------------------------------------------------------


class Hand(nnx.Module):
    """Matrices of a user's own, as (in, out)."""

    def __init__(self):
        self.matrix, self.kernel = (nnx.Param(jnp.zeros((5, 5))) for _ in range(2))
        self.wide = nnx.Param(jnp.zeros((5, 7)))

    def __call__(self, x):
        return jnp.tanh(jnp.tanh(x @ self.matrix) @ self.kernel) @ self.wide


class Three(nn.Module):
    """The same from layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (
            nn.Linear(5, 5, bias=False),
            nn.Linear(5, 5, bias=False),
        )
        self.last = nn.Linear(5, 7, bias=False)

    def forward(self, x):
        return self.last(self.second(self.first(x).tanh()).tanh())


def test_matrices_of_layers_that_are_not_known_are_turned():
    reference, candidate = (
        ports.filled(ports.made(Three, "torch"), 1),
        ports.filled(ports.made(Hand, "jax"), 2),
    )
    match = matching.propose(reference, candidate)
    assert partners(match) == {
        "first.weight": "matrix",
        "second.weight": "kernel",
        "last.weight": "wide",
    }
    batch = (np.random.default_rng(0).normal(size=(3, 5)),)
    decided = settled(reference, candidate, batch)
    assert [str(pair.transform) for pair in decided.names] == ["axes (1, 0)"] * 3
    assert not decided.ambiguous
    assert moved(decided, reference, candidate, batch) < 1e-10


class Fused(nn.Module):
    """A block whose query, key and value are one layer."""

    def __init__(self, parts=(8, 8, 8)):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, sum(parts)), nn.Linear(8, 8)


class Apart(nn.Module):
    """The same as three layers, made in another order."""

    def __init__(self, names=("v", "k", "q")):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(8, 8))
        self.out = nn.Linear(8, 8)


def test_one_tensor_is_several_of_the_other_side():
    fused, apart = (
        ports.filled(ports.made(Fused, "torch"), 1),
        ports.filled(ports.made(Apart, "torch"), 2),
    )
    state = fused.neutral_state()
    given = matching.propose(fused, apart).to_candidate(state)
    for index, name in enumerate("qkv"):
        np.testing.assert_array_equal(
            given[f"{name}.weight"], state["qkv.weight"][8 * index : 8 * index + 8]
        )
        np.testing.assert_array_equal(
            given[f"{name}.bias"], state["qkv.bias"][8 * index : 8 * index + 8]
        )
    np.testing.assert_array_equal(given["out.weight"], state["proj.weight"])
    back = matching.propose(apart, fused)
    assert back.names[-1].alternatives == ()
    np.testing.assert_array_equal(
        back.to_reference(state)["k.weight"], state["qkv.weight"][8:16]
    )


@pytest.mark.parametrize("hidden_first", [False, True])
def test_a_recurrence_that_is_written_out_has_the_gates_of_both_sides(hidden_first):
    """Two matrices of three gates each beside a GRU's, in either order of creation."""
    sides = {"ih": ("w", nn.Linear(6, 15)), "hh": ("u", nn.Linear(5, 15))}
    layers = dict(sides.values())
    if hidden_first:
        layers = dict(reversed(layers.items()))
    candidate = ports.made(lambda: nn.ModuleDict(layers), "torch")
    whole = nn.ModuleDict({"gru": nn.GRU(6, 5)})
    reference = ports.filled(ports.made(lambda: whole, "torch"), 1)
    state = reference.neutral_state()
    wanted = {
        f"{name}.{leaf}": state[f"gru.{leaf}_{side}_l0"]
        for side, (name, _) in sides.items()
        for leaf in ("weight", "bias")
    }
    candidate.load_neutral_state(wanted)
    match = matching.propose(reference, candidate)
    assert match.complete and not match.ambiguous
    given = match.to_candidate(state)
    np.testing.assert_equal(given, wanted)


def test_gradients_go_through_the_map_also_where_two_biases_are_one():
    reference, candidate = (
        ports.build("lstm", "torch", 1),
        ports.build("lstm", "jax", 2),
    )
    match = matching.propose(reference, candidate)
    candidate.load_neutral_state(match.to_candidate(reference.neutral_state()))

    def loss(network, x):
        y = network(x)
        return (y * y).mean()

    ours, theirs = (
        network.backend.gradients(loss, network, *ports.batch("lstm")).parameters
        for network in (reference, candidate)
    )
    given = match.to_reference(theirs, gradients=True)
    assert set(given) == set(ours)
    for name, gradient in ours.items():
        assert relative_difference(gradient, given[name]) < 1e-10, name
    some = match.to_reference(
        {"head.weight": theirs["head.weight"], "head.bias": None}, gradients=True
    )
    assert list(some) == ["fc.weight", "fc.bias"]
    assert some["fc.bias"] is None


class Tied(nn.Module):
    """An embedding that is the head's weight too."""

    def __init__(self, tied):
        super().__init__()
        self.embedding, self.body = nn.Embedding(7, 5), nn.Linear(5, 5)
        self.head = nn.Linear(5, 7, bias=False)
        if tied:
            self.head.weight = self.embedding.weight


class TiedInFlax(nnx.Module):
    """The same without a second name."""

    def __init__(self):
        self.embed, self.fc = (
            nnx.Embed(7, 5, **ports.wide()),
            nnx.Linear(5, 5, **ports.wide()),
        )


def test_a_second_name_of_a_tied_parameter_is_not_missing():
    tied = ports.made(lambda: Tied(True), "torch")
    match = matching.propose(tied, ports.made(TiedInFlax, "jax"))
    assert match.complete
    assert match.candidate_names("head.weight") == ("embed.weight",)
    assert match.to_reference({"embed.weight": np.ones((7, 5))}).keys() == {
        "embedding.weight",
        "head.weight",
    }
    untied = matching.propose(
        ports.made(lambda: Tied(False), "torch"), ports.made(TiedInFlax, "jax")
    )
    assert list(untied.missing) == ["head.weight"]


# Blocks, corrections and what is left over
# -----------------------------------------------------------------------------


def test_blocks_follow_their_tensors_and_those_without_go_by_name_and_class():
    cnn = matching.propose(
        ports.build("cnn", "torch", 1), ports.build("cnn", "jax", 2)
    ).blocks
    pairs = (
        "conv1 stem, bn1 norm_a, conv2 body, bn2 norm_b, drop dropout, fc classifier"
    )
    assert cnn == {"": ""} | dict(pair.split() for pair in pairs.split(", "))
    recurrent = matching.propose(
        ports.build("n-step lstm", "torch", 1), ports.build("n-step lstm", "chainer", 2)
    ).blocks
    assert recurrent["rnn"] == "lstm"


def test_corrections_win():
    reference, candidate = chain("a", "b", "c"), chain("x", "y", "z", seed=2)
    match = matching.propose(reference, candidate, {"a.weight": "z.weight"})
    assert partners(match)["a.weight"] == "z.weight"
    assert match.names[0].decided == "correction"
    blocks = matching.propose(reference, candidate, {"a": "y", "b": "x"})
    assert [partners(blocks)[f"{name}.bias"] for name in "abc"] == [
        "y.bias",
        "x.bias",
        "z.bias",
    ]
    assert not blocks.ambiguous


@pytest.mark.parametrize(
    ("corrections", "error", "message"),
    [
        (
            {"conv1.wieght": "stem.weight"},
            UnknownName,
            "'conv1.wieght', and the reference.*mean 'conv1.weight'",
        ),
        (
            {"conv1.weight": "stemm.weight"},
            UnknownName,
            "names 'stemm.weight', and the candidate.*'stem.weight'",
        ),
        (
            {"conv": "stem"},
            UnknownName,
            "'conv', and the reference, TorchCnn on torch",
        ),
        (
            {"conv1.weight": "norm_a.weight"},
            ShapeError,
            r"3, 3\) and \(4,\).*What fits in the candidate: stem.weight",
        ),
        (
            {"conv1": "norm_a"},
            ShapeError,
            r"'conv1.weight': 'norm_a.weight' pairs shapes",
        ),
        (
            {"conv1.bias": "stem.bias", "conv2.bias": "stem.bias"},
            UnknownName,
            "two corrections name 'stem.bias'",
        ),
    ],
)
def test_wrong_corrections_say_what_is_wrong(corrections, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        matching.propose(
            ports.build("cnn", "torch", 1), ports.build("cnn", "jax", 2), corrections
        )


class WithExtra(ports.TorchCnn):
    """With a layer more, and another of another shape."""

    def __init__(self):
        super().__init__()
        self.extra, self.fc = nn.Linear(3, 11), nn.Linear(48, 5)


def test_what_has_no_partner_is_listed_with_the_nearest():
    match = matching.propose(
        ports.filled(ports.made(WithExtra, "torch"), 1), ports.build("cnn", "jax", 2)
    )
    assert list(match.missing) == ["fc.weight", "fc.bias", "extra.weight", "extra.bias"]
    assert list(match.unexpected) == ["classifier.weight", "classifier.bias"]
    assert not match.complete
    assert "missing: extra.weight" in str(match)
    assert (
        "FlaxCnn on jax does not match WithExtra on torch: missing: fc.weight"
        in match.left_over
    )
    reversed_match = matching.propose(
        ports.build("cnn", "jax", 1), ports.filled(ports.made(WithExtra, "torch"), 2)
    )
    assert list(reversed_match.unexpected) == [
        "fc.weight",
        "fc.bias",
        "extra.weight",
        "extra.bias",
    ]
