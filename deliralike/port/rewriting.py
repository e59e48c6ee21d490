"""The rewriting of one definition: a class, a function, or an assignment of a module."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import isclass, isfunction
from types import ModuleType
from typing import TYPE_CHECKING, Any

import libcst as cst

from deliralike.port.calls import NN, Call, NeedsHand, arguments, code, joined
from deliralike.port.observing import CONSTRUCTION, FORWARD, Value
from deliralike.port.resolving import MISSING, Source

if TYPE_CHECKING:
    from deliralike.port.program import Program


@dataclass
class _Function:
    """A function that is being rewritten.

    Attributes:
        path: Its qualified name without ``<locals>``.
        arrays: The names of arguments that were arrays.
        defaults: Arguments whose default is a class or function of the backend: the word that
            stands for it, and what it stands for.
    """

    path: str
    node: cst.FunctionDef
    in_construction: bool
    arrays: list[str]
    defaults: list[tuple[str, str, str]] = field(default_factory=list)


class Rewriter(cst.CSTTransformer):
    """Puts the names of `nn` in the place of a framework's.

    Args:
        program: What all definitions of a port share.
        source: The module that the definition is in.
    """

    def __init__(self, program: Program, source: Source) -> None:
        super().__init__()
        self.program, self.source = program, source
        self.table = program.table
        self.observed = program.observation.files[source.file]
        self.classes: list[str] = []
        self.functions: list[_Function] = []
        self.path: list[str] = []
        self.layers: list[tuple[str, str]] = []
        self.in_assignment = False

    # Definitions
    # ---------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self.path.append(node.name.value)
        self.classes.append(node.name.value)
        return True

    def leave_ClassDef(self, original: cst.ClassDef, updated: cst.ClassDef) -> cst.BaseStatement:
        self.path.pop()
        self.classes.pop()
        bases = []
        for base, new in zip(original.bases, updated.bases, strict=True):
            written = self._base(base, new)
            if written is not None:
                bases.append(cst.Arg(written))
        body = self._with_layers(updated.body, original)
        if isinstance(body, cst.IndentedBlock) and not body.body:
            body = body.with_changes(body=[cst.parse_statement("pass")])
        brackets = {"lpar": cst.LeftParen(), "rpar": cst.RightParen()} if bases else {}
        return updated.with_changes(
            bases=[*bases[:-1], *[one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in bases[-1:]]],
            keywords=[],
            decorators=self._decorators(original.decorators, updated.decorators),
            body=body,
            **brackets,
        )

    def _with_layers(self, body: Any, node: cst.ClassDef) -> Any:
        """Create layers in the place of functions that draw masks, at the end of ``__init__``."""
        layers, self.layers = self.layers, []
        if not layers:
            return body
        lines = [cst.parse_statement(f"self.{name} = {made}") for name, made in layers]
        statements = []
        for one in body.body:
            if isinstance(one, cst.FunctionDef) and one.name.value == "__init__":
                inner = one.body.with_changes(body=[*one.body.body, *lines])
                one, lines = one.with_changes(body=inner), []
            statements.append(one)
        if lines:
            self.program.needs_hand(self._where(node), "dropout needs a layer, made in __init__")
        return body.with_changes(body=statements)

    def _drawing(self, name: str, call: Call) -> str:
        given = call.bound("input", "p", "training", "inplace")
        if given.get("training") != "self.training":
            raise NeedsHand(
                f"{name} that does not follow self.training: a layer, nn.Dropout, in __init__",
                given["input"],
            )
        made = f"{NN}.{self.table.DRAWING[name]}({given.get('p', '0.5')})"
        number = len(self.layers)
        for known, same in self.layers:
            if same == made:
                return f"self.{known}({given['input']})"
        layer = f"{name}_layer" + (str(number + 1) if number else "")
        self.layers.append((layer, made))
        return f"self.{layer}({given['input']})"

    def _base(self, base: cst.Arg, new: cst.Arg) -> cst.BaseExpression | None:
        meaning = self.source.meaning(base.value)
        name = self.table.name_of(meaning)
        if name == "Module":
            return cst.Name("Network")
        if name is not None:
            return cst.Name(self.program.neutral_class(name, self._where(base)))
        if isclass(meaning) and meaning.__module__ in ("abc", "typing", "builtins"):
            return None
        return new.value

    def _decorators(
        self, originals: Sequence[cst.Decorator], updated: Sequence[cst.Decorator]
    ) -> list[cst.Decorator]:
        kept = []
        for original, new in zip(originals, updated, strict=True):
            called = original.decorator
            while isinstance(called, cst.Call):
                called = called.func
            root = called
            while isinstance(root, cst.Attribute):
                root = root.value
            meaning = self.source.meaning(called)
            module = getattr(meaning, "__module__", "") or ""
            is_python = module.partition(".")[0] in (*sys.stdlib_module_names, "builtins")
            is_builtin = isinstance(root, cst.Name) and hasattr(builtins, root.value)
            is_setter = isinstance(called, cst.Attribute) and called.attr.value == "setter"
            if is_python or is_builtin or is_setter:
                kept.append(new)
        return kept

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self.path.append(node.name.value)
        path = ".".join(self.path)
        phases = self._phases(node, path)
        arrays = []
        for param in (*node.params.posonly_params, *node.params.params, *node.params.kwonly_params):
            seen = self.observed.arguments.get((path, param.name.value), ())
            if seen and all(one.is_array and one.is_floating for one in seen):
                arrays.append(param.name.value)
        outer = self.functions[-1] if self.functions else None
        if outer is not None:
            arrays += outer.arrays
        self.functions.append(_Function(path, node, FORWARD not in phases, arrays))
        return True

    def _phases(self, node: cst.FunctionDef, path: str) -> set[str]:
        phases: set[str] = set()
        for name, seen in self.observed.called.items():
            plain = name.replace(".<locals>", "")
            if plain == path:
                phases |= seen
        if not phases and self.functions:
            return {CONSTRUCTION} if self.functions[-1].in_construction else {FORWARD}
        return phases

    def leave_FunctionDef(
        self, original: cst.FunctionDef, updated: cst.FunctionDef
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        function = self.functions.pop()
        path = self.path.pop() and function.path
        if self.classes and not self.functions and not self._is_called(original, path):
            self.program.forget_hands(self.source, original)
            self.program.leave_out(self._where(original), f"{path} was not called")
            return cst.RemoveFromParent()
        body = updated.body
        if isinstance(body, cst.IndentedBlock):
            statements = list(body.body)
            if function.defaults:
                at = _after_docstring(statements)
                statements[at:at] = [
                    cst.parse_statement(f"if {name} == {word}:\n    {name} = {made}\n")
                    for name, word, made in function.defaults
                ]
            if not statements or all(map(_is_docstring, statements)):
                statements.append(cst.parse_statement("pass"))
            body = body.with_changes(body=statements)
        return updated.with_changes(
            body=body,
            decorators=self._decorators(original.decorators, updated.decorators),
        )

    def _is_called(self, node: cst.FunctionDef, path: str) -> bool:
        if self._is_start_code(node):
            return False
        return any(name.replace(".<locals>", "") == path for name in self.observed.called)

    def leave_Param(self, original: cst.Param, updated: cst.Param) -> cst.Param:
        if updated.default is None or NN not in code(updated.default):
            return updated
        made = code(updated.default)
        word = f'"{made.replace(f"{NN}.", "").replace(chr(34), chr(39))}"'
        self.functions[-1].defaults.append((updated.name.value, word, made))
        return updated.with_changes(default=cst.SimpleString(word))

    # Types
    # ---------------------------------------------------------------------------------------------

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def visit_AnnAssign_annotation(self, node: cst.AnnAssign) -> None:
        self.in_assignment = True

    def leave_AnnAssign_annotation(self, node: cst.AnnAssign) -> None:
        self.in_assignment = False

    def leave_Annotation(
        self, original: cst.Annotation, updated: cst.Annotation
    ) -> cst.Annotation | cst.RemovalSentinel:
        if self.in_assignment:
            return updated
        text = code(original.annotation)
        names = [name for name in _words(text) if not hasattr(builtins, name)]
        return cst.RemoveFromParent() if names or '"' in text or "'" in text else updated

    def leave_AnnAssign(
        self, original: cst.AnnAssign, updated: cst.AnnAssign
    ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
        """``x: Tensor = y`` is ``x = y``; a type alone is nothing."""
        if updated.value is None:
            if self.functions or not self._is_dataclass():
                return cst.RemoveFromParent()
            return updated.with_changes(annotation=cst.Annotation(cst.Name("object")))
        if not self.functions and self._is_dataclass():
            return updated
        return cst.Assign([cst.AssignTarget(updated.target)], updated.value)

    def _is_dataclass(self) -> bool:
        if not self.classes:
            return False
        cls = vars(self.source.module).get(self.classes[0])
        return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")

    # Names
    # ---------------------------------------------------------------------------------------------

    def leave_Name(self, original: cst.Name, updated: cst.Name) -> cst.BaseExpression:
        return self._reference(original, updated)

    def leave_Attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        referred = self._reference(original, updated)
        if referred is not updated:
            return referred
        value = self.observed.value(self.source.end(original))
        name = original.attr.value
        if value is not None and value.is_array and name in self.table.ATTRIBUTES:
            if not (self.functions and self.functions[-1].in_construction):
                return cst.parse_expression(self.table.ATTRIBUTES[name](code(updated.value)))
        return updated

    def _reference(
        self, original: cst.BaseExpression, updated: cst.BaseExpression
    ) -> cst.BaseExpression:
        meaning = self.source.meaning(original)
        if meaning is MISSING or isinstance(meaning, ModuleType):
            return self._module(original, updated, meaning)
        name = self.table.name_of(meaning)
        if name is not None:
            return self._framework(name, updated)
        module = getattr(meaning, "__module__", None)
        if isclass(meaning) or isfunction(meaning):
            if module is not None and self.program.is_own(module):
                return cst.Name(self.program.need(meaning))
        if isinstance(original, cst.Name):
            return self._global(original, updated)
        return updated

    def _module(self, original: Any, updated: Any, meaning: Any) -> cst.BaseExpression:
        if isinstance(meaning, ModuleType) and isinstance(original, cst.Name):
            name = meaning.__name__
            if not self.program.is_own(name) and not self.program.is_framework(name):
                self.program.add_import(self.source, original.value)
        return updated

    def _framework(self, name: str, updated: cst.BaseExpression) -> cst.BaseExpression:
        name = self.table.CLASSES.get(name, name)
        if name == "Module":
            self.program.add_line("from deliralike import Network")
            return cst.Name("Network")
        if "." in name or not self.program.has(name):
            return updated  # the call around it says what to do
        return cst.parse_expression(f"{NN}.{name}")

    def _global(self, original: cst.Name, updated: cst.BaseExpression) -> cst.BaseExpression:
        name = original.value
        where = self.program.home(self.source, name)
        if where is None:
            if name in self.source.imports:
                self.program.add_import(self.source, name)
            return updated
        return cst.Name(self.program.need_constant(*where))

    # Calls
    # ---------------------------------------------------------------------------------------------

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        try:
            written = self._call(original, updated)
        except NeedsHand as reason:
            self.program.needs_hand(self._where(original), str(reason))
            return cst.parse_expression(reason.instead) if reason.instead else updated
        return updated if written is None else written

    def _call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression | None:
        if code(original.func) == "isinstance" and len(original.args) == 2:
            return self._is_instance(original, updated)
        name = self.table.name_of(self.source.meaning(original.func))
        if name is not None:
            return self._framework_call(name, original, updated)
        if not isinstance(original.func, cst.Attribute):
            return None
        value = self.observed.value(self.source.end(original.func))
        if value is None:
            return None
        method = original.func.attr.value
        owner = code(updated.func.value) if isinstance(updated.func, cst.Attribute) else ""
        if value.is_array:
            return self._method(method, owner, value, original, updated)
        if value.kind == "network":
            return self._network_method(method, owner, updated)
        if value.kind == "container" and method in ("register_buffer", "register_parameter"):
            return self._network_method(method, owner, updated)
        if value.kind == "shape" and method == "numel":
            self.program.add_line("import math")
            return cst.parse_expression(f"math.prod({owner})")
        return None

    def _is_instance(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression | None:
        """``isinstance(x, torch.Tensor)`` asks for a shape: arrays have other classes elsewhere."""
        if self.table.name_of(self.source.meaning(original.args[1].value)) != "Tensor":
            return None
        return cst.parse_expression(f'hasattr({code(updated.args[0].value)}, "shape")')

    def _framework_call(
        self, name: str, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression | None:
        if name == "Parameter":
            return self._parameter(original, updated)
        if name in self.table.WITHOUT_EFFECT:
            return cst.Name("False")
        constructs = bool(self.functions) and self.functions[-1].in_construction
        call = self._seen_call(name, original, updated)
        is_class = isclass(self.source.meaning(original.func))
        if name in self.table.DRAWING:
            return cst.parse_expression(self._drawing(name, call))
        if constructs and not is_class:
            return self._written(self.table.in_numpy(call))
        if name in self.table.FUNCTIONS and not (is_class and self.program.has(name)):
            return cst.parse_expression(self.table.FUNCTIONS[name](call))
        name = self.table.CLASSES.get(name, name)
        if not self.program.has(name):
            raise NeedsHand(f"there is no {name} in nn")
        kept = [
            arg
            for arg in updated.args
            if arg.keyword is None or arg.keyword.value not in self.table.DROPPED
        ]
        if kept:
            kept[-1] = kept[-1].with_changes(
                comma=kept[-1].comma
                if len(kept) == len(updated.args)
                else cst.MaybeSentinel.DEFAULT
            )
        kept = [_positional(arg) for arg in kept]
        func = cst.parse_expression(f"{NN}.{name}")
        return updated.with_changes(func=func, args=kept)

    def _seen_call(
        self,
        name: str,
        original: cst.Call,
        updated: cst.Call,
        owner: str = "",
        value: Value | None = None,
    ) -> Call:
        args, kwargs = arguments(updated.args)
        single = self.observed.value(self.source.end(original))
        if len(args) != 1:
            single = None
        constructs = bool(self.functions) and self.functions[-1].in_construction
        return Call(name, args, kwargs, owner, value, single, constructs, self._like)

    def _like(self) -> str:
        if self.functions and self.functions[-1].arrays:
            return self.functions[-1].arrays[0]
        raise NeedsHand("an array whose type and device it takes: like=x")

    def _method(
        self, method: str, owner: str, value: Value, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression | None:
        call = self._seen_call(method, original, updated, owner, value)
        if call.in_construction:
            if method in self.table.NUMPY_METHODS:
                return self._written(self.table.NUMPY_METHODS[method](call))
            return None
        if method in self.table.METHODS:
            return self._written(self.table.METHODS[method](call))
        if method.endswith("_") and self.program.has(method.removesuffix("_")):
            return cst.parse_expression(self.table._in_place(call))
        if self.program.has(method):
            return cst.parse_expression(self.table._plain(call))
        raise NeedsHand(f"there is no {method} of arrays in nn")

    def _written(self, text: str) -> cst.BaseExpression:
        if "np." in text:
            self.program.add_line("import numpy as np")
        if "math." in text:
            self.program.add_line("import math")
        return cst.parse_expression(text)

    # Parameters, buffers and blocks
    # ---------------------------------------------------------------------------------------------

    def _parameter(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        if not updated.args:
            raise NeedsHand("a parameter without a value")
        given = original.args[0].value
        filled = _filling(given)
        if filled is not None:
            given, start = filled
            drawn = self._start(given) if isinstance(given, cst.Call) else None
            if drawn is not None:
                self.program.forget_hands(self.source, original)
                self.program.add_line("from deliralike import start")
                return cst.parse_expression(f"{NN}.Parameter({self._shape(given)}, {start})")
        factor = None
        if isinstance(given, cst.BinaryOperation) and isinstance(given.operator, cst.Multiply):
            for one, other in ((given.left, given.right), (given.right, given.left)):
                if isinstance(other, cst.Call) and self._start(other):
                    given, factor = other, code(one.visit(self._fresh()))
                    break
        drawn = self._start(given) if isinstance(given, cst.Call) else None
        if drawn is not None:
            shape = self._shape(given)
            if factor is not None:
                drawn = f"start.Normal({factor})" if "Normal" in drawn else f"start.Constant({factor})"
            self.program.forget_hands(self.source, original)
            self.program.add_line("from deliralike import start")
            return cst.parse_expression(f"{NN}.Parameter({shape}, {drawn})")
        value = code(updated.args[0].value)
        self.program.add_line("import numpy as np")
        return cst.parse_expression(f"{NN}.Parameter(np.shape({value}), np.asarray({value}))")

    def _start(self, call: cst.Call) -> str | None:
        name = self.table.name_of(self.source.meaning(call.func))
        if name == "full":
            args, kwargs = arguments(call.args)
            value = kwargs.get("fill_value") or args[1]
            return f"start.Constant({value})"
        return self.table.STARTS.get(name or "")

    def _shape(self, call: cst.Call) -> str:
        args, kwargs = arguments([arg.visit(self._fresh()) for arg in call.args])
        name = self.table.name_of(self.source.meaning(call.func))
        if name == "full":
            return args[0]
        if "size" in kwargs:
            return kwargs["size"]
        single = self.observed.value(self.source.end(call)) if len(args) == 1 else None
        return Call("", args, {}, single=single).many()

    def _fresh(self) -> Rewriter:
        """A rewriter for a part of this function, at the same place."""
        other = Rewriter(self.program, self.source)
        other.functions, other.classes, other.path = self.functions, self.classes, self.path
        other.layers = self.layers
        return other

    def _network_method(
        self, method: str, owner: str, updated: cst.Call
    ) -> cst.BaseExpression | None:
        args, kwargs = arguments(updated.args)
        named = [*args, *kwargs.values()]
        if method == "register_buffer":
            value = kwargs.get("tensor") or named[1]
            made = value if value == "None" else f"{NN}.Buffer({value})"
            return cst.parse_expression(f"setattr({owner}, {named[0]}, {made})")
        if method == "register_parameter":
            return cst.parse_expression(f"setattr({owner}, {named[0]}, {joined(named[1:], {})})")
        if method in ("add_module", "register_module"):
            return cst.parse_expression(f"setattr({owner}, {joined(named, {})})")
        return None

    # Statements
    # ---------------------------------------------------------------------------------------------

    def leave_SimpleStatementLine(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        if not updated.body:
            return cst.RemoveFromParent()
        if self.functions and self._is_start_code(original):
            self.program.left_start_code(self.source, original)
            return cst.RemoveFromParent()
        statement = original.body[0]
        if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call):
            name = self.table.name_of(self.source.meaning(statement.value.func))
            if name in self.table.WITHOUT_EFFECT:
                return cst.RemoveFromParent()
            return self._set_attribute(updated)
        return updated

    def _set_attribute(self, updated: cst.SimpleStatementLine) -> cst.BaseStatement:
        """``setattr(self, "name", value)`` is ``self.name = value``."""
        call = updated.body[0].value
        if not (isinstance(call, cst.Call) and code(call.func) == "setattr"):
            return updated
        owner, name, value = call.args
        if not isinstance(name.value, cst.SimpleString):
            return updated
        target = f"{code(owner.value)}.{name.value.evaluated_value}"
        assigned = cst.parse_statement(f"{target} = {code(value.value)}")
        return updated.with_changes(body=assigned.body)

    def leave_For(self, original: cst.For, updated: cst.For) -> Any:
        return self._without_start_code(original, updated)

    def leave_If(self, original: cst.If, updated: cst.If) -> Any:
        return self._without_start_code(original, updated)

    def leave_With(self, original: cst.With, updated: cst.With) -> Any:
        if self.functions and self._is_start_code(original):
            self.program.left_start_code(self.source, original)
            return cst.RemoveFromParent()
        items = []
        for item in original.items:
            called = item.item.func if isinstance(item.item, cst.Call) else item.item
            name = self.table.name_of(self.source.meaning(called)) or ""
            items.append(any(name.startswith(one) for one in self.table.TRANSPARENT))
        if all(items) and isinstance(updated.body, cst.IndentedBlock):
            self.program.leave_out(self._where(original), "a context without a meaning elsewhere")
            return cst.FlattenSentinel(updated.body.body)
        return updated

    def _without_start_code(self, original: Any, updated: Any) -> Any:
        if self.functions and self._is_start_code(original):
            self.program.left_start_code(self.source, original)
            return cst.RemoveFromParent()
        if isinstance(updated.body, cst.IndentedBlock) and not updated.body.body:
            return updated.with_changes(
                body=updated.body.with_changes(body=[cst.parse_statement("pass")])
            )
        return updated

    def leave_Else(self, original: cst.Else, updated: cst.Else) -> Any:
        if isinstance(updated.body, cst.IndentedBlock) and not updated.body.body:
            return updated.with_changes(
                body=updated.body.with_changes(body=[cst.parse_statement("pass")])
            )
        return updated

    def _is_start_code(self, node: cst.CSTNode) -> bool:
        """Whether a statement, or a function as a whole, only sets start values."""
        if isinstance(node, (cst.For, cst.If, cst.With, cst.FunctionDef)):
            bodies = [node.body]
            if isinstance(node, cst.If) and node.orelse is not None:
                bodies.append(node.orelse.body if isinstance(node.orelse, cst.Else) else node.orelse)
            statements = []
            for body in bodies:
                statements += [body] if isinstance(body, cst.If) else list(body.body)
            found = [one for one in statements if not _is_docstring(one) and not _is_pass(one)]
            drawing = [one for one in found if self._is_start_code(one)]
            others = [one for one in found if one not in drawing]
            return bool(drawing) and all(map(_sets_locals, others))
        if isinstance(node, cst.SimpleStatementLine):
            return all(map(self._is_start_code, node.body))
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
            return self._draws(node.value)
        if isinstance(node, (cst.Assign, cst.AugAssign)):
            target = node.targets[0].target if isinstance(node, cst.Assign) else node.target
            return ".data" in code(target)
        return isinstance(node, (cst.Pass, cst.Continue))

    def _draws(self, call: cst.Call) -> bool:
        name = self.table.name_of(self.source.meaning(call.func)) or ""
        if name.startswith("init."):
            return True
        if not isinstance(call.func, cst.Attribute):
            own = self.source.meaning(call.func)
            return isfunction(own) and self.program.only_draws(own)
        method = call.func.attr.value
        value = self.observed.value(self.source.end(call.func))
        if method == "apply" and (value is None or value.kind == "network"):
            return True
        if value is not None and value.is_array:
            return method.endswith("_") and value.kind == "parameter" or ".data." in code(call.func)
        if value is not None and value.kind == "network" and self.classes:
            cls = vars(self.source.module).get(self.classes[0])
            own = getattr(cls, method, None)
            return isfunction(own) and self.program.only_draws(own)
        text = code(call.func)
        return method.endswith("_") and (".data." in text or ".weight." in text or ".bias." in text)

    def leave_AugAssign(
        self, original: cst.AugAssign, updated: cst.AugAssign
    ) -> cst.BaseSmallStatement:
        value = self.observed.target(self.source.begin(original))
        if value is None or not value.is_array:
            return updated
        if self.functions and self.functions[-1].in_construction:
            return updated
        operator = type(original.operator).__name__.removesuffix("Assign")
        made = cst.BinaryOperation(
            updated.target, getattr(cst, operator)(), _in_brackets(updated.value)
        )
        if isinstance(original.target, cst.Subscript):
            return self._written_into(updated.target, made)
        return cst.Assign([cst.AssignTarget(updated.target)], made)

    def leave_Assign(self, original: cst.Assign, updated: cst.Assign) -> cst.BaseSmallStatement:
        value = self.observed.target(self.source.begin(original))
        constructs = bool(self.functions) and self.functions[-1].in_construction
        if value is not None and value.is_array and not constructs:
            return self._written_into(updated.targets[0].target, updated.value)
        return self._as_member(original, updated)

    def _as_member(self, original: cst.Assign, updated: cst.Assign) -> cst.BaseSmallStatement:
        """``self.norm = ...`` in a subclass of a container adds a member to it."""
        target = original.targets[0].target
        if len(original.targets) > 1 or not isinstance(target, cst.Attribute) or not self.classes:
            return updated
        if code(target.value) != "self" or not self.functions:
            return updated
        cls = vars(self.source.module).get(self.classes[0])
        if not self.program.is_member(cls, target.attr.value):
            return updated
        text = f'self.add_module("{target.attr.value}", {code(updated.value)})'
        return cst.Expr(cst.parse_expression(text))

    def _written_into(self, target: Any, value: cst.BaseExpression) -> cst.Assign:
        """``x[i] = y`` is ``x = nn.index_put(x, i, y)``."""
        index = [_as_index(one) for one in target.slice]
        position = index[0] if len(index) == 1 else f"({', '.join(index)})"
        array = code(target.value)
        text = f"{NN}.index_put({array}, {position}, {code(value)})"
        return cst.Assign([cst.AssignTarget(target.value)], cst.parse_expression(text))

    def _where(self, node: cst.CSTNode) -> str:
        return f"{self.source.file}:{self.source.begin(node)[0]}"


def _filling(node: cst.BaseExpression) -> tuple[cst.BaseExpression, str] | None:
    """The array of ``torch.empty(3).normal_(std=0.02)``, and the start value."""
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)):
        return None
    args, kwargs = arguments(node.args)
    values = [*args, *kwargs.values()]
    match node.func.attr.value:
        case "normal_":
            std = kwargs.get("std") or (args[1] if len(args) > 1 else "1.0")
            return node.func.value, f"start.Normal({std})"
        case "zero_":
            return node.func.value, "start.ZEROS"
        case "fill_":
            return node.func.value, f"start.Constant({values[0]})"
        case "uniform_":
            return node.func.value, f"start.Uniform({values[-1] if values else 1.0})"
    return None


def _positional(arg: cst.Arg) -> cst.Arg:
    """``input=x`` is ``x``: arrays are given by position."""
    if arg.keyword is None or arg.keyword.value not in ("input", "tensors"):
        return arg
    return cst.Arg(arg.value, comma=arg.comma)


def _as_index(element: cst.SubscriptElement) -> str:
    """The source of an index, ``slice(1, 2)`` for ``1:2``."""
    one = element.slice
    if isinstance(one, cst.Index):
        return code(one.value)
    parts = [code(part) if part is not None else "None" for part in (one.lower, one.upper)]
    return f"slice({', '.join(parts + ([code(one.step)] if one.step is not None else []))})"


def _in_brackets(node: cst.BaseExpression) -> cst.BaseExpression:
    simple = (cst.Name, cst.Call, cst.Attribute, cst.Subscript, cst.BaseNumber)
    if isinstance(node, simple):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _words(text: str) -> list[str]:
    word, words = "", []
    for character in [*text, " "]:
        if character.isidentifier() or (word and character.isalnum()):
            word += character
        elif word:
            words.append(word)
            word = ""
    return words


def _sets_locals(statement: Any) -> bool:
    """Whether a statement only gives names to values."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    return all(
        isinstance(one, cst.Assign) and isinstance(one.targets[0].target, (cst.Name, cst.Tuple))
        for one in statement.body
    )


def _is_docstring(statement: Any) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    return isinstance(first, cst.Expr) and isinstance(first.value, (cst.SimpleString, cst.ConcatenatedString))


def _is_pass(statement: Any) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], cst.Pass
    )


def _after_docstring(statements: Sequence[Any]) -> int:
    return 1 if statements and _is_docstring(statements[0]) else 0
