"""heat's classes joined with a backend's: an object of both, made of the class that users name."""

from __future__ import annotations

import types
from functools import cache


@cache
def bound(kind: type, native: type) -> type:
    """The subclass of a class of heat's, or of a user's subclass of it, and of a backend's class.

    What the first has comes first. A class that is bound already comes back as it is.

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
    return types.new_class(kind.__name__, (kind, native), exec_body=lambda body: body.update(names))
