"""Ports by hand against their originals: mistakes found at their places, mended, and the mended
port proved."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn import functional as F

from deliralike import backends
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from deliralike.conformance.layout_adapter import fit
from deliralike.conformance.subject import Subject

L, CF = chainer.links, chainer.functions
QUICK = ("L0", "L1", "L3")
GENERATOR = np.random.default_rng(0)
PICTURES = GENERATOR.normal(size=(6, 1, 10, 10)), GENERATOR.integers(0, 5, 6)
SCENES = GENERATOR.normal(size=(3, 2, 8, 12)), GENERATOR.integers(0, 3, (3, 8, 12))


def found(proof):
    """Places of level L3 with what is said of them."""
    said = [
        (f.place or "the network", f.what, str(f.explanation or ""))
        for f in proof.findings
        if f.level == "L3"
    ]
    return [(place, what.partition(":")[0], why) for place, what, why in said]


def sole(proof, place, what):
    """The explanation of the one mistake; it is at this place."""
    assert proof.verdict == "diverges"
    here = [
        why for where, thing, why in found(proof) if (where, thing) == (place, what)
    ]
    assert here, found(proof)
    return here[0]


# From Chainer to PyTorch
# -----------------------------------------------------------------------------


class Original(chainer.Chain):
    """Chainer's defaults throughout."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.c1, self.b1 = (
                L.Convolution2D(1, 4, 3, pad=1, nobias=True),
                L.BatchNormalization(4),
            )
            self.c2, self.b2 = (
                L.Convolution2D(4, 6, 3, pad=1, nobias=True),
                L.BatchNormalization(6),
            )
            self.l3, self.l4 = L.Linear(6 * 3 * 3, 8), L.Linear(8, 5)

    def forward(self, x):
        x = CF.max_pooling_2d(CF.leaky_relu(self.b1(self.c1(x))), 2)
        x = CF.max_pooling_2d(CF.leaky_relu(self.b2(self.c2(x))), 2)
        return self.l4(CF.leaky_relu(self.l3(x)))


class Port(nn.Module):
    """The same where nothing is said."""

    def __init__(self, slope=0.2, ceil=True):
        super().__init__()
        self.slope, self.ceil = slope, ceil
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(4, 6, 3, padding=1, bias=False)
        self.norm1, self.norm2 = (nn.BatchNorm2d(count, eps=2e-5) for count in (4, 6))
        self.hidden, self.out = nn.Linear(6 * 3 * 3, 8), nn.Linear(8, 5)

    def step(self, x):
        return F.max_pool2d(F.leaky_relu(x, self.slope), 2, ceil_mode=self.ceil)

    def forward(self, x):
        x = self.step(self.norm2(self.conv2(self.step(self.norm1(self.conv1(x))))))
        return self.out(F.leaky_relu(self.hidden(x.flatten(1)), self.slope))


@pytest.fixture
def snapshot(tmp_path):
    """The original, with the weights of a snapshot."""
    np.random.seed(0)
    first, path = Original(), tmp_path / "snapshot.npz"
    chainer.serializers.save_npz(path, first)
    network = Original()
    chainer.serializers.load_npz(path, network)
    np.testing.assert_array_equal(network.c1.W.array, first.c1.W.array)
    return network


def test_a_right_port_of_a_chainer_snapshot_is_proved_on_every_level(snapshot):
    port = Port()
    proof = compare(snapshot, port, PICTURES, weights="load")
    assert proof.proved, proof
    assert {
        level.name: level.status for level in proof.levels if level.name != "L3"
    } == dict.fromkeys(("L0", "L1", "L4", "L7"), "passed")
    assert "b1.weight" in proof.match and "norm1.weight" in proof.match
    assert not np.array_equal(
        port.conv1.weight.detach().numpy(), snapshot.c1.W.array
    ), "the port itself is left alone"


def test_a_slope_that_no_list_names(snapshot):
    proof = compare(snapshot, Port(slope=0.13), PICTURES, weights="load", levels=QUICK)
    why = sole(proof, "the network", "output")
    assert why.startswith("Explained by negative_slope=0.13 instead of 0.2 (")


# From PyTorch to flax
# -----------------------------------------------------------------------------


class Stage(nn.Module):
    """A convolution with a norm."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.norm = (
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class UNet(nn.Module):
    """One level deep; sizes are halved by a stride, and doubled by a transposed convolution or by
    resizing, with corners aligned or not."""

    def __init__(self, resized=False, aligned=True):
        super().__init__()
        self.enter, self.down, self.leave = (
            Stage(2, 4),
            nn.Conv2d(4, 6, 3, stride=2, padding=1),
            Stage(8, 4),
        )
        self.up = (
            nn.Conv2d(6, 4, 1) if resized else nn.ConvTranspose2d(6, 4, 2, stride=2)
        )
        self.head, self.resized, self.aligned = nn.Conv2d(4, 3, 1), resized, aligned

    def forward(self, x):
        skip = self.enter(x)
        x = self.up(torch.relu(self.down(skip)))
        if self.resized:
            x = F.interpolate(
                x, scale_factor=2, mode="bilinear", align_corners=self.aligned
            )
        return self.head(self.leave(torch.cat([skip, x], dim=1)))


class TorchNorm(nnx.BatchNorm):
    """With the unbiased variance among the running statistics."""

    def __call__(self, x, **settings):
        old = self.var.get_value() * self.momentum
        y = super().__call__(x, **settings)
        if not self.use_running_average:
            count = x.size // x.shape[-1]
            self.var.set_value(
                old + (self.var.get_value() - old) * (count / (count - 1))
            )
        return y


@dataclass(frozen=True)
class Choices:
    """What the author of the flax port has chosen; right by default."""

    norm: type = TorchNorm
    momentum: float = 0.9
    padding: object = 1
    skip_first: bool = True


class FlaxStage(nnx.Module):
    """The same."""

    def __init__(self, inputs, outputs, chosen):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(inputs, outputs, (3, 3), rngs=rngs)
        self.norm = chosen.norm(
            outputs, momentum=chosen.momentum, use_fast_variance=False, rngs=rngs
        )

    def __call__(self, x):
        return nnx.relu(self.norm(self.conv(x)))


class FlaxUNet(nnx.Module):
    """Channels last, and other names."""

    def __init__(self, chosen):
        rngs = nnx.Rngs(0)
        self.encoder, self.decoder = FlaxStage(2, 4, chosen), FlaxStage(8, 4, chosen)
        self.downsample = nnx.Conv(
            4, 6, (3, 3), strides=2, padding=chosen.padding, rngs=rngs
        )
        self.upsample = nnx.ConvTranspose(6, 4, (2, 2), strides=2, rngs=rngs)
        self.classifier, self.chosen = nnx.Conv(4, 3, (1, 1), rngs=rngs), chosen

    def __call__(self, x):
        skip = self.encoder(x)
        x = self.upsample(nnx.relu(self.downsample(skip)))
        both = [skip, x] if self.chosen.skip_first else [x, skip]
        return self.classifier(self.decoder(jnp.concatenate(both, axis=-1)))


NAMES = {"enter": "encoder", "leave": "decoder"}


def test_all_mistakes_of_a_flax_port_at_once():
    """Each layer is judged alone, so that no mistake hides another."""
    chosen = Choices(norm=nnx.BatchNorm, momentum=0.1, padding="SAME", skip_first=False)
    proof = compare(
        UNet(), FlaxUNet(chosen), SCENES, weights="load", levels=QUICK, names=NAMES
    )
    for norm in ("enter.norm", "leave.norm"):
        why = sole(proof, norm, "running_mean")
        assert "momentum 0.9 instead of 0.1" in why and "running variance biased" in why
    assert "asymmetric SAME ((0, 1), (0, 1))" in sole(proof, "down", "output")
    why = sole(proof, "the network", "output")
    assert why.startswith("Explained by order of concatenation [1, 0] (exact match")
    assert len(found(proof)) == 4


def test_a_mended_flax_port_is_proved():
    proof = compare(UNet(), FlaxUNet(Choices()), SCENES, weights="load", levels=QUICK)
    assert proof.proved, proof


def test_resizing_that_is_joined_with_a_skip_connection():
    sides = UNet(resized=True), UNet(resized=True, aligned=False)
    proof = compare(*sides, SCENES, weights="load", levels=QUICK)
    why = sole(proof, "the network", "output")
    assert why.startswith(
        "Explained by resizing linear, align_corners=False instead of linear"
    )
    assert len(found(proof)) == 1


# Layouts
# -----------------------------------------------------------------------------


def test_a_network_that_runs_in_no_layout_shows_how_far_it_came():
    """The order in which most of its blocks run is the likely one."""
    port = FlaxUNet(Choices())
    port.classifier = nnx.Linear(5, 3, rngs=nnx.Rngs(0))  # wants other channels
    found = fit(
        Subject(backends.get("torch").wrap(UNet())),
        Subject(backends.get("jax").wrap(port)),
        SCENES,
    )
    assert found.layout.inputs == {4: (0, 2, 3, 1)}


# Tied weights
# -----------------------------------------------------------------------------

WORDS = GENERATOR.integers(0, 7, (5, 6)), np.arange(5) % 3


class Language(nn.Module):
    """Its head has the weights of its embedding, or equal ones of its own."""

    def __init__(self, is_tied=True):
        super().__init__()
        torch.manual_seed(0)
        self.wte, self.fc = nn.Embedding(7, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        if is_tied:
            self.head.weight = self.wte.weight
        else:
            self.head.weight.data.copy_(self.wte.weight.data)

    def forward(self, x):
        return self.head(torch.tanh(self.fc(self.wte(x)))).mean(1)


class Attending(nnx.Module):
    """The same in flax, where an embedding is its own head."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.tok, self.fc = nnx.Embed(7, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return self.tok.attend(jnp.tanh(self.fc(self.tok(x)))).mean(1)


def test_weights_that_are_tied_on_one_side_only_are_loaded():
    for sides in ((Language(), Attending()), (Attending(), Language())):
        proof = compare(*sides, WORDS, weights="load", levels=(*QUICK, "L4"))
        assert proof.proved, proof


def test_weights_that_are_equal_and_not_tied_are_another_structure():
    """Their gradients are apart: no layer is accused of it."""
    proof = compare(
        Language(is_tied=False), Attending(), WORDS, weights="load", levels=QUICK
    )
    assert proof.diverges
    assert (
        "wte.weight (Embedding), tied to head.weight, in the reference by itself"
        in proof.headline
    )
    assert {f.what for f in proof.level("L3").findings} == {"gradient of wte.weight"}


# Where frameworks differ beside what they compute
# -----------------------------------------------------------------------------


class Normed(nn.Module):
    """A layer, a norm, a layer."""

    def __init__(self, norm):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.norm, self.out = nn.Linear(4, 4), norm, nn.Linear(4, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.fc(x))))


class FlaxNormed(nnx.Module):
    """The same in flax."""

    def __init__(self, norm):
        rngs = nnx.Rngs(0)
        self.fc, self.out = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)
        self.norm = norm(4, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.norm(self.fc(x))))


class Unbiased(nnx.BatchNorm):
    """Flax's own, with the unbiased running variance and the momentum of PyTorch."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, momentum=0.9, **kwargs)

    def __call__(self, x):
        kept = self.momentum * self.var.get_value()
        y = super().__call__(x)
        if not self.use_running_average:
            count = len(x)
            biased = self.var.get_value() - kept
            self.var.set_value(kept + biased * count / max(count - 1, 1))
        return y


VECTORS = GENERATOR.normal(size=(6, 4)), np.arange(6) % 3


def test_a_right_batch_norm_may_take_a_batch_of_one_that_pytorch_refuses():
    sides = Normed(nn.BatchNorm1d(4)), FlaxNormed(Unbiased)
    proof = compare(*sides, VECTORS, weights="load", levels=("L0", "L1", "L7"))
    assert proof.proved, proof


def optimized(network, make):
    """A side with a framework's own optimizer."""
    wrapped = backends.of(network).wrap(network)
    return Subject(
        wrapped,
        optimizers={"own": lambda one: one.backend.wrap_optimizer(make(one), one)},
    )


def test_the_frameworks_own_adam_is_the_same_as_long_as_all_parameters_are_used():
    """PyTorch skips a parameter without a gradient, and optax does not; here there is none."""
    sides = (
        optimized(
            Normed(nn.LayerNorm(4)),
            lambda net: torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=1e-2),
        ),
        optimized(
            FlaxNormed(nnx.LayerNorm), lambda net: optax.adamw(1e-3, weight_decay=1e-2)
        ),
    )
    proof = compare(*sides, VECTORS, weights="load", levels=("L0", "L1", "L4"))
    assert proof.proved, proof


# Tensors that one side alone has
# -----------------------------------------------------------------------------


def network_with(middle):
    """A network around a layer, with weights of its own generator."""
    torch.manual_seed(0)
    first, last = nn.Conv2d(1, 4, 3), nn.Linear(4, 5)
    return nn.Sequential(first, middle, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def test_a_parameter_of_one_side_alone_is_a_difference_where_all_others_have_one_name():
    """With `"load"` too, though it may be that names mean something else."""
    sides = (network_with(nn.Conv2d(4, 4, 3, bias=bias)) for bias in (False, True))
    proof = compare(*sides, PICTURES, weights="load", levels=QUICK)
    assert proof.headline.startswith(
        "DIVERGES at 1.bias (Conv2d), in the candidate only."
    )
