"""Readers with a fault each, and what is to be found of it: the fuzzer itself is tested on them."""

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import WeightFileError
from tests.fuzz.formats import Arrays, Format

_WANTED = {"w": np.arange(3.0)}


def _refuse(path: Path) -> Any:
    raise WeightFileError(f"{path} is refused")


def _hide_memory_error(path: Path) -> Any:
    try:
        np.ones(2**40)
    except MemoryError as error:
        raise WeightFileError(f"{path} is refused") from error


def _loop(path: Path) -> Any:
    while path:
        pass


def _strict(path: Path) -> Arrays:
    return _WANTED


def _with(read: Any, by_name: bool = True) -> Format:
    return Format(lambda: [{"x": b"x"}], "x", read, _strict, by_name, seconds=2)


# By name: the reader, and what is found.
PLANTED: dict[str, tuple[Format, str]] = {
    "segmentation fault": (_with(lambda path: ctypes.string_at(0)), "the process died"),
    "abort": (_with(lambda path: os.abort()), "the process died"),
    "loop": (_with(_loop), "the process died while our reader was at it, or took too long"),
    "another error": (_with(lambda path: {}["a"]), "KeyError: 'a'"),
    "memory": (_with(lambda path: np.ones(2**40)), "MemoryError"),
    "hidden lack of memory": (_with(_hide_memory_error), "memory beyond the limit was asked for"),
    "other numbers": (_with(lambda path: {"w": np.ones(3)}), "another array: 'w'"),
    "another type": (_with(lambda path: {"w": np.arange(3, dtype="f4")}), "another array: 'w'"),
    "a lost array": (_with(lambda path: {}), "other names: ['w']"),
    "an invented array": (
        _with(lambda path: {"v": np.ones(3)}, by_name=False),
        "an array that nobody wrote: 'v'",
    ),
    "no fault": (_with(lambda path: _WANTED), ""),
    "other names": (_with(lambda path: {"v": np.arange(3, dtype="f4")[::-1]}, by_name=False), ""),
    "a refusal": (_with(_refuse), ""),
}
