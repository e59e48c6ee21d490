"""Files whose names are of another hand: matched by names, shapes and order, or refused."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal, assert_equal

from deliralike import Network, weights, zoo
from deliralike.errors import ShapeError, StateError, UnknownName
from tests.conftest import BACKENDS

BACKEND = BACKENDS[0]


def equal_layers(backend=BACKEND):
    """Three linear layers of one shape, which shapes cannot tell apart."""
    return zoo.build(
        "mlp", backend=backend, in_features=4, hidden=(4, 4), out_features=4
    )


def values_of(network):
    """Numbers for a network, no two arrays alike."""
    rng = np.random.default_rng(3)
    return {
        name: rng.normal(size=value.shape)
        for name, value in network.neutral_state().items()
    }


def saved(tmp_path, state):
    np.savez(tmp_path / "old.npz", **state)
    return tmp_path / "old.npz"


def assert_holds(network, wanted):
    state = network.neutral_state()
    for name, value in wanted.items():
        if not name.endswith("num_batches_tracked"):
            assert_array_equal(state[name], value.astype(state[name].dtype), name)


def channels_last(name, value):
    """A kernel as TensorFlow's users keep it."""
    if not name.endswith("weight"):
        return value
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def plain(name, value):
    return value


ANOTHER_HAND = {
    "underscores": ("lenet", lambda name: name.replace(".", "_"), plain),
    "slashes and short words": (
        "lenet",
        lambda name: name.replace(".", "/").replace("weight", "w").replace("bias", "b"),
        plain,
    ),
    "channels last": (
        "lenet",
        lambda name: name.replace("weight", "kernel"),
        channels_last,
    ),
    "a block more, other words": (
        "resnet8",
        lambda name: "net." + name.replace("layer", "stage").replace("bn", "norm"),
        plain,
    ),
    "numbers from one": (
        "resnet8",
        lambda name: re.sub(r"\d+", lambda number: str(int(number[0]) + 1), name),
        plain,
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", ANOTHER_HAND)
def test_every_array_gets_to_its_place(tmp_path, case, backend):
    name, renamed, laid_out = ANOTHER_HAND[case]
    network = zoo.build(name, backend=backend)
    wanted = values_of(network)
    path = saved(
        tmp_path, {renamed(key): laid_out(key, v) for key, v in wanted.items()}
    )
    report = weights.load(network, path, match=True)
    assert report.complete
    assert_holds(network, wanted)


def by_another_hand(leaf, is_turned, sizes):
    """A network of linear layers, its numbers, and a file of them as Haiku names its arrays."""
    network = zoo.build(
        "mlp",
        backend=BACKEND,
        in_features=sizes[0],
        hidden=sizes[1:-1],
        out_features=sizes[-1],
    )
    wanted = values_of(network)
    old = {}
    for name, value in wanted.items():
        _, number, role = name.split(".")
        word = leaf if role == "weight" else "b"
        old[f"mlp/~/linear_{number}/{word}"] = value.T if is_turned else value
    return network, wanted, old


@pytest.mark.parametrize("is_turned", [True, False])
@pytest.mark.parametrize("leaf", ["w", "weights", "W", "kernel"])
def test_a_square_lies_as_the_other_matrices_of_its_file(tmp_path, leaf, is_turned):
    network, wanted, old = by_another_hand(leaf, is_turned, [3, 4, 4, 2])
    weights.load(network, saved(tmp_path, old), match=True)
    assert_holds(network, wanted)


@pytest.mark.parametrize("leaf", ["w", "weights"])
def test_squares_alone_are_open_under_words_that_say_nothing(tmp_path, leaf):
    network, wanted, old = by_another_hand(leaf, True, [4, 4, 4])
    path = saved(tmp_path, old)
    with pytest.raises(StateError, match="or in the layout 'as it is'"):
        weights.load(network, path, match=True)
    weights.load(network, path, match=True, guess=True)  # as Haiku has them
    assert_holds(network, wanted)


def test_a_square_among_matrices_of_both_layouts_is_open(tmp_path):
    network, _, old = by_another_hand("w", True, [3, 4, 4, 2])
    old["mlp/~/linear_0/w"] = old["mlp/~/linear_0/w"].T
    with pytest.raises(StateError, match=r"linear_1.w, or in the layout 'axes \(1, 0"):
        weights.load(network, saved(tmp_path, old), match=True)


class Convolutions(Network):
    """Of which the second has as many channels as its kernel is wide."""

    def __init__(self):
        super().__init__()
        self.one = self.nn.Conv2d(2, 3, 3)
        self.two = self.nn.Conv2d(3, 3, 3)


def test_a_convolution_as_large_as_its_kernel_lies_as_the_others(tmp_path):
    network = Convolutions.on(BACKEND)()
    wanted = values_of(network)
    old = {}
    for name, value in wanted.items():
        old[name.replace("weight", "w")] = channels_last(name, value)
    weights.load(network, saved(tmp_path, old), match=True)
    assert_holds(network, wanted)


class Attention(Network):
    def __init__(self):
        super().__init__()
        for part in ("query", "key", "value", "out"):
            setattr(self, part, self.nn.Linear(4, 4))


def test_the_kernels_of_one_head_of_flaxs_attention_are_inputs_before_outputs(tmp_path):
    network = Attention.on(BACKEND)()
    wanted = values_of(network)
    old = {}
    for name, value in wanted.items():
        layer, role = name.split(".")
        inputs_first = value.T
        if role == "weight":
            shape = (1, 4, 4) if layer == "out" else (4, 1, 4)
            inputs_first = inputs_first.reshape(shape)
        old[f"{layer}.{'kernel' if role == 'weight' else role}"] = inputs_first
    weights.load(network, saved(tmp_path, old), match=True)
    assert_holds(network, wanted)


class Words(Network):
    def __init__(self):
        super().__init__()
        self.table = self.nn.Embedding(4, 4)
        self.dense = self.nn.Linear(4, 4)


def test_a_square_table_of_flax_lies_as_everybodys(tmp_path):
    network = Words.on(BACKEND)()
    wanted = values_of(network)
    old = {
        "table.embedding": wanted["table.weight"],
        "dense.kernel": wanted["dense.weight"].T,
        "dense.bias": wanted["dense.bias"],
    }
    weights.load(network, saved(tmp_path, old), match=True)
    assert_holds(network, wanted)


def test_numbered_series_of_one_length_are_matched_by_their_numbers(tmp_path):
    network = equal_layers()
    wanted = values_of(network)
    old = {
        re.sub(r"layers.(\d)", r"dense\1", name): value
        for name, value in wanted.items()
    }
    report = weights.load(network, saved(tmp_path, old), match=True)
    assert "6 by number" in str(report)
    assert "no output was compared" in str(report)
    assert_holds(network, wanted)


NAMES = {"0": "first", "1": "second", "2": "third"}


def under_words(state):
    """Names that say nothing of the order; they stand in the reverse one."""
    old = {
        NAMES[name.split(".")[1]] + "_" + name[9:]: value
        for name, value in state.items()
    }
    return dict(reversed(old.items()))


def test_what_is_not_certain_is_refused_with_the_choices(tmp_path):
    network = equal_layers()
    before = network.neutral_state()
    path = saved(tmp_path, under_words(values_of(network)))
    words = r"layers.0.weight is third_weight, or (second_weight, or first|first_weight, or second)"
    with pytest.raises(StateError, match=words):
        weights.load(network, path, match=True)
    assert_holds(network, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_guess_takes_the_pairs_as_they_are_proposed(tmp_path, backend):
    network = equal_layers(backend)
    wanted = values_of(network)
    path = saved(tmp_path, under_words(wanted))
    with pytest.raises(
        StateError, match="guess=True takes the pairs as they are above"
    ):
        weights.load(network, path, match=True)
    weights.load(network, path, match=True, guess=True)  # in the order of the file
    reverse = {name: wanted[f"layers.{2 - int(name[7])}{name[8:]}"] for name in wanted}
    assert_holds(network, reverse)


def test_names_that_are_known_settle_the_others(tmp_path):
    network = equal_layers()
    wanted = values_of(network)
    path = saved(tmp_path, under_words(wanted))
    known = {
        f"layers.{number}.weight": f"{word}_weight" for number, word in NAMES.items()
    }
    known |= {f"layers.{number}.bias": f"{word}_bias" for number, word in NAMES.items()}
    report = weights.load(network, path, match=known)
    assert "6 by correction" in str(report)
    assert_holds(network, wanted)


@pytest.mark.skipif("torch" not in BACKENDS, reason="gates of PyTorch's layout")
def test_parts_of_tensors_are_joined(tmp_path):
    network = zoo.build("lstm_classifier", backend="torch")
    wanted = values_of(network)
    old = {}
    for name, value in wanted.items():
        gates = np.split(value, 4) if "rnn" in name or "lstm" in name else [value]
        letters = "ifgo" if len(gates) == 4 else [""]
        for letter, gate in zip(letters, gates, strict=True):
            side = "i" if "_ih" in name else "h"
            key = f"cell.{side}{letter}.{'bias' if 'bias' in name else 'weight'}"
            old[key if letter else name] = gate
    found = weights.match(network, saved(tmp_path, old))
    assert len(found.match.names) > len(wanted)
    assert_equal(found.state(), wanted)


def test_a_tensor_without_counterpart_is_refused_unless_it_is_said(tmp_path):
    network = equal_layers()
    wanted = values_of(network)
    path = saved(tmp_path, {**wanted, "step": np.ones(7)})
    with pytest.raises(StateError, match="in the file alone: step"):
        weights.load(network, path, match=True)
    weights.load(network, path, match={"step": None})
    assert_holds(network, wanted)


def test_a_known_pair_of_other_shapes_is_refused(tmp_path):
    network = equal_layers()
    path = saved(tmp_path, under_words(values_of(network)))
    with pytest.raises(ShapeError, match="no order of the axes"):
        weights.load(network, path, match={"layers.0.weight": "first_bias"})


SETTINGS = {"model": "mlp", "in_features": 4, "hidden": (4, 4), "out_features": 4}


def test_a_conversion_refuses_what_is_not_certain_and_follows_names(tmp_path):
    wanted = values_of(equal_layers())
    path, target = saved(tmp_path, under_words(wanted)), tmp_path / "new.safetensors"
    with pytest.raises(StateError, match=r"not certain: layers.0.weight"):
        zoo.convert(path, target, **SETTINGS)
    assert not target.exists()
    known = {name: f"{NAMES[name[7]]}_{name[9:]}" for name in wanted}
    zoo.convert(path, target, **SETTINGS, names=known)
    assert_equal(weights.read(target), wanted)


def test_a_name_that_the_file_has_not_is_refused_with_the_nearest(tmp_path):
    network = equal_layers()
    path = saved(tmp_path, under_words(values_of(network)))
    with pytest.raises(UnknownName, match="frist_weight"):
        weights.load(network, path, match={"layers.0.weight": "frist_weight"})


class Recurrent(Network):
    def __init__(self, size):
        super().__init__()
        self.rnn = self.nn.LSTM(size, size)

    def forward(self, x):
        return self.rnn(x)[0]


def test_parameters_of_a_chainer_link_are_in_the_order_of_their_numbers(tmp_path):
    """In the file they are in the order of a set: a different one in every process."""
    rng = np.random.default_rng(5)
    state = {}
    for name in "w4 w1 b7 b1 b5 b0 w3 w0 b6 b2 w2 b4 w5 b3 w6 w7".split():
        size = (3, 3) if name[0] == "w" else (3,)
        state[f"rnn/0/{name}"] = rng.normal(size=size)
    network = Recurrent.on(BACKEND)(3)
    weights.load(network, saved(tmp_path, state), match=True, guess=True)
    wanted = {}
    for kind, letter in (("weight", "w"), ("bias", "b")):
        gates = [state[f"rnn/0/{letter}{number}"] for number in range(8)]
        wanted[f"rnn.{kind}_ih_l0"] = np.concatenate(gates[:4])
        wanted[f"rnn.{kind}_hh_l0"] = np.concatenate(gates[4:])
    assert_holds(network, wanted)
