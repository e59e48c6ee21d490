"""Habits of repositories of papers: what is rewritten, and what is refused."""

import copy
from pathlib import Path

import numpy as np
import pytest

from deliralike import backends, port

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

from tests.port import habits  # noqa: E402
from tests.port.proving import diverges, line_of, proved  # noqa: E402

# People's code has the older function.
pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")


def numbers(*shape):
    return (np.random.default_rng(0).standard_normal(shape).astype(np.float32),)


CASES = {
    "reporting": (habits.Reporting, numbers(3, 4, 6)),
    "counting": (habits.Counting, numbers(3, 6)),
    "listed": (habits.Listed, numbers(3, 5)),
    "swishing": (habits.Swishing, numbers(3, 5)),
    "normalised": (habits.Normalised, numbers(2, 3, 7)),
    "attending": (habits.Attending, numbers(3, 4, 6)),
    "following": (habits.Following, numbers(5, 4)),
    "placed": (habits.Placed, (np.arange(15).reshape(3, 5) % 7,)),
    "reading": (habits.Reading, (np.arange(15).reshape(3, 5) % 7,)),
    "coded": (habits.Coded, numbers(5, 5)),
    "filled": (habits.Filled, numbers(3, 4)),
    "offsets": (habits.Offsets, numbers(3, 4)),
    "probing": (habits.Probing, numbers(5, 3)),
    "masked": (habits.Masked, numbers(2, 2, 7, 5)),
    "encoder": (habits.Encoder, numbers(5, 12)),
    "drawn encoder": (habits.DrawnEncoder, numbers(5, 12)),
    "optional": (habits.Optional, numbers(3, 4)),
    "called": (habits.Called, numbers(3, 6)),
    "called below": (habits.CalledBelow, numbers(3, 6)),
    "called around": (habits.CalledAround, numbers(3, 6)),
    "dropping in training": (habits.DroppingInTraining, numbers(3, 6)),
    "assigning": (habits.Assigning, numbers(3, 5, 6)),
    "injected": (habits.Injected, numbers(2, 2, 7, 6)),
}


def ported(name):
    network, inputs = CASES[name]
    torch.manual_seed(0)
    return port(network, inputs)


@pytest.mark.parametrize("backend", ["chainer", "jax"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_proved_without_a_touch(name, backend):
    found = ported(name)
    assert found.hands == []
    proof = proved(found, backend)
    assert "train, gradients" in proof.level("L1").figures["differences"]


def test_an_attribute_that_nothing_reads_is_a_local_name_and_reported():
    found = ported("reporting")
    assert "x, _attn = self.attend(q, k, v)" in found.source
    assert "        _last = nn.detach(x)\n" in found.source
    assert "self.last = None" in found.source
    said = [str(one) for one in found.left_out if "nothing reads" in str(one)]
    assert len(said) == 2, said


def test_a_layer_drops_weights_of_attention_or_the_one_that_is_there():
    source = ported("attending").source
    assert "self.attention_dropout = nn.Dropout(self.dropout)" in source
    assert "dropout=self.attention_dropout)" in source
    assert "dropout=self.drop)" in source


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_layers_in_a_private_list_are_those_of_the_names(backend):
    network = ported("listed").network(backend)
    names = ["head_0.weight", "head_0.bias", "head_1.weight", "head_1.bias"]
    state = network.neutral_state()
    assert list(state) == names
    network.load_neutral_state({name: 0.0 * state[name] for name in names})
    inputs = network.backend.prepare(CASES["listed"][1], network)
    assert not backends.get(backend).numpy(network(*inputs)).any()


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_a_gradient_that_is_no_derivative_is_a_difference(backend):
    found = port(habits.Reversing, numbers(3, 5))
    assert "ReverseFunction.backward" in "\n".join(map(str, found.left_out))
    proof = found.prove(backend)
    assert proof.diverges, proof.headline
    assert not any("output" in one.what for one in proof.level("L1").findings)


def test_windows_of_an_axis_need_a_hand():
    (hand,) = port(habits.Windowed, numbers(3, 6)).hands
    assert "unfold: windows along an axis: nn.stack" in str(hand)


def test_packed_sequences_need_a_hand_at_their_line_alone():
    lengths = np.array([4, 3, 1])
    found = port(habits.Packing, (*numbers(3, 4, 3), lengths))
    number = line_of(habits.__file__, "pack_padded")
    (hand,) = found.hands
    assert f"habits.py:{number}: " in str(hand)
    assert "self.rnn.outputs(x, lengths)" in str(hand)


def test_an_array_that_a_static_method_makes_needs_a_hand():
    found = port(habits.Gridding, numbers(2, 3, 5, 4))
    assert any("like=x" in str(hand) for hand in found.hands), found.hands
    assert "like=self" not in found.source


def test_a_weight_norm_of_what_is_no_plain_new_layer_needs_a_hand():
    hands = port(habits.NormalisedLater, numbers(2, 3)).hands
    assert ["that is created here" in str(hand) for hand in hands] == [True, True]


def test_a_network_with_a_weight_norm_is_copied_after_it_has_run():
    (x,) = (torch.from_numpy(one) for one in CASES["normalised"][1])
    network = backends.wrap(habits.Normalised())
    wanted = network(x)
    twin = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(twin(x).detach(), wanted.detach())


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_parameters_that_are_not_trained_are_not_in_the_port(backend):
    slots = ported("following").network(backend).neutral_slots()
    frozen = {
        name for name, slot in slots.items() if slot.is_parameter and not slot.trainable
    }
    original = habits.Following()
    wanted = {
        name for name, one in original.named_parameters() if not one.requires_grad
    }
    assert frozen == wanted and len(wanted) == 7


def test_a_mask_is_filled_before_it_is_a_buffer():
    source = ported("masked").source
    assert "mask[...] = 1" in source and "self.mask = self.nn.Buffer(mask)" in source
    mask = ported("masked").network("jax").neutral_state()["first.mask"]
    np.testing.assert_array_equal(mask, habits.Causal(2, 3, 3).mask)


def test_two_buffers_are_filled_before_they_are_buffers():
    state = ported("filled").network("jax").neutral_state()
    fresh = habits.Filled()
    np.testing.assert_allclose(state["steps"], fresh.steps)
    np.testing.assert_allclose(state["share"], np.full(4, 1 / 11), rtol=1e-6)


def test_a_weight_that_is_written_over_while_it_computes_needs_a_hand():
    found = port(
        habits.MaskedInPlace,
        numbers(2, 2, 7, 5),
        in_channels=2,
        out_channels=3,
        kernel_size=3,
    )
    (hand,) = found.hands
    assert "a parameter that is written over" in str(hand)
    assert "self.weight" in found.source.partition("def forward")[2]


def test_a_layer_called_like_the_functions_needs_a_hand_and_is_wrapped():
    found = port(habits.NamedLikeFunctions, numbers(2, 3))
    assert any("nn: a network has its functions" in str(one) for one in found.hands)
    wrapped = backends.wrap(habits.NamedLikeFunctions())
    assert wrapped.neutral_state()["nn.weight"].shape == (3, 3)


def test_words_that_are_not_trained_and_a_stored_output():
    found = ported("reading")
    assert 'self.set_trainable("words.*", False)' in found.source
    assert not found.network("jax").neutral_slots()["words.weight"].trainable
    network = backends.wrap(habits.Reading())
    network(torch.arange(5)[None])
    assert not copy.deepcopy(network).kept["features"].requires_grad


def test_hooks_texts_and_methods_for_two_kinds_of_arrays_need_a_hand():
    hands = "\n".join(map(str, port(habits.Hooking, numbers(2, 3)).hands))
    assert "register_forward_hook: hooks are not ported" in hands
    assert "doubled is called with arrays while the network is created" in hands
    assert "clamp_ while the network is created" in hands
    assert "add_ while the network is created" in hands
    assert "eval: write out" in hands


def test_a_method_that_moves_weights_while_the_network_computes_is_named():
    found = port(habits.Trailing, numbers(5, 3))
    said = "\n".join(map(str, found.hands))
    assert (
        said.count("a parameter that is written over") == 2
    )  # where, and where it is called
    assert "def move(self)" in found.source and "self.move()" in found.source
    assert 'self.set_trainable("teacher.*", False)' in found.source


def test_noise_of_a_port_is_that_of_the_class_in_the_order_of_its_calls():
    port_of = port(
        habits.Injected(), numbers(2, 2, 7, 6)[0]
    )  # one array, not a sequence
    assert port_of.source.count("Noise()") == 3  # a layer for each place
    network = port_of.network("torch", dtype="float32")
    x = torch.from_numpy(numbers(2, 2, 7, 6)[0])
    outputs = []
    for each in (habits.Injected(), network):
        torch.manual_seed(5)
        if each is not network:
            each.load_state_dict(network.state_dict())
        outputs.append(each(x).detach().numpy())
    np.testing.assert_allclose(*outputs, rtol=1e-5)


def test_noise_outside_of_a_class_is_named():
    (hand,) = port(habits.OutsideEncoder, numbers(5, 12)).hands
    assert "self.noise = nn.NormalNoise() in an __init__" in str(hand)
    file, line = str(hand).split(":")[:2]
    assert "torch.randn_like" in Path(file).read_text().splitlines()[int(line) - 1]


def test_noise_that_is_forgotten_is_found_by_the_proof():
    found = ported("encoder")
    assert "mean + eps * std" in found.source
    found.source = found.source.replace("mean + eps * std", "mean + std")
    assert diverges(found, "torch")


def test_an_import_that_failed_is_not_in_the_port():
    source = ported("optional").source
    assert "a_package_that_is_not_here" not in source
    assert "fast_attention = None" in source


def test_elements_of_a_mask_whose_value_comes_from_a_call_need_a_hand():
    (hand,) = port(habits.AssigningByValues, numbers(3, 6)).hands
    assert "nn.where(mask, ..., x)" in str(hand)
