"""The rewriting of classes and functions: bases, decorators, types, what was never called."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isclass, isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.calls import NN, NeedsHand, code
from deliralike.port.finishing import begun
from deliralike.port.observing import CONSTRUCTION, FORWARD, Value
from deliralike.port.start_code import StartCode

if TYPE_CHECKING:
    from deliralike.port.resolving import Source

_PASS = cst.parse_statement("pass")
#: ``self.cache[key] = value``
_KEPT = m.Assign(
    [m.AssignTarget(m.Subscript(m.Attribute(m.Name("self"))))], m.Call() | m.Subscript()
)
_NO_SPACE = cst.SimpleWhitespace("")
EQUAL = cst.AssignEqual(_NO_SPACE, _NO_SPACE)


@dataclass
class Function:
    """A function that is being rewritten.

    Attributes:
        path: Its qualified name without ``<locals>``.
        in_construction: Whether it runs only while a network is created.
        arrays: The names of arguments that were arrays.
        defaults: Arguments whose default is a class or function of the backend: the word that
            stands for it, and what it stands for.
        caches: Attributes in which it keeps arrays for its next call, by a key.
        is_left_out: Whether the port does not have it.
    """

    path: str
    in_construction: bool
    arrays: list[str]
    defaults: list[tuple[str, str, str]] = field(default_factory=list)
    caches: list[str] = field(default_factory=list)
    is_left_out: bool = False


class Definitions(cst.CSTTransformer):
    """The part of `Rewriter` that deals with definitions.

    Args:
        program: What all definitions of a port share.
        source: The module that the definition is in.
        in_numpy: Whether it is a function of NumPy's arrays, while a network is created.
    """

    def __init__(self, program: Any, source: Source, *, in_numpy: bool = False) -> None:
        super().__init__()
        self.in_numpy = in_numpy
        self.program, self.source, self.table = program, source, program.table
        self.observed = program.observation.files[source.file]
        self.class_name = ""  # the class around it, if any
        self.start_code = StartCode(program, source)
        self.path: list[str] = []
        self.functions: list[Function] = []
        self.layers: dict[
            str, str
        ] = {}  # that take the place of functions which draw masks
        self.in_assignment = False
        self.idle: set[cst.Arg] = set()  # bases that take no part
        # Decorators that put another function in the place of one.
        self.wrapping: set[cst.Decorator] = set()
        # Tables of which what the run took is written out, functions that layers stand for.
        self.passed_by: set[cst.CSTNode] = set()
        self.start_values: set[cst.CSTNode] = set()  # statements that only set them
        self.statements: set[cst.CSTNode] = set()  # expressions that are statements
        self.set_names: set[str] = set()  # global names that functions set
        self.branches: set[int] = set()  # the identities of blocks of `if` and `else`

    @property
    def in_construction(self) -> bool:
        """Whether the code runs only while a network is created."""
        return bool(self.functions) and self.functions[-1].in_construction

    def where(self, node: cst.CSTNode) -> str:
        """The file and line of a node."""
        return f"{self.source.file}:{self.source.begin(node)[0]}"

    # Classes
    # ---------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.path.append(node.name.value)
        if len(self.path) == 1:
            self.class_name = node.name.value
            self.start_code = StartCode(self.program, self.source, self.class_name)
        self.idle |= {
            one for one in node.bases if self._is_idle(self.source.meaning(one.value))
        }

    def visit_Arg(self, node: cst.Arg) -> bool:
        return node not in self.idle

    def leave_ClassDef(
        self, original: cst.ClassDef, updated: cst.ClassDef
    ) -> cst.ClassDef:
        self.path.pop()
        pairs = zip(original.bases, updated.bases, strict=True)
        bases = [
            base for old, new in pairs if (base := self._base(old, new)) is not None
        ]
        brackets = {"lpar": cst.LeftParen(), "rpar": cst.RightParen()} if bases else {}
        return updated.with_changes(
            bases=[cst.Arg(base) for base in bases],
            keywords=[],
            decorators=self._decorators(original.decorators, updated.decorators),
            body=self._with_layers(_with_properties(updated.body), original),
            **brackets,
        )

    def _base(self, base: cst.Arg, new: cst.Arg) -> cst.BaseExpression | None:
        meaning = self.source.meaning(base.value)
        name = self.table.name_of(meaning)
        if name is not None:
            name = self.table.BASES.get(name, name)
            if name != "Network":
                name = self.program.neutral_class(name, self.where(base))
            return cst.Name(name)
        if isclass(meaning) and meaning.__module__ in ("abc", "typing", "builtins"):
            return None
        if base in self.idle:
            return None
        return new.value

    def _is_idle(self, cls: Any) -> bool:
        """Whether a base takes no part in a network of an installed package."""
        derived = vars(self.source.module).get(self.class_name)
        is_mixed_in = self.table.is_network_class(
            derived
        ) and not self.table.is_network_class(cls)
        if not self.source.is_installed or not is_mixed_in or not isclass(cls):
            return False
        file = getattr(sys.modules.get(cls.__module__), "__file__", "") or ""
        files = self.program.observation.files
        called = files[file].called.items() if file in files else ()
        for name, phases in called:
            owner, _, method = name.rpartition(".")
            takes_part = (
                not method.startswith("_") or method == "__init__" or FORWARD in phases
            )
            if owner == cls.__qualname__ and takes_part:
                return False
        return True

    def _with_layers(self, body: Any, node: cst.ClassDef) -> Any:
        """Create layers that draw masks, at the end of ``__init__``."""
        layers, self.layers = self.layers, {}
        lines = [
            cst.parse_statement(f"self.{name} = {made}")
            for made, name in layers.items()
        ]
        statements = list(body.body) or [_PASS]
        if not lines:
            return body.with_changes(body=statements)
        for at, one in enumerate(statements):
            if isinstance(one, cst.FunctionDef) and one.name.value == "__init__":
                longer = one.body.with_changes(body=[*one.body.body, *lines])
                statements[at] = one.with_changes(body=longer)
                return body.with_changes(body=statements)
        self.program.needs_hand(
            self.where(node), "a layer for dropout, made in __init__"
        )
        return body

    def layer_for(self, name: str, layer: str, given: Mapping[str, str]) -> str:
        """The call of a layer in the place of a function that draws masks.

        Args:
            name: Of the function.
            layer: Of the layer in `nn`.
            given: The arguments ``input``, ``p`` and ``training``.
        """
        if given["training"] != "self.training":
            raise NeedsHand(
                f"{name} that does not follow self.training: a layer, nn.{layer}, in __init__",
                given["input"],
            )
        x, rate = given["input"], given["p"]
        is_known = self._is_known_in_creation(rate)  # else each call gives it
        made = f"{NN}.{layer}({rate if is_known else ''})"
        number = len(self.layers) + 1
        attribute = self.layers.setdefault(
            made, f"{name}_layer{number if number > 1 else ''}"
        )
        return (
            f"self.{attribute}({x})" if is_known else f"self.{attribute}({x}, {rate})"
        )

    def _is_known_in_creation(self, text: str) -> bool:
        """Whether an expression has no names but those of the module, and ``self``."""
        nodes = ast.walk(ast.parse(text, mode="eval"))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return names <= {"self", *vars(self.source.module)}

    def by_instance(self, what: str, values: Sequence[tuple[Any, Any]]) -> str:
        """The source of a size: a number, or an argument where instances of a class differ.

        Args:
            what: What the size is called.
            values: Layers, each with its size.
        """
        found = {size for _, size in values}
        if len(found) == 1:
            return str(found.pop())
        is_unclear = len({id(layer) for layer, _ in values}) < len(values)
        if (
            not found
            or is_unclear
            or self.functions[-1].path != f"{self.class_name}.__init__"
        ):
            sizes = ", ".join(sorted(map(str, found))) or "never"
            raise NeedsHand(f"{what} is found out when it runs ({sizes}): write it out")
        return self.program.add_size(self.source, self.class_name, what, values)

    def _decorators(
        self, originals: Sequence[cst.Decorator], updated: Sequence[cst.Decorator]
    ) -> list[cst.Decorator]:
        """Those of Python, and one's own that wrap a function; no registries.

        A framework's say how it is run.
        """
        pairs = zip(originals, updated, strict=True)
        return [new for original, new in pairs if self._is_kept(original)]

    def _is_kept(self, decorator: cst.Decorator) -> bool:
        if decorator in self.wrapping:
            return True
        called = decorator.decorator
        called = called.func if isinstance(called, cst.Call) else called
        root = code(called).partition(".")[0]
        module = getattr(self.source.meaning(called), "__module__", "") or ""
        is_python = module.partition(".")[0] in (*sys.stdlib_module_names, "builtins")
        return is_python or hasattr(builtins, root) or code(called).endswith(".setter")

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        return self._is_kept(node)

    def _wrappers(self, node: cst.FunctionDef) -> set[cst.Decorator]:
        """The decorators of a function that give another one, which is to be ported as well."""
        owner = vars(self.source.module).get(self.class_name, self.source.module)
        code = getattr(vars(owner).get(node.name.value), "__code__", None)
        if code is None or code.co_name == node.name.value:
            return set()
        meanings = {one: self.source.meaning(one.decorator) for one in node.decorators}
        return {
            one
            for one, meaning in meanings.items()
            if isfunction(meaning) and self.program.is_own(meaning.__module__)
        }

    # Functions
    # ---------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self.path.append(node.name.value)
        path = ".".join(self.path)
        if self._is_left_out(node, path):
            self.functions.append(Function(path, False, [], is_left_out=True))
            return False
        params = (
            *node.params.posonly_params,
            *node.params.params,
            *node.params.kwonly_params,
        )
        arrays = [
            one.name.value
            for one in params
            if self.observed.is_array(path, one.name.value)
        ]
        phases = self.observed.phases(path)
        if self.functions:
            arrays += self.functions[-1].arrays
            phases = phases or {CONSTRUCTION if self.in_construction else FORWARD}
        else:
            self.wrapping |= self._wrappers(node)
        in_construction = self.in_numpy or FORWARD not in phases
        caches = [] if in_construction else self._caches(node)
        self.functions.append(Function(path, in_construction, arrays, caches=caches))
        return True

    def _caches(self, node: cst.FunctionDef) -> list[str]:
        """The dicts of a network in which a function keeps arrays: traced programs cannot."""
        found = []
        statements: Any = m.findall(node, _KEPT)
        for kept in statements:
            begin, end = self.source.begin(kept), self.source.end(kept.value)
            made = self.observed.one("results", end)
            is_dict = Value("dict") in self.observed.facts["targets"].get(begin, ())
            if is_dict and made is not None and made.is_array:
                self.program.specialise(self.where(kept), "an array that it kept")
                found.append(kept.targets[0].target.value.attr.value)
        return list(dict.fromkeys(found))

    def _is_left_out(self, node: cst.FunctionDef, path: str) -> bool:
        """Whether it is a method that was not called, or only sets a network's start values.

        Other classes of one's own keep all methods.
        """
        if len(self.path) != 2 or self.functions:
            return False
        cls, name = vars(self.source.module).get(self.class_name), node.name.value
        is_called = bool(self.observed.phases(path))
        if self.program.is_network((self.source.module.__name__, self.class_name)):
            is_hub = self.source.is_installed and name in ("__new__", "__getattr__")
            is_idle = is_hub or (name == "train" and self.program.follow_mode(cls))
            return is_idle or not is_called or self.start_code.is_all(node)
        is_pythons = name.startswith("__") and name != "__call__"
        return self.source.is_installed and not is_called and not is_pythons

    def leave_FunctionDef(
        self, original: cst.FunctionDef, updated: cst.FunctionDef
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        function = self.functions.pop()
        self.path.pop()
        if function.is_left_out:
            is_called = self.observed.phases(function.path)
            why = "has no effect here" if is_called else "was not called"
            self.program.leave_out(self.source, original, f"{function.path} {why}")
            return cst.RemoveFromParent()
        if not updated.body.body:
            updated = begun(updated, "pass")
        for argument, word, made in function.defaults:
            updated = begun(
                updated, f"if {argument} == {word}:\n    {argument} = {made}\n"
            )
        for cache in function.caches:
            updated = begun(updated, f"{cache} = {{}}")
        decorators = self._decorators(original.decorators, updated.decorators)
        renamed = cst.Name(
            self.table.RENAMED.get(original.name.value, original.name.value)
        )
        name = renamed if len(self.path) == 1 and not self.functions else updated.name
        params = updated.params
        if function.path == f"{self.class_name}.__init__":
            sizes = self.program.sizes[self.source.module.__name__, self.class_name]
            added = [cst.Param(cst.Name(size)) for size in sizes]
            params = params.with_changes(kwonly_params=[*params.kwonly_params, *added])
        return updated.with_changes(name=name, params=params, decorators=decorators)

    # Branches
    # ---------------------------------------------------------------------------------------------

    def visit_If(self, node: cst.If) -> bool:
        self.branches.add(id(node.body))
        return not self._is_passed_check(node)

    def leave_If(self, original: cst.If, updated: cst.If) -> Any:
        """Of an installed package the checks of arguments stay behind."""
        if not self._is_passed_check(original):
            return updated
        self.program.leave_out(self.source, original, "a check that was passed")
        return cst.RemoveFromParent()

    def _is_passed_check(self, node: cst.If) -> bool:
        """Whether a statement complains, or is for another type of numbers, and did not run."""
        body = node.body
        if node.orelse is not None or not isinstance(body, cst.IndentedBlock):
            return False
        asked: Any = m.findall(node.test, m.Attribute())
        asks_for_type = any(
            self.table.is_dtype(self.source.meaning(one)) for one in asked
        )
        is_check = asks_for_type or all(map(_complains, body.body))
        return is_check and self._was_passed_over(body)

    def visit_Assert(self, node: cst.Assert) -> bool:
        return not self.source.is_installed

    def leave_Assert(self, original: cst.Assert, updated: cst.Assert) -> Any:
        if not self.source.is_installed:
            return updated
        self.program.leave_out(self.source, original, "a check that was passed")
        return cst.RemoveFromParent()

    def leave_ImportFrom(
        self, original: cst.ImportFrom, updated: cst.ImportFrom
    ) -> Any:
        return self._imported(original, updated)

    def leave_Import(self, original: cst.Import, updated: cst.Import) -> Any:
        return self._imported(original, updated)

    def _imported(self, original: Any, updated: Any) -> Any:
        """Within functions, too, what is ported is imported no more."""
        names = [one.evaluated_alias or one.evaluated_name for one in original.names]
        modules = {self.source.imports[name.partition(".")[0]].module for name in names}
        is_kept = not any(map(self.program.is_ported, modules))
        return updated if is_kept else cst.RemoveFromParent()

    def visit_Else(self, node: cst.Else) -> None:
        self.branches.add(id(node.body))

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        self.branches.add(id(node.body))

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> bool:
        return not self._was_passed_over(node)

    def leave_IndentedBlock(
        self, original: cst.IndentedBlock, updated: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Of an installed package comes along what ran."""
        if not self._was_passed_over(original):
            return updated if updated.body else updated.with_changes(body=[_PASS])
        self.program.leave_out(self.source, original, "a branch that was not taken")
        line = self.source.begin(original.body[0])[0]
        place = f"{Path(self.source.file).name}:{line}"
        words = f"{place}: a branch that the port's inputs did not take"
        return updated.with_changes(
            body=[cst.parse_statement(f'raise NotImplementedError("{words}")')]
        )

    def _was_passed_over(self, block: cst.IndentedBlock) -> bool:
        is_branch = id(block) in self.branches and self.functions
        if not is_branch or not self.source.is_installed:
            return False
        path = self.functions[-1].path
        is_pythons = path.rpartition(".")[2].startswith("__")
        if is_pythons and not self.observed.phases(path):  # which an import may call
            return False
        return (self.source.begin(block.body[0])[0],) not in self.observed.facts[
            "branches"
        ]

    def leave_Param(self, original: cst.Param, updated: cst.Param) -> cst.Param:
        """A default that only the backend knows is a word; a type of numbers is not needed."""
        if (
            updated.annotation is None
            and original.annotation is not None
            and updated.default
        ):
            updated = updated.with_changes(equal=EQUAL)
        if original.default is not None and self.table.is_dtype(
            self.source.meaning(original.default)
        ):
            return updated.with_changes(default=cst.Name("None"))
        if updated.default is None or NN not in code(updated.default):
            return updated
        made = code(updated.default)
        word = repr(made.replace(f"{NN}.", "")).replace("'", '"')
        self.functions[-1].defaults.append((updated.name.value, word, made))
        return updated.with_changes(default=cst.SimpleString(word))

    # Types
    # ---------------------------------------------------------------------------------------------

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def leave_Annotation(
        self, original: cst.Annotation, updated: cst.Annotation
    ) -> Any:
        """Types of Python alone stay."""
        if self.in_assignment or _is_of_python(original):
            return updated
        return cst.RemoveFromParent()

    def visit_AnnAssign_annotation(self, node: cst.AnnAssign) -> None:
        self.in_assignment = True

    def leave_AnnAssign_annotation(self, node: cst.AnnAssign) -> None:
        self.in_assignment = False

    def leave_AnnAssign(
        self, original: cst.AnnAssign, updated: cst.AnnAssign
    ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
        """``x: Tensor = y`` is ``x = y``; a type alone is nothing, but to a data class."""
        cls = vars(self.source.module).get(self.class_name)
        if not self.functions and hasattr(cls, "__match_args__"):
            if not _is_of_python(original.annotation):
                updated = updated.with_changes(
                    annotation=cst.Annotation(cst.Name("object"))
                )
            if updated.value is not None and NN in code(updated.value):
                self.program.specialise(
                    self.where(original), "a default that only a backend has"
                )
                updated = updated.with_changes(value=cst.Name("None"))
            return updated
        if updated.value is None:
            return cst.RemoveFromParent()
        is_name = isinstance(original.target, cst.Name)  # which it keeps
        target = original.target if is_name else updated.target
        return cst.Assign([cst.AssignTarget(target)], updated.value)


def _is_of_python(annotation: cst.Annotation) -> bool:
    """Whether a type needs no import."""
    text = code(annotation.annotation)
    words = "".join(one if one.isidentifier() else " " for one in text).split()
    return all(hasattr(builtins, word) for word in words) and "'" not in text


def _with_properties(body: Any) -> Any:
    """Attributes of a class that only a backend has, such as a layer, are made at each use."""
    assigned = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name())])])
    statements = list(body.body)
    for at, one in enumerate(statements):
        if m.matches(one, assigned) and NN in code(one):
            name, value = code(one.body[0].targets[0].target), code(one.body[0].value)
            text = f"@property\ndef {name}(self):\n    return {value}\n"
            statements[at] = cst.parse_statement(text)
    return body.with_changes(body=statements)


def _complains(statement: cst.CSTNode) -> bool:
    warns = m.Expr(m.Call(m.Attribute(attr=m.Name("warn")) | m.Name("warn")))
    return m.matches(statement, m.SimpleStatementLine([m.Raise() | warns]))
