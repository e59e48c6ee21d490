"""Dropout: what is dropped, how the rest is scaled, and masks that are equal on every backend."""

from contextlib import nullcontext

import numpy as np
import pytest

from deliralike import random
from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    LayerCase,
    agree_all,
    get,
    hold,
    normal,
    same,
    shelf,
)

SHAPES = {
    "Dropout": (6, 5, 4),
    "Dropout1d": (6, 5, 4),
    "Dropout2d": (6, 5, 4, 3),
    "Dropout3d": (6, 5, 2, 3, 2),
    "DropPath": (6, 5, 4),
}


def run(name, network, *inputs, layer="layer"):
    backend = get(name)
    return backend.numpy(getattr(network, layer)(*backend.prepare(inputs, network)))


def by_formula(layer, x, p, seed=3, step=2, first_sample=0):
    """What portable dropout gives, from `random.keep_mask` alone; the layer's path is "layer"."""
    shape = x.shape if layer == "Dropout" else x.shape[: 1 if layer == "DropPath" else 2]
    mask = random.keep_mask(seed, "layer", step, first_sample, shape, p)
    return x * mask.reshape(shape + (1,) * (x.ndim - len(shape))) / (1.0 - p)


@pytest.mark.parametrize("name", NAMES)
def test_portable_masks_follow_from_seed_path_step_and_sample(name):
    for layer, shape in SHAPES.items():
        x = normal(0, *shape)
        network = hold(name, layer, {"p": 0.4}).train()
        with random.portable(seed=3, step=2):
            found = run(name, network, x)
        same(found, by_formula(layer, x, 0.4), f"output of {layer}")
        assert 0 < (found == 0).mean() < 1, layer


@pytest.mark.parametrize("name", NAMES)
def test_two_halves_of_a_batch_have_the_masks_of_the_whole(name):
    for layer, shape in SHAPES.items():
        x = normal(0, *shape)
        network = hold(name, layer, {"p": 0.4}).train()
        with random.portable(seed=3, step=2):
            whole = run(name, network, x)
            first = run(name, network, x[:4])
        with random.portable(seed=3, step=2, first_sample=4):
            second = run(name, network, x[4:])
        np.testing.assert_array_equal(np.concatenate([first, second]), whole, err_msg=layer)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_pass_where_elements_are_kept(name):
    x = normal(0, *SHAPES["Dropout"])
    network = hold(name, "Dropout", {"p": 0.4}).train()
    with random.portable(seed=3, step=2):
        found = get(name).gradients(lambda network, x: network.nn.sum(network(x)), network, x)
    same(found.inputs[0], by_formula("Dropout", np.ones_like(x), 0.4), "gradient")


@pytest.mark.parametrize("change", [{"seed": 4}, {"step": 5}, {"first_sample": 100}])
def test_another_seed_step_or_sample_has_another_mask(change):
    x = np.ones(SHAPES["Dropout"])
    assert (by_formula("Dropout", x, 0.5, **change) != by_formula("Dropout", x, 0.5)).any()


@pytest.mark.parametrize("name", NAMES)
def test_native_dropout_drops_at_its_rate_and_scales_what_is_left(name):
    for layer in SHAPES:
        shape = (2000, 50, *SHAPES[layer][2:]) if layer != "DropPath" else (100000, 1)
        x = np.ones(shape)
        get(name).seed(1)
        found = run(name, hold(name, layer, {"p": 0.3}).train(), x)
        kept = found != 0
        np.testing.assert_allclose(found[kept], 1.0 / 0.7, rtol=1e-12, err_msg=layer)
        units = kept if layer in ("Dropout", "DropPath") else kept.reshape(2000, 50, -1)
        if layer not in ("Dropout", "DropPath"):
            assert (units.all(-1) == units.any(-1)).all(), layer  # whole channels
            units = units.any(-1)
        assert abs(units.mean() - 0.7) < 5 * np.sqrt(0.3 * 0.7 / units.size), layer


@pytest.mark.parametrize("name", NAMES)
def test_native_masks_differ_from_call_to_call(name):
    network = hold(name, "Dropout", {"p": 0.5}).train()
    x = np.ones((4, 50))
    assert (run(name, network, x) != run(name, network, x)).any()


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_drops_nothing(name):
    for layer, shape in SHAPES.items():
        x = normal(0, *shape)
        np.testing.assert_array_equal(
            run(name, hold(name, layer, {"p": 0.9}).eval(), x), x, err_msg=layer
        )


@pytest.mark.parametrize("portable", [False, True], ids=["native", "portable"])
@pytest.mark.parametrize("name", NAMES)
def test_probabilities_of_zero_and_one_keep_all_and_nothing(name, portable):
    cases = [(layer, p) for layer in SHAPES for p in (0, 1, 0.0, 1.0)]
    network = shelf(
        name, {f"layer{at}": (layer, {"p": p}) for at, (layer, p) in enumerate(cases)}
    ).train()
    for at, (layer, p) in enumerate(cases):
        x = normal(0, *SHAPES[layer])
        with random.portable() if portable else nullcontext():
            found = run(name, network, x, layer=f"layer{at}")
        np.testing.assert_array_equal(found, x * (1.0 - p), err_msg=f"{layer} {p=}")


@pytest.mark.parametrize("name", NAMES)
def test_attention_drops_weights_keyed_by_sample(name):
    x, settings = normal(0, 4, 3, 6), {"embed_dim": 6, "num_heads": 2, "batch_first": True}
    once = hold("written once", "MultiheadAttention", settings).eval()

    def weights(network, x):
        (x,) = network.backend.prepare((x,), network)
        return network.backend.numpy(network.layer(x, x, x, average_attn_weights=False)[1])

    for p in (0.25, 1.0):
        network = hold(name, "MultiheadAttention", settings | {"dropout": p}).train()
        with random.portable(seed=3, step=2):
            found = weights(network, x)
            half = weights(network, x[:2])
        mask = random.keep_mask(3, "layer.attention_dropout", 2, 0, (4, 2, 3, 3), p)
        same(found, weights(once, x) * mask * (1.0 / (1.0 - p) if p < 1 else 0.0), f"weights, {p=}")
        np.testing.assert_allclose(half, found[:2], rtol=1e-12, err_msg=f"{p=}")


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
@pytest.mark.parametrize("name", NAMES)
def test_recurrences_drop_between_layers_with_a_mask_for_each(name, layer):
    settings = {"input_size": 3, "hidden_size": 4, "num_layers": 3, "dropout": 0.5}
    x = normal(0, 5, 4, 3)
    outputs = []
    for which in ("written once", name):
        with random.portable(seed=3, step=2):
            network = hold(which, layer, settings).train()
            (tokens,) = network.backend.prepare((x,), network)
            outputs.append(network.backend.numpy(network.layer(tokens)[0]))
    same(outputs[1], outputs[0], "output")
    masks = [random.keep_mask(3, f"layer.between.{i}", 2, 0, (4, 5, 4), 0.5) for i in range(2)]
    assert (masks[0] != masks[1]).any()
    assert {f"layer.between.{i}" for i in range(2)} <= set(dict(network.named_blocks()))


@pytest.mark.parametrize("name", NAMES)
def test_recurrences_that_drop_everything_see_zeros_in_the_second_layer(name):
    settings = {"input_size": 3, "hidden_size": 4, "num_layers": 2, "dropout": 1.0}
    x = normal(0, 5, 2, 3)
    network = hold(name, "GRU", settings).train()
    np.testing.assert_allclose(outputs_of(network, x), outputs_of(network, x + 1.0), rtol=1e-12)


def outputs_of(network, x):
    (x,) = network.backend.prepare((x,), network)
    return network.backend.numpy(network.layer(x)[0])


def test_every_sample_is_drawn_alone_and_close_to_the_rate():
    mask = random.keep_mask(7, "a.b", 11, 0, (50, 1000), 0.3)
    assert abs(mask.mean() - 0.7) < 5 * np.sqrt(0.21 / mask.size)
    np.testing.assert_array_equal(random.keep_mask(7, "a.b", 11, 20, (3, 1000), 0.3), mask[20:23])
    assert len({row.tobytes() for row in mask}) == 50


def test_a_mask_is_what_philox_gives_for_its_counter():
    key = random.start.key(7, "a.b")
    words = (
        np.random.Philox(key=key, counter=[0, 0, 5, 11]).random_raw(2).astype("<u8").view(np.uint16)
    )
    np.testing.assert_array_equal(
        random.keep_mask(7, "a.b", 11, 5, (1, 7), 0.3)[0], words[:7] >= round(0.3 * 65536)
    )


def test_a_number_equal_to_the_threshold_is_kept():
    words = (
        np.random.Philox(key=random.start.key(7, "a.b"), counter=[0, 0, 5, 11])
        .random_raw(1)
        .view(np.uint16)
    )
    assert random.keep_mask(7, "a.b", 11, 5, (1, 1), int(words[0]) / 65536).all()
    assert not random.keep_mask(7, "a.b", 11, 5, (1, 1), (int(words[0]) + 1) / 65536).any()


@pytest.mark.parametrize("name", NAMES)
def test_dropout_of_probability_zero_agrees_in_training(name):
    layer = LayerCase("Dropout", {"p": 0.0}, [normal(0, 3, 4)])
    agree_all(
        name,
        {
            "layer": layer,
            "product": FunctionCase(lambda nn, x: x * 1.0, lambda x: x, [normal(0, 3)]),
        },
    )
