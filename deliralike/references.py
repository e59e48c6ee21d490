"""What a function reads beside its arguments: closures, globals, attributes of objects.

Only the user's own code is followed: functions and methods that it calls by name, and attributes,
by the names in it, of objects of the user's own classes.
"""

from __future__ import annotations

import dis
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

_OURS = __name__.partition(".")[0]
_INSTALLED = ("site-packages", "dist-packages")
_NAMESPACES = (SimpleNamespace, Namespace)
LONGEST = 64  # items of a container that are looked at each time


class References:
    """The places that functions read, found by a look at their code.

    A place that holds another object later may lead to other places: look again then.

    Attributes:
        names: The name of each place, such as ``beta`` or ``config.beta``.
        reads: For each place, a function that returns what it holds now; None where there is
            nothing any more.
    """

    def __init__(
        self,
        functions: Iterable[Callable[..., Any]],
        is_whole: Callable[[Any], bool],
        classes: Iterable[type] = (),
    ) -> None:
        """Look at functions, or at objects that are called.

        Args:
            is_whole: Whether a value is taken as it is and not looked into.
            classes: Those of networks that the functions call: their ``forward``, and what that
                calls, are followed, but for attributes of the networks.
        """
        self.names: list[str] = []
        self.reads: list[Callable[[], Any]] = []
        self._is_whole = is_whole
        self._code_names: set[str] = set()
        self._objects: dict[int, tuple[str, Any]] = {}  # by id
        self._visited: dict[tuple, Any] = {}  # holds them, so that no id is used twice
        classes = tuple(classes)
        if classes:
            self._code_names |= {"forward", "__call__"}
        for function in functions:
            self._visit("", function, is_called=True)
        count = -1
        while count != len(self._visited):  # names of one function lead to others
            count = len(self._visited)
            for kind in classes:
                self._visit_methods(kind.__name__, kind)
            for name, value in list(self._objects.values()):
                self._visit_methods(name, type(value))
                self._visit_attributes(name, value)

    def _visit(self, name: str, value: Any, is_called: bool = False) -> None:
        key = (id(value), is_called)
        if value is None or key in self._visited or self._is_whole(value):
            return
        if isinstance(value, FunctionType):
            if is_called or is_user_code(value.__module__):
                self._visited[key] = value
                self._visit_function(value)
        elif isinstance(value, MethodType):
            self._code_names.add(value.__name__)
            if _is_users(value.__self__) and not self._is_whole(value.__self__):
                self._objects[id(value.__self__)] = (name, value.__self__)
            else:
                self._visit(name, value.__self__, is_called)
            self._visit(name, value.__func__, is_called)
        elif isinstance(value, partial):
            self._visit(name, value.func, is_called=True)
            for bound in (*value.args, *value.keywords.values()):
                self._add(name, partial(_same, bound))
        elif isinstance(value, list | tuple | dict):
            self._visited[key] = value
            for item in items(value):
                self._visit(name, item)
        elif _is_users(value):
            self._visited[key] = value
            self._objects[id(value)] = (name, value)
            called = methods_of(type(value)).get("__call__")
            self._visit(name, called, is_called=True)
        elif is_called:
            self._visited[key] = value
            # such as the functions that an object of a library calls
            for part in getattr(value, "__dict__", {}).values():
                is_container = isinstance(part, list | tuple | dict)
                for called in items(part) if is_container else [part]:
                    if callable(called):
                        self._visit(name, called, is_called=True)

    def _visit_function(self, function: FunctionType) -> None:
        code = function.__code__
        self._code_names.update(names_in(code))
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            if name != "__class__":
                self._add(name, partial(cell_value, cell), is_called=True)
        defaults = [*(function.__defaults__ or ())]
        defaults += (function.__kwdefaults__ or {}).values()
        for default in defaults:
            self._add(function.__name__, partial(_same, default))
        for name in globals_in(code):
            if name in function.__globals__:
                self._add(name, partial(function.__globals__.get, name))

    def _visit_methods(self, name: str, kind: type) -> None:
        methods = methods_of(kind)
        for method in self._code_names & methods.keys():
            self._visit(name, methods[method], is_called=True)

    def _visit_attributes(self, name: str, value: Any) -> None:
        attributes = getattr(value, "__dict__", {})
        for attribute in sorted(self._code_names & attributes.keys()):
            key = (id(value), attribute)
            if key not in self._visited:
                self._visited[key] = value
                path = f"{name}.{attribute}".lstrip(".")
                self._add(path, partial(attributes.get, attribute), is_called=True)

    def _add(self, name: str, read: Callable[[], Any], is_called: bool = False) -> None:
        value = read()
        if isinstance(value, type | type(sys)):
            return
        self.names.append(name)
        self.reads.append(read)
        self._visit(name, value, is_called and isinstance(value, FunctionType))


def items(value: list | tuple | dict) -> list[Any]:
    """Return the items of a container; none of one with too many to look at each time."""
    if len(value) > LONGEST:
        return []
    return list(value.values() if isinstance(value, dict) else value)


def is_user_code(module: str | None) -> bool:
    """Return whether a module is the user's own.

    Example:
        >>> [is_user_code(name) for name in ("deliralike.data", "json", "numpy", "__main__")]
        [False, False, False, True]
    """
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return True
    if top in ("", _OURS) or top in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if not file:
        return True
    return set(Path(file).parts).isdisjoint(_INSTALLED)


def methods_of(kind: type) -> dict[str, FunctionType]:
    """Return the methods of a class and its bases that the user has written."""
    methods: dict[str, FunctionType] = {}
    for each in reversed(kind.__mro__):
        if not is_user_code(each.__module__):
            continue
        for name, value in vars(each).items():
            if isinstance(value, FunctionType):
                methods[name] = value
    return methods


def globals_in(code: CodeType) -> Iterator[str]:
    """Yield the module's names that code looks up, that of inner functions included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from globals_in(inner)


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the attributes and names that code uses."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)


def cell_value(cell: Any) -> Any:
    """Return what a closure's variable holds; None where it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _same(value: Any) -> Any:
    return value


def _is_users(value: Any) -> bool:
    return isinstance(value, _NAMESPACES) or (
        hasattr(value, "__dict__") and is_user_code(type(value).__module__)
    )
