"""Settings in files of TOML, written with a comment on each."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

from deliralike.errors import SettingError, refuse_unknown
from deliralike.training.experiment.checks import located
from deliralike.training.experiment.settings import Settings, documentation, names

SUFFIX = ".toml"
NONE = "none"  # stands for None in a file, since TOML has no such value
_WIDTH = 100


def read_settings(
    path: str | Path, changes: Mapping[str, Any] | None = None
) -> Settings:
    """Read the settings in a file of TOML.

    Args:
        changes: Values to set instead, by key; a key may reach into a table:
            ``"optimizer_settings.lr"``.

    Raises:
        SettingError: There is no such file, it cannot be read, or a value makes no sense.
        UnknownName, ArgumentError: A key or a name is unknown. Messages begin with the file and the
            key.
    """
    path = Path(path)
    content = read_content(path)
    with located(str(path)):
        return settings_from(changed(content, changes or {}))


def settings_from(content: Mapping[str, Any]) -> Settings:
    """Return settings from their values by name, as a file has them: ``"none"`` is None.

    Raises:
        SettingError, UnknownName, ArgumentError: A value makes no sense.
    """
    for name in content:
        refuse_unknown(name, names(), f"unknown setting {name!r}")
    if "network" not in content:
        raise SettingError(
            "the setting 'network' is missing: name one of the zoo, network = \"resnet8\""
        )
    return Settings(**_without_none_word(content))


def changed(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of values by name with some of them changed.

    Example:
        >>> settings = {"epochs": 5, "optimizer_settings": {"momentum": 0.9}}
        >>> changed(settings, {"optimizer_settings.lr": 0.1})
        {'epochs': 5, 'optimizer_settings': {'momentum': 0.9, 'lr': 0.1}}
    """
    result = dict(content)
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        if rest:
            inner = result.get(head) or {}
            if not isinstance(inner, Mapping):
                raise SettingError(
                    f"{key}: {head} is {inner!r}, no table that {rest!r} could be set in"
                )
            value = changed(inner, {rest: value})
        result[head] = value
    return result


def write_settings(path: str | Path, settings: Settings) -> None:
    """Write settings as TOML from which `read_settings` reads equal ones."""
    Path(path).write_text(as_toml(settings), encoding="utf-8")


def as_toml(settings: Settings) -> str:
    """Return settings as TOML, with a comment on the effect of each of them.

    Example:
        >>> print(as_toml(Settings(network="mlp", seed=7)).splitlines()[3])
        network = "mlp"
    """
    document = tomlkit.document()
    title = 'Settings of a run: everything that decides it. "none" stands for no value.'
    document.add(tomlkit.comment(title))
    for name, text in documentation().items():
        document.add(tomlkit.nl())
        for line in textwrap.wrap(text, _WIDTH):
            document.add(tomlkit.comment(line))
        document.add(name, _item(getattr(settings, name)))
    return tomlkit.dumps(document)


def _item(value: Any) -> Any:
    """Return a value as TOML; a name without numbers is written as the name alone."""
    if value is None:
        return tomlkit.item(NONE)
    if isinstance(value, Mapping):
        if list(value) == ["name"]:
            return tomlkit.item(value["name"])
        inline = tomlkit.inline_table()
        for key, each in value.items():
            inline.add(tomlkit.key(key), _item(each))
        return inline
    if isinstance(value, tuple):
        array = tomlkit.array()
        for each in value:
            array.append(_item(each))
        return array
    return tomlkit.item(value)


def _without_none_word(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none_word(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_none_word(each) for each in value]
    if isinstance(value, str) and value == NONE:
        return None
    return value


def is_file_name(text: str) -> bool:
    """Return whether a text is the name of a file of settings, by its suffix.

    Example:
        >>> is_file_name("settings.toml"), is_file_name("resnet8")
        (True, False)
    """
    return Path(text).suffix == SUFFIX


def read_content(path: Path) -> dict[str, Any]:
    """Return the unchecked content of a file by key.

    Raises:
        SettingError: There is no such file, or it cannot be read.
    """
    if path.suffix != SUFFIX:
        raise SettingError(
            f"{str(path)!r} has the suffix {path.suffix!r}: settings are in {SUFFIX}"
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(
            f"there is no file {str(path)!r}: 'deliralike settings' prints one to start from"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"{str(path)!r} does not hold settings: {error}") from error
