"""The frameworks' own dropout: the same factor on both sides, so that all else can be judged."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch.nn import functional as F
from torch.nn.utils import rnn

from deliralike import backends
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from deliralike.errors import ProofFailed
from deliralike.network import Network

L, CF = chainer.links, chainer.functions
QUICK = ("L0", "L1", "L3")
GENERATOR = np.random.default_rng(0)
PICTURES = GENERATOR.normal(size=(5, 1, 6, 6)), np.arange(5) % 3


class OnTorch(torch.nn.Module):
    """Drops by a layer, and by a function."""

    def __init__(self, layer=0.1, function=0.3, factor=1.0):
        super().__init__()
        self.factor = factor
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.drop, self.rate = torch.nn.Dropout(layer), function
        self.fc, self.out = torch.nn.Linear(144, 5), torch.nn.Linear(5, 3)

    def forward(self, x):
        y = self.drop(torch.relu(self.conv(x)))
        y = torch.tanh(self.fc(y.flatten(1)) * self.factor)
        return self.out(F.dropout(y, self.rate, self.training))


class OnFlax(nnx.Module):
    """The same with channels last."""

    def __init__(self, layer=0.1, function=0.3, factor=1.0):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(1, 4, (3, 3), padding=1, rngs=rngs)
        self.drop, self.other = (
            nnx.Dropout(layer, rngs=rngs),
            nnx.Dropout(function, rngs=rngs),
        )
        self.fc, self.out = nnx.Linear(144, 5, rngs=rngs), nnx.Linear(5, 3, rngs=rngs)
        self.factor = factor

    def dropped(self, y):
        return self.other(y)

    def __call__(self, x):
        y = self.drop(jax.nn.relu(self.conv(x)))
        y = jnp.tanh(self.fc(y.transpose(0, 3, 1, 2).reshape(len(x), -1)) * self.factor)
        return self.out(self.dropped(y))


class OnChainer(chainer.Chain):
    """The same by functions alone."""

    def __init__(self, extra=False, factor=1.0, first=0.1):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 4, 3, pad=1)
            self.fc, self.out = L.Linear(144, 5), L.Linear(5, 3)
        self.extra, self.factor, self.first = extra, factor, first

    def forward(self, x):
        y = CF.relu(self.conv(x))
        y = y if self.first is None else CF.dropout(y, self.first)
        y = CF.dropout(CF.tanh(self.fc(y) * self.factor), 0.3)
        return self.out(CF.dropout(y) if self.extra else y)


class ByHand(OnFlax):
    """Draws a mask by its own means, which nothing can force."""

    def __init__(self, factor=1.0):
        super().__init__(factor=factor)
        self.rngs = nnx.Rngs(3)

    def dropped(self, y):
        if self.other.deterministic:
            return y
        kept = jax.random.uniform(self.rngs(), y.shape) < 0.7
        return jnp.where(kept, y / 0.7, 0)


class ByBernoulli(ByHand):
    """Draws its mask as people write it with JAX."""

    def dropped(self, y):
        if self.other.deterministic:
            return y
        return jnp.where(jax.random.bernoulli(self.rngs(), 0.7, y.shape), y / 0.7, 0)


class PathsOnTorch(torch.nn.Module):
    """Drops the branch of whole samples, as timm and torchvision write it."""

    def __init__(self, rate=0.3):
        super().__init__()
        self.fc, self.branch, self.rate = (
            torch.nn.Linear(36, 3),
            torch.nn.Linear(3, 3),
            rate,
        )

    def forward(self, x):
        y = self.fc(x.flatten(1))
        branch = self.branch(y)
        if not self.training:
            return y + branch
        mask = y.new_empty((len(y), 1)).bernoulli_(1 - self.rate)
        return y + branch * mask.div_(1 - self.rate)


class PathsByRand(PathsOnTorch):
    """The same by numbers that are compared with the rate, which the framework does not know."""

    def forward(self, x):
        y = self.fc(x.flatten(1))
        branch = self.branch(y)
        if not self.training:
            return y + branch
        kept = torch.rand(len(y), 1, dtype=y.dtype) >= self.rate
        return y + branch * kept / (1 - self.rate)


class Paths(Network):
    """The same, written once."""

    def __init__(self, rate=0.3):
        super().__init__()
        self.fc, self.branch = self.nn.Linear(36, 3), self.nn.Linear(3, 3)
        self.drop = self.nn.DropPath(rate)

    def forward(self, x):
        y = self.fc(self.nn.flatten(x, 1))
        return y + self.drop(self.branch(y))


def proof(reference, candidate, **options):
    """A comparison with the reference's weights."""
    options = {"levels": QUICK, **options}
    return compare(reference, candidate, PICTURES, weights="load", **options)


@pytest.mark.parametrize("candidate", [OnTorch, OnFlax, OnChainer])
def test_a_right_port_is_proved_in_training_too(candidate):
    levels = ("L0", "L1", "L7")
    found = proof(OnTorch(), candidate(), levels=levels)
    assert found.proved, found
    assert "2 calls of it in training" in str(found.level("L1").notes)


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_masks_that_a_network_of_pytorch_draws_in_place_become_equal(backend):
    found = proof(PathsOnTorch(), Paths.on(backend)())
    assert found.proved, found
    with pytest.raises(ProofFailed, match=r"drops 0\.3 .* 0\.2|0\.2 .* 0\.3"):
        proof(PathsOnTorch(), Paths.on(backend)(0.2)).check()


def test_a_rate_that_the_framework_does_not_know_is_reported():
    assert proof(PathsByRand(), Paths.on("torch")()).proved
    found = proof(PathsByRand(), Paths.on("torch")(0.0))
    assert found.diverges and "dropout p=0 instead of ?" in str(found), found


class Flattened(nnx.Module):
    """Flattens channels last, and drops features; weights of the first layer are in that order."""

    def __init__(self, factor=1.0, rate=0.3):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(1, 4, (3, 3), padding=1, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)
        self.hidden = nnx.Linear(144, 144, rngs=rngs)
        self.head = nnx.Linear(144, 3, rngs=rngs)
        self.factor = factor

    def __call__(self, x):
        y = self.drop(jax.nn.relu(self.conv(x)).reshape(len(x), -1))
        return self.head(self.drop(jnp.tanh(self.factor * self.hidden(y))))


class FlattenedFirst(torch.nn.Module):
    """The same with channels first."""

    def __init__(self):
        super().__init__()
        self.conv, self.drop = (
            torch.nn.Conv2d(1, 4, 3, padding=1),
            torch.nn.Dropout(0.3),
        )
        self.fc, self.out = torch.nn.Linear(144, 144), torch.nn.Linear(144, 3)

    def forward(self, x):
        y = self.drop(torch.relu(self.conv(x)).flatten(1))
        return self.out(self.drop(torch.tanh(self.fc(y))))


def test_a_mask_of_features_follows_the_order_in_which_pictures_are_flattened():
    found = proof(FlattenedFirst(), Flattened())
    assert found.proved, found
    found = proof(FlattenedFirst(), Flattened(rate=0.5))
    assert found.diverges
    assert "dropout p=0.5 instead of 0.3" in str(found)


def test_the_functions_are_the_frameworks_own_again():
    before = F.dropout, CF.dropout, nnx.Dropout.__call__
    proof(OnTorch(), OnChainer())
    with pytest.raises(ProofFailed, match="unexpected"):
        proof(OnTorch(), OnFlax(), loss=raising)
    assert before == (F.dropout, CF.dropout, nnx.Dropout.__call__)


def raising(network, x, labels):
    """A loss that cannot be computed."""
    raise ValueError("unexpected")


@pytest.mark.parametrize(
    ("rates", "place", "cause"),
    [
        (
            {"layer": 0.3},
            "drop (Dropout), forward, train",
            "dropout p=0.3 instead of 0.1",
        ),
        (
            {"function": 0.7},
            "the network (OnTorch), forward, train",
            "dropout p=0.7 instead of 0.3, the fraction that is kept in the place of that",
        ),
    ],
)
def test_another_rate_is_named(rates, place, cause):
    found = proof(OnTorch(), OnFlax(**rates))
    assert found.headline.startswith(f"DIVERGES at {place}")
    (finding,) = found.level("L3").findings
    assert cause in finding.explanation.cause
    assert 0.0 < finding.explanation.match < 1e-12
    assert "No effect on evaluation outputs" in found.headline


def test_a_mistake_beside_dropout_is_found_at_its_place():
    """With another rate, too, of which no match is claimed then."""
    found = proof(OnTorch(), OnTorch(factor=1.1))
    (finding,) = found.level("L3").findings
    assert (finding.place, finding.what) == ("", "the input of tanh()"), found
    both = proof(OnTorch(), OnTorch(layer=0.3, factor=1.1)).level("L3").findings
    assert ("", "the input of tanh()") in [(one.place, one.what) for one in both]
    (dropped,) = [
        one
        for one in both
        if one.remarks == ("There is dropout p=0.3 instead of 0.1.",)
    ]
    assert (dropped.place, dropped.explanation) == ("drop", None)


def test_a_dropout_that_one_side_alone_has_is_counted():
    found = proof(OnTorch(), OnChainer(extra=True))
    (finding,) = found.level("L3").findings
    assert (
        finding.explanation.cause
        == "dropout p=0.5 instead of 0, called 3 times instead of 2 times"
    )
    assert 0.0 < finding.explanation.match < 1e-12


@pytest.mark.parametrize(
    ("kind", "settings"), [(OnChainer, {"first": None}), (OnFlax, {"layer": 0.0})]
)
def test_a_dropout_that_is_skipped_is_the_place(kind, settings):
    """Whatever follows has masks of other shapes then."""
    found = proof(OnTorch(), kind(**settings))
    assert found.headline.startswith("DIVERGES at drop (Dropout), forward, train"), (
        found
    )
    (finding,) = found.level("L3").findings
    assert (
        "p=0 instead of 0.1, called once instead of 2 times"
        in finding.explanation.cause
    )
    assert 0.0 < finding.explanation.match < 1e-12


class Unused(OnTorch):
    """Drops first from what nothing comes of."""

    def forward(self, x):
        self.drop(x)
        return super().forward(x)


def test_a_dropout_that_changes_nothing_may_be_left_out():
    found = proof(Unused(), OnChainer())
    assert found.proved, found


class Channels(OnTorch):
    """Drops whole channels."""

    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout2d(0.1)


def test_masks_of_other_shapes_are_a_difference():
    """One factor for each mask hides that channels are dropped in the place of elements."""
    found = proof(OnTorch(), Channels())
    words = (
        r"drop, mask of dropout, train.*shape \(5, 4, 1, 1\) instead of \(5, 4, 6, 6\)"
    )
    assert found.diverges and re.search(words, found.headline), found


def test_dropout_that_drops_nothing_may_be_left_out():
    found = proof(OnTorch(layer=0.0), OnChainer(first=None))
    assert found.proved, found


def test_masks_drawn_by_bernoulli_of_jax_are_forced_too():
    assert proof(OnTorch(), ByBernoulli()).verdict == "proved"


def test_where_masks_cannot_be_forced_evaluation_is_judged():
    found = proof(OnTorch(), ByHand())
    assert found.verdict == "undecided"
    assert "is not deterministic: two equal runs in train mode differ" in str(
        found.level("L1").notes
    )
    found = proof(OnTorch(), ByHand(factor=1.1))
    assert found.diverges
    assert {finding.mode for finding in found.findings} == {"eval"}
    assert found.level("L3").findings[0].what == "the input of tanh()"


# What PyTorch draws within a function
# -----------------------------------------------------------------------------


def times(factor):
    """PyTorch's dropout with one factor in the place of each mask, and the sizes of these."""
    sizes = []

    def factors(shape, rate):
        sizes.append((int(np.prod(shape)), rate))
        return np.full(shape, factor)

    return backends.get("torch").override_dropout_masks(factors), sizes


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_recurrence_is_scaled_between_its_layers(kind, is_packed):
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(3, 4, 3, dropout=0.25, bidirectional=True)
    layer.double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([5, 3])
    pack, pad = rnn.pack_padded_sequence, rnn.pad_packed_sequence
    context, sizes = times(1.5)
    with context:
        found = layer(pack(x, lengths) if is_packed else x)[0]
    found = pad(found)[0] if is_packed else found
    wanted = x
    for depth in range(3):
        single = getattr(torch.nn, kind)(
            wanted.shape[2], 4, bidirectional=True, dtype=torch.float64
        )
        for name, parameter in single.named_parameters():
            parameter.data = getattr(layer, name.replace("l0", f"l{depth}"))
        packed = pack(wanted, lengths) if is_packed else wanted
        wanted = single(packed)[0]
        wanted = pad(wanted)[0] if is_packed else wanted
        wanted = wanted * (1.5 if depth < 2 else 1.0)
    np.testing.assert_allclose(found.detach(), wanted.detach(), rtol=1e-12)
    assert sizes == [((8 if is_packed else 10) * 8, 0.25)] * 2
    layer.eval()
    context, sizes = times(1.5)
    with context:
        layer(x)
    assert sizes == []


def test_weights_of_attention_are_scaled():
    q, k, v = torch.randn(3, 2, 5, 4, dtype=torch.float64)
    wanted = torch.softmax(q @ k.mT * 0.5, -1) * 1.5 @ v
    context, sizes = times(1.5)
    with context:
        found = F.scaled_dot_product_attention(q, k, v, None, 0.25)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert sizes == [(50, 0.25)]


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_everything_and_scales_it(name):
    x = torch.randn(5, 3, 2, dtype=torch.float64)
    context, sizes = times(1 / 0.75)
    with context:
        found = getattr(F, name)(x, 0.25, True)
    low = -1.0507009873554805 * 1.6732632423543772  # of SELU
    scale = (0.75 + low**2 * 0.25 * 0.75) ** -0.5  # PyTorch's documentation
    np.testing.assert_allclose(found, x * scale - scale * low * 0.25, rtol=1e-12)
    assert sizes == [(30 if name == "alpha_dropout" else 15, 0.25)]


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = torch.nn.MultiheadAttention(8, 2, dropout=0.25, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0][:, 0]


class FlaxAttention(nnx.Module):
    def __init__(self, rate=0.25):
        self.attn = nnx.MultiHeadAttention(
            2,
            8,
            dropout_rate=rate,
            broadcast_dropout=False,
            decode=False,
            rngs=nnx.Rngs(0),
        )

    def __call__(self, x):
        return self.attn(x)[:, 0]


class Last(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(8, 4, 3, batch_first=True, dropout=0.25)

    def forward(self, x):
        return self.rnn(x)[1][0][-1]


class ChainerLast(chainer.Chain):
    def __init__(self, rate=0.25):
        super().__init__()
        with self.init_scope():
            self.rnn = L.NStepLSTM(3, 8, 4, rate)

    def forward(self, x):
        return self.rnn(None, None, list(x))[0][-1]


@pytest.mark.parametrize(
    ("reference", "candidate", "finding"),
    [
        (Attention, FlaxAttention, "attn (MultiheadAttention), output[0], train"),
        (Last, ChainerLast, "dropout p=0.2 instead of 0.25"),
    ],
)
def test_so_is_a_port_whose_framework_draws_within_a_layer(
    reference, candidate, finding
):
    torch.manual_seed(0)
    batch = GENERATOR.normal(size=(5, 4, 8)), np.arange(5) % 3
    sides = reference(), candidate()
    found = compare(*sides, batch, weights="load", levels=QUICK)
    assert found.level("L1").status == "passed", str(found)
    sides = reference(), candidate(0.2)
    found = compare(*sides, batch, weights="load", levels=QUICK)
    assert finding in str(found.findings[0]), str(found)
    assert "Could not be judged" not in str(found)


def test_dropout_that_goes_on_in_evaluation_is_named_there():
    class Forgetful(OnTorch):
        def forward(self, x):
            y = self.drop(torch.relu(self.conv(x)))
            y = torch.tanh(self.fc(y.flatten(1)))
            return self.out(F.dropout(y, self.rate))

    proof = compare(OnTorch(), Forgetful(), PICTURES, weights="load", levels=QUICK)
    assert "forward, eval" in proof.headline
    assert "dropout p=0.3 instead of 0, called once instead of never" in proof.headline


def test_of_equal_calls_that_which_is_missing_is_named():
    def dropping():
        parts = [torch.nn.Linear(6, 6), torch.nn.Dropout(0.1)]
        return torch.nn.Sequential(*parts, torch.nn.Tanh(), torch.nn.Dropout(0.1))

    reference, candidate = (
        torch.nn.Sequential(dropping(), dropping(), dropping()) for _ in range(2)
    )
    candidate[1][3] = torch.nn.Identity()
    batch = GENERATOR.normal(size=(5, 6)), np.arange(5) % 6
    proof = compare(reference, candidate, batch, weights="load", levels=QUICK)
    assert proof.findings[0].place == "1.3", proof.headline
