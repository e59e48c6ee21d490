"""The walk through one definition: where it is, and what the run has shown of that place."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import isclass
from typing import Any

import libcst as cst

from deliralike.port.choices import Choices
from deliralike.port.mask_layers import MaskLayers
from deliralike.port.observing import Observed
from deliralike.port.original import Original
from deliralike.port.resolving import Source
from deliralike.port.start_code import StartCode
from deliralike.port.values import Value


@dataclass
class Function:
    """A function that is being rewritten.

    Attributes:
        path: Its qualified name without ``<locals>``.
        in_construction: Whether it runs only while a network is created.
        arrays: The names of arguments that were arrays.
        caches: Attributes in which it keeps arrays for its next call, by a key.
        has_self: Whether it is a method, or within one.
        is_detached: Whether what it returns has no gradient.
    """

    path: str
    in_construction: bool
    arrays: list[str]
    caches: list[str]
    has_self: bool
    is_detached: bool = False


class Context(cst.CSTTransformer):
    """What all parts of the `Rewriter` know.

    Args:
        program: What all definitions of a port share.
        source: The module that the definition is in.
        in_numpy: Whether it is a function of NumPy's arrays, while a network is created.
    """

    def __init__(self, program: Any, source: Source, *, in_numpy: bool = False) -> None:
        super().__init__()
        self.program, self.source = program, source
        self.original: Original = program.original
        self.framework = self.original.framework
        self.in_numpy = in_numpy
        self.observed: Observed = self.original.observation.files[source.file]
        self.class_name = ""  # the class around it, if any
        self.path: list[str] = []
        self.functions: list[Function] = []
        self.start_code = StartCode(self.original, source)
        self.mask_layers = MaskLayers(source.module)
        self.choices = Choices(program, source)
        # Of a class: methods in the place of functions that it keeps, and local names of members.
        self.methods: list[Any] = []
        self.local_names: dict[str, str] = {}
        self.reported: set[str] = set()  # attributes that nothing reads
        self.set_names: set[str] = set()  # global names that functions set
        self.reasons: dict[cst.CSTNode, str] = {}  # of what is being left out
        # What is not looked into: tables that are written out, functions that layers stand for,
        # bases that take no part.
        self.passed_by: set[cst.CSTNode] = set()

    @property
    def cls(self) -> Any:
        """The class around the code, or None."""
        return vars(self.source.module).get(self.class_name)

    @property
    def in_construction(self) -> bool:
        """Whether the code runs only while a network is created."""
        return bool(self.functions) and self.functions[-1].in_construction

    def value_of(self, what: str, node: cst.CSTNode) -> Value:
        """What is known of the value at a node, see `Observed`."""
        return self.observed.value(what, self.source.end(node))

    def name_of(self, node: Any) -> str | None:
        """The framework's name of what a name, or names joined by dots, stands for.

        A function of a class has that in front: ``"Embedding.from_pretrained"``.
        """
        name = self.framework.name_of(self.source.meaning(node))
        if name is not None or not isinstance(node, cst.Attribute):
            return name
        cls = self.source.meaning(node.value)
        owner = self.framework.name_of(cls) if isclass(cls) else None
        return owner and f"{owner}.{node.attr.value}"

    def where(self, node: cst.CSTNode) -> str:
        """The file and line of a node."""
        return f"{self.source.file}:{self.source.begin(node)[0]}"
