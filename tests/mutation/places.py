"""Places in a source file: what is no code of interest, and which statements tell that a piece of
code was run."""

import ast

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
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).rpartition(".")[2] in MESSAGES
        ):
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


def marked_statements(tree: ast.Module, line: int) -> list[ast.stmt]:
    """The statements of which one is run by every test that may notice a change in that line.

    The innermost one; where it is run on import, when no test is under way, or its result is kept,
    the first of each function that it is part of or decides about.
    """
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and first(node) <= line <= node.end_lineno
    ]
    inside = [
        node
        for node in around
        if isinstance(node, FUNCTIONS) and line >= first(node.body[0])
    ]
    if inside and not any(
        "cache" in ast.unparse(name) for node in inside for name in node.decorator_list
    ):
        return [min(around, key=_height)]
    owners = [node for node in around if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    owner = min(owners, key=_height, default=tree)
    return (
        _first_of_functions(owner)
        or _first_of_functions(tree)
        or [min(around, key=_height)]
    )


def _height(node: ast.stmt) -> int:
    return node.end_lineno - first(node)


def _first_of_functions(tree: ast.AST) -> list[ast.stmt]:
    """The first statement of each function in there, behind its docstring."""
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    return [
        node.body[ast.get_docstring(node) is not None and len(node.body) > 1]
        for node in functions
    ]


def first(node: ast.AST) -> int:
    """Its first line; decorators stand before what is decorated."""
    return min(
        [
            node.lineno,
            *(decorator.lineno for decorator in getattr(node, "decorator_list", ())),
        ]
    )
