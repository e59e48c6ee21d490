"""Options that several subcommands share, and the reading of ``key=value``."""

import ast
from collections.abc import Iterable
from typing import Any

import typer

from deliralike.errors import SettingError

Pairs = list[str] | None  # KEY=VALUE


def settings_option(help: str) -> Any:
    """Return the option ``--set``, which may be given several times."""
    return typer.Option("--set", metavar="KEY=VALUE", help=help)


def key_values(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """Read ``key=value`` pairs; values are Python literals, true, false, or plain text.

    Example:
        >>> key_values(["depth=14", "shortcut=B", "hidden=(64, 32)"], "--set")
        {'depth': 14, 'shortcut': 'B', 'hidden': (64, 32)}
    """
    settings = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not (key.strip() and equals):
            raise SettingError(f"{option} {pair!r}: wanted key=value")
        try:
            settings[key.strip()] = _literal(text)
        except (TypeError, MemoryError, RecursionError) as error:
            # Errors of Python's parser.
            reason = str(error) or "it is nested too deep"
            raise SettingError(
                f"{option} {pair:.60}: the value cannot be read: {reason}"
            ) from error
    return settings


def backend_names(text: str | None) -> list[str]:
    """Return the backends of ``--backends``, each once; all that are installed for no text.

    Raises:
        SettingError: The text names none.
    """
    from deliralike import backends

    if text is None:
        return list(backends.available())
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise SettingError(
            f"--backends {text!r} names no backend. Known: {', '.join(backends.known())}."
        )
    return list(dict.fromkeys(names))


def loaded_backends(text: str | None) -> list[str]:
    """Return the backends of ``--backends`` after they are loaded.

    Raises:
        BackendUnavailable: One is unknown or missing, or there is none at all.
    """
    from deliralike import backends

    names = backend_names(text) or list(backends.known())[:1]
    for name in names:
        backends.get(name)
    return names


def _literal(text: str) -> Any:
    if text.strip() in _FLAGS:
        return _FLAGS[text.strip()]
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text


_FLAGS = {"true": True, "false": False}  # as files of settings have them
