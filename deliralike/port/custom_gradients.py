"""Functions whose gradient is written beside them: what they compute is ported."""

from __future__ import annotations

import re
from typing import Any

import libcst as cst
from libcst import matchers as m


def in_small_letters(class_name: str) -> str:
    """The name of a function or object for that of a class: ``swish_function``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()


def plain_function(forward: cst.FunctionDef) -> cst.FunctionDef:
    """``forward(ctx, x)`` as a function of ``x``, which keeps nothing in ``ctx``."""
    context = forward.params.params[0].name.value
    attribute = m.Attribute(m.Name(context))
    notes = m.Expr(m.Call(attribute)) | m.Assign([m.AssignTarget(attribute)])
    without: Any = m.replace(
        forward, m.SimpleStatementLine([notes]), cst.RemoveFromParent()
    )
    params = without.params.with_changes(params=without.params.params[1:])
    return without.with_changes(params=params, decorators=[])
