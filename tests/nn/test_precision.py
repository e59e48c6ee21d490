"""Types are kept through every layer and function."""

import numpy as np

from tests.nn import vocabulary
from tests.nn.agreement import COMPILED, flat, get, hold, naming, shelf
from tests.nn.composed_calls import FUNCTIONS, SHAPE

# The last row of each layer of the table, with the most settings; it has losses, too.
ROWS = {row.name: row for row in vocabulary.LAYERS}


def all_layers(name, rows, dtype):
    """Every layer in one network, in the mode of its row."""
    layers = {
        f"the_{n}": (n, {"args": row.args, **row.kwargs}) for n, row in rows.items()
    }
    network = shelf(name, layers, dtype, seed=1)
    for layer, row in rows.items():
        getattr(network, f"the_{layer}").train(row.training)
    return network


def outputs_of(network, layer, inputs):
    return flat(ROWS[layer].call(getattr(network, f"the_{layer}"), *inputs))


def in_double_precision(rows):
    """PyTorch's outputs in float64, by layer."""
    network, found = all_layers("torch", rows, "float64"), {}
    for layer, row in rows.items():
        outputs = outputs_of(
            network, layer, network.backend.prepare(row.inputs, network)
        )
        found[layer] = [network.backend.numpy(y) for y in outputs]
    return found


def type_name(array):
    return str(array.dtype).removeprefix("torch.")


def test_float32_stays_float32_and_close_to_float64(name):
    """In one program; the gradients of the outputs' products with ones, with respect to these, are
    the outputs. Where programs are compiled a sixth of the layers is computed."""
    rows = dict(list(ROWS.items())[:: 6 if name in COMPILED else 1])
    network, wanted, types = (
        all_layers(name, rows, "float32"),
        in_double_precision(rows),
        {},
    )

    def loss(network, inputs, ones):
        total = 0.0
        for layer, arrays, factors in zip(rows, inputs, ones, strict=True):
            with naming(layer):
                outputs = outputs_of(network, layer, arrays)
                types[layer] = {type_name(y) for y in outputs}
                total = total + sum(
                    network.nn.sum(y * one)
                    for y, one in zip(outputs, factors, strict=True)
                )
        return total

    inputs = [row.inputs for row in rows.values()]
    ones = [
        [np.ones(y.shape, np.float32) for y in outputs] for outputs in wanted.values()
    ]
    found = network.backend.gradients(loss, network, inputs, ones)
    assert {
        layer: kinds for layer, kinds in types.items() if kinds != {"float32"}
    } == {}
    kept = {key: str(value.dtype) for key, value in network.neutral_state().items()}
    assert {
        key: kind for key, kind in kept.items() if kind not in ("float32", "int64")
    } == {}
    gradients = found.parameters | dict(enumerate(flat(found.inputs[0])))
    assert {
        key: str(y.dtype)
        for key, y in gradients.items()
        if y is not None and y.dtype != np.float32
    } == {}
    for (layer, outputs), mine in zip(wanted.items(), found.inputs[1], strict=True):
        for low, high in zip(mine, outputs, strict=True):
            np.testing.assert_allclose(low, high, rtol=1e-4, atol=1e-5, err_msg=layer)


def test_functions_of_float32_stay_float32(name):
    types = {}

    def loss(network, x):
        total = 0.0
        for label, function in FUNCTIONS.items():
            with naming(label):
                outputs = flat(function(network.nn, x))
                types[label] = {type_name(y) for y in outputs}
                total = total + sum(network.nn.sum(y) for y in outputs)
        return total

    x = np.random.default_rng(0).random(SHAPE)
    found = get(name).gradients(loss, hold(name, dtype="float32"), x)
    assert {
        label: kinds for label, kinds in types.items() if kinds != {"float32"}
    } == {}
    assert found.inputs[0].dtype == np.float32
