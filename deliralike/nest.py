"""The only recursion over nested containers: map, and leaves with their paths.

Containers are what optree knows: tuples, lists, dicts, named tuples, ordered and default dicts, deques,
and every type registered with it under the namespace ``"deliralike"``. `None` is a leaf, so that it survives.
"""

from collections.abc import Callable
from typing import Any

import optree

from deliralike.errors import StructureError

NAMESPACE = "deliralike"
_OPTIONS: dict[str, Any] = {"none_is_leaf": True, "namespace": NAMESPACE}


def map(function: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """Apply `function` to every leaf; the result has the same structure, types and key order.

    Raises:
        StructureError: One of `others` is built differently from `nest`.

    Example:
        >>> map(lambda x, y: x + y, {"a": 1, "b": (2, 3)}, {"a": 10, "b": (20, 30)})
        {'a': 11, 'b': (22, 33)}
    """
    try:
        return optree.tree_map(function, nest, *others, **_OPTIONS)
    except ValueError as error:
        if all(same_structure(nest, other) for other in others):
            raise
        raise StructureError(f"nests differ in structure: {error}") from error


def leaves(nest: Any) -> list[Any]:
    """The leaves in order.

    Example:
        >>> leaves({"a": 1, "b": [2, None]})
        [1, 2, None]
    """
    return optree.tree_leaves(nest, **_OPTIONS)


def leaves_with_paths(nest: Any, root: str = "") -> list[tuple[str, Any]]:
    """Every leaf with its path, written as code that reaches it from `root`.

    Example:
        >>> leaves_with_paths({"image": [1, 2]}, root="batch")
        [("batch['image'][0]", 1), ("batch['image'][1]", 2)]
    """
    accessors, values, _ = optree.tree_flatten_with_accessor(nest, **_OPTIONS)
    return [(accessor.codify(root), value) for accessor, value in zip(accessors, values, strict=True)]


def same_structure(first: Any, second: Any) -> bool:
    """Whether both are built of the same containers, keys and lengths."""
    return optree.tree_structure(first, **_OPTIONS) == optree.tree_structure(second, **_OPTIONS)
