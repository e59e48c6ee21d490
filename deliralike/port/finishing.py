"""How functions get at the functions of the backend: by ``self.nn``, or as an argument ``nn``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import NN, code


def uses_vocabulary(node: cst.CSTNode, needing: Collection[str]) -> bool:
    """Whether a definition uses functions of the backend, or names that need them."""
    finder = _Finder(needing)
    node.visit(finder)
    return finder.count > 0


def finished(
    node: cst.CSTNode, needing: Collection[str], constants: Collection[str]
) -> Any:
    """A definition in which ``nn`` is what its functions have.

    Args:
        needing: The functions and constants that take ``nn``.
        constants: Those among them that were no functions, and are called for their value.
    """
    finisher = _Finisher(needing, constants)
    if not isinstance(node, (cst.ClassDef, cst.FunctionDef)) and uses_vocabulary(
        node, needing
    ):
        return _as_function(node, finisher)
    return node.visit(finisher)


class _Finder(cst.CSTVisitor):
    def __init__(self, needing: Collection[str]) -> None:
        self.needing = needing
        self.count = 0

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if f".{node.attr.value}" in self.needing:
            self.count += 1
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        if node.value == NN or node.value in self.needing:
            self.count += 1


class _Finisher(cst.CSTTransformer):
    def __init__(self, needing: Collection[str], constants: Collection[str]) -> None:
        super().__init__()
        self.needing, self.constants = needing, constants
        self.depth = 0
        self.classes: list[str] = []
        self.inline = False
        self.defaults: list[
            tuple[str, str]
        ] = []  # functions that are defaults of arguments

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.classes.append(node.name.value)

    def leave_ClassDef(
        self, original: cst.ClassDef, updated: cst.ClassDef
    ) -> cst.ClassDef:
        self.classes.pop()
        has_start = any(m.matches(one, _START) for one in original.body.body)
        if original.name.value not in self.needing or has_start:
            return updated
        start = cst.parse_statement("def __init__(self, nn):\n    self.nn = nn\n")
        return updated.with_changes(
            body=updated.body.with_changes(body=[start, *updated.body.body])
        )

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.depth += 1
        if self.depth == 1:
            finder = _Finder(self.needing)
            node.visit(finder)
            is_method = self._kind(node) == "method" and not self._starts_plain_class(
                node
            )
            self.inline = finder.count == 1 and is_method

    def _starts_plain_class(self, node: cst.FunctionDef) -> bool:
        """Whether it is ``__init__`` of a class that is no network, and is given ``nn``."""
        return m.matches(node, _START) and bool({*self.classes} & {*self.needing})

    def _kind(self, node: cst.FunctionDef) -> str:
        if not self.classes:
            return "function"
        if _is_static(node):
            return "static"
        is_class = any(code(one.decorator) == "classmethod" for one in node.decorators)
        return "class" if is_class else "method"

    def leave_FunctionDef(
        self, original: cst.FunctionDef, updated: cst.FunctionDef
    ) -> cst.FunctionDef:
        self.depth -= 1
        for name, default in self.defaults:
            chosen = f"{name} = {self._handed_on(default)}"
            updated = begun(updated, f'if {name} == "{default}":\n    {chosen}\n')
        self.defaults = []
        if not self.depth and self._starts_plain_class(original):
            return begun(_taking_nn(updated, 1), "self.nn = nn")
        if self.depth or not uses_vocabulary(original, self.needing):
            return updated
        kind = self._kind(original)
        if kind != "method":
            return _taking_nn(updated, 1 if kind == "class" else 0)
        if self.inline:
            return updated
        first = [*updated.params.params, cst.Param(cst.Name("self"))][0]
        return begun(updated, f"nn = {first.name.value}.nn")

    def leave_Name(self, original: cst.Name, updated: cst.Name) -> cst.BaseExpression:
        if original.value == NN:
            return cst.parse_expression(self._vocabulary())
        if original.value in self.constants:
            return cst.parse_expression(f"{original.value}({self._vocabulary()})")
        return updated

    def leave_Param(self, original: cst.Param, updated: cst.Param) -> cst.Param:
        updated = updated.with_changes(name=original.name)
        default = "" if original.default is None else code(original.default)
        if default not in self.needing or default in self.constants:
            return updated
        self.defaults.append((original.name.value, default))
        return updated.with_changes(default=cst.SimpleString(f'"{default}"'))

    def leave_Attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.Attribute:
        return updated.with_changes(attr=original.attr)

    def _vocabulary(self) -> str:
        return "self.nn" if self.inline else "nn"

    def leave_Arg(self, original: cst.Arg, updated: cst.Arg) -> cst.Arg:
        """A function that is handed on takes its ``nn`` with it."""
        updated = updated.with_changes(keyword=original.keyword)
        name = code(original.value)
        if name not in self.needing or name in self.constants:
            return updated
        return updated.with_changes(
            value=cst.parse_expression(f"({self._handed_on(name)})")
        )

    def _handed_on(self, name: str) -> str:
        return f"lambda *args, **kwargs: {name}({self._vocabulary()}, *args, **kwargs)"

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        name = _called_name(original.func)
        if name not in self.needing or name in self.constants:
            return updated
        nn = cst.Arg(cst.parse_expression(self._vocabulary()))
        if updated.args:
            comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            nn = nn.with_changes(comma=comma)
        return updated.with_changes(args=[nn, *updated.args])


def static_methods(node: cst.CSTNode, needing: Collection[str]) -> set[str]:
    """The static methods of a class that take ``nn``, with a point before their names."""
    if not isinstance(node, cst.ClassDef):
        return set()
    return {
        f".{one.name.value}"
        for one in node.body.body
        if isinstance(one, cst.FunctionDef)
        and _is_static(one)
        and uses_vocabulary(one, needing)
    }


def _is_static(node: cst.FunctionDef) -> bool:
    return any(code(one.decorator) == "staticmethod" for one in node.decorators)


def _called_name(func: cst.BaseExpression) -> str:
    if isinstance(func, cst.Attribute):
        return f".{func.attr.value}"
    return func.value if isinstance(func, cst.Name) else ""


_START = m.FunctionDef(m.Name("__init__"))


def begun(function: cst.FunctionDef, text: str) -> cst.FunctionDef:
    """A function that begins with one more statement, behind ``super().__init__()``."""
    body: Any = function.body
    if not isinstance(body, cst.IndentedBlock):  # a function of one line
        body = cst.IndentedBlock([cst.SimpleStatementLine(body.body)])
    statements = list(body.body)
    at = 0 if function.get_docstring() is None else 1
    first = code(statements[at]).strip() if len(statements) > at else ""
    if first.startswith("super(") and first.endswith("__init__()"):
        at += 1
    statements.insert(at, cst.parse_statement(text))
    return function.with_changes(body=body.with_changes(body=statements))


def _taking_nn(function: cst.FunctionDef, at: int) -> cst.FunctionDef:
    """A function with one more argument, ``nn``."""
    params = list(function.params.params)
    params.insert(at, cst.Param(cst.Name("nn")))
    return function.with_changes(params=function.params.with_changes(params=params))


def _as_function(node: Any, finisher: _Finisher) -> cst.FunctionDef:
    """A constant that needs ``nn`` becomes a function."""
    assign = node.body[0]
    name = assign.targets[0].target if isinstance(assign, cst.Assign) else assign.target
    value = code(assign.value.visit(finisher))
    made: Any = cst.parse_statement(f"def {code(name)}(nn):\n    return {value}\n")
    return made.with_changes(leading_lines=node.leading_lines)
