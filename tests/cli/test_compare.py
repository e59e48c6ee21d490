"""``deliralike compare``: proofs by name, exit codes, reports, and what is refused."""

import json
import sys
import time

import pytest
from typer.testing import CliRunner

from deliralike import Network, zoo
from deliralike.cli import app
from deliralike.conformance import comparing
from deliralike.conformance.levels import semantics
from deliralike.zoo import registry

MLP = [
    "mlp",
    "--set",
    "in_features=5",
    "--set",
    "out_features=3",
    "--set",
    "hidden=(7,)",
    "--input",
    "5",
]
TWO = ["--backends", "torch,chainer"]


def run(*arguments, code=0):
    """Run the command in this process, as in a pipe."""
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    if result.exit_code != code:
        raise AssertionError(
            f"exit code {result.exit_code}: {result.output}"
        ) from result.exception
    return result.output


def load(path):
    """A proof that was saved."""
    return json.loads(path.read_text(encoding="utf-8"))


def reported(folder, words, *more):
    """The proof of a command, from its report."""
    path = folder / "a.json"
    run(*more, *words.split(), "--report", path)
    return load(path)


def test_a_right_network_is_proved_and_reported_in_every_form(tmp_path):
    paths = [tmp_path / f"report.{ending}" for ending in ("html", "md", "json", "txt")]
    printed = run(
        *MLP,
        *TWO,
        "--batch",
        4,
        "--seed",
        2,
        *[x for p in paths for x in ("--report", p)],
    )
    assert "on torch" in printed
    assert "on chainer" in printed
    proof = load(tmp_path / "report.json")
    assert proof["verdict"] == "proved"
    assert [level["name"] for level in proof["levels"]] == [
        "L0",
        "L1",
        "L3",
        "L4",
        "L7",
    ]
    assert proof["batch"]["batch[0]"] == "float64 (4, 5)"
    text = (tmp_path / "report.txt").read_text(encoding="utf-8")
    assert text.startswith(f"{proof['headline']}\n")
    assert (
        (tmp_path / "report.html")
        .read_text(encoding="utf-8")
        .lstrip()
        .lower()
        .startswith("<!doctype html")
    )
    assert (tmp_path / "report.md").read_text(encoding="utf-8").startswith("#")


def test_the_time_of_a_report_is_what_a_user_waited_for(tmp_path, monkeypatch):
    build, compare, seconds = zoo.build, comparing.compare, []

    def build_slowly(*arguments, **settings):
        time.sleep(0.2)
        return build(*arguments, **settings)

    def compare_and_record(*arguments, **settings):
        proof = compare(*arguments, **settings)
        seconds.append(proof.seconds)
        return proof

    monkeypatch.setattr(zoo, "build", build_slowly)
    monkeypatch.setattr(comparing, "compare", compare_and_record)
    run(*MLP, *TWO, "--quick", "--report", tmp_path / "r.json")
    assert load(tmp_path / "r.json")["seconds"] > seconds[0] + 0.4


def test_trying_the_network_leaves_its_running_statistics(tmp_path):
    words = "resnet8 --set in_channels=1 --levels L0,L1"
    assert reported(tmp_path, words, *TWO)["verdict"] == "proved"


def test_levels_are_chosen_and_one_backend_is_compared_with_itself(tmp_path):
    proof = reported(tmp_path, "--backends torch --levels L0,L1", *MLP)
    assert (proof["reference"], proof["candidate"]) == ("MLP on torch", "MLP on torch")
    assert {level["name"] for level in proof["levels"]} == {"L0", "L1"}


@pytest.mark.parametrize(
    ("name", "settings", "shape"),
    [
        ("resnet8", {}, "(5, 1, 8, 8)"),  # smaller as it is
        ("squeezenet1_1", {"num_classes": 3}, "(5, 3, 64, 64)"),
        (
            "vit_b_16",
            {
                "image_size": 80,
                "num_layers": 1,
                "hidden_dim": 12,
                "num_heads": 2,
                "mlp_dim": 7,
            },
            "(5, 3, 80, 80)",
        ),
        ("wavenet", {"layers": 2, "stacks": 1, "width": 4, "skip_width": 8}, "(5, 64)"),
        (
            "ddpm_small",
            {"features": (8,), "attention": (False,), "layers": 1, "num_groups": 4},
            "(5, 1, 28, 28)",
        ),
    ],
)
def test_inputs_are_small_where_the_network_takes_them(name, settings, shape, tmp_path):
    given = [
        part for key, value in settings.items() for part in ("--set", f"{key}={value}")
    ]
    proof = reported(tmp_path, "--backends torch --levels L0,L1", name, *given)
    assert proof["batch"]["batch[0]"].endswith(f"64 {shape}")


class WithAuxiliaryScores(Network):
    """In training it gives further scores, in evaluation the scores alone."""

    def __init__(self, classes=3):
        super().__init__()
        self.fc, self.auxiliary = self.nn.Linear(5, classes), self.nn.Linear(5, classes)

    def forward(self, x):
        return (self.fc(x), self.auxiliary(x)) if self.training else self.fc(x)


def test_outputs_in_training_decide_whether_there_are_labels(monkeypatch, tmp_path):
    monkeypatch.setitem(
        registry._architectures, "auxiliary", None
    )  # gone after the test
    zoo.register(WithAuxiliaryScores, name="auxiliary", shape=(5,), dims=(0,))
    proof = reported(tmp_path, "auxiliary --backends torch --levels L0,L1")
    assert proof["verdict"] == "proved"
    assert list(proof["batch"]) == ["batch[0]"]  # labels would stand beside the inputs


def test_a_mistake_diverges(monkeypatch, tmp_path):
    """The candidate's last layer is another one."""
    build = zoo.build

    def mistaken(name, backend, **settings):
        network = build(name, backend=backend, **settings)
        if backend == "chainer":
            state = network.neutral_state()
            last = list(state)[-1]
            network.load_neutral_state(state | {last: state[last] + 0.5})
        return network

    monkeypatch.setattr(zoo, "build", mistaken)
    printed = run(
        *MLP, *TWO, "--levels", "L0,L1", "--report", tmp_path / "a.json", code=1
    )
    assert "DIVERGES" in printed
    assert load(tmp_path / "a.json")["verdict"] == "diverges"


def test_what_could_not_be_decided_has_an_exit_code_of_its_own(monkeypatch):
    monkeypatch.setattr(semantics, "short", lambda *_: "fc gives float32")
    printed = run(*MLP, *TWO, "--levels", "L0,L1", code=2)
    assert "NOT PROVED: MLP on torch and MLP on chainer." in printed
    assert "fc gives float32" in printed


REFERENCE = """
import torch

class Net(torch.nn.Module):
    input_shape = (2, 9, 7)

    def __init__(self, width=5, num_classes=4):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, width, 3, 2, 1)
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x).mean((2, 3)))))
"""
PORT = """
import jax.numpy as jnp
from flax import nnx

class Port(nnx.Module):
    def __init__(self, width, classes, eps):
        rngs = nnx.Rngs(0)
        self.c = nnx.Conv(2, width, (3, 3), 2, padding=1, rngs=rngs)
        self.n = nnx.LayerNorm(width, epsilon=eps, use_fast_variance=False, rngs=rngs)
        self.h = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        return self.h(nnx.relu(self.n(self.c(jnp.moveaxis(x, 1, -1)).mean((1, 2)))))

def port(width=5, classes=4, eps=1e-5):
    return Port(width, classes, eps)
"""


@pytest.fixture
def port(tmp_path, monkeypatch):
    """A network in a file, and its port to another framework in another one."""
    (tmp_path / "reference_net.py").write_text(REFERENCE)
    (tmp_path / "port_net.py").write_text(PORT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "reference_net.py:Net", "port_net.py:port"
    for name in ("reference_net", "port_net"):
        sys.modules.pop(name, None)


def test_a_port_is_compared_with_its_original(port):
    printed = run(
        *port, "--levels", "L0,L1", "--set", "num_classes=3", "--set", "width=6"
    )
    assert (
        "PROVED IN PART: Net on torch and Port on jax agree as far as they were"
        in printed
    )
    headlines = [line for line in printed.splitlines() if line.startswith("PROVED")]
    assert len(headlines) == 2  # the first line and the last
    assert headlines[0].endswith("Not asked for: L4, L7.")  # a pipe has no width
    wrong = run(*port, "--levels", "L0,L1,L3", "--set", "eps=1e-3", code=1)
    assert "DIVERGES at norm (LayerNorm), forward" in wrong
    assert "Explained by eps=0.001 instead of 1e-5" in wrong
    refused = run(*port, "--set", "depth=3", code=2)
    assert (
        "reference_net.py:Net and port_net.py:port: there is no setting 'depth'"
        in refused
    )


#: What is wrong with a command, and what is said of it.
MISTAKES = [
    (["resnet19"], ["resnet19", "Did you mean"]),
    ([*MLP, "--backends", "torch,caffe"], ["caffe"]),
    ([*MLP, *TWO, "--levels", "L0,L9"], ["no level 'L9'", "L7"]),
    ([*MLP, *TWO, "--set", "in_features"], ["--set 'in_features'", "key=value"]),
    ([*MLP, *TWO, "--set", "colour=3"], ["colour"]),
    ([*MLP, *TWO, "--input", "6"], ["ShapeError", "wanted"]),
    ([*MLP, *TWO, "--batch", "0"], ["--batch"]),
    ([*MLP, *TWO, "--levels", "L0", "--report", "a.pdf"], ["a.pdf", ".html"]),
]


def test_bad_input_is_refused_with_exit_code_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = [
        found
        for arguments, words in MISTAKES
        if (found := wrongly_refused(arguments, words))
    ]
    assert not wrong, "\n".join(wrong)


def wrongly_refused(arguments, words):
    result = CliRunner().invoke(app, ["compare", *arguments], env={"COLUMNS": "200"})
    flat = " ".join(result.output.split())
    refused = (
        result.exit_code == 2
        and all(word in flat for word in words)
        and "Traceback" not in flat
    )
    return "" if refused else f"{arguments}: {result!r} {result.output}"


def test_a_report_that_cannot_be_written_is_refused_before_the_work(monkeypatch):
    monkeypatch.setattr(comparing, "compare", None)
    assert "a report cannot be written to 'a.pdf'" in run(
        *MLP, *TWO, "--report", "a.html", "--report", "a.pdf", code=2
    )


def test_a_network_without_labels_is_compared_by_a_distance(tmp_path):
    """A variational autoencoder gives a tuple."""
    proof = reported(tmp_path, "vae --backends torch --levels L1 --batch 2")
    assert proof["verdict"] == "proved"
