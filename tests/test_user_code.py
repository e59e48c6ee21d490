"""Classes and functions of one's own by name."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from deliralike import own_code, zoo
from deliralike.errors import DataUnavailable, SettingError, UnknownName
from deliralike.training.experiment import Experiment, load_run

TORCH = """
import torch
from neighbour import WIDTH

class Net(torch.nn.Module):
    input_shape = (2, 7, 9)

    def __init__(self, in_chans, n_classes=4):
        super().__init__()
        self.conv = torch.nn.Conv2d(in_chans, WIDTH, 3, 2)
        self.head = torch.nn.Linear(WIDTH, n_classes)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))
"""
FLAX = """
from flax import nnx

class Net(nnx.Module):
    def __init__(self, width, *, rngs):
        self.layer = nnx.Linear(3, width, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)

def make(width=5):
    return Net(width, rngs=nnx.Rngs(0))

net = make()
"""
ONCE = """
from deliralike import Network

class Once(Network):
    task = "classification"

    def __init__(self, in_channels, width=4):
        super().__init__()
        self.layer = self.nn.Conv2d(in_channels, width, 3)

    def forward(self, x):
        return self.layer(x)

def wide(in_channels):
    return Once(in_channels, width=9)
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A folder with a user's files, from which commands are called."""
    files = {
        "nets_t.py": TORCH,
        "nets_f.py": FLAX,
        "nets_o.py": ONCE,
        "neighbour.py": "WIDTH = 5",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "broken.py").write_text("import no_such_package")
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in {"nets_t", "nets_f", "nets_o", "nets_l", "neighbour"} - before:
        sys.modules.pop(name, None)


def test_a_native_network_of_a_file(code):
    seeds = [
        zoo.build("nets_t.py:Net", backend="torch", in_chans=2, seed=seed)
        for seed in (3, 3, 4)
    ]
    states = [net.neutral_state() for net in seeds]
    assert list(states[0]) == ["conv.weight", "conv.bias", "head.weight", "head.bias"]
    np.testing.assert_array_equal(states[0]["conv.weight"], states[1]["conv.weight"])
    assert not np.array_equal(states[0]["conv.weight"], states[2]["conv.weight"])
    twin = zoo.build(
        "nets_t.py:Net", backend="torch", in_chans=2, num_classes=7, dtype="float64"
    )
    assert (twin.dtype_name, twin.neutral_state()["head.bias"].shape) == (
        "float64",
        (7,),
    )
    assert zoo.find("nets_t.py:Net").input_shape == (2, 7, 9)


def test_a_function_of_a_module(code):
    net = zoo.build("nets_f:make", backend="jax", width=6)
    assert net.neutral_state()["layer.weight"].shape == (6, 3)


def test_a_network_of_flax_gets_its_rngs_by_the_seed(code):
    weights = []
    for seed in (3, 3, 4):
        network = zoo.build("nets_f.py:Net", backend="jax", width=5, seed=seed)
        weights.append(network.neutral_state()["layer.weight"])
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


@pytest.mark.parametrize("name", ["torch", "chainer", "jax"])
def test_a_network_written_once(code, name):
    made = [
        zoo.build(f"nets_o:{one}", backend=name, in_channels=2)
        for one in ("Once", "wide")
    ]
    assert [net.backend.name for net in made] == [name, name]
    state = made[1].neutral_state()["layer.weight"]
    np.testing.assert_array_equal(
        state,
        zoo.build("nets_o:wide", backend="torch", in_channels=2).neutral_state()[
            "layer.weight"
        ],
    )
    assert (state.shape, zoo.find("nets_o:Once").task) == (
        (9, 2, 3, 3),
        "classification",
    )


WRONG = {
    "nets_t.py:Nett": "'nets_t.py' has no 'Nett'. Did you mean 'Net'",
    "nowhere.py:Net": "there is no file 'nowhere.py', looked for in ",
    "no_where.nets:Net": "there is no module 'no_where.nets', looked for in ",
    "broken.py:Net": "'broken.py' cannot be imported: ModuleNotFoundError",
    "broken:Net": "'broken' cannot be imported: ModuleNotFoundError",
    "nets_f.py:net": "'nets_f.py:net' is a network already, .*: name its class, or a function",
    "neighbour:WIDTH": "'neighbour:WIDTH' is of type int: wanted is the class of a network",
}


@pytest.mark.parametrize("name", WRONG)
def test_names_of_nothing(code, name):
    with pytest.raises(SettingError, match=WRONG[name]):
        zoo.find(name)


def test_networks_that_cannot_be_built(code):
    with pytest.raises(
        SettingError, match="make is a network of jax, and was asked for on torch"
    ):
        zoo.build("nets_f.py:make", backend="torch")
    with pytest.raises(SettingError, match="needs 'width', which neither the data nor"):
        zoo.build("nets_f.py:Net", backend="jax")


def test_a_network_of_linen_is_told_how_it_becomes_one_of_nnx(code):
    (code / "nets_l.py").write_text(
        "import flax.linen as nn\nclass Net(nn.Module):\n    pass\n"
    )
    with pytest.raises(
        UnknownName, match=r"no available backend .*: .*nnx\.bridge\.ToNNX"
    ):
        zoo.build("nets_l.py:Net", backend="jax")


def test_a_file_with_the_name_of_a_package(code):
    (code / "numpy.py").write_text("class Net:\n    here = True\n")
    assert own_code.load("numpy.py:Net.here") is True
    assert own_code.load("./numpy.py:Net") is own_code.load("numpy.py:Net")
    assert sys.modules["numpy"] is np


def test_a_file_with_relative_imports_is_a_module_of_its_package(code):
    folder = code / "package_r" / "nets"
    folder.mkdir(parents=True)
    (code / "package_r" / "__init__.py").touch()
    (code / "package_r" / "sizes.py").write_text("WIDTH = 3\n")
    (folder / "net.py").write_text(
        "from ..sizes import WIDTH\nclass Net:\n    width = WIDTH\n"
    )
    net = own_code.load("package_r/nets/net.py:Net")
    assert (net.width, net.__module__) == (3, "package_r.nets.net")
    assert own_code.load("package_r.nets.net:Net") is net


DATA = """
import numpy as np

def data(shift=0.0):
    labels = np.arange(40) % 3
    noise = np.random.default_rng(1).normal(shift, 1, (40, 2, 7, 9))
    return noise + labels[:, None, None, None], labels
"""


def test_a_run_of_own_network_and_data(code):
    (code / "mine.py").write_text(DATA)
    settings = {
        "network": "nets_t.py:Net",
        "data": "mine.py:data",
        "data_settings": {"shift": 0.5},
        "epochs": 1,
    }
    result = Experiment(settings).run()
    assert result.folder == Path("runs/Net-0001")
    assert result.settings.network_settings == {"in_chans": 2, "n_classes": 3}
    (start,) = json.loads((result.folder / "code.json").read_text())
    assert start["network_file"] == str(code / "nets_t.py")
    network, _, dataset = load_run(result.folder)
    labels = np.concatenate([dataset.train.labels, dataset.held_out.labels])
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(np.arange(40) % 3))
    np.testing.assert_equal(network.neutral_state(), result.network.neutral_state())
    sys.modules.pop("mine")
    (code / "mine.py").write_text(
        DATA.replace("rng(1)", "rng(22)")
    )  # of another length
    with pytest.raises(
        DataUnavailable, match="'mine.py:data' gives other samples than those that"
    ):
        load_run(result.folder)
    assert load_run(result.folder, dataset="mine.py:data")[2].name == "mine.py:data"
