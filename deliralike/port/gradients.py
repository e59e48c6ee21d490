"""Gradients that are stopped, and parameters that are not trained."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import NN, arguments, code
from deliralike.port.freezing import frozen, setting, trainable
from deliralike.port.names import NameRewriter
from deliralike.port.patterns import pattern
from deliralike.port.values import UNKNOWN

_PRETRAINED = pattern("CLASS.from_pretrained(...)")
_KEPT = pattern("self.NAME = CLASS.from_pretrained(...)")


class GradientRewriter(NameRewriter):
    """The part of the `Rewriter` that deals with what is not differentiated."""

    detached = 0  # blocks around the code in which gradients are stopped

    # Gradients that are stopped
    # ---------------------------------------------------------------------------------------------

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
        return cst.parse_expression(f"{NN}.detach({text})")

    def _is_floating(self, node: Any) -> bool:
        """Whether an expression is known to give an array of floating numbers."""
        if isinstance(node, cst.BinaryOperation):
            return self._is_floating(node.left) or self._is_floating(node.right)
        if isinstance(node, cst.UnaryOperation):
            return self._is_floating(node.expression)
        if isinstance(node, cst.Name):
            return node.value in self.functions[-1].arrays
        return self.value_of("results", node).is_floating

    # Parameters that are not trained
    # ---------------------------------------------------------------------------------------------

    def visit_For(self, node: cst.For) -> None:
        if frozen(node, self.start_code.is_all) is not None:
            self.passed_by.add(node.iter)

    def leave_For(self, original: cst.For, updated: cst.For) -> Any:
        """Parameters that are not trained."""
        if frozen(original, self.start_code.is_all) is None:
            return updated
        text = frozen(updated, lambda _: False)
        return cst.parse_statement(text)  # type: ignore[arg-type]

    def _frozen(self, original: cst.SimpleStatementLine, updated: Any) -> Any:
        """``self.fc.weight.requires_grad = False``, ``self.fc.requires_grad_(False)``."""
        found = setting(updated)
        if setting(original) is None or found is None:  # or of an array, which it is
            return None
        owner, flag = found
        statement: Any = original.body[0]
        if not isinstance(statement, cst.Assign):
            value = self.value_of("values", statement.value.func)
            if value == UNKNOWN:
                return None
            if not value.is_array:
                return cst.parse_statement(trainable(owner, "*", flag))
        owner, _, name = owner.rpartition(".")
        if not owner:
            return None
        return cst.parse_statement(trainable(owner, name, flag))

    def _with_frozen_layer(
        self, original: Any, updated: cst.SimpleStatementLine
    ) -> Any:
        """``self.words = Embedding.from_pretrained(rows)``, which are not trained."""
        calls: Any = m.findall(original, _PRETRAINED)
        freezing = [arguments(call.args)[1].get("freeze", "True") for call in calls]
        if all(flag == "False" for flag in freezing):
            return updated
        if not m.matches(original.body[0], _KEPT):
            self.program.needs_hand(
                self.where(original),
                "an embedding that is not trained: give it an attribute",
            )
            return updated
        statement: Any = updated.body[0]
        flag = "False" if freezing == ["True"] else f"not ({freezing[0]})"
        text = trainable(code(statement.targets[0].target), "*", flag)
        return cst.FlattenSentinel([updated, cst.parse_statement(text)])
