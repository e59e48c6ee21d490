"""No snippet rots: every block of Python in the pages runs, and prints what the page says that it
prints."""

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
import types

import pytest
import typer

import deliralike
from deliralike import cli
from deliralike.errors import DeliralikeError
from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS
from deliralike.training.metrics.named import METRICS
from examples import demo
from tests.docs.pages import PAGES, ROOT, blocks, commands, examples

WITH_PYTHON = [page for page in PAGES if examples(page)]
AS_DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(page):
    return str(page.relative_to(ROOT))


def run(block, page, module):
    """What a block prints; an error raised on purpose is printed as its name and message."""
    code = compile("\n" * block.line + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(code, vars(module))
        except DeliralikeError as error:
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


@pytest.fixture
def module(monkeypatch, tmp_path, restored_zoo):
    """An empty module, in a folder of its own, where classes that a page defines can be found by
    pickle."""
    module = types.ModuleType("page_of_the_documentation")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    return module


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_examples_of_a_page_run_in_order_and_print_what_it_says(page, module):
    for block, expected in examples(page):
        printed = run(block, page, module)
        same = doctest.OutputChecker().check_output(expected or "", printed, AS_DOCTEST)
        assert same, (
            f"{name_of(page)}, line {block.line + 1}: expected\n{expected}\nbut got\n{printed}"
        )


def test_every_command_in_the_pages_can_be_parsed():
    typed = sorted({command for page in PAGES for command in commands(page)})
    assert len(typed) > 30
    problems = [problem for command in typed if (problem := not_parsed(command))]
    assert not problems, "\n".join(problems)


def not_parsed(command):
    """What is wrong with a command, if anything."""
    _, subcommand, *words = shlex.split(command)
    found = typer.main.get_command(cli.app).get_command(None, subcommand)
    if found is None:
        return f"{command}: there is no subcommand {subcommand!r}"
    if words and words[0] in getattr(found, "commands", ()):
        found, words = found.commands[words[0]], words[1:]
    try:
        found.make_context(subcommand, words)
    except typer.TyperException as error:
        return f"{command}: {error}"
    return ""


def test_the_blocks_of_the_pages_say_what_language_they_are_in():
    known = {"python", "text", "console", "bash", "toml", "ini", "yaml"}
    found = {
        (name_of(page), block.language) for page in PAGES for block in blocks(page)
    }
    assert [
        (page, language)
        for page, language in found
        if not language.startswith("{") and language not in known
    ] == []


def test_the_pages_name_no_folder_of_a_machine():
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    folders = ("/home/", "/Users/", "/tmp/", str(ROOT), os.path.expanduser("~/"))
    assert [
        (name, folder)
        for name, text in texts.items()
        for folder in folders
        if folder in text
    ] == []


def described():
    pages = [ROOT / "docs/reference/layers.md", ROOT / "docs/reference/functions.md"]
    texts = [
        block.text
        for page in pages
        for block in blocks(page)
        if block.language == "{eval-rst}"
    ]
    return {word for text in texts for word in text.replace("/", " ").split()}


def test_the_reference_describes_every_layer():
    assert sorted(set(LAYERS) - described()) == []


def test_the_reference_describes_every_function():
    names = [name for name in dir(Functions) if callable(getattr(Functions, name))]
    functions = {
        re.sub("[123]d$", "", name) for name in names if not name.startswith("_")
    }
    assert sorted(functions - described()) == []


def test_a_page_names_every_metric_and_loss():
    page = (ROOT / "docs/howto/metrics_and_losses.md").read_text("utf-8")
    losses = []
    for name in dir(Functions):
        module = getattr(getattr(Functions, name), "__module__", "") or ""
        if module.endswith(("losses", "ctc")) and not name.startswith("_"):
            losses.append(name)
    assert len(losses) > 30
    assert [name for name in [*METRICS, *losses] if f"`{name}`" not in page] == []


def test_one_version_stands_everywhere():
    version = deliralike.__version__
    texts = {
        name: (ROOT / name).read_text("utf-8")
        for name in ("README.md", "docs/index.md", "docs/install.md", "CITATION.cff")
    }
    assert [name for name, text in texts.items() if version not in text] == []
    newest = re.search(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert newest[1] in (version, "Unreleased")


def test_the_readme_shows_the_columns_that_the_demo_prints():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = next(
        block.text
        for block in blocks(ROOT / "README.md")
        if "held-out accuracy" in block.text
    )
    assert [
        column for column in demo.COLUMNS if column not in printed.splitlines()[0]
    ] == []
    assert "docs/_static/demo.png" in readme
