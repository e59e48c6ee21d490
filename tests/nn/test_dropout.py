"""Dropout: what is dropped, how the rest is scaled, and masks that are equal on every backend."""

from contextlib import nullcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import random
from deliralike.errors import SettingError
from tests.nn.agreement import (
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


def test_two_halves_of_a_batch_have_the_masks_of_the_whole(name):
    for layer, shape in SHAPES.items():
        x = normal(0, *shape)
        network = hold(name, layer, {"p": 0.4}).train()
        with random.portable(seed=3, step=2):
            whole = run(name, network, x)
        with random.portable(seed=3, step=2):
            first = run(name, network, x[:4])
        with random.portable(seed=3, step=2, first_sample=4):
            second = run(name, network, x[4:])
        assert_array_equal(np.concatenate([first, second]), whole, err_msg=layer)


def test_native_dropout_drops_at_its_rate_and_scales_what_is_left(name):
    for layer in SHAPES:
        shape = (2000, 50, *SHAPES[layer][2:]) if layer != "DropPath" else (100000, 1)
        x = np.ones(shape)
        get(name).seed(1)
        found = run(name, hold(name, layer, {"p": 0.3}).train(), x)
        kept = found != 0
        assert_allclose(found[kept], 1.0 / 0.7, rtol=1e-12, err_msg=layer)
        units = kept if layer in ("Dropout", "DropPath") else kept.reshape(2000, 50, -1)
        if layer not in ("Dropout", "DropPath"):
            assert (units.all(-1) == units.any(-1)).all(), layer  # whole channels
            units = units.any(-1)
        assert abs(units.mean() - 0.7) < 5 * np.sqrt(0.3 * 0.7 / units.size), layer


@pytest.mark.parametrize("portable", [False, True], ids=["native", "portable"])
def test_probabilities_of_zero_and_one_keep_all_and_nothing(name, portable):
    cases = [(layer, p) for layer in SHAPES for p in (0, 1, 0.0, 1.0)]
    network = shelf(
        name, {f"layer{at}": (layer, {"p": p}) for at, (layer, p) in enumerate(cases)}
    ).train()
    for at, (layer, p) in enumerate(cases):
        x = normal(0, *SHAPES[layer])
        with random.portable() if portable else nullcontext():
            found = run(name, network, x, layer=f"layer{at}")
        assert_array_equal(found, x * (1.0 - p), err_msg=f"{layer} {p=}")


def test_attention_drops_weights_keyed_by_sample(name):
    x, settings = (
        normal(0, 4, 3, 6),
        {"embed_dim": 6, "num_heads": 2, "batch_first": True},
    )
    once = hold("written once", "MultiheadAttention", settings).eval()

    def weights(network, x):
        (x,) = network.backend.prepare((x,), network)
        return network.backend.numpy(
            network.layer(x, x, x, average_attn_weights=False)[1]
        )

    for p in (0.25, 1.0):
        network = hold(name, "MultiheadAttention", settings | {"dropout": p}).train()
        with random.portable(seed=3, step=2):
            found = weights(network, x)
        with random.portable(seed=3, step=2):
            half = weights(network, x[:2])
        mask = random.keep_mask(3, "layer.attention_dropout", 2, 0, (4, 2, 3, 3), p)
        same(
            found,
            weights(once, x) * mask * (1.0 / (1.0 - p) if p < 1 else 0.0),
            f"weights, {p=}",
        )
        assert_allclose(half, found[:2], rtol=1e-12, err_msg=f"{p=}")


def test_weights_of_attention_are_dropped_by_a_layer(name):
    q, k, v = normal(0, 4, 2, 3, 5), normal(1, 4, 2, 6, 5), normal(2, 4, 2, 6, 5)

    def attend(network, **settings):
        nn, arrays = network.nn, network.backend.prepare((q, k, v), network)
        found = nn.scaled_dot_product_attention(
            *arrays, dropout=network.layer, **settings
        )
        return network.backend.numpy(found)

    for p in (0.25, 1.0):
        network = hold(name, "Dropout", {"p": p}).train()
        with random.portable(seed=3, step=2):
            found = attend(network)
        scores = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(5.0))
        weights = scores / scores.sum(-1, keepdims=True)
        mask = random.keep_mask(3, "layer", 2, 0, (4, 2, 3, 6), p)
        scale = 1.0 / (1.0 - p) if p < 1 else 0.0
        same(found, weights * mask * scale @ v, f"{p=}")
        same(attend(network.eval()), weights @ v, f"evaluation, {p=}")
        with pytest.raises(SettingError, match=r"nn.Dropout\(0.5\)"):
            attend(network, dropout_p=0.5)


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
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
    masks = [
        random.keep_mask(3, f"layer.between.{i}", 2, 0, (4, 5, 4), 0.5)
        for i in range(2)
    ]
    assert (masks[0] != masks[1]).any()
    assert {f"layer.between.{i}" for i in range(2)} <= set(dict(network.named_blocks()))


def test_recurrences_that_drop_everything_see_zeros_in_the_second_layer(name):
    settings = {"input_size": 3, "hidden_size": 4, "num_layers": 2, "dropout": 1.0}
    x = normal(0, 5, 2, 3)
    network = hold(name, "GRU", settings).train()
    assert_allclose(outputs_of(network, x), outputs_of(network, x + 1.0), rtol=1e-12)


def outputs_of(network, x):
    (x,) = network.backend.prepare((x,), network)
    return network.backend.numpy(network.layer(x)[0])


def test_every_sample_is_drawn_alone_and_close_to_the_rate():
    mask = random.keep_mask(7, "a.b", 11, 0, (50, 1000), 0.3)
    assert abs(mask.mean() - 0.7) < 5 * np.sqrt(0.21 / mask.size)
    assert_array_equal(random.keep_mask(7, "a.b", 11, 20, (3, 1000), 0.3), mask[20:23])
    assert len({row.tobytes() for row in mask}) == 50


def test_a_mask_is_what_philox_gives_for_its_counter():
    key = random.start.key(7, "a.b")
    words = (
        np.random.Philox(key=key, counter=[0, 0, 5, 11])
        .random_raw(2)
        .astype("<u8")
        .view(np.uint16)
    )
    assert_array_equal(
        random.keep_mask(7, "a.b", 11, 5, (1, 7), 0.3)[0],
        words[:7] >= round(0.3 * 65536),
    )


def test_a_number_equal_to_the_threshold_is_kept():
    words = (
        np.random.Philox(key=random.start.key(7, "a.b"), counter=[0, 0, 5, 11])
        .random_raw(1)
        .view(np.uint16)
    )
    assert random.keep_mask(7, "a.b", 11, 5, (1, 1), int(words[0]) / 65536).all()
    assert not random.keep_mask(
        7, "a.b", 11, 5, (1, 1), (int(words[0]) + 1) / 65536
    ).any()


@pytest.mark.parametrize("layer", ["AlphaDropout", "FeatureAlphaDropout"])
def test_alpha_dropout_scales_and_shifts_as_in_its_paper(name, layer):
    """Klambauer et al. 2017, arXiv 1706.02515, section 3: ``a (x d + alpha' (1 - d)) + b``."""
    x, p, low = normal(0, 6, 5, 4), 0.3, -1.7580993408473766
    a = ((1 - p) * (1 + p * low**2)) ** -0.5
    b = -a * low * p
    with random.portable(seed=3, step=2):
        y = run(name, hold(name, layer, {"p": p}).train(), x)
    kept = np.isclose(y, a * x + b, rtol=0, atol=1e-12)
    assert_allclose(y[~kept], a * low + b, rtol=0, atol=1e-12)
    assert 0 < kept.mean() < 1


def test_a_call_gives_another_rate_than_the_layer(name):
    x = normal(0, 6, 5, 4)
    network = hold(name, "Dropout", {"p": 0.5}).train()
    backend = get(name)
    (given,) = backend.prepare((x,), network)
    for rate, wanted in ((0, x), (1, 0.0 * x)):
        found = backend.numpy(network.layer(given, rate))
        assert_array_equal(found, wanted)
    with pytest.raises(SettingError, match="between 0 and 1, not at 1.5"):
        network.layer(given, 1.5)
