"""Places in a source file: what is no code of interest, and which lines tell that a piece of code
was run."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Without these decorators everything is the same: they are for the type checker, the reader, or
#: speed.
IDLE = (
    "abstractmethod",
    "overload",
    "override",
    "final",
    "cache",
    "lru_cache",
    "runtime_checkable",
    "cached_property",
)
MESSAGES = ("warn", "warning", "info", "debug", "error", "echo", "secho", "print")


@dataclass(frozen=True)
class Lines:
    """The lines of which one was run by every test that may notice a change.

    Attributes:
        own: Those of the statement itself; if it is run on import, also those of the functions it
            is part of.
        module: Those of all functions of the module.
        on_import: Whether the statement is run on import, when no test is under way.
    """

    own: frozenset[int]
    module: frozenset[int]
    on_import: bool


def left_out(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Begin and end (line, column) of annotations, errors and messages, idle decorators and what is
    only for typing."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            found.append(node.annotation)
        elif isinstance(node, FUNCTIONS):
            found.append(node.returns)
        elif isinstance(node, ast.Raise) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            found.append(node)
        elif isinstance(node, ast.Assert):
            found.append(node.msg)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in MESSAGES:
            found += node.args
        for decorator in getattr(node, "decorator_list", ()):
            if ast.unparse(decorator).partition("(")[0].rpartition(".")[2] in IDLE:
                found.append(decorator)
    return [
        # the sign before a decorator belongs to it
        ((node.lineno, node.col_offset - 1), (node.end_lineno, node.end_col_offset))
        for node in found
        if node is not None
    ]


def lines(tree: ast.AST, line: int) -> Lines:
    """The lines to ask about for a change in that line."""
    module = frozenset(_of_functions(tree))
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.stmt, ast.ExceptHandler)) and line in span(node)
    ]
    inner = min(around, key=lambda node: len(span(node)), default=tree)
    inside = [
        node for node in around if isinstance(node, FUNCTIONS) and line >= first(node.body[0])
    ]
    if inside and not any(
        "cache" in ast.unparse(name) for node in inside for name in node.decorator_list
    ):
        return Lines(frozenset(header(inner)), module, on_import=False)
    owners = [node for node in around if isinstance(node, (*FUNCTIONS, ast.ClassDef))] or [tree]
    owner = min(owners, key=lambda node: len(span(node)) if node is not tree else 0)
    return Lines(frozenset([*_of_functions(owner), *header(inner)]), module, on_import=True)


def header(node: ast.AST) -> range:
    """The lines of a statement without the statements in it."""
    if isinstance(node, ast.mod):
        return range(0)
    body = getattr(node, "body", None)
    end = max(node.lineno, first(body[0]) - 1) if isinstance(body, list) else node.end_lineno
    return range(first(node), end + 1)


def first(node: ast.AST) -> int:
    """Its first line; decorators stand before what is decorated."""
    return min(
        [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]
    )


def span(node: ast.AST) -> range:
    """All lines of a statement."""
    return range(first(node), node.end_lineno + 1)


def _of_functions(tree: ast.AST) -> Iterable[int]:
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield from range(first(node.body[0]), node.end_lineno + 1)
