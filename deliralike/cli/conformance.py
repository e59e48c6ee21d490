"""``deliralike conformance``: the suite for a backend."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from deliralike.cli.console import say
from deliralike.cli.options import backend_names


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
    from deliralike import backends as known

    _check_endings(report or ())
    names = backend_names(backends)
    for name in names:
        known.get(name)
    raise typer.Exit(0 if _suite(names, report or ()) else 1)


def _suite(names: list[str], files: Any) -> bool:
    from deliralike.conformance import suite

    reports = [suite.run(name) for name in names]
    for report in reports:
        say(str(report))
    values = [report.as_json() for report in reports]
    _write(files, values, "\n\n".join(map(str, reports)))
    return all(report.passed for report in reports)


def _check_endings(files: Any) -> None:
    """Raise an error about a file's name before all the work, not after it."""
    from deliralike.errors import SettingError

    for path in files:
        if path.suffix not in (".json", ".md"):
            raise SettingError(
                f"--report {str(path)!r}: wanted a file that ends in .json or .md"
            )


def _write(files: Any, values: Any, text: str) -> None:
    for path in files:
        if path.suffix == ".json":
            path.write_text(json.dumps(values, indent=2, default=str) + "\n")
        else:
            path.write_text(text)
