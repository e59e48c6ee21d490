"""``deliralike zoo``: the list without running any network, and details of those with unusual
inputs and outputs."""

import re
import sys

import pytest
from typer.testing import CliRunner

from deliralike import zoo
from deliralike.cli import app
from deliralike.zoo import registry, summary


def printed(*arguments):
    """The lines of a table, cells separated by two spaces or more."""
    result = CliRunner().invoke(app, ["zoo", *arguments], env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    return [
        re.split(r"\s{2,}", line.strip()) for line in result.stdout.splitlines() if line.strip()
    ]


def test_the_list_runs_builds_and_imports_no_network(monkeypatch):
    for name in (registry.find, summary.outline, summary.described):
        monkeypatch.setattr(sys.modules[name.__module__], name.__name__, None)
    assert set(zoo.list()) < {row[0] for row in printed()}


def test_the_list_shows_inputs_of_every_kind():
    rows = {row[0]: row for row in printed()}
    assert rows["mlp"][1] == "109,386"  # counted
    assert rows["resnet18"] == [
        "resnet18",
        "11,689,512",
        "3 x 224 x 224",
        "1, 2, 3",
        "classification",
    ]
    assert rows["gpt2"] == ["gpt2", "124,439,808", "1024 (0 to 50256)", "1", "language modelling"]
    assert rows["ddpm_cifar10"][2] == "3 x 32 x 32, scalar (0 to 999)"


def test_a_pattern_lists_what_it_matches():
    assert [row[0] for row in printed("gpt2_*")[2:-1]] == ["gpt2_medium", "gpt2_large", "gpt2_xl"]


@pytest.mark.parametrize(
    ("arguments", "inputs", "output"),
    [
        (["lenet"], {"(input)": "1 x 28 x 28"}, "10"),
        (
            ["gpt2", "--set", "n_layer=1", "--input", "7"],
            {"(input)": "7 (0 to 50256)"},
            "7 x 50257",
        ),
        (
            ["bert_tiny"],
            {"(input)": "512 (0 to 30521)"},
            "last_hidden_state: 512 x 128, pooler_output: 128",
        ),
        (
            ["ddpm_small", "--input", "1x32x32"],
            {"(input 0)": "1 x 32 x 32", "(input 1)": "scalar (0 to 999)"},
            "1 x 32 x 32",
        ),
        (["vae", "--input", "784"], {"(input 0)": "784", "(input 1)": "20"}, "784, 20, 20"),
    ],
)
def test_inputs_and_outputs_of_every_kind_are_shown(arguments, inputs, output):
    rows = {row[0]: row[1:] for row in printed(*arguments)}
    assert {name: row for name, row in rows.items() if "(input" in name} == {
        n: [size] for n, size in inputs.items()
    }
    assert rows["(output)"] == [output]


def test_states_of_recurrent_layers_are_shown_beside_their_outputs():
    rows = {row[0]: row[1:] for row in printed("lstm_classifier")}
    assert rows["rnn"][:2] == ["LSTM", "256 x 256, 1 x 256, 1 x 256"]
