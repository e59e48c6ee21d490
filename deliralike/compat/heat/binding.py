"""Classes that are both a class under heat's name and a class of a backend."""

from __future__ import annotations

import types
from functools import cache


@cache
def bound(kind: type, native: type) -> type:
    """Return the subclass of a class under heat's name and of a backend's class.

    The first class may also be a user's subclass of one under heat's name; its attributes take
    precedence. A class that is bound already is returned as it is.

    Example:
        >>> class Written: ...
        >>> class Native: ...
        >>> bound(Written, Native).__mro__[1:3] == (Written, Native)
        True
        >>> bound(bound(Written, Native), Native) is bound(Written, Native)
        True
    """
    if issubclass(kind, native):
        return kind
    names = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    return types.new_class(
        kind.__name__, (kind, native), exec_body=lambda body: body.update(names)
    )
