"""The search of a network that a program cache keeps is the one that a new search would give."""

import random

import pytest

from deliralike import Network
from deliralike.backends.jax.compiled.program import (
    ModuleVariables,
    ProgramCache,
)


class TwoLayers(Network):
    def __init__(self):
        super().__init__()
        self.a = self.nn.Linear(2, 3)
        self.d = self.nn.Dropout(0.5)
        self.b = self.nn.Linear(3, 1)

    def forward(self, x):
        return self.b(self.d(self.a(x)))


def names(variables):
    parameters = {name: id(variable) for name, variable in variables.parameters.items()}
    frozen = {name: id(variable) for name, variable in variables.frozen.items()}
    return parameters, frozen, [*map(id, variables.others)], variables.mark()


def set_flag(network, trainable):
    network.set_trainable(random.choice(["a.*", "b.*", "*.bias", "*"]), trainable)


CHANGES = {
    "freeze": lambda network: set_flag(network, False),
    "thaw": lambda network: set_flag(network, True),
    "mode": lambda network: network.train(random.choice([True, False])),
    "rate": lambda network: setattr(network.d, "p", random.choice([0.1, 0.5])),
    "setting": lambda network: setattr(network, "extra", random.choice([len, abs])),
    "layer": lambda network: setattr(network, "b", random.choice(network.layers)),
}


@pytest.mark.parametrize("seed", range(3))
def test_after_any_changes_the_kept_search_is_what_a_new_one_finds(seed):
    random.seed(seed)
    network = TwoLayers.on("jax")()
    object.__setattr__(network, "layers", (network.b, TwoLayers.on("jax")().b))
    cache = ProgramCache(network)
    for _ in range(40):
        name = random.choice(list(CHANGES))
        CHANGES[name](network)
        assert names(cache.variables()) == names(ModuleVariables(network)), name


def test_freezing_one_part_after_another_was_frozen_trains_the_other_one():
    network = TwoLayers.on("jax")()
    cache = ProgramCache(network)
    for frozen in ("a.*", "b.*"):
        network.set_trainable(frozen, False)
        searched = cache.variables()
        network.set_trainable(frozen, True)
        cache.variables()
    assert list(searched.parameters) == ["a.weight", "a.bias"]
