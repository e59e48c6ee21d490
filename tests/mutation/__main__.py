"""What the suite is worth: ``python -m tests.mutation sample``, ``reach``, ``run``, ``report``.

`sample` draws mutants of the package (again with ``--add`` for more), `reach` runs the suite once
and notes which tests reach which mutant, `run` runs these on each until one fails, `report` says
which mutants were killed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any

KILLED, SURVIVED, UNREACHED = "killed", "survived", "reached by no test"
COLUMNS = ("mutants", KILLED, SURVIVED, UNREACHED)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__
    )
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="of the project")
    parser.add_argument("--package", default="deliralike")
    parser.add_argument("--folder", type=Path, default=Path("build/mutation"))
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("sample", help="draw mutants")
    drawing.set_defaults(run=_sample)
    drawing.add_argument("--count", type=int, default=300)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument("--add", action="store_true", help="to those drawn before")
    drawing.add_argument("--only", default="", help="files that match an expression")
    reaching = commands.add_parser("reach", help="which tests reach which mutant")
    reaching.set_defaults(run=_reach)
    reaching.add_argument("arguments", nargs="*", help="for pytest")
    running = commands.add_parser("run", help="the tests on each; goes on when stopped")
    running.set_defaults(run=_run)
    running.add_argument("--budget", type=float, default=90.0, help="seconds a mutant")
    running.add_argument("--patience", type=float, default=30.0, help="seconds a test")
    running.add_argument("--workers", type=int, default=2)
    commands.add_parser("report", help="print the table").set_defaults(run=_report)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    arguments.mutants = arguments.folder / "mutants.jsonl"
    arguments.records = arguments.folder / "records"
    arguments.results = arguments.folder / "results.jsonl"
    arguments.run(arguments)
    return 0


def _sample(arguments: argparse.Namespace) -> None:
    from tests.mutation.sampling import sample

    root, package, seed = arguments.root, arguments.package, arguments.seed
    drawn = _read(arguments.mutants) if arguments.add else []
    for mutant in sample(root, package, arguments.count, seed, arguments.only):
        if mutant not in drawn:
            drawn.append(mutant)
    arguments.mutants.write_text("".join(json.dumps(mutant) + "\n" for mutant in drawn))
    print(f"{len(drawn)} mutants in {arguments.mutants}")


def _reach(arguments: argparse.Namespace) -> None:
    from tests.mutation.reach import RECORDS, mark
    from tests.mutation.runs import Copy

    shutil.rmtree(arguments.records, ignore_errors=True)
    arguments.records.mkdir()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Copy(arguments.root, Path(folder))
        mark(copy.folder, arguments.package, _read(arguments.mutants))
        environment = {**os.environ, "PYTHONPATH": str(copy.folder)}
        environment[RECORDS] = str(arguments.records.resolve())
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation_costs"]
        subprocess.run(
            [*command, *arguments.arguments], cwd=copy.folder, env=environment
        )


def _run(arguments: argparse.Namespace) -> None:
    from tests.mutation.reach import Planner

    for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    os.environ["MPLBACKEND"] = "Agg"
    planner = Planner(arguments.records)
    for row in _judged_mutants(planner, arguments):
        with arguments.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        where = f"{row['file']}:{row['line']} {row['cost']} s: {row['result']}"
        print(where, row.get("test", ""), flush=True)


def _judged_mutants(
    planner: Any, arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The mutants without a result yet, each with one, several judged at a time."""
    from tests.mutation.runs import Copy

    mutants = _read(arguments.mutants)
    done = [row["number"] for row in _read(arguments.results)]
    todo = [number for number in range(len(mutants)) if number not in done]
    copies: SimpleQueue[Copy] = SimpleQueue()

    def judge(number: int) -> dict[str, Any]:
        copy = copies.get()
        try:
            return _judge(number, mutants[number], planner, copy, arguments)
        finally:
            copies.put(copy)

    with (
        tempfile.TemporaryDirectory(prefix="mutation-") as folder,
        ThreadPoolExecutor(arguments.workers) as pool,
    ):
        for worker in range(arguments.workers):
            copies.put(Copy(arguments.root, Path(folder) / str(worker)))
        yield from pool.map(judge, todo)


def _judge(
    number: int,
    mutant: dict[str, Any],
    planner: Any,
    copy: Any,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """A mutant with what became of it; tests that fail without it say nothing."""
    from tests.mutation.sampling import mutated

    file = mutant["file"]
    code = (arguments.root / file).read_text()
    changed = mutated(code, mutant["operator"], mutant["occurrence"])
    seconds = 0.0
    while True:
        tests, reached = planner.plan(number, file)
        costs = accumulate(test.cost for test in tests)
        count = sum(cost <= arguments.budget for cost in costs) or 1
        copy.change(file, changed)
        found = copy.run(tests[:count], arguments.patience)
        copy.restore(file)
        seconds += found.seconds
        killers = [test for test in tests if test.name == found.test]
        if not killers or not copy.run(killers, arguments.patience).how:
            break
        planner.leave_out(found.test)
    row = {**mutant, "number": number, "reached": reached, "tests": len(tests)}
    row |= {"ran": found.ran, "cost": round(seconds, 1)}
    if found.how:
        return row | {"result": KILLED, "test": found.test, "how": found.how}
    return row | {"result": SURVIVED if tests else UNREACHED}


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _report(arguments: argparse.Namespace) -> None:
    rows = _read(arguments.results)
    counts: dict[str, Counter] = {}
    for row in rows:
        for name in (_folder(row["file"]), "**all**"):
            counts.setdefault(name, Counter()).update([row["result"], "mutants"])
    print(f"| folder | {' | '.join(COLUMNS)} |")
    print(f"| :-- |{' --: |' * len(COLUMNS)}")
    for name, count in sorted(counts.items()):
        print(f"| {name} | {' | '.join(str(count[column]) for column in COLUMNS)} |")
    print(f"\n{sum(row['cost'] for row in rows) / 60:.1f} minutes")
    for title in (SURVIVED, UNREACHED):
        print(f"\n{title.capitalize()}:")
        for row in rows:
            if row["result"] == title:
                place = f"{row['file']}:{row['line']}"
                change = f"`{row['before']}` -> `{row['after']}`"
                ran = f"{row['ran']} of {row['tests']} tests run, {row['reached']} reach it"
                print(f"- {place} {change}: {ran}")


def _folder(file: str) -> str:
    parts = file.split("/")
    return f"{parts[0]}/*.py" if len(parts) == 2 else parts[1]


if __name__ == "__main__":
    sys.exit(main())
