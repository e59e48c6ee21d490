"""Sizes that layers find out in the run, in a class whose instances have found several.

``L.Linear(None, 10)`` has the size of the run. A class in which that differs gets one more
argument, which is given where an instance is created: ``Block(6, in_channels=3)``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from deliralike.port.framework import Framework

Found = Sequence[tuple[Any, int]]  # networks, each with a size


class LateSizes:
    """The arguments by which instances of classes are given such sizes.

    Args:
        framework: The framework of the networks.
    """

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self._found: dict[Any, dict[str, Found]] = defaultdict(dict)

    def add(self, cls: Any, name: str, found: Found) -> str:
        """Give a class one more argument, and return its name.

        Args:
            cls: The class.
            name: What the size is called.
            found: The layers that have found it out, one in each instance.
        """
        arguments = self._found[cls]
        if name in arguments:
            name = f"{name}{len(arguments) + 1}"
        arguments[name] = found
        return name

    def arguments(self, cls: Any) -> list[str]:
        """The names of the arguments that a class has got."""
        return list(self._found[cls])

    def given(self, cls: type, networks: Sequence[Any]) -> dict[str, Found]:
        """For each argument of a class the sizes of some instances, or of networks around them."""
        given: dict[str, Found] = {}
        for name, found in self._found[cls].items():
            sizes = []
            for network in networks:
                blocks = {id(block) for block in self.framework.blocks(network)}
                inside = {size for layer, size in found if id(layer) in blocks}
                sizes += [(network, size) for size in inside]
            given[name] = sizes
        return given
