"""Every layer on every device present: float64 as on the host, float32 within rounding, TF32 off
and on.

The host's own run is checked in the same way, so that these tests are known to work where no GPU is
at hand.
"""

from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

from deliralike import backends, build
from tests.conftest import BACKENDS
from tests.nn import vocabulary
from tests.nn.agreement import Shelf, flat

KINDS = {"Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "BatchNorm2d", "InstanceNorm2d"}
KINDS |= {"GroupNorm", "LayerNorm", "Linear", "MultiheadAttention", "LSTM", "GRU", "MaxPool2d"}
KINDS |= {"AvgPool2d", "AdaptiveAvgPool2d", "Upsample", "GELU"}
# The last row of each of them in the table, with the most settings.
ROWS = {f"the_{row.name}": row for row in vocabulary.LAYERS if row.name in KINDS}
LAYERS = {path: (row.name, {"args": row.args, **row.kwargs}) for path, row in ROWS.items()}
# A sum of a hundred products, each rounded to 24 bits (float32) or 11 bits (TF32) of precision.
LIMITS = {"float64": 1e-10, "float32": 2e-5, "TF32": 2e-2}


@pytest.fixture(
    params=[(name, kind) for name in BACKENDS for kind in ("host", "accelerator")], ids="-".join
)
def place(request):
    """A backend and one of its devices."""
    name, kind = request.param
    backend = backends.get(name)
    host = next(
        device
        for device in backend.devices()
        if device in ("cpu", "@numpy") or device.startswith("cpu")
    )
    devices = (
        [host]
        if kind == "host"
        else [d for d in backend.devices() if not d.startswith(("cpu", "@numpy"))]
    )
    if not devices:
        pytest.skip(f"backend {name!r} finds no accelerator on this machine")
    return backend, devices[0]


@contextmanager
def tf32(backend, switch):
    """TF32 on or off, where the framework has a switch for it."""
    if backend.name == "torch":
        import torch

        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("high" if switch else "highest")
        torch.backends.cudnn.allow_tf32 = switch
        yield
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
    elif backend.name == "jax":
        import jax

        with jax.default_matmul_precision("tensorfloat32" if switch else "highest"):
            yield
    else:
        yield


def outputs_of(network, path, inputs):
    return flat(ROWS[path].call(getattr(network, path), *inputs))


@cache
def fixed_numbers():
    """The fixed numbers by which outputs are multiplied."""
    torch = backends.get("torch")
    network, found = build(Shelf.on(torch), LAYERS, dtype="float64").train(), []
    for path, row in ROWS.items():
        outputs = outputs_of(network, path, torch.prepare(row.inputs, network))
        found.append([np.linspace(-1.0, 1.0, y.numel()).reshape(y.shape) for y in outputs])
    return found


def computed(backend, device, dtype):
    """Of every layer in training mode its outputs, and all gradients of their products with fixed
    numbers.

    The products' gradients with respect to those numbers are the outputs. All layers are in one
    program.
    """
    network = build(Shelf.on(backend), LAYERS, dtype=dtype, device=device).train()

    def loss(network, inputs, ramps):
        total = 0.0
        for path, arrays, factors in zip(ROWS, inputs, ramps, strict=True):
            outputs = outputs_of(network, path, arrays)
            for output, ramp in zip(outputs, factors, strict=True):
                total = total + network.nn.sum(output * ramp)
        return total

    inputs, ramps = (
        [[backend.array(x, dtype=dtype, device=device) for x in arrays] for arrays in each]
        for each in ([row.inputs for row in ROWS.values()], fixed_numbers())
    )
    found = backend.gradients(loss, network, inputs, ramps)
    named = {}
    for path, of_inputs, of_outputs in zip(ROWS, *found.inputs, strict=True):
        named |= {f"{path}: input {at}": value for at, value in enumerate(of_inputs)}
        named |= {f"{path}: output {at}": value for at, value in enumerate(of_outputs)}
    state = network.neutral_state()
    named |= {key: state[key] for key in state if "running" in key}
    named |= {key: value for key, value in found.parameters.items() if value is not None}
    return named


def far(found, expected, limit):
    """The arrays that are off by more than the limit, relative to their own largest element (or to
    1)."""
    errors = {
        name: float(np.abs(found[name] - value).max() / max(1.0, np.abs(value).max()))
        for name, value in expected.items()
    }
    assert len(errors) > 2 * len(ROWS)
    return {name: error for name, error in errors.items() if not error < limit}


@pytest.fixture(scope="module")
def reference():
    """PyTorch in float64 on the host."""
    return computed(backends.get("torch"), "cpu", "float64")


@pytest.mark.gpu
def test_in_double_precision_every_layer_agrees_with_the_host_on_every_device(place, reference):
    backend, device = place
    assert far(computed(backend, device, "float64"), reference, LIMITS["float64"]) == {}


@pytest.mark.gpu
@pytest.mark.parametrize("switch", [False, True], ids=["TF32 off", "TF32 on"])
def test_in_single_precision_every_layer_is_within_rounding_on_every_device(
    place, reference, switch
):
    backend, device = place
    with tf32(backend, switch):
        found = computed(backend, device, "float32")
    assert far(found, reference, LIMITS["TF32" if switch else "float32"]) == {}


@pytest.mark.gpu
def test_batches_that_are_copied_while_the_device_computes_arrive_whole_and_in_order(place):
    backend, device = place
    network = build(backend.nn.Linear, 1 << 10, 1 << 10, device=device)
    arrived, x = [], backend.prepare(np.ones((1 << 10, 1 << 10), np.float32), network)
    for number in range(9):
        x = network(x)  # the device is busy for longer than the copy takes
        arrived.append(backend.prepare(np.full((512, 513), number, np.float32), network) + 1)
    for number, array in enumerate(arrived):
        assert (backend.numpy(array) == number + 1).all()


@pytest.mark.gpu
def test_the_precision_in_force_is_shown(place):
    backend, _ = place
    shown = []
    for switch in (False, True):
        with tf32(backend, switch):
            shown.append(backend.precision())
    assert backend.name == "chainer" or shown[0] != shown[1]
