"""Names, attributes and subscripts: what stands for them in the port."""

from __future__ import annotations

import re
from enum import Enum
from inspect import isclass, isfunction
from types import ModuleType, NoneType
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import (
    NN,
    OF_SELF,
    Call,
    NeedsHand,
    call_of_nn,
    code,
    detached,
    in_brackets,
    tuple_of,
    written,
)
from deliralike.port.definitions import DefinitionRewriter
from deliralike.port.patterns import pattern
from deliralike.port.resolving import MISSING

_FUNCTIONS = pattern("self.nn")
_OF_SHAPE = ("shape", "ndim", "size", "dim", "numel", "dtype", "device", "new")
_SUPER = pattern("super(...)")
_FLIP_FIRST = "a part of an array backwards: nn.flip(x, axes) first, then the part"
_CALLED_NN = (
    "nn: a network has its functions by this name, so a layer needs another one, by which the "
    "weights of the original are loaded, too"
)


class NameRewriter(DefinitionRewriter):
    """The part of the `Rewriter` that deals with names, and with what the run chose by them."""

    def on_leave(self, original: Any, updated: Any) -> Any:
        """Keep what binds together."""
        for name in _OPERANDS.get(type(original), ()):
            before, after = getattr(original, name), getattr(updated, name)
            if not isinstance(before, type(after)):
                updated = updated.with_changes(**{name: in_brackets(after)})
        return super().on_leave(original, updated)

    # Names
    # ---------------------------------------------------------------------------------------------

    def visit_Global(self, node: cst.Global) -> None:
        self.set_names |= {one.name.value for one in node.names}

    def leave_AssignTarget(
        self, original: cst.AssignTarget, updated: cst.AssignTarget
    ) -> cst.AssignTarget:
        """What is assigned keeps its name."""
        is_name = isinstance(original.target, cst.Name)
        return original if is_name else updated

    def leave_Name(self, original: cst.Name, updated: cst.Name) -> cst.BaseExpression:
        meaning = self.source.meaning(original)
        referred = self._handed_on(original) or self._reference(meaning)
        is_framework = self.framework.name_of(meaning) is not None
        if referred is not None or is_framework or meaning is MISSING:
            return referred or updated
        name = original.value
        is_setting = self.source.is_installed and name not in self.set_names
        if is_setting and isinstance(meaning, (bool, NoneType)):
            return cst.Name(str(meaning))  # or what an import was tried for
        home = self.original.home(self.source, name)
        if home is not None and not isinstance(meaning, ModuleType):
            return cst.Name(self.program.need_name(*home))
        self.program.add_import(self.source, name)
        return updated

    def _reference(self, meaning: Any) -> cst.BaseExpression | None:
        """What stands for a class or function; None for all that keeps its name."""
        name = self.framework.name_of(meaning)
        if name is not None:
            return self._framework(name)
        is_definition = isclass(meaning) or isfunction(meaning)
        if not is_definition or not meaning.__qualname__.isidentifier():
            return None  # not of the module
        is_dict = isclass(meaning) and issubclass(meaning, dict)
        if (
            self.source.is_installed
            and is_dict
            and hasattr(meaning, "__dataclass_fields__")
        ):
            name = meaning.__name__  # with attributes, for outputs
            self.program.lines.add(f"from {meaning.__module__} import {name}")
            return cst.Name(name)
        if not self.framework.ports(meaning.__module__):
            return None
        if isfunction(meaning) and self.in_construction:
            return cst.Name(self.program.need_in_numpy(meaning))
        return cst.Name(self.program.need(meaning))

    def _handed_on(self, node: Any) -> cst.BaseExpression | None:
        """A function of the framework that is not called here, of one array."""
        name = self.name_of(node) or ""
        if name not in self.framework.values or self.source.is_called(node):
            return None
        if name not in self.framework.drawing:
            return self.parsed(self.of_one_array(name, {}))
        layer = self.framework.drawing[name]
        if self.in_construction:
            return self.parsed(call_of_nn(layer, "0.5"))
        given = {"input": "x", "p": "0.5", "training": "self.training"}
        text = self.mask_layers.call(name, layer, given)
        return self.parsed(text.removesuffix("(x)"))

    def of_one_array(self, name: str, settings: dict[str, str]) -> str:
        """The source of a function of an array alone."""
        call = Call(name, ("x",), settings)
        return f"(lambda x: {written(self.framework.functions[name], call)})"

    def _framework(self, name: str) -> cst.BaseExpression | None:
        is_source = name in self.framework.layer_sources
        if is_source and name not in self.framework.functions:
            self.program.add_names(f"{name}(")
            return cst.Name(name)
        name = self.framework.classes.get(name, name)
        if name in self.framework.bases:
            return cst.Name(self.framework.bases[name])
        if not self.framework.has(name):  # the call around it says what stands for it
            return None
        return cst.parse_expression(f"{NN}.{name}")

    # Attributes
    # ---------------------------------------------------------------------------------------------

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return self._constant(node) is None

    def _constant(self, node: cst.Attribute) -> str | None:
        """The source of a text or number that an installed package's object has: ``Act.RELU``."""
        if not self.source.is_installed:
            return None
        owner, value = self.source.meaning(node.value), self.source.meaning(node)
        is_portable = (
            self.framework.ports(type(owner).__module__) and owner is not MISSING
        )
        is_plain = isinstance(value, (str, int, float)) and not isinstance(value, Enum)
        if not is_portable or not is_plain:
            return None
        return repr(value)

    def leave_Attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        if self._is_called_like_functions(original):
            self.program.needs_hand(self.where(original), _CALLED_NN)
        found = (
            self._with_other_name(original, updated)
            or self._known(original)
            or self._handed_on(original)
            or self._reference(self.source.meaning(original))
            or self._of_network(original, updated)
        )
        if found is not None:
            return found
        if self.in_construction:
            return self._start_of(original, updated)
        cached = self._cached_array(original, updated)
        return cached or self._attribute_of_array(original, updated)

    def _is_called_like_functions(self, node: cst.Attribute) -> bool:
        """Whether it is a layer ``self.nn``, where a network has its functions."""
        if not m.matches(node, _FUNCTIONS):
            return False
        return any(hasattr(block, "nn") for block in self.original.blocks_of(self.cls))

    def _with_other_name(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.Attribute | None:
        name = self._other_name(original)
        if m.matches(original.value, _SUPER):
            name = self.original.name_of_method(self.cls, original.attr.value)
        if name is None:
            return None
        return updated.with_changes(attr=cst.Name(name))

    def _known(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """What is the same for all networks, or that an installed package's object has."""
        last_names = ".".join(code(node).split(".")[-2:])
        known = self.framework.known_attributes.get(last_names) or self._constant(node)
        if known is None:
            return None
        return cst.parse_expression(known)

    def _other_name(self, node: cst.Attribute) -> str | None:
        """The name of an attribute of ``self`` that cannot keep its own, or None.

        A plain list of layers, which have names elsewhere, is a private attribute.
        """
        if not m.matches(node, OF_SELF) or not self.functions:
            return None
        name = node.attr.value
        if self.original.hides(self.cls, name):
            return f"{name}_"
        is_public = not name.startswith("_")
        is_list = is_public and self.original.is_plain_container(self.cls, name)
        return f"_{name}" if is_list else None

    def _start_of(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        """``self.weight.data`` while a network is created: a parameter's start as an array."""
        value = self.value_of("values", original)
        if original.attr.value != "data" or not value.is_array:
            return updated
        if value.kind == "array":
            return updated.value
        return self.parsed(f"self.backend.numpy({code(updated.value)})")

    def _cached_array(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression | None:
        """An array in a cache, or in a buffer that is not saved."""
        if not m.matches(original, OF_SELF):
            return None
        if original.attr.value in self.functions[-1].caches:
            return original.attr
        if self.original.unsaved(self.cls, original.attr.value):
            return self._unsaved(original, updated)
        return None

    def _attribute_of_array(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        entry = self.framework.attributes.get(original.attr.value)
        value = self.value_of("values", original)
        if entry is None or not value.is_array:
            return updated
        call = Call(original.attr.value, (), {}, code(updated.value), value)
        if entry is detached and not self._is_read(original):
            return updated.value
        return self.parsed(written(entry, call))

    def _is_read(self, node: Any) -> bool:
        """Whether the values of an array are read, rather than its shape, or written over."""
        parent: Any = self.source.parents[node]
        while isinstance(parent, cst.Subscript):
            node, parent = parent, self.source.parents[parent]
        if isinstance(parent, cst.Attribute):
            name = parent.attr.value
            return not name.endswith("_") and name not in _OF_SHAPE
        return getattr(parent, "target", None) is not node

    def _of_network(self, original: cst.Attribute, updated: cst.Attribute) -> Any:
        """An attribute of a network that has another name here; None for all others."""
        name, kind = original.attr.value, self.value_of("values", original).kind
        if kind in ("network", "layer") and name in self.framework.unlike_attributes:
            return self.parsed(self.framework.unlike_attributes[name])
        if kind == "layer" and name in self.framework.other_names:
            return updated.with_changes(attr=cst.Name(self.framework.other_names[name]))
        return None

    def _unsaved(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        """A buffer that is not saved, which the port keeps as an array of NumPy."""
        name, text = original.attr.value, code(updated)
        try:
            constant = call_of_nn("constant", text, like=self.like())
        except NeedsHand as reason:
            self.program.needs_hand(self.source.file, f"{name}: {reason}")
            return updated
        if any(one is None for one in self.original.unsaved(self.cls, name)):
            constant = f"(None if {text} is None else {constant})"
        return self.parsed(constant)

    def like(self) -> str:
        """The source of an array at hand, whose type and device others take."""
        if self.functions and self.functions[-1].arrays:
            return self.functions[-1].arrays[0]
        return self.parameter()

    def parameter(self) -> str:
        """The source of a parameter of the class."""
        has_self = not self.functions or self.functions[-1].has_self
        name = self.original.parameter_of(self.cls) if has_self else None
        if name is None:
            raise NeedsHand("an array whose type and device it takes: like=x")
        return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", f"self.{name}")

    def parsed(self, text: str) -> cst.BaseExpression:
        """An expression of the port."""
        self.program.add_names(text)
        try:
            return cst.parse_expression(text)
        except cst.ParserSyntaxError:
            reason = f"a call whose arguments could not be read: {text}"
            raise NeedsHand(reason) from None

    # Choices
    # ---------------------------------------------------------------------------------------------

    def choice(self, node: cst.CSTNode) -> Any:
        """What a call or subscript gave in the run, if it is written out; or `MISSING`."""
        if not self.functions:
            return MISSING
        # A statement is there for its effect, and gives no setting.
        gives_setting = self.in_construction and not self.source.is_statement(node)
        return self.choices.given_by(node, in_construction=gives_setting)

    def chosen(self, value: Any, original: cst.CSTNode) -> cst.BaseExpression:
        """The source of what was chosen."""
        text = self.choices.written(value)
        why = f"what is chosen by its arguments, {text.replace(f'{NN}.', 'nn.')} here"
        self.program.specialise(self.where(original), why)
        return cst.parse_expression(text)

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        if self.choices.entries(node) is not None:
            self.passed_by.add(node.value)
        return self.choice(node) is MISSING

    def leave_Subscript(self, original: cst.Subscript, updated: cst.Subscript) -> Any:
        value = self.choice(original)
        if value is not MISSING:
            return self.chosen(value, original)
        if self._is_reversed(original, updated):
            return self._flipped(original, updated)
        owner = self._owner_of_members(updated.value)
        if owner is not None:
            name = code(updated.slice[0].slice).strip()
            return self.parsed(f"getattr({owner}, {name})")
        entries = self.choices.entries(original)
        if entries is None:
            return updated
        return updated.with_changes(value=self.chosen(entries, original))

    def leave_Index(self, original: cst.Index, updated: cst.Index) -> cst.Index:
        """``x[:, self.order]``: JAX takes no parameter or buffer as an index, but its array."""
        if not self._may_be_buffer(updated.value):
            return updated
        array = cst.parse_expression(f"{code(updated.value)}[...]")
        return updated.with_changes(value=array)

    def _may_be_buffer(self, index: Any) -> bool:
        """Whether it is an array of the network, or what a function outside was given as one."""
        if not self.functions or self.in_construction:
            return False
        if isinstance(index, cst.Name) and not self.functions[-1].has_self:
            place = self.functions[-1].path, index.value
            return self.observed.value("arguments", place).is_array
        if not m.matches(index, OF_SELF):
            return False
        blocks = self.original.blocks_of(self.cls)
        values = [getattr(block, index.attr.value, None) for block in blocks]
        return any(self.framework.describe(value).is_array for value in values)

    def _is_reversed(self, original: cst.Subscript, updated: cst.Subscript) -> bool:
        """Whether it takes the network's array backwards, which has no such steps elsewhere."""
        if not any(m.matches(one, _BACKWARDS) for one in original.slice):
            return False
        is_host = code(updated.value).startswith("np.")
        return self.value_of("results", original).is_array and not is_host

    def _flipped(self, original: cst.Subscript, updated: cst.Subscript) -> Any:
        """``nn.flip(x, (1,))`` for ``x[:, ::-1]``."""
        axes = []
        for at, one in enumerate(original.slice):
            if m.matches(one, _BACKWARDS):
                axes.append(str(at))
            elif code(one.slice) != ":":
                self.program.needs_hand(self.where(original), _FLIP_FIRST)
                return updated
        return self.parsed(call_of_nn("flip", code(updated.value), tuple_of(axes)))

    def _owner_of_members(self, table: Any) -> str | None:
        """The network whose members a subscript gives by name, or None."""
        if (
            isinstance(table, cst.Attribute)
            and table.attr.value in self.framework.member_tables
        ):
            return code(table.value)
        is_self = m.matches(table, m.Name("self"))
        if is_self and self.framework.has_named_members(self.cls):
            return "self"
        return None


(_BACKWARDS,) = pattern("ARRAY[::-1]").slice

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
