"""What a function computes, as a digest of its code: the same in every process, whatever line it stands in.

Code that comes with Python, with a package that is installed, or with this one is told by its name alone: another
version of it is not another run.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_OURS = __name__.partition(".")[0]
_INSTALLED = ("site-packages", "dist-packages")
_PYTHON = f" of Python {'.'.join(platform.python_version_tuple()[:2])}"  # bytecode is that of a version
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


def short(content: str | memoryview) -> str:
    """A digest of a text, or of bytes.

    Example:
        >>> short("abc")
        '63906248'
    """
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=4).hexdigest()


def is_own(module: str | None) -> bool:
    """Whether a module is the user's own.

    Example:
        >>> is_own("deliralike.data"), is_own("json"), is_own("numpy"), is_own("__main__")
        (False, False, False, True)
    """
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return True
    if top in ("", _OURS) or top in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return not (file and set(Path(file).parts) & set(_INSTALLED))


def of_function(function: FunctionType) -> str:
    """A digest of a function's code, and of the user's own functions that it calls by name.

    Comments, names of variables, lines and docstrings are not in it.

    Example:
        >>> first, same = (eval("lambda x: x + 1"), eval("lambda y: (y + 1)"))
        >>> of_function(first) == of_function(same) != of_function(eval("lambda x: x + 2"))
        True
    """
    return short(repr([_content(each.__code__) for each in _with_helpers(function)])) + _PYTHON


def of_class(kind: type) -> str | None:
    """A digest of what the user's own classes among a class and its bases compute when called; None without such."""
    methods = _methods(kind)
    reached = [name for name in _ENTRIES if name in methods]
    for name in reached:
        reached += sorted({*_names(methods[name].__code__)} & methods.keys() - {*reached})
    if not reached:
        return None
    return short(repr([of_function(methods[name]) for name in reached])) + _PYTHON


def values_of(function: FunctionType) -> dict[str, Any]:
    """What a function refers to beside its arguments: defaults, closures, numbers and texts of its module."""
    parameters = inspect.signature(function).parameters.values()
    found = {each.name: each.default for each in parameters if each.default is not each.empty}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            found[name] = _held(cell)
    for helper in _with_helpers(function):
        for name in _globals(helper.__code__):
            if isinstance(helper.__globals__.get(name, _OURS.encode()), _SCALARS):
                found.setdefault(name, helper.__globals__[name])
    return found


def comparable(first: str, second: str) -> bool:
    """Whether two texts are not digests of the bytecode of different versions of Python."""
    versions = [text.partition(" of Python ")[2] for text in (first, second)]
    return versions[0] == versions[1] or "" in versions


def _content(code: CodeType) -> list[Any]:
    """The instructions, each with the constant or the name that it loads; variables by their number."""
    return [(each.opname, _argument(each)) for each in dis.get_instructions(code)]


def _argument(instruction: dis.Instruction) -> Any:
    if instruction.opcode in dis.hasconst:
        return _constant(instruction.argval)
    return instruction.argval if instruction.opcode in dis.hasname else instruction.arg


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _content(value)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return repr(value)


def _with_helpers(function: FunctionType) -> list[FunctionType]:
    """A function and the user's own functions that it calls by name, directly or not."""
    found = [function]
    for each in found:
        for name in _globals(each.__code__):
            helper = each.__globals__.get(name)
            if isinstance(helper, FunctionType) and helper not in found and is_own(helper.__module__):
                found.append(helper)
    return found


def _globals(code: CodeType) -> Iterator[str]:
    """The names of a module that code looks up, that of functions inside included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals(inner)


def _names(code: CodeType) -> Iterator[str]:
    """The attributes and names that code uses."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _methods(kind: type) -> dict[str, FunctionType]:
    """The methods that the user has written, of a class and its bases."""
    found: dict[str, FunctionType] = {}
    for each in reversed(kind.__mro__):
        if is_own(each.__module__):
            found |= {name: value for name, value in vars(each).items() if isinstance(value, FunctionType)}
    return found


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None
