"""The score as tables: kinds, shares, levels, and every miss with what was printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.score.case import Mistake, Right
from tests.score.judging import BROKEN, EQUAL, Judged, Said, judge

COUNTED = (
    "mistakes",
    "detected",
    "placed",
    "explained",
    "false_exact",
    "right",
    "proved",
    "accused",
    "undecided",
    "raised",
)
COLUMNS = ("kind", *(name.replace("_", " ") for name in COUNTED))
LADDER = ("L0", "L1", "L2", "L3", "L4", "L5", "L6", "L7")
LEVELS = ("level", "finds first", "share")
GOALS = {
    "mistakes detected": 1.0,
    "right place in the headline": 0.97,
    "right cause with its number": 0.85,
}
_PRINTED = 400  # letters of a headline


@dataclass(frozen=True)
class Result:
    """One case, what was said of it, and what is right about that."""

    task: Any
    case: Mistake | Right
    said: Said
    judged: Judged

    @property
    def misses(self) -> list[str]:
        """What is wrong, in words; nothing where all is as it should be."""
        judged, is_mistake = self.judged, isinstance(self.case, Mistake)
        if judged.raised or self.is_left_out:
            return ["raised"] if judged.raised else []
        if is_mistake and not judged.detected:
            return ["not detected"]
        wrong_effect = (
            is_mistake and self.case.effect is not None and not judged.effect_right
        )
        words = {
            "wrong place": is_mistake and not judged.placed,
            "not explained": is_mistake and not judged.explained,
            "FALSE EXACT": judged.false_exact,
            "wrong effect": wrong_effect,
            "ACCUSED": judged.accused,
            "undecided": not is_mistake and judged.undecided,
        }
        return [word for word, is_true in words.items() if is_true]

    @property
    def is_left_out(self) -> bool:
        """Whether it is a mutant that is none."""
        return self.said.verdict in (EQUAL, BROKEN)


def result(task: Any, case: Mistake | Right, found: Said) -> Result:
    """A case that was run, judged."""
    return Result(task, case, found, judge(case, found))


def count(results: Sequence[Result]) -> Counter[str]:
    """How many cases are what, of some results."""
    counts = Counter(
        name for one in results for name, value in vars(one.judged).items() if value
    )
    counts["mistakes"] = sum(isinstance(one.case, Mistake) for one in results)
    counts["right"] = len(results) - counts["mistakes"]
    counts["effects"] = sum(
        getattr(one.case, "effect", None) is not None for one in results
    )
    return counts


class Score:
    """All results, in the order of their names."""

    def __init__(self, results: Sequence[Result], seconds: float) -> None:
        ordered = sorted(results, key=lambda one: one.task.name)
        self.results = [one for one in ordered if not one.is_left_out]
        self.left_out = [one for one in ordered if one.is_left_out]
        self.seconds = seconds
        self.counts = count(self.results)

    def rows(self) -> list[list[str]]:
        """A row of texts for each kind, and one for all; see `COLUMNS`."""
        groups = sorted({one.task.group for one in self.results})
        parts = {
            name: [one for one in self.results if one.task.group == name]
            for name in groups
        }
        parts["all"] = self.results
        return [
            [name, *(str(count(found)[each]) for each in COUNTED)]
            for name, found in parts.items()
        ]

    def levels(self) -> list[list[str]]:
        """How many mistakes each level finds that none before it finds."""
        first = Counter(one.said.failed[0] for one in self.results if one.said.failed)
        whole = sum(first.values())
        return [
            [name, str(first[name]), _percent(first[name], whole)] for name in LADDER
        ]

    def shares(self) -> list[tuple[str, int, int]]:
        """What is counted of how many: recall of mistakes, and precision of what was said."""
        n = self.counts
        accusations = n["detected"] + n["accused"]
        return [
            ("mistakes detected", n["detected"], n["mistakes"]),
            ("right place in the headline", n["placed"], n["mistakes"]),
            ("right cause with its number", n["explained"], n["mistakes"]),
            ("right effect", n["effect_right"], n["effects"]),
            ("right ports proved", n["proved"], n["right"]),
            ("accusations that are right", n["detected"], accusations),
            ("accused places that are right", n["placed"], accusations),
            (
                "exact causes that are right",
                n["claimed"] - n["false_exact"],
                n["claimed"],
            ),
        ]

    @property
    def passed(self) -> bool:
        """Whether the goals are reached, and nothing raised an error."""
        reached = [
            part >= GOALS.get(name, 0) * whole for name, part, whole in self.shares()
        ]
        n = self.counts
        return all(reached) and not (n["accused"] or n["false_exact"] or n["raised"])

    def misses(self) -> list[Result]:
        """Everything that is not as it should be."""
        return [one for one in self.results if one.misses]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "counts": dict(self.counts),
            "seconds": self.seconds,
            "cases": [_plain(one) for one in (*self.results, *self.left_out)],
        }

    def markdown(self) -> str:
        """The tables, and what was printed of every miss."""
        shares = [
            (name, f"{part} of {whole}", _percent(part, whole))
            for name, part, whole in self.shares()
        ]
        lines = [*_table(COLUMNS, self.rows()), ""]
        lines += _table(("of all", "count", "share"), shares)
        lines += ["", *_table(LEVELS, self.levels()), ""]
        return "\n".join([*lines, self.summary(), "", *self._missed()]).rstrip() + "\n"

    def _missed(self) -> Iterator[str]:
        for one in self.misses():
            said = one.said.headline.replace("`", "'")
            said = said if len(said) <= _PRINTED else f"{said[:_PRINTED]} …"
            yield f"- {one.task.name}: {', '.join(one.misses)}. `{said}`"

    def summary(self) -> str:
        """Accusations, inventions, errors, mutants that are none and time, in a sentence."""
        n, out = self.counts, Counter(one.said.verdict for one in self.left_out)
        return (
            f"Of {n['right']} right ports {n['accused']} are accused; {n['false_exact']} causes "
            f"are called exact and are not; {n['raised']} comparisons raised an error; "
            f"{out[EQUAL]} mutants change nothing and {out[BROKEN]} do not run; "
            f"{self.seconds:.0f} s."
        )


def _plain(one: Result) -> dict[str, Any]:
    return {
        "name": one.task.name,
        "misses": one.misses,
        "case": asdict(one.case),
        "said": asdict(one.said),
        "judged": asdict(one.judged),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, marks, *rows)]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""
