"""Chainer's backend on device arrays: nothing in it hands one to NumPy, or mixes the two.

CuPy is played by a stand-in over NumPy, so that what is computed can be compared with the host.
"""

import importlib.util
import sys
import types

import numpy as np
import pytest

from deliralike import DataParallel, Network, backends, build, zoo
from deliralike.backends.chainer import arrays
from deliralike.optim.rules import RULES, rule
from tests.arrays import same_named
from tests.chainer_bridge import cupy_stand_in
from tests.nn.test_devices import computed, far

CHAINER = backends.get("chainer")
GPU = "@cupy:0"
RNG = np.random.default_rng(3)


@pytest.fixture
def cupy(monkeypatch):
    """Let Chainer find CuPy and one GPU."""
    cuda = arrays.cuda
    module = cupy_stand_in.module()
    for name, value in {
        "available": True,
        "cupy": module,
        "cupyx": types.ModuleType("cupyx"),
        "cuda": module.cuda,
        "ndarray": module.ndarray,
        "Device": module.cuda.Device,
        "_cudnn_disabled_by_user": True,
    }.items():
        monkeypatch.setattr(cuda, name, value, raising=False)
    monkeypatch.setattr(cuda.GpuDevice, "xp", module)
    monkeypatch.setattr(cuda.GpuDevice, "supported_array_types", (module.ndarray,))
    # The types of arrays, which Chainer keeps from its first use on.
    monkeypatch.setattr(arrays.chainer, "_array_types", None)
    arrays._device.cache_clear()
    yield module
    arrays._device.cache_clear()


def test_the_stand_in_is_as_strict_as_cupy(cupy):
    x = cupy.asarray(np.ones(3))
    for mix in (lambda: np.asarray(x), lambda: x + np.ones(3), lambda: np.flip(x, 0)):
        with pytest.raises(TypeError):
            mix()


def test_every_layer_computes_on_the_device_what_it_computes_on_the_host(cupy):
    host = computed(CHAINER, "@numpy", "float64")
    assert far(computed(CHAINER, GPU, "float64"), host, 1e-12) == {}


TINY = {
    "vocab_size": 11,
    "d_model": 8,
    "nhead": 2,
    "num_layers": 1,
    "dim_feedforward": 12,
}
NETWORKS = {
    "resnet8": ({"num_classes": 3}, (2, 1, 17, 17)),
    "vit_b_16": (
        {
            "image_size": 32,
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 8,
            "mlp_dim": 12,
        }
        | {"num_classes": 3},
        (2, 3, 32, 32),
    ),
    "convnext_tiny": (
        {"layers": (1, 1), "widths": (4, 8), "num_classes": 3, "stochastic_depth": 0.5},
        (4, 3, 32, 32),
    ),
    "unet": ({"features": (2, 2, 3, 3, 4, 2)}, (1, 1, 32, 32)),
    "swin_t": (
        {"depths": (1, 1), "embed_dim": 6, "num_heads": (1, 2), "num_classes": 3},
        (2, 3, 32, 32),
    ),
    "squeezenet1_1": ({"num_classes": 3}, (1, 3, 33, 33)),
    "gpt_mini": (
        {"vocab_size": 11, "n_positions": 6, "n_embd": 8, "n_layer": 1, "n_head": 2},
        11,
    ),
    "transformer_classifier": (TINY, 11),
}


def batch_of(name):
    shape = NETWORKS[name][1]
    if isinstance(shape, int):
        return RNG.integers(0, shape, (2, 6))
    return RNG.normal(size=shape)


def loss(network, x):
    outputs = network(x)
    outputs = getattr(outputs, "logits", outputs)
    return network.nn.mean(outputs * outputs)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_zoo_train_on_the_device_as_on_the_host(cupy, name):
    batch = batch_of(name)
    states = []
    for device in ("@numpy", GPU):
        network = zoo.build(
            name, backend="chainer", device=device, dtype="float64", **NETWORKS[name][0]
        ).train()
        optimizer = CHAINER.optimizer(rule("sgd", lr=0.1, momentum=0.9), network)
        with CHAINER.preserve_global_state():
            CHAINER.seed(1)
            for _ in range(2):
                optimizer.update(loss, batch)
        states.append(dict(network.neutral_state()))
    same_named(states[1], states[0])


def linear(device, dtype="float32"):
    return zoo.build(
        "mlp",
        backend="chainer",
        device=device,
        dtype=dtype,
        in_features=3,
        out_features=2,
    ).train()


@pytest.mark.parametrize("name", RULES)
def test_update_rules_keep_their_state_on_the_device_and_give_the_hosts_numbers(
    cupy, name
):
    batch = RNG.normal(size=(4, 3))
    states = []
    for device in ("@numpy", GPU):
        network = linear(device, "float64")
        optimizer = CHAINER.optimizer(rule(name, lr=0.01), network)
        for _ in range(3):
            optimizer.update(loss, batch)
        restored = CHAINER.optimizer(rule(name, lr=0.01), network)
        restored.load_neutral_state(optimizer.neutral_state())
        restored.update(loss, batch)
        states.append(network.neutral_state() | restored.neutral_state())
    same_named(states[1], states[0])


def test_replicas_and_windows_of_batches_train_on_the_device_as_on_the_host(cupy):
    batch = RNG.normal(size=(6, 3))
    states = []
    for device in ("@numpy", GPU):
        network = DataParallel(linear(device, "float64"), [device, device])
        optimizer = CHAINER.optimizer(rule("adam", lr=0.1), network)
        optimizer.accumulate = 2
        for _ in range(4):
            optimizer.update(loss, batch)
        states.append(dict(network.neutral_state()))
    same_named(states[1], states[0], 1e-09)


def test_random_layers_continue_on_the_device_from_a_stored_state(cupy):
    network = zoo.build(
        "transformer_classifier", backend="chainer", device=GPU, **TINY
    ).train()
    tokens = RNG.integers(0, 11, (2, 6))
    with CHAINER.preserve_global_state():
        state = CHAINER.random_state(network)
        first = CHAINER.numpy(network(CHAINER.prepare(tokens, network)))
        CHAINER.load_random_state(network, state)
        again = CHAINER.numpy(network(CHAINER.prepare(tokens, network)))
    np.testing.assert_array_equal(again, first)


def test_chainers_own_links_in_a_network_built_on_a_device_lie_there(cupy):
    class Net(Network):
        def __init__(self):
            super().__init__()
            self.inner = arrays.chainer.links.Linear(3, 2)
            self.outer = self.nn.Linear(2, 1)

        def forward(self, x):
            return self.outer(self.inner(x))

    network = build(Net.on(CHAINER), device=GPU)
    assert network.device_name == GPU
    assert {str(each.device) for each in network.params()} == {GPU}


@pytest.mark.parametrize("name", ["resnet8", "squeezenet1_1"])
def test_a_step_reads_nothing_from_the_device(cupy, monkeypatch, name):
    network = zoo.build(name, backend="chainer", device=GPU, **NETWORKS[name][0])
    optimizer = CHAINER.optimizer(rule("sgd", lr=0.1, momentum=0.9), network.train())
    batch = batch_of(name), np.array([0, 2])[: NETWORKS[name][1][0]]
    for name in ("get", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(
            cupy.ndarray, name, lambda *_: pytest.fail("it waits for the device")
        )
    for _ in range(2):
        optimizer.update(
            lambda network, x, y: network.nn.cross_entropy(network(x), y), *batch
        )


def test_a_cupy_without_cudnn_is_no_cause_for_a_warning(monkeypatch):
    names = ("cupy", "cupy.cuda", "cupyx", "cupyx.scipy", "cupyx.scipy.linalg")
    modules = {name: types.ModuleType(name) for name in (*names, "cupyx.scipy.special")}
    modules["cupy"] = cupy_stand_in.module()
    modules["cupy"].cuda = modules["cupy.cuda"]
    for name in ("cublas", "Device", "Event", "Stream"):
        setattr(modules["cupy.cuda"], name, type(name, (), {}))
    for name in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        setattr(modules["cupy"], name, lambda: None)
    modules["cupy"].memoize = lambda *_, **__: lambda function: function
    modules["cupy._util"] = types.SimpleNamespace(PerformanceWarning=Warning)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.find_spec("chainer.backends.cuda")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.available and not module.cudnn_enabled
    module.check_cuda_available()  # a warning would be an error here
