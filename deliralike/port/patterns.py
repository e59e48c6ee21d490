"""Matchers for pieces of source that are written as source."""

from __future__ import annotations

import dataclasses
from typing import Any

import libcst as cst
from libcst import matchers as m

_LAYOUT = ("lpar", "rpar", "comma", "semicolon", "equal", "dot")


def pattern(text: str) -> Any:
    """A matcher for an expression or a simple statement.

    A name in capitals stands for any expression, which ``m.extract`` gives by that name; ``...``
    stands for any arguments.
    """
    try:
        return _matcher(cst.parse_expression(text))
    except cst.ParserSyntaxError:
        line: Any = cst.parse_statement(text)
        return _matcher(line.body[0])


def _matcher(node: Any) -> Any:
    if isinstance(node, cst.Name) and node.value.isupper():
        return m.SaveMatchedNode(m.DoNotCare(), node.value)
    if isinstance(node, cst.Arg) and isinstance(node.value, cst.Ellipsis):
        return m.ZeroOrMore()
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name in _LAYOUT or field.name.startswith("whitespace"):
            continue
        if isinstance(value, (list, tuple)):
            parts[field.name] = [*map(_matcher, value)]
        elif isinstance(value, cst.CSTNode):
            parts[field.name] = _matcher(value)
        elif value:
            parts[field.name] = value
    return getattr(m, type(node).__name__)(**parts)
