"""Mutants by the operators of cosmic-ray, drawn evenly over all the code of a package."""

import ast
import random
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

from tests.mutation.places import left_out

#: By what an arithmetic operator is replaced. cosmic-ray knows all pairs; most of them fail by type
#: wherever they run.
ARITHMETIC = {
    "Add": ("Sub",),
    "Sub": ("Add",),
    "Mul": ("Div", "Add"),
    "Div": ("Mul", "FloorDiv"),
    "FloorDiv": ("Div", "Mul"),
    "Mod": ("FloorDiv", "Mul"),
    "Pow": ("Mul",),
    "LShift": ("RShift",),
    "RShift": ("LShift",),
    "BitOr": ("BitAnd",),
    "BitAnd": ("BitOr",),
    "BitXor": ("BitAnd", "BitOr"),
}
#: Value and identity are not exchanged: what is compared is mostly the same either way.
COMPARISONS = ({"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"}, {"Is", "IsNot"})


@cache
def operators() -> dict[str, Any]:
    """The operators, by name."""
    provider = OperatorProvider()
    return {name: provider[name]() for name in provider if _of_use(name)}


def _of_use(name: str) -> bool:
    kind, _, pair = name.partition("_")
    old, _, new = pair.partition("_")
    if kind == "ReplaceBinaryOperator":
        return new in ARITHMETIC[old]
    if kind == "ReplaceComparisonOperator":
        return any({old, new} <= kinds for kinds in COMPARISONS)
    return kind not in (
        "VariableInserter",
        "VariableReplacer",
    )  # for variables that are named


def sample(
    root: Path, package: str, count: int, seed: int, only: str = ""
) -> list[dict[str, Any]]:
    """That many mutants: a file by the size of its syntax tree, in it a place, and there an
    operator."""
    files = sorted(
        path
        for path in (root / package).rglob("*.py")
        if re.search(only, path.relative_to(root).as_posix())
    )
    weights = [sum(1 for _ in ast.walk(ast.parse(path.read_text()))) for path in files]
    chance, places, drawn = random.Random(seed), {}, []
    while len(drawn) < count and any(weights):
        path = chance.choices(files, weights)[0]
        if path not in places:
            places[path] = positions(path.read_text())
        if not places[path]:  # none (left) in this file
            weights[files.index(path)] = 0
            continue
        place = chance.choice(sorted(places[path]))
        choices = places[path][place]
        name, occurrence = choices.pop(chance.randrange(len(choices)))
        if not choices:
            del places[path][place]
        if change := difference(
            path.read_text(), mutated(path.read_text(), name, occurrence)
        ):
            drawn.append(
                {
                    "file": path.relative_to(root).as_posix(),
                    "line": place[0],
                    "column": place[1],
                    "operator": name,
                    "occurrence": occurrence,
                    "before": change[0],
                    "after": change[1],
                }
            )
    return drawn


def positions(code: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """The operators that apply, with the number of the occurrence in the file, by line and
    column."""
    out, seen, found = left_out(ast.parse(code)), Counter(), defaultdict(list)
    for node in ast_nodes(get_ast(code)):
        for name, place in _applying(node):
            if not any(begin <= place < end for begin, end in out):
                found[place].append((name, seen[name]))
            seen[name] += 1
    return dict(found)


def _applying(node: Any) -> Iterator[tuple[str, tuple[int, int]]]:
    if node.type in ("name", "string", "newline", "fstring_string"):
        return  # half of all nodes, and none of any operator
    for name, operator in operators().items():
        with suppress(
            AttributeError, IndexError
        ):  # `except a.B` is nothing that cosmic-ray knows
            for begin, _ in list(operator.mutation_positions(node)):
                yield name, begin


def mutated(code: str, name: str, occurrence: int) -> str:
    """The source with that one change, or as it is where cosmic-ray cannot make it."""
    try:
        return mutate_code(code, operators()[name], occurrence) or code
    except (
        AttributeError
    ):  # one of several exceptions by the name of its module, `(a.B, C)`
        return code


def difference(code: str, other: str) -> tuple[str, str] | None:
    """What differs, or None where the other is no Python or the same program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if ast.dump(ast.parse(code)) == ast.dump(ast.parse(other)):
                return None
            compile(other, "mutant", "exec")
        except SyntaxError:
            return None
    old, new = code.splitlines(), other.splitlines()
    begin = next(
        number
        for number, pair in enumerate(zip(old, new, strict=False))
        if pair[0] != pair[1]
    )
    while old[begin + 1 :] and new[begin + 1 :] and old[-1] == new[-1]:
        old.pop(), new.pop()
    return tuple(" ".join(line.strip() for line in side[begin:]) for side in (old, new))
