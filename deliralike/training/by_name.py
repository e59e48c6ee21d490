"""Objects made by the name of their class and their settings: metrics, schedules, transforms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from deliralike.errors import (
    ArgumentError,
    refuse_unknown,
    refuse_unknown_settings,
)


def make_by_name(
    kind: str,
    table: Mapping[str, Callable[..., Any]],
    name: str,
    settings: Mapping[str, Any],
) -> Any:
    """Return what a table has under a name, made with these settings.

    Raises:
        UnknownName: There is none of that name.
        ArgumentError: It has no such setting, or lacks one that it needs.
        SettingError: It refuses one.
    """
    refuse_unknown(name, table, f"there is no {kind} {name!r}")
    parameters = inspect.signature(table[name]).parameters
    refuse_unknown_settings(f"{kind} {name!r}", settings, parameters)
    for setting, parameter in parameters.items():
        if setting not in settings and parameter.default is parameter.empty:
            raise ArgumentError(f"{kind} {name!r} needs a setting {setting!r}")
    return table[name](**settings)
