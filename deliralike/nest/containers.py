"""The only place that makes containers of classes that optree does not know.

They are dataclasses, and subclasses of dict, list, `UserDict` and `UserList`, with all their
attributes. A network is never a container: an object that can be called, or whose class has a
metaclass of a framework's own, is a leaf.
"""

import functools
import threading
import warnings
from collections import OrderedDict, UserDict, UserList, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import optree
from optree.utils import total_order_sorted

NAMESPACE = "deliralike"

# Classes whose instances are leaves.
LEAVES: set[type] = {bool, int, float, complex, str, bytes, type(None)}
_LOCK = threading.Lock()
_PLAIN_METACLASSES = ("builtins", "abc", "typing")


class Entry(NamedTuple):
    """The key or name of a container's child, which is an item or an attribute."""

    name: Any
    is_item: bool


class _Step(optree.PyTreeEntry):
    """The step of a path from a container to one of its children."""

    def __call__(self, obj: Any, /) -> Any:
        if self.entry.is_item:
            return obj[self.entry.name]
        return getattr(obj, self.entry.name)

    def codify(self, /, node: str = "") -> str:
        if self.entry.is_item:
            return f"{node}[{self.entry.name!r}]"
        return f"{node}.{self.entry.name}"


@dataclass(frozen=True)
class Build:
    """Everything of which an instance is built, except its children.

    Attributes:
        entries: The entries of the children: items first.
        mirrored: Names of attributes that are items of the same name.
        factory: The default factory of a subclass of defaultdict.
        own_dict: Whether the attributes are the items (``self.__dict__ = self``).
        order: The order of the keys; the children are sorted where it does not matter, as optree
            does with a dict.
    """

    entries: tuple[Entry, ...]
    mirrored: tuple[str, ...]
    factory: Any
    own_dict: bool
    order: tuple[Any, ...] = field(compare=False)


class Builder:
    """Flattens and rebuilds the instances of one class without running the class's own code."""

    def __init__(self, cls: type, base: Any) -> None:
        """Inspect a class; `base` is the built-in container that it is a subclass of, or object."""
        self.cls = cls
        self.base = base
        self.cached: set[str] = set()  # the names of cached properties
        names: list[str] = []
        if is_dataclass(cls):
            names += [field.name for field in fields(cls)]
        for parent in cls.__mro__:
            names += _slots(parent)
            for name, member in vars(parent).items():
                if isinstance(member, functools.cached_property):
                    self.cached.add(name)
        self.stored = dict.fromkeys(names)  # an ordered set

    def flatten(self, instance: Any) -> tuple[list[Any], Build, tuple[Entry, ...]]:
        """Return the children, everything else, and the entries of the children."""
        items = self._items(instance)
        if self.base in (list, OrderedDict):
            keys = list(items)
        else:
            keys = total_order_sorted(items)
        children = []
        entries = []
        for key in keys:
            children.append(items[key])
            entries.append(Entry(key, is_item=True))
        mirrored = []
        for name, value in self._attributes(instance).items():
            if name in items and items[name] is value:
                mirrored.append(name)
                continue
            children.append(value)
            entries.append(Entry(name, is_item=False))
        build = Build(
            entries=tuple(entries),
            mirrored=tuple(mirrored),
            factory=instance.default_factory if self.base is defaultdict else None,
            own_dict=_own_dict(instance) is instance,
            order=tuple(items),
        )
        return children, build, build.entries

    def unflatten(self, build: Build, children: Iterable[Any]) -> Any:
        """Return a new instance of the same kind with other children."""
        new = self.base.__new__(self.cls)
        items = {}
        attributes = {}
        if build.own_dict:
            attributes["__dict__"] = new
        for entry, child in zip(build.entries, children, strict=True):
            if entry.is_item:
                items[entry.name] = child
            else:
                attributes[entry.name] = child
        for name in build.mirrored:
            attributes[name] = items[name]
        self._fill(new, {key: items[key] for key in build.order}, build.factory)
        for name, value in attributes.items():
            object.__setattr__(new, name, value)
        return new

    def _items(self, instance: Any) -> dict[Any, Any]:
        if self.base is object:
            return {}
        if self.base is list:
            return dict(enumerate(list.__iter__(instance)))
        return dict(self.base.items(instance))

    def _attributes(self, instance: Any) -> dict[str, Any]:
        """Return the values stored on an instance, without cached properties.

        Those would not hold for other children.
        """
        own = _own_dict(instance)
        names = self.stored if own is instance else {**self.stored, **own}
        values = {}
        for name in names:
            if name in self.cached:
                continue
            with suppress(AttributeError):  # an empty slot
                values[name] = object.__getattribute__(instance, name)
        return values

    def _fill(self, new: Any, items: dict[Any, Any], factory: Any) -> None:
        """Put items into a new instance."""
        if self.base is object:
            return
        if self.base is list:
            list.extend(new, items.values())
            return
        if self.base is defaultdict:
            new.default_factory = factory
        for key, value in items.items():
            self.base.__setitem__(new, key, value)


def _own_dict(instance: Any) -> dict[str, Any]:
    """Return the ``__dict__`` of an instance; an empty one where the class has slots only."""
    try:
        return object.__getattribute__(instance, "__dict__")
    except AttributeError:
        return {}


def _slots(cls: type) -> list[str]:
    """Return the names of a class's slots, private ones as they are stored."""
    slots = vars(cls).get("__slots__", ())
    if isinstance(slots, str):
        slots = [slots]
    names = []
    for name in slots:
        if name.startswith("__") and not name.endswith("__"):
            names.append(f"_{cls.__name__.lstrip('_')}{name}")
        elif name not in ("__dict__", "__weakref__"):
            names.append(name)
    return names


def register(classes: set[type]) -> None:
    """Register the classes whose instances are containers, and remember those whose are leaves."""
    with _LOCK:
        for cls in classes - LEAVES:
            if optree.register_pytree_node.get(cls, namespace=NAMESPACE) is not None:
                continue  # another thread has registered it as a container
            base = _base(cls)
            if base is None:
                LEAVES.add(cls)
                continue
            builder: Any = Builder(cls, base)
            optree.register_pytree_node(
                cls,
                builder.flatten,
                builder.unflatten,
                path_entry_type=_Step,
                namespace=NAMESPACE,
            )


def register_named_tuple(cls: type) -> None:
    """Register a named tuple whose own ``__new__`` takes, or makes, something else than its fields.

    It is rebuilt without it.
    """

    def unflatten(_: Any, children: Iterable[Any]) -> Any:
        return tuple.__new__(cls, children)

    # of what is meant
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        optree.register_pytree_node(
            cls,
            lambda instance: (tuple(instance), None),
            unflatten,
            path_entry_type=optree.NamedTupleEntry,
            namespace=NAMESPACE,
        )


def _base(cls: type) -> Any:
    """Return the built-in container that a class is built on, or object.

    None where instances of the class are leaves.
    """
    base: Any = object
    for container in (list, dict, defaultdict, OrderedDict):
        if issubclass(cls, container):
            base = container
    if (
        base is object
        and not is_dataclass(cls)
        and not issubclass(cls, UserDict | UserList)
    ):
        return None
    is_callable = any("__call__" in vars(parent) for parent in cls.__mro__)
    if is_callable or type(cls).__module__ not in _PLAIN_METACLASSES:
        return None
    try:
        base.__new__(cls)
    except TypeError:  # an exception, a string: more than items and attributes
        return None
    return base
