"""Containers are changed as PyTorch's are, and give what PyTorch's give, on every backend."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network
from tests.nn.agreement import get


def tables():
    """Four affine maps whose order matters."""
    generator = np.random.default_rng(0)
    return [
        (
            generator.normal(size=(3, 3)).astype(np.float32),
            generator.normal(size=3).astype("f"),
        )
        for _ in range(4)
    ]


class Changed(Network):
    """A network whose containers are changed by a function, while it is made."""

    def __init__(self, change):
        super().__init__()
        self.body = self.nn.Sequential(*(self.nn.Linear(3, 3) for _ in range(3)))
        change(self.body, self.nn.Linear(3, 3))

    def forward(self, x):
        return self.body(x)


class TorchChanged(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.body = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3)))
        change(self.body, torch.nn.Linear(3, 3))

    def forward(self, x):
        return self.body(x)


def replace(body, block):
    body[1] = block


def replace_last(body, block):
    body[-1] = block


def insert(body, block):
    body.insert(1, block)


def append(body, block):
    body.append(block)


def add_by_name(body, block):
    body.add_module("3", block)


def delete(body, block):
    del body[0]


def delete_several(body, block):
    del body[:2]
    body.append(block)


def pop(body, block):
    body.append(block).pop(1)


CHANGES = [
    replace,
    replace_last,
    insert,
    append,
    add_by_name,
    delete,
    delete_several,
    pop,
]


def numbered(names):
    """One value for each parameter, which depends on its name alone."""
    return {
        name: tables()[int(name.split(".")[1])][name.endswith("bias")] for name in names
    }


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_sequential_is_changed_while_the_network_is_made(name, change):
    network = Changed.on(get(name))(change)
    reference = TorchChanged(change)
    assert list(network.neutral_state()) == list(reference.state_dict())
    state = numbered(reference.state_dict())
    network.load_neutral_state(state)
    reference.load_state_dict(
        {key: torch.from_numpy(value) for key, value in state.items()}
    )
    x = np.array([[1.0, 2.0, -1.0]], np.float32)
    came = network.backend.numpy(network(network.backend.prepare(x, network)))
    assert_allclose(came, reference(torch.from_numpy(x)).detach().numpy(), rtol=1e-5)


def test_a_head_is_replaced_after_the_network_was_made(name):
    """As in ``model.classifier[-1] = nn.Linear(…)``: the other weights stay, and all train."""
    network = Changed.on(get(name))(append)
    before = network.neutral_state()
    network.body[-1] = network.nn.Linear(3, 5)
    after = network.neutral_state()
    assert after.pop("body.3.weight").shape == (5, 3)
    for key, value in after.items():
        if "body.3" not in key:
            assert_array_equal(value, before[key])
    x = np.ones((2, 3), np.float32)
    gradients = network.backend.gradients(lambda net, x: net.nn.sum(net(x)), network, x)
    assert_array_equal(gradients.parameters["body.3.bias"], [2.0] * 5)


class Sliced(Network):
    def __init__(self):
        super().__init__()
        self.body = self.nn.Sequential(*(self.nn.Linear(3, 3) for _ in range(4)))
        self.rest = self.nn.ModuleList([self.nn.Linear(3, 3) for _ in range(2)])
        self.rest += [self.nn.Linear(3, 3)]

    def forward(self, x):
        x = self.body[1:3](x)
        for layer in self.rest[:-1]:
            x = layer(x)
        return x


def test_slices_are_called_and_iterated(name):
    network = Sliced.on(get(name))()
    state = numbered(network.neutral_state())
    network.load_neutral_state(state)
    x = wanted = np.array([[1.0, 2.0, -1.0]], np.float32)
    for block in ("body.1", "body.2", "rest.0", "rest.1"):
        wanted = wanted @ state[f"{block}.weight"].T + state[f"{block}.bias"]
    came = network.backend.numpy(network(network.backend.prepare(x, network)))
    assert_allclose(came, wanted, rtol=1e-5)
    assert len(list(network.neutral_state())) == 14


def test_a_dict_of_blocks_loses_and_gains_members(name):
    class Heads(Network):
        def __init__(self):
            super().__init__()
            nn = self.nn
            self.heads = nn.ModuleDict(
                {"old": nn.Linear(3, 1), "kept": nn.Linear(3, 2)}
            )
            assert self.heads.pop("old") is not None
            self.heads.update({"new": nn.Linear(3, 4, bias=False)})

    network = Heads.on(get(name))()
    assert list(network.neutral_state()) == [
        "heads.kept.weight",
        "heads.kept.bias",
        "heads.new.weight",
    ]
    assert "old" not in network.heads
    with pytest.raises(KeyError, match="'old'"):
        del network.heads["old"]


class Parts(Network):
    """Slices of containers that are kept as attributes, as PyTorch's users take them."""

    def __init__(self):
        super().__init__()
        keep_slices(self, self.nn)

    def forward(self, x):
        for layer in self.every_second:
            x = layer(x)
        for layer in self.joined:
            x = layer(x)
        return self.chained(self.tail(self.named(x)))


class TorchParts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        keep_slices(self, torch.nn)


def keep_slices(network, nn):
    body = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    layers = {"first": nn.Linear(3, 3), "second": nn.Linear(3, 3), "third": nn.Tanh()}
    network.every_second = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])[::2]
    network.body = body
    network.tail = body[2:]
    network.named = nn.Sequential(OrderedDict(layers))[1:]
    network.joined = network.every_second[1:] + [nn.Linear(3, 3)]
    network.chained = network.named + nn.Sequential(nn.Linear(3, 3))


def test_a_slice_that_a_network_keeps_is_a_container_of_its_own(backend):
    network = Parts.on(backend)()
    assert list(network.neutral_state()) == list(TorchParts().state_dict())
    assert network.tail[0] is network.body[2]
    x = network.backend.array(np.ones((2, 3), np.float32))
    assert tuple(network(x).shape) == (2, 3)
