"""The score of mistakes that are planted in networks written once: how many the proof finds.

``python -m tests.planted.score [--on torch,jax] [--groups losses,wiring] [--seeds 10] [--processes
2] [--everywhere]``. The score that is published is that of ports by hand: `tests.score`.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from deliralike import backends
from deliralike.conformance.comparing import OPTIMIZERS, compare
from deliralike.conformance.findings import Finding
from deliralike.conformance.levels import checkpoints, pipelines, probes, replicas, stepping
from deliralike.conformance.subject import Subject
from tests.planted import optimizers as planted_optimizers
from tests.planted import pipelines as planted_pipelines
from tests.planted import replicas as planted_replicas
from tests.planted.allclose import TOLERANCES, seen_by_allclose
from tests.planted.fixtures import FIXTURES, fixture

NETWORKS = (
    "normalization",
    "convolution",
    "activation",
    "dropout",
    "attention",
    "sequence",
    "losses",
    "wiring",
    "weights",
    "precision",
)
GROUPS = (*NETWORKS, "optimizers", "replicas", "checkpoints", "probes", "pipelines")
STREAMS = "pipelines"  # has no backend
REFERENCE = "torch"
SEEDS = 10
CHEAP, DEAR = (
    ("L0", "L1", "L3"),
    ("L4", "L5", "L6", "L7"),
)  # of which right candidates are to pass


@dataclass(frozen=True)
class Task:
    """One thing to judge, in a process of its own or in this one.

    Attributes:
        group: The module of `tests.planted`; of a right candidate ``"right"``.
        name: The mistake's name, or the fixture's.
        backend: The candidate's.
        seed: Of the fixture.
        fixture: Tasks of one fixture and backend are judged in one process, which compiles
            operations once.
        also: Of a right candidate: a level further up the ladder than outputs and gradients, if
            any.
    """

    group: str
    name: str
    backend: str
    seed: int = 0
    fixture: str = ""
    also: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the proof made of a task.

    Attributes:
        detected: Whether it diverges.
        located: Whether a finding names the place.
        explained: Whether a known explanation names the cause.
        said: The most telling finding; empty where there is none.
        seconds: How long it took.
        allclose: Tolerances at which plain comparisons would have seen it; None where that was not
            tried.
    """

    task: Task
    detected: bool
    located: bool
    explained: bool
    said: str
    seconds: float
    allclose: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table: a group of mistakes on all backends, or right candidates."""

    group: str
    planted: int
    detected: int
    located: int
    explained: int
    allclose: Mapping[str, int] = field(default_factory=dict)
    compared: int = 0


@dataclass(frozen=True)
class Score:
    """All verdicts.

    Attributes:
        verdicts: Of planted mistakes.
        right: Of right candidates.
        seconds: Wall-clock time of the whole.
    """

    verdicts: tuple[Verdict, ...]
    right: tuple[Verdict, ...]
    seconds: float

    def rows(self) -> list[Row]:
        """A row for each group, and one for all."""
        groups = dict.fromkeys(verdict.task.group for verdict in self.verdicts)
        rows = [
            _row(group, [v for v in self.verdicts if v.task.group == group]) for group in groups
        ]
        return [*rows, _row("all", self.verdicts)]

    @property
    def false_alarms(self) -> tuple[Verdict, ...]:
        """Right candidates that were not proved."""
        return tuple(verdict for verdict in self.right if verdict.detected)

    @property
    def passed(self) -> bool:
        """Whether all mutants are detected, 95 % located, 90 % explained, without a false alarm."""
        total = self.rows()[-1]
        located, explained = total.located / total.planted, total.explained / total.planted
        return (
            total.detected == total.planted
            and located >= 0.95
            and explained >= 0.90
            and not self.false_alarms
        )

    def missed(self) -> Iterator[Verdict]:
        """Mistakes that were not detected, located or explained."""
        return (v for v in self.verdicts if not (v.detected and v.located and v.explained))

    def table(self) -> str:
        """The rows as a Markdown table, with what plain comparisons would have seen beside."""
        head = ["mistakes", "planted", "detected", "located", "explained", *map(_header, _kinds())]
        lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
        for row in self.rows():
            near = [str(row.allclose[kind]) if row.compared else "" for kind in _kinds()]
            counts = [str(n) for n in (row.planted, row.detected, row.located, row.explained)]
            lines.append([row.group, *counts, *near])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "rows": [asdict(row) for row in self.rows()],
            "right": len(self.right),
            "false_alarms": [asdict(verdict) for verdict in self.false_alarms],
            "missed": [asdict(verdict) for verdict in self.missed()],
            "seconds": self.seconds,
        }


def score(
    on: Sequence[str] = (),
    groups: Sequence[str] = GROUPS,
    seeds: int = SEEDS,
    processes: int = 2,
    everywhere: bool = True,
    report: Callable[[Verdict], None] = lambda verdict: None,
) -> Score:
    """Compare a right candidate with every mutant on each backend, and with itself on other seeds.

    Args:
        on: Names of backends; all that are available when empty.
        groups: Of mistakes; see `GROUPS`.
        seeds: How many seeds for each right candidate.
        processes: How many at once; 0 for this process alone.
        everywhere: Each mistake on every backend; else on one of them in turn, for a third of the
            time.
        report: Called with each verdict.
    """
    start = time.perf_counter()
    names = tuple(on) or tuple(backends.available())
    tasks = [*planted_tasks(names, groups, everywhere), *right_tasks(names, seeds, everywhere)]
    verdicts = []
    for verdict in _judged(tasks, processes):
        report(verdict)
        verdicts.append(verdict)
    order = {task: position for position, task in enumerate(tasks)}
    verdicts.sort(key=lambda verdict: order[verdict.task])
    mistakes = tuple(verdict for verdict in verdicts if verdict.task.group != "right")
    right = tuple(verdict for verdict in verdicts if verdict.task.group == "right")
    return Score(mistakes, right, time.perf_counter() - start)


def planted_tasks(
    on: Sequence[str], groups: Sequence[str] = GROUPS, everywhere: bool = True
) -> list[Task]:
    """Every mistake on every backend that can express it, or on one of them in turn."""
    tasks: list[Task] = []
    turn = itertools.cycle(on)
    for group in groups:
        for mistake in _module(group).MISTAKES:
            able = [
                name
                for name in on
                if set(getattr(mistake, "needs", ())) <= backends.get(name).capabilities
            ]
            if not everywhere:
                able = [one] if (one := next(turn)) in able else able[:1]
            shared = group if group in ("optimizers", "replicas", STREAMS) else mistake.fixture
            tasks += [
                Task(group, mistake.name, name, 0, shared)
                for name in (("",) if group == STREAMS else able)
            ]
    return tasks


def right_tasks(on: Sequence[str], seeds: int, everywhere: bool = True) -> list[Task]:
    """Every fixture on every backend with as many seeds, or each seed on one of them in turn.

    One of the `DEAR` levels is judged as well: with each seed, or for every second fixture of each
    backend.
    """
    tasks = []
    for seed in range(seeds):
        for name in on if everywhere else on[seed % len(on) : seed % len(on) + 1]:
            for position, fixture_ in enumerate(FIXTURES):
                turn = seed < len(on) and (position // len(DEAR) + seed) % 2 == 0
                also = DEAR[(position + seed) % len(DEAR)] if everywhere or turn else ""
                tasks.append(Task("right", fixture_, name, seed, fixture_, also))
    return tasks


def judge(task: Task) -> Verdict:
    """Run the proof on one task."""
    start = time.perf_counter()
    if task.group == "right":
        findings = _of_right(task)
        return Verdict(
            task, bool(findings), False, False, _said(findings), time.perf_counter() - start
        )
    mistake = next(one for one in _module(task.group).MISTAKES if one.name == task.name)
    findings = _JUDGES.get(task.group, _of_network)(mistake, task)
    located = [
        f for f in findings if any(text in f"{f.place} {f.kind} {f.what}" for text in mistake.place)
    ]
    causes = [
        f.explanation.cause for f in findings if f.explanation is not None and f.explanation.known
    ]
    causes += [
        f.what for f in findings if f.level == "L0" and f.explanation is None
    ]  # structure speaks for itself
    explained = any(text in cause for text in mistake.cause for cause in causes)
    seconds = time.perf_counter() - start
    near = _allclose(mistake, task)
    return Verdict(task, bool(findings), bool(located), explained, _said(findings), seconds, near)


def _of_network(mistake: Any, task: Task) -> tuple[Finding, ...]:
    (reference, batch), (right, _) = (
        fixture(mistake.fixture, REFERENCE),
        fixture(mistake.fixture, task.backend),
    )
    levels = ("L0", "L1", "L3", "L7") if task.group == "precision" else ("L0", "L1", "L3")
    return compare(reference, mistake.plant(right), batch, levels=levels).findings


def _of_optimizer(mistake: Any, task: Task) -> tuple[Finding, ...]:
    reference, right = (
        planted_optimizers.equipped(fixture("vectors", name)[0])
        for name in (REFERENCE, task.backend)
    )
    wrong = mistake.plant(right)
    names = [
        name for name in right.optimizers if right.optimizers[name] is not wrong.optimizers[name]
    ]
    schedules = (
        (None, None) if names else (reference.schedule, wrong.schedule)
    )  # one by itself, not all eleven
    ours, theirs = (
        one.but(optimizers={n: one.optimizers[n] for n in names or ["sgd"]}, schedule=schedule)
        for one, schedule in zip((reference, wrong), schedules, strict=True)
    )
    return stepping.level(ours, theirs).findings


def _of_replicas(mistake: Any, task: Task) -> tuple[Finding, ...]:
    reference, right = (planted_replicas.subject(name) for name in (REFERENCE, task.backend))
    count = planted_replicas.COUNT
    return replicas.level(
        reference, mistake.plant(right), planted_replicas.batch(), (count,)
    ).findings


def _of_checkpoint(mistake: Any, task: Task) -> tuple[Finding, ...]:
    (reference, batch), (right, _) = (
        _with_optimizers(mistake.fixture, name) for name in (REFERENCE, task.backend)
    )
    with tempfile.TemporaryDirectory() as folder:
        return checkpoints.level(reference, mistake.plant(right), batch, folder).findings


def _with_optimizers(name: str, backend: str) -> tuple[Subject, Any]:
    subject, batch = fixture(name, backend)
    makers = {name: planted_optimizers.following(rule) for name, rule in OPTIMIZERS.items()}
    return subject.but(optimizers=makers), batch


def _of_probe(mistake: Any, task: Task) -> tuple[Finding, ...]:
    (reference, batch), (right, _) = (
        fixture(mistake.fixture, REFERENCE),
        fixture(mistake.fixture, task.backend),
    )
    return probes.level(reference, mistake.plant(right), batch).findings


def _of_stream(mistake: Any, task: Task) -> tuple[Finding, ...]:
    right = planted_pipelines.right()
    return pipelines.level(right, mistake.plant(right)).findings


def _of_right(task: Task) -> tuple[Finding, ...]:
    (reference, batch), (candidate, _) = (
        fixture(task.name, name, task.seed) for name in (REFERENCE, task.backend)
    )
    levels = (*CHEAP, task.also) if task.also else CHEAP
    return compare(
        reference, candidate, batch, levels=levels, replicas=(planted_replicas.COUNT,)
    ).findings


def _allclose(mistake: Any, task: Task) -> tuple[str, ...] | None:
    """What plain comparisons see, always on one backend: mistakes give the same numbers on all."""
    if task.group not in (*NETWORKS, "optimizers"):
        return None
    if task.group == "optimizers":
        reference, batch = fixture("vectors", REFERENCE, dtype="float32")
        reference = planted_optimizers.equipped(reference)
        right = reference
        wrong = mistake.plant(right)
        names = [n for n in right.optimizers if right.optimizers[n] is not wrong.optimizers[n]] or [
            "sgd"
        ]
        sides = [
            one.but(optimizers={n: one.optimizers[n] for n in names}) for one in (reference, wrong)
        ]
        second = sides[1].but(network=fixture("vectors", REFERENCE, dtype="float32")[0].network)
        return seen_by_allclose(sides[0], second, batch)
    reference, batch = fixture(mistake.fixture, REFERENCE, dtype="float32")
    return seen_by_allclose(
        reference, mistake.plant(fixture(mistake.fixture, REFERENCE, dtype="float32")[0]), batch
    )


def _said(findings: Sequence[Finding]) -> str:
    return str(findings[0]) if findings else ""


def _kinds() -> list[str]:
    return [
        f"{what} {tolerance:.0e}"
        for what in ("outputs", "gradients", "curves")
        for tolerance in TOLERANCES
    ]


def _header(kind: str) -> str:
    what, tolerance = kind.split()
    return f"`allclose` {float(tolerance):g}, {what}"


def _row(group: str, verdicts: Sequence[Verdict]) -> Row:
    tried = [verdict for verdict in verdicts if verdict.allclose is not None]
    near = {kind: sum(kind in (verdict.allclose or ()) for verdict in tried) for kind in _kinds()}
    detected, located, explained = (
        sum(getattr(verdict, name) for verdict in verdicts)
        for name in ("detected", "located", "explained")
    )
    return Row(group, len(verdicts), detected, located, explained, near, len(tried))


def _module(group: str) -> Any:
    return importlib.import_module(f"tests.planted.{group}")


def _judged(tasks: Sequence[Task], processes: int) -> Iterator[Verdict]:
    if not processes:
        yield from map(_judge_here, tasks)
        return
    together: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        together.setdefault((task.backend, task.fixture), []).append(task)
    longest_first = sorted(together.values(), key=len, reverse=True)
    # a fresh process: one that was forked would share the threads of linear algebra and of XLA
    used = tuple(dict.fromkeys(task.backend for task in tasks if task.backend))
    with ProcessPoolExecutor(processes, get_context("spawn"), _prepare, (used,)) as pool:
        for done in as_completed([pool.submit(_judge_all, some) for some in longest_first]):
            yield from done.result()


def _judge_all(tasks: Sequence[Task]) -> list[Verdict]:
    return [_judge_here(task) for task in tasks]


def _prepare(used: Sequence[str]) -> None:
    """One thread for a process, and what its frameworks read when they start."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in used:
        backends.get(name).prepare_process(devices=planted_replicas.COUNT, quickly=True)
    threadpool_limits(1)


def _judge_here(task: Task) -> Verdict:
    backend = backends.get(task.backend or REFERENCE)
    # programs over several devices are to be compiled whole: operation by operation, each would be
    # one
    replicated = task.group == "replicas" or task.also == replicas.NAME
    way = backend.compiling_quickly() if replicated else backend.op_by_op()
    with way, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mistaken networks divide by zero
        try:
            return judge(task)
        except Exception as error:
            is_right = task.group == "right"
            return Verdict(
                task, is_right, False, False, f"crashed: {type(error).__name__}: {error}", 0.0
            )


_JUDGES: dict[str, Callable[[Any, Task], tuple[Finding, ...]]] = {
    "optimizers": _of_optimizer,
    "replicas": _of_replicas,
    "checkpoints": _of_checkpoint,
    "probes": _of_probe,
    "pipelines": _of_stream,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", default="", help="backends")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--everywhere", action="store_true")
    given = parser.parse_args()
    on = given.on.split(",") if given.on else backends.available()
    groups = given.groups.split(",")
    result = score(on, groups, given.seeds, given.processes, given.everywhere)
    print(result.table())
    print(f"{len(result.false_alarms)} false alarms on {len(result.right)} right candidates")
    for verdict in (*result.false_alarms, *result.missed()):
        task = verdict.task
        print(f"  {task.group}: {task.name} ({task.backend or 'NumPy'}): {verdict.said[:200]}")
    raise SystemExit(0 if result.passed else 1)


if __name__ == "__main__":
    main()
