"""What the functions of a network do in a run: which are called, and of what kind their values are.

The class runs twice. The first run finds the functions that it calls; in the second, copies of
their code tell the kind of each value that a method or attribute is taken of.
"""

from __future__ import annotations

import ast
import builtins
import gc
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
)
from typing import Any

from deliralike.port.framework import Framework
from deliralike.port.resolving import MISSING
from deliralike.port.values import PLAIN, Layer, Value, common, leaves

Place = tuple[int, int]  # line, counted from 1, and column of an expression's end
CONSTRUCTION, FORWARD = "construction", "forward"
_RECORD = "__deliralike_port__"
_MANY = 100  # parts, more than a person would write out


def _copied(value: Any) -> Any:
    """Arguments as they are now: a class may take its settings out of a dict."""
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    if type(value) is list:
        return list(map(_copied, value))
    return value


_CHOICES = (*PLAIN, type, FunctionType, BuiltinFunctionType, Layer)


@dataclass
class Observed:
    """What was seen in the functions of one file.

    Attributes:
        called: The qualified names of functions, without ``<locals>``, with the phases in which
            they were called.
        facts: What values were, by what is seen of them, and its place:
            ``"values"``: what an attribute was taken of, by the end of that attribute;
            ``"called"``: what is called, by its end;
            ``"given"``: arguments of calls, by their ends;
            ``"results"``: the arrays that calls returned, by the end of the call;
            ``"targets"``: the ``x`` of ``x += y``, ``x[i] += y`` and ``x[i] = y``, by where the
            statement begins;
            ``"arguments"``: of functions, by qualified name and name;
            ``"branches"``: nothing, by the first line of a branch that was taken.
        objects: The objects themselves, in their order, by the ends of calls and subscripts:
            ``"returned"``: the networks that they gave;
            ``"keys"``: what subscripts were given;
            ``"chosen"``: what they gave that can be written out: a class, function, number, text,
            `Layer`, or a collection of such; `MISSING` for all else.
    """

    called: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    facts: dict[str, dict[Any, set[Value]]] = field(default_factory=lambda: _table(set))
    objects: dict[str, dict[Place, list[Any]]] = field(
        default_factory=lambda: _table(list)
    )

    def value(self, what: str, place: Any) -> Value:
        """What is known of the value at a place."""
        return common(self.facts[what].get(place, ()))

    def was(self, what: str, place: Any, kind: str) -> bool:
        """Whether the value at a place was of a kind at least once."""
        return Value(kind) in self.facts[what].get(place, ())

    def was_taken(self, line: int) -> bool:
        """Whether the branch that begins in a line was taken."""
        return line in self.facts["branches"]

    def takes_arrays(self, path: str) -> bool:
        """Whether a function was given arrays or networks."""
        kinds = ("arrays", "network", "layer", "container")
        for (name, _), found in self.facts["arguments"].items():
            if name == path and any(one.is_array or one.kind in kinds for one in found):
                return True
        return False

    def phases(self, path: str) -> set[str]:
        """The phases in which a function was called; its path has no ``<locals>``."""
        return self.called.get(path, set())

    def is_array(self, path: str, name: str) -> bool:
        """Whether an argument of a function was always an array of floating numbers."""
        return self.value("arguments", (path, name)).is_floating

    def choice(self, place: Place) -> Any:
        """What a call or subscript gave each time, if it was one choice; or `MISSING`."""
        found = self.objects["chosen"].get(place, [])
        if not found or MISSING in found:
            return MISSING
        different = {tuple(leaves(one)) for one in found}
        return found[0] if len(different) == 1 else MISSING

    def choices(self, place: Place) -> dict[Any, Any]:
        """What a subscript gave, by what it was given, where these are texts and numbers."""
        keys = self.objects["keys"].get(place, [])
        if not all(_is_plain(key) for key in keys):
            return {}
        return dict(zip(keys, self.objects["chosen"].get(place, []), strict=False))


def _table(kind: Callable[[], Any]) -> dict[str, Any]:
    return defaultdict(lambda: defaultdict(kind))


def _is_plain(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(map(_is_plain, key))
    return type(key) in (str, int)


class Observation:
    """Runs a network and keeps what was seen, by file.

    Args:
        framework: The framework of the network.
    """

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.files: dict[str, Observed] = defaultdict(Observed)
        # Arguments of __init__, by the object's identity.
        self.created: dict[int, dict[str, Any]] = {}
        self.axes: dict[int, int] = {}  # of the inputs of networks, by their identities
        self._codes: set[CodeType] = set()
        self._is_recording = False

    @contextmanager
    def calls(self, phase: str) -> Iterator[None]:
        """Note the functions that are called in a block."""

        def profile(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and self._is_portable(frame):
                self._note_call(frame, phase)

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _is_portable(self, frame: FrameType) -> bool:
        """Whether a call is of code that is to be ported, in the file of its module."""
        module, file = frame.f_globals, frame.f_code.co_filename
        if module.get("__file__") != file:
            return False
        return self.framework.ports(module["__name__"])

    def _note_call(self, frame: FrameType, phase: str) -> None:
        code = frame.f_code
        self._codes.add(code)
        path = code.co_qualname.replace(".<locals>", "")
        observed = self.files[code.co_filename]
        observed.called[path].add(phase)
        called = inspect.getargvalues(frame)
        for name in called.args:
            described = self.framework.describe(called.locals.get(name))
            observed.facts["arguments"][path, name].add(described)
        if code.co_name == "__init__":
            self._note_creation(called)

    def _note_creation(self, called: inspect.ArgInfo) -> None:
        """Keep the arguments of an object's own ``__init__``, which runs before those it calls."""
        if not called.args:
            return
        network, *names = called.args
        arguments = {name: called.locals[name] for name in names}
        if called.varargs:
            arguments["*"] = called.locals[called.varargs]
        if called.keywords:
            arguments |= called.locals[called.keywords]
        self.created.setdefault(id(called.locals[network]), _copied(arguments))

    @contextmanager
    def values(self) -> Iterator[None]:
        """Let the functions that were called tell their values in a block."""
        recording: dict[tuple[str, str, int], CodeType] = {}
        for file in self.files:
            recording |= {_key(code): code for code in _codes(_recording(file))}
        changed = []
        for function in _functions(self.files):
            if function.__code__ in self._codes:
                changed.append((function, function.__code__))
        setattr(builtins, _RECORD, self._record)
        try:
            for function, code in changed:
                function.__code__ = recording.get(_key(code), code)
            with self.framework.noting_axes(self.axes):
                yield
        finally:
            for function, code in changed:
                function.__code__ = code
            delattr(builtins, _RECORD)

    def _record(self, file: str, what: str, key: Any, value: Any) -> Any:
        if not self._is_recording:  # what describes a value may call what tells others
            self._is_recording = True
            try:
                self._note(self.files[file], what, key, value)
            finally:
                self._is_recording = False
        return value

    def _note(self, observed: Observed, what: str, key: Any, value: Any) -> None:
        if what == "keys":
            observed.objects[what][key].append(value)
            return
        described = self.framework.describe(value)
        if what != "returned":
            observed.facts[what][key].add(described)
            return
        if described.is_array or described.kind == "arrays":
            observed.facts["results"][key].add(described)
        if self.framework.is_network_class(type(value)):
            observed.objects["returned"][key].append(value)
        value = self.framework.layer(value) or value
        choice = MISSING
        parts = list(leaves(value))
        if len(parts) < _MANY and all(isinstance(part, _CHOICES) for part in parts):
            choice = _copied(value)
        observed.objects["chosen"][key].append(choice)


#: What may hold a function.
_HOLDERS = (property, staticmethod, classmethod, partial, cached_property, CellType)


def _functions(files: Collection[str]) -> list[FunctionType]:
    """The functions and methods of modules with these files, also those within decorators."""

    def is_portable(module: Any) -> bool:
        return getattr(module, "__file__", None) in files

    waiting: list[Any] = []
    for module in filter(is_portable, list(sys.modules.values())):
        waiting += vars(module).values()
    found: list[FunctionType] = []
    known: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in known:
            continue
        known.add(id(value))
        if isinstance(value, FunctionType):
            found.append(value)
            waiting += value.__closure__ or ()
        elif isinstance(value, type) and is_portable(sys.modules.get(value.__module__)):
            waiting += vars(value).values()
        elif isinstance(value, _HOLDERS):
            waiting += gc.get_referents(value)
    return found


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _recording(file: str) -> CodeType:
    """The code of a file whose functions tell their values."""
    text = Path(file).read_text(encoding="utf-8")
    tree = ast.fix_missing_locations(_Recorders(file).visit(ast.parse(text)))
    return compile(tree, file, "exec", dont_inherit=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _end(node: ast.expr) -> tuple[int | None, int | None]:
    return node.end_lineno, node.end_col_offset


class _Recorders(ast.NodeTransformer):
    """Puts calls around the values whose kinds are of interest."""

    def __init__(self, file: str) -> None:
        self.file = file

    def _record(self, what: str, key: Any, value: ast.expr) -> ast.expr:
        given = [ast.Constant(one) for one in (self.file, what, key)]
        call = ast.Call(ast.Name(_RECORD, ast.Load()), [*given, value], [])
        return ast.copy_location(call, value)

    def _recording(self, what: str, key: Any, value: ast.expr) -> ast.stmt:
        """A statement that tells of a value."""
        return ast.Expr(self._record(what, key, value))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        end = _end(node)
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self._record("values", end, node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Tell what is called, with what, and the result."""
        end, called_end = _end(node), _end(node.func)
        self.generic_visit(node)
        node.func = self._record("called", called_end, node.func)
        node.args = list(map(self._argument, node.args))
        for keyword in node.keywords:
            keyword.value = self._argument(keyword.value)
        return self._record("returned", end, node)

    def _argument(self, node: ast.expr) -> ast.expr:
        if isinstance(node, (ast.Constant, ast.Starred)):
            return node
        return self._record("given", _end(node), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Tell what is found, as in a table of layers."""
        end = _end(node)
        self.generic_visit(node)
        if not isinstance(node.slice, ast.Slice):
            node.slice = self._record("keys", end, node.slice)
        if not isinstance(node.ctx, ast.Load):
            return node
        return self._record("returned", end, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target = node.target
        if isinstance(target, ast.Subscript):
            return self._with_target(node, target.value)
        return self._with_target(node, target)

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript):
            return self._with_target(node, target.value)
        return self.generic_visit(node)

    def _with_target(self, node: ast.stmt, target: ast.expr) -> list[Any]:
        begin = (node.lineno, node.col_offset)
        loaded = ast.parse(ast.unparse(target), mode="eval").body
        return [self._recording("targets", begin, loaded), self.generic_visit(node)]

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._with_branches(node, node.body, node.orelse)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        return self._with_branches(node, node.body)

    def _with_branches(self, node: ast.AST, *blocks: list[ast.stmt]) -> ast.AST:
        """Tell which branches are taken."""
        lines = [block[0].lineno for block in blocks if block]
        self.generic_visit(node)
        for block, line in zip(filter(None, blocks), lines, strict=True):
            block.insert(0, self._recording("branches", line, ast.Constant(None)))
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        """Patterns stand as they are."""
        pattern, node.pattern = node.pattern, ast.MatchAs()
        self.generic_visit(node)
        node.pattern = pattern
        return node
