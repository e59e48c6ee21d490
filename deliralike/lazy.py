"""Packages whose names are imported when they are first asked for."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def attributes(
    package: str, sources: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    A name is imported once, and is an ordinary attribute of the package from then on. Type checkers
    read ordinary imports, which stand beside the call under ``if TYPE_CHECKING:``.

    Args:
        package: The package's ``__name__``.
        sources: The names, separated by spaces, that come from each module. Those of the package
            itself are its modules.

    Example:
        >>> get, names = attributes("deliralike.nest", {"deliralike.errors": "StructureError"})
        >>> get("StructureError").__module__, "StructureError" in names()
        ('deliralike.errors', True)
        >>> get("StructureErorr")
        Traceback (most recent call last):
        ...
        AttributeError: module 'deliralike.nest' has no attribute 'StructureErorr'...
    """
    source_of = {}
    for module, names in sources.items():
        source_of.update(dict.fromkeys(names.split(), module))

    def get(name: str) -> Any:
        source = source_of.get(name)
        if source is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        if source == package:
            # this binds the name, too
            return importlib.import_module(f"{package}.{name}")
        # As ``from source import name`` does: the name may be that of a module.
        value = getattr(__import__(source, fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names_of_package() -> list[str]:
        return sorted({*vars(sys.modules[package]), *source_of})

    return get, names_of_package


def modules(
    package: str, path: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package all of whose modules are imported so.

    Args:
        package: The package's ``__name__``.
        path: Its ``__path__``.
    """
    names = [module.name for module in pkgutil.iter_modules(path)]
    return attributes(package, {package: " ".join(names)})
