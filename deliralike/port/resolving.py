"""What names in a module's source stand for, and where a definition comes from."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

import libcst as cst
from libcst import matchers as m
from libcst import metadata

from deliralike.errors import SettingError

MISSING = object()
_GIVES_A_NAME = m.AssignTarget(m.Name()) | m.AnnAssign(m.Name())


def module_source(name: str) -> Source:
    """The source of a module by its full name, read once for all ports while its file is the same.

    Raises:
        SettingError: It has no file of Python source.
    """
    module = sys.modules[name]
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        raise SettingError(
            f"port: {name!r} has no file of Python source, such as a notebook's cell or "
            "an extension: put the class into a file"
        )
    return _read(module, file, Path(file).read_text(encoding="utf-8"))


@lru_cache(maxsize=100)
def _read(module: ModuleType, file: str, text: str) -> Source:
    return Source(module, file, text)


class Source:
    """A module of Python, its syntax tree, and what its global names stand for."""

    def __init__(self, module: ModuleType, file: str, text: str) -> None:
        """Parse the text of a module's file."""
        self.module, self.file, self.text = module, file, text
        self.lines = text.split("\n")
        self.is_installed = "-packages" in file
        self.wrapper = metadata.MetadataWrapper(cst.parse_module(self.text))
        self.tree = self.wrapper.module
        self.scopes = self.wrapper.resolve(metadata.ScopeProvider)
        self.positions = self.wrapper.resolve(metadata.PositionProvider)
        self.parents = self.wrapper.resolve(metadata.ParentNodeProvider)
        self.imports = _imports(module, self.text)
        # The statements that give the module's global names, the last one of each; of those within
        # `if` and `try` the one that ran, where a function tells.
        self.statements: dict[str, cst.CSTNode] = {}
        for statement, scope in self.scopes.items():
            if not isinstance(scope, metadata.GlobalScope):
                continue
            for name in _defined(statement):
                is_nested = statement not in self.tree.body
                if is_nested and not self._has_run(statement, name):
                    continue
                self.statements[name] = statement

    def _has_run(self, statement: cst.CSTNode, name: str) -> bool:
        """Whether a global name is that of a statement: not imported, nor another function."""
        value: Any = vars(self.module).get(name)
        if name in self.imports and self.imports[name].value() is value:
            return False
        code = getattr(inspect.unwrap(value), "__code__", None)
        if code is None:
            return name in vars(self.module)
        first = (*getattr(statement, "decorators", ()), statement)[0]
        lines = range(self.begin(first)[0], self.end(statement)[0] + 1)
        return code.co_filename == self.file and code.co_firstlineno in lines

    def definition(self, qualname: str) -> tuple[Any, cst.CSTNode | None]:
        """The class of a function, if it is a method of one, and the statement that defines it."""
        name, _, method = qualname.partition(".")
        node: Any = self.statements.get(name)
        if not method:
            return None, node
        if not isinstance(node, cst.ClassDef):
            return None, None
        for one in node.body.body:
            if isinstance(one, cst.FunctionDef) and one.name.value == method:
                return vars(self.module).get(name), one
        return None, None

    def computed(self, name: str) -> str | None:
        """The value of a constant as source, where its statement does not show it.

        Such are those of installed packages that ask for versions, and those within ``if``.
        """
        statement: Any = self.statements[name]
        value = vars(self.module).get(name, MISSING)
        is_nested = statement not in self.tree.body
        if not (self.is_installed or is_nested) or value is MISSING:
            return None
        if not isinstance(statement, cst.SimpleStatementLine):
            return None
        assigned: Any = statement.body[0]
        text = cst.Module([]).code_for_node(assigned.value)
        if not is_nested and _literal(text) is not MISSING:  # which shows it
            return None
        return repr(value) if _literal(repr(value)) == value else None

    def meaning(self, node: cst.BaseExpression) -> Any:
        """What a name, or names joined by dots, stands for in this module; `MISSING` if unknown.

        Names of a function's own have no meaning here.
        """
        if isinstance(node, cst.Attribute):
            owner = self.meaning(node.value)
            if owner is MISSING or isinstance(owner, property):
                return MISSING
            return getattr(owner, node.attr.value, MISSING)
        scope = self.scopes.get(node)
        if scope is None or not isinstance(node, cst.Name):
            return MISSING
        name = node.value
        assignments = scope[name]  # none where it is from a module import *
        if all(isinstance(one.scope, metadata.GlobalScope) for one in assignments):
            return vars(self.module).get(name, MISSING)
        if all(isinstance(one, metadata.ImportAssignment) for one in assignments):
            return self.imports[name].value()
        return MISSING

    def is_called(self, node: cst.CSTNode) -> bool:
        """Whether a function is called, rather than handed on."""
        return getattr(self.parents[node], "func", None) is node

    def is_statement(self, node: cst.CSTNode) -> bool:
        """Whether an expression is a statement."""
        return isinstance(self.parents[node], cst.Expr)

    def is_branch(self, block: cst.CSTNode) -> bool:
        """Whether a block is that of `if`, of its `else`, or of `except`."""
        parent = self.parents[block]
        if isinstance(parent, cst.Else):
            return isinstance(self.parents[parent], cst.If)
        return isinstance(parent, (cst.If, cst.ExceptHandler))

    def begin(self, node: cst.CSTNode) -> tuple[int, int]:
        """Line and column at which a node begins, as in Python's own trees."""
        return self._place(self.positions[node].start)

    def end(self, node: cst.CSTNode) -> tuple[int, int]:
        """Line and column at which a node ends, as in Python's own trees."""
        return self._place(self.positions[node].end)

    def _place(self, position: metadata.CodePosition) -> tuple[int, int]:
        before = self.lines[position.line - 1][: position.column]
        return position.line, len(before.encode())  # Python counts the bytes of UTF-8


@dataclass(frozen=True)
class Import:
    """A name that an import gives: ``from module import name``, or a module."""

    module: str
    name: str | None = None

    def value(self) -> Any:
        """What it is; `MISSING` where the module is not loaded, or has no such name."""
        loaded = sys.modules.get(self.module, MISSING)
        if self.name is None:
            return loaded
        module = sys.modules.get(f"{self.module}.{self.name}", MISSING)
        return getattr(loaded, self.name, module)

    def line(self, local: str) -> str:
        """The statement that gives the name again."""
        if self.name is None:
            line, name = f"import {self.module}", self.module.partition(".")[0]
        else:
            line, name = f"from {self.module} import {self.name}", self.name
        if name == local:
            return line
        return f"{line} as {local}"


def _imports(module: ModuleType, text: str) -> dict[str, Import]:
    """The import that gave each name; of several, in ``try``, the one that ran."""
    found: dict[str, Import] = {}

    def add(name: str, given: Import) -> None:
        before = found.get(name)
        if before is None or before.value() is not vars(module).get(name):
            found[name] = given

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.asname or alias.name.partition(".")[0], Import(alias.name))
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            package = module.__package__ or getattr(module.__spec__, "parent", None)
            name = resolve_name(relative, package)
            for alias in node.names:
                add(alias.asname or alias.name, Import(name, alias.name))
    return found


def _literal(text: str) -> Any:
    """The value of a source of numbers and texts alone; `MISSING` for another one."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return MISSING


def _defined(statement: cst.CSTNode) -> list[str]:
    """The names that a statement gives."""
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return [statement.name.value]
    if not isinstance(statement, cst.SimpleStatementLine):
        return []
    targets: Any = m.findall(statement, _GIVES_A_NAME)
    return [one.target.value for one in targets]
