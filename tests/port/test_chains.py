"""A class of Chainer becomes the same network on every backend."""

from pathlib import Path

import numpy as np
import pytest

from deliralike import port
from deliralike.errors import SettingError

pytest.importorskip("libcst")

from tests.port import chains


def image(*shape):
    return (np.random.default_rng(0).standard_normal(shape).astype(np.float32),)


def tokens(*shape):
    return (np.random.default_rng(0).integers(0, 11, shape).astype(np.int32),)


CASES = {
    "perceptron": (chains.Perceptron, image(3, 7), {"n_units": 6, "n_out": 5}),
    "blocks": (chains.Blocks, image(3, 3, 9, 11), {"class_labels": 4}),
    "generator": (chains.Generator, image(3, 5), {"n_hidden": 5}),
    "mixed": (chains.Mixed, image(3, 3, 7, 9), {}),
    "words": (chains.Words, tokens(3, 7), {"n_vocab": 11, "n_units": 6}),
    "stages": (chains.Stages, image(3, 3, 8, 6), {}),
    "made of links": (chains.Made, image(3, 3, 9, 7), {}),
    "encoder": (chains.Encoder, ([*tokens(4), *tokens(3)],), {}),
    "discriminator": (chains.Discriminator, image(3, 3, 6, 8), {}),
    "listed": (chains.Listed, image(3, 4), {}),
    "ignoring": (chains.Ignoring, (tokens(3, 7)[0] - 1,), {"n_vocab": 11}),
}


def ported(name):
    network, inputs, arguments = CASES[name]
    np.random.seed(0)
    return port(network, inputs, **arguments)


@pytest.mark.parametrize("name", CASES)
def test_it_is_proved_on_torch_without_a_touch(name):
    found = ported(name)
    assert found.hands == []
    proof = found.prove("torch")
    assert proof.headline.startswith("PROVED"), proof.headline


@pytest.mark.parametrize(
    "name", ["blocks", "mixed", "made of links", "listed", "discriminator", "encoder"]
)
def test_it_is_proved_on_jax(name):
    proof = ported(name).prove("jax")
    assert proof.headline.startswith("PROVED"), proof.headline


def test_instances_of_a_class_are_told_the_sizes_that_they_found_out():
    source = ported("blocks").source
    assert "def __init__(self, out_channels, ksize, pad=1, *, in_channels):" in source
    assert "self.block1_2 = Block(6, 3, in_channels=6)" in source
    assert (
        "momentum=0.2" in source and "eps=2e-5" in source and "ceil_mode=True" in source
    )


def test_what_needs_a_hand_is_named_by_its_line():
    found = port(chains.ByHand, image(2, 4))
    text = "\n".join(map(str, found.hands))
    source = Path(chains.__file__).read_text().splitlines()
    for words in ("L.LSTM(4, 3)", "F.depth2space", "self.xp.random"):
        number = next(at for at, line in enumerate(source, 1) if words in line)
        assert f"chains.py:{number}: " in text


def test_a_mistake_in_the_table_is_found():
    found = ported("blocks")
    found.source = found.source.replace("momentum=0.2", "momentum=0.8")
    proof = found.prove("torch")
    assert proof.headline.startswith("DIVERGES"), proof.headline


def test_channels_that_are_found_out_behind_an_argument_need_a_hand():
    found = port(chains.FoundOut, image(2, 3, 5, 7))
    (remark,) = found.hands
    assert "in_channels was None" in remark.text
    with pytest.raises(
        SettingError, match="cannot be created .*before these lines .*\n.*chains.py"
    ):
        found.prove("torch")
