"""Level L7: what one batch cannot show: right at the size of the batch, and wrong at another."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from deliralike import backends
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import Subject, compare
from deliralike.conformance.loss_tracing import first_call
from tests.compiled import compilations
from tests.conformance.small import loaded

LEVELS = ("L0", "L1", "L3", "L7")


def pictures(size, samples=3):
    generator = np.random.default_rng(0)
    return generator.normal(size=(samples, 2, size, size)), np.arange(samples) % 2


class Strided(torch.nn.Module):
    """A kernel of three with a stride of two, padded by one pixel on each side."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3, stride=2, padding=1)
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.conv(x)).mean((2, 3)))


class OnFlax(nnx.Module):
    """The same, where the padding makes ``ceil(size / 2)`` pixels, if it says ``"SAME"``."""

    def __init__(self, padding):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(2, 3, (3, 3), strides=2, padding=padding, rngs=rngs)
        self.head = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x):
        x = jnp.moveaxis(x, 1, -1)
        return self.head(jnp.tanh(self.conv(x)).mean((1, 2)))


class OnChainer(chainer.Chain):
    """The same with the pads of ``"SAME"`` by hand: the odd one at the end."""

    def __init__(self, padding):
        super().__init__()
        self.padding = padding
        with self.init_scope():
            self.conv = chainer.links.Convolution2D(2, 3, 3, stride=2)
            self.head = chainer.links.Linear(3, 2)

    def forward(self, x):
        pads = [(1, 1)] * 2
        if self.padding == "SAME":
            totals = [
                max((-(-size // 2) - 1) * 2 + 3 - size, 0) for size in x.shape[2:]
            ]
            pads = [(total // 2, total - total // 2) for total in totals]
        x = chainer.functions.pad(x, [(0, 0), (0, 0), *pads], "constant")
        x = chainer.functions.tanh(self.conv(x))
        return self.head(chainer.functions.mean(x, axis=(2, 3)))


@pytest.mark.parametrize(
    ("port", "levels"), [(OnFlax, ("L1", "L7")), (OnChainer, LEVELS)]
)
def test_a_padding_that_is_right_for_odd_sizes_alone_diverges(port, levels):
    proof = compare(Strided(), port("SAME"), pictures(9), weights="load", levels=levels)
    assert proof.level("L1").status == "passed"
    assert proof.diverges
    (size,) = [one for one in proof.findings if one.level == "L7"]
    assert size.place == "inputs of (3, 2, 8, 8)"
    assert size.difference > 1e-3


def test_what_another_size_shows_is_placed_and_explained_with_that_size():
    proof = compare(
        Strided(), OnChainer("SAME"), pictures(9), weights="load", levels=LEVELS
    )
    assert proof.headline.startswith(
        "DIVERGES at conv (Conv2d), forward, eval: float64 "
    )
    assert (
        "Only with inputs of (3, 2, 8, 8): those of this batch give the same."
        in proof.headline
    )
    assert (
        "Explained by padding asymmetric SAME ((0, 1), (0, 1)) instead of"
        in proof.headline
    )


@pytest.mark.parametrize(("port", "padding"), [(OnFlax, 1), (OnChainer, 1)])
def test_a_padding_that_is_right_is_proved_for_another_size_too(port, padding):
    proof = compare(
        Strided(), port(padding), pictures(9), weights="load", levels=LEVELS
    )
    assert proof.proved
    assert proof.level("L7").notes == ("Inputs of (1, 2, 8, 8) give the same, too.",)


@pytest.mark.parametrize(
    "port", [Strided, lambda: OnChainer(1)], ids=["torch", "chainer"]
)
def test_a_layer_whose_result_has_another_size_is_the_place(port):
    """What follows takes any size, and the head gets as many numbers as before."""
    wrong = port()
    wrong.conv.stride = (1, 1)
    proof = loaded(Strided(), wrong, pictures(9))
    assert proof.headline.startswith("DIVERGES at conv (Conv2d), forward, train: ")
    assert "Explained by stride=1 instead of 2 (" in proof.headline


def test_a_network_of_one_size_is_proved_for_that_size():
    """Its head takes the pixels, so that no other number of them will do."""

    def net():
        torch.manual_seed(0)
        flat = torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2)
        return torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), *flat)

    proof = compare(net(), net(), pictures(8))
    assert proof.proved
    assert "are the same network for inputs of this size: outputs" in proof.headline
    assert "size (3, 2, 8, 8): no other one is taken" in proof.level("L7").notes[-1]


def test_a_network_of_several_sizes_is_proved_without_that_word():
    torch.manual_seed(0)
    net = Strided()
    assert "are the same network: outputs" in compare(net, net, pictures(8)).headline


class Words(torch.nn.Module):
    """The mean of embedded tokens, or their sum over a length that is written down."""

    def __init__(self, length=None, squeezes=False):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 2)
        self.length, self.squeezes = length, squeezes

    def forward(self, x):
        y = self.embedding(x)
        y = y.mean(1) if self.length is None else y.sum(1) / self.length
        y = self.head(y)
        return y.squeeze() if self.squeezes else y


def tokens(length=6, samples=3):
    generator = np.random.default_rng(0)
    return generator.integers(0, 7, (samples, length)), np.arange(samples) % 2


def test_a_length_that_is_written_down_diverges_at_another_length():
    proof = compare(Words(), Words(length=6), tokens(), levels=("L0", "L1", "L7"))
    assert proof.headline.startswith(
        "DIVERGES at inputs of (3, 5), output, eval: float64 2."
    )
    assert compare(Words(), Words(), tokens()).proved


def test_a_squeeze_shows_with_a_single_sample():
    proof = compare(Words(), Words(squeezes=True), tokens(), levels=("L0", "L1", "L7"))
    assert (
        proof.headline == "DIVERGES at inputs of (1, 6), output, eval: not comparable."
    )


def test_a_candidate_that_cannot_evaluate_a_single_sample_differs():
    class Refusing(Words):
        def forward(self, x):
            if len(x) < 2:
                raise ValueError("one is none")
            return super().forward(x)

    proof = compare(Words(), Refusing(), tokens(), levels=("L0", "L1", "L7"))
    assert "inputs of (1, 6), raises ValueError: one is none, eval" in proof.headline


def test_a_candidate_of_one_size_alone_is_proved_for_that_size():
    class Fixed(Words):
        def forward(self, x):
            if x.shape[1] != 6:
                raise ValueError("six tokens are wanted")
            return super().forward(x)

    proof = compare(Words(), Fixed(), tokens())
    assert proof.proved
    assert "for inputs of this size" in proof.headline
    assert proof.level("L7").worst == 0.0
    assert "raises ValueError: six tokens are wanted, with inputs of (3, 5)" in str(
        proof
    )


def test_an_evaluation_is_one_program_on_jax():
    """Operations one by one would each be compiled for the new size."""
    network = OnFlax(1)
    subject = Subject(backends.of(network).wrap(network))
    with compilations() as compiled:
        assert first_call(subject, pictures(7)).shape == (3, 2)
    assert len(compiled) <= 2
