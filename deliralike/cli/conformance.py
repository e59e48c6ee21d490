"""``deliralike conformance``: the suite for a backend."""

import json
from pathlib import Path
from typing import Annotated

import typer

from deliralike.cli.console import say
from deliralike.cli.options import loaded_backends
from deliralike.errors import SettingError


def command(
    backends: Annotated[
        str | None,
        typer.Argument(
            metavar="[BACKENDS]",
            help="Such as torch,jax. (default: all that are installed)",
        ),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(help="A file for the report: .json or .md; may be given again."),
    ] = None,
) -> None:
    """Run the conformance suite on backends.

    The exit code is 0 when everything passes, 1 when something does not, 2 when the input is wrong.
    """
    from deliralike.conformance import suite

    files = report or []
    for path in files:  # before all the work, not after it
        if path.suffix not in (".json", ".md"):
            raise SettingError(
                f"--report {str(path)!r}: wanted a file that ends in .json or .md"
            )
    reports = [suite.run(name) for name in loaded_backends(backends)]
    values = [each.as_json() for each in reports]
    texts = {
        ".json": json.dumps(values, indent=2, default=str) + "\n",
        ".md": "\n\n".join(map(str, reports)),
    }
    say(texts[".md"])
    for path in files:
        path.write_text(texts[path.suffix])
    raise typer.Exit(0 if all(each.passed for each in reports) else 1)
