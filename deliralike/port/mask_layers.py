"""Layers in the place of functions that draw masks, such as ``F.dropout(x, p, self.training)``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import libcst as cst

from deliralike.port.calls import NN, NeedsHand


class MaskLayers:
    """The layers of a class, which its ``__init__`` is to create.

    Args:
        module: The module that the class is in.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._names: dict[str, str] = {}  # by how they are created

    def call(self, function: str, layer: str, given: Mapping[str, str]) -> str:
        """The call of a layer in the place of a function.

        Args:
            function: The name of the function.
            layer: The name of the layer in `nn`.
            given: The arguments ``input``, ``p`` and ``training``.

        Raises:
            NeedsHand: The function does not follow the mode of the network.
        """
        x, rate = given["input"], given["p"]
        if given["training"] != "self.training":
            raise NeedsHand(
                f"{function} that does not follow self.training: a layer, nn.{layer}, in __init__",
                x,
            )
        if self._is_known_in_creation(rate):
            return f"self.{self._name(function, f'{NN}.{layer}({rate})')}({x})"
        return f"self.{self._name(function, f'{NN}.{layer}()')}({x}, {rate})"

    def _name(self, function: str, created: str) -> str:
        """The attribute of a layer."""
        if created not in self._names:
            name = f"{function}_layer"
            if self._names:
                name += str(len(self._names) + 1)
            self._names[created] = name
        return self._names[created]

    def _is_known_in_creation(self, text: str) -> bool:
        """Whether an expression has no names but those of the module, and ``self``."""
        nodes = ast.walk(ast.parse(text, mode="eval"))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return names <= {"self", *vars(self.module)}

    def add_to(self, statements: list[Any]) -> bool:
        """Create the layers at the end of ``__init__``; False where a class has none."""
        lines = []
        for created, name in self._names.items():
            lines.append(cst.parse_statement(f"self.{name} = {created}"))
        self._names = {}
        if not lines:
            return True
        for at, one in enumerate(statements):
            if isinstance(one, cst.FunctionDef) and one.name.value == "__init__":
                body = one.body.with_changes(body=[*one.body.body, *lines])
                statements[at] = one.with_changes(body=body)
                return True
        return False
