"""The places of a comparison as types: calls, and what is computed there.

Their texts are the words of every report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from deliralike import nest

NETWORK = "the network"  # the name of the network's own call, seen from the loss

# Kinds of quantities.
INPUT, OUTPUT, ARGUMENT, TENSOR = "input", "output", "argument", "tensor"


@dataclass(frozen=True, order=True)
class Tap:
    """A call of a block, or of a function between blocks, within a unit.

    Mappings hold taps in the order of their calls.

    Attributes:
        path: The block's path within the unit, in the reference's names.
        function: The function's name; empty for a block.
        call: Which call of it this is, from 1.

    Example:
        >>> str(Tap("inner.fc")), str(Tap(function="relu", call=2)), str(Tap())
        ('inner.fc', 'relu()#2', 'the network')
    """

    path: str = ""
    function: str = ""
    call: int = 1

    @property
    def first(self) -> Tap:
        """The first call of the same block or function."""
        return replace(self, call=1)

    @property
    def operation(self) -> str:
        """The function's name without a rank: ``"max_pool"`` of ``max_pool2d()``."""
        return re.sub("[123]d$", "", self.function)

    def __str__(self) -> str:
        """The words of a report."""
        name = f"{self.function}()" if self.function else self.path or NETWORK
        return name if self.call == 1 else f"{name}#{self.call}"


UNIT = Tap(call=0)  # a unit itself among its taps: what it computes between them


@dataclass(frozen=True, order=True)
class Quantity:
    """An array that a unit computes, or is given, or the gradient of one.

    Attributes:
        kind: `INPUT`: what the unit gives to a tap; `OUTPUT`: what a tap, or the unit itself, gives;
            `ARGUMENT`: what the unit is given; `TENSOR`: a parameter or buffer.
        name: The tensor's name; else where the array is in its nest.
        tap: That gives or gets it; `UNIT` for the unit itself.
        gradient: Whether it is the gradient of that.

    Example:
        >>> str(Quantity("input", "attn_mask", Tap("attention"))), str(Quantity("output", "[1]"))
        ('the input of attention (attn_mask)', 'output[1]')
        >>> str(Quantity("output", "", Tap("fc"), gradient=True))
        'gradient of the output of fc'
    """

    kind: str
    name: str = ""
    tap: Tap = UNIT
    gradient: bool = False

    @property
    def slope(self) -> Quantity:
        """The gradient of it."""
        return replace(self, gradient=True)

    def __str__(self) -> str:
        """The words of a report."""
        return f"gradient of {self._words}" if self.gradient else self._words

    @property
    def _words(self) -> str:
        if self.kind == INPUT:
            where = f" ({self.name})" if self.name else ""
            return f"the input of {self.tap}{where}"
        if self.kind == OUTPUT:
            whose = "output" if self.tap == UNIT else f"the output of {self.tap}"
            return f"{whose}{self.name}"
        return self.name


def named(names: Iterable[Quantity], values: Any) -> dict[Quantity, Any]:
    """The leaves of a nest by their names."""
    return dict(zip(names, nest.leaves(values), strict=True))


def arguments(args: Any, kwargs: Any) -> list[Quantity]:
    """The leaves of a unit's own arguments.

    Example:
        >>> [str(one) for one in arguments((1, [2]), {"x": 3})]
        ['args[0]', 'args[1][0]', "kwargs['x']"]
    """
    paths = [path for path, _ in nest.leaves_with_paths(args, "args")]
    paths += [path for path, _ in nest.leaves_with_paths(dict(kwargs), "kwargs")]
    return [Quantity(ARGUMENT, path) for path in paths]


def inputs(tap: Tap, args: Any, kwargs: Any) -> list[Quantity]:
    """The leaves of what a tap is given; of a first argument that is one leaf no more is said.

    Example:
        >>> [one.name for one in inputs(Tap("fc"), (1, [2]), {"x": 3})]
        ['', 'args[1][0]', 'x']
    """
    found = []
    for path, _ in nest.leaves_with_paths(args, "args"):
        name = "" if path == "args[0]" else path
        found.append(Quantity(INPUT, name, tap))
    for name, value in sorted(kwargs.items()):
        for path, _ in nest.leaves_with_paths(value, name):
            found.append(Quantity(INPUT, path, tap))
    return found


def outputs(value: Any, tap: Tap = UNIT) -> list[Quantity]:
    """The leaves of what a tap, or the unit, gives."""
    return [
        Quantity(OUTPUT, path, tap) for path, _ in nest.leaves_with_paths(value, "")
    ]
