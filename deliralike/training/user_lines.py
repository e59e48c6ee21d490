"""Tracebacks that show the user's own lines first: those of the package between them are folded."""

from __future__ import annotations

import os
from types import TracebackType

from deliralike.errors import DeliralikeError
from deliralike.references import is_user_code

_SHOW_ALL = "DELIRALIKE_TRACEBACK"
_NOTE = f"(lines of packages are left out; {_SHOW_ALL}=full shows them)"


class UserLinesFirst:
    """A ``with`` block out of which errors come with a traceback of the user's own lines.

    Where an error passed a line of the user's, such as one of a loss or of `forward`, lines of
    installed packages before it are left out, and those of this one after it; a note says so.
    The environment variable ``DELIRALIKE_TRACEBACK=full`` shows all.
    """

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Fold the traceback of an error, and of those that caused it."""
        if isinstance(error, Exception):
            fold(error)


def fold(error: Exception, has_caller: bool = True) -> bool:
    """Fold the traceback of an error, and of those that caused it; return whether it has changed.

    Args:
        has_caller: Whether the first entry is what the user called, which stays.
    """
    if os.environ.get(_SHOW_ALL) == "full":
        return False
    has_changed = False
    each: BaseException | None = error
    while each is not None:
        has_changed |= _fold(each, has_caller and each is error)
        each = each.__cause__
    if has_changed and _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)
    return has_changed


def _fold(error: BaseException, has_caller: bool) -> bool:
    """Fold the traceback of one error, and return whether entries were left out."""
    entries = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    names = [each.tb_frame.f_globals.get("__name__") for each in entries]
    own = [number for number, name in enumerate(names) if is_user_code(name)]
    if not own:
        return False
    shown = []
    for number, (each, name) in enumerate(zip(entries, names, strict=True)):
        is_after = number > own[-1] and not isinstance(error, DeliralikeError)
        is_foreign = is_after and not str(name).startswith(__name__.partition(".")[0])
        if number in own or is_foreign or (number == 0 and has_caller):
            shown.append(each)
    folded: TracebackType | None = None
    for each in reversed(shown):
        folded = TracebackType(folded, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = folded
    return len(shown) < len(entries)
