"""Parameters that are not trained: ``p.requires_grad = False`` of a network's parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import NN, code
from deliralike.port.patterns import pattern

_CALLS = pattern("OWNER.requires_grad_(FLAG)") | pattern("OWNER.requires_grad_()")
_SETTING = m.SimpleStatementLine(
    [pattern("OWNER.requires_grad = FLAG") | m.Expr(_CALLS)]
)
_ZIP = pattern("zip(...)")
_PARAMETERS = pattern("OWNER.parameters()") | pattern("OWNER.named_parameters()")
_SLICE = re.compile(r"\[[^\[\]]*:[^\[\]]*\]$")
_PAIR = m.Tuple([m.AtLeastN(m.Element(m.Name()), n=2)])


def frozen(loop: cst.For, is_passed_by: Callable[[Any], bool]) -> str | None:
    """``network.set_trainable("*", False)`` for a loop that does no more; or None.

    Such a loop is ``for p in network.parameters(): p.requires_grad = False``.
    """
    body: Any = loop.body
    lines = [line for line in body.body if not is_passed_by(line)]
    if len(lines) != 1 or loop.orelse is not None:
        return None
    found = setting(lines[0])
    if found is None:
        return None
    parameter, flag = found
    for target, values in _pairs(loop.target, loop.iter):
        if code(target) == parameter and m.matches(values, _PARAMETERS):
            return trainable(code(values.func.value), "*", flag)
    return None


def setting(line: Any) -> tuple[str, str] | None:
    """Whose ``requires_grad`` a statement sets, and to what; or None."""
    found: Any = m.extract(line, _SETTING)
    if found is None:
        return None
    flag = found.get("FLAG", cst.Name("True"))
    return code(found["OWNER"]), code(flag)


def trainable(owner: str, pattern: str, flag: str) -> str:
    """The source that says whether parameters of a network, or of a part of one, are trained."""
    if _SLICE.search(owner):
        owner = f"{NN}.Sequential(*{owner})"
    return f'{owner}.set_trainable("{pattern}", {flag})'


def _pairs(target: Any, values: Any) -> list[tuple[Any, Any]]:
    """Each name that a loop sets, with what it goes over."""
    if not m.matches(target, _PAIR):
        return [(target, values)]
    names = [one.value for one in target.elements]
    if m.matches(values, _ZIP):
        return list(zip(names, [one.value for one in values.args], strict=False))
    return [(names[1], values)]
