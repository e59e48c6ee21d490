"""Activation checkpointing: the same numbers as without it, and less that is kept."""

import copy
import pickle
from itertools import product

import jax
import numpy as np
import pytest
import torch
from flax import nnx

from deliralike import (
    DataParallel,
    Network,
    backends,
    checkpoint_blocks,
    random,
    wrap,
    zoo,
)
from deliralike.errors import CapabilityError, UnknownName
from deliralike.optim.rules import rule
from tests.arrays import same_named

GENERATOR = np.random.default_rng(3)
PICTURES = GENERATOR.normal(size=(5, 2, 9, 7))
FACTORS = GENERATOR.normal(size=5)
LABELS = GENERATOR.integers(0, 3, 5)
BATCH = PICTURES, FACTORS, LABELS
CAPABLE = "torch", "jax"


class Block(Network):
    """Running statistics, dropout, arguments by name, and a nest as output."""

    def __init__(self, inputs, outputs):
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(inputs, outputs, 3, 2, 1)
        self.norm = nn.BatchNorm2d(outputs)
        self.drop = nn.Dropout(0.4)

    def forward(self, x, *, scale=1.0, extra=None):
        y = self.drop(self.nn.relu(self.norm(self.conv(x)))) * scale
        if extra is not None:
            y = y + self.nn.reshape(extra, (-1, 1, 1, 1))
        return {"y": y, "none": None, "number": 3}


class Net(Network):
    """Two such blocks, the second with an array by name; a layer is called twice."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.first, self.second = Block(2, 5), Block(5, 4)
        self.mix = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.head = nn.Linear(4, 3)

    def forward(self, x, factors):
        found = self.second(self.first(x)["y"], scale=2.0, extra=factors)
        assert (found["none"], found["number"]) == (None, 3)
        return self.head(self.mix(self.mix(self.nn.mean(found["y"], dim=(2, 3)))))


def loss(network, x, factors, labels):
    """Cross-entropy."""
    return network.nn.cross_entropy(network(x, factors), labels)


def made(backend, change=lambda network: network):
    """A network in float64, after a change."""
    return change(Net.on(backend, seed=1, dtype="float64")().train())


def trained(network):
    """Losses, weights and buffers of three steps, then the gradients of the next one."""
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    losses = []
    for step in range(3):
        with random.portable(7, step):
            losses.append(float(network.backend.number(optimizer.update(loss, *BATCH))))
    with random.portable(7, 3):
        gradients = network.backend.gradients(loss, network, *BATCH)
    arrays = (
        dict(enumerate(losses)) | network.neutral_state() | dict(gradients.parameters)
    )
    return arrays | {"input": gradients.inputs[0], "factors": gradients.inputs[1]}


def checkpointed(network):
    assert checkpoint_blocks(network, "first", "first.*", "second", "mix") == [
        "first",
        "second",
        "mix",
    ]
    return network


def frozen(network):
    network.set_trainable("first.conv.*", False)
    return network


def unpickled(network):
    return pickle.loads(pickle.dumps(network))


CHANGES = {
    "as built": lambda network: network,
    "copied": copy.deepcopy,
    "pickled": unpickled,
    "frozen": frozen,
    "replicated": lambda network: DataParallel(
        network, [network.device_name] * 2, buffers="root"
    ),
}


@pytest.mark.parametrize(
    ("name", "change"),
    # A copy and frozen parameters are those of the network, the same on every backend.
    [
        *product(("torch",), CHANGES),
        ("jax", "as built"),
        ("jax", "replicated"),
    ],
)
def test_a_checkpointed_network_trains_as_it_does_without(name, change):
    backend = backends.get(name)
    plain = made(backend, CHANGES[change])
    same_named(
        trained(made(backend, lambda net: CHANGES[change](checkpointed(net)))),
        trained(plain),
    )


# On JAX streams of native masks are a network's own, and two networks have different ones.
def test_native_masks_of_dropout_are_drawn_once():
    backend, found = backends.get("torch"), []
    for change in (lambda network: network, checkpointed):
        network = made(backend, change)
        with backend.preserve_global_state():
            backend.seed(11)
            found.append(backend.gradients(loss, network, *BATCH).parameters)
    same_named(found[1], found[0])


@pytest.mark.parametrize("name", CAPABLE)
def test_mixed_precision_is_that_of_the_first_time(name):
    found = []
    for change in (lambda network: network, checkpointed):
        network = change(Net.on(name, seed=1)().train())
        optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
        optimizer.compute_in("bfloat16", None)
        with random.portable(7):
            optimizer.update(loss, *BATCH)
        found.append(network.neutral_state())
    for weight, value in found[0].items():
        np.testing.assert_allclose(found[1][weight], value, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CAPABLE)
def test_patterns_of_no_block_are_refused(name):
    backend = backends.get(name)
    with pytest.raises(
        UnknownName, match=r"no block of Net matches 'frist'. Did you mean 'first'"
    ):
        checkpoint_blocks(made(backend), "frist")


@pytest.mark.parametrize("name", CAPABLE)
def test_batch_norms_that_are_synchronised_are_refused(name):
    backend = backends.get(name)
    network = made(backend, checkpointed)
    with pytest.raises(
        CapabilityError, match="block 'first' is checkpointed and has batch norms"
    ):
        DataParallel(network, [network.device_name] * 2, buffers="sync")
    replicated = DataParallel(made(backend), [network.device_name] * 2)
    with pytest.raises(CapabilityError, match="before the network is replicated"):
        checkpoint_blocks(replicated, "first")


def test_a_backend_that_cannot_says_so():
    with pytest.raises(CapabilityError, match="cannot compute activations again"):
        checkpoint_blocks(made(backends.get("chainer")), "first")


# Networks of others
# -----------------------------------------------------------------------------


class Stranger(torch.nn.Module):
    """A network of PyTorch's own layers."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(2, 5, 3, 2), torch.nn.BatchNorm2d(5), torch.nn.ReLU()
        )
        self.head = torch.nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class FlaxStranger(nnx.Module):
    """The same of flax's layers."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        conv = nnx.Conv(2, 5, (3, 3), 2, padding="VALID", rngs=rngs)
        self.body = nnx.Sequential(conv, nnx.BatchNorm(5, rngs=rngs), nnx.relu)
        self.head = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(self.body(x.transpose(0, 2, 3, 1)).mean((1, 2)))


STRANGERS = {"torch": Stranger, "jax": FlaxStranger}


@pytest.mark.parametrize("name", STRANGERS)
def test_native_networks_are_checkpointed_too(name):
    backend = backends.get(name)

    def mean_square(network, x):
        return network.nn.mean(network(x) ** 2)

    plain = wrap(STRANGERS[backend.name]()).train()
    network = copy.deepcopy(plain)
    assert checkpoint_blocks(network, "body") == ["body"]
    x = PICTURES.astype(np.float32)
    gradients = [
        backend.gradients(mean_square, each, x).parameters for each in (plain, network)
    ]
    for name, value in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], value, rtol=2e-4, atol=1e-7)
    before, after = plain.neutral_state(), network.neutral_state()
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-6)
    running = next(name for name in before if name.endswith("running_mean"))
    assert np.abs(after[running]).max() > 0.0


class Sized(torch.nn.Linear):
    """A layer that Python creates with an argument, which copying and pickling hand over too."""

    def __new__(cls, size):
        made = super().__new__(cls)
        object.__setattr__(made, "size", size)
        return made

    def __init__(self, size):
        super().__init__(size, size)

    def __getnewargs__(self):
        return (self.size,)


@pytest.mark.parametrize("copied", [copy.deepcopy, unpickled])
def test_a_copied_block_is_created_with_its_arguments(copied):
    network = torch.nn.Sequential(Sized(3))
    checkpoint_blocks(wrap(network), "0")
    again = copied(network)
    x = torch.ones(2, 3)
    assert type(again[0]) is type(network[0]) and torch.equal(again(x), network(x))


# What is kept
# -----------------------------------------------------------------------------

DEPTH, WIDTH, ROWS = 6, 32, 4000


class Chain(Network):
    """Blocks that keep four arrays each."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        blocks = []
        for _ in range(DEPTH):
            blocks.append(
                nn.Sequential(
                    nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Sigmoid(), nn.Tanh()
                )
            )
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        return self.blocks(x)


def kept_on_torch(network, x, square):
    seen = {}

    def pack(tensor):
        seen[tensor.data_ptr()] = tensor.nelement() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        square(network, *network.backend.prepare((x,), network))
    return sum(seen.values())


def kept_on_jax(network, x, square):
    graph, state = nnx.split(network)

    def compute(state, x):
        return jax.grad(lambda s: square(nnx.merge(graph, s), x))(state)

    program = jax.jit(compute).lower(state, jax.numpy.asarray(x)).compile()
    return program.memory_analysis().temp_size_in_bytes


KEPT = {"torch": kept_on_torch, "jax": kept_on_jax}


@pytest.mark.parametrize("name", KEPT)
def test_a_block_keeps_its_inputs_alone(name, optimised):
    """Without: what three functions of each block give. With: the input of each block."""

    def square(network, x):
        return network.nn.mean(network(x) ** 2)

    x = GENERATOR.normal(size=(ROWS, WIDTH)).astype(np.float32)
    kept = []
    for patterns in ((), ("blocks.*",)):
        network = Chain.on(name)().train()
        checkpoint_blocks(network, *patterns)
        kept.append(KEPT[name](network, x, square))
    array = x.nbytes
    assert (
        kept[0] > (3 * DEPTH - 2) * array
    )  # XLA keeps no argument, nor what comes last
    assert (
        kept[1] <= (DEPTH + 6) * array
    )  # and what one block needs while it is computed again


def test_the_zoo_names_the_blocks():
    network = zoo.build("resnet18", backend="torch", num_classes=3)
    assert checkpoint_blocks(network, "layer[12].*") == [
        "layer1.0",
        "layer1.1",
        "layer2.0",
        "layer2.1",
    ]
