"""Every layer on every device present: float64 as on the host, float32 within rounding, TF32 off and on.

The host's own run is checked in the same way, so that these tests are known to work where no GPU is at hand.
"""

from contextlib import contextmanager

import numpy as np
import pytest

from deliralike import backends, build
from tests.conftest import BACKENDS

RNG = np.random.default_rng(5)
IMAGES, SIGNALS, VOLUMES = (RNG.normal(size=(2, 4, *size)) for size in ((9, 7), (11,), (5, 7, 6)))
TOKENS = RNG.normal(size=(3, 5, 8))
LAYERS = {
    "Conv1d": ((4, 6, 3), {"stride": 2, "padding": 1}, SIGNALS),
    "Conv2d": ((4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, IMAGES),
    "Conv3d": ((4, 6, 3), {"stride": 2, "dilation": 2, "padding": 2}, VOLUMES),
    "ConvTranspose2d": ((4, 6, 3), {"stride": 2, "padding": 1, "output_padding": 1}, IMAGES),
    "BatchNorm2d": ((4,), {}, IMAGES),
    "InstanceNorm2d": ((4,), {"affine": True}, IMAGES),
    "GroupNorm": ((2, 4), {}, IMAGES),
    "LayerNorm": ((8,), {}, TOKENS),
    "Linear": ((8, 5), {}, TOKENS),
    "MultiheadAttention": ((8, 2), {"batch_first": True}, TOKENS),
    "LSTM": ((8, 5), {"batch_first": True, "bidirectional": True}, TOKENS),
    "GRU": ((8, 5), {"batch_first": True}, TOKENS),
    "MaxPool2d": ((3,), {"stride": 2, "padding": 1, "ceil_mode": True}, IMAGES),
    "AvgPool2d": ((3,), {"stride": 2, "padding": 1, "count_include_pad": False}, IMAGES),
    "AdaptiveAvgPool2d": (((4, 3),), {}, IMAGES),
    "Upsample": ((), {"size": (5, 11), "mode": "bilinear"}, IMAGES),
    "GELU": ((), {}, IMAGES),
}
# A sum of a hundred products, each rounded to 24 bits (float32) or 11 bits (TF32) of precision.
LIMITS = {"float64": 1e-10, "float32": 2e-5, "TF32": 2e-2}


@pytest.fixture(params=[(name, kind) for name in BACKENDS for kind in ("host", "accelerator")], ids="-".join)
def place(request):
    """A backend and one of its devices."""
    name, kind = request.param
    backend = backends.get(name)
    host = next(device for device in backend.devices() if device in ("cpu", "@numpy") or device.startswith("cpu"))
    devices = [host] if kind == "host" else [d for d in backend.devices() if not d.startswith(("cpu", "@numpy"))]
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


def computed(backend, device, dtype, layer):
    """Outputs' sum against fixed numbers, and all gradients, of a layer in training mode."""
    args, settings, x = LAYERS[layer]
    network = build(getattr(backend.nn, layer), *args, dtype=dtype, device=device, **settings)
    network.train()

    def loss(network, x):
        outputs = network(x, x, x) if layer == "MultiheadAttention" else network(x)
        y = outputs[0] if isinstance(outputs, tuple) else outputs
        ramp = np.linspace(-1.0, 1.0, int(np.prod(y.shape))).reshape(y.shape)
        return network.nn.sum(y * network.nn.constant(ramp, like=y))

    inputs = backend.array(x, dtype=dtype, device=device)
    found = backend.gradients(loss, network, inputs)
    statistics = {name: value for name, value in network.neutral_state().items() if "running" in name}
    return {"loss": np.array(found.loss), "input": found.inputs[0]} | found.parameters | statistics


def difference(found, expected):
    """The largest error of any array, relative to its own largest element (or to 1)."""
    return max(
        float(np.abs(found[name] - value).max() / max(1.0, np.abs(value).max())) for name, value in expected.items()
    )


@pytest.fixture(scope="module")
def reference():
    """PyTorch in float64 on the host, layer by layer."""
    torch = backends.get("torch")
    return {layer: computed(torch, "cpu", "float64", layer) for layer in LAYERS}


@pytest.mark.gpu
@pytest.mark.parametrize("layer", LAYERS)
def test_in_double_precision_every_device_agrees_with_the_host(place, reference, layer):
    backend, device = place
    assert difference(computed(backend, device, "float64", layer), reference[layer]) < LIMITS["float64"]


@pytest.mark.gpu
@pytest.mark.parametrize("switch", [False, True], ids=["TF32 off", "TF32 on"])
@pytest.mark.parametrize("layer", LAYERS)
def test_in_single_precision_every_device_is_within_rounding(place, reference, layer, switch):
    backend, device = place
    with tf32(backend, switch):
        found = computed(backend, device, "float32", layer)
    assert difference(found, reference[layer]) < LIMITS["TF32" if switch else "float32"]


@pytest.mark.gpu
def test_the_precision_in_force_is_shown(place):
    backend, _ = place
    shown = []
    for switch in (False, True):
        with tf32(backend, switch):
            shown.append(backend.precision())
    assert backend.name == "chainer" or shown[0] != shown[1]
