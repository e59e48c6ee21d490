"""The rewriting of one definition: a class, a function, or an assignment of a module."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from inspect import isclass, isfunction
from types import ModuleType, NoneType
from typing import Any

import libcst as cst
import numpy as np
from libcst import matchers as m

from deliralike.port.calls import (
    NN,
    WHOLE,
    Call,
    NeedsHand,
    arguments,
    code,
    joined,
    tuple_of,
    written,
)
from deliralike.port.definitions import EQUAL, Definitions
from deliralike.port.dropping import arguments_of_drop
from deliralike.port.observing import PLAIN, Choice, Layer, Value, leaves
from deliralike.port.resolving import MISSING


class Rewriter(Definitions):
    """Puts the names of `nn` in the place of a framework's."""

    # Names
    # ---------------------------------------------------------------------------------------------

    def leave_Name(self, original: cst.Name, updated: cst.Name) -> cst.BaseExpression:
        return self._reference(original, updated)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return self._constant(node) is None

    def _constant(self, node: cst.Attribute) -> str | None:
        """The source of a text or number that an installed package's object has: ``Act.RELU``."""
        if not self.source.is_installed:
            return None
        owner, value = self.source.meaning(node.value), self.source.meaning(node)
        is_own = self.program.is_own(type(owner).__module__) and owner is not MISSING
        is_plain = isinstance(value, (str, int, float)) and not isinstance(value, Enum)
        return repr(value) if is_own and is_plain else None

    def leave_Attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        last_names = ".".join(code(original).split(".")[-2:])
        known = self.table.KNOWN_ATTRIBUTES.get(last_names) or self._constant(original)
        if known is not None:
            return cst.parse_expression(known)
        referred = self._reference(original, updated)
        if referred is not updated or self.in_construction:
            return referred
        if m.matches(original, m.Attribute(m.Name("self"))):
            if original.attr.value in self.functions[-1].caches:
                return original.attr
            unsaved = self._unsaved(original.attr.value, code(updated))
            if unsaved is not None:
                return unsaved
        value = self.observed.one("values", self.source.end(original))
        why = self.table.UNLIKE_ATTRIBUTES.get(original.attr.value)
        if why is not None and value is not None and value.kind == "network":
            self.program.needs_hand(
                self.where(original), f"{original.attr.value}: {why}"
            )
        entry = self.table.ATTRIBUTES.get(original.attr.value)
        if value is None or not value.is_array or entry is None:
            return updated
        call = Call(original.attr.value, (), {}, code(updated.value))
        return cst.parse_expression(written(entry, call))

    def _unsaved(self, name: str, text: str) -> cst.BaseExpression | None:
        """A buffer that is not saved, which the port keeps as an array of NumPy."""
        cls = vars(self.source.module).get(self.class_name)
        buffers = self.program.unsaved(cls, name) if isclass(cls) else []
        if not buffers:
            return None
        try:
            made = f"{NN}.constant({text}, like={self._like()})"
        except NeedsHand as reason:
            self.program.needs_hand(f"{self.source.file}", f"{name}: {reason}")
            return None
        may_be_none = any(one is None for one in buffers)
        return self._parsed(
            f"(None if {text} is None else {made})" if may_be_none else made
        )

    def _reference(
        self, original: Any, updated: cst.BaseExpression
    ) -> cst.BaseExpression:
        """What stands for a global name, or for names joined by dots."""
        meaning = self.source.meaning(original)
        if meaning is MISSING:
            return updated
        name = self.table.name_of(meaning)
        if name in self.table.LAYER_SOURCES:
            self.program.add_names(f"{name}(")
            return cst.Name(name)
        if name is not None:
            return self._framework(self.table.CLASSES.get(name, name), updated)
        is_definition = isclass(meaning) or isfunction(meaning)
        is_definition &= getattr(
            meaning, "__qualname__", ""
        ).isidentifier()  # of the module
        if is_definition and self._is_output(meaning):
            name = meaning.__name__
            self.program.lines.add(f"from {meaning.__module__} import {name}")
            return cst.Name(name)
        if is_definition and self.program.is_own(meaning.__module__):
            in_numpy = isfunction(meaning) and self.in_construction
            need = self.program.need_in_numpy if in_numpy else self.program.need
            return cst.Name(need(meaning))
        if not isinstance(original, cst.Name):
            return updated
        is_setting = self.source.is_installed and original.value not in self.set_names
        if is_setting and isinstance(meaning, (bool, NoneType)):
            return cst.Name(str(meaning))  # or what an import was tried for
        home = self.program.home(self.source, original.value)
        if home is not None and not isinstance(meaning, ModuleType):
            return cst.Name(self.program.need_name(*home))
        self.program.add_import(self.source, original.value)
        return updated

    def _is_output(self, cls: Any) -> bool:
        """Whether it is a dict with attributes of an installed package, for outputs."""
        return (
            self.source.is_installed
            and isclass(cls)
            and issubclass(cls, dict)
            and is_dataclass(cls)
        )

    def _framework(self, name: str, updated: cst.BaseExpression) -> cst.BaseExpression:
        if name in self.table.BASES:
            return cst.Name(self.table.BASES[name])
        # The call around it says what else stands for it.
        return cst.parse_expression(f"{NN}.{name}") if self._has(name) else updated

    def _has(self, name: str) -> bool:
        """Whether `nn` has what the framework has by this name."""
        same = self.table.SAME
        return self.program.has(name) and (same is None or name in same.split())

    # Choices
    # ---------------------------------------------------------------------------------------------

    def leave_AssignTarget(
        self, original: cst.AssignTarget, updated: cst.AssignTarget
    ) -> cst.AssignTarget:
        """What is assigned keeps its name."""
        is_name = isinstance(original.target, cst.Name)
        return original if is_name else updated

    def visit_Global(self, node: cst.Global) -> None:
        self.set_names |= {one.name.value for one in node.names}

    def visit_Expr(self, node: cst.Expr) -> None:
        self.statements.add(node.value)

    def visit_Call(self, node: cst.Call) -> bool:
        if self.program.layer_of(self.source.meaning(node.func)) is not None:
            self.passed_by.add(node.func)
        return self._choice(node) is None

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        if self._entries(node) is not None:  # what it is a table of is not ported
            self.passed_by.add(node.value)
        return self._choice(node) is None

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Pass by what is not ported: tables of choices, statements that set start values."""
        if (
            isinstance(node, _STATEMENTS)
            and self.functions
            and self.start_code.is_all(node)
        ):
            self.start_values.add(node)
        is_passed_by = node in self.passed_by or node in self.start_values
        return not is_passed_by and super().on_visit(node)

    def leave_Subscript(self, original: cst.Subscript, updated: cst.Subscript) -> Any:
        choice = self._choice(original)
        if choice is not None:
            return self._chosen(choice.value, original)
        owner = self._owner_of_members(updated.value)
        if owner is not None:
            return self._parsed(
                f"getattr({owner}, {code(updated.slice[0].slice).strip()})"
            )
        entries = self._entries(original)
        if entries is None:
            return updated
        return updated.with_changes(value=self._chosen(entries, original))

    def _owner_of_members(self, table: Any) -> str | None:
        """The network whose members a subscript gives by name, or None."""
        if isinstance(table, cst.Attribute) and table.attr.value in self.table.MEMBERS:
            return code(table.value)
        cls = vars(self.source.module).get(self.class_name)
        is_self = m.matches(table, m.Name("self"))
        return "self" if is_self and self.table.has_named_members(cls) else None

    def _entries(self, node: cst.Subscript) -> dict[Any, Any] | None:
        """What an installed package's table gave in the run, by its keys, where it was several."""
        choices = self.observed.choices(self.source.end(node))
        if not self.source.is_installed or len(choices) < 2 or None in choices.values():
            return None
        found = {key: one.value for key, one in choices.items() if one is not None}
        is_known = self._is_of_table(node) or all(map(callable, found.values()))
        return found if is_known and self._is_portable(list(found.values())) else None

    def _choice(self, node: Any) -> Choice | None:
        """The layer or function that an installed package's factory gave in the run, or None."""
        if not self.source.is_installed or not self.functions:
            return None
        found = self.observed.choice(self.source.end(node))
        if found is None or not self._is_portable(found.value):
            return None
        if callable(found.value) or isinstance(found.value, partial):
            return found
        is_flag = isinstance(found.value, (bool, NoneType)) and self._calls_own(node)
        is_flag &= node not in self.statements  # which is there for its effect
        return found if is_flag or self._is_of_table(node) else None

    def _is_of_table(self, node: Any) -> bool:
        """Whether an element of a global table is taken."""
        owner = node
        while isinstance(owner, cst.Subscript):
            owner = owner.value
        return owner is not node and isinstance(self.source.meaning(owner), dict)

    def _is_portable(self, value: Any) -> bool:
        """Whether a value can be written out."""
        return all(map(self._is_portable_leaf, leaves(value)))

    def _is_portable_leaf(self, value: Any) -> bool:
        if isinstance(value, PLAIN):
            return True
        value = value.cls if isinstance(value, Layer) else value
        name = self.table.name_of(value)
        return self.table.is_network_class(value) if name is None else self._has(name)

    def _written(self, value: Any) -> str:
        """The source of a value."""
        if isinstance(value, partial):
            words = {key: self._written(one) for key, one in value.keywords.items()}
            self.program.lines.add("from functools import partial")
            return f"partial({joined([*map(self._written, (value.func, *value.args))], words)})"
        if isinstance(value, dict):
            entries = [f"{key!r}: {self._written(one)}" for key, one in value.items()]
            return f"{{{', '.join(entries)}}}"
        if isinstance(value, (list, tuple)):
            parts = list(map(self._written, value))
            return (
                f"[{', '.join(parts)}]" if isinstance(value, list) else tuple_of(parts)
            )
        if isinstance(value, PLAIN):
            return repr(value)
        if isinstance(value, Layer):
            return f"{self._written(value.cls)}({value.arguments})"
        name = self.table.name_of(value)
        return self.program.need(value) if name is None else f"{NN}.{name}"

    def _calls_own(self, node: Any) -> bool:
        """Whether a function is called that is to be ported, in construction."""
        meaning = self.source.meaning(node.func) if isinstance(node, cst.Call) else None
        is_own = isfunction(meaning) and self.program.is_own(meaning.__module__)
        return is_own and self.in_construction

    def _chosen(self, value: Any, original: cst.CSTNode) -> cst.BaseExpression:
        text = self._written(value)
        why = f"what is chosen by its arguments, {text.replace(f'{NN}.', 'nn.')} here"
        self.program.specialise(self.where(original), why)
        return cst.parse_expression(text)

    # Calls
    # ---------------------------------------------------------------------------------------------

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        choice = self._choice(original)
        if choice is not None:
            return self._chosen(choice.value, original)
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
            value = self._argument(old) if old.star == "**" else None
            name = old.keyword.value if old.keyword else ""
            is_handed_on = name in self.table.DROPPED and code(old.value) == name
            if not is_handed_on and (value is None or value.kind != "placement"):
                kept.append(new)
        return (
            updated
            if len(kept) == len(updated.args)
            else updated.with_changes(args=_ended(kept))
        )

    def _argument(self, arg: cst.Arg) -> Value | None:
        """What an argument was in the run."""
        return self.observed.one("given", self.source.end(arg.value))

    def _call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        func: Any = original.func
        name = self.table.name_of(self.source.meaning(func))
        if m.matches(original, _INSTANCE) or name == "jit.isinstance":
            return self._kind_asked_for(original, updated)
        if name is not None:
            return self._function(name, original, updated)
        if m.matches(original, _FIRST_PARAMETER):
            return self._parsed(self._parameter())
        own = self.source.meaning(func)
        owner = (
            self.source.meaning(func.value) if isinstance(func, cst.Attribute) else None
        )
        owned_by = self.table.name_of(owner) if isclass(owner) else None
        if owned_by is not None:  # a class method
            return self._class_method(
                f"{owned_by}.{func.attr.value}", original, updated
            )
        layer = self.program.layer_of(own)
        if layer is not None:
            given = arguments_of_drop(own, *arguments(updated.args))
            return self._parsed(self.layer_for(own.__name__, layer, given))
        updated = self._flattening(original, self._with_sizes(original, updated))
        if m.matches(original, _HAS) and self.program.is_framework(
            self._module(original)
        ):
            module, name = (one.value for one in original.args)
            has_it = hasattr(self.source.meaning(module), code(name)[1:-1])
            return cst.Name(str(has_it))
        if not self.in_construction and self.program.makes_constants(own):
            return self._constant_of(original, updated)
        value = self.observed.one("values", self.source.end(func))
        if value is None or not isinstance(updated.func, cst.Attribute):
            return updated
        x = code(updated.func.value)
        call = self._seen(func.attr.value, original, updated, x, value)
        if value.is_array:
            return self._method(call, updated)
        if value.kind == "shape" and call.name == "numel":
            return self._parsed(f"math.prod({x})")
        is_setter = call.name in self.table.SETTERS and not (
            value.kind == "container" and call.name == "add_module"
        )
        if value.kind in ("network", "container") and is_setter:
            return self._parsed(written(self.table.SETTERS[call.name], call))
        return updated

    def _class_method(
        self, name: str, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        if name not in self.table.FUNCTIONS:
            raise NeedsHand(f"there is no {name} in nn")
        call = self._seen(name, original, updated)
        return self._parsed(written(self.table.FUNCTIONS[name], call))

    def _module(self, call: cst.Call) -> str:
        """The name of a module that a call is given first."""
        return getattr(self.source.meaning(call.args[0].value), "__name__", "")

    def _constant_of(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """An array of NumPy that a function gives, as one of the backend."""
        made = self.observed.one("results", self.source.end(original))
        if made is None:
            return updated
        text, like = code(updated), self._like()
        if made.is_array:
            return self._parsed(f"{NN}.constant({text}, like={like})")
        return self._parsed(f"tuple({NN}.constant(one, like={like}) for one in {text})")

    def _kind_asked_for(
        self, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """``isinstance(x, torch.Tensor)``: arrays have other classes elsewhere."""
        asked: Any = original.args[1].value
        x = code(updated.args[0].value)
        is_array = f'hasattr({x}, "shape")'
        if self._is_tensor(asked):
            return self._parsed(is_array)
        if not isinstance(asked, cst.Tuple):
            return updated.with_changes(func=cst.Name("isinstance"))
        new: Any = updated.args[1].value
        pairs = zip(asked.elements, new.elements, strict=True)
        others = [
            code(two.value) for one, two in pairs if not self._is_tensor(one.value)
        ]
        if len(others) == len(asked.elements):
            return updated
        return self._parsed(f"(isinstance({x}, {tuple_of(others)}) or {is_array})")

    def _is_tensor(self, node: cst.BaseExpression) -> bool:
        return self.table.name_of(self.source.meaning(node)) == self.table.ARRAY

    def _seen(
        self,
        name: str,
        original: cst.Call,
        updated: cst.Call,
        owner: str = "",
        value: Value | None = None,
    ) -> Call:
        args, kwargs = arguments(updated.args)
        end = self.source.end(original)
        axes = self.program.observation.axes
        returned = self.observed.objects["returned"][end]
        return Call(
            name,
            args,
            kwargs,
            owner,
            value,
            seen=[self._argument(one) for one in original.args],
            missing=[
                code(one.value)
                for one in original.args
                if self.observed.was_none(self.source.end(one.value))
            ],
            result=self.observed.one("results", end),
            returned=[(one, axes.get(id(one), 0)) for one in returned],
            by_instance=self.by_instance,
            like=self._like,
        )

    def _flattening(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Flatten the input of a layer that does so itself."""
        callee = self.observed.one("callees", self.source.end(original))
        if callee is None or callee.kind != "flattening" or len(original.args) != 1:
            return updated
        value = self._argument(original.args[0])
        if value is None or value.ndim == 2:
            return updated
        flat = cst.parse_expression(f"{NN}.flatten({code(updated.args[0].value)}, 1)")
        return updated.with_changes(args=[cst.Arg(flat)])

    def _with_sizes(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Add the arguments that tell an instance of its sizes."""
        cls = self.source.meaning(original.func)
        sizes = self.program.sizes_of(cls) if isclass(cls) else {}
        made = self.observed.objects["returned"][self.source.end(original)]
        args = list(updated.args)
        for name, values in sizes.items():
            found = [
                (one, size)
                for one in made
                for size in _sizes_in(self.table, one, values)
            ]
            value = cst.parse_expression(self.by_instance(name, found))
            args.append(cst.Arg(value, keyword=cst.Name(name), equal=EQUAL))
        return updated.with_changes(args=args) if sizes else updated

    def _like(self) -> str:
        if self.functions and self.functions[-1].arrays:
            return self.functions[-1].arrays[0]
        return self._parameter()

    def _parameter(self) -> str:
        """The source of a parameter of the class."""
        name = self.program.parameter_of(vars(self.source.module).get(self.class_name))
        if name is None:
            raise NeedsHand("an array whose type and device it takes: like=x")
        parts = [
            f"[{part}]" if part.isdigit() else f".{part}" for part in name.split(".")
        ]
        return f"self{''.join(parts)}"

    def _function(
        self, name: str, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        if name in self.table.WITHOUT_EFFECT:
            return cst.Name("False")
        if name in self.table.LAYER_SOURCES:
            return updated
        call = self._seen(name, original, updated)
        if name in ("Parameter", "Buffer"):
            return self._parsed(self.table.parameter(call, updated.args[0].value))
        if name in self.table.DRAWING:
            if self._drops_nothing(original):
                self.program.specialise(
                    self.where(original), f"{name}, which drops nothing here"
                )
                return updated.args[0].value
            layer, given = self.table.DRAWING[name], self.table.drawing(call)
            return self._parsed(self.layer_for(name, layer, given))
        meaning = self.source.meaning(original.func)
        is_layer = isclass(meaning) and self._has(name)
        is_in_both = name in self.table.IN_BOTH
        if self.table.is_network_class(meaning) and not is_layer and not is_in_both:
            raise NeedsHand(f"there is no {name} in nn")
        if self.in_construction and not is_layer and not is_in_both:
            return self._parsed(self.table.in_numpy(call))
        if name in self.table.FUNCTIONS and not is_layer:
            return self._parsed(written(self.table.FUNCTIONS[name], call))
        name = self.table.CLASSES.get(name, name)
        if not self._has(name):
            raise NeedsHand(f"there is no {name} in nn")
        return updated.with_changes(
            func=cst.parse_expression(f"{NN}.{name}"), args=self._kept(updated.args)
        )

    def _drops_nothing(self, call: cst.Call) -> bool:
        """Whether an installed package's dropout had a probability of zero in the run."""
        values = filter(None, map(self._argument, call.args))
        return self.source.is_installed and any(
            value.kind == "zero" for value in values
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
            entry = self.table.NUMPY_METHODS.get(call.name)
            if entry is not None:
                return self._parsed(written(entry, call))
            if call.name.endswith("_"):  # of a start value, see `parameter`
                return updated
            if not hasattr(np.ndarray, call.name):
                return self._parsed(self.table.in_numpy(call))
            given = joined(call.args, self.table.in_axes(call.kwargs))
            return self._parsed(f"{call.x}.{call.name}({given})")
        if call.name in self.table.METHODS:
            return self._parsed(written(self.table.METHODS[call.name], call))
        name = call.name.removesuffix("_")
        if self._has(name):
            return self._parsed(self.table.plain(call.called(name)))
        raise NeedsHand(f"there is no {call.name} of arrays in nn")

    def _parsed(self, text: str) -> cst.BaseExpression:
        self.program.add_names(text)
        try:
            return cst.parse_expression(text)
        except cst.ParserSyntaxError:
            raise NeedsHand(
                f"a call whose arguments could not be read: {text}"
            ) from None

    # Statements
    # ---------------------------------------------------------------------------------------------

    def on_leave(self, original: Any, updated: Any) -> Any:
        """Leave out statements that only set start values, or print; keep what binds together."""
        for name in _OPERANDS.get(type(original), ()):
            before, after = getattr(original, name), getattr(updated, name)
            if before is not after and not isinstance(before, type(after)):
                updated = updated.with_changes(**{name: _as_one(after)})
        if original in self.start_values:
            self.program.leave_out(self.source, original, "start values")
            return cst.RemoveFromParent()
        if original in self.passed_by:
            return updated
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
                self.program.leave_out(
                    self.source, original, f"{name}, without an effect here"
                )
                return cst.RemoveFromParent()
        named = self._members_set(updated)
        return self._attribute_set(updated) if named is None else named

    def _members_set(self, updated: cst.SimpleStatementLine) -> Any:
        """``super().__init__(fc=layer)`` is ``super().__init__()`` and ``self.fc = layer``."""
        first: Any = updated.body[0]
        call = m.Call(m.Attribute(m.Call(m.Name("super")), m.Name("__init__")))
        is_named = m.matches(first, m.Expr(call)) and all(
            one.keyword for one in first.value.args
        )
        if not self.table.NAMES_MEMBERS or not is_named or not first.value.args:
            return None
        begun = updated.with_changes(body=[cst.Expr(first.value.with_changes(args=[]))])
        lines = [
            f"self.{one.keyword.value} = {code(one.value)}" for one in first.value.args
        ]
        return cst.FlattenSentinel([begun, *map(cst.parse_statement, lines)])

    def _attribute_set(
        self, updated: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
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
            called: Any = (
                item.item.func if isinstance(item.item, cst.Call) else item.item
            )
            if (
                isinstance(called, cst.Attribute)
                and called.attr.value in self.table.SCOPES
            ):
                return cst.FlattenSentinel(updated.body.body)
            names.append(self.table.name_of(self.source.meaning(called)) or "")
        if not all(name.startswith(self.table.TRANSPARENT) for name in names):
            return updated
        self.program.leave_out(
            self.source, original.items[0], "a context of the framework"
        )
        return cst.FlattenSentinel(updated.body.body)

    def leave_Expr(self, original: cst.Expr, updated: cst.Expr) -> Any:
        """``x.mul_(y)`` is ``x = nn.mul(x, y)``: arrays of others are not written over."""
        made: Any = updated.value
        owner: Any = original.value
        target = made
        while isinstance(owner, cst.Call):  # of one behind the other, the first one's
            method: Any = owner.func
            if not isinstance(method, cst.Attribute) or not self._writes_over(method):
                return updated
            owner, target = method.value, target.args[0].value
        if target is made:
            return updated
        if isinstance(target, cst.Subscript):
            return _written_into(target, made)
        return cst.Assign([cst.AssignTarget(target)], made)

    def _writes_over(self, method: cst.Attribute) -> bool:
        """Whether a method writes over the array that it belongs to."""
        value = self.observed.one("values", self.source.end(method))
        is_array = value is not None and value.is_array and not self.in_construction
        name = method.attr.value
        return is_array and name.endswith("_") and name != "requires_grad_"

    def leave_AugAssign(
        self, original: cst.AugAssign, updated: cst.AugAssign
    ) -> cst.BaseSmallStatement:
        """``x += y`` is ``x = x + y``: arrays of others are not written over."""
        value = self.observed.one("targets", self.source.begin(original))
        if value is None or not value.is_array or self.in_construction:
            return updated
        operator = getattr(
            cst, type(original.operator).__name__.removesuffix("Assign")
        )()
        made = cst.BinaryOperation(
            updated.target, operator, _in_brackets(updated.value, operator)
        )
        if isinstance(updated.target, cst.Subscript):
            return _written_into(updated.target, made)
        return cst.Assign([cst.AssignTarget(updated.target)], made)

    def leave_Assign(
        self, original: cst.Assign, updated: cst.Assign
    ) -> cst.BaseSmallStatement:
        target: Any = updated.targets[0].target
        value = self.observed.one("targets", self.source.begin(original))
        if value is not None and value.is_array and not self.in_construction:
            return _written_into(target, updated.value)
        is_own = m.matches(target, m.Attribute(m.Name("self"))) and self.functions
        cls = vars(self.source.module).get(self.class_name)
        if is_own and self.program.is_member(cls, target.attr.value):
            text = f'self.add_module("{target.attr.value}", {code(updated.value)})'
            return cst.Expr(cst.parse_expression(text))
        return updated


_FIRST_PARAMETER = m.Call(
    m.Name("next"), [m.Arg(m.Call(m.Attribute(m.Name("self"), m.Name("parameters"))))]
)
_HAS = m.Call(
    m.Name("hasattr"), [m.Arg(m.Name() | m.Attribute()), m.Arg(m.SimpleString())]
)
_STATEMENTS = (cst.SimpleStatementLine, cst.For, cst.If, cst.With)
_INSTANCE = m.Call(m.Name("isinstance"), [m.Arg(), m.Arg()])


def _sizes_in(table: Any, network: Any, values: Any) -> set[Any]:
    """The sizes of the layers in a network."""
    layers = {id(layer) for layer in table.blocks(network)}
    return {size for layer, size in values if id(layer) in layers}


def _ended(args: list[cst.Arg]) -> list[cst.Arg]:
    """Arguments without a comma behind the last."""
    return [
        *args[:-1],
        *(one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in args[-1:]),
    ]


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
    parts = [
        "None" if part is None else code(part)
        for part in (one.lower, one.upper, one.step)
    ]
    return f"slice({joined(parts[: 3 if one.step else 2], {})})"


#: What may need brackets, once something else stands in its place.
_OPERANDS: dict[type, tuple[str, ...]] = {
    cst.Attribute: ("value",),
    cst.Subscript: ("value",),
    cst.Call: ("func",),
    cst.UnaryOperation: ("expression",),
    cst.BinaryOperation: ("left", "right"),
    cst.BooleanOperation: ("left", "right"),
    cst.Comparison: ("left",),
    cst.ComparisonTarget: ("comparator",),
}


def _as_one(node: Any) -> Any:
    """An expression that binds together wherever it stands."""
    if isinstance(node, WHOLE) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


_BINDS_CLOSER = m.BinaryOperation(
    operator=m.Multiply()
    | m.Divide()
    | m.MatrixMultiply()
    | m.FloorDivide()
    | m.Power()
)


def _in_brackets(
    node: cst.BaseExpression, operator: cst.BaseBinaryOp
) -> cst.BaseExpression:
    """The right side of an operator."""
    is_sum = isinstance(operator, (cst.Add, cst.Subtract))
    return node if is_sum and m.matches(node, _BINDS_CLOSER) else _as_one(node)
