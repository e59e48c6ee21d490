"""``deliralike train models.py:Net --backend chainer`` of a class of PyTorch."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from deliralike import zoo
from deliralike.errors import AnotherBackend
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


def make(width=4):
    return Net(width=width)


class Drawing(Net):
    def forward(self, x):
        return super().forward(x + torch.bernoulli(torch.sigmoid(x)))
"""
TRAIN = ("train", "models.py:Net", "--data", "digits", "--epochs", 1, "--out", "run")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


def test_a_class_of_another_framework_is_ported_proved_and_trained(place):
    shown = run(*TRAIN, "--backend", "chainer", "--set", "width=3").stdout
    assert (
        "models.py:Net: ported into run/network.py\n" in shown and "\nPROVED" in shown
    )
    assert (place / "run" / "proof.txt").read_text().startswith("PROVED")
    assert read_settings("run/settings.toml").network == "run/network.py:Net"
    weights = load_file("run/weights.safetensors")
    assert weights["features.0.weight"].shape == (3, 1, 3, 3) and "head.bias" in weights
    (place / "models.py").unlink()  # the run has its own source
    run("train", "--resume", "run", "--epochs", 2)
    assert len(load_result("run").history.epochs) == 2


def test_a_port_replaces_neither_the_original_nor_an_edited_one(place):
    """The file of a class ``Net`` has no other name than the port's by default."""
    (place / "net.py").write_text(MODELS)
    port = ("port", "net.py:Net", "--input", "1x8x8", "--no-proof")
    assert "there is another 'net.py'" in run(*port, code=2).stderr
    assert (place / "net.py").read_text() == MODELS
    for _ in range(2):  # the same again changes nothing
        run(*port, "--out", "new.py")
    with open("new.py", "a") as file:
        file.write("EDITED = True\n")
    assert "left as it is" in run(*port, "--out", "new.py", code=2).stderr
    assert (place / "new.py").read_text().endswith("EDITED = True\n")


@pytest.mark.parametrize("backend", ["chainer", "jax"])
def test_a_port_learns_what_the_class_itself_learns(place, backend):
    """From the start values that the class gives itself, step by step in float64."""
    begins = "        nn.init.constant_(self.head.bias, 3.0)\n"
    begins += "        nn.init.uniform_(self.head.weight, 0.0, 0.1)\n"
    text = MODELS.replace("\n    def forward", f"{begins}\n    def forward", 1)
    (place / "models.py").write_text(text)
    losses = []
    for name in ("torch", backend):
        options = (
            "--backend",
            name,
            "--set",
            "dtype=float64",
            "--no-proof",
            "--seed",
            4,
        )
        run(*TRAIN[:-1], name, *options)
        losses.append(load_result(name).history.losses)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)


def test_seeds_of_a_port_are_one_line_of_the_table(place):
    """Though the source of each lies in its own folder."""
    run(*TRAIN, "--backend", "chainer", "--no-proof", "--seeds", 2)
    shown = run("runs", "run", "--mean").stdout
    assert "network network.py:Net" in shown
    assert "seed=*" in shown


def test_the_lines_that_need_a_hand_are_said_before_a_folder_is_made(place):
    ended = run(
        *TRAIN[:1], "models.py:Drawing", *TRAIN[2:], "--backend", "chainer", code=2
    )
    assert "models.py:22: bernoulli: random numbers belong to layers" in ended.stderr
    assert ended.stderr.count("models.py:22") == 1
    assert not (place / "run").exists()


def test_a_port_without_a_proof_is_recorded_as_such(place):
    run(*TRAIN, "--backend", "chainer", "--no-proof")
    assert (place / "run" / "proof.txt").read_text() == "not proved: --no-proof\n"


def test_a_port_that_differs_is_not_trained_and_leaves_no_folder(place, monkeypatch):
    from deliralike.port.torch_modules import PyTorch

    monkeypatch.setitem(PyTorch.classes, "ReLU", "SiLU")
    shown = run(*TRAIN, "--backend", "chainer", code=2)
    words = "the port of models.py:Net is not proved on chainer, and is not used: DIVERGES at "
    assert words in shown.stderr
    assert not (place / "run").exists()


def test_a_function_of_a_file_is_ported_where_it_is_trained(place):
    network = "models.py:make"
    shown = run(
        *TRAIN[:1], network, *TRAIN[2:], "--backend", "chainer", "--set", "width=3"
    ).stdout
    assert "models.py:make: ported into run/network.py\n" in shown
    assert read_settings("run/settings.toml").network_settings["width"] == 3
    run("train", "--resume", "run", "--epochs", 2)  # data change no default of the port
    assert len(load_result("run").history.epochs) == 2


def test_a_class_is_built_on_another_backend_with_its_own_start_values(place):
    settings = {"width": 3, "input_shape": (1, 8, 8), "seed": 5}
    network = zoo.build("models.py:Net", backend="chainer", **settings)
    assert network.backend.name == "chainer"
    own = zoo.build("models.py:Net", backend="torch", **settings).neutral_state()
    np.testing.assert_equal(network.neutral_state(), own)
    with pytest.raises(
        AnotherBackend, match=r"on chainer: .* or say input_shape=\(3, 64, 64\)"
    ):
        zoo.build("models.py:Net", backend="chainer")


def test_a_class_is_compared_with_its_ports_on_other_backends(place):
    words = (
        "compare",
        "models.py:Net",
        "--backends",
        "chainer,torch",
        "--input",
        "1x8x8",
    )
    shown = run(*words, "--quick").stdout
    assert (
        "Net on torch and Net on chainer agree" in shown
    )  # the class itself is the reference


def test_a_run_of_a_class_predicts_new_samples_on_another_backend(place):
    run(*TRAIN, "--backend", "torch")
    images = np.random.default_rng(3).random((3, 1, 8, 8)).astype(np.float32)
    np.savez(place / "new.npz", inputs=images)
    tables = []
    for backend in ("torch", "chainer", "jax"):
        run("predict", "run", "new.npz", "--backend", backend, "--out", "new.csv")
        rows = (place / "new.csv").read_text().splitlines()[1:]
        tables.append([float(row.split(",")[-1]) for row in rows])
    assert len(tables[0]) == 3
    np.testing.assert_allclose(tables[1:], [tables[0]] * 2, rtol=1e-4)


def test_weights_are_converted_by_the_names_of_a_class(place):
    torch.save(
        zoo.build("models.py:Net", backend="torch").native.state_dict(), "net.pth"
    )
    run("convert", "net.pth", "net.npz", "--model", "models.py:Net", "--to", "chainer")
    assert "features/0/W" in np.load("net.npz").files
