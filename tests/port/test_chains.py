"""A class of Chainer becomes the same network on every backend."""

import numpy as np
import pytest

from deliralike import port

pytest.importorskip("libcst")

from tests.port import chains
from tests.port.proving import diverges, line_of, proved


def image(*shape):
    return (np.random.default_rng(0).standard_normal(shape).astype(np.float32),)


def tokens(*shape, seed=0, below=11):
    numbers = np.random.default_rng(seed).integers(0, below, shape)
    return (numbers.astype(np.int32),)


CASES = {
    "blocks": (chains.Blocks, image(3, 3, 9, 11), {"class_labels": 4}),
    "mixed": (chains.Mixed, image(3, 3, 7, 9), {}),
    "stages": (chains.Stages, image(3, 3, 8, 6), {}),
    "made of links": (chains.Made, image(3, 3, 9, 7), {}),
    "listed": (chains.Listed, image(3, 4), {}),
    "language model": (chains.RNNForLM, tokens(3), {"n_vocab": 11, "n_units": 4}),
    "attention": (
        chains.AttSeq2Seq,
        tokens(3, 4),
        {"vocab_size": 11, "embed_size": 3, "hidden_size": 4},
    ),
    "pix2pix": (chains.Pix2PixEncoder, image(2, 3, 12, 12), {"in_ch": 3}),
    "style": (chains.FastStyleNet, image(2, 3, 12, 12), {}),
    "averaged": (chains.Averaged, image(3, 7), {}),
    "variational": (
        chains.Variational,
        image(3, 7),
        {"n_in": 7, "n_latent": 2, "n_h": 5},
    ),
    "highway": (chains.HighwayLM, image(3, 5), {"n": 5}),
    "separable": (chains.MobileSeparable, image(2, 3, 12, 12), {}),
    "masked errors": (chains.MaskedErrors, image(2, 1, 6, 6), {}),
    "state of one's own": (chains.VideoNet, image(2, 3, 2, 5, 5), {}),
    "partial": (chains.PartialSequence, image(2, 3, 8, 8), {}),
    "actor": (chains.Actor, (*image(4, 5), *image(4, 3)), {}),
    "shapes": (chains.Shuffle, image(2, 3, 5, 6), {}),
    "vgg": (chains.VGG16Layers, image(2, 3, 16, 16), {}),
    "googlenet": (chains.GoogLeNetBN, (*image(2, 3, 16, 16), *tokens(2, below=5)), {}),
    "assorted": (chains.Assorted, image(3, 3, 7, 9), {}),
    "positions": (chains.TransformerPE, tokens(2, 5), {"n_vocab": 11, "n_units": 6}),
    "boxes": (chains.MultiBox, image(2, 3, 8, 8), {}),
    "state handed over": (
        chains.Seq2seqStateful,
        (*tokens(3, 4), *tokens(3, 2, seed=1)),
        {},
    ),
    "spectral": (chains.SNDiscriminator, image(2, 3, 6, 6), {}),
}


def ported(name):
    network, inputs, arguments = CASES[name]
    np.random.seed(0)
    return port(network, inputs, **arguments)


@pytest.mark.parametrize("name", CASES)
def test_it_is_proved_on_torch_without_a_touch(name):
    found = ported(name)
    assert found.hands == []
    proved(found, "torch")


@pytest.mark.parametrize("name", ["blocks", "language model", "shapes"])
def test_it_is_proved_on_jax(name):
    proved(ported(name), "jax")


def test_instances_of_a_class_are_given_the_sizes_that_they_found_out():
    source = ported("blocks").source
    assert "def __init__(self, out_channels, ksize, pad=1, *, in_channels):" in source
    assert "self.block1_2 = Block(6, 3, in_channels=6)" in source
    assert (
        "momentum=0.2" in source and "eps=2e-5" in source and "ceil_mode=True" in source
    )


def test_what_needs_a_hand_is_named_by_its_line():
    found = port(chains.ByHand, image(2, 4))
    text = "\n".join(map(str, found.hands))
    names = ("StatefulZoneoutLSTM", "StatefulPeepholeLSTM", "F.permutate", "F.rrelu")
    for words in (*names, "L.Maxout", "L.NStepLSTM", "self.xp.random"):
        assert f"chains.py:{line_of(chains.__file__, words)}: " in text
    assert "call outputs(x, lengths) of an nn.LSTM" in text


def test_a_mistake_in_the_table_is_found():
    found = ported("blocks")
    found.source = found.source.replace("momentum=0.2", "momentum=0.8")
    assert diverges(found, "torch")


def test_a_state_is_compared_over_two_calls():
    found = ported("language model")
    found.source = found.source.replace("h[:count]", "0 * h[:count]")
    assert diverges(found, "torch")


def test_what_remembers_needs_a_method_that_lets_it_forget():
    (remark,) = port(chains.Endless, image(2, 4)).hands
    assert "a method reset_state" in remark.text and "chains.py:" in remark.where


def test_a_weight_that_is_written_over_while_it_computes_needs_a_hand():
    found = port(chains.Clipped, image(3, 3))
    said = "\n".join(map(str, found.hands))
    assert "a parameter that is written over" in said, found.source


def test_members_of_a_list_that_are_attributes_too_need_a_hand():
    (remark,) = port(chains.NamedTwice, image(2, 4)).hands
    line = "super(NamedTwice, self).__init__(self.head, L.Linear(4, 3))"
    number = line_of(chains.__file__, line)
    assert f"chains.py:{number}: members of a list" in str(remark)
