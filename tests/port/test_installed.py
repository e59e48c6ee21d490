"""Classes of installed packages, whose layers are chosen by tables and factories."""

import importlib

import numpy as np
import pytest

from deliralike import port
from tests.port.corpus import entries, look

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


def test_what_is_chosen_hides_no_hand_of_its_line(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "stranger_port.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(folder)
    network = importlib.import_module("stranger_port").Net
    found = port(network, (np.ones((2, 4), np.float32),))
    assert any("stranger_port.py:15: dropout" in str(remark) for remark in found.hands)
    assert [str(one) for one in found.left_out if "nn.relu" in str(one)] == [
        f"{folder}/stranger_port.py:15: what is chosen by its arguments, nn.relu here"
    ]
