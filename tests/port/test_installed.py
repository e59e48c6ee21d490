"""Classes of installed packages, whose layers are chosen by tables and factories."""

import importlib

import numpy as np
import pytest

from deliralike import port
from tests.port.corpus import entries, look
from tests.port.proving import proved

pytest.importorskip("libcst")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # their own
KNOWN = {
    label: (name, arguments, inputs) for label, name, arguments, inputs in entries()
}


@pytest.mark.parametrize("label", ["monai UNet", "timm convnext_atto"])
def test_it_is_proved_without_a_touch(label):
    told = look(*KNOWN[label], ["torch"])
    assert told["hands"] == []
    headline, _ = told["torch"]
    assert headline.startswith("PROVED"), headline


def test_what_is_not_a_network_stays_behind():
    """Neither a hub's mixin, nor the encoders of other names, nor checks of arguments."""
    name = "segmentation_models_pytorch Linknet"
    told = look(*KNOWN[name], ["torch"])
    assert told["hands"] == [] and told["lines"] < 800
    headline, _ = told["torch"]
    assert headline.startswith("PROVED"), headline


STRANGER = """
import torch
from torch import nn

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class Net(nn.Module):
    def __init__(self, activation="relu"):
        super().__init__()
        self.activation = activation
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return nn.functional.dropout(self.fc(x), 0.5) + ACTIVATIONS[self.activation](self.fc(x))
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package, whose text is given, and returns its class ``Net``."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def install(name, text):
        (folder / f"{name}.py").write_text(text)
        return importlib.import_module(name).Net

    return install


def test_what_is_chosen_hides_no_hand_of_its_line(installed, tmp_path):
    found = port(installed("stranger_port", STRANGER), (np.ones((2, 4), np.float32),))
    assert any("stranger_port.py:15: dropout" in str(remark) for remark in found.hands)
    file = tmp_path / "site-packages" / "stranger_port.py"
    assert [str(one) for one in found.left_out if "nn.relu" in str(one)] == [
        f"{file}:15: what is chosen by its arguments, nn.relu here"
    ]


PATCHED = """
from torch import nn


def dilate(network, rate):
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.stride, layer.dilation = (1, 1), (rate, rate)
            layer.padding = tuple(rate * (size // 2) for size in layer.kernel_size)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(4, 5, 3, stride=2, padding=1))
        dilate(self.last, 2)

    def forward(self, x):
        return self.last(self.stem(x))
"""


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_layers_that_are_changed_once_they_exist_are_changed_in_the_port(
    installed, backend
):
    x = np.random.default_rng(0).standard_normal((2, 3, 15, 13)).astype(np.float32)
    found = port(installed(f"patched_{backend}", PATCHED), (x,))
    assert found.hands == []
    proved(found, backend)


TRYING = """
import importlib
from dataclasses import dataclass
from enum import Enum

import torch
from torch import nn


def is_compiling():
    try:
        return torch.compiler.is_compiling()
    except Exception:
        import torch._dynamo as dynamo
        return dynamo.is_compiling()


USES_TWO: bool = True


def uses_two(use=None):
    global USES_TWO
    if use is not None:
        USES_TWO = use
    return USES_TWO


def optional_import(module, name):
    return getattr(importlib.import_module(module), name), True


rearrange, _ = optional_import("einops", "rearrange")


@dataclass
class Weights:
    number: int

    def __eq__(self, other):
        if isinstance(other, Weights):
            return self.number == other.number
        return NotImplemented


class Known(Enum):
    FIRST = Weights(1)
    LAST = Weights(2)


class Processor:
    def __call__(self, network, x):
        return torch.bmm(x, network.fc(x).transpose(1, 2))


class Quick:
    def __call__(self, network, x):
        return network.fc(x)


def tiny_init_weights(network, start=None):
    start = start or nn.init.zeros_
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear):
            start(layer.bias)


class Model(nn.Module):
    def __getattr__(self, name):
        return super().__getattr__(name)


class Settings:
    def scale(self):
        return 2.0

    def __getattr__(self, name):
        raise AttributeError(name)


class Net(Model, Settings):
    def __init__(self, quick=True):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.processor = Quick() if quick else Processor()
        tiny_init_weights(self)
        self.weights = None if quick else Known.FIRST
        if torch.meshgrid.__kwdefaults__ is not None:
            self.grid = len(torch.meshgrid([torch.arange(2)], indexing="ij"))

    def forward(self, x):
        if x.dtype == torch.bfloat16:
            x = x.to(torch.float32)
        if x.device.type == "mps":
            return self.processor(self, x.cpu())
        factor = self.scale() if is_compiling() or uses_two() else 1.0
        x = rearrange(x, "b n d -> b n d")
        for number in range(2):
            x = x + number
        else:
            x = x * 1.5
        return self.processor(self, x) * factor * self.grid
"""


def test_what_did_not_run_is_left_out(installed):
    """Ways out of errors, methods of other classes than networks, start values."""
    x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    found = port(installed("trying_port", TRYING), (x,))
    assert found.hands == []
    for word in ("dynamo", "bmm", "tiny_init"):
        assert word not in found.source
    assert "x = x * 1.5" in found.source  # after a loop, which is no branch
    proved(found, "torch")


CREATING = """
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import nn


class Soft(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class Layers(OrderedDict):
    def __getitem__(self, name):
        cls, words = super().__getitem__(name)
        return cls(**words)


TABLE = Layers(gelu=(nn.GELU, {"approximate": "tanh"}), soft=(Soft, {}), elu=(nn.ELU, {}))


@dataclass
class Output(OrderedDict):
    last: torch.Tensor
    hidden: tuple = ()

    def __init_subclass__(cls):
        torch.compiler.disable(cls)

    def __post_init__(self):
        self.update(vars(self))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.gelu, self.soft = TABLE["gelu"], TABLE["soft"]

    def forward(self, x):
        hidden = self.gelu(self.first(x))
        return Output(last=self.soft(hidden), hidden=(hidden,))
"""


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_layers_that_a_table_creates_are_written_out_and_outputs_keep_their_class(
    installed, backend
):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    found = port(installed("creating_port", CREATING), (x,))
    assert found.hands == []
    assert "self.gelu, self.soft = nn.GELU(approximate='tanh'), Soft()" in found.source
    assert "from creating_port import Output" in found.source
    proved(found, backend)


NAMING = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width, act_layer=nn.ReLU, num_classes=2):
        super().__init__()
        self.num_features = width
        self.fc = nn.Linear(4, width)
        self.act = act_layer()
        self.head = nn.Linear(width, num_classes) if num_classes else nn.Identity()

    def forward(self, x):
        return self.head(self.act(self.fc(x)))


MODELS = {}


def register(function):
    MODELS[function.__name__] = function
    return function


@register
def net_tiny(**kwargs):
    return Net(3, act_layer=nn.GELU, **kwargs)


def create_model(name, **kwargs):
    if name not in MODELS:
        raise RuntimeError(name)
    return MODELS[name](**kwargs)
"""
USING = """
import naming_port
from torch import nn


class Backboned(nn.Module):
    def __init__(self, name="net_tiny", classes=3):
        super().__init__()
        self.model = naming_port.create_model(name, num_classes=0)
        self.head = nn.Linear(self.model.num_features, classes)

    def forward(self, x):
        return self.head(self.model(x))
"""


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_a_network_by_name_is_its_class_with_its_arguments(
    installed, backend, tmp_path, monkeypatch
):
    installed("naming_port", NAMING)
    (tmp_path / "using_port.py").write_text(USING)
    monkeypatch.syspath_prepend(tmp_path)
    network = importlib.import_module("using_port").Backboned
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    found = port(network, (x,))
    assert found.hands == []
    given = "Net(width=3, act_layer=self.nn.GELU, num_classes=0)"
    assert f"self.model = {given.replace('self.nn', 'nn')}" in found.source
    assert "create_model" not in found.source and "MODELS" not in found.source
    proved(found, backend)
