"""What the suite is worth: ``python -m tests.mutation sample``, ``reach``, ``run``, ``report``.

`sample` draws mutants of the package (again with ``--add`` for more), `reach` runs the suite once
and notes which tests reach which mutant, `run` runs these on each until one fails, `report` says
which mutants were killed.
"""

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path("build/mutation")
#: What is imported once and kept for all mutants, with everything that it imports but the package
#: and the tests. No module of the package that registers a type where it stays, as optree does.
PRELOADED = (
    "tests.conftest",
    "torch.utils.data",
    "jax.experimental.shard_map",
    "flax.nnx",
    "optax",
    "deliralike.backends.chainer",
    "hypothesis",
    "hypothesis.extra.numpy",
    "scipy.stats",
    "sklearn.metrics",
    "PIL.Image",
    "typer.testing",
)
#: Imported libraries whose import a file of the package has a say in.
SHAPED = {"deliralike/backends/chainer_bridge.py": ("chainer", "chainermn")}
PART = ("file", "line", "column", "operator", "occurrence")
KILLED, SURVIVED, UNREACHED = "killed", "survived", "reached by no test"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__
    )
    parser.add_argument(
        "--root", type=Path, default=Path.cwd(), help="the folder of the project"
    )
    parser.add_argument("--package", default="deliralike")
    parser.add_argument("--mutants", type=Path, default=FOLDER / "mutants.jsonl")
    parser.add_argument("--records", type=Path, default=FOLDER / "records")
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("sample", help="draw mutants")
    drawing.add_argument("--count", type=int, default=300)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument(
        "--add", action="store_true", help="to those that were drawn before"
    )
    drawing.add_argument(
        "--only", default="", help="in files whose path matches this expression"
    )
    reaching = commands.add_parser(
        "reach", help="run the suite once, which tests reach which"
    )
    reaching.add_argument("arguments", nargs="*", help="for pytest")
    running = commands.add_parser(
        "run", help="run the tests on each; goes on where it was stopped"
    )
    running.add_argument(
        "--budget",
        type=float,
        default=90.0,
        help="seconds of the processor for a mutant",
    )
    running.add_argument(
        "--patience", type=float, default=30.0, help="seconds that any test may take"
    )
    running.add_argument("--workers", type=int, default=2)
    running.add_argument("--preload", nargs="*", default=PRELOADED)
    commands.add_parser("report", help="print the table")
    arguments = parser.parse_args()
    commands = {"sample": _sample, "reach": _reach, "run": _run, "report": _report}
    return commands[arguments.command](arguments)


def _sample(arguments: argparse.Namespace) -> int:
    from tests.mutation.sampling import sample

    drawn = sample(
        arguments.root,
        arguments.package,
        arguments.count,
        arguments.seed,
        arguments.only,
    )
    before = _read(arguments.mutants) if arguments.add else []
    drawn = before + [mutant for mutant in drawn if mutant not in before]
    arguments.mutants.parent.mkdir(parents=True, exist_ok=True)
    arguments.mutants.write_text("".join(json.dumps(mutant) + "\n" for mutant in drawn))
    print(f"{len(drawn)} mutants in {arguments.mutants}")
    return 0


def _reach(arguments: argparse.Namespace) -> int:
    from tests.mutation.forks import Copy
    from tests.mutation.reach import RECORDS, mark

    shutil.rmtree(arguments.records, ignore_errors=True)
    arguments.records.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Copy(arguments.root, Path(folder) / "marked")
        mark(copy.folder, arguments.package, _read(arguments.mutants))
        environment = {**os.environ, "PYTHONPATH": str(copy.folder)}
        environment[RECORDS] = str(arguments.records.resolve())
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation_costs"]
        subprocess.run(
            [*command, *arguments.arguments], cwd=copy.folder, env=environment
        )
    return 0


def _run(arguments: argparse.Namespace) -> int:
    for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    os.environ["MPLBACKEND"] = "Agg"
    from tests.mutation import forks
    from tests.mutation.reach import Planner

    for name in arguments.preload:
        importlib.import_module(name)
    mutants = _read(arguments.mutants)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copies = [
            forks.Copy(arguments.root, Path(folder) / str(number))
            for number in range(arguments.workers)
        ]
        tests = forks.collected(copies[0])
        planner = Planner(arguments.records, tests)
        while todo := _todo(mutants, arguments.results):
            for job in forks.finished(_jobs(todo, planner, arguments), copies):
                _append(arguments.results, _result(job))
                _say(job)
            for job in forks.finished(_controls(planner, arguments), copies):
                for test in job.tests:
                    _append(
                        arguments.results,
                        {"control": test.name, "passes": test.name not in job.failed},
                    )
    return 0


def _jobs(
    todo: list[dict[str, Any]], planner: Any, arguments: argparse.Namespace
) -> Iterator[Any]:
    """The mutants as jobs; those that no test reaches are written at once."""
    from tests.mutation.forks import Job
    from tests.mutation.sampling import mutated

    for row in _controlled(arguments.results):
        if not row["passes"]:
            planner.tests.discard(row["control"])
    numbers = {
        _key(mutant): number for number, mutant in enumerate(_read(arguments.mutants))
    }
    for mutant in todo:
        tests, reached = planner.plan(numbers[_key(mutant)], mutant["file"])
        tests = [test for test in tests if test.cost <= arguments.budget] or tests[:1]
        if not tests:
            _append(
                arguments.results,
                {
                    **mutant,
                    "result": UNREACHED,
                    "reached": 0,
                    "tests": 0,
                    "ran": 0,
                    "cost": 0,
                },
            )
            continue
        code = mutated(
            (arguments.root / mutant["file"]).read_text(),
            mutant["operator"],
            mutant["occurrence"],
        )
        forget = (arguments.package, *SHAPED.get(mutant["file"], ()))
        yield Job(
            (mutant, reached),
            tests,
            arguments.budget,
            arguments.patience,
            change={mutant["file"]: code},
            forget=forget,
        )


def _controls(planner: Any, arguments: argparse.Namespace) -> Iterator[Any]:
    """The tests that killed, on the package as it is: those that fail there too say nothing."""
    from tests.mutation.forks import Job

    known = {row["control"] for row in _controlled(arguments.results)}
    killers = dict.fromkeys(
        row["test"] for row in _read(arguments.results) if row.get("test")
    )
    by_file: dict[str, list[Any]] = {}
    for name in killers:
        if name not in known:
            by_file.setdefault(name.partition("::")[0], []).append(planner.test(name))
    for tests in by_file.values():
        yield Job(
            None,
            tests,
            float("inf"),
            arguments.patience,
            stop=False,
            forget=(arguments.package,),
        )


def _result(job: Any) -> dict[str, Any]:
    mutant, reached = job.about
    row = {**mutant, "result": SURVIVED, "reached": reached, "tests": len(job.tests)}
    row |= {"ran": job.ran, "cost": round(job.cost, 1)}
    for test, how in job.failed.items():
        row |= {"result": KILLED, "test": test, "how": how}
    return row


def _todo(mutants: list[dict[str, Any]], results: Path) -> list[dict[str, Any]]:
    done = {_key(row) for row in _results(results)}
    return [mutant for mutant in mutants if _key(mutant) not in done]


def _results(path: Path) -> list[dict[str, Any]]:
    """The results that stand: not by a test that fails without a change, too."""
    unusable = {row["control"] for row in _controlled(path) if not row["passes"]}
    return [
        row for row in _read(path) if "file" in row and row.get("test") not in unusable
    ]


def _controlled(path: Path) -> list[dict[str, Any]]:
    return [row for row in _read(path) if "control" in row]


def _key(row: dict[str, Any]) -> tuple:
    return tuple(row[name] for name in PART)


def _read(path: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


def _append(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _say(job: Any) -> None:
    mutant, what = (
        job.about[0],
        next(
            iter(job.failed.items()), (SURVIVED, f"{job.ran} of {len(job.tests)} tests")
        ),
    )
    print(
        f"{mutant['file']}:{mutant['line']} {job.cost:.1f} s: {' '.join(what)}",
        flush=True,
    )


def _report(arguments: argparse.Namespace) -> int:
    rows = _results(arguments.results)
    counts: dict[str, Counter] = {}
    for row in rows:
        for name in (_folder(row["file"]), "**all**"):
            counts.setdefault(name, Counter()).update([row["result"], "mutants"])
    print("| folder | mutants | killed | survived | unreached |")
    print(f"| :-- |{' --: |' * 4}")
    for name, count in sorted(counts.items()):
        numbers = (count["mutants"], count[KILLED], count[SURVIVED], count[UNREACHED])
        print(f"| {name} | {' | '.join(map(str, numbers))} |")
    unusable = [
        row["control"] for row in _controlled(arguments.results) if not row["passes"]
    ]
    minutes = sum(row["cost"] for row in rows) / 60
    print(f"\n{minutes:.1f} minutes of the processor; {len(unusable)} tests unusable")
    for title, kept in (("Survived", SURVIVED), ("Reached by no test", UNREACHED)):
        print(f"\n{title}:")
        for row in sorted((row for row in rows if row["result"] == kept), key=_key):
            ran = f"{row['ran']} of {row['tests']} tests run within the budget"
            ran += f", {row['reached']} reach it"
            print(
                f"- {row['file']}:{row['line']} `{row['before']}` -> `{row['after']}`: {ran}"
            )
    return 0


def _folder(file: str) -> str:
    parts = file.split("/")
    return f"{parts[0]}/*.py" if len(parts) == 2 else parts[1]


if __name__ == "__main__":
    sys.exit(main())
