"""How functions get at the functions of the backend: by ``self.nn``, or as an argument ``nn``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import libcst as cst

from deliralike.port.calls import NN


def uses_vocabulary(node: cst.CSTNode, needing: Collection[str]) -> bool:
    """Whether a definition uses functions of the backend, or names that need them."""
    finder = _Finder(needing)
    node.visit(finder)
    return finder.count > 0


def finished(node: cst.CSTNode, needing: Collection[str]) -> Any:
    """A definition in which ``nn`` is what its functions have."""
    if not isinstance(node, (cst.ClassDef, cst.FunctionDef)) and uses_vocabulary(node, needing):
        return _as_function(node, needing)
    return node.visit(_Finisher(needing))


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


@dataclass
class _Scope:
    node: cst.FunctionDef
    kind: str  # "method", "static", "class" or "function"


class _Finisher(cst.CSTTransformer):
    def __init__(self, needing: Collection[str]) -> None:
        super().__init__()
        self.needing = needing
        self.depth = 0
        self.classes = 0
        self.inline = False

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.classes += 1

    def leave_ClassDef(self, original: cst.ClassDef, updated: cst.ClassDef) -> cst.ClassDef:
        self.classes -= 1
        return updated

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.depth += 1
        if self.depth == 1:
            finder = _Finder(self.needing)
            node.visit(finder)
            self.inline = finder.count == 1 and self._kind(node) == "method"

    def _kind(self, node: cst.FunctionDef) -> str:
        decorators = {
            one.decorator.value for one in node.decorators if isinstance(one.decorator, cst.Name)
        }
        if not self.classes:
            return "function"
        if "staticmethod" in decorators:
            return "static"
        return "class" if "classmethod" in decorators else "method"

    def leave_FunctionDef(
        self, original: cst.FunctionDef, updated: cst.FunctionDef
    ) -> cst.FunctionDef:
        self.depth -= 1
        if self.depth or not uses_vocabulary(original, self.needing):
            return updated
        kind = self._kind(original)
        if kind != "method":
            params = list(updated.params.params)
            params.insert(1 if kind == "class" else 0, cst.Param(cst.Name("nn")))
            return updated.with_changes(params=updated.params.with_changes(params=params))
        return updated if self.inline else _with_vocabulary(updated)

    def leave_Name(self, original: cst.Name, updated: cst.Name) -> cst.BaseExpression:
        if original.value == NN:
            return self._vocabulary()
        return updated

    def leave_Attribute(self, original: cst.Attribute, updated: cst.Attribute) -> cst.Attribute:
        return updated.with_changes(attr=original.attr)

    def _vocabulary(self) -> cst.BaseExpression:
        return cst.parse_expression("self.nn" if self.inline else "nn")

    def leave_Arg(self, original: cst.Arg, updated: cst.Arg) -> cst.Arg:
        """A function that is handed on takes its ``nn`` with it."""
        value = original.value
        if isinstance(value, cst.Name) and value.value in self.needing:
            return updated.with_changes(value=self._partial(updated.value))
        return updated

    def _partial(self, function: cst.BaseExpression) -> cst.BaseExpression:
        name = cst.Module([]).code_for_node(function)
        nn = "self.nn" if self.inline else "nn"
        return cst.parse_expression(f"(lambda *args, **kwargs: {name}({nn}, *args, **kwargs))")

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        if _called_name(original.func) in self.needing:
            nn = self._vocabulary()
            first = cst.Arg(nn, comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
            if not updated.args:
                first = cst.Arg(nn)
            return updated.with_changes(args=[first, *updated.args])
        return updated


def static_methods(node: cst.CSTNode, needing: Collection[str]) -> set[str]:
    """The static methods of a class that take ``nn``, with a point before their names."""
    if not isinstance(node, cst.ClassDef):
        return set()
    return {
        f".{one.name.value}"
        for one in node.body.body
        if isinstance(one, cst.FunctionDef)
        and any(code_of(decorator) == "staticmethod" for decorator in one.decorators)
        and uses_vocabulary(one, needing)
    }


def code_of(decorator: cst.Decorator) -> str:
    """The source of a decorator."""
    return cst.Module([]).code_for_node(decorator.decorator)


def _called_name(func: cst.BaseExpression) -> str:
    if isinstance(func, cst.Attribute):
        return f".{func.attr.value}"
    return func.value if isinstance(func, cst.Name) else ""


def _with_vocabulary(function: cst.FunctionDef) -> cst.FunctionDef:
    """Put ``nn = self.nn`` at the beginning, behind ``super().__init__()``."""
    body = function.body
    if not isinstance(body, cst.IndentedBlock):
        return function
    statements = list(body.body)
    self_name = function.params.params[0].name.value if function.params.params else "self"
    at = 0
    text = cst.Module([]).code_for_node
    if statements and text(statements[0]).strip().startswith(('"', "'", 'r"')):
        at = 1
    first = text(statements[at]).strip() if len(statements) > at else ""
    if first.startswith("super(") and first.endswith("__init__()"):
        at += 1
    given = cst.parse_statement(f"nn = {self_name}.nn")
    statements.insert(at, given)
    return function.with_changes(body=body.with_changes(body=statements))


def _as_function(node: Any, needing: Collection[str]) -> cst.FunctionDef:
    """A constant that needs ``nn`` becomes a function."""
    assign = node.body[0]
    name = assign.targets[0].target if isinstance(assign, cst.Assign) else assign.target
    value = assign.value.visit(_Finisher(needing))
    text = cst.Module([]).code_for_node
    made: Any = cst.parse_statement(f"def {text(name)}(nn):\n    return {text(value)}\n")
    return made.with_changes(leading_lines=node.leading_lines)
