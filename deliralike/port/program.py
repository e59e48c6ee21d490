"""A port in the making: which definitions it needs, and what each of them becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

import libcst as cst

from deliralike.nn.layers import LAYERS
from deliralike.port.calls import NN, code
from deliralike.port.custom_gradients import in_small_letters, plain_function
from deliralike.port.finishing import finished, names_used, static_methods
from deliralike.port.late_sizes import LateSizes
from deliralike.port.observing import FORWARD
from deliralike.port.original import Original
from deliralike.port.output import in_order, text_of, undefined
from deliralike.port.remarks import Remarks
from deliralike.port.resolving import Source, module_source
from deliralike.port.rewriting import Rewriter

#: For what the text of an expression may hold, the import that it needs.
_IMPORTS = {
    "einops.": "import einops",
    "math.": "import math",
    "np": "import numpy as np",
    "start.": "from deliralike import start",
}
_BASE = re.compile(r"class \w+\((\w+)\)")
# A module's name, that of a definition in it, and "np" for what runs on NumPy's arrays.
Where = tuple[str, ...]


@dataclass
class Definition:
    """A class, function or constant of a port.

    Attributes:
        source: The module of the original.
        statement: The original.
        value: What the original gives, a class or another object.
        text: The source as it is rewritten, with the original's name.
        node: The same, with the name that it has in the port.
    """

    source: Source
    statement: cst.CSTNode
    value: Any
    text: str
    node: Any


class Program(Remarks):
    """The definitions of a port.

    Args:
        original: What the original is.
    """

    def __init__(self, original: Original) -> None:
        super().__init__()
        self.original, self.framework = original, original.framework
        self.names: dict[Where, str] = {}  # what a definition is called in the port
        self.definitions: dict[str, Definition] = {}  # by what they are called there
        self.lines = {"from deliralike import Network"}  # imports
        self.layer_sources: dict[str, str] = {}  # of layers that the port writes itself
        self.sizes = LateSizes(self.framework)

    def where(self, definition: Any) -> str:
        """The file and line of a class or function."""
        source = module_source(definition.__module__)
        name = definition.__qualname__.partition(".")[0]
        return f"{source.file}:{source.begin(source.statements[name])[0]}"

    # What is needed
    # ---------------------------------------------------------------------------------------------

    def need(self, definition: Any) -> str:
        """Port a class or function, and return its name in the port."""
        name = definition.__qualname__.partition(".")[0]
        return self.need_name(definition.__module__, name)

    def need_name(self, module: str, name: str) -> str:
        """Port what has a name in a module, and return its name in the port."""
        where = (module, name)
        if where in self.names:
            return self.names[where]
        called = self.names[where] = self._free(name)
        source = module_source(module)
        if name not in source.statements:
            reason = f"{name} is not defined by a statement of the module"
            self.needs_hand(source.file, reason)
            return called
        value = vars(source.module).get(name)
        constant = source.computed(name)
        if constant is not None:
            node: Any = cst.parse_statement(f"{called} = {constant}")
        else:
            in_numpy = self.original.makes_constants(value)
            rewriter = Rewriter(self, source, in_numpy=in_numpy)
            node = source.statements[name].visit(rewriter)
        self._put(called, source, name, node)
        return called

    def need_in_numpy(self, function: Any) -> str:
        """Port a function as it is called while a network is created, on NumPy's arrays.

        It is another one than that of the network's arrays where their sources differ.
        """
        module, name = function.__module__, function.__qualname__
        called = self.need_name(module, name)
        where = (module, name, "np")
        if where in self.names:
            return self.names[where]
        source = module_source(module)
        phases = self.original.observation.files[source.file].phases(name)
        if FORWARD not in phases or called not in self.definitions:
            return called
        self.names[where] = self._free(f"{name}_np")
        rewriter = Rewriter(self, source, in_numpy=True)
        node: Any = source.statements[name].visit(rewriter)
        if code(node) == self.definitions[called].text:
            self.names[where] = called
        else:
            self._put(self.names[where], source, name, node)
        return self.names[where]

    def need_computed(self, cls: type) -> str:
        """Port what a function with a gradient of its own computes, and return its name."""
        module, name = cls.__module__, cls.__qualname__
        where = (module, name, "forward")
        if where in self.names:
            return self.names[where]
        called = self.names[where] = self._free(in_small_letters(name))
        source = module_source(module)
        _, forward = source.definition(f"{name}.forward")
        rewriter = Rewriter(self, source)
        rewriter.path, rewriter.class_name = [name], name
        node: Any = forward.visit(rewriter)  # type: ignore[union-attr]
        self._put(called, source, name, plain_function(node))
        return called

    def _free(self, name: str) -> str:
        """A name that no definition has yet."""
        taken = set(self.names.values())
        number, called = 2, name
        while called in taken:
            called, number = f"{name}{number}", number + 1
        return called

    def _put(self, called: str, source: Source, name: str, node: Any) -> None:
        value, statement = vars(source.module).get(name), source.statements[name]
        text = code(node)
        if isinstance(node, (cst.ClassDef, cst.FunctionDef)):
            node = node.with_changes(name=cst.Name(called))
        self.definitions[called] = Definition(source, statement, value, text, node)

    # Imports
    # ---------------------------------------------------------------------------------------------

    def add_import(self, source: Source, name: str) -> None:
        """Import a name as the module does, or from where what it stands for is."""
        value = vars(source.module).get(name)
        given = source.imports.get(name)
        if given is None and getattr(value, "__name__", "") == name:
            self.lines.add(f"from {value.__module__} import {name}")
        elif given is not None and not self.framework.owns(given.module):
            self.lines.add(given.line(name))

    def add_names(self, text: str) -> None:
        """Import, and write, what a text names of the table's."""
        for prefix, line in _IMPORTS.items():
            if prefix in text:
                self.lines.add(line)
        for base in _BASE.findall(text):
            if base in LAYERS:
                self.lines.add(f"from {LAYERS[base].__module__} import {base}")
        for name, source in self.framework.layer_sources.items():
            is_named = re.search(rf"(?<![.\w]){name}\(|class \w+\({name}\)", text)
            if is_named and name not in self.layer_sources:
                self.layer_sources[name] = source
                self.add_names(source)

    def neutral_class(self, name: str, where: str) -> str:
        """Import a layer of `nn` to be the base of a class, and return its name."""
        found = LAYERS.get(name)
        if found is None:
            self.needs_hand(where, f"there is no {name} in nn to be a base")
            return name.rpartition(".")[2]
        self.lines.add(f"from {found.__module__} import {name}")
        return name

    # The text
    # ---------------------------------------------------------------------------------------------

    def text(self, title: str) -> str:
        """The source of the port."""
        last = {one.source: at for at, one in enumerate(self.definitions.values())}

        def place(name: str) -> tuple[int, int]:
            """Files one after the other, that of the network last, and lines in their order."""
            one = self.definitions[name]
            return last[one.source], one.source.begin(one.statement)[0]

        sources = {}
        for name in sorted(self.definitions, key=place):
            sources[name] = code(self.definitions[name].node)
        parts = [self.layer_sources[name] for name in in_order(self.layer_sources)]
        for name in in_order(sources):
            node = self.finished[name]
            comments = [line for line in node.leading_lines if line.comment is not None]
            parts.append(code(node.with_changes(leading_lines=comments)).strip("\n"))
        text = text_of(title, parts, self.lines)
        for name in undefined(text):
            lines = self._lines_of(name)
            if lines and not any(remark.where in lines for remark in self.hands):
                self.needs_hand(lines[0], f"{name} has no counterpart here")
        return text

    def _lines_of(self, name: str) -> list[str]:
        """The lines of the definitions of the port that use a global name."""
        root, found = name.partition(".")[0], []
        for one in self.definitions.values():
            source = one.source
            if root not in vars(source.module) and root not in source.imports:
                continue
            lines = source.text.splitlines()
            first, last = source.begin(one.statement)[0], source.end(one.statement)[0]
            for number in range(first, last + 1):
                if name in lines[number - 1]:
                    found.append(f"{source.file}:{number}")
        return found

    def changes(self) -> list[tuple[str, int, int]]:
        """For each definition its name, its lines, and how many of these are other ones."""
        found = []
        for name, one in self.definitions.items():
            before = code(one.statement).strip().splitlines()
            after = code(self.finished[name]).strip().splitlines()
            matcher = SequenceMatcher(None, before, after, autojunk=False)
            same = sum(block.size for block in matcher.get_matching_blocks())
            found.append((name, len(after), len(after) - same))
        return found

    @cached_property
    def finished(self) -> dict[str, Any]:
        """The definitions as they stand in the port, once all are known that it needs."""
        constants = set()
        for name in self.needing & self.definitions.keys():
            node = self.definitions[name].node
            if not isinstance(node, (cst.ClassDef, cst.FunctionDef)):
                constants.add(name)
        found = {}
        for name, one in self.definitions.items():
            found[name] = finished(one.node, self.needing, constants)
        return found

    @cached_property
    def needing(self) -> frozenset[str]:
        """The functions and constants that take the functions of the backend, called ``nn``.

        Static methods are among them, with a point before their names.
        """
        used: list[tuple[str, list[str]]] = []
        for name, one in self.definitions.items():
            used += static_methods(one.node)
            if not self.original.is_network(one.value):
                used.append((name, names_used(one.node)))
        needing = {NN}
        while True:
            found = {name for name, names in used if needing & {*names}}
            if found <= needing:
                return frozenset(needing - {NN})
            needing |= found
