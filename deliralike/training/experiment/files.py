"""Settings in files: read from TOML or YAML, written as TOML with a comment on each."""

from __future__ import annotations

import re
import stat
import textwrap
import tomllib
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
import yaml

from deliralike.errors import SettingError, UnknownName, suggestion
from deliralike.training.experiment.checks import located
from deliralike.training.experiment.settings import Settings, documentation, names

_DEEPEST = 50
_MOST_VALUES = 100_000
_TOO_DEEP = (
    f"tables and lists are nested more than {_DEEPEST} deep, hold themselves, or make more than "
    f"{_MOST_VALUES:,} values"
)
_MOST_BYTES = 2**20
_MOST_PARTS = 200  # of a key; readers of TOML take the square of their number
_MOST_BITS = 64  # of a number
NONE = "none"  # stands for None in a file, since TOML has no such value
_WIDTH = 100


def read_settings(
    path: str | Path, changes: Mapping[str, Any] | None = None
) -> Settings:
    """Read the settings in a file; its suffix decides: ``.toml``, ``.yaml``, ``.yml``.

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
        if name not in names():
            raise UnknownName(f"unknown setting {name!r}. {suggestion(name, names())}")
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
    return Path(text).suffix in _READERS


def read_content(path: Path) -> dict[str, Any]:
    """Return the unchecked content of a file by key.

    Raises:
        SettingError: There is no such file, or it cannot be read.
    """
    if path.suffix not in _READERS:
        raise SettingError(
            f"{str(path)!r} has the suffix {path.suffix!r}: settings are in {', '.join(_READERS)}"
        )
    try:
        content = _READERS[path.suffix](_text(path))
    except FileNotFoundError:
        raise SettingError(
            f"there is no file {str(path)!r}: 'deliralike settings' prints one to start from"
        ) from None
    except RecursionError as error:
        raise SettingError(
            f"{str(path)!r} does not hold settings: {_TOO_DEEP}"
        ) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingError(f"{str(path)!r} does not hold settings: {error}") from error
    if not isinstance(content, dict):
        raise SettingError(
            f"{str(path)!r} does not hold settings: it is a {type(content).__name__}, wanted key: "
            "value"
        )
    _refuse_endless(path, content)
    return content


def _text(path: Path) -> str:
    """Return the text of an ordinary file that is not too large.

    Raises:
        ValueError: It is something else.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no ordinary file")
    if status.st_size > _MOST_BYTES:
        raise ValueError(
            f"it has {status.st_size:,} bytes, and settings at most {_MOST_BYTES:,}"
        )
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        for part in re.split(r"[,=]", line.partition("#")[0]):
            if part.count(".") > _MOST_PARTS:
                raise ValueError(f"a key has more than {_MOST_PARTS} parts: {line:.30}")
    return text


def _refuse_endless(path: Path, content: Any) -> None:
    """Raise an error if tables are too deep, hold themselves, or have too many or huge values.

    YAML's references can make many values of a short text.
    """
    todo = deque([(content, 0)])
    values = 0
    while todo:
        value, depth = todo.popleft()
        values += 1
        if depth > _DEEPEST or values > _MOST_VALUES:
            raise SettingError(f"{str(path)!r} does not hold settings: {_TOO_DEEP}")
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise SettingError(
                f"{str(path)!r} does not hold settings: a number has {value.bit_length():,} bits, "
                f"and those of settings at most {_MOST_BITS}"
            )
        inner = value.values() if isinstance(value, Mapping) else value
        if isinstance(inner, Iterable) and not isinstance(inner, str | bytes):
            for each in inner:
                todo.append((each, depth + 1))


class _Yaml(yaml.SafeLoader):
    """YAML where ``1e-3`` is a number, as in YAML 1.2, and a key that comes twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping whose keys differ."""
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # the reader's own error says where
            if key in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} comes twice", node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> float:
        """Return a number; very long ones take YAML's reader the square of their length."""
        if len(node.value) > _MOST_BITS + 2:  # in base 2, with its prefix
            raise yaml.constructor.ConstructorError(
                None, None, f"a number has {len(node.value):,} digits", node.start_mark
            )
        is_whole = node.tag.endswith(":int")
        return (
            self.construct_yaml_int(node)
            if is_whole
            else self.construct_yaml_float(node)
        )


for _kind in ("int", "float"):
    _Yaml.add_constructor(f"tag:yaml.org,2002:{_kind}", _Yaml.construct_number)
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
