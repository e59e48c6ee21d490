"""Every layer on every device present: float64 as on the host, float32 within rounding, TF32 off
and on.

The host's own run is checked in the same way, so that these tests are known to work where no GPU is
at hand.
"""

from contextlib import contextmanager

import numpy as np
import pytest

from deliralike import Network, backends, build
from tests.conftest import BACKENDS

RNG = np.random.default_rng(5)
IMAGES, SIGNALS, VOLUMES = (
    RNG.normal(size=(2, 4, *size)) for size in ((9, 7), (11,), (5, 7, 6))
)
TOKENS = RNG.normal(size=(3, 5, 8))
LAYERS = {
    "Conv1d": ((4, 6, 3), {"stride": 2, "padding": 1}, SIGNALS),
    "Conv2d": ((4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, IMAGES),
    "Conv3d": ((4, 6, 3), {"stride": 2, "dilation": 2, "padding": 2}, VOLUMES),
    "ConvTranspose2d": (
        (4, 6, 3),
        {"stride": 2, "padding": 1, "output_padding": 1},
        IMAGES,
    ),
    "BatchNorm2d": ((4,), {}, IMAGES),
    "InstanceNorm2d": ((4,), {"affine": True}, IMAGES),
    "GroupNorm": ((2, 4), {}, IMAGES),
    "LayerNorm": ((8,), {}, TOKENS),
    "Linear": ((8, 5), {}, TOKENS),
    "MultiheadAttention": ((8, 2), {"batch_first": True}, TOKENS),
    "LSTM": ((8, 5), {"batch_first": True, "bidirectional": True}, TOKENS),
    "GRU": ((8, 5), {"batch_first": True}, TOKENS),
    "MaxPool2d": ((3,), {"stride": 2, "padding": 1, "ceil_mode": True}, IMAGES),
    "AvgPool2d": (
        (3,),
        {"stride": 2, "padding": 1, "count_include_pad": False},
        IMAGES,
    ),
    "AdaptiveAvgPool2d": (((4, 3),), {}, IMAGES),
    "Upsample": ((), {"size": (5, 11), "mode": "bilinear"}, IMAGES),
    "GELU": ((), {}, IMAGES),
}
INPUTS = [x for _, _, x in LAYERS.values()]
SIZES = {
    "Conv1d": (2, 6, 6),
    "Conv2d": (2, 6, 5, 4),
    "Conv3d": (2, 6, 3, 4, 3),
    "ConvTranspose2d": (2, 6, 18, 14),
    "Linear": (3, 5, 5),
    "LSTM": (3, 5, 10),
    "GRU": (3, 5, 5),
    "MaxPool2d": (2, 4, 5, 4),
    "AvgPool2d": (2, 4, 5, 4),
    "AdaptiveAvgPool2d": (2, 4, 4, 3),
    "Upsample": (2, 4, 5, 11),
}
#: Of each layer the fixed numbers by which its outputs are multiplied; the others keep the shape of
#: their input.
RAMPS = [
    np.linspace(-1.0, 1.0, int(np.prod(size))).reshape(size)
    for size in (SIZES.get(layer, x.shape) for layer, (_, _, x) in LAYERS.items())
]
# A sum of a hundred products, each rounded to 24 bits (float32) or 11 bits (TF32) of precision.
LIMITS = {"float64": 1e-10, "float32": 2e-5, "TF32": 2e-2}


@pytest.fixture(
    params=[(name, kind) for name in BACKENDS for kind in ("host", "accelerator")],
    ids="-".join,
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


class All(Network):
    """Every layer, each with an input of its own."""

    def __init__(self):
        super().__init__()
        self.layers = self.nn.ModuleDict(
            {
                layer: getattr(self.nn, layer)(*args, **settings)
                for layer, (args, settings, _) in LAYERS.items()
            }
        )

    def forward(self, inputs):
        return {
            layer: self.one(layer, x) for layer, x in zip(LAYERS, inputs, strict=True)
        }

    def one(self, layer, x):
        outputs = (
            self.layers[layer](x, x, x)
            if layer == "MultiheadAttention"
            else self.layers[layer](x)
        )
        return outputs[0] if isinstance(outputs, tuple) else outputs


def computed(backend, device, dtype):
    """Of every layer in training mode its outputs, and all gradients of their products with fixed
    numbers.

    The products' gradients with respect to those numbers are the outputs. All layers are in one
    program.
    """
    network = build(All.on(backend), dtype=dtype, device=device).train()

    def loss(network, inputs, ramps):
        outputs = network(inputs)
        return sum(
            network.nn.sum(outputs[layer] * ramp)
            for layer, ramp in zip(LAYERS, ramps, strict=True)
        )

    inputs, ramps = (
        [backend.array(x, dtype=dtype, device=device) for x in each]
        for each in (INPUTS, RAMPS)
    )
    found = backend.gradients(loss, network, inputs, ramps)
    named = {}
    for layer, of_input, output in zip(LAYERS, *found.inputs, strict=True):
        named |= {
            f"layers.{layer}.the input": of_input,
            f"layers.{layer}.the output": output,
        }
    statistics = {
        name: value
        for name, value in network.neutral_state().items()
        if "running" in name
    }
    return named | found.parameters | statistics


def far(found, expected, limit):
    """The arrays that are off by more than the limit, relative to their own largest element (or to
    1)."""
    errors = {
        name: float(np.abs(found[name] - value).max() / max(1.0, np.abs(value).max()))
        for name, value in expected.items()
    }
    assert len(errors) > 2 * len(LAYERS)
    return {name: error for name, error in errors.items() if not error < limit}


@pytest.fixture(scope="module")
def reference():
    """PyTorch in float64 on the host."""
    return computed(backends.get("torch"), "cpu", "float64")


@pytest.mark.gpu
def test_in_double_precision_every_layer_agrees_with_the_host_on_every_device(
    place, reference
):
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
def test_batches_that_are_copied_while_the_device_computes_arrive_whole_and_in_order(
    place,
):
    backend, device = place
    network = build(backend.nn.Linear, 1 << 10, 1 << 10, device=device)
    arrived, x = [], backend.prepare(np.ones((1 << 10, 1 << 10), np.float32), network)
    for number in range(9):
        x = network(x)  # the device is busy for longer than the copy takes
        arrived.append(
            backend.prepare(np.full((512, 513), number, np.float32), network) + 1
        )
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
