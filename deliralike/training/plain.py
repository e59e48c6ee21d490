"""Nests as JSON and arrays, and back, exactly: what JSON lacks is written as an object with a sign before its name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deliralike.errors import CheckpointError, StateError
from deliralike.state import host_array
from deliralike.training.array_file import TYPES

_ARRAY, _TUPLE, _FLOAT, _SIGN = "$array", "$tuple", "$float", "$"
_LARGEST = 2**12  # bits of a whole number: Python refuses to read much longer ones


@dataclass
class Apart:
    """Takes nests apart: JSON values that name arrays, and the arrays by these names.

    A name is made of the keys on the way to the array, ``"conv.weight"`` or ``"slots/0"``.

    Attributes:
        where: The nest's own name, for errors.
        arrays: Those found so far.

    Example:
        >>> apart = Apart("part")
        >>> apart.json({"step": 3, "x": np.ones(2), "loss": math.inf})
        {'step': 3, 'x': {'$array': 'x'}, 'loss': {'$float': 'inf'}}
        >>> list(apart.arrays)
        ['x']
    """

    where: str
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def json(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """The nest with names in the places of arrays.

        Raises:
            CheckpointError: Something in it is neither JSON nor an array of numbers.
        """
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, np.ndarray):
            return {_ARRAY: self._named(value, path)}
        if isinstance(value, Mapping):
            return {self._key(key, path): self.json(item, (*path, key)) for key, item in value.items()}
        if type(value) in (list, tuple):
            items = [self.json(item, (*path, str(place))) for place, item in enumerate(value)]
            return items if type(value) is list else {_TUPLE: items}
        return self._scalar(value, path)

    def _key(self, key: Any, path: tuple[str, ...]) -> str:
        if type(key) is not str:
            raise CheckpointError(f"{self._at(path)} has the key {key!r}, wanted texts as keys")
        return _SIGN + key if key.startswith(_SIGN) else key

    def _scalar(self, value: Any, path: tuple[str, ...]) -> Any:
        if type(value) is float and not math.isfinite(value):
            return {_FLOAT: str(value)}
        if type(value) is int and value.bit_length() > _LARGEST:
            raise CheckpointError(f"{self._at(path)} is a whole number of {value.bit_length()} bits, wanted {_LARGEST} "
                                  f"at most")  # fmt: skip
        if type(value) not in (str, int, float, bool, type(None)):
            raise CheckpointError(f"{self._at(path)} is a {type(value).__name__}, wanted a number, a text, None, a "
                                  f"NumPy array, or dicts, lists and tuples of these")  # fmt: skip
        return value

    def _named(self, value: np.ndarray, path: tuple[str, ...]) -> str:
        try:
            array = host_array(self._at(path), value, keep=("bfloat16",))
        except StateError as error:
            raise CheckpointError(str(error)) from None
        if array.dtype.name not in TYPES or isinstance(value, np.ma.MaskedArray):
            kind = "masked elements" if isinstance(value, np.ma.MaskedArray) else f"the type {array.dtype}"
            raise CheckpointError(f"{self._at(path)} has {kind}, which safetensors files lack")
        name = unused = "/".join(path)
        while unused in self.arrays or unused in ("", "__metadata__"):
            unused = f"{name}#{len(self.arrays)}"
        self.arrays[unused] = np.asarray(array)
        return unused

    def _at(self, path: tuple[str, ...]) -> str:
        return self.where + "".join(f"[{key!r}]" for key in path)


def together(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """What `Apart` took apart."""
    if isinstance(value, list):
        return [together(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$array": str(name)}:
            return arrays[name]
        case {"$tuple": list(items)}:
            return tuple(together(item, arrays) for item in items)
        case {"$float": str(text)}:
            return float(text)
    return {key.removeprefix(_SIGN): together(item, arrays) for key, item in value.items()}
