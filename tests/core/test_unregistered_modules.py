"""Layers and parameters in places where a framework would overlook them are refused when a network
is built."""

from collections import OrderedDict, deque

import numpy as np
import pytest

from deliralike import Network, backends, rules
from deliralike.errors import ConstructionError
from tests.conftest import BACKENDS

OTHER = {"torch": "jax", "chainer": "torch", "jax": "chainer"}
PLACES = {
    "head": lambda layer: layer,
    "heads[1]": lambda layer: [None, layer],
    "heads['last']": lambda layer: {"last": layer},
    "heads[0][1]": lambda layer: ([3, layer], "name"),
    "_head": lambda layer: layer,
    "_heads[0]": lambda layer: deque([layer]),
}


def native_layer(name):
    """A linear layer of a framework's own, and what it is called."""
    backends.get(name)
    if name == "torch":
        import torch

        return torch.nn.Linear(3, 2)
    if name == "chainer":
        import chainer

        return chainer.links.Linear(3, 2)
    from flax import nnx

    return nnx.Linear(3, 2, rngs=nnx.Rngs(0))


def native_parameter(name):
    backends.get(name)
    if name == "torch":
        import torch

        return torch.nn.Parameter(torch.ones(3))
    if name == "chainer":
        import chainer

        return chainer.Parameter(np.ones(3, np.float32))
    from flax import nnx

    return nnx.Param(np.ones(3, np.float32))


class Holder(Network):
    """A layer of its own, and whatever it is given, somewhere."""

    def __init__(self, where, held):
        super().__init__()
        self.stem = self.nn.Linear(3, 3)
        setattr(self, where, held)

    def forward(self, x):
        return self.stem(x)


class Trunk(Network):
    """The same, one block further in."""

    def __init__(self, where, held):
        super().__init__()
        self.inner = self.nn.ModuleList([Holder(where, held)])


def held_in(place, layer):
    return place.partition("[")[0], PLACES[place](layer)


@pytest.mark.parametrize("place", PLACES)
def test_a_layer_of_another_framework_is_refused_with_its_path(backend, place):
    for other in {"torch", "chainer", "jax"} - {backend.name}:
        with pytest.raises(ConstructionError) as caught:
            Trunk.on(backend)(*held_in(place, native_layer(other)))
        said = str(caught.value)
        assert f"'inner.0.{place}'" in said.replace('"', "'")
        assert (
            f"is a Linear of backend {other!r} in a network of backend {backend.name!r}"
            in said
        )
        assert (
            f"use self.nn.Linear, or write the whole network for {other!r} and wrap it"
            in said
        )


def test_parameters_and_networks_of_another_framework_are_refused(backend):
    other = OTHER[backend.name]
    for held in (native_parameter(other), Holder.on(other)("name", "nothing")):
        with pytest.raises(
            ConstructionError, match=f"'head' is a .* of backend '{other}'"
        ):
            Holder.on(backend)("head", held)


def test_a_native_subclass_of_the_base_is_watched_too():
    class Mixed(backends.get("torch").network_base):
        def __init__(self):
            super().__init__()
            self.table = native_layer("chainer")

    with pytest.raises(
        ConstructionError,
        match="'table' is a Linear of backend 'chainer' in a network of .* 'torch'",
    ):
        Mixed()


NESTS = {
    "lists": lambda layer: [[layer]],
    "ordered": lambda layer: OrderedDict(a=layer),
    "set": lambda layer: {layer},
}


@pytest.mark.parametrize("kind", NESTS)
def test_a_layer_of_its_own_framework_in_a_container_within_another_is_refused(
    backend, kind
):
    # flax refuses nested lists and ordered dicts itself, when they are assigned
    with pytest.raises((ConstructionError, ValueError), match=r"'heads.*'|heads"):
        Holder.on(backend)("heads", NESTS[kind](native_layer(backend.name)))


def test_a_list_of_parameters_is_refused(backend):
    with pytest.raises((ConstructionError, ValueError), match="scales"):
        Holder.on(backend)("scales", [native_parameter(backend.name)])


class Chain:
    """A class of a user's own, which no framework looks into."""

    def __init__(self, *layers):
        self.layers = layers

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


INDIRECT = {
    "object": ("head.layers[0]", Chain),
    "objects": ("head.layers[0].layers[0]", lambda layer: Chain(Chain(layer))),
}


@pytest.mark.parametrize("kind", INDIRECT)
def test_a_layer_of_another_framework_is_refused_within_objects(backend, kind):
    place, hold = INDIRECT[kind]
    other = OTHER[backend.name]
    with pytest.raises(ConstructionError) as caught:
        Trunk.on(backend)("head", hold(native_layer(other)))
    assert f"'inner.0.{place}' is a Linear of backend {other!r}" in str(caught.value)


def test_a_layer_of_its_own_framework_in_an_object_is_refused_and_in_a_private_one_not(
    backend,
):
    held = Chain(native_layer(backend.name))
    with pytest.raises(
        ConstructionError, match=r"'head.layers\[0\]' is a Linear in a plain Chain"
    ):
        Holder.on(backend)("head", held)
    Holder.on(backend)("_head", held)


def test_a_layer_of_another_framework_in_a_sequence_is_refused(backend):
    class Sequence(Network):
        def __init__(self, layer):
            super().__init__()
            self.body = self.nn.Sequential(self.nn.Linear(3, 3), layer)

    other = OTHER[backend.name]
    with pytest.raises(
        ConstructionError, match=f"is a Linear of backend {other!r} in a network"
    ):
        Sequence.on(backend)(native_layer(other))


def test_a_layer_of_linen_is_refused_with_what_to_do(backend):
    from flax import linen

    instead = {"jax": "ToNNX"}.get(backend.name, "use a layer of self.nn")
    with pytest.raises(ConstructionError, match=f"'head' is a Dense .*{instead}"):
        Holder.on(backend)("head", linen.Dense(2))


def test_a_layer_of_another_framework_that_comes_later_is_refused_by_an_optimizer(
    backend,
):
    network = Holder.on(backend)("head", "nothing")
    other = OTHER[backend.name]
    network.tail = native_layer(other)
    with pytest.raises(
        ConstructionError, match=f"'tail' is a Linear of backend {other!r}"
    ):
        backend.optimizer(rules.rule("sgd", lr=0.1), network)


class InContainersToo(Network):
    """Layers that are registered, and stand in plain containers besides; and one that is no part,
    on purpose."""

    def __init__(self, teacher):
        super().__init__()
        self.stem = self.nn.Linear(3, 2)
        self._path = {"order": (self.stem, 2)}
        self._teacher = [[teacher]]
        self.sizes = [[1, 2], {"a": "b"}]
        self.sizes.append(self.sizes)

    def forward(self, x):
        return self.stem(x)


@pytest.mark.parametrize("name", ["torch", "chainer"])
def test_what_is_registered_and_what_is_private_may_stand_in_a_container(name):
    net = InContainersToo.on(name)(native_layer(name))
    assert list(net.neutral_state()) == ["stem.weight", "stem.bias"]


class Collected(Network):
    """Layers in a plain container first, as many networks of PyTorch have them."""

    def __init__(self, container):
        super().__init__()
        nn = self.nn
        self.layers = [nn.Linear(3, 3)]
        self.layers += [nn.Linear(3, 3)]
        self.heads = {"only": nn.Linear(3, 1)}
        if container:
            self.layers = nn.ModuleList(self.layers)
            self.heads = nn.ModuleDict(self.heads)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.heads["only"](x)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_plain_list_of_layers_may_become_a_container(name):
    network = Collected.on(name)(True)
    gradients = network.backend.gradients(
        lambda net, x: net.nn.sum(net(x)), network, np.ones((2, 3), np.float32)
    )
    assert list(gradients.parameters) == [
        f"{block}.{kind}"
        for block in ("layers.0", "layers.1", "heads.only")
        for kind in ("weight", "bias")
    ]
    assert all(np.any(value) for value in gradients.parameters.values())
    with pytest.raises(ConstructionError, match="'layers' is a plain list of layers"):
        Collected.on(name)(False)
