"""The only place that makes containers of classes that optree does not know.

They are dataclasses, and subclasses of dict, list, `UserDict` and `UserList`, with all their
attributes. A network is never a container: an object that can be called, or whose class has a
metaclass of a framework's own, is a leaf.
"""

import functools
import threading
from collections import OrderedDict, UserDict, UserList, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import optree
from optree.utils import total_order_sorted

NAMESPACE = "deliralike"

LEAVES: set[type] = {
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
}  # classes whose instances are leaves
_LOCK = threading.Lock()
_PLAIN_METACLASSES = ("builtins", "abc", "typing")


class Place(NamedTuple):
    """One child of a container: an item, or an attribute."""

    name: Any
    is_item: bool


class _Step(optree.PyTreeEntry):
    """The step of a path from a container to one of its children."""

    def __call__(self, obj: Any, /) -> Any:
        return obj[self.entry.name] if self.entry.is_item else getattr(obj, self.entry.name)

    def codify(self, /, node: str = "") -> str:
        return f"{node}[{self.entry.name!r}]" if self.entry.is_item else f"{node}.{self.entry.name}"


@dataclass(frozen=True)
class Build:
    """Everything of which an instance is built, except its children.

    Attributes:
        places: The places of the children: items first.
        mirrored: Names of attributes that are items of the same name.
        factory: The default factory of a subclass of defaultdict.
        own_dict: Whether the attributes are the items (``self.__dict__ = self``).
        order: The order of the keys; the children are sorted where it does not matter, as optree
            does with a dict.
    """

    places: tuple[Place, ...]
    mirrored: tuple[str, ...]
    factory: Any
    own_dict: bool
    order: tuple[Any, ...] = field(compare=False)


class Builder:
    """Flattens and rebuilds the instances of one class without running the class's own code."""

    def __init__(self, cls: type, base: Any) -> None:
        """Inspect a class; `base` is the built-in container that it is a subclass of, or object."""
        self.cls, self.base = cls, base
        declared = [each.name for each in fields(cls)] if is_dataclass(cls) else []
        self.stored = dict.fromkeys(
            [*declared, *(slot for each in cls.__mro__ for slot in _slots(each))]
        )
        members = (member for each in cls.__mro__ for member in vars(each).items())
        self.cached = {
            name for name, member in members if isinstance(member, functools.cached_property)
        }

    def take_apart(self, instance: Any) -> tuple[list[Any], Build, tuple[Place, ...]]:
        """Return the children, everything else, and the places of the children."""
        items, attributes = self._items(instance), self._attributes(instance)
        mirrored = [
            name for name, value in attributes.items() if name in items and items[name] is value
        ]
        attributes = {name: value for name, value in attributes.items() if name not in mirrored}
        keys = list(items) if self.base in (list, OrderedDict) else total_order_sorted(items)
        places = (*(Place(key, True) for key in keys), *(Place(name, False) for name in attributes))
        factory = instance.default_factory if self.base is defaultdict else None
        build = Build(
            places, tuple(mirrored), factory, _own_dict(instance) is instance, tuple(items)
        )
        return [*(items[key] for key in keys), *attributes.values()], build, places

    def put_together(self, build: Build, children: Iterable[Any]) -> Any:
        """Return a new instance of the same kind with other children."""
        new = self.base.__new__(self.cls)
        filled = list(zip(build.places, children, strict=True))
        items = {place.name: child for place, child in filled if place.is_item}
        self._fill(new, {key: items[key] for key in build.order}, build.factory)
        attributes = {"__dict__": new} if build.own_dict else {}
        attributes |= {place.name: child for place, child in filled if not place.is_item}
        for name, value in (attributes | {name: items[name] for name in build.mirrored}).items():
            object.__setattr__(new, name, value)
        return new

    def _items(self, instance: Any) -> dict[Any, Any]:
        if self.base is object:
            return {}
        return dict(
            enumerate(list.__iter__(instance)) if self.base is list else self.base.items(instance)
        )

    def _attributes(self, instance: Any) -> dict[str, Any]:
        """Return the values stored on an instance, without cached properties.

        Those would not hold for other children.
        """
        own = _own_dict(instance)
        names = self.stored if own is instance else {**self.stored, **own}
        values = {name: _stored(instance, name) for name in names if name not in self.cached}
        return {name: value for name, value in values.items() if value is not _NOTHING}

    def _fill(self, new: Any, items: dict[Any, Any], factory: Any) -> None:
        if self.base is list:
            list.extend(new, items.values())
        elif self.base is not object:
            if self.base is defaultdict:
                new.default_factory = factory
            for key, value in items.items():
                self.base.__setitem__(new, key, value)


_NOTHING = object()


def _stored(instance: Any, name: str) -> Any:
    try:
        return object.__getattribute__(instance, name)
    except AttributeError:
        return _NOTHING


def _own_dict(instance: Any) -> dict[str, Any]:
    found = _stored(instance, "__dict__")
    return {} if found is _NOTHING else found


def _slots(cls: type) -> list[str]:
    """Return the names of a class's slots, private ones as they are stored."""
    slots = vars(cls).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    private = f"_{cls.__name__.lstrip('_')}"
    mangled = [
        private + name if name.startswith("__") and not name.endswith("__") else name
        for name in names
    ]
    return [name for name in mangled if name not in ("__dict__", "__weakref__")]


def look_at(classes: set[type]) -> None:
    """Register the classes whose instances are containers, and remember those whose are leaves."""
    with _LOCK:
        for cls in classes - LEAVES:
            if optree.register_pytree_node.get(cls, namespace=NAMESPACE) is not None:
                # by another thread meanwhile; a container is never remembered, so nobody takes it
                # for a leaf
                continue
            base = _base(cls)
            if base is None:
                LEAVES.add(cls)
                continue
            builder: Any = Builder(cls, base)
            optree.register_pytree_node(
                cls,
                builder.take_apart,
                builder.put_together,
                path_entry_type=_Step,
                namespace=NAMESPACE,
            )


def _base(cls: type) -> Any:
    """Return the built-in container that a class is built on, or object.

    None where instances of the class are leaves.
    """
    base: Any = next(
        (base for base in (OrderedDict, defaultdict, dict, list) if issubclass(cls, base)), object
    )
    container = base is not object or is_dataclass(cls) or issubclass(cls, UserDict | UserList)
    called = any("__call__" in vars(each) for each in cls.__mro__)
    if not container or called or type(cls).__module__ not in _PLAIN_METACLASSES:
        return None
    try:
        base.__new__(cls)
    except TypeError:  # an exception, a string: more than items and attributes
        return None
    return base
