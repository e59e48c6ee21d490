"""The only recursion over nested containers: flatten, unflatten, map, paths and differences.

Containers are what optree knows (tuples, lists, dicts, named tuples, ordered and default dicts,
deques, and every type registered with it), dataclasses, and subclasses of dict, list, `UserDict`
and `UserList` with all their attributes. `None` is a leaf, so that it survives. A network is never
a container: what can be called, or has a metaclass of a framework's own, is a leaf.
"""

import builtins
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import optree

from deliralike.errors import StructureError
from deliralike.nest.containers import LEAVES, NAMESPACE, Build, Place, look_at

_OPTIONS: dict[str, Any] = {"none_is_leaf": True, "namespace": NAMESPACE}


def flatten(nest: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """Return the leaves in order, and the structure from which `unflatten` rebuilds the nest.

    Args:
        is_leaf: Containers for which it returns True are leaves too.

    Example:
        >>> leaves, structure = flatten({"b": 1, "a": (2, None)})
        >>> leaves, unflatten(structure, "xyz")
        ([2, None, 1], {'b': 'z', 'a': ('x', 'y')})
    """
    leaves, structure = optree.tree_flatten(nest, is_leaf, **_OPTIONS)
    looked_at: set[type] = set()
    while not LEAVES.issuperset(builtins.map(type, leaves)):
        classes = {type(leaf) for leaf in leaves} - looked_at
        if not classes:
            break  # containers that `is_leaf` stopped at
        look_at(classes)
        looked_at |= classes
        leaves, structure = optree.tree_flatten(nest, is_leaf, **_OPTIONS)
    return leaves, structure


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """Return a nest of a structure from `flatten`, with these leaves.

    Dataclasses are rebuilt without their ``__init__``.
    """
    return structure.unflatten(leaves)


def map(
    function: Callable[..., Any],
    nest: Any,
    *others: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Apply `function` to every leaf; the result has the same structure, types and key order.

    Args:
        is_leaf: Containers for which it returns True are leaves too.

    Raises:
        StructureError: One of `others` is built differently from `nest`.

    Example:
        >>> map(lambda x, y: x + y, {"a": 1, "b": (2, 3)}, {"a": 10, "b": (20, 30)})
        {'a': 11, 'b': (22, 33)}
    """
    leaves, structure = flatten(nest, is_leaf)
    columns = [_leaves_like(structure, nest, other) for other in others]
    return structure.unflatten([function(*each) for each in zip(leaves, *columns, strict=True)])


def leaves(nest: Any) -> list[Any]:
    """Return the leaves in order.

    Example:
        >>> leaves({"a": 1, "b": [2, None]})
        [1, 2, None]
    """
    return flatten(nest)[0]


def leaves_with_paths(nest: Any, root: str = "") -> list[tuple[str, Any]]:
    """Return every leaf with its path, written as code that reaches it from `root`.

    Example:
        >>> leaves_with_paths({"image": [1, 2]}, root="batch")
        [("batch['image'][0]", 1), ("batch['image'][1]", 2)]
    """
    values, structure = flatten(nest)
    return [
        (accessor.codify(root), value)
        for accessor, value in zip(structure.accessors(), values, strict=True)
    ]


def same_structure(first: Any, second: Any) -> bool:
    """Return whether two nests are built of the same containers, keys and lengths."""
    return flatten(first)[1] == flatten(second)[1]


def first_difference(
    first: Any,
    second: Any,
    root: str,
    where: tuple[str, str] = ("here", "there"),
    prefix: bool = False,
) -> str:
    """Return the path where two nests differ in structure, and how; empty where only leaves differ.

    Args:
        where: What to call the first and the second.
        prefix: Let a leaf of the first stand for a whole subtree of the second.

    Example:
        >>> first_difference({"a": 1}, {"b": 1}, "output", ("on replica 0", "on replica 1"))
        "output is a dict with keys ['a'] on replica 0 and with keys ['b'] on replica 1."
    """
    flatten((first, second))  # so that every class is known
    return _difference(first, second, root, where, prefix)


def described(value: Any) -> str:
    """Describe a value in a few words for an error.

    Example:
        >>> described({"a": 1}), described([1, 2]), described(3)
        ("a dict with keys ['a']", 'a list of length 2', '3')
    """
    level = _level(value)
    if level is not None:
        return f"{_article(type(value).__name__)} {_extent(level)}"
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    shape = getattr(value, "shape", None)
    return _article(type(value).__name__) + (
        f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    )


def graft(prefix: Any, nest: Any, put: Callable[[Any, Any], Any]) -> Any:
    """Replace every subtree of `nest` that a leaf of `prefix` stands for by ``put(leaf, subtree)``.

    The containers above those subtrees keep the types that they have in `nest`; `prefix` must fit
    (see `first_difference`).
    """
    flatten((prefix, nest))
    return _graft(prefix, nest, put)


# Paths and differences
# ------------------------------------------------------------


def _leaves_like(structure: Any, nest: Any, other: Any) -> list[Any]:
    flatten(other)
    try:
        return structure.flatten_up_to(other)
    except ValueError as error:
        difference = first_difference(
            nest, other, "nest", ("in the first", "in another"), prefix=True
        )
        raise StructureError(f"nests differ in structure: {difference or error}") from error


def _level(value: Any) -> Any:
    """Return the container's children, keys and type; None for a leaf."""
    try:
        return optree.tree_flatten_one_level(value, **_OPTIONS)
    except ValueError:
        return None


def _step(level: Any, entry: Any, path: str) -> str:
    return level.path_entry_type(entry, level.type, level.kind).codify(path)


def _difference(first: Any, second: Any, path: str, where: tuple[str, str], prefix: bool) -> str:
    mine, other = _level(first), _level(second)
    if mine is None and (prefix or other is None):
        return ""
    if mine is None or other is None or _kind(mine, prefix) is not _kind(other, prefix):
        return f"{path} is {described(first)} {where[0]} and {described(second)} {where[1]}."
    order = (
        set if prefix else tuple
    )  # in a prefix the keys of an ordered dict may stand in any order
    if order(mine.entries) != order(other.entries):
        what = _article(type(first).__name__)
        return f"{path} is {what} {_extent(mine)} {where[0]} and {_extent(other)} {where[1]}."
    children = dict(zip(other.entries, other.children, strict=True))
    pairs = zip(mine.entries, mine.children, strict=True)
    found = (
        _difference(child, children[at], _step(other, at, path), where, prefix)
        for at, child in pairs
    )
    return next(filter(None, found), "") or _other_difference(mine, other, path, where)


def _kind(level: Any, prefix: bool) -> Any:
    """Return what must be equal: the type; for a prefix any dict may stand for another."""
    return dict if prefix and level.type in (OrderedDict, defaultdict) else level.type


def _other_difference(mine: Any, other: Any, path: str, where: tuple[str, str]) -> str:
    """Compare what a type registered by the user holds besides its children.

    Types of Python's own hold nothing else.
    """
    if (
        mine.kind != optree.PyTreeKind.CUSTOM
        or mine.metadata == other.metadata
        or isinstance(mine.metadata, Build)
    ):
        return ""
    return (
        f"{path} is built with {mine.metadata!r} {where[0]} and with {other.metadata!r} {where[1]}."
    )


def _extent(level: Any) -> str:
    """Describe how large a container is, in words."""
    names = [entry.name if isinstance(entry, Place) else entry for entry in level.entries]
    if any(isinstance(entry, Place) and not entry.is_item for entry in level.entries):
        return f"with fields {names}"
    is_mapping = issubclass(level.type, dict) or names != list(range(len(names)))
    return f"with keys {names}" if is_mapping else f"of length {len(names)}"


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in ("a", "e", "i", "o", "u") else f"a {name}"


def _graft(prefix: Any, nest: Any, put: Callable[[Any, Any], Any]) -> Any:
    words, level = _level(prefix), _level(nest)
    if words is None:
        return put(prefix, nest)
    at = dict(zip(words.entries, words.children, strict=True))
    children = [
        _graft(at[entry], child, put)
        for entry, child in zip(level.entries, level.children, strict=True)
    ]
    return level.unflatten_func(level.metadata, children)
