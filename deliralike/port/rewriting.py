"""The rewriting of one definition: a class, a function, or an assignment of a module."""

from __future__ import annotations

from inspect import isclass, isfunction
from types import ModuleType
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import NN, Call, NeedsHand, arguments, code, joined
from deliralike.port.definitions import Definitions
from deliralike.port.observing import Value
from deliralike.port.resolving import MISSING


class Rewriter(Definitions):
    """Puts the names of `nn` in the place of a framework's."""

    # Names
    # ---------------------------------------------------------------------------------------------

    def leave_Name(self, original: cst.Name, updated: cst.Name) -> cst.BaseExpression:
        return self._reference(original, updated)

    def leave_Attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        known = self._known_attribute(original)
        if known is not None:
            return cst.parse_expression(known)
        referred = self._reference(original, updated)
        if referred is not updated or self.in_construction:
            return referred
        value = self.observed.value(self.source.end(original))
        why = self.table.UNLIKE_ATTRIBUTES.get(original.attr.value)
        if why is not None and value is not None and value.kind == "network":
            self.program.needs_hand(self.where(original), f"{original.attr.value}: {why}")
        written = self.table.ATTRIBUTES.get(original.attr.value)
        if value is None or not value.is_array or written is None:
            return updated
        return cst.parse_expression(written(code(updated.value)))

    def _known_attribute(self, original: cst.Attribute) -> str | None:
        owner = self.source.meaning(original.value)
        return None if owner is MISSING else self.table.attribute_of(owner, original.attr.value)

    def _reference(self, original: Any, updated: cst.BaseExpression) -> cst.BaseExpression:
        """What stands for a global name, or for names joined by dots."""
        meaning = self.source.meaning(original)
        if meaning is MISSING:
            return updated
        name = self.table.name_of(meaning)
        if name is not None:
            return self._framework(self.table.CLASSES.get(name, name), updated)
        is_definition = isclass(meaning) or isfunction(meaning)
        if is_definition and self.program.is_own(meaning.__module__):
            return cst.Name(self.program.need(meaning))
        if not isinstance(original, cst.Name):
            return updated
        home = self.program.home(self.source, original.value)
        if home is not None and not isinstance(meaning, ModuleType):
            return cst.Name(self.program.need_name(*home))
        self.program.add_import(self.source, original.value)
        return updated

    def _framework(self, name: str, updated: cst.BaseExpression) -> cst.BaseExpression:
        if name in self.table.BASES:
            return cst.Name(self.table.BASES[name])
        # The call around it says what else stands for it.
        return cst.parse_expression(f"{NN}.{name}") if self._has(name) else updated

    def _has(self, name: str) -> bool:
        """Whether `nn` has what the framework has by this name."""
        return self.program.has(name) and self.table.has_same_meaning(name)

    # Calls
    # ---------------------------------------------------------------------------------------------

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        updated = self._without_placement(original, updated)
        try:
            return self._call(original, updated)
        except NeedsHand as reason:
            self.program.needs_hand(self.where(original), str(reason))
            return cst.parse_expression(reason.instead) if reason.instead else updated

    def _without_placement(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Leave out ``**options`` of device and type, and these as they are handed on."""
        kept = []
        for old, new in zip(original.args, updated.args, strict=True):
            value = self.observed.value(self.source.end(old.value)) if old.star == "**" else None
            name = old.keyword.value if old.keyword else ""
            is_handed_on = name in self.table.DROPPED and code(old.value) == name
            if not is_handed_on and (value is None or value.kind != "placement"):
                kept.append(new)
        return (
            updated if len(kept) == len(updated.args) else updated.with_changes(args=_ended(kept))
        )

    def _call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        func: Any = original.func
        name = self.table.name_of(self.source.meaning(func))
        if name is not None:
            return self._function(name, original, updated)
        updated = self._flattening(original, self._with_sizes(original, updated))
        if self._asks_for_array(original):  # arrays have other classes elsewhere
            return self._parsed(f'hasattr({code(updated.args[0].value)}, "shape")')
        value = self.observed.value(self.source.end(func))
        if value is None or not isinstance(updated.func, cst.Attribute):
            return updated
        owner = code(updated.func.value)
        call = self._seen(func.attr.value, original, updated, owner, value)
        if value.is_array:
            return self._method(call, updated)
        if value.kind == "shape" and call.name == "numel":
            return self._parsed(f"math.prod({owner})")
        is_setter = call.name in self.table.SETTERS and not (
            value.kind == "container" and call.name == "add_module"
        )
        if value.kind in ("network", "container") and is_setter:
            return self._parsed(self.table.SETTERS[call.name](call))
        return updated

    def _asks_for_array(self, call: cst.Call) -> bool:
        if not m.matches(call, m.Call(m.Name("isinstance"), [m.Arg(), m.Arg()])):
            return False
        return self.table.name_of(self.source.meaning(call.args[1].value)) == "Tensor"

    def _seen(
        self,
        name: str,
        original: cst.Call,
        updated: cst.Call,
        owner: str = "",
        value: Value | None = None,
    ) -> Call:
        args, kwargs = arguments(updated.args)
        single = self.observed.value(self.source.end(original)) if len(args) == 1 else None
        axes = self.program.observation.axes
        made = [
            (one, axes.get(id(one), 0)) for one in self.observed.made[self.source.end(original)]
        ]
        return Call(name, args, kwargs, owner, value, single, made, self.by_instance, self._like)

    def _flattening(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Flatten the input of a layer that does so itself."""
        place = self.source.end(original)
        callee, value = self.observed.callee(place), self.observed.value(place)
        if callee is None or callee.kind != "flattening" or value is None or value.ndim == 2:
            return updated
        flat = cst.parse_expression(f"{NN}.flatten({code(updated.args[0].value)}, 1)")
        return updated.with_changes(args=[cst.Arg(flat)])

    def _with_sizes(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Add the arguments that tell an instance of its sizes."""
        cls = self.source.meaning(original.func)
        sizes = self.program.sizes_of(cls) if isclass(cls) else {}
        made = self.observed.made[self.source.end(original)]
        args = list(updated.args)
        for name, values in sizes.items():
            found = [(one, size) for one in made for size in _sizes_in(self.table, one, values)]
            value = cst.parse_expression(self.by_instance(name, found))
            args.append(cst.Arg(value, keyword=cst.Name(name), equal=_EQUAL))
        return updated.with_changes(args=args) if sizes else updated

    def _like(self) -> str:
        if self.functions and self.functions[-1].arrays:
            return self.functions[-1].arrays[0]
        raise NeedsHand("an array whose type and device it takes: like=x")

    def _function(self, name: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        if name in self.table.WITHOUT_EFFECT:
            return cst.Name("False")
        call = self._seen(name, original, updated)
        if name == "Parameter":
            return self._parsed(self.table.parameter(call, updated.args[0].value))
        if name in self.table.DRAWING:
            return self._parsed(self.layer_for(name, call))
        is_layer = isclass(self.source.meaning(original.func)) and self._has(name)
        is_in_both = name in self.table.IN_BOTH
        if self.in_construction and not is_layer and not is_in_both:
            return self._parsed(self.table.in_numpy(call))
        if name in self.table.FUNCTIONS and not is_layer:
            return self._parsed(self.table.FUNCTIONS[name](call))
        name = self.table.CLASSES.get(name, name)
        if not self._has(name):
            raise NeedsHand(f"there is no {name} in nn")
        return updated.with_changes(
            func=cst.parse_expression(f"{NN}.{name}"), args=self._kept(updated.args)
        )

    def _kept(self, args: Any) -> list[cst.Arg]:
        """Arguments, without those that say where memory lies; arrays are given by position."""
        names = [one.keyword.value if one.keyword else "" for one in args]
        kept = [
            cst.Arg(one.value, comma=one.comma) if name in ("input", "tensors") else one
            for one, name in zip(args, names, strict=True)
            if name not in self.table.DROPPED
        ]
        return kept if len(kept) == len(args) else _ended(kept)

    def _method(self, call: Call, updated: cst.Call) -> cst.BaseExpression:
        if self.in_construction:
            written = self.table.NUMPY_METHODS.get(call.name)
            return updated if written is None else self._parsed(written(call))
        if call.name in self.table.METHODS:
            return self._parsed(self.table.METHODS[call.name](call))
        name = call.name.removesuffix("_")
        if self._has(name):
            return self._parsed(self.table.plain(call.called(name)))
        raise NeedsHand(f"there is no {call.name} of arrays in nn")

    def _parsed(self, text: str) -> cst.BaseExpression:
        for prefix, line in self.table.IMPORTS.items():
            if prefix in text:
                self.program.lines.add(line)
        try:
            return cst.parse_expression(text)
        except cst.ParserSyntaxError:
            raise NeedsHand(f"a call whose arguments could not be read: {text}") from None

    # Statements
    # ---------------------------------------------------------------------------------------------

    def on_leave(self, original: Any, updated: Any) -> Any:
        """Leave out statements that only set start values."""
        statements = (cst.SimpleStatementLine, cst.For, cst.If, cst.With)
        if self.functions and isinstance(original, statements) and self.start_code.is_all(original):
            self.program.leave_out(self.source, original, "start values")
            return cst.RemoveFromParent()
        return super().on_leave(original, updated)

    def leave_SimpleStatementLine(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        if not updated.body:
            return cst.RemoveFromParent()
        first: Any = original.body[0]
        if m.matches(first, m.Expr(m.Call())):
            name = self.table.name_of(self.source.meaning(first.value.func))
            if name in self.table.WITHOUT_EFFECT:
                return cst.RemoveFromParent()
        named = self._members_set(updated)
        return self._attribute_set(updated) if named is None else named

    def _members_set(self, updated: cst.SimpleStatementLine) -> Any:
        """``super().__init__(fc=layer)`` is ``super().__init__()`` and ``self.fc = layer``."""
        first: Any = updated.body[0]
        call = m.Call(m.Attribute(m.Call(m.Name("super")), m.Name("__init__")))
        is_named = m.matches(first, m.Expr(call)) and all(one.keyword for one in first.value.args)
        if not self.table.NAMES_MEMBERS or not is_named or not first.value.args:
            return None
        begun = updated.with_changes(body=[cst.Expr(first.value.with_changes(args=[]))])
        lines = [f"self.{one.keyword.value} = {code(one.value)}" for one in first.value.args]
        return cst.FlattenSentinel([begun, *map(cst.parse_statement, lines)])

    def _attribute_set(self, updated: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
        """``setattr(self, "name", value)`` is ``self.name = value``."""
        named = [m.Arg(), m.Arg(m.SimpleString()), m.Arg()]
        first: Any = updated.body[0]
        if not m.matches(first, m.Expr(m.Call(m.Name("setattr"), named))):
            return updated
        owner, name, value = (code(one.value) for one in first.value.args)
        assigned = cst.parse_statement(f"{owner}.{name[1:-1]} = {value}")
        return updated.with_changes(body=assigned.body)

    def leave_With(self, original: cst.With, updated: cst.With) -> Any:
        """Contexts of the framework that do not change what is computed are left out."""
        names = []
        for item in original.items:
            called: Any = item.item.func if isinstance(item.item, cst.Call) else item.item
            if isinstance(called, cst.Attribute) and called.attr.value in self.table.SCOPES:
                return cst.FlattenSentinel(updated.body.body)
            names.append(self.table.name_of(self.source.meaning(called)) or "")
        if not all(name.startswith(self.table.TRANSPARENT) for name in names):
            return updated
        self.program.leave_out(self.source, original.items[0], "a context of the framework")
        return cst.FlattenSentinel(updated.body.body)

    def leave_AugAssign(
        self, original: cst.AugAssign, updated: cst.AugAssign
    ) -> cst.BaseSmallStatement:
        """``x += y`` is ``x = x + y``: arrays of others are not written over."""
        value = self.observed.target(self.source.begin(original))
        if value is None or not value.is_array or self.in_construction:
            return updated
        operator = getattr(cst, type(original.operator).__name__.removesuffix("Assign"))()
        made = cst.BinaryOperation(updated.target, operator, _in_brackets(updated.value, operator))
        if isinstance(updated.target, cst.Subscript):
            return _written_into(updated.target, made)
        return cst.Assign([cst.AssignTarget(updated.target)], made)

    def leave_Assign(self, original: cst.Assign, updated: cst.Assign) -> cst.BaseSmallStatement:
        target: Any = updated.targets[0].target
        value = self.observed.target(self.source.begin(original))
        if value is not None and value.is_array and not self.in_construction:
            return _written_into(target, updated.value)
        is_own = m.matches(target, m.Attribute(m.Name("self"))) and self.functions
        cls = vars(self.source.module).get(self.class_name)
        if is_own and self.program.is_member(cls, target.attr.value):
            text = f'self.add_module("{target.attr.value}", {code(updated.value)})'
            return cst.Expr(cst.parse_expression(text))
        return updated


_NO_SPACE = cst.SimpleWhitespace("")
_EQUAL = cst.AssignEqual(_NO_SPACE, _NO_SPACE)


def _sizes_in(table: Any, network: Any, values: Any) -> set[Any]:
    """The sizes of the layers in a network."""
    layers = {id(layer) for layer in table.blocks(network)}
    return {size for layer, size in values if id(layer) in layers}


def _ended(args: list[cst.Arg]) -> list[cst.Arg]:
    """Arguments without a comma behind the last."""
    return [*args[:-1], *(one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in args[-1:])]


def _written_into(target: Any, value: cst.BaseExpression) -> cst.Assign:
    """``x[i] = y`` is ``x = nn.set_at(x, i, y)``."""
    index = [_as_index(one) for one in target.slice]
    position = index[0] if len(index) == 1 else f"({', '.join(index)})"
    text = f"{NN}.set_at({code(target.value)}, {position}, {code(value)})"
    return cst.Assign([cst.AssignTarget(target.value)], cst.parse_expression(text))


def _as_index(element: cst.SubscriptElement) -> str:
    """The source of an index, ``slice(1, 2)`` for ``1:2``."""
    one: Any = element.slice
    if isinstance(one, cst.Index):
        return code(one.value)
    parts = ["None" if part is None else code(part) for part in (one.lower, one.upper, one.step)]
    return f"slice({joined(parts[: 3 if one.step else 2], {})})"


_BINDS_CLOSER = m.BinaryOperation(
    operator=m.Multiply() | m.Divide() | m.MatrixMultiply() | m.FloorDivide() | m.Power()
)


def _in_brackets(node: cst.BaseExpression, operator: cst.BaseBinaryOp) -> cst.BaseExpression:
    """The right side of an operator."""
    is_sum = isinstance(operator, (cst.Add, cst.Subtract))
    is_one = isinstance(node, (cst.Name, cst.Call, cst.Attribute, cst.Subscript, cst.BaseNumber))
    if is_one or node.lpar or (is_sum and m.matches(node, _BINDS_CLOSER)):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
