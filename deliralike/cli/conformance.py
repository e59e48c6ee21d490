"""``deliralike conformance``: the suite for a backend, and the score of the proof."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    backends: Annotated[
        str | None, typer.Argument(metavar="[BACKENDS]", help="Such as torch,jax. (default: all that are installed)")
    ] = None,
    score: Annotated[
        bool, typer.Option("--score", help="Plant mistakes, and count those detected, located and explained.")
    ] = False,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="With --score: each mistake on each backend, not on one in turn.")
    ] = False,
    groups: Annotated[str | None, typer.Option(help="With --score: groups of mistakes, such as losses,wiring.")] = None,
    seeds: Annotated[int, typer.Option(help="With --score: seeds of each right network.", min=0)] = 10,
    processes: Annotated[int, typer.Option(help="With --score: how many at once.", min=0)] = 2,
    report: Annotated[
        list[Path] | None, typer.Option(help="A file for the report: .json or .md; may be given again.")
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
    ok = _score(names, groups, seeds, processes, everywhere, report or ()) if score else _suite(names, report or ())
    raise typer.Exit(0 if ok else 1)


def _suite(names: list[str], files: Any) -> bool:
    from deliralike.cli.console import say
    from deliralike.conformance import suite

    reports = [suite.run(name) for name in names]
    for one in reports:
        say(str(one))
    _write(files, [one.as_json() for one in reports], "\n\n".join(map(str, reports)))
    return all(one.passed for one in reports)


def _score(names: list[str], groups: str | None, seeds: int, processes: int, everywhere: bool, files: Any) -> bool:
    from deliralike.cli.console import say, show_table
    from deliralike.conformance.score import GROUPS, score
    from deliralike.errors import SettingError, suggestion

    chosen = tuple(groups.split(",")) if groups else GROUPS
    if unknown := [group for group in chosen if group not in GROUPS]:
        raise SettingError(f"--groups: there is no group {unknown[0]!r}. {suggestion(unknown[0], GROUPS)}")
    found = score(names, chosen, seeds, processes, everywhere)
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in found.table().splitlines())
    show_table([cell.replace("`", "") for cell in head], rows[1:], right=head[1:])
    summary = (f"{len(found.false_alarms)} false alarms on {len(found.right)} right candidates; "
               f"{found.seconds:.0f} s with {max(processes, 1)} processes")  # fmt: skip
    say(summary)
    for verdict in (*found.false_alarms, *found.missed()):
        missing = [word for word in ("detected", "located", "explained") if not getattr(verdict, word)]
        words = "false alarm" if verdict.task.group == "right" else f"not {' or '.join(missing)}"
        say(f"  {words}: {verdict.task.name} ({verdict.task.backend or 'NumPy'}). {verdict.said[:200]}")
    _write(files, found.to_dict(), f"{found.table()}\n\n{summary}.\n")
    return found.passed


def _check_endings(files: Any) -> None:
    """An error about a file before all the work, not after it."""
    from deliralike.errors import SettingError

    for path in files:
        if path.suffix not in (".json", ".md"):
            raise SettingError(f"--report {str(path)!r}: wanted a file that ends in .json or .md")


def _write(files: Any, values: Any, text: str) -> None:
    for path in files:
        path.write_text(json.dumps(values, indent=2, default=str) + "\n" if path.suffix == ".json" else text)
