"""The one place that writes to a terminal, where names from files give it no orders.

Names in files, the words of a server and the reasons of runs may hold characters that a terminal
obeys; they are written out.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
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


def warn(text: object, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the place of the user's code from which the package was called."""
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(plain(text), category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] == __name__.partition(".")[0]


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as a line without the place in the code, for commands."""
    before = warnings.formatwarning

    def format_plainly(
        message: Any, category: type[Warning], *_: Any, **__: Any
    ) -> str:
        return f"{category.__name__}: {message}\n"

    warnings.formatwarning = format_plainly
    try:
        yield
    finally:
        warnings.formatwarning = before


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
