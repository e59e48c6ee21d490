"""The tree of a network's blocks: a walk through it, and its text, as PyTorch prints modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from deliralike import nest
from deliralike.network.arguments import Block


def walk(
    root: Any, children: Callable[[Any], Iterable[tuple[Any, Any]]]
) -> Iterator[tuple[str, Any]]:
    """Yield an object and everything below it with its dotted path, each once.

    Args:
        children: Returns the name and the value of each part of an object, in order.

    Example:
        >>> list(walk({"a": {"b": 3}}, lambda node: node.items() if type(node) is dict else ()))
        [('', {'a': {'b': 3}}), ('a', {'b': 3}), ('a.b', 3)]
    """
    visited: set[int] = set()

    def visit(path: str, node: Any) -> Iterator[tuple[str, Any]]:
        if id(node) not in visited:
            visited.add(id(node))
            yield path, node
            for name, child in children(node):
                yield from visit(f"{path}.{name}".lstrip("."), child)

    return visit("", root)


def block_tree(
    name: str, settings: Iterable[tuple[str, Any]], children: Iterable[tuple[str, str]]
) -> str:
    """Return the text of a block and of all below it, indented.

    Args:
        name: The name of its class.
        settings: The names and values of its settings, of arrays the shape; blocks among them are
            left out, since the tree shows them anyway.
        children: The name and the text of each block within.

    Example:
        >>> print(block_tree("Net", {"width": 3}.items(), [("act", "ReLU()")]))
        Net(
          width=3
          (act): ReLU()
        )
    """
    texts = []
    for key, value in settings:
        if not _has_blocks(value):
            is_array = getattr(value, "shape", ())
            texts.append(f"{key}={nest.described(value) if is_array else repr(value)}")
    lines = []
    for key, text in children:
        lines.append(f"({key}): {text}".replace("\n", "\n  "))
    if not lines:
        return f"{name}({', '.join(texts)})"
    if texts:
        lines.insert(0, ", ".join(texts))
    return "\n  ".join([f"{name}(", *lines]) + "\n)"


def _has_blocks(value: Any) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    items = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(item, Block) for item in items)
