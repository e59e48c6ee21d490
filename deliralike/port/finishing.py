"""How functions get at the functions of the backend: by ``self.nn``, or as an argument ``nn``."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import NN, START, code, statements_in, with_statements

_WITHOUT_SELF = m.Decorator(m.Name("staticmethod") | m.Name("classmethod"))
_STATIC = m.FunctionDef(decorators=[m.ZeroOrMore(), _WITHOUT_SELF, m.ZeroOrMore()])


def names_used(node: cst.CSTNode) -> list[str]:
    """The names in a definition, as often as they stand there; attributes with their point."""
    found = []
    for one in ast.walk(ast.parse(code(node).strip())):
        if isinstance(one, ast.Name):
            found.append(one.id)
        elif isinstance(one, ast.Attribute):
            found.append(f".{one.attr}")
    return found


def static_methods(node: cst.CSTNode) -> list[tuple[str, list[str]]]:
    """Methods without ``self``, with a point before their names, and the names in them."""
    methods: Any = m.findall(node, _STATIC)
    return [(f".{one.name.value}", names_used(one)) for one in methods]


def finished(
    node: Any, needing: Collection[str], constants: Collection[str]
) -> cst.CSTNode:
    """A definition in which ``nn`` is what its functions have.

    Args:
        needing: The functions and constants that take ``nn``.
        constants: Those among them that were no functions, and are called for their value.
    """
    finisher = _Finisher(needing, constants)
    if isinstance(node, (cst.ClassDef, cst.FunctionDef)) or not finisher.uses(node):
        return node.visit(finisher)
    assign = node.body[0]  # of a constant, which becomes a function
    name, value = code(assign.targets[0].target), code(assign.value.visit(finisher))
    function: Any = cst.parse_statement(f"def {name}(nn):\n    return {value}\n")
    return function.with_changes(leading_lines=node.leading_lines)


class _Finisher(cst.CSTTransformer):
    def __init__(self, needing: Collection[str], constants: Collection[str]) -> None:
        super().__init__()
        self.needing, self.constants = needing, constants
        self.classes: list[str] = []
        self.kind = ""  # of the outermost function
        self.nn = "nn"
        # Of the arguments of functions within each other: a name, the word that is its default,
        # and what that stands for.
        self.defaults: list[list[tuple[str, str, str]]] = []

    def uses(self, node: cst.CSTNode) -> int:
        """How often a definition needs the functions of the backend."""
        return sum(name == NN or name in self.needing for name in names_used(node))

    # Definitions
    # ---------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.classes.append(node.name.value)

    def leave_ClassDef(
        self, original: cst.ClassDef, updated: cst.ClassDef
    ) -> cst.ClassDef:
        self.classes.pop()
        has_start = any(m.matches(one, START) for one in original.body.body)
        if original.name.value not in self.needing or has_start:
            return updated
        start = cst.parse_statement("def __init__(self, nn):\n    self.nn = nn\n")
        return with_statements(updated, [start, *updated.body.body])

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.defaults.append([])
        if len(self.defaults) == 1:
            self.kind = self._kind(node)
            if self.kind == "method" and self.uses(node) == 1:
                self.nn = "self.nn"

    def _kind(self, node: cst.FunctionDef) -> str:
        if not self.classes or _is(node, "staticmethod"):
            return "function"
        if _is(node, "classmethod"):
            return "class method"
        if m.matches(node, START) and {*self.classes} & {*self.needing}:
            return "start of a plain class"
        return "method"

    def leave_FunctionDef(
        self, original: cst.FunctionDef, updated: cst.FunctionDef
    ) -> cst.FunctionDef:
        for name, word, chosen in self.defaults.pop():
            updated = with_first_statement(
                updated, f"if {name} == {word}:\n    {name} = {chosen}\n"
            )
        if self.defaults:
            return updated
        before, self.nn = self.nn, "nn"
        if self.kind == "start of a plain class":
            return with_first_statement(_taking_nn(updated, 1), "self.nn = nn")
        if before == "self.nn" or not self.uses(original):
            return updated
        if self.kind == "method":
            first = [*updated.params.params, cst.Param(cst.Name("self"))][0]
            return with_first_statement(updated, f"nn = {first.name.value}.nn")
        if self.kind == "class method":
            return _taking_nn(updated, 1)
        return _taking_nn(updated, 0)

    def leave_Param(self, original: cst.Param, updated: cst.Param) -> cst.Param:
        """A default that only a backend has is a word."""
        updated = updated.with_changes(name=original.name)
        if original.default is None or not self.defaults:
            return updated
        default = code(original.default)
        if self._function(original.default) is not None:
            chosen = self._handed_on(default)
        elif NN in default:
            chosen = code(updated.default)  # type: ignore[arg-type]
        else:
            return updated
        word = repr(default.replace(f"{NN}.", "")).replace("'", '"')
        self.defaults[-1].append((original.name.value, word, chosen))
        return updated.with_changes(default=cst.SimpleString(word))

    # Uses
    # ---------------------------------------------------------------------------------------------

    def _function(self, node: cst.BaseExpression | None) -> str | None:
        """The name of a function that takes ``nn``, or None."""
        if not isinstance(node, cst.Name) or node.value in self.constants:
            return None
        return node.value if node.value in self.needing else None

    def leave_Name(self, original: cst.Name, updated: cst.Name) -> cst.BaseExpression:
        if original.value == NN:
            return cst.parse_expression(self.nn)
        if original.value in self.constants:
            return cst.parse_expression(f"{original.value}({self.nn})")
        return updated

    def leave_Attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.Attribute:
        return updated.with_changes(attr=original.attr)

    def leave_Arg(self, original: cst.Arg, updated: cst.Arg) -> Any:
        updated = updated.with_changes(keyword=original.keyword)
        return self._with_nn(original.value, updated)

    def leave_Element(self, original: cst.Element, updated: cst.Element) -> Any:
        return self._with_nn(original.value, updated)

    def _with_nn(self, value: cst.BaseExpression, updated: Any) -> Any:
        """A function that is handed on, or stands in a list, takes its ``nn`` with it."""
        name = self._function(value)
        if name is None:
            return updated
        handed_on = cst.parse_expression(f"({self._handed_on(name)})")
        return updated.with_changes(value=handed_on)

    def _handed_on(self, name: str) -> str:
        return f"lambda *args, **kwargs: {name}({self.nn}, *args, **kwargs)"

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        func = original.func
        is_static = (
            isinstance(func, cst.Attribute) and f".{func.attr.value}" in self.needing
        )
        if not is_static and self._function(func) is None:
            return updated
        nn = cst.Arg(cst.parse_expression(self.nn))
        return updated.with_changes(args=[nn, *updated.args])


def _is(function: cst.FunctionDef, decorator: str) -> bool:
    return any(code(one.decorator) == decorator for one in function.decorators)


def with_first_statement(function: cst.FunctionDef, text: str) -> cst.FunctionDef:
    """A function that begins with one more statement, behind ``super().__init__()``."""
    statements = statements_in(function.body)
    at = 0 if function.get_docstring() is None else 1
    first = "".join(map(code, statements[at : at + 1])).strip()
    if first.startswith("super(") and first.endswith("__init__()"):
        at += 1
    statements.insert(at, cst.parse_statement(text))
    return function.with_changes(body=cst.IndentedBlock(statements))


def _taking_nn(function: cst.FunctionDef, at: int) -> cst.FunctionDef:
    """A function with one more argument, ``nn``."""
    params = list(function.params.params)
    params.insert(at, cst.Param(cst.Name("nn")))
    return function.with_changes(params=function.params.with_changes(params=params))
