"""The summary of a network says what is in it, and leaves no trace."""

import random

import numpy as np
import pytest
import torch
from flax import nnx

import deliralike
from deliralike import zoo
from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import ArgumentError, ShapeError, StateError

TOKENS = zoo.Input((5,), below=11)


class OnTorch(torch.nn.Module):
    """An embedding tied to the head, a norm, dropout, a buffer, and a block that nobody calls."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 6)
        self.norm = torch.nn.BatchNorm1d(5)
        self.drop = torch.nn.Dropout(0.5)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(6, 6)])
        self.head = torch.nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.unused = torch.nn.ReLU()
        self.register_buffer("calls", torch.zeros(1))
        self.norm.weight.requires_grad_(False)

    def forward(self, tokens):
        self.calls += 1
        self.latest = torch.rand(1)
        random.random(), np.random.rand()
        x = self.blocks[0](self.drop(self.norm(self.embedding(tokens))))
        return {"logits": self.head(x), "hidden": x}


class OnChainer(chainer.Chain):
    """The same without an embedding."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first = chainer.links.Linear(5, 7)
            self.norm = chainer.links.BatchNormalization(7)
            self.head = chainer.links.Linear(None, 3)

    def forward(self, x):
        self.latest = random.random(), np.random.rand()
        return self.head(chainer.functions.dropout(self.norm(self.first(x))))


class OnJax(nnx.Module):
    """The same in flax."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(5, 7, rngs=rngs)
        self.norm = nnx.BatchNorm(7, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(7, 3, rngs=rngs)])

    def __call__(self, x):
        self.latest = random.random()
        return self.blocks[0](self.drop(self.norm(self.first(x))))


def trace(network):
    """Return everything that a run could change."""
    wrapped = deliralike.backends.wrap(network)
    blocks = dict(wrapped.named_blocks())
    modes = {path: getattr(block, "training", None) for path, block in blocks.items()}
    attributes = {path: sorted(vars(block)) for path, block in blocks.items()}
    generators = (
        random.getstate(),
        str(np.random.get_state()),
        str(torch.get_rng_state().tolist()),
    )
    state = {}
    if not isinstance(network, OnChainer):  # whose head has no shape yet
        state = {
            name: value.tolist() for name, value in wrapped.neutral_state().items()
        }
    return modes, attributes, generators, state


def test_a_summary_counts_what_a_torch_module_has_and_leaves_no_trace():
    network = OnTorch()
    before = trace(network)
    found = deliralike.summary(network, TOKENS)
    assert trace(network) == before
    # By hand: embedding 66, norm 5 + 5, linear 42; the head is the embedding.
    assert (found.parameters, found.trainable, found.frozen) == (118, 113, 5)
    assert found.output == {"logits": (1, 5, 11), "hidden": (1, 5, 6)}
    rows = {
        layer.path: (layer.type, layer.output, layer.parameters)
        for layer in found.layers
    }
    assert rows == {
        "": ("OnTorch", found.output, 0),
        "embedding": ("Embedding", (1, 5, 6), 66),
        "norm": ("BatchNorm1d", (1, 5, 6), 10),
        "drop": ("Dropout", (1, 5, 6), 0),
        "blocks": ("ModuleList", None, 0),
        "blocks.0": ("Linear", (1, 5, 6), 42),
        "head": ("Linear", (1, 5, 11), 0),
        "unused": ("ReLU", None, 0),
    }
    [line] = [line for line in str(found).splitlines() if "ReLU" in line]
    assert line.split() == ["unused", "ReLU", "0", "0"]


@pytest.mark.parametrize("kind", [OnChainer, OnJax])
def test_a_summary_counts_what_a_native_network_has_and_leaves_no_trace(kind):
    network = kind()
    before = trace(network)
    found = deliralike.summary(network, np.ones((4, 5), np.float32))
    assert trace(network) == before
    shapes = {layer.path: layer.output for layer in found.layers if layer.parameters}
    head = "head" if kind is OnChainer else "blocks.0"
    assert shapes == {"first": (4, 7), "norm": (4, 7), head: (4, 3)}
    assert found.parameters == 5 * 7 + 7 + 7 + 7 + 7 * 3 + 3
    assert found.output == (4, 3)


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_a_network_written_once_has_the_layers_of_its_outline_alone_and_in_replicas(
    backend,
):
    outline = zoo.outline("resnet8", (1, 9, 9))
    network = zoo.build("resnet8", backend=backend)
    found = deliralike.summary(network, (1, 9, 9))
    rows = {row.name: (row.type, row.output, row.parameters) for row in outline.rows}
    layers = {one.path: (one.type, one.output, one.parameters) for one in found.layers}
    assert rows.items() <= layers.items()
    assert (found.parameters, found.output) == (outline.parameters, outline.output)
    replicated = deliralike.DataParallel(network, [network.device_name] * 2)
    assert deliralike.summary(replicated, {"x": (1, 9, 9)}).layers == found.layers


def test_without_inputs_nothing_runs():
    network = OnTorch()
    network.forward = None
    found = deliralike.summary(network)
    assert (found.output, found.parameters) == (None, 118)


def test_a_notebook_shows_a_table_whose_texts_are_escaped():
    kind = type("Tag<script>", (torch.nn.Linear,), {})
    html = deliralike.summary(kind(3, 2), (3,))._repr_html_()
    assert "<script>" not in html
    assert "Tag&lt;script&gt;" in html
    assert '<th scope="col" style="text-align: right">parameters</th>' in html


def test_what_cannot_be_summarised_says_what_to_do():
    with pytest.raises(ArgumentError, match=r"'resnet8' is not built: .* zoo.outline"):
        deliralike.summary("resnet8")
    with pytest.raises(StateError, match="'weight' has no shape .*: give inputs"):
        deliralike.summary(torch.nn.LazyLinear(3))
    assert deliralike.summary(torch.nn.LazyLinear(3), (5,)).parameters == 18
    with pytest.raises(StateError, match="cannot be copied"):
        network = torch.nn.Linear(3, 2)
        network.generator = (number for number in range(3))
        deliralike.summary(network, (3,))
    with pytest.raises(ShapeError, match="make the layer for 4") as caught:
        deliralike.summary(
            torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 2)), (4,)
        )
    assert "called with arrays (1, 4) float32" in caught.value.__notes__[0]
