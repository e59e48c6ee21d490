"""Buffers that a constructor writes into once it has registered them."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import NN, OF_SELF, call_of_nn, code, with_statements
from deliralike.port.patterns import pattern

_BUFFER = m.SimpleStatementLine([pattern(f"self.NAME = {NN}.Buffer(ARRAY)")])
_WRITTEN = m.SaveMatchedNode(OF_SELF, "written")
_WRITES = m.AssignTarget(m.Subscript(_WRITTEN)) | m.AugAssign(
    _WRITTEN | m.Subscript(_WRITTEN)
)
#: What a method that writes over an array of NumPy is as a statement. ``{a}`` is its argument;
#: ``{settings}`` are up to two of them, by position.
IN_PLACE = {
    "uniform_": "{x}[...] = np.random.uniform({settings}size={x}.shape)",
    "normal_": "{x}[...] = np.random.normal({settings}size={x}.shape)",
    "fill_": "{x}[...] = {a}",
    "zero_": "{x}[...] = 0",
    "copy_": "{x}[...] = {a}",
    "add_": "{x} += {a}",
    "sub_": "{x} -= {a}",
    "mul_": "{x} *= {a}",
    "div_": "{x} /= {a}",
}


def registered_last(function: cst.FunctionDef) -> cst.FunctionDef:
    """A constructor in which arrays are written before they are buffers.

    ``self.mask = nn.Buffer(x)`` and ``self.mask[0] = 1`` are ``mask = x``, ``mask[0] = 1`` and
    ``self.mask = nn.Buffer(mask)``.
    """
    before: Any = function.body.body
    lines = list(before)
    for at, line in enumerate(before):
        if m.matches(line, _BUFFER):
            name = line.body[0].targets[0].target.attr.value
            if any(name in _written(one) for one in lines[at + 1 :]):
                lines = _written_first(lines, at, name)
    return with_statements(function, lines)


def _written(line: cst.CSTNode) -> set[str]:
    """The attributes that a statement writes into."""
    found: Any = m.extractall(line, _WRITES)
    return {one["written"].attr.value for one in found}


def _written_first(lines: list[Any], at: int, name: str) -> list[Any]:
    """The lines with an array, which is a buffer at their end."""
    array = code(lines[at].body[0].value.args[0].value)
    first = cst.parse_statement(f"{name} = {array}")
    attribute = m.Attribute(m.Name("self"), m.Name(name))
    after = [m.replace(one, attribute, cst.Name(name)) for one in lines[at + 1 :]]
    last = cst.parse_statement(f"self.{name} = {call_of_nn('Buffer', name)}")
    return [*lines[:at], first, *after, last]
