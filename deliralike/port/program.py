"""A port in the making: which definitions it needs, in which order, and what it says of them."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import symtable
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, cached_property
from itertools import chain
from types import ModuleType
from typing import Any

import libcst as cst

from deliralike.network.base import Network
from deliralike.nn import layers
from deliralike.nn.functional import Functions
from deliralike.nn.primitives import Primitives
from deliralike.port.calls import code
from deliralike.port.creation import Arguments, find_arguments
from deliralike.port.dropping import dropping_layer
from deliralike.port.finishing import finished, static_methods, uses_vocabulary
from deliralike.port.observing import FORWARD, Observation
from deliralike.port.resolving import Source, is_own_module, source_of
from deliralike.port.rewriting import Rewriter
from deliralike.port.start_code import StartCode

# A module's name, that of a definition in it, and "np" for what runs on NumPy's arrays.
Where = tuple[str, ...]


@dataclass(frozen=True)
class Remark:
    """Something to know about a line of the original.

    Attributes:
        where: ``"file.py:12"``.
        text: What it is.
    """

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class Program:
    """The definitions of a port.

    Args:
        table: The module with the framework's names.
        observation: What a run has shown.
    """

    def __init__(self, table: Any, observation: Observation) -> None:
        self.table, self.observation = table, observation
        self.names: dict[Where, str] = {}  # what a definition is called in the port
        self.nodes: dict[Where, Any] = {}
        self.codes: dict[Where, str] = {}  # with the original's names
        self.order: list[Where] = []
        self.lines = {"from deliralike import Network"}  # imports
        self.layer_sources: dict[str, str] = {}  # classes that the table writes itself
        self.hands: list[Remark] = []
        self.left_out: list[Remark] = []
        self.blocks: list[Any] = []  # the original's
        # Arguments that tell instances of a class of their sizes: layers, each with its size.
        self.sizes: dict[Where, dict[str, Any]] = defaultdict(dict)
        self._drawing: dict[Any, bool] = {}
        self._layers: dict[Any, str | None] = {}

    def parameter_of(self, cls: Any) -> str | None:
        """The name of a parameter that each block of a class has, if there is one."""
        names = [self.table.parameters(one) for one in self.blocks if type(one) is cls]
        return next(
            (name for name in chain(*names[:1]) if all(name in one for one in names)),
            None,
        )

    def follow_mode(self, cls: Any) -> bool:
        """Whether all blocks within those of a class are in the mode that these are set to."""
        blocks = [one for one in self.blocks if isinstance(one, cls)]
        return all(map(self.table.follows_mode, blocks))

    def layer_of(self, function: Any) -> str | None:
        """The layer of `nn` that drops what a function of one's own does, or None."""
        if not inspect.isfunction(function) or not self.is_own(function.__module__):
            return None
        if function not in self._layers:
            self._layers[function] = dropping_layer(function, self.table.FRAMEWORK[0])
        return self._layers[function]

    def makes_constants(self, function: Any) -> bool:
        """Whether a function that a network calls is given no arrays, so that NumPy does."""
        if not inspect.isfunction(function) or not self.is_own(function.__module__):
            return False
        seen = self.observation.files[self.source(function.__module__).file]
        name = function.__qualname__
        return FORWARD in seen.phases(name) and not seen.takes_arrays(name)

    @cached_property
    def _unsaved(self) -> list[tuple[Any, dict[str, Any]]]:
        """The blocks with buffers that are not saved, and these by name."""
        found = [(block, self.table.unsaved(block)) for block in self.blocks]
        return [(block, buffers) for block, buffers in found if buffers]

    def unsaved(self, cls: Any, name: str) -> list[Any]:
        """The buffers of this name that are not saved, of the blocks of a class."""
        found = []
        for block, buffers in self._unsaved:
            if isinstance(block, cls) and name in buffers:
                found.append(buffers[name])
        return found

    def is_own(self, module: str) -> bool:
        """Whether a module is to be ported."""
        return is_own_module(module, self.table.FRAMEWORK)

    def is_framework(self, module: str) -> bool:
        """Whether a module belongs to the framework."""
        return module.partition(".")[0] in self.table.FRAMEWORK

    def is_ported(self, module: str) -> bool:
        """Whether what a module defines stands in the port, or `nn` has it."""
        return self.is_own(module) or self.is_framework(module)

    def has(self, name: str) -> bool:
        """Whether `nn` has a layer or function of this name."""
        return (
            hasattr(Functions, name)
            or hasattr(Primitives, name)
            or name in layer_classes()
        )

    def source(self, module: str) -> Source:
        """The source of a module."""
        return source_of(sys.modules[module])

    def is_member(self, cls: Any, name: str) -> bool:
        """Whether containers of a class have a member of this name."""
        return any(
            name in self.table.members(one)
            for one in self.blocks
            if type(one) is cls or (inspect.isclass(cls) and isinstance(one, cls))
        )

    def arguments_of(self, network: Any) -> Arguments:
        """The arguments that a network was created with, without those that are the defaults."""
        if self.table.name_of(type(network)) == "Sequential":
            return tuple(network), {}
        created = self.observation.created
        given = (
            created[id(network)] if id(network) in created else find_arguments(network)
        )
        defaults = inspect.signature(type(network).__init__).parameters
        named = {
            name: value
            for name, value in given.items()
            if name not in defaults or value is not defaults[name].default
        }
        several = named.pop("*", ())
        before = tuple(named.pop(name) for name in list(named)) if several else ()
        return before + tuple(several), named

    # What is needed
    # ---------------------------------------------------------------------------------------------

    def need(self, definition: Any) -> str:
        """Port a class or function, and return its name in the port."""
        name = definition.__qualname__.partition(".")[0]
        return self.need_name(definition.__module__, name)

    def need_name(self, module: str, name: str) -> str:
        """Port what has a name in a module, and return its name in the port."""
        where = (module, name)
        if where not in self.names:
            called = self.names[where] = self._free(name)
            source = self.source(module)
            statement = source.statements.get(name)
            if statement is None:
                self.needs_hand(
                    source.file, f"{name} is not defined by a statement of the module"
                )
                return called
            value = source.computed(name)
            if value is not None:
                self._put(where, cst.parse_statement(f"{called} = {value}"))
            else:
                in_numpy = self.makes_constants(vars(source.module).get(name))
                self._put(
                    where, statement.visit(Rewriter(self, source, in_numpy=in_numpy))
                )
        return self.names[where]

    def need_in_numpy(self, function: Any) -> str:
        """Port a function as it is called while a network is created, on NumPy's arrays.

        It is another one than that of the network's arrays where their sources differ.
        """
        module, name = function.__module__, function.__qualname__
        called = self.need_name(module, name)
        where = (module, name, "np")
        source = self.source(module)
        phases = self.observation.files[source.file].phases(name)
        if FORWARD not in phases or (module, name) not in self.nodes:
            return called
        if where not in self.names:
            self.names[where] = self._free(f"{name}_np")
            node: Any = source.statements[name].visit(
                Rewriter(self, source, in_numpy=True)
            )
            if code(node) == self.codes[module, name]:
                self.names[where] = called
            else:
                self._put(where, node)
        return self.names[where]

    def _free(self, name: str) -> str:
        """A name that no definition has yet."""
        taken, number, called = set(self.names.values()), 2, name
        while called in taken:
            called, number = f"{name}{number}", number + 1
        return called

    def _put(self, where: Where, node: Any) -> None:
        self.codes[where] = code(node)
        if isinstance(node, (cst.ClassDef, cst.FunctionDef)):
            node = node.with_changes(name=cst.Name(self.names[where]))
        self.nodes[where] = node
        self.order.append(where)

    def add_size(self, source: Source, class_name: str, what: str, values: Any) -> str:
        """Give a class one more argument, and return its name."""
        sizes = self.sizes[source.module.__name__, class_name]
        name = what if what not in sizes else f"{what}{len(sizes) + 1}"
        sizes[name] = values
        return name

    def sizes_of(self, cls: type) -> dict[str, Any]:
        """The arguments that tell instances of a class of their sizes."""
        return dict(self.sizes.get((cls.__module__, cls.__qualname__), {}))

    def home(self, source: Source, name: str) -> Where | None:
        """The module of one's own in which a global name is assigned, and its name there."""
        module, seen = source.module, set()
        while (module.__name__, name) not in seen:
            seen.add((module.__name__, name))
            own = self.source(module.__name__)
            if name in own.statements:
                return module.__name__, name
            given = own.imports.get(name)
            if given is None or given.name is None or not self.is_own(given.module):
                return None
            loaded = sys.modules.get(given.module)
            if not isinstance(loaded, ModuleType) or self.is_framework(given.module):
                return None
            module, name = loaded, given.name
        return None

    def add_import(self, source: Source, name: str) -> None:
        """Import a name as the module does, or from where what it stands for is."""
        value = vars(source.module).get(name)
        if name in source.imports:
            given = source.imports[name]
            if not self.is_framework(given.module):
                self.lines.add(given.line(name))
        elif getattr(value, "__name__", "") == name:
            self.lines.add(f"from {value.__module__} import {name}")

    def add_names(self, text: str) -> None:
        """Import, and write, what a text names of the table's."""
        for prefix, line in self.table.IMPORTS.items():
            if prefix in text:
                self.lines.add(line)
        for name, source in self.table.LAYER_SOURCES.items():
            if f"{name}(" in text and name not in self.layer_sources:
                self.layer_sources[name] = source
                self.add_names(source)

    def neutral_class(self, name: str, where: str) -> str:
        """Import a layer of `nn` to be the base of a class, and return its name."""
        found = layer_classes().get(name)
        if found is None:
            self.needs_hand(where, f"there is no {name} in nn to be a base")
            name = name.rpartition(".")[2]
        else:
            self.lines.add(f"from {found.__module__} import {name}")
        return name

    # What is said
    # ---------------------------------------------------------------------------------------------

    def needs_hand(self, where: str, reason: str) -> None:
        """Note a line that a person has to write."""
        remark = Remark(where, reason)
        if remark not in self.hands:
            self.hands.append(remark)

    def leave_out(self, source: Source, node: cst.CSTNode, why: str) -> None:
        """Note lines that are not in the port, and take back what was said of them."""
        lines = range(source.begin(node)[0], source.end(node)[0] + 1)
        places = {f"{source.file}:{line}" for line in lines}
        self.hands = [one for one in self.hands if one.where not in places]
        self.left_out = [one for one in self.left_out if one.where not in places]
        self.specialise(f"{source.file}:{lines[0]}", why)

    def specialise(self, where: str, why: str) -> None:
        """Note what the port has of a line; what was said of the line before still holds."""
        remark = Remark(where, why)
        if remark not in self.left_out:
            self.left_out.append(remark)

    def only_draws(self, function: Any) -> bool:
        """Whether a function only sets start values."""
        key = function.__module__, function.__qualname__
        if key not in self._drawing:
            self._drawing[key] = False  # a function that calls itself
            if self.is_own(function.__module__):
                source = self.source(function.__module__)
                node = _definition(source, function.__qualname__)
                name = function.__qualname__.partition(".")[0]
                if node is not None:
                    self._drawing[key] = StartCode(self, source, name).is_all(node)
        return self._drawing[key]

    # The text
    # ---------------------------------------------------------------------------------------------

    def text(self, title: str) -> str:
        """The source of the port."""
        parts = list(self.layer_sources.values())
        for where in self._sorted():
            node = self.finished[where]
            parts.append(
                code(node.with_changes(leading_lines=_comments(node))).strip("\n")
            )
        body = "\n\n\n".join(parts)
        nodes = ast.walk(ast.parse(body))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        lines = {line for line in self.lines if _bound_by(line) in names}
        known = set(map(_bound_by, lines))
        for where in self.nodes:
            known |= self._locals(where)
        for name in _undefined(body, known):
            lines_of_name = self._lines_of(name) or ["?"]
            if not any(remark.where in lines_of_name for remark in self.hands):
                self.needs_hand(lines_of_name[0], f"{name} has no counterpart here")
        head = [f'"""{title}"""', "", *_grouped(lines), "", ""]
        return "\n".join(head) + "\n" + body + "\n"

    def _locals(self, where: Where) -> set[str]:
        """The names that functions of the original assign, also where the port does not."""
        tree = ast.parse(code(self.source(where[0]).statements[where[1]]).strip())
        functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
        inside = (node for function in functions for node in ast.walk(function))
        return {
            node.id
            for node in inside
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def _lines_of(self, text: str) -> list[str]:
        """The lines of the definitions of the port that hold a text."""
        found = []
        for module, name, *_ in self.nodes:
            source = self.source(module)
            statement = source.statements[name]
            first, last = source.begin(statement)[0], source.end(statement)[0]
            for number, line in enumerate(
                source.text.splitlines()[first - 1 : last], first
            ):
                if text in line:
                    found.append(f"{source.file}:{number}")
        return found

    def changes(self) -> list[tuple[str, int, int]]:
        """For each definition its name, its lines, and how many of these are other ones."""
        found = []
        for where, node in self.finished.items():
            before = (
                code(self.source(where[0]).statements[where[1]]).strip().splitlines()
            )
            after = code(node).strip().splitlines()
            same = SequenceMatcher(
                None, before, after, autojunk=False
            ).get_matching_blocks()
            found.append(
                (
                    self.names[where],
                    len(after),
                    len(after) - sum(one.size for one in same),
                )
            )
        return found

    @cached_property
    def finished(self) -> dict[Where, Any]:
        """The definitions as they stand in the port, once all are known that it needs."""
        needing = self.needing
        functions = (cst.ClassDef, cst.FunctionDef)
        constants = {
            self.names[where]
            for where, node in self.nodes.items()
            if self.names[where] in needing and not isinstance(node, functions)
        }
        return {
            where: finished(node, needing, constants)
            for where, node in self.nodes.items()
        }

    @cached_property
    def needing(self) -> frozenset[str]:
        """The functions and constants that take the functions of the backend, called ``nn``."""
        needing: set[str] = set()
        while True:
            found = {
                self.names[where]
                for where, node in self.nodes.items()
                if not self.is_network(where) and uses_vocabulary(node, needing)
            }
            for node in self.nodes.values():
                found |= static_methods(node, needing)
            if found == needing:
                return frozenset(needing)
            needing = found

    def is_network(self, where: Where) -> bool:
        """Whether it is a class of networks, or mixed into one, which has the functions itself."""
        cls = vars(sys.modules[where[0]]).get(where[1])
        is_mixed_in = inspect.isclass(cls) and any(
            isinstance(one, cls) for one in self.blocks
        )
        return is_mixed_in or self.table.is_network_class(cls)

    def _sorted(self) -> Iterator[Where]:
        """Each definition behind those that it needs when it is made."""
        done: set[Where] = set()
        by_name = {name: where for where, name in self.names.items()}

        def put(where: Where) -> Iterator[Where]:
            if where in done or where not in self.nodes:
                return
            done.add(where)
            for name in _needed_at_once(self.nodes[where]):
                if name in by_name:
                    yield from put(by_name[name])
            yield where

        for where in sorted(self.order, key=self._place):
            yield from put(where)

    def _place(self, where: Where) -> tuple[int, int]:
        """Files one after the other, that of the network last, and lines in their order."""
        modules = [module for module, *_ in self.order]
        source = self.source(where[0])
        last = len(modules) - modules[::-1].index(where[0])
        return last, source.begin(source.statements[where[1]])[0]


@cache
def layer_classes() -> dict[str, type]:
    """The layers of `nn`, by name."""
    found: dict[str, type] = {}
    for info in pkgutil.iter_modules(layers.__path__):
        module = importlib.import_module(f"{layers.__name__}.{info.name}")
        for name, value in vars(module).items():
            if (
                inspect.isclass(value)
                and issubclass(value, Network)
                and value is not Network
            ):
                found[name] = value
    return found


def _undefined(text: str, known: set[str]) -> list[str]:
    """Names, with what follows behind points, that a source uses and does not define."""
    top = symtable.symtable(text, "port", "exec")
    used: set[str] = set()
    waiting = [top]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        used |= {one.get_name() for one in table.get_symbols() if one.is_global()}
    defined = {one.get_name() for one in top.get_symbols() if one.is_assigned()}
    missing = used - defined - known - {*dir(builtins)}
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Attribute, ast.Name)):
            chain = ast.unparse(node)
            is_chain = chain.replace(".", "").isidentifier()
            if is_chain and chain.partition(".")[0] in missing:
                found.add(chain)
    longer = {chain.rpartition(".")[0] for chain in found}
    return sorted(found - longer)


def _definition(source: Source, qualname: str) -> cst.CSTNode | None:
    first, *rest = qualname.split(".")
    node: Any = source.statements.get(first)
    for name in rest:
        if not isinstance(node, cst.ClassDef):
            return None
        node = next(
            (
                one
                for one in node.body.body
                if isinstance(one, cst.FunctionDef) and one.name.value == name
            ),
            None,
        )
    return node


def _needed_at_once(node: cst.CSTNode) -> list[str]:
    """The names that a definition needs when it is made, rather than when it is called."""
    waiting: list[ast.AST] = [ast.parse(code(node).strip())]
    names = []
    for one in waiting:  # which grows
        if isinstance(one, ast.Name):
            names.append(one.id)
        elif isinstance(one, ast.FunctionDef):
            waiting += [*one.decorator_list, one.args]
        else:
            waiting += ast.iter_child_nodes(one)
    return list(dict.fromkeys(names))


def _comments(node: Any) -> list[cst.EmptyLine]:
    """The comments above a definition, without empty lines."""
    return [line for line in node.leading_lines if line.comment is not None]


def _grouped(lines: set[str]) -> list[str]:
    """Imports: those of Python, then others; names of one module in one line."""
    names: dict[str, list[str]] = defaultdict(list)
    for line in sorted(lines):
        begin, _, name = line.partition(" import ")
        names[begin].append(name)
    python: list[str] = []
    others: list[str] = []
    for begin in sorted(names, key=lambda one: (one.startswith("from"), one)):
        given = ", ".join(names[begin])
        to = python if _is_standard(_imported(begin)) else others
        to.append(f"{begin} import {given}" if given else begin)
    between = [""] if python and others else []
    return [*python, *between, *others]


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _bound_by(line: str) -> str:
    """The name that an import binds."""
    return line.split()[-1].partition(".")[0]


def _imported(line: str) -> str:
    """The module of an import."""
    return line.split()[1]
