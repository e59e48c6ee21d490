"""Classes of one framework become networks written once.

The module is called: ``deliralike.port(MyNet, inputs, classes=4)``.
"""

import sys
import types
from typing import Any

from deliralike.port.porting import Port, port

__all__ = ["Port", "port"]


class _Callable(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Port:
        """See `deliralike.port.porting.port`."""
        return port(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
