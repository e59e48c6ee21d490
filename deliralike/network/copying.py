"""Copies of networks with functions among their attributes, which `copy.deepcopy` does not copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from types import CellType, FunctionType
from typing import Any

from deliralike.network.core import parts
from deliralike.references import cell_value


class CopiedWithFunctions:
    """The base of networks whose copies compute with their own blocks."""

    _detach_computed_arrays: Callable[[dict[int, Any]], None]  # of `AbstractNetwork`

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy whose functions compute with the blocks of the copy.

        `copy.deepcopy` copies no function: one among the attributes of a block, as ``self.head =
        lambda x: self.layer(x)``, would compute with the blocks that it was written with.
        """
        self._detach_computed_arrays(memo)
        of_framework = getattr(super(), "__deepcopy__", None)
        if of_framework is not None:
            twin = of_framework(memo)
        else:
            twin = memo[id(self)] = type(self).__new__(type(self))
            vars(twin).update(deepcopy(vars(self), memo))
        copied = [id(block) for block in parts(self) if id(block) in memo]
        twins = {block: memo[block] for block in copied}
        for block, name, function in _functions(twin):
            vars(block)[name] = _with_variables(function, twins)
        return twin


def function_with_outside_layer(network: Any) -> str:
    """Return the name of a function that computes with a layer which is no part of its network.

    It is an attribute of a block, as `copy.deepcopy` of a native network leaves it. The text is
    empty where there is none.
    """
    blocks = {id(block) for block in parts(network)}
    for _, name, function in _functions(network):
        values = map(cell_value, function.__closure__ or ())
        layers = filter(network.backend.is_native, values)
        if any(id(layer) not in blocks for layer in layers):
            return name
    return ""


def _functions(network: Any) -> list[tuple[Any, str, FunctionType]]:
    """Return the functions among the attributes of blocks that have variables of others."""
    found = []
    for block in parts(network):
        for name, value in vars(block).items():
            if isinstance(value, FunctionType) and value.__closure__:
                found.append((block, name, value))
    return found


def _with_variables(function: FunctionType, instead: Mapping[int, Any]) -> FunctionType:
    """Return a function with others in the place of some values of the functions around it."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            value = instead.get(id(cell.cell_contents), cell.cell_contents)
            cells.append(CellType(value))
        except ValueError:  # not filled yet
            cells.append(cell)
    twin = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells),
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    vars(twin).update(vars(function))
    return twin
