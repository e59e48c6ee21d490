"""Code of one's own by name: ``package.module:Name``, or ``path/to/file.py:Name``.

The name is what settings and commands hold in the place of a network of the zoo or a dataset.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from deliralike.errors import SettingError, suggestion

_FORM = "package.module:Name or path/to/file.py:Name"


def is_name(text: Any) -> bool:
    """Return whether a text names code of one's own.

    Example:
        >>> is_name("my_package.models:Net"), is_name("models.py:Net"), is_name("resnet18")
        (True, True, False)
    """
    place, colon, path = str(text).rpartition(":")
    return bool(place and colon) and all(
        part.isidentifier() for part in path.split(".")
    )


def load(name: str) -> Any:
    """Import what a name stands for.

    Modules are found from the current directory too; a file finds its neighbours. A file with
    relative imports is a module of the package that its folder is. It is run once in a process.

    Args:
        name: ``"package.module:Name"`` or ``"path/to/file.py:Name"``; ``"module:Class.method"``
            names what lies deeper.

    Raises:
        SettingError: There is no such module, file or name, or the module raises an error.

    Example:
        >>> load("collections:OrderedDict").__name__
        'OrderedDict'
    """
    place, _, path = name.rpartition(":")
    if not is_name(name):
        raise SettingError(f"{name!r} names no code: the form is {_FORM}")
    found: Any = _from_file(place) if place.endswith(".py") else _module(place)
    for part in path.split("."):
        if not hasattr(found, part):
            public = [one for one in dir(found) if not one.startswith("_")]
            raise SettingError(
                f"{name!r}: {place!r} has no {path!r}. {suggestion(part, public)}"
            )
        found = getattr(found, part)
    return found


def file_of(loaded: Any) -> Path | None:
    """Return the file that defines a class or function; None where that is not known."""
    module = sys.modules.get(getattr(loaded, "__module__", ""))
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file)


def _module(place: str) -> ModuleType:
    """Import a module; the current directory comes first, as with ``python -m``."""
    _find_in(Path.cwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise _broken(place, error) from error  # it lacks what it imports
        raise SettingError(
            f"there is no module {place!r}, looked for in {str(Path.cwd())!r} and where Python "
            f"finds packages; the form is {_FORM}"
        ) from error
    except Exception as error:
        raise _broken(place, error) from error


def _from_file(place: str) -> ModuleType:
    """Import a file under the name of its stem, or another one where that is taken."""
    file = Path(place).expanduser().resolve()
    if not file.is_file():
        raise SettingError(
            f"there is no file {place!r}, looked for in {str(Path.cwd())!r}"
        )
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(file):
            return module
    levels = re.findall(r"^\s*from (\.+)", file.read_text("utf-8"), re.MULTILINE)
    if levels:
        return _module(_name_in_package(file, max(map(len, levels))))
    if _is_free(file):
        name = file.stem
    else:
        name = f"{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _find_in(file.parent)
    sys.modules[name] = module  # before it runs: pickle and inspect find classes by it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(place, error) from error
    return module


def _name_in_package(file: Path, levels: int) -> str:
    """Return the full name of a file's module, whose imports go up so many folders at least."""
    name, folder = file.stem, file.parent
    while levels or (folder / "__init__.py").is_file():
        name, folder = f"{folder.name}.{name}", folder.parent
        levels = max(levels - 1, 0)
    _find_in(folder)
    return name


def _is_free(file: Path) -> bool:
    """Return whether no other module has the name of a file's stem."""
    if file.stem in sys.modules:
        return False
    found = importlib.util.find_spec(file.stem)
    return found is None or found.origin == str(file)


def _find_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _broken(place: str, error: Exception) -> SettingError:
    is_file = place.endswith(".py")
    alone = f"python {place}" if is_file else f'python -c "import {place}"'
    return SettingError(
        f"{place!r} cannot be imported: {type(error).__name__}: {error}. It must run by itself: "
        f"{alone}"
    )
