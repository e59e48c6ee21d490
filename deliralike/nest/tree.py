"""The only recursion over nested containers: flatten, unflatten, map, paths and differences.

Containers are what optree knows (tuples, lists, dicts, named tuples, ordered and default dicts,
deques, and every type registered with it), dataclasses, and subclasses of dict, list, `UserDict`
and `UserList` with all their attributes. `None` is a leaf, so that it survives. A network is never
a container: what can be called, or has a metaclass of a framework's own, is a leaf.
"""

import builtins
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import optree

from deliralike.errors import StructureError
from deliralike.nest.containers import LEAVES, NAMESPACE, Build, Entry, register

_DICTS = (dict, OrderedDict, defaultdict)
_OPTIONS: dict[str, Any] = {"none_is_leaf": True, "namespace": NAMESPACE}


def flatten(
    nest: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Any]:
    """Return the leaves in order, and the structure from which `unflatten` rebuilds the nest.

    Args:
        is_leaf: Containers for which it returns True are leaves too.

    Example:
        >>> leaves, structure = flatten({"b": 1, "a": (2, None)})
        >>> leaves, unflatten(structure, "xyz")
        ([2, None, 1], {'b': 'z', 'a': ('x', 'y')})
    """
    leaves, structure = optree.tree_flatten(nest, is_leaf, **_OPTIONS)
    known: set[type] = set()
    while not LEAVES.issuperset(builtins.map(type, leaves)):
        classes = {type(leaf) for leaf in leaves} - known
        if not classes:
            break  # containers that are leaves by `is_leaf`
        register(classes)
        known |= classes
        leaves, structure = optree.tree_flatten(nest, is_leaf, **_OPTIONS)
    return leaves, structure


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """Return a nest of a structure from `flatten`, with these leaves.

    Dataclasses are rebuilt without their ``__init__``.
    """
    return structure.unflatten(leaves)


class SplitNest(NamedTuple):
    """A nest whose arrays are apart from everything else.

    Attributes:
        spec: The structure of the nest.
        static: For each leaf whether it is among the arrays, and the leaf where it is not.
        arrays: These leaves.
    """

    spec: Any
    static: tuple[tuple[bool, Any], ...]
    arrays: list[Any]

    def unflatten(self, arrays: Iterable[Any]) -> Any:
        """Return the nest with other arrays in their places."""
        rest = iter(arrays)
        leaves = [next(rest) if is_array else value for is_array, value in self.static]
        return unflatten(self.spec, leaves)


def split(nest: Any, kinds: type | tuple[type, ...]) -> SplitNest:
    """Return a nest with the leaves of some classes apart from the others.

    Example:
        >>> parts = split({"b": 1.5, "a": ("x", 2.5)}, float)
        >>> parts.arrays, parts.unflatten([8, 9])
        ([2.5, 1.5], {'b': 9, 'a': ('x', 8)})
    """
    leaves, spec = flatten(nest)
    static = []
    arrays = []
    for leaf in leaves:
        is_array = isinstance(leaf, kinds)
        static.append((is_array, None if is_array else leaf))
        if is_array:
            arrays.append(leaf)
    return SplitNest(spec, tuple(static), arrays)


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
    results = [function(*row) for row in zip(leaves, *columns, strict=True)]
    return structure.unflatten(results)


def map_where(
    condition: Callable[[Any], bool], function: Callable[[Any], Any], nest: Any
) -> Any:
    """Apply `function` to the leaves that meet a condition; the others stay as they are.

    Example:
        >>> map_where(lambda x: x > 1, lambda x: -x, {"a": 1, "b": (2, 3)})
        {'a': 1, 'b': (-2, -3)}
    """
    leaves, structure = flatten(nest)
    results = []
    for leaf in leaves:
        results.append(function(leaf) if condition(leaf) else leaf)
    return structure.unflatten(results)


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
    paths = [accessor.codify(root) for accessor in structure.accessors()]
    return list(zip(paths, values, strict=True))


def path_of(structure: Any, index: int, root: str) -> str:
    """Return the path of one leaf of a structure from `flatten`; see `leaves_with_paths`."""
    return structure.accessors()[index].codify(root)


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
    return _difference(first, second, root, where, prefix=prefix)


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
    name = _article(type(value).__name__)
    if isinstance(shape, tuple):
        name += f" of shape {tuple(shape)}"
    return name


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
    """Return the subtrees of another nest in place of the leaves of a structure.

    Raises:
        StructureError: The other nest is built differently.
    """
    flatten(other)
    try:
        return structure.flatten_up_to(other)
    except ValueError as error:
        where = ("in the first", "in another")
        difference = first_difference(nest, other, "nest", where, prefix=True)
        raise StructureError(
            f"nests differ in structure: {difference or error}"
        ) from error


def _level(value: Any) -> Any:
    """Return the container's children, keys and type; None for a leaf."""
    try:
        return optree.tree_flatten_one_level(value, **_OPTIONS)
    except ValueError:
        return None


def _step(level: Any, entry: Any, path: str) -> str:
    return level.path_entry_type(entry, level.type, level.kind).codify(path)


def _difference(
    first: Any, second: Any, path: str, where: tuple[str, str], *, prefix: bool
) -> str:
    level = _level(first)
    other = _level(second)
    if level is None and (prefix or other is None):
        return ""
    if (
        level is None
        or other is None
        or not _are_of_one_kind(level, other, prefix=prefix)
    ):
        return f"{path} is {described(first)} {where[0]} and {described(second)} {where[1]}."
    # In a prefix the keys of an ordered dict may stand in any order.
    keys: Any = set if prefix else tuple
    if keys(level.entries) != keys(other.entries):
        name = _article(type(first).__name__)
        return f"{path} is {name} {_extent(level)} {where[0]} and {_extent(other)} {where[1]}."
    others = dict(zip(other.entries, other.children, strict=True))
    for entry, child in zip(level.entries, level.children, strict=True):
        child_path = _step(other, entry, path)
        difference = _difference(child, others[entry], child_path, where, prefix=prefix)
        if difference:
            return difference
    return _other_difference(level, other, path, where)


def _are_of_one_kind(level: Any, other: Any, *, prefix: bool) -> bool:
    """Return whether containers have the same type; in a prefix any dict stands for another."""
    if prefix and level.type in _DICTS and other.type in _DICTS:
        return True
    return level.type is other.type


def _other_difference(level: Any, other: Any, path: str, where: tuple[str, str]) -> str:
    """Compare what a type registered by the user holds besides its children.

    Types of Python's own hold nothing else.
    """
    own = level.metadata
    others = other.metadata
    if (
        level.kind != optree.PyTreeKind.CUSTOM
        or own == others
        or isinstance(own, Build)
    ):
        return ""
    return f"{path} is built with {own!r} {where[0]} and with {others!r} {where[1]}."


def _extent(level: Any) -> str:
    """Describe how large a container is, in words."""
    names = []
    has_fields = False
    for entry in level.entries:
        if isinstance(entry, Entry):
            names.append(entry.name)
            has_fields = has_fields or not entry.is_item
        else:
            names.append(entry)
    if has_fields:
        return f"with fields {names}"
    if issubclass(level.type, dict) or names != list(range(len(names))):
        return f"with keys {names}"
    return f"of length {len(names)}"


def _article(name: str) -> str:
    if name[:1].lower() in ("a", "e", "i", "o", "u"):
        return f"an {name}"
    return f"a {name}"


def _graft(prefix: Any, nest: Any, put: Callable[[Any, Any], Any]) -> Any:
    prefix_level = _level(prefix)
    if prefix_level is None:
        return put(prefix, nest)
    level = _level(nest)
    prefixes = dict(zip(prefix_level.entries, prefix_level.children, strict=True))
    pairs = zip(level.entries, level.children, strict=True)
    children = [_graft(prefixes[entry], child, put) for entry, child in pairs]
    return level.unflatten_func(level.metadata, children)
