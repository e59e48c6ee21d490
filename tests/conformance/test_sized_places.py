"""Settings that make another size: of what a layer gives, or of its weight. It is the place."""

import numpy as np
import torch
from torch import nn

from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare, distance_loss
from deliralike.network import Network

L, CF = chainer.links, chainer.functions
PICTURES = (np.random.default_rng(2).normal(size=(3, 2, 9, 9)),)


class Pooled(nn.Module):
    """What follows the pool takes any size."""

    def __init__(self, ceil_mode=False, groups=1):
        super().__init__()
        self.features = nn.Sequential()
        self.features.stem = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.features.pool = nn.MaxPool2d(2, 2, ceil_mode=ceil_mode)
        self.features.conv = nn.Conv2d(4, 6, 3, padding=1, groups=groups)
        self.features.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.relu(self.features(x)).mean((2, 3)))


class OnChainer(chainer.Chain):
    """The same with a pool that keeps incomplete windows unless it is told not to."""

    def __init__(self, groups=1, **settings):
        super().__init__()
        with self.init_scope():
            self.features = Features(groups, settings)
            self.head = L.Linear(6, 3)

    def forward(self, x):
        return self.head(CF.mean(CF.relu(self.features(x)), (2, 3)))


class Features(chainer.Chain):
    """The layers before the mean."""

    def __init__(self, groups, settings):
        super().__init__()
        with self.init_scope():
            self.stem = L.Convolution2D(2, 4, 3, pad=1, nobias=True)
            self.pool = Pool(settings)
            self.conv = L.Convolution2D(4, 6, 3, pad=1, groups=groups)
            self.norm = L.BatchNormalization(6, eps=1e-5, decay=0.9)

    def forward(self, x):
        return self.norm(self.conv(self.pool(self.stem(x))))


class Pool(chainer.Chain):
    """A pool as a layer."""

    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def forward(self, x):
        return CF.max_pooling_2d(x, 2, 2, **self.settings)


def first(reference, candidate, weights="judge"):
    """The first thing that a comparison finds."""
    levels = ("L0", "L1", "L3")
    proof = compare(
        reference,
        candidate,
        PICTURES,
        loss=distance_loss,
        weights=weights,
        levels=levels,
    )
    assert proof.diverges, proof
    return proof.findings[0]


def like(reference, **settings):
    """The network with other settings, and its weights as far as they fit."""
    candidate = Pooled(**settings)
    own = candidate.state_dict()
    state = reference.state_dict().items()
    candidate.load_state_dict(
        {n: v if v.shape == own[n].shape else own[n] for n, v in state}
    )
    return candidate


def test_a_pool_that_gives_another_size_is_the_place():
    found = first(reference := Pooled(), like(reference, ceil_mode=True))
    assert (found.place, found.what) == ("features.pool", "output"), found
    assert "ceil" in found.explanation.cause
    found = first(reference, OnChainer(), "load")
    assert found.place == "features.pool", found
    assert "ceil" in found.explanation.cause


def test_a_weight_of_another_shape_is_the_place():
    found = first(reference := Pooled(), like(reference, groups=2))
    assert (found.level, found.place, found.kind) == (
        "L0",
        "features.conv.weight",
        "Conv2d",
    )
    assert found.what == "shape (6, 2, 3, 3), in the reference (6, 4, 3, 3)"
    assert found.explanation.cause == "groups=2 instead of 1"
    assert first(reference, OnChainer(2, cover_all=False), "load").place == found.place


class Once(Network):
    """Written once, where weights of other shapes cannot be loaded at all."""

    def __init__(self, groups=1, width=4):
        super().__init__()
        self.stem = self.nn.Conv2d(2, width, 1)
        self.conv = self.nn.Conv2d(width, 4, 3, groups=groups)

    def forward(self, x):
        return self.nn.mean(self.conv(self.stem(x)), (2, 3))


def test_groups_are_named_where_weights_cannot_be_loaded_and_a_width_is_none():
    found = first(Once.on("torch")(), Once.on("chainer")(groups=2))
    assert (found.place, found.explanation.cause) == (
        "conv.weight",
        "groups=2 instead of 1",
    )
    found = first(Once.on("torch")(), Once.on("chainer")(width=2))
    assert "groups" not in str(found)
