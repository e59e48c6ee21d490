"""Run the score: ``python -m tests.score [--port jax,chainer] [--only NAME] [--workers 2]
[--mutants 200] [--seed 0] [--limit SECONDS] [--save FILE.md] [--save FILE.json]``.

With a number of mutants there are only those: so many are drawn, of the rules and classes whose
name has NAME, torch against a port (torch where none is given); other ports have our classes as
they are beside them. Without, the ports by hand are judged.

What was judged is saved after each case. The exit code is 0 where the goals are reached, 1 where
they are not, 2 where there is no such case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from deliralike.cli.console import say, show_table
from tests.score.mutants import Mutation, as_they_are, draw
from tests.score.pool import LIMIT, run_all
from tests.score.ports import BACKENDS, Task, tasks
from tests.score.report import COLUMNS, LEVELS, Result, Score, result


def main(words: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(words)
    chosen = list(_drawn(given) if given.mutants else _by_hand(given.port, given.only))
    if not chosen:
        print("score: there is no such case", file=sys.stderr)
        return 2
    start = time.perf_counter()
    results: list[Result] = []
    try:
        for one in _results(chosen, given.workers, given.limit):
            results.append(one)
            score = Score(results, time.perf_counter() - start)
            for path in given.save:
                path.write_text(_text(score, path))
    except KeyboardInterrupt:
        say(f"stopped after {len(results)} of {len(chosen)}")
    score = Score(results, time.perf_counter() - start)
    _print(score)
    return 0 if score.passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.score")
    parser.add_argument("--port", default="", help="ports, such as jax,chainer")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--mutants", type=int, default=0, help="how many to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a case")
    parser.add_argument(
        "--save", type=Path, action="append", default=[], help=".json or .md"
    )
    return parser


def _by_hand(port: str, only: str) -> Iterator[Task]:
    """The ports by hand that were asked for.

    Raises:
        SystemExit: There are none to such a backend.
    """
    for name in port.split(",") if port else BACKENDS:
        if name not in BACKENDS:
            print(
                f"score: no ports to {name!r}; there are {', '.join(BACKENDS)}",
                file=sys.stderr,
            )
            raise SystemExit(2)
        yield from (task for task in tasks(name) if only.lower() in task.name.lower())


def _drawn(given: argparse.Namespace) -> Iterator[Mutation]:
    for port in (given.port or "torch").split(","):
        yield from draw(given.mutants, given.seed, port, given.only)
        if port != "torch":
            yield from as_they_are(port, given.only)


def _results(chosen: Sequence[Any], workers: int, limit: float) -> Iterator[Result]:
    """Each case, judged, with a bar of progress on a terminal and a line for each miss."""
    text, count = TextColumn("{task.description}"), MofNCompleteColumn()
    left = TimeRemainingColumn()
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    with Progress(
        BarColumn(), count, left, text, console=console, transient=True
    ) as progress:
        bar = progress.add_task("score", total=len(chosen))
        for task, case, found in run_all(chosen, workers, limit):
            one = result(task, case, found)
            yield one
            if one.misses:
                console.print(
                    f"{task.name}: {', '.join(one.misses)} ({found.seconds:.0f} s)"
                )
            progress.update(bar, advance=1, description=task.name[:60])


def _print(score: Score) -> None:
    for one in score.misses():
        say(f"{one.task.name}: {', '.join(one.misses)}\n    {one.said.headline}")
    show_table(COLUMNS, score.rows(), right=COLUMNS[1:])
    show_table(LEVELS, score.levels(), right=LEVELS[1:])
    for name, part, whole in score.shares():
        share = f"{100 * part / whole:.1f} %" if whole else ""
        say(f"{name}: {part} of {whole}  {share}")
    say(score.summary())


def _text(score: Score, path: Path) -> str:
    if path.suffix == ".json":
        return json.dumps(score.to_dict(), indent=2, ensure_ascii=False) + "\n"
    return score.markdown()


if __name__ == "__main__":
    sys.exit(main())
