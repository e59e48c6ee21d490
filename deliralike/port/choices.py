"""What tables and factories of an installed package gave in the run, to be written out."""

from __future__ import annotations

from functools import partial
from types import NoneType
from typing import Any

import libcst as cst

from deliralike.port.calls import NN, joined, tuple_of
from deliralike.port.original import Original
from deliralike.port.resolving import MISSING, Source, module_source
from deliralike.port.values import PLAIN, Created, Layer, leaves


class Choices:
    """The choices of one file.

    Args:
        program: The port.
        source: The module.
    """

    def __init__(self, program: Any, source: Source) -> None:
        self.program, self.source = program, source
        self.original: Original = program.original
        self.framework = self.original.framework
        self.observed = self.original.observation.files[source.file]

    def given_by(self, node: Any, *, in_construction: bool) -> Any:
        """The layer, function or setting that a call or subscript gave in the run; or `MISSING`.

        Args:
            in_construction: Whether it stands where a network is created.
        """
        if not self.source.is_installed:
            return self._network_by_name(node)
        value = self.observed.choice(self.source.end(node))
        if value is MISSING or not self._is_portable(value):
            return MISSING
        if callable(value) or self._is_of_table(node):
            return value
        is_flag = isinstance(value, (bool, NoneType)) and in_construction
        if is_flag and self._calls_portable(node):
            return value
        return MISSING

    def _network_by_name(self, node: Any) -> Any:
        """The network that a package's function gave for a name, or `MISSING`.

        ``timm.create_model("resnet18")``: a table of all models would come along.
        """
        if not self._calls_portable(node) or not node.args:
            return MISSING
        function = self.source.meaning(node.func)
        first = self.observed.value("given", self.source.end(node.args[0].value))
        if first.kind != "text" or not module_source(function.__module__).is_installed:
            return MISSING
        returned = self.observed.objects["returned"][self.source.end(node)]
        classes = {type(network) for network in returned}
        created = []
        for network in self.original.blocks:
            if type(network) in classes:
                found = self.original.arguments_of(network)
                created.append(Created(type(network), *found))
        is_one = all(one == created[0] for one in created)
        if created and is_one and self._is_portable(created[0]):
            return created[0]
        return MISSING

    def entries(self, node: cst.Subscript) -> dict[Any, Any] | None:
        """What a table gave in the run, by its keys, where it was several."""
        chosen = self.observed.choices(self.source.end(node))
        values = list(chosen.values())
        if not self.source.is_installed or len(chosen) < 2 or MISSING in values:
            return None
        is_known = self._is_of_table(node) or all(map(callable, values))
        if is_known and self._is_portable(values):
            return chosen
        return None

    def _is_of_table(self, node: Any) -> bool:
        """Whether an element of a global table is taken."""
        owner = node
        while isinstance(owner, cst.Subscript):
            owner = owner.value
        return owner is not node and isinstance(self.source.meaning(owner), dict)

    def _calls_portable(self, node: Any) -> bool:
        """Whether a function is called that would be ported."""
        if not isinstance(node, cst.Call):
            return False
        return self.original.is_portable_function(self.source.meaning(node.func))

    def _is_portable(self, value: Any) -> bool:
        """Whether a value can be written out."""
        return all(map(self._is_portable_leaf, leaves(value)))

    def _is_portable_leaf(self, value: Any) -> bool:
        if isinstance(value, PLAIN):
            return True
        if isinstance(value, Layer):
            value = value.cls
        name = self.framework.name_of(value)
        if name is None:
            return self.framework.is_network_class(value)
        return self.framework.has(name)

    def written(self, value: Any) -> str:
        """The source of a value."""
        match value:
            case partial(func=function, args=args, keywords=kwargs):
                self.program.lines.add("from functools import partial")
                return self._written_call("partial", (function, *args), kwargs)
            case Created(cls, args, kwargs):
                return self._written_call(self.written(cls), args, kwargs)
            case Layer(cls, arguments):
                return f"{self.written(cls)}({arguments})"
            case dict():
                entries = []
                for key, one in value.items():
                    entries.append(f"{key!r}: {self.written(one)}")
                return f"{{{', '.join(entries)}}}"
            case list():
                return f"[{', '.join(map(self.written, value))}]"
            case tuple():
                return tuple_of([*map(self.written, value)])
        if isinstance(value, PLAIN):
            return repr(value)
        name = self.framework.name_of(value)
        return self.program.need(value) if name is None else f"{NN}.{name}"

    def _written_call(self, name: str, args: Any, kwargs: dict[str, Any]) -> str:
        words = {key: self.written(one) for key, one in kwargs.items()}
        return f"{name}({joined([*map(self.written, args)], words)})"
