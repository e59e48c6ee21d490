"""Causes as data, and the only place where sentences are made of them."""

from __future__ import annotations

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


def number(value: Any) -> str:
    """How a report writes a number: ``2e-05``, ``0.37``.

    Example:
        >>> number(0.30000000000000004)
        '0.3'
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.10g}"
