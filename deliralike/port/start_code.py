"""Statements that only set start values, or print: a port has the original's weights."""

from __future__ import annotations

import re
from inspect import isfunction
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import code

if TYPE_CHECKING:
    from deliralike.port.resolving import Source

#: What installed packages call their functions that set start values; the proof sees a mistake.
_STARTS = re.compile(
    "(.*_)?(init_weight|init_param|reset_param|initialize)|named_apply$"
)
_BLOCKS = (cst.For, cst.If, cst.With, cst.FunctionDef, cst.Else)
_SETS_A_NAME = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name() | m.Tuple())])])


class StartCode:
    """Tells which statements of a source only set start values.

    Args:
        program: The port.
        source: The module.
        class_name: The class whose methods ``self.method()`` means.
    """

    def __init__(self, program: Any, source: Source, class_name: str = "") -> None:
        self.program, self.source = program, source
        self.values = program.observation.files[source.file]
        self.cls = vars(source.module).get(class_name)

    def is_all(self, node: cst.CSTNode) -> bool:
        """Whether a statement, or a function, does nothing else."""
        if isinstance(node, _BLOCKS):
            return self._is_block(node)
        if isinstance(node, cst.SimpleStatementLine):
            return all(map(self.is_all, node.body))
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
            return self._is_call(node.value)
        if isinstance(node, (cst.Assign, cst.AugAssign)):
            target = (
                node.targets[0].target if isinstance(node, cst.Assign) else node.target
            )
            return _is_data(target) or self._makes_start_value(node.value)
        return False

    def _makes_start_value(self, value: cst.BaseExpression) -> bool:
        """Whether it is an initializer, which the port's layers do not take."""
        if not isinstance(value, cst.Call):
            return False
        name = self.program.table.name_of(self.source.meaning(value.func))
        return (name or "").startswith("init.")

    def _is_block(self, node: Any) -> bool:
        statements = list(node.body.body)
        if isinstance(node, cst.If) and node.orelse is not None:
            statements.append(node.orelse)
        drawing = [one for one in statements if self.is_all(one)]
        others = [
            one for one in statements if one not in drawing and not _is_nothing(one)
        ]
        return bool(drawing) and all(m.matches(one, _SETS_A_NAME) for one in others)

    def _is_call(self, call: cst.Call) -> bool:
        name = self.program.table.name_of(self.source.meaning(call.func)) or ""
        called = code(call.func).rpartition(".")[2]
        is_named_so = self.source.is_installed and _STARTS.match(called)
        is_idle = called in ("print", *self.program.table.IDLE_METHODS)
        if is_idle or is_named_so or name.startswith("init."):
            return True
        if not isinstance(call.func, cst.Attribute):
            own = self.source.meaning(call.func)
            return isfunction(own) and self.program.only_draws(own)
        method, owner = call.func.attr.value, code(call.func.value)
        value = self.values.one("values", self.source.end(call.func))
        if value is None:
            is_weight = owner.endswith((".data", ".weight", ".bias"))
            return method == "apply" or (method.endswith("_") and is_weight)
        if value.is_array:
            is_parameter = value.kind in ("parameter", "frozen")
            return method.endswith("_") and (is_parameter or _is_data(call.func.value))
        own = getattr(self.cls, method, None)
        return method == "apply" or (isfunction(own) and self.program.only_draws(own))


def _is_data(node: cst.BaseExpression) -> bool:
    """Whether it is the array in a parameter: ``weight.data``, ``weight.data[0]``."""
    return bool(m.findall(node, m.Attribute(attr=m.Name("data"))))


def _is_nothing(statement: cst.CSTNode) -> bool:
    """Whether a statement is a docstring or ``pass``."""
    text = m.SimpleString() | m.ConcatenatedString()
    return m.matches(
        statement, m.SimpleStatementLine([m.Expr(text) | m.Pass() | m.Continue()])
    )
