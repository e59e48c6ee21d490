"""``deliralike train models.py:Net --backend chainer`` of a class of PyTorch."""

import pytest
from safetensors.numpy import load_file

from deliralike.training.experiment import load_result, read_settings
from tests.cli.test_commands import run

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

MODELS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels=1, num_classes=10, width=5):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(in_channels, width, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(width * 9, num_classes)

    def forward(self, x):
        return self.head(self.features(x).view(x.size(0), -1))


class Drawing(Net):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x))
"""
TRAIN = ("train", "models.py:Net", "--data", "digits", "--epochs", 1, "--out", "run")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


def test_a_class_of_another_framework_is_ported_proved_and_trained(place):
    shown = run(*TRAIN, "--backend", "chainer", "--set", "width=3").stdout
    assert "models.py:Net: ported into run/network.py\n" in shown and "\nPROVED" in shown
    assert (place / "run" / "proof.txt").read_text().startswith("PROVED")
    assert read_settings("run/settings.toml").network == "run/network.py:Net"
    weights = load_file("run/weights.safetensors")
    assert weights["features.0.weight"].shape == (3, 1, 3, 3) and "head.bias" in weights
    (place / "models.py").unlink()  # the run has its own source
    run("train", "--resume", "run", "--epochs", 2)
    assert len(load_result("run").history.epochs) == 2


def test_the_lines_that_need_a_hand_are_said_before_a_folder_is_made(place):
    ended = run(*TRAIN[:1], "models.py:Drawing", *TRAIN[2:], "--backend", "chainer", code=2)
    assert "models.py:18: randn_like: random numbers belong to layers" in ended.stderr
    assert ended.stderr.count("models.py:18") == 1
    assert not (place / "run").exists()


def test_a_port_without_a_proof_is_recorded_as_such(place):
    run(*TRAIN, "--backend", "chainer", "--no-proof")
    assert (place / "run" / "proof.txt").read_text() == "not proved: --no-proof\n"


def test_a_port_that_differs_is_not_trained_and_leaves_no_folder(place, monkeypatch):
    from deliralike.port import pytorch

    monkeypatch.setitem(pytorch.CLASSES, "ReLU", "SiLU")
    shown = run(*TRAIN, "--backend", "chainer", code=2)
    assert "\nDIVERGES at " in shown.stdout
    assert (
        "the port of models.py:Net is not proved on chainer, so nothing was trained" in shown.stderr
    )
    assert not (place / "run").exists()
