"""The error names the settings with which weights would fit that do not fit now."""

import re

import numpy as np
import pytest

from deliralike import zoo
from deliralike.errors import StateError
from tests.conftest import BACKENDS

BACKEND = BACKENDS[0]
SMALL = {"channels": (4, 8), "strides": (2,), "dims": 2}
VIT = {
    "image_size": 16,
    "patch_size": 8,
    "hidden_dim": 8,
    "num_heads": 2,
    "mlp_dim": 16,
}
MLP = {"in_features": 3, "out_features": 2}

# What the file's network was made with, what ours is made with, and what is said.
CASES = {
    "a norm without parameters": (
        "residual_unet",
        {**SMALL, "norm": "instance"},
        {**SMALL, "norm": "batch"},
        "norm='instance'; or with norm=None",
    ),
    "a norm with parameters": (
        "residual_unet",
        {**SMALL, "norm": "batch"},
        {**SMALL, "norm": "instance"},
        "norm='batch'",
    ),
    "an activation without parameters": (
        "residual_unet",
        {**SMALL, "act": "elu"},
        {**SMALL, "act": "prelu"},
        "act='relu'; or with act='leaky_relu'; or with act='elu'",
    ),
    "no bias": ("residual_unet", {**SMALL, "bias": False}, SMALL, "bias=False"),
    "another width": (
        "mlp",
        {**MLP, "hidden": (7,)},
        {**MLP, "hidden": (5,)},
        "hidden=(7,)",
    ),
    "several widths": (
        "mlp",
        {**MLP, "hidden": (7, 11)},
        {**MLP, "hidden": (5, 6)},
        "hidden=(7, 11)",
    ),
    "more layers": (
        "vit_b_16",
        {**VIT, "num_layers": 3},
        {**VIT, "num_layers": 2},
        "num_layers=3",
    ),
}


def state(name, settings):
    return zoo.build(name, backend=BACKEND, **settings).neutral_state()


@pytest.mark.parametrize("case", CASES)
def test_the_error_names_the_settings_that_would_fit(case):
    name, theirs, ours, said = CASES[case]
    network, weights = zoo.build(name, backend=BACKEND, **ours), state(name, theirs)
    words = re.escape(f"all names and shapes would fit a network with {said}\n")
    with pytest.raises(StateError, match=words):
        zoo.load(network, weights)


def test_a_setting_that_does_not_help_is_not_named():
    network = zoo.build("mlp", backend=BACKEND, hidden=(5,), **MLP)
    weights = {**state("mlp", {**MLP, "hidden": (5,)}), "gate.weight": np.ones(3)}
    with pytest.raises(StateError) as error:
        zoo.load(network, weights)
    assert "would fit a network" not in str(error.value)
