"""Copies of a network's modules around other variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from deliralike.backends.jax.network import StaticDict, StaticList
from deliralike.backends.jax.unstable import NNX_STATE


def copy_around(
    root: Any,
    memo: dict[int, Any],
    of_variable: Callable[[nnx.Variable], Any] = lambda variable: variable,
    shares_settings: bool = True,
) -> Any:
    """A copy of a module, or of what holds modules.

    Args:
        memo: What stands in the place of which node or variable, by id; the copies made are added
            to it.
        of_variable: What takes the place of a variable that the memo lacks.
        shares_settings: Whether lists and dicts of settings are those of the module, whose changes
            the copy follows. The copy of a traced program has its own: it may put traced arrays
            there.
    """

    def visit(node: Any) -> Any:
        if id(node) in memo:
            return memo[id(node)]
        if isinstance(node, nnx.Variable):
            memo[id(node)] = of_variable(node)
            return memo[id(node)]
        if isinstance(node, nnx.Pytree):
            return visit_module(node)
        if shares_settings and isinstance(node, StaticDict | StaticList):
            return node
        if type(node) in (dict, StaticDict):
            return type(node)((name, visit(value)) for name, value in node.items())
        if type(node) in (list, tuple, StaticList):
            return type(node)(map(visit, node))
        return node

    def visit_module(node: nnx.Pytree) -> nnx.Pytree:
        copy = memo[id(node)] = object.__new__(type(node))
        for name, value in vars(node).items():
            vars(copy)[name] = visit(value)
        state = jax.tree.map(lambda leaf: leaf, vars(node)[NNX_STATE])
        vars(copy)[NNX_STATE] = state
        return copy

    return visit(root)
