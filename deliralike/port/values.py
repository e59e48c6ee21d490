"""What is known of a value of a run: its kind, and of an array its axes and numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, NamedTuple

NETWORKS = ("network", "layer", "container")  # kinds, see `Value`
PLAIN = (bool, int, float, str, NoneType)


@dataclass(frozen=True)
class Value:
    """What is known of a value.

    Attributes:
        kind: ``"array"``, ``"parameter"``, ``"network"``, ``"container"``,
            ``"layer"`` (one of the framework), ``"shape"``, ``"zero"``
            (a number), ``"none"``, ``"sequence"``, ``"dict"``, ``"numpy"`` (the
            module), ``"function"``, ``"text"``, ``"arrays"`` (a collection of
            them), ``"placement"`` (a dict of device and type), ``"other"``, or ``"unknown"``.
        ndim: The number of axes of an array.
        dtype: The type of an array's numbers, by NumPy's name.
    """

    kind: str
    ndim: int = 0
    dtype: str = ""

    @property
    def is_floating(self) -> bool:
        """Whether an array holds floating numbers."""
        return "float" in self.dtype

    @property
    def is_array(self) -> bool:
        """Whether it is an array of any kind."""
        return self.kind in ("array", "parameter")


UNKNOWN = Value("unknown")


def collection(value: Any, describe: Callable[[Any], Value]) -> Value:
    """What is known of a value that may be a collection."""
    if value is None:
        return Value("none")
    if isinstance(value, dict):
        kind, parts = "dict", list(value.values())
    elif isinstance(value, (list, tuple)):
        kind, parts = "sequence", list(value)
    else:
        return Value("text" if isinstance(value, str) else "other")
    if any(describe(part).is_array for part in parts):
        kind = "arrays"
    return Value(kind)


@dataclass(frozen=True)
class Layer:
    """A layer without parameters that a table has created: its class, and its arguments."""

    cls: type
    arguments: str


class Created(NamedTuple):
    """A network that a function has created: its class, and its arguments."""

    cls: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def leaves(value: Any) -> Iterator[Any]:
    """The parts of collections and of functions with some of their arguments."""
    if isinstance(value, partial):
        value = [value.func, *value.args, value.keywords]
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for part in value:
        yield from leaves(part)


def common(values: Collection[Value]) -> Value:
    """What is common to values; arrays of several types of floating numbers are floating."""
    if not values:
        return UNKNOWN
    if len(values) == 1:
        return next(iter(values))
    if not all(value.is_array for value in values):
        return Value(_shared([value.kind for value in values], "other"))
    floating = ""
    if all(value.is_floating for value in values):
        floating = "float32"
    return Value(
        _shared([value.kind for value in values], "array"),
        _shared([value.ndim for value in values], 0),
        _shared([value.dtype for value in values], floating),
    )


def _shared(values: list[Any], otherwise: Any) -> Any:
    """The value that all are, if there is one."""
    return values[0] if len({*values}) == 1 else otherwise
