"""Description of values by texts that are the same in every process, for the comparison of runs.

The texts hold no ``id``, no ``hash`` and no place in memory. A function is described by its name, a
digest of its code, and the values that it refers to; an array by its type, shape and a digest of
its content; any other object by its class and its attributes. A value that cannot be described is
`UNKNOWN`, which is equal to everything.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.network.base import AbstractNetwork, Block
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.references import is_user_code
from deliralike.training.identity import code_digest

UNKNOWN = "unknown"
ARRAY_BYTES = 2**30  # read of an array, in 0.2 s; of a larger one, rows between
SHOWN = 16  # items of a sequence that have a text each
SAMPLED = 1024  # items that the digest of a longer sequence is made of
_DEEPEST = 8  # nests below a value
_MOST = 4096  # texts of one value
# They have a state or a place of their own, or are described elsewhere.
_APART = (AbstractNetwork, Block, AbstractOptimizer, Backend, ProcessGroup, ModuleType)
_PLAIN = (bool, int, float, complex, bytes, type(None), range, slice, np.dtype)

Texts = dict[str, str]
Above = tuple[int, ...]  # the ids of the objects that hold a value
Parts = Mapping[str, Any]


def described(path: str, value: Any) -> Texts:
    """Return texts by path that describe a value, beginning with that of the value itself.

    Of an array above 1 GiB every n-th row is read, and of a long sequence every n-th item, so that
    a change between may be missed. Samples of datasets that are no arrays are not read: a dataset
    is its class and the attributes of its object.

    Example:
        >>> from deliralike.data import transforms
        >>> described("transform", transforms.Noise(std=0.1))
        {'transform': 'Noise', 'transform.std': '0.1'}
    """
    texts: Texts = {}
    try:
        _add(texts, path, value, ())
    except Exception:  # noqa: BLE001
        return {path: UNKNOWN}
    return texts


def array_text(array: Any, most: int = ARRAY_BYTES) -> str:
    """Return the type, the shape and a digest of the content of an array.

    If the array has more bytes than `most`, every n-th row is read. An array of another library,
    such as one that lies in a file, is cut before it is read.

    Example:
        >>> array_text(np.arange(3, dtype=np.int8))
        'int8 (3,), digest 5f4299fc161c9cbb'
    """
    step = math.ceil(array.nbytes / most)
    read = np.asarray(array[::step] if step > 1 else array, order="C")
    if read.dtype.hasobject:
        return UNKNOWN
    little_endian = read.astype(read.dtype.newbyteorder("<"), copy=False)
    content = little_endian.reshape(-1).view(np.uint8)
    return f"{read.dtype.name} {tuple(array.shape)}, digest {code_digest.digest(content.data)}"


def _add(texts: Texts, path: str, value: Any, above: Above) -> None:
    """Add the texts of a value and of its parts."""
    texts[path] = UNKNOWN
    if id(value) in above or len(above) > _DEEPEST or len(texts) > _MOST:
        return
    above = (*above, id(value))
    texts[path], parts = _text_and_parts(value, above)
    for name, part in parts.items():
        _add(texts, f"{path}.{name}", part, above)


def _text_and_parts(value: Any, above: Above) -> tuple[str, Parts]:
    """Return the text of a value, and its parts by name, each of which has a text of its own."""
    text = _scalar_text(value)
    if text is not None:
        return text, {}
    if isinstance(value, _APART):
        return UNKNOWN, {}
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        try:
            return array_text(value), {}
        except Exception:  # noqa: BLE001
            return UNKNOWN, {}  # an array of another device may refuse to be read
    if isinstance(value, Mapping):
        items = value.items()
        named = {str(key): item for key, item in items if _scalar_text(key) is not None}
        return f"{type(value).__name__} of {len(value)}", named
    if isinstance(value, list | tuple | set | frozenset):
        return _sequence(value, above)
    if isinstance(value, functools.partial):
        return "partial", {"of": value.func, "args": value.args, **value.keywords}
    if isinstance(value, MethodType):
        text, parts = _text_and_parts(value.__func__, above)
        return text, {**parts, "self": value.__self__}
    if isinstance(value, FunctionType):
        return f"function {value.__name__}", _parts_of_function(value)
    if isinstance(value, BuiltinFunctionType | np.ufunc):
        return f"function {value.__name__}", {}
    if isinstance(value, type):
        return f"class {value.__name__}", {}
    return _object(value)


def _sequence(value: Collection[Any], above: Above) -> tuple[str, Parts]:
    """Return the items of a short sequence as parts, and the digest of some of a long one."""
    items = list(value)
    if isinstance(value, set | frozenset):
        items.sort(key=repr)
    text = f"{type(value).__name__} of {len(items)}"
    names = getattr(value, "_fields", None)
    if names is not None or len(items) <= SHOWN:
        keys = names or map(str, range(len(items)))
        return text, dict(zip(keys, items, strict=True))
    inside: Texts = {}
    for number, item in enumerate(items[:: math.ceil(len(items) / SAMPLED)]):
        _add(inside, str(number), item, above)
    return f"{text}, digest {code_digest.digest(repr(inside))}", {}


def _parts_of_function(function: FunctionType) -> Parts:
    if not is_user_code(function.__module__):
        return {}
    code = code_digest.of_function(function)
    return {"code": code, **code_digest.values_of(function)}


def _object(value: Any) -> tuple[str, Parts]:
    """Return the class of an object, and its code and attributes, where they are accessible."""
    attributes: dict[str, Any] = {}
    code = code_digest.of_class(type(value))
    if code is not None:
        attributes["code"] = code
    if is_dataclass(value):
        compared = [field.name for field in fields(value) if field.compare]
        attributes |= {name: getattr(value, name) for name in compared}
    elif hasattr(value, "__dict__"):
        attributes |= vars(value)
    else:
        return UNKNOWN, {}
    return type(value).__name__, attributes


def _scalar_text(value: Any) -> str | None:
    """Return the text of a value without parts; None for a value with parts.

    Of an absolute path only the last part is in the text, since disks differ.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str):
        text = str(value)
        if os.path.isabs(value):
            text = os.path.basename(value.rstrip(os.sep))
        return repr(text)
    if isinstance(value, _PLAIN):
        return repr(value)
    return None


# Comparing ----------------------------------------------------------------------------------------


def differences(
    before: Texts, here: Texts, skipped: Callable[[str], bool] = lambda _path: False
) -> dict[str, str]:
    """Return the differences by path, such as ``"was 0.1, here it is 0.2"``.

    Paths below a difference are left out.

    Args:
        skipped: A function that returns whether a path, and all below it, is not to be compared.

    Example:
        >>> before = {"loss": "function ce", "lr": "0.1"}
        >>> differences(before, {"loss": "function dice", "lr": "unknown"})
        {'loss': 'was function ce, here it is function dice'}
    """
    differing: dict[str, str] = {}

    def is_settled(path: str) -> bool:
        is_unknown = UNKNOWN in (before.get(path), here.get(path))
        return path in differing or is_unknown or skipped(path)

    for path in dict.fromkeys([*here, *before]):
        if any(is_settled(parent) for parent in parents(path)):
            continue
        old = before.get(path, "absent")
        new = here.get(path, "absent")
        if old != new:
            differing[path] = f"was {old}, here it is {new}"
    return differing


def parents(path: str) -> Iterable[str]:
    """Return a dotted path and those above it, the shortest first.

    Example:
        >>> list(parents("a.b.c"))
        ['a', 'a.b', 'a.b.c']
    """
    parts = path.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
