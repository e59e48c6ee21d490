"""Settings in files: read from TOML or YAML, written as TOML with a comment on each."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
import yaml

from deliralike.errors import SettingError, UnknownName, suggestion
from deliralike.training.experiment.checks import located
from deliralike.training.experiment.settings import Settings, documentation, names

_DEEPEST, _MOST_VALUES = 50, 100_000
_TOO_DEEP = f"tables and lists are nested more than {_DEEPEST} deep, hold themselves, or make more than {_MOST_VALUES:,} values"
NONE = "none"  # stands for None in a file, since TOML has no such value
_WIDTH = 100


def read_settings(path: str | Path, changes: Mapping[str, Any] | None = None) -> Settings:
    """The settings in a file; its suffix decides: ``.toml``, ``.yaml``, ``.yml``.

    Args:
        changes: What to set instead, by key; a key may reach into a table:
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
    """Settings from their values by name, as a file has them: ``"none"`` is None.

    Raises:
        SettingError, UnknownName, ArgumentError: They make no sense.
    """
    for name in content:
        if name not in names():
            raise UnknownName(f"unknown setting {name!r}. {suggestion(name, names())}")
    if "network" not in content:
        raise SettingError(
            "the setting 'network' is missing: name one of the zoo, network = \"resnet8\""
        )
    return Settings(**_without_none_word(content))


def changed(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name with some of them set anew; the given ones stay as they are.

    Example:
        >>> changed({"epochs": 5, "optimizer_settings": {"momentum": 0.9}}, {"optimizer_settings.lr": 0.1})
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
    """Write settings as TOML that `read_settings` gives back as they are."""
    Path(path).write_text(as_toml(settings), encoding="utf-8")


def as_toml(settings: Settings) -> str:
    """Settings as TOML, with what each of them does as a comment.

    Example:
        >>> print(as_toml(Settings(network="mlp", seed=7)).splitlines()[3])
        network = "mlp"
    """
    document = tomlkit.document()
    document.add(
        tomlkit.comment(
            'Settings of a run: everything that decides it. "none" stands for no value.'
        )
    )
    for name, text in documentation().items():
        document.add(tomlkit.nl())
        for line in textwrap.wrap(text, _WIDTH):
            document.add(tomlkit.comment(line))
        document.add(name, _item(getattr(settings, name)))
    return tomlkit.dumps(document)


def _item(value: Any) -> Any:
    """A value as TOML; what is named and has no numbers is its name."""
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
    return None if isinstance(value, str) and value == NONE else value


def is_file_name(text: str) -> bool:
    """Whether a text is the name of a file of settings, by its suffix.

    Example:
        >>> is_file_name("settings.toml"), is_file_name("resnet8")
        (True, False)
    """
    return Path(text).suffix in _READERS


def read_content(path: Path) -> dict[str, Any]:
    """What a file holds by key, whether or not it makes sense.

    Raises:
        SettingError: There is no such file, or it cannot be read.
    """
    if path.suffix not in _READERS:
        raise SettingError(
            f"{str(path)!r} has the suffix {path.suffix!r}: settings are in {', '.join(_READERS)}"
        )
    try:
        content = _READERS[path.suffix](path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(
            f"there is no file {str(path)!r}: 'deliralike settings' prints one to start from"
        ) from None
    except RecursionError as error:
        raise SettingError(f"{str(path)!r} does not hold settings: {_TOO_DEEP}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingError(f"{str(path)!r} does not hold settings: {error}") from error
    if not isinstance(content, dict):
        raise SettingError(
            f"{str(path)!r} does not hold settings: it is a {type(content).__name__}, wanted key: "
            "value"
        )
    _refuse_endless(path, content)
    return content


def _refuse_endless(path: Path, content: Any) -> None:
    """An error where tables lie too deep, or YAML's references make too much of little, or a table hold itself."""
    todo, values = deque([(content, 0)]), 0
    while todo:
        value, depth = todo.popleft()
        values += 1
        if depth > _DEEPEST or values > _MOST_VALUES:
            raise SettingError(f"{str(path)!r} does not hold settings: {_TOO_DEEP}")
        inner = value.values() if isinstance(value, Mapping) else value
        if isinstance(inner, Iterable) and not isinstance(inner, str | bytes):
            todo.extend((each, depth + 1) for each in inner)


class _Yaml(yaml.SafeLoader):
    """YAML where ``1e-3`` is a number, as in YAML 1.2, and a key that comes twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys differ."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for place, key in enumerate(keys) if key in keys[:place]]
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {twice[0]!r} comes twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


_Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _read_yaml(text: str) -> Any:
    return yaml.load(text, _Yaml)  # a SafeLoader: no code is run


_READERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
}
