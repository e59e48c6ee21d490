"""The only place where sentences are made of causes."""

from __future__ import annotations

from typing import Any


def in_words(setting: str, value: Any = None, usual: Any = None) -> str:
    """What one side does in another way, as a report says it.

    Args:
        setting: What is set: ``"eps"``, ``"gate order"``.
        value: What the candidate has there: a number, or words; None where the setting says it all.
        usual: What the reference has there; None where that is not worth a word.

    Example:
        >>> in_words("eps", 2e-5, 1e-5), in_words("kernel", "flipped")
        ('eps=2e-05 instead of 1e-05', 'kernel flipped')
    """
    if value is None:
        return setting
    plain = setting.isidentifier() and usual is not None
    sign = "=" if plain and not isinstance(value, str) else " "
    words = f"{setting}{sign}{number(value)}".lstrip()
    return words if usual is None else f"{words} instead of {number(usual)}"


def number(value: Any) -> str:
    """How a report writes a number: ``2e-05``, ``0.37``.

    Example:
        >>> number(0.30000000000000004)
        '0.3'
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.10g}"
