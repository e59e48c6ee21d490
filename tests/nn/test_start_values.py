"""Start values: PyTorch's default distributions, keyed by seed and path, the same on every
backend."""

import hashlib

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, build, start
from deliralike.errors import SettingError
from tests.nn.agreement import NAMES, get, hold, shelf

LAYERS = {
    "Conv1d": {"args": (12, 16, 5)},
    "Conv2d": {"args": (8, 12, 3), "groups": 2},
    "Conv3d": {"args": (4, 8, 3)},
    "ConvTranspose1d": {"args": (16, 12, 4)},
    "ConvTranspose2d": {"args": (8, 24, 3), "groups": 2},
    "ConvTranspose3d": {"args": (6, 9, 3)},
    "Linear": {"args": (40, 50)},
    "Embedding": {"args": (60, 30), "padding_idx": 3},
    "BatchNorm2d": {"num_features": 5},
    "InstanceNorm2d": {"num_features": 5, "affine": True, "track_running_stats": True},
    "GroupNorm": {"num_groups": 2, "num_channels": 6},
    "LayerNorm": {"normalized_shape": (4, 5)},
    "PReLU": {"num_parameters": 3, "init": 0.125},
    "MultiheadAttention": {"embed_dim": 24, "num_heads": 2},
    "LSTM": {
        "input_size": 9,
        "hidden_size": 16,
        "num_layers": 2,
        "bidirectional": True,
    },
    "GRU": {"input_size": 9, "hidden_size": 16},
}
CONSTANT = {"BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm", "PReLU"}


def of(name, layer, seed=0, dtype="float64"):
    state = hold(name, layer, LAYERS[layer], dtype=dtype, seed=seed).neutral_state()
    return {
        key.removeprefix("layer."): value
        for key, value in state.items()
        if key != "anchor"
    }


def of_all(name, seed, dtype):
    """The start values of every layer in one network."""
    return shelf(
        name, {f"the_{layer}": (layer, LAYERS[layer]) for layer in LAYERS}, dtype, seed
    ).neutral_state()


def native(layer):
    settings = dict(LAYERS[layer])
    return getattr(torch.nn, layer)(*settings.pop("args", ()), **settings)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES[1:])
def test_start_values_are_equal_bit_for_bit_on_every_backend(name, dtype):
    expected = of_all("written once", 5, dtype)
    found = of_all(name, 5, dtype)
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert_array_equal(found[key], value, err_msg=key, strict=True)


@pytest.mark.parametrize("layer", sorted(set(LAYERS) - CONSTANT))
def test_start_values_have_the_spread_of_pytorchs(layer):
    """Pooled over many of PyTorch's own draws, and with its bounds where it has any."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = [native(layer).state_dict() for _ in range(40)]
    for key, value in of("written once", layer).items():
        expected = np.concatenate([state[key].numpy().ravel() for state in drawn])
        deviation = expected.std()
        error = 5 * deviation * np.sqrt(2.0 / value.size)
        assert abs(value.std() - deviation) <= error, key
        assert abs(value.mean() - expected.mean()) <= 5 * deviation / np.sqrt(
            value.size
        ), key
        if layer != "Embedding":
            assert np.abs(value).max() <= np.abs(expected).max() * 1.01, key
            assert (
                np.abs(value).max() >= np.abs(expected).max() * (1 - 12 / value.size)
                or value.size < 24
            ), key


def test_layers_that_start_constant_start_as_pytorchs_do():
    for layer in sorted(CONSTANT):
        for key, value in of("written once", layer).items():
            wanted = native(layer).double().state_dict()[key].numpy()
            assert_array_equal(value, wanted, err_msg=f"{layer}.{key}", strict=True)


def test_values_are_drawn_from_the_seed_and_a_digest_of_the_path():
    digest = hashlib.blake2b(b"fc.weight", digest_size=8).digest()
    words = np.array([7, int.from_bytes(digest, "little")], np.uint64)
    expected = np.random.Generator(np.random.Philox(key=words)).normal(size=(2, 3))
    assert_array_equal(start.draw(start.Normal(), (2, 3), 7, "fc.weight"), expected)


def test_uniform_start_values_reach_one_by_the_root_of_the_fan():
    for layer, fan in [
        ("Conv2d", 4 * 9),
        ("ConvTranspose2d", 12 * 9),
        ("Linear", 40),
        ("LSTM", 16),
    ]:
        for key, value in of("written once", layer).items():
            assert np.abs(value).max() <= 1 / np.sqrt(fan), f"{layer}.{key}"


def test_the_padding_row_of_an_embedding_starts_at_zero():
    value = of("written once", "Embedding")["weight"]
    assert not value[3].any()
    assert value[2].all()


def test_building_leaves_the_global_random_state_alone(name):
    get(name)
    before = np.random.get_state(legacy=False)["state"], torch.get_rng_state()
    of_all(name, 0, "float64")
    after = np.random.get_state(legacy=False)["state"], torch.get_rng_state()
    assert_array_equal(before[0]["key"], after[0]["key"])
    assert before[0]["pos"] == after[0]["pos"]
    assert torch.equal(before[1], after[1])


def test_a_network_may_say_how_its_parameters_start(name):
    class Tuned(Network):
        start_values = {
            "*.weight": start.HeNormal("out"),
            "fc.bias": start.ONES,
            "head.weight": start.TruncatedNormal(0.02),
        }

        def __init__(self):
            super().__init__()
            self.fc, self.head = self.nn.Linear(30, 40), self.nn.Linear(40, 30)

    state = build(Tuned.on(get(name)), dtype="float64").neutral_state()
    assert_array_equal(state["fc.bias"], np.ones(40))
    assert abs(state["fc.weight"].std() - np.sqrt(2 / 40)) < 0.02
    assert np.abs(state["head.weight"]).max() <= 0.04
    assert np.abs(state["head.bias"]).max() <= 1 / np.sqrt(40)


@pytest.mark.parametrize(
    "distribution",
    [
        start.XavierNormal(),
        start.XavierUniform(),
        start.HeNormal(),
        start.HeUniform(),
        start.Normal(0.3, 1.0),
    ],
)
def test_distributions_have_the_spread_of_pytorchs_initialisers(distribution):
    tensor = torch.empty(60, 20, 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        {
            start.XavierNormal: torch.nn.init.xavier_normal_,
            start.XavierUniform: torch.nn.init.xavier_uniform_,
            start.HeNormal: torch.nn.init.kaiming_normal_,
            start.HeUniform: torch.nn.init.kaiming_uniform_,
            start.Normal: lambda t: torch.nn.init.normal_(t, 1.0, 0.3),
        }[type(distribution)](tensor)
    drawn = start.draw(distribution, (60, 20, 3), 0, "weight")
    assert_allclose(drawn.std(), tensor.std().item(), rtol=0.05)
    assert_allclose(drawn.mean(), tensor.mean().item(), atol=0.03)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_fan_needs_two_axes(shape):
    for distribution in (start.HeNormal(), start.XavierUniform()):
        with pytest.raises(
            SettingError, match=r"has the shape \(.*Uniform.* or Normal"
        ):
            start.draw(distribution, shape, 0, "bias")
