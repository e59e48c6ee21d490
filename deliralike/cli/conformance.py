"""``deliralike conformance``: the suite for a backend, and the score of the proof."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    backends: Annotated[
        str | None,
        typer.Argument(
            metavar="[BACKENDS]", help="Such as torch,jax. (default: all that are installed)"
        ),
    ] = None,
    score: Annotated[
        bool,
        typer.Option(
            "--score", help="Plant mistakes, and count those detected, located and explained."
        ),
    ] = False,
    everywhere: Annotated[
        bool,
        typer.Option(
            "--everywhere", help="With --score: each mistake on each backend, not on one in turn."
        ),
    ] = False,
    groups: Annotated[
        str | None, typer.Option(help="With --score: groups of mistakes, such as losses,wiring.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="With --score: seeds of each right network.", min=0)
    ] = 10,
    processes: Annotated[int, typer.Option(help="With --score: how many at once.", min=0)] = 2,
    report: Annotated[
        list[Path] | None,
        typer.Option(help="A file for the report: .json or .md; may be given again."),
    ] = None,
) -> None:
    """Run the conformance suite on backends, or score the proof.

    The exit code is 0 when everything passes, 1 when something does not, 2 when the input is wrong.
    """
    from deliralike import backends as known

    _check_endings(report or ())
    names = backends.split(",") if backends else known.available()
    for name in names:
        known.get(name)
    if score:
        passed = _score(names, groups, seeds, processes, everywhere, report or ())
    else:
        passed = _suite(names, report or ())
    raise typer.Exit(0 if passed else 1)


def _suite(names: list[str], files: Any) -> bool:
    from deliralike.cli.console import say
    from deliralike.conformance import suite

    reports = [suite.run(name) for name in names]
    for report in reports:
        say(str(report))
    values = [report.as_json() for report in reports]
    _write(files, values, "\n\n".join(map(str, reports)))
    return all(report.passed for report in reports)


def _score(
    names: list[str], groups: str | None, seeds: int, processes: int, everywhere: bool, files: Any
) -> bool:
    from deliralike.cli.console import say, show_table
    from deliralike.conformance.score import GROUPS, score
    from deliralike.errors import SettingError, suggestion

    selected = tuple(groups.split(",")) if groups else GROUPS
    for group in selected:
        if group not in GROUPS:
            raise SettingError(
                f"--groups: there is no group {group!r}. {suggestion(group, GROUPS)}"
            )
    result = score(names, selected, seeds, processes, everywhere)
    head, _, *rows = map(_cells, result.table().splitlines())
    columns = [cell.replace("`", "") for cell in head]
    show_table(columns, rows, right=head[1:])
    summary = (
        f"{len(result.false_alarms)} false alarms on {len(result.right)} right candidates; "
        f"{result.seconds:.0f} s with {max(processes, 1)} processes"
    )
    say(summary)
    for verdict in (*result.false_alarms, *result.missed()):
        task = verdict.task
        where = f"{task.name} ({task.backend or 'NumPy'})"
        say(f"  {_failure(verdict)}: {where}. {verdict.said[:200]}")
    _write(files, result.to_dict(), f"{result.table()}\n\n{summary}.\n")
    return result.passed


def _cells(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def _failure(verdict: Any) -> str:
    if verdict.task.group == "right":
        return "false alarm"
    wanted = ("detected", "located", "explained")
    missing = [word for word in wanted if not getattr(verdict, word)]
    return f"not {' or '.join(missing)}"


def _check_endings(files: Any) -> None:
    """Raise an error about a file's name before all the work, not after it."""
    from deliralike.errors import SettingError

    for path in files:
        if path.suffix not in (".json", ".md"):
            raise SettingError(f"--report {str(path)!r}: wanted a file that ends in .json or .md")


def _write(files: Any, values: Any, text: str) -> None:
    for path in files:
        if path.suffix == ".json":
            path.write_text(json.dumps(values, indent=2, default=str) + "\n")
        else:
            path.write_text(text)
