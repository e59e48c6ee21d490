"""Causes as data, and the only place where sentences are made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cause:
    """What one side does in another way.

    Attributes:
        setting: What is set: ``"eps"``, ``"gate order"``.
        value: What the candidate has there: a number, or words; None where the setting says it all.
        usual: What the reference has there; None where that is not worth a word.

    Example:
        >>> print(Cause("eps", 2e-5, 1e-5), Cause("kernel", "flipped"), sep="; ")
        eps=2e-05 instead of 1e-05; kernel flipped
    """

    setting: str
    value: Any = None
    usual: Any = None

    def __str__(self) -> str:
        """The words of a report."""
        if self.value is None:
            return self.setting
        plain = self.setting.isidentifier() and self.usual is not None
        sign = "=" if plain and not isinstance(self.value, str) else " "
        said = f"{self.setting}{sign}{number(self.value)}".lstrip()
        return said if self.usual is None else f"{said} instead of {number(self.usual)}"


def sentence(causes: Sequence[Cause]) -> str:
    """Several causes as one text."""
    return "; ".join(map(str, causes))


def few(words: Sequence[str], most: int) -> str:
    """The first words of a list, and that there are more.

    Example:
        >>> few("abc", 2)
        'a, b, …'
    """
    return ", ".join([*words[:most], *["…"] * (len(words) > most)])


def number(value: Any) -> str:
    """How a report writes a number: ``2e-05``, ``0.37``.

    Example:
        >>> number(0.30000000000000004)
        '0.3'
    """
    if not isinstance(value, float):
        return str(value)
    names = (name for name, known in _NAMED.items() if abs(value / known - 1.0) < 1e-9)
    name = next(names, "")
    return f"{value:.10g} ({name})" if name else f"{value:.10g}"


_NAMED = {
    "sqrt(2)": math.sqrt(2.0),
    "1/sqrt(2)": math.sqrt(0.5),
    "log(2)": math.log(2.0),
    "1/log(2), a logarithm to base 2": 1.0 / math.log(2.0),
    "1/log(10), a logarithm to base 10": 1.0 / math.log(10.0),
    "1/255": 1.0 / 255.0,
}
