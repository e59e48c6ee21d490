"""Attributes that a network sets for people to look at, such as its last weights of attention."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import OF_SELF
from deliralike.port.observing import FORWARD, Observed
from deliralike.port.resolving import Source


def reported(source: Source, observed: Observed, definition: Any) -> set[str]:
    """The attributes that methods of a class set while it runs, and that nothing reads there.

    A compiled program forgets them.
    """
    written: set[str] = set()
    read: set[str] = set()
    for method in definition.body.body:
        if not isinstance(method, cst.FunctionDef):
            continue
        phases = observed.phases(f"{definition.name.value}.{method.name.value}")
        targets = m.findall(method, m.AssignTarget())
        stored = {one for target in targets for one in _of_self(target)}
        if FORWARD in phases:
            written |= {one.attr.value for one in stored}
        if phases:
            read |= {one.attr.value for one in _of_self(method) if one not in stored}
    unread = written - read
    if unread:  # here; other objects may read it
        others: Any = m.findall(source.tree, m.Attribute(~m.Name("self")))
        unread -= {one.attr.value for one in others}
    return unread


def _of_self(node: cst.CSTNode) -> list[Any]:
    return list(m.findall(node, OF_SELF))


def as_local(target: Any, names: set[str]) -> Any:
    """What an assignment sets, these attributes as local names: ``self.attn`` is ``_attn``."""
    is_name: Any = m.MatchIfTrue(names.__contains__)
    place = m.Attribute(m.Name("self"), m.Name(is_name))
    if m.matches(target, place):
        return cst.Name(f"_{target.attr.value}")
    return m.replace(target, m.Element(place), _with_local_name)


def _with_local_name(element: Any, _: Any) -> Any:
    return element.with_changes(value=cst.Name(f"_{element.value.attr.value}"))
