"""The one place that writes to a terminal, where names from files give it no orders.

Names in files, the words of a server and the reasons of runs may hold characters that a terminal
obeys; they are written out.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from functools import cache
from typing import Any


def plain(text: object) -> str:
    r"""Return a text with its control characters written out, but for ends of lines and tabs.

    Example:
        >>> plain(f"a{chr(27)}[2Jb") == r"a\x1b[2Jb"
        True
    """
    characters = []
    for each in str(text):
        if not (each.isprintable() or each in "\n\t"):
            each = each.encode("unicode_escape").decode("ascii")
        characters.append(each)
    return "".join(characters)


def say_error(text: object) -> None:
    """Print a line on standard error at once."""
    print(plain(text), file=sys.stderr, flush=True)


def warn(
    text: object, category: type[Warning] = UserWarning, stacklevel: int = 1
) -> None:
    """Issue a warning; its place is that of the caller, or as many callers further up."""
    warnings.warn(plain(text), category, stacklevel=stacklevel + 1)


def log(level: int, text: object) -> None:
    """Log a text to the logger ``"deliralike"``."""
    logging.getLogger("deliralike").log(level, "%s", plain(text))


def console(**options: Any) -> Any:
    """Return a console of rich that writes control characters out, whatever it prints."""
    return _console_class()(**options)


class PlainFormatter(logging.Formatter):
    """The format of log records on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return plain(super().format(record))


@cache
def _console_class() -> type:
    base: Any = importlib.import_module("rich.console").Console

    class PlainConsole(base):
        def render(self, renderable: Any, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                if segment.control:
                    yield segment
                else:
                    yield segment._replace(text=plain(segment.text))

    return PlainConsole
