"""The directive ``command-line``: what ``--help`` says, for every subcommand, when the pages are
built."""

import typer
from sphinx.util.docutils import SphinxDirective
from typer.testing import CliRunner

from deliralike.cli import app

# Plain text, as wide as a page.
TERMINAL = {
    "COLUMNS": "96",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "_TYPER_FORCE_DISABLE_TERMINAL": "1",
}


class CommandLine(SphinxDirective):
    """One section for each subcommand, and for each of a group of them."""

    def run(self):
        group = typer.main.get_command(app)
        lines = _section("deliralike", [])
        for name in group.list_commands(None):
            lines += _section(f"deliralike {name}", [name])
            for part in getattr(group.commands[name], "commands", ()):
                lines += _section(f"deliralike {name} {part}", [name, part])
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _section(title, words):
    printed = (
        CliRunner()
        .invoke(app, [*words, "--help"], env=TERMINAL, prog_name="deliralike")
        .output
    )
    text = [f"   {line}".rstrip() for line in printed.strip("\n").splitlines()]
    return [title, "-" * len(title), "", ".. code-block:: text", "", *text, ""]


def setup(app):
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
