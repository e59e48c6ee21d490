"""Exact conversion of nests into JSON and arrays, and back.

Values that JSON lacks are written as an object whose key begins with a sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deliralike.errors import CheckpointError, StateError
from deliralike.network.state import host_array
from deliralike.weights.safetensors_files import RESERVED, TYPES

Keys = tuple[str, ...]  # on the way to a value
State = dict[str, Any]  # numbers, texts and arrays by name, as a checkpoint has them

_SIGN = "$"
_ARRAY = "$array"
_TUPLE = "$tuple"


@dataclass
class Flattener:
    """A converter of nests into JSON values that name arrays, and the arrays by these names.

    A name is made of the keys on the way to the array, ``"conv.weight"`` or ``"slots/0"``.

    Attributes:
        where: The nest's own name, for errors.
        arrays: The arrays so far.

    Example:
        >>> flattener = Flattener("part")
        >>> flattener.flatten({"step": 3, "x": np.ones(2)})
        {'step': 3, 'x': {'$array': 'x'}}
        >>> list(flattener.arrays)
        ['x']
    """

    where: str
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def flatten(self, value: Any, path: Keys = ()) -> Any:
        """Return the nest with names in the places of arrays.

        Raises:
            CheckpointError: Something in it is neither JSON nor an array of numbers.
        """
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, np.ndarray):
            return {_ARRAY: self._named(value, path)}
        if isinstance(value, Mapping):
            flat = {}
            for key, item in value.items():
                if type(key) is not str:
                    raise CheckpointError(
                        f"{self._at(path)} has the key {key!r}, wanted texts as keys"
                    )
                sign = _SIGN if key.startswith(_SIGN) else ""
                flat[sign + key] = self.flatten(item, (*path, key))
            return flat
        if type(value) in (list, tuple):
            items = []
            for place, item in enumerate(value):
                items.append(self.flatten(item, (*path, str(place))))
            return items if type(value) is list else {_TUPLE: items}
        if type(value) not in (str, int, float, bool, type(None)):
            raise CheckpointError(
                f"{self._at(path)} is a {type(value).__name__}, wanted a number, a text, None, a "
                f"NumPy array, or dicts, lists and tuples of these"
            )
        return value

    def _named(self, value: np.ndarray, path: Keys) -> str:
        try:
            array = host_array(self._at(path), value, keep=("bfloat16",))
        except StateError as error:
            raise CheckpointError(str(error)) from None
        problem = ""
        if isinstance(value, np.ma.MaskedArray):
            problem = "masked elements"
        elif array.dtype.name not in TYPES:
            problem = f"the type {array.dtype}"
        if problem:
            raise CheckpointError(
                f"{self._at(path)} has {problem}, which safetensors files lack"
            )
        base = "/".join(path)
        name = base
        while name in self.arrays or name in ("", RESERVED):
            name = f"{base}#{len(self.arrays)}"
        self.arrays[name] = np.asarray(array)
        return name

    def _at(self, path: Keys) -> str:
        return self.where + "".join(f"[{key!r}]" for key in path)


def without_nan(value: Any) -> Any:
    """Return a nest of records with None in the place of numbers that JSON lacks."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def unflatten(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the nest that a `Flattener` has flattened."""
    if isinstance(value, list):
        return [unflatten(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$array": str(name)}:
            return arrays[name]
        case {"$tuple": list(items)}:
            return tuple(unflatten(items, arrays))
    nest = {}
    for key, item in value.items():
        nest[key.removeprefix(_SIGN)] = unflatten(item, arrays)
    return nest
