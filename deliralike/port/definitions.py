"""The rewriting of classes and functions: bases, decorators, types, what was never called."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Collection
from inspect import isclass
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.buffers import registered_last
from deliralike.port.calls import NN, code, with_statements
from deliralike.port.context import Function
from deliralike.port.finishing import names_used, with_first_statement
from deliralike.port.leaving_out import PASS, LeavingOut
from deliralike.port.observing import CONSTRUCTION, FORWARD
from deliralike.port.patterns import pattern
from deliralike.port.reported import reported

_CACHED = pattern("self.CACHE[KEY] = ARRAY")
_NO_SPACE = cst.SimpleWhitespace("")
EQUAL = cst.AssignEqual(_NO_SPACE, _NO_SPACE)


class DefinitionRewriter(LeavingOut):
    """The part of the `Rewriter` that deals with definitions."""

    # Classes
    # ---------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.path.append(node.name.value)
        if len(self.path) > 1:
            return
        self.class_name = node.name.value
        self.start_code.cls = self.cls
        self.reported = reported(self.source, self.observed, node)
        self.methods, self.local_names = [], {}
        for base in node.bases:
            if self._is_idle(self.source.meaning(base.value)):
                self.passed_by.add(base)

    def leave_ClassDef(
        self, original: cst.ClassDef, updated: cst.ClassDef
    ) -> cst.ClassDef:
        self.path.pop()
        bases = []
        for old, new in zip(original.bases, updated.bases, strict=True):
            base = self._base(old, new)
            if base is not None:
                bases.append(cst.Arg(base))
        updated = updated.with_changes(bases=bases, keywords=[])
        if bases:
            brackets = {"lpar": cst.LeftParen(), "rpar": cst.RightParen()}
            updated = updated.with_changes(**brackets)
        statements = [*map(_as_property, updated.body.body), *self.methods] or [PASS]
        self.mask_layers.add_to(statements, self.original.frozen(self.cls))
        return with_statements(updated, statements)

    def _base(self, base: cst.Arg, new: cst.Arg) -> cst.BaseExpression | None:
        meaning = self.source.meaning(base.value)
        name = self.framework.name_of(meaning)
        if name is not None:
            name = self.framework.bases.get(name, name)
            if name != "Network":
                name = self.program.neutral_class(name, self.where(base))
            return cst.Name(name)
        if isclass(meaning) and meaning.__module__ in ("abc", "typing", "builtins"):
            return None
        return None if base in self.passed_by else new.value

    def _is_idle(self, cls: Any) -> bool:
        """Whether a base takes no part in a network of an installed package."""
        is_network_class = self.framework.is_network_class
        is_mixed_in = is_network_class(self.cls) and not is_network_class(cls)
        if not self.source.is_installed or not is_mixed_in or not isclass(cls):
            return False
        file = getattr(sys.modules.get(cls.__module__), "__file__", "")
        called = self.original.observation.files[file].called
        for name, phases in called.items():
            owner, _, method = name.rpartition(".")
            is_public = not method.startswith("_") or method == "__init__"
            if owner == cls.__qualname__ and (is_public or FORWARD in phases):
                return False
        return True

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        """Those of Python stay, and one's own that wrap a function; no registries.

        A framework's say how it is run.
        """
        called: Any = node.decorator
        name = self.name_of(getattr(called, "func", called))
        if self.functions and name in self.framework.stops_gradients:
            self.functions[-1].is_detached = not self.in_construction
        return self._stays(node)

    def leave_Decorator(self, original: cst.Decorator, updated: cst.Decorator) -> Any:
        return updated if self._stays(original) else cst.RemoveFromParent()

    def _stays(self, decorator: cst.Decorator) -> bool:
        called = decorator.decorator
        if self.original.is_portable_function(self.source.meaning(called)):
            return self._is_replaced()
        if isinstance(called, cst.Call):
            called = called.func
        meaning = self.source.meaning(called)
        module = getattr(meaning, "__module__", "") or ""
        root, _, last = code(called).partition(".")
        is_python = module.partition(".")[0] in (*sys.stdlib_module_names, "builtins")
        return is_python or hasattr(builtins, root) or last == "setter"

    def _is_replaced(self) -> bool:
        """Whether a decorator has put another function in the place of one."""
        owner = self.cls or self.source.module
        wrapper = getattr(vars(owner).get(self.path[-1]), "__code__", None)
        is_outermost = len(self.functions) == 1
        return is_outermost and wrapper is not None and wrapper.co_name != self.path[-1]

    # Functions
    # ---------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.path.append(node.name.value)
        path = ".".join(self.path)
        phases = self.observed.phases(path)
        if self.functions:
            phases = phases or {CONSTRUCTION if self.in_construction else FORWARD}
        in_construction = self.in_numpy or FORWARD not in phases
        caches = [] if in_construction else self._caches(node)
        self._enter(path, node.params, in_construction, caches)

    def _enter(
        self,
        path: str,
        params: cst.Parameters,
        in_construction: bool,
        caches: list[str],
    ) -> None:
        """Begin a function."""
        found: Any = m.findall(params, m.Param())
        names = [one.name.value for one in found]
        arrays = [name for name in names if self.observed.is_array(path, name)]
        has_self = "self" in names
        if self.functions:
            has_self = has_self or self.functions[-1].has_self
            if not self.in_construction:  # whose arrays are NumPy's
                arrays += self.functions[-1].arrays
        function = Function(path, in_construction, arrays, caches, has_self)
        self.functions.append(function)

    def _caches(self, node: cst.FunctionDef) -> list[str]:
        """The dicts of a network in which a function keeps arrays: traced programs cannot."""
        found: dict[str, None] = {}
        statements: Any = m.findall(node, _CACHED)
        for statement in statements:
            array = self.value_of("results", statement.value)
            if not array.is_array:
                continue
            if self.observed.was("targets", self.source.begin(statement), "dict"):
                self.program.specialise(self.where(statement), "an array that it kept")
                found[statement.targets[0].target.value.attr.value] = None
        return list(found)

    def leave_FunctionDef(
        self, original: cst.FunctionDef, updated: cst.FunctionDef
    ) -> cst.FunctionDef:
        path = ".".join(self.path)
        self.path.pop()
        function = self.functions.pop()
        if not updated.body.body:
            updated = with_first_statement(updated, "pass")
        for cache in function.caches:
            updated = with_first_statement(updated, f"{cache} = {{}}")
        if self.methods:
            updated = _without_unused(updated, self.local_names)
        if path == f"{self.class_name}.__init__":
            updated = registered_last(updated)
            updated = self._with_sizes_as_arguments(updated)
        if not _is_python_type(original.returns):
            updated = updated.with_changes(returns=None)
        name = original.name.value
        if len(self.path) == 1 and not self.functions:
            name = self.original.name_of_method(self.cls, name)
        return updated.with_changes(name=cst.Name(name))

    def visit_Lambda(self, node: cst.Lambda) -> None:
        """It is called by `forward`, also one that is written where a network is created."""
        path = ".".join([*self.path, "<lambda>"])
        self._enter(path, node.params, in_construction=False, caches=[])

    def leave_Lambda(self, original: cst.Lambda, updated: cst.Lambda) -> cst.Lambda:
        self.functions.pop()
        return updated

    def _with_sizes_as_arguments(self, init: cst.FunctionDef) -> cst.FunctionDef:
        """Add the arguments that tell instances of the class of their sizes."""
        names = self.program.sizes.arguments(self.cls)
        added = [cst.Param(cst.Name(name)) for name in names]
        params = init.params
        params = params.with_changes(kwonly_params=[*params.kwonly_params, *added])
        return init.with_changes(params=params)

    def leave_Param(self, original: cst.Param, updated: cst.Param) -> cst.Param:
        """A type of numbers is not needed as a default."""
        if not _is_python_type(original.annotation):
            updated = updated.with_changes(annotation=None)
            if updated.default is not None:
                updated = updated.with_changes(equal=EQUAL)
        default = original.default
        if default is None or not self.framework.is_dtype(self.source.meaning(default)):
            return updated
        return updated.with_changes(default=cst.Name("None"))

    # Types
    # ---------------------------------------------------------------------------------------------

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def leave_AnnAssign(
        self, original: cst.AnnAssign, updated: cst.AnnAssign
    ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
        """``x: Tensor = y`` is ``x = y``; a type alone is nothing, but to a data class."""
        if not self.functions and hasattr(self.cls, "__match_args__"):
            return self._field(original, updated)
        if updated.value is None:
            return cst.RemoveFromParent()
        target = updated.target
        if isinstance(original.target, cst.Name):  # which it keeps
            target = original.target
        return cst.Assign([cst.AssignTarget(target)], updated.value)

    def _field(self, original: cst.AnnAssign, updated: cst.AnnAssign) -> cst.AnnAssign:
        """A field of a data class."""
        if not _is_python_type(original.annotation):
            annotation = cst.Annotation(cst.Name("object"))
            updated = updated.with_changes(annotation=annotation)
        if updated.value is not None and NN in code(updated.value):
            where = self.where(original)
            self.program.specialise(where, "a default that only a backend has")
            updated = updated.with_changes(value=cst.Name("None"))
        return updated


def _without_unused(function: Any, names: Collection[str]) -> Any:
    """A function without the assignments of names that nothing reads any more."""
    for name in names:
        if names_used(function).count(name) == 1:
            assigned = m.Assign([m.AssignTarget(m.Name(name))])
            line = m.SimpleStatementLine([assigned])
            function = m.replace(function, line, cst.RemoveFromParent())
    return function


def _is_python_type(annotation: cst.Annotation | None) -> bool:
    """Whether a type needs no import."""
    if annotation is None:
        return True
    text = code(annotation.annotation)
    words = re.findall("[A-Za-z_]+", text)
    return all(hasattr(builtins, word) for word in words) and "'" not in text


_CLASS_ATTRIBUTE = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name())])])


def _as_property(statement: Any) -> Any:
    """An attribute of a class that only a backend has, such as a layer, is made at each use."""
    if not m.matches(statement, _CLASS_ATTRIBUTE) or NN not in code(statement):
        return statement
    assign = statement.body[0]
    name, value = code(assign.targets[0].target), code(assign.value)
    return cst.parse_statement(f"@property\ndef {name}(self):\n    return {value}\n")
