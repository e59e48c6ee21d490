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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.network.base import AbstractNetwork, Block
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.training import code_digest

UNKNOWN = "unknown"
ARRAY_BYTES = (
    2**26
)  # that are read of an array; of a larger one, rows at equal distances
SHOWN = 16  # items of a sequence that have a text each
SAMPLED = 1024  # items that the digest of a longer sequence is made of
_DEEPEST = 8  # nests below a value
_MOST = 4096  # texts of one value
_LEAST = 2**12  # bytes that are read of any array
# They have a state or a place of their own, or are described elsewhere.
_APART = (AbstractNetwork, Block, AbstractOptimizer, Backend, ProcessGroup, ModuleType)
_PLAIN = (bool, int, float, complex, bytes, type(None), range, slice, np.dtype)

Texts = dict[str, str]


def described(path: str, value: Any, array_bytes: int = ARRAY_BYTES) -> Texts:
    """Return texts by path that describe a value, beginning with that of the value itself.

    At most `array_bytes` of each array are read, 64 MiB in 0.1 to 0.7 s, and four times as much of
    all: of larger ones every n-th row, so that a change between may be missed. Samples of datasets
    that are no arrays are not read: a dataset is its class and the attributes of its object.

    Example:
        >>> from deliralike.data import transforms
        >>> described("transform", transforms.Noise(std=0.1))
        {'transform': 'Noise', 'transform.std': '0.1'}
    """
    description = _Description(array_bytes)
    try:
        description.add(path, value, 0)
    except Exception:  # noqa: BLE001
        return {path: UNKNOWN}
    return description.texts


def array_text(array: Any, most: int = ARRAY_BYTES) -> str:
    """Return the type, the shape and a digest of the content of an array.

    If the array has more bytes than `most`, every n-th row is read. An array of another library,
    such as one that lies in a file, is cut before it is read.

    Example:
        >>> array_text(np.arange(3, dtype=np.int8))
        'int8 (3,), digest 579c4f35'
    """
    part = array
    for axis in np.argsort(array.shape)[::-1]:
        step = math.ceil(part.nbytes / most)
        if step > 1:
            axes_before = (slice(None),) * int(axis)
            part = part[(*axes_before, slice(None, None, step))]
    read = np.asarray(part, order="C")
    if read.dtype.hasobject:
        return UNKNOWN
    little_endian = read.astype(read.dtype.newbyteorder("<"), copy=False)
    content = little_endian.reshape(-1).view(np.uint8)
    return f"{read.dtype.name} {tuple(array.shape)}, digest {code_digest.short(content.data)}"


class _Description:
    """The texts of a value while they are being collected."""

    def __init__(self, array_bytes: int) -> None:
        self.texts: Texts = {}
        self._array_bytes = array_bytes
        self._bytes_left = 4 * array_bytes
        self._above: set[int] = set()  # objects that hold the one at hand

    def add(self, path: str, value: Any, depth: int) -> None:
        """Describe a value and its parts."""
        if id(value) in self._above or depth > _DEEPEST or len(self.texts) > _MOST:
            self.texts[path] = UNKNOWN
            return
        self._above.add(id(value))
        self._add(path, value, depth)
        self._above.remove(id(value))

    def _add(self, path: str, value: Any, depth: int) -> None:
        text = _scalar_text(value)
        if text is not None:
            self.texts[path] = text
        elif isinstance(value, _APART):
            self.texts[path] = UNKNOWN
        elif hasattr(value, "__array__") and hasattr(value, "dtype"):
            self.texts[path] = self._array(value)
        elif isinstance(value, Mapping):
            self._mapping(path, value, depth)
        elif isinstance(value, list | tuple | set | frozenset):
            self._sequence(path, value, depth)
        elif isinstance(value, functools.partial):
            self.texts[path] = "partial"
            self._children(
                path, {"of": value.func, "args": value.args, **value.keywords}, depth
            )
        elif isinstance(value, MethodType):
            self.add(path, value.__func__, depth)
            self.add(f"{path}.self", value.__self__, depth + 1)
        elif isinstance(value, FunctionType):
            self._function(path, value, depth)
        else:
            self._object(path, value, depth)

    def _array(self, value: Any) -> str:
        most = max(min(self._array_bytes, self._bytes_left), _LEAST)
        # An array of another device or library may refuse to be read.
        try:
            text = array_text(value, most)
        except Exception:  # noqa: BLE001
            return UNKNOWN
        self._bytes_left -= min(value.nbytes, most)
        return text

    def _mapping(self, path: str, value: Mapping[Any, Any], depth: int) -> None:
        self.texts[path] = f"{type(value).__name__} of {len(value)}"
        items = {}
        for key, item in value.items():
            if _scalar_text(key) is not None:
                items[str(key)] = item
        self._children(path, items, depth)

    def _sequence(self, path: str, value: Iterable[Any], depth: int) -> None:
        names = getattr(value, "_fields", None)
        items = list(value)
        if isinstance(value, set | frozenset):
            items.sort(key=repr)
        self.texts[path] = f"{type(value).__name__} of {len(items)}"
        if names is not None or len(items) <= SHOWN:
            keys = names or map(str, range(len(items)))
            self._children(path, dict(zip(keys, items, strict=True)), depth)
        else:
            self.texts[path] += self._digest(items, depth)

    def _digest(self, items: list[Any], depth: int) -> str:
        """Return the digest of a long list, made of the texts of items at equal distances."""
        step = math.ceil(len(items) / SAMPLED)
        sampled = items[::step]
        bytes_of_item = max(self._array_bytes // len(sampled), _LEAST)
        inside = _Description(bytes_of_item)
        inside._above = self._above
        for number, item in enumerate(sampled):
            inside.add(str(number), item, depth + 1)
        known = [entry for entry in inside.texts.items() if entry[1] != UNKNOWN]
        return f", digest {code_digest.short(repr(known))}"

    def _function(self, path: str, function: FunctionType, depth: int) -> None:
        self.texts[path] = f"function {function.__name__}"
        if code_digest.is_user_code(function.__module__):
            self.texts[f"{path}.code"] = code_digest.of_function(function)
            self._children(path, code_digest.values_of(function), depth)

    def _object(self, path: str, value: Any, depth: int) -> None:
        kind = type(value)
        self.texts[path] = kind.__name__
        if isinstance(value, BuiltinFunctionType | np.ufunc):
            self.texts[path] = f"function {value.__name__}"
            return
        if isinstance(value, type):
            self.texts[path] = f"class {value.__name__}"
            return
        code = code_digest.of_class(kind)
        if code is not None:
            self.texts[f"{path}.code"] = code
        attributes = _attributes(value)
        if attributes is None:
            self.texts[path] = UNKNOWN
        else:
            self._children(path, attributes, depth)

    def _children(self, path: str, values: Mapping[str, Any], depth: int) -> None:
        for name, value in values.items():
            self.add(f"{path}.{name}", value, depth + 1)


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


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object by name; None where they are not accessible."""
    if is_dataclass(value):
        return {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.compare
        }
    if hasattr(value, "__dict__"):
        return dict(vars(value))
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
        return path in differing or _is_open(path, before, here) or skipped(path)

    for path in dict.fromkeys([*here, *before]):
        if any(is_settled(parent) for parent in parents(path)):
            continue
        old = before.get(path, "absent")
        new = here.get(path, "absent")
        if old != new and code_digest.comparable(old, new):
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


def _is_open(path: str, before: Texts, here: Texts) -> bool:
    """Return whether nothing is known at a path on one of the two sides."""
    return UNKNOWN in (before.get(path), here.get(path))
