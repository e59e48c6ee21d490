"""The text of a network: a line for each block, as PyTorch prints its modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deliralike import nest
from deliralike.network.arguments import Block


def block_tree(
    name: str, settings: Iterable[tuple[str, Any]], children: Iterable[tuple[str, str]]
) -> str:
    """Return the text of a block and of all below it, indented.

    Args:
        name: The name of its class.
        settings: The names and values of its settings; blocks among them are left out, since the
            tree shows them anyway.
        children: The name and the text of each block within.

    Example:
        >>> print(block_tree("Net", {"width": 3}.items(), [("act", "ReLU()")]))
        Net(
          width=3
          (act): ReLU()
        )
    """
    texts = [
        f"{key}={_text(value)}" for key, value in settings if not _has_blocks(value)
    ]
    lines = []
    for key, text in children:
        lines.append(f"({key}): {text}".replace("\n", "\n  "))
    if not lines:
        return f"{name}({', '.join(texts)})"
    if texts:
        lines.insert(0, ", ".join(texts))
    return "\n  ".join([f"{name}(", *lines]) + "\n)"


def _text(value: Any) -> str:
    """Return a setting as it was written; of an array its shape."""
    return nest.described(value) if getattr(value, "shape", ()) else repr(value)


def _has_blocks(value: Any) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    items = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(item, Block) for item in items)
