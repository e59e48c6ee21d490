"""Gradients that are stopped."""

from __future__ import annotations

from typing import Any

import libcst as cst

from deliralike.port.calls import NN, call_of_nn, code
from deliralike.port.names import NameRewriter


class GradientRewriter(NameRewriter):
    """The part of the `Rewriter` that deals with what is not differentiated."""

    detached = 0  # blocks around the code in which gradients are stopped

    def visit_With(self, node: cst.With) -> None:
        if self._stops_gradients(node):
            self.detached += 1

    def _stops_gradients(self, node: cst.With) -> bool:
        """Whether what is computed within it has no gradient."""
        called = [getattr(one.item, "func", None) for one in node.items]
        names = [self.name_of(one) for one in called if one is not None]
        stops = any(name in self.framework.stops_gradients for name in names)
        return stops and not self.in_construction

    def leave_Return(self, original: cst.Return, updated: cst.Return) -> cst.Return:
        if original.value is None:
            return updated
        value = self._without_gradient(original.value, updated.value)
        return updated.with_changes(value=value)

    def _without_gradient(self, original: Any, value: Any) -> Any:
        """The value of an assignment, or what is returned, where gradients are stopped."""
        function = self.functions[-1] if self.functions else None
        is_detached = function is not None and function.is_detached
        if not (self.detached or is_detached) or not self._is_floating(original):
            return value
        text = code(value)
        if text.startswith(f"{NN}.detach("):
            return value
        return cst.parse_expression(call_of_nn("detach", text))

    def _is_floating(self, node: Any) -> bool:
        """Whether an expression is known to give an array of floating numbers."""
        if isinstance(node, cst.BinaryOperation):
            return self._is_floating(node.left) or self._is_floating(node.right)
        if isinstance(node, cst.UnaryOperation):
            return self._is_floating(node.expression)
        if isinstance(node, cst.Name):
            return node.value in self.functions[-1].arrays
        return self.value_of("results", node).is_floating
