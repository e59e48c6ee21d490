"""Attributes that a network sets for people to look at, such as its last weights of attention."""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import code
from deliralike.port.observing import FORWARD, Observed
from deliralike.port.resolving import Source


def reported(source: Source, observed: Observed, class_name: str) -> set[str]:
    """The attributes that methods of a class set while it runs, and that nothing reads there.

    A compiled program forgets them.
    """
    definition = source.statements.get(class_name)
    if not isinstance(definition, cst.ClassDef):
        return set()
    written: set[str] = set()
    read: set[str] = set()
    (tree,) = ast.parse(code(definition).strip()).body
    for method in ast.iter_child_nodes(tree):
        if not isinstance(method, ast.FunctionDef):
            continue
        phases = observed.phases(f"{class_name}.{method.name}")
        if FORWARD in phases:
            written |= _of_self(method, ast.Store)
        if phases:
            read |= _of_self(method, ast.Load)
    unread = written - read
    return unread - _read_of_others(source) if unread else unread


def _of_self(method: ast.AST, context: type) -> set[str]:
    """The attributes of ``self`` that a method reads, as ``self.n += 1`` does, or sets."""
    found = set()
    for node in ast.walk(method):
        if isinstance(node, ast.AugAssign):
            node.target.ctx = ast.Load()
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, context):
            continue
        if ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def _read_of_others(source: Source) -> set[str]:
    """The names of attributes of other objects that a file reads."""
    others = m.findall(source.tree, m.Attribute(~m.Name("self")))
    return {one.attr.value for one in others}  # type: ignore[attr-defined]


def without(target: Any, names: set[str]) -> Any:
    """What an assignment sets, without these attributes; None where nothing is left."""
    is_name: Any = m.MatchIfTrue(names.__contains__)
    place = m.Attribute(m.Name("self"), m.Name(is_name))
    if m.matches(target, place):
        return None
    element = m.Element(place)
    if not m.findall(target, element):
        return target
    return m.replace(
        target, element, lambda one, _: one.with_changes(value=cst.Name("_"))
    )
