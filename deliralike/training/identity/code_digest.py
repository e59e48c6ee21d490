"""Digests of the code of functions: the same in every process, whatever line the code stands in.

Code of Python, of an installed package or of this one is described by its name alone: another
version of it does not make another run.
"""

from __future__ import annotations

import dis
import inspect
import sysconfig
from types import CodeType, FunctionType
from typing import Any

from xxhash import xxh3_64_hexdigest

from deliralike.references import (
    cell_value,
    globals_in,
    is_user_code,
    methods_of,
    names_in,
)

_PYTHON = f" of Python {sysconfig.get_python_version()}"  # bytecode depends on it
_ENTRIES = (
    "forward",
    "__call__",
    "__getitem__",
    "__len__",
    "__iter__",
    "factor",
    "train_step",
    "closure",
    "prepare_batch",
)
_SCALARS = (bool, int, float, str, type(None))
_ABSENT = object()


def digest(content: str | bytes | memoryview) -> str:
    """Return a digest of a text, or of bytes.

    Example:
        >>> digest("abc")
        '78af5f94892f3950'
    """
    if isinstance(content, str):
        return xxh3_64_hexdigest(content.encode("utf-8", "surrogatepass"))
    return xxh3_64_hexdigest(content)


def of_function(function: FunctionType) -> str:
    """Return a digest of a function's code and of the user's own functions that it calls by name.

    Comments, names of variables, line numbers and docstrings are not in it.

    Example:
        >>> first, same = (eval("lambda x: x + 1"), eval("lambda y: (y + 1)"))
        >>> of_function(first) == of_function(same) != of_function(eval("lambda x: x + 2"))
        True
    """
    return (
        digest(repr([_content(each.__code__) for each in _with_helpers(function)]))
        + _PYTHON
    )


def of_class(kind: type) -> str | None:
    """Return a digest of the code that a call of an object runs in the user's own classes.

    The classes are the object's class and its bases; None if none of them is the user's own.
    """
    methods = methods_of(kind)
    reached = [name for name in _ENTRIES if name in methods]
    for name in reached:
        used = methods.keys() & set(names_in(methods[name].__code__))
        reached += sorted(used.difference(reached))  # visited by this loop too
    if not reached:
        return None
    return digest(repr([of_function(methods[name]) for name in reached])) + _PYTHON


def values_of(function: FunctionType) -> dict[str, Any]:
    """Return the values that a function refers to beside its arguments.

    They are defaults, closures, and numbers and texts of its module.
    """
    parameters = inspect.signature(function).parameters.values()
    values = {
        each.name: each.default for each in parameters if each.default is not each.empty
    }
    for name, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True
    ):
        if name != "__class__":
            values[name] = cell_value(cell)
    for helper in _with_helpers(function):
        for name in globals_in(helper.__code__):
            if isinstance(helper.__globals__.get(name, _ABSENT), _SCALARS):
                values.setdefault(name, helper.__globals__[name])
    return values


def _content(code: CodeType) -> list[Any]:
    """Return the instructions, each with its constant or name; variables have numbers."""
    return [(each.opname, _argument(each)) for each in dis.get_instructions(code)]


def _argument(instruction: dis.Instruction) -> Any:
    if instruction.opcode in dis.hasconst:
        return _constant(instruction.argval)
    if instruction.opcode in dis.hasname:
        return instruction.argval
    return instruction.arg


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _content(value)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return repr(value)


def _with_helpers(function: FunctionType) -> list[FunctionType]:
    """Return a function and the user's own functions that it calls by name, directly or not."""
    functions = [function]
    for caller in functions:  # grows in the loop
        for name in globals_in(caller.__code__):
            helper = caller.__globals__.get(name)
            if not isinstance(helper, FunctionType) or helper in functions:
                continue
            if is_user_code(helper.__module__):
                functions.append(helper)
    return functions
