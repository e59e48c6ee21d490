"""``deliralike zoo``: the list without running any network, and the outline of one."""

import re
import sys

from typer.testing import CliRunner

from deliralike import zoo
from deliralike.cli import app
from deliralike.zoo import registry, summary


def printed(*arguments):
    """The lines of a table, cells separated by two spaces or more."""
    result = CliRunner().invoke(app, ["zoo", *arguments], env={"COLUMNS": "250"})
    assert result.exit_code == 0, result.output
    return [
        re.split(r"\s{2,}", line.strip())
        for line in result.stdout.splitlines()
        if line.strip()
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
        "3x224x224",
        "classification",
    ]
    assert rows["gpt2"] == [
        "gpt2",
        "124,439,808",
        "1024 (0 to 50256)",
        "language modelling",
    ]
    assert rows["ddpm_cifar10"][2] == "3x32x32, scalar (0 to 999)"


def test_a_pattern_lists_what_it_matches():
    assert [row[0] for row in printed("gpt2_*")[2:-1]] == [
        "gpt2_medium",
        "gpt2_large",
        "gpt2_xl",
    ]


def test_one_network_is_shown_with_its_settings_and_its_outline(monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    rows = printed("gpt2", "--set", "n_layer=1", "--input", "7")
    assert ["n_layer", "1"] in rows
    lines = [
        re.split(r"\s{2,}", line.strip())
        for line in str(zoo.outline("gpt2", (7,), n_layer=1)).splitlines()
    ]
    assert len(lines) > 10
    assert rows[-len(lines) :] == lines


def called(*arguments, code=0, columns=80):
    """What a subcommand gives in a terminal of so many columns."""
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": str(columns)})
    assert result.exit_code == code, result.output
    return result


def test_names_and_numbers_stay_in_one_piece_in_a_terminal_of_80_columns():
    lines = called("zoo").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert set(zoo.list()) < {line.split()[0] for line in lines if line.strip()}
    lines = called("zoo", "resnet18", "--weights").stdout.splitlines()
    assert max(map(len, lines[1:-1])) <= 80
    assert any(line.split()[:2] == ["torchvision/IMAGENET1K_V1", "*"] for line in lines)
    several = called("zoo", "resnet1*", "--weights").stdout.splitlines()
    assert len(several) < 4 * len(zoo.weights("resnet1*"))


def test_a_pattern_that_matches_nothing_is_an_error():
    result = called("zoo", "nosuch*", code=2)
    assert "no network of the zoo matches 'nosuch*'" in result.stderr


def test_the_help_shows_no_type_at_options_without_a_value_and_sentences_in_one_piece():
    text = called("compare", "--help", columns=120).stdout
    assert "<bool>" not in text
    assert "2 when the input is wrong or nothing could be decided." in text


def test_a_table_in_a_pipe_has_a_line_for_each_row():
    result = CliRunner().invoke(app, ["zoo", "resnet18", "--weights"])
    lines = result.stdout.splitlines()
    rule = next(number for number, line in enumerate(lines) if "───" in line)
    first_words = [line.split()[0] for line in lines[rule + 1 :] if line.strip()]
    assert first_words[:-1] == list(zoo.weights("resnet18").names)
