"""The score as tables: a line for each pair, shares, and every miss with what was printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.score.judging import Judged, Said, judge
from tests.score.sources import Task

COLUMNS = (
    "pair",
    "mistakes",
    "detected",
    "placed",
    "explained",
    "effect",
    "false exact",
    "right ports",
    "proved",
    "accused",
    "undecided",
    "raised",
)
GOALS = {
    "mistakes detected": 1.0,
    "right place in the headline": 0.97,
    "right cause with its number": 0.85,
}
_PRINTED = 400  # letters of a headline


@dataclass(frozen=True)
class Result:
    """One case, what was said of it, and what is right about that."""

    task: Task
    said: Said
    judged: Judged

    @property
    def misses(self) -> list[str]:
        """What is wrong, in words; nothing where all is as it should be."""
        if self.judged.raised:
            return ["raised"]
        if self.task.is_mistake:
            return list(_misses_of_mistake(self))
        return list(_misses_of_right(self))


def result(task: Task, found: Said) -> Result:
    """A case that was run, judged."""
    return Result(task, found, judge(task.case, found))


def _misses_of_mistake(one: Result) -> Iterable[str]:
    judged = one.judged
    if not judged.detected:
        yield "not detected"
        return
    if not judged.placed:
        yield "wrong place"
    if not judged.explained:
        yield "not explained"
    if judged.false_exact:
        yield "FALSE EXACT"
    if one.task.case.effect is not None and not judged.effect_right:
        yield "wrong effect"


def _misses_of_right(one: Result) -> Iterable[str]:
    if one.judged.accused:
        yield "ACCUSED"
    if one.judged.undecided and not one.judged.expected:
        yield "undecided"


@dataclass(frozen=True)
class Counts:
    """How many cases are what, of some results."""

    mistakes: int
    detected: int
    placed: int
    explained: int
    effects: int
    effects_right: int
    false_exact: int
    claims: int
    right: int
    proved: int
    accused: int
    undecided: int
    expected: int
    raised: int


def count(results: Sequence[Result]) -> Counts:
    """The counts of some results."""

    def total(name: str) -> int:
        return sum(getattr(one.judged, name) for one in results)

    mistakes = [one for one in results if one.task.is_mistake]
    right = [one for one in results if not one.task.is_mistake]
    return Counts(
        mistakes=len(mistakes),
        detected=total("detected"),
        placed=total("placed"),
        explained=total("explained"),
        effects=sum(one.task.case.effect is not None for one in mistakes),
        effects_right=total("effect_right"),
        false_exact=total("false_exact"),
        claims=total("claimed"),
        right=len(right),
        proved=total("proved"),
        accused=total("accused"),
        undecided=sum(one.judged.undecided for one in right),
        expected=total("expected"),
        raised=total("raised"),
    )


class Score:
    """All results, in the order of their cases."""

    def __init__(self, results: Sequence[Result], seconds: float) -> None:
        self.results = sorted(results, key=lambda one: one.task.name)
        self.seconds = seconds
        self.counts = count(self.results)

    def rows(self) -> list[list[str]]:
        """A row of texts for each pair, and one for all; see `COLUMNS`."""
        pairs = dict.fromkeys(one.task.pair for one in self.results)
        rows = []
        for pair in pairs:
            results = [one for one in self.results if one.task.pair == pair]
            rows.append([pair, *_cells(count(results))])
        return [*rows, ["all", *_cells(self.counts)]]

    def shares(self) -> list[tuple[str, int, int]]:
        """What is counted of how many: recall of mistakes, and precision of what was said."""
        n = self.counts
        accusations = n.detected + n.accused
        return [
            ("mistakes detected", n.detected, n.mistakes),
            ("right place in the headline", n.placed, n.mistakes),
            ("right cause with its number", n.explained, n.mistakes),
            ("right effect", n.effects_right, n.effects),
            ("right ports proved", n.proved, n.right),
            ("accusations that are right", n.detected, accusations),
            ("accused places that are right", n.placed, accusations),
            ("causes claimed as exact that are right", n.claims - n.false_exact, n.claims),
        ]

    @property
    def passed(self) -> bool:
        """Whether the goals are reached, and nothing raised an error."""
        found = {name: (part, whole) for name, part, whole in self.shares()}
        reached = [
            part >= GOALS[name] * whole for name, (part, whole) in found.items() if name in GOALS
        ]
        n = self.counts
        return all(reached) and not (n.accused or n.false_exact or n.raised)

    def misses(self) -> list[Result]:
        """Everything that is not as it should be."""
        return [one for one in self.results if one.misses]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "counts": asdict(self.counts),
            "seconds": self.seconds,
            "cases": [_plain(one) for one in self.results],
        }

    def markdown(self) -> str:
        """The tables, and what was printed of every miss."""
        lines = [*_table(COLUMNS, self.rows()), ""]
        shares = [
            [name, f"{part} of {whole}", _percent(part, whole)]
            for name, part, whole in self.shares()
        ]
        lines += [*_table(("of all", "count", "share"), shares), ""]
        lines += [self.summary(), ""]
        for one in self.misses():
            said = _short(one.said.headline).replace("`", "'")
            lines.append(f"- {one.task.name}: {', '.join(one.misses)}. `{said}`")
        return "\n".join(lines).rstrip() + "\n"

    def summary(self) -> str:
        """Accusations, inventions, errors and time, in a sentence."""
        n = self.counts
        expected = f"{n.undecided} undecided, of which {n.expected} could not be decided"
        return (
            f"Of {n.right} right ports {n.accused} are accused and {expected}; {n.false_exact} "
            f"causes are called exact and are not; {n.raised} comparisons raised an error; "
            f"{self.seconds:.0f} s."
        )


def _cells(n: Counts) -> list[str]:
    effect = f"{n.effects_right} of {n.effects}" if n.effects else ""
    found = (n.mistakes, n.detected, n.placed, n.explained, effect, n.false_exact)
    return [str(each) for each in (*found, n.right, n.proved, n.accused, n.undecided, n.raised)]


def _plain(one: Result) -> dict[str, Any]:
    return {
        "name": one.task.name,
        "misses": one.misses,
        "said": asdict(one.said),
        "judged": asdict(one.judged),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, marks, *rows)]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _short(text: str) -> str:
    return text if len(text) <= _PRINTED else f"{text[:_PRINTED]} …"
