"""Statements: arrays that are written over become new ones, contexts without effect go."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.buffers import IN_PLACE
from deliralike.port.calls import (
    NN,
    NO_COMMA,
    OF_SELF,
    Call,
    NeedsHand,
    arguments,
    call_of_nn,
    code,
    in_brackets,
    joined,
    statements_in,
)
from deliralike.port.names import NameRewriter
from deliralike.port.patterns import pattern
from deliralike.port.reported import as_local
from deliralike.port.values import NETWORKS, Value

_CALL_OF_SUPER = m.Expr(pattern("super(...).__init__(...)"))
_SETS_BY_NAME = m.Expr(pattern("setattr(OWNER, NAME, VALUE)"))
_DATA = pattern("ARRAY.data")
_GRADIENT_MODE = "gradients that a setting stops: y = y if trained else nn.detach(y)"
_ONE_ELEMENT = pattern("ARRAY[INDEX]")
_NAMES_MEMBER = m.Assign([m.AssignTarget(m.Name())], OF_SELF)
_KEEPS_FUNCTION = m.Assign([m.AssignTarget(OF_SELF)], m.Lambda())
_MEMBER = m.Arg(OF_SELF)
_MEMBERS_TWICE = (
    "members of a list that are attributes, too, which have one name here: self[0]"
)
_BY_MASK = (
    "the elements of a mask, whose number is open: x = nn.where(mask, ..., x), in which every "
    "array is as large as x"
)
_COPIES = pattern("ARRAY.copy_(...)")


class StatementRewriter(NameRewriter):
    """The part of the `Rewriter` that deals with statements."""

    detached = 0  # blocks around the code in which gradients are stopped

    def leave_SimpleStatementLine(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> Any:
        if not updated.body:
            return cst.RemoveFromParent()
        if len(updated.body) < len(original.body):
            *before, last = updated.body
            last = last.with_changes(semicolon=NO_COMMA)
            updated = updated.with_changes(body=[*before, last])
        statement: Any = updated.body[0]
        if m.matches(statement, _CALL_OF_SUPER):
            link = self._link_below()
            if link is not None:
                return self._with_arguments_of(link, updated, statement.value)
            if self.framework.lists_members(self.cls):
                if m.findall(statement.value, _MEMBER):
                    self.program.needs_hand(self.where(original), _MEMBERS_TWICE)
                return _with_members_listed(updated, statement.value)
            if self.framework.hands_members_by_name:
                return _with_members_set(updated, statement.value)
        if m.matches(statement, _SETS_BY_NAME):
            owner, name, value = (code(one.value) for one in statement.value.args)
            if name[1:-1].isidentifier() and name[0] in "\"'":
                assigned: Any = cst.parse_statement(f"{owner}.{name[1:-1]} = {value}")
                return _with_first(updated, assigned.body[0])
        return updated

    def _link_below(self) -> str | None:
        """The name of the framework's link that the class is based on, or None."""
        for base in getattr(self.cls, "__mro__", ())[1:]:
            name: str | None = self.framework.name_of(base)
            if name in self.framework.link_bases:
                return name
        return None

    def _with_arguments_of(
        self, link: str, line: cst.SimpleStatementLine, call: cst.Call
    ) -> Any:
        """``super().__init__(...)`` with the arguments of the layer in the link's place."""
        axes = self.original.observation.axes
        blocks = self.original.blocks_of(self.cls)
        given = Call(
            link,
            *arguments(call.args),
            returned=[(one, axes.get(id(one), 0)) for one in blocks],
        )
        try:
            text = f"{code(call.func)}({self.framework.arguments_of_base(given)})"
        except NeedsHand as reason:
            self.program.needs_hand(self.where(call), str(reason))
            return line
        return _with_first(line, cst.Expr(cst.parse_expression(text)))

    def leave_With(self, original: cst.With, updated: cst.With) -> Any:
        """Contexts of the framework that do not change what is computed are left out."""
        if self._stops_gradients(original):
            self.detached -= 1
        for item in original.items:
            called: Any = item.item
            if isinstance(called, cst.Call):
                called = called.func
            is_method = isinstance(called, cst.Attribute)
            if is_method and called.attr.value in self.framework.scopes:
                return cst.FlattenSentinel(statements_in(updated.body))
            name = self.name_of(called) or ""
            if name in self.framework.without_effect:
                self.program.needs_hand(self.where(item), _GRADIENT_MODE)
            if not name.startswith(self.framework.transparent):
                return updated
        self.left_out(original.items[0], "a context of the framework")
        return cst.FlattenSentinel(statements_in(updated.body))

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

    # Arrays that are written over
    # ---------------------------------------------------------------------------------------------

    def leave_Expr(self, original: cst.Expr, updated: cst.Expr) -> Any:
        """``x.mul_(y)`` is ``x = nn.mul(x, y)``: arrays of others are not written over."""
        owner: Any = original.value
        target: Any = updated.value
        if self.in_construction:
            return self._in_place(owner, updated)
        name = self.name_of(getattr(owner, "func", None)) or ""
        if name.endswith("_") and "." not in name and owner.args:  # F.relu_(x)
            return self._assigned(target.args[0].value, target)
        if m.matches(owner, _COPIES) and self._writes_over(owner.func):
            place = owner.func.value
            is_data = m.matches(place, _DATA)
            return self._assigned(place.value if is_data else place, target)
        while isinstance(owner, cst.Call):  # of one behind the other, the first one's
            if not self._writes_over(owner.func):
                return updated
            owner, target = owner.func.value, target.args[0].value  # type: ignore[attr-defined]
        if target is updated.value:
            return updated
        return self._assigned(target, updated.value)

    def _in_place(self, call: Any, updated: cst.Expr) -> Any:
        """``mask.fill_(1)`` of an array that NumPy makes is ``mask[...] = 1``."""
        func: Any = getattr(call, "func", None)
        if not isinstance(func, cst.Attribute) or not func.attr.value.endswith("_"):
            return updated
        if self.value_of("values", func).kind != "array":
            return updated
        written: Any = updated.value
        name, array = func.attr.value, written.func.value
        args, kwargs = arguments(written.args)
        is_chain = isinstance(func.value, cst.Call)
        is_plain = len(args) < 2 and not kwargs and not is_chain
        if name not in IN_PLACE or not is_plain:
            reason = f"{name} while the network is created: x[...] = ... of NumPy"
            self.program.needs_hand(self.where(call), reason)
            return updated
        text = IN_PLACE[name].format(x=code(array), a=joined(args))
        line: Any = cst.parse_statement(text)
        return line.body[0]

    def _writes_over(self, method: Any) -> bool:
        """Whether a method writes over the array that it belongs to."""
        if not isinstance(method, cst.Attribute) or self.in_construction:
            return False
        is_array, name = self.value_of("values", method).is_array, method.attr.value
        return is_array and name.endswith("_") and name != "requires_grad_"

    def _is_array_written(self, statement: cst.CSTNode) -> bool:
        """Whether an assignment writes over an array."""
        return self._target_of(statement).is_array and not self.in_construction

    def _target_of(self, statement: cst.CSTNode) -> Value:
        """What an assignment writes over."""
        return self.observed.value("targets", self.source.begin(statement))

    def leave_AugAssign(
        self, original: cst.AugAssign, updated: cst.AugAssign
    ) -> cst.BaseSmallStatement:
        """``x += y`` is ``x = x + y``: arrays of others are not written over."""
        if not self._is_array_written(original):
            return updated
        name = type(original.operator).__name__.removesuffix("Assign")
        operator = getattr(cst, name)()
        right = updated.value
        if not _is_product_in_sum(right, operator):
            right = in_brackets(right)
        value = cst.BinaryOperation(updated.target, operator, right)
        return self._written_over(original, original.target, updated.target, value)

    def leave_Assign(
        self, original: cst.Assign, updated: cst.Assign
    ) -> cst.BaseSmallStatement:
        target: Any = updated.targets[0].target
        called = self.name_of(getattr(original.value, "func", None))
        if called in self.framework.devices:
            return self.left_out(original, "a device")  # type: ignore[return-value]
        value = self._without_gradient(original.value, updated.value)
        updated = updated.with_changes(value=value)
        if self._is_array_written(original):
            place = original.targets[0].target
            return self._written_over(original, place, target, value)
        if self._is_forward_of_network() and len(updated.targets) == 1:
            local = as_local(target, self.reported)
            if code(local) != code(target):
                why = f"{code(target)}: an attribute that nothing reads is a local name"
                self.program.specialise(self.where(original), why)
                return updated.with_changes(targets=[cst.AssignTarget(local)])
        if self.in_construction and m.matches(original, _NAMES_MEMBER):
            self.local_names[target.value] = code(updated.value)
        if self._keeps_layers(original):
            return self._as_method(target.attr.value, updated.value)  # type: ignore[return-value]
        is_attribute = m.matches(target, OF_SELF) and self.functions
        if is_attribute and self.original.is_member(self.cls, target.attr.value):
            text = f'self.add_module("{target.attr.value}", {code(updated.value)})'
            return cst.Expr(cst.parse_expression(text))
        return updated

    def _keeps_layers(self, statement: cst.Assign) -> bool:
        """Whether a function that calls layers becomes an attribute, whatever the arguments are."""
        block = self.source.parents[self.source.parents[statement]]
        is_of_function = isinstance(self.source.parents.get(block), cst.FunctionDef)
        if not is_of_function or not m.matches(statement, _KEEPS_FUNCTION):
            return False
        calls: Any = m.findall(statement.value, m.Call())
        kinds = [self.value_of("called", call.func).kind for call in calls]
        return self.in_construction and bool({*kinds} & {*NETWORKS})

    def _as_method(self, name: str, function: Any) -> cst.RemovalSentinel:
        """``m = self.mlp`` and ``self.f = lambda x: m.act(m.fc(x))`` are a method ``f``.

        On JAX a function would go on with the layers that it was created with.
        """
        for local, member in self.local_names.items():
            function = m.replace(function, m.Name(local), cst.parse_expression(member))
        text = f"def {name}(self, {code(function.params)}):\n    return {code(function.body)}\n"
        self.methods.append(cst.parse_statement(text))
        return cst.RemoveFromParent()

    def _assigned(self, target: Any, value: cst.BaseExpression) -> cst.Assign:
        """``x = y``; ``x = nn.set_at(x, i, y)`` for ``x[i] = y``."""
        if isinstance(target, cst.Subscript):
            index = code(target).removeprefix(code(target.value))
            position = f"np.s_{index}"
            if m.matches(target, _ONE_ELEMENT):
                position = index[1:-1]
            text = call_of_nn("set_at", code(target.value), position, code(value))
            target, value = target.value, self.parsed(text)
        return cst.Assign([cst.AssignTarget(target)], value)

    def _written_over(
        self, statement: cst.CSTNode, original: Any, target: Any, value: Any
    ) -> cst.Assign:
        """``x = nn.where(mask, y, x)`` for ``x[mask] = y[mask]``, of which the size is open."""
        keys = self.observed.objects["keys"][self.source.end(original)]
        known = [self.framework.describe(key) for key in keys]
        if all(key.dtype != "bool" for key in known):
            return self._assigned(target, value)
        x = code(target.value)
        index = code(target).removeprefix(x)

        def whole(node: Any, _: Any) -> Any:
            return node.value if code(node) == code(node.value) + index else node

        found: Any = m.replace(value, m.Subscript(), whole)
        is_masked = not found.deep_equals(value)
        lacking = self._target_of(statement).ndim - known[0].ndim
        if not (is_masked or lacking):
            return self._assigned(target, value)
        if is_masked and m.findall(value, m.Call()):
            self.program.needs_hand(self.where(original), _BY_MASK)
        mask = index[1:-1]
        if lacking:
            brackets = in_brackets(cst.parse_expression(mask))
            mask = f"{code(brackets)}[...{', None' * lacking}]"
        text = call_of_nn("where", mask, code(found), x)
        return cst.Assign([cst.AssignTarget(target.value)], self.parsed(text))

    # Attributes that nothing reads
    # ---------------------------------------------------------------------------------------------

    def _is_forward_of_network(self) -> bool:
        is_method = bool(self.functions) and not self.in_construction
        return is_method and self.original.is_network(self.cls)


def _with_members_set(line: cst.SimpleStatementLine, call: cst.Call) -> Any:
    """``super().__init__(fc=layer)`` is ``super().__init__()`` and ``self.fc = layer``."""
    if not all(one.keyword or one.star == "**" for one in call.args):
        return line
    first = cst.Expr(call.with_changes(args=[]))
    lines: list[Any] = [line.with_changes(body=[first])]
    for one in call.args:
        value = code(one.value)
        if one.keyword:
            text = f"self.{one.keyword.value} = {value}"
        else:
            text = (
                f"for name, link in {value}.items():\n    setattr(self, name, link)\n"
            )
        lines.append(cst.parse_statement(text))
    lines += [cst.SimpleStatementLine([one]) for one in line.body[1:]]
    return cst.FlattenSentinel(lines)


def _with_members_listed(line: cst.SimpleStatementLine, call: cst.Call) -> Any:
    """``super().__init__(a, b)`` of a list is ``super().__init__([a, b])``."""
    if not call.args:
        return line
    members = f"[{joined(arguments(call.args)[0])}]"
    listed = call.with_changes(args=[cst.Arg(cst.parse_expression(members))])
    return _with_first(line, cst.Expr(listed))


def _with_first(line: cst.SimpleStatementLine, statement: Any) -> Any:
    """A line with another statement in the place of its first."""
    return line.with_changes(body=[statement, *line.body[1:]])


_PRODUCT = m.BinaryOperation(
    operator=m.OneOf(
        m.Multiply(), m.Divide(), m.MatrixMultiply(), m.FloorDivide(), m.Power()
    )
)


def _is_product_in_sum(node: cst.BaseExpression, operator: cst.BaseBinaryOp) -> bool:
    """Whether the right side of an operator binds closer than that."""
    return isinstance(operator, (cst.Add, cst.Subtract)) and m.matches(node, _PRODUCT)
