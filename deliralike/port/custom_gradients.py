"""Functions whose gradient is written beside them: what they compute is ported."""

from __future__ import annotations

import re
from typing import Any

import libcst as cst
from libcst import matchers as m


def name_of_function(class_name: str) -> str:
    """The name of a function in the place of a class: ``SwishFunction`` is ``swish_function``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()


def plain_function(forward: cst.FunctionDef) -> cst.FunctionDef:
    """``forward(ctx, x)`` as a function of ``x``, which keeps nothing in ``ctx``."""
    context, *others = forward.params.params
    without: Any = forward.visit(_WithoutContext(context.name.value))
    params = without.params.with_changes(params=others)
    return without.with_changes(params=params, decorators=[])


class _WithoutContext(cst.CSTTransformer):
    """Leaves out statements that only keep something for the gradient."""

    def __init__(self, context: str) -> None:
        super().__init__()
        kept = m.Attribute(m.Name(context))
        called, assigned = m.Expr(m.Call(kept)), m.Assign([m.AssignTarget(kept)])
        self._keeps = m.SimpleStatementLine([called | assigned])

    def leave_SimpleStatementLine(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> Any:
        is_kept = m.matches(updated, self._keeps)
        return cst.RemoveFromParent() if is_kept else updated
