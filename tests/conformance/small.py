"""Tiny networks for proofs, written once, and each way to write one natively; a batch of odd
sizes."""

import re
import zlib

import numpy as np
import torch
from flax import nnx

from deliralike import backends
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from deliralike.conformance.places import Quantity, Tap
from deliralike.conformance.subject import Subject
from deliralike.network import Network
from tests.conformance import ports

CLASSES = 3
QUICK = ("L0", "L1", "L3")


def normal(*shape):
    """Numbers in single precision, the same at each call."""
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def batch(samples=5, features=4, seed=3):
    """Vectors and their classes."""
    random = np.random.default_rng(seed)
    return random.standard_normal((samples, features)), random.integers(
        0, CLASSES, samples
    )


def labels(samples, classes=4):
    return np.random.default_rng(1).integers(0, classes, samples)


def moved(kind):
    """A network of PyTorch with weights away from a start that may be symmetric."""
    torch.manual_seed(0)
    network = kind()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network


def loaded(reference, candidate, batch, **options):
    """A quick comparison of a port, which gets the reference's weights."""
    options = {"weights": "load", "levels": QUICK} | options
    return compare(reference, candidate, batch, **options)


def proof(reference, candidate, *inputs, classes=4, **options):
    """Of a class of PyTorch and its port."""
    given = (*inputs, labels(len(inputs[0]), classes))
    return loaded(moved(reference), candidate, given, **options)


def made(kind, backend="torch", *args, seed=1, **settings):
    """A network written once in float64 in evaluation mode; each weight is drawn by its name, none
    tells nothing."""
    name = backend if isinstance(backend, str) else backend.name
    network = kind.on(name, dtype="float64")(*args, **settings)
    slots = {
        id(slot.native): (key, slot)
        for key, slot in reversed(network.neutral_slots().items())
    }  # a tied one once
    network.load_neutral_state(
        {key: _drawn(key, slot, seed) for key, slot in slots.values()}
    )
    return network.eval()


def _drawn(name, slot, seed):
    if name.endswith("num_batches_tracked"):
        return np.asarray(3)
    value = (
        np.random.default_rng([seed, zlib.crc32(name.encode())]).normal(size=slot.shape)
        * 0.5
    )
    return np.abs(value) + 0.1 if name.endswith("running_var") else value


def subject(kind, backend="torch", *args, loss=None, **settings):
    """The same as one side of a comparison."""
    network = made(kind, backend, *args, **settings)
    return Subject(network) if loss is None else Subject(network, loss)


def squares(network, x, *rest):
    """The sum of squares of all that a network gives, weighted by position."""
    outputs = [y for y in _leaves(network(x, *rest)) if network.backend.is_array(y)]
    return sum((k + 1) * network.backend.nn.sum(y * y) for k, y in enumerate(outputs))


def _leaves(values):
    if isinstance(values, dict):
        return [leaf for key in sorted(values) for leaf in _leaves(values[key])]
    return (
        [leaf for value in values for leaf in _leaves(value)]
        if isinstance(values, list | tuple)
        else [values]
    )


class Plain(Network):
    """Two layers with a function of `nn` and a sum between them."""

    def __init__(self):
        super().__init__()
        self.one, self.two = self.nn.Linear(4, 4), self.nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.two(self.joined(x, self.nn.tanh(self.one(x))))

    def joined(self, x, y):
        return x + y


class Block(Network):
    """A linear layer and an activation."""

    def __init__(self):
        super().__init__()
        self.fc, self.act = self.nn.Linear(4, 4), self.nn.Sigmoid()

    def forward(self, x):
        return self.act(self.fc(x)) * 1.5


class Deep(Network):
    """Blocks within blocks, one with a norm."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = Block(), self.nn.BatchNorm1d(4)
        self.inner = Pair()
        self.head = self.nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.inner(self.norm(self.first(x))))


class Pair(Network):
    """Two blocks."""

    def __init__(self):
        super().__init__()
        self.left, self.right = Block(), Block()

    def forward(self, x):
        return self.right(self.left(x)) + x


class Shared(Network):
    """One layer called twice, the second time with what it gave."""

    def __init__(self):
        super().__init__()
        self.twice, self.head = self.nn.Linear(4, 4), self.nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.twice(self.nn.tanh(self.twice(x))))


# Native networks
# -----------------------------------------------------------------------------


class TorchNet(torch.nn.Module):
    """`Plain`."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.two(x + torch.tanh(self.one(x)))


class ChainerLayers(chainer.Chain):
    """The layers of `Plain`."""

    def __init__(self):
        super().__init__()
        linear = chainer.links.Linear
        with self.init_scope():
            self.one, self.two = linear(4, 4), linear(4, CLASSES)

    def plain(self, x):
        return self.two(x + chainer.functions.tanh(self.one(x)))


class ChainerNet(ChainerLayers):
    """`Plain`."""

    forward = ChainerLayers.plain


class ChainerCalled(ChainerLayers):
    """`Plain` as it was written before Chainer 5: without a method ``forward``."""

    __call__ = ChainerLayers.plain


class FlaxNet(nnx.Module):
    """`Plain`."""

    def __init__(self):
        self.one, self.two = (
            nnx.Linear(4, 4, **ports.wide()),
            nnx.Linear(4, CLASSES, **ports.wide()),
        )

    def __call__(self, x):
        return self.two(x + nnx.tanh(self.one(x)))


NATIVE = {
    "torch": (TorchNet,),
    "chainer": (ChainerNet, ChainerCalled),
    "jax": (FlaxNet,),
}
KINDS = [(backend, kind) for backend, kinds in NATIVE.items() for kind in kinds]


def native(kind, backend, seed=1):
    """A native network in float64 with the weights of ``made(Plain)``, seen as an abstract one."""
    network = ports.made(kind, backend)
    network.load_neutral_state(made(Plain, "torch", seed=seed).neutral_state())
    return network


def get(backend):
    """A backend by name."""
    return backends.get(backend)


def tap(words):
    """The tap that a report calls so: ``"fc"``, ``"fc#2"``, ``"relu()"``; ``""`` is the network."""
    name, _, call = words.partition("#")
    is_function = name.endswith("()")
    path, function = ("", name[:-2]) if is_function else (name, "")
    return Tap(path, function, int(call or 1))


def into(words, name=""):
    """What a tap is given."""
    return Quantity("input", name, tap(words))


def argument(path):
    """One of a unit's own arguments, ``"args[0]"``."""
    return Quantity("argument", path)


def source(words):
    """An array by the words of a report: ``"args[0]"``, ``"the output of conv[1]"``."""
    found = re.fullmatch(r"the output of ([^\[]+)(.*)", words)
    return Quantity("output", found[2], tap(found[1])) if found else argument(words)
