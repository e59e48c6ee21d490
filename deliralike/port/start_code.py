"""Statements that only set start values, or print: a port has the original's weights.

What is not trained is said at the end of the network's ``__init__``, see `Original.frozen`.
"""

from __future__ import annotations

import re
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import OF_SELF, code
from deliralike.port.patterns import pattern
from deliralike.port.resolving import Source, module_source
from deliralike.port.values import UNKNOWN

#: What installed packages call their functions that set start values; the proof sees a mistake.
_STARTS = re.compile(
    "(.*_)?(init_weight|init_param|reset_param|initialize)|named_apply$"
)
_BLOCKS = (cst.For, cst.If, cst.With, cst.FunctionDef, cst.Else)
_SETS_A_NAME = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name() | m.Tuple())])])
_PRINTS = m.Expr(pattern("print(...)"))
_PLACE = m.Attribute() | m.Subscript()
_SETS_MORE = (
    m.AssignTarget(_PLACE)
    | m.AugAssign(_PLACE)
    | m.AnnAssign(_PLACE)
    | m.Del()
    | m.Global()
    | m.With()
    | m.Yield()
)
_DOES_NOTHING = m.SimpleStatementLine(
    [m.Expr(m.SimpleString() | m.ConcatenatedString()) | m.Pass() | m.Continue()]
)

_DATA = (
    pattern("PARAMETER.data")
    | pattern("PARAMETER.array")
    | pattern("PARAMETER.requires_grad")
)


class StartCode:
    """Tells which statements of a source only set start values.

    Args:
        original: The original.
        source: The module.
        cls: The class whose methods ``self.method()`` means.
    """

    def __init__(self, original: Any, source: Source, cls: Any = None) -> None:
        self.original, self.source, self.cls = original, source, cls
        self.observed = original.observation.files[source.file]
        self.looked_into: set[Any] = set()  # functions on the way to this one

    def is_all(self, node: cst.CSTNode) -> bool:
        """Whether a statement, or a function, does nothing else."""
        if isinstance(node, _BLOCKS):
            return self._is_block(node)
        if isinstance(node, cst.SimpleStatementLine):
            return all(map(self.is_all, node.body))
        if isinstance(node, cst.Expr):
            return isinstance(node.value, cst.Call) and self._is_call(node.value)
        if isinstance(node, cst.Assign):
            target = node.targets[0].target
            return _is_data(target) or self._is_initializer(node.value)
        return isinstance(node, cst.AugAssign) and _is_data(node.target)

    def written(self, node: cst.CSTNode) -> list[bool]:
        """Whether it is a parameter, for each array that statements write over.

        Those of methods and functions that they call are looked at, too.
        """
        calls: Any = m.findall(node, m.Call())
        places, found = [], []
        for one in calls:
            if isinstance(one.func, cst.Attribute) and self._writes(one.func):
                places.append(one.func)
            found += self._written_in(one.func)
            if self._name(one).startswith("init."):
                found.append(True)
        sets: Any = m.findall(node, m.AssignTarget() | m.AugAssign())
        for one in sets:
            if _is_data(one.target):
                places.append(one.target)
        return found + [self._is_parameter(place) for place in places]

    def _written_in(self, func: Any) -> list[bool]:
        """What a method of the class, or a function of one's own, writes over."""
        function = self.source.meaning(func)
        if m.matches(func, OF_SELF):
            function = getattr(self.cls, func.attr.value, None)
        if not self.original.only_draws(function) or function in self.looked_into:
            return []
        source = module_source(function.__module__)
        cls, node = source.definition(function.__qualname__)
        if node is None:
            return []
        inner = StartCode(self.original, source, cls)
        inner.looked_into = {*self.looked_into, function}
        return inner.written(node)

    def _writes(self, func: cst.Attribute) -> bool:
        return func.attr.value.endswith("_") and self._is_method(func)

    def _is_parameter(self, place: Any) -> bool:
        """Whether what is written over may be a parameter, by ``.data`` or not."""
        found: Any = m.findall(place, _DATA)
        end = self.source.end(found[-1] if found else place)
        return self.observed.value("values", end).kind != "array"

    def _is_initializer(self, value: cst.BaseExpression) -> bool:
        """Whether it is an initializer, which the port's layers do not take."""
        if isinstance(value, cst.Dict):
            values = [one.value for one in value.elements]
            return bool(values) and all(map(self._is_initializer, values))
        if isinstance(value, cst.BooleanOperation):
            return self._is_initializer(value.right)
        return isinstance(value, cst.Call) and self._name(value).startswith("init.")

    def _name(self, call: cst.Call) -> str:
        """The framework's name of what is called, or an empty one."""
        return self.original.framework.name_of(self.source.meaning(call.func)) or ""

    def _is_block(self, node: Any) -> bool:
        statements = list(node.body.body)
        if isinstance(node, cst.If) and node.orelse is not None:
            statements.append(node.orelse)
        sets_start_values = False
        for one in statements:
            if self.is_all(one):
                sets_start_values = True
            elif not m.matches(one, _DOES_NOTHING | _SETS_A_NAME):
                return False
        return sets_start_values

    def _is_call(self, call: cst.Call) -> bool:
        called = code(call.func).rpartition(".")[2]
        if called in ("print", *self.original.framework.idle_methods):
            return True
        is_named_so = self.source.is_installed and _STARTS.match(called)
        if is_named_so or self._name(call).startswith("init."):
            return True
        if isinstance(call.func, cst.Attribute):
            return self._is_method(call.func)
        return bool(self.original.only_draws(self.source.meaning(call.func)))

    def _is_method(self, func: cst.Attribute) -> bool:
        """Whether it is a method that only sets start values."""
        method = func.attr.value
        value = self.observed.value("values", self.source.end(func))
        if value.is_array:
            is_parameter = value.kind == "parameter"
            return method.endswith("_") and (is_parameter or _is_data(func.value))
        if method in ("apply", "requires_grad_"):
            return True
        if value == UNKNOWN:
            is_weight = code(func.value).endswith((".data", ".weight", ".bias"))
            return method.endswith("_") and is_weight
        is_drawing = self.original.only_draws(getattr(self.cls, method, None))
        return bool(is_drawing) or self.only_counts(method)

    def only_counts(self, method: str) -> bool:
        """Whether a method of the class has no effect but what it returns or prints."""
        class_name = getattr(self.cls, "__qualname__", "")
        _, function = self.source.definition(f"{class_name}.{method}")
        if function is None:
            return False
        printed = m.findall(function, _PRINTS)
        is_pure = len(m.findall(function, m.Expr(m.Call()))) == len(printed)
        return is_pure and not m.findall(function, _SETS_MORE)


def _is_data(node: cst.BaseExpression) -> bool:
    """Whether it is the array in a parameter, ``weight.data``, or whether that is trained."""
    return bool(m.findall(node, _DATA))
