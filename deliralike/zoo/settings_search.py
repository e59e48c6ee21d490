"""Other settings of a network with which weights would fit it, found by trying them on shapes."""

from __future__ import annotations

import importlib
import inspect
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deliralike.errors import DeliralikeError

Settings = dict[str, Any]
Values = Callable[
    [str, Any], Sequence[Any]
]  # other values, for a setting's name and value

_SECONDS = 3.0
_MOST_ROUNDS = 6  # changes that are made together
_GOOD = (
    2 / 3
)  # a change that leaves so few of the problems is taken before others are tried
_MOST_SHOWN = 3
_MOST_SIZES = 24
# What a network may raise that is built with a value that makes no sense.
_REFUSALS = (
    DeliralikeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
)


def would_fit(
    network: Any, shapes: Mapping[str, tuple[int, ...]], problems: Callable[[Any], int]
) -> tuple[Settings, ...]:
    """Return changes of settings with each of which the weights would fit.

    Settings are tried on the outline of the network, the most promising change first, until the
    weights fit or the time is up. The values come from the documentation of each setting (words in
    quotes), from its own value (a flag the other way, None), and from sizes and counts in the
    weights.

    Args:
        network: The network that the weights do not fit.
        shapes: Those of the weights, by name.
        problems: Returns how many names or shapes of an outline do not fit.

    Returns:
        The changes, each by the setting's name; empty where none was found.
    """
    written = getattr(type(network), "written_once", None)
    if written is None:
        return ()
    outline = importlib.import_module("deliralike.backends.outline").BACKEND
    build = written.on(outline)
    search = _Search(build, problems, time.monotonic() + _SECONDS)
    settings = _settings(written, network)
    kinds = _trials(written, _lengths(shapes), _sizes(shapes))
    change: Settings = {}
    least = search.problems(settings)
    for _ in range(_MOST_ROUNDS):
        fewest, best = search.best_of(settings, change, kinds, least)
        if fewest == 0:
            return tuple(best[:_MOST_SHOWN])
        if not best:
            return ()
        least, change = fewest, best[0]
    return ()


def described(changes: tuple[Settings, ...]) -> str:
    """Return the changes in words; empty without any."""
    if not changes:
        return ""
    ways = []
    for change in changes:
        ways.append(", ".join(f"{name}={value!r}" for name, value in change.items()))
    return (
        f"\n  all names and shapes would fit a network with {'; or with '.join(ways)}"
    )


class _Search:
    """Builds outlines and counts what does not fit, as long as there is time."""

    def __init__(
        self, build: Callable[..., Any], problems: Callable[[Any], int], end: float
    ) -> None:
        self._build = build
        self._problems = problems
        self._end = end
        self._helpful: set[str] = set()  # settings of which a value has helped

    def problems(self, settings: Settings) -> float:
        """Return how many names or shapes do not fit; infinity where there is no such network."""
        if time.monotonic() > self._end:
            return math.inf
        try:
            return self._problems(self._build(**settings))
        except _REFUSALS:
            return math.inf

    def best_of(
        self,
        settings: Settings,
        change: Settings,
        kinds: Sequence[Values],
        limit: float,
    ) -> tuple[float, list[Settings]]:
        """Return the fewest problems below a limit, and the longer changes that lead there.

        Kinds of values are tried in turn, until one of them does well.
        """
        if change:
            helpful = {
                name: value for name, value in settings.items() if name in self._helpful
            }
            fewest, best = self._best(settings, helpful, change, kinds, limit)
            if best:
                return fewest, best
        return self._best(settings, settings, change, kinds, limit)

    def _best(
        self,
        settings: Settings,
        tried: Settings,
        change: Settings,
        kinds: Sequence[Values],
        limit: float,
    ) -> tuple[float, list[Settings]]:
        """Return as `best_of` does what other values of some settings lead to."""
        fewest = limit
        best: list[Settings] = []
        for values in kinds:
            for name in tried:
                value = change.get(name, settings[name])
                for other in values(name, value):
                    if other == value:
                        continue
                    longer = change | {name: other}
                    count = self.problems(settings | longer)
                    if count < limit:
                        self._helpful.add(name)
                    if count < fewest:
                        fewest, best = count, []
                    if count == fewest < limit and longer not in best:
                        best.append(longer)
            if fewest <= _GOOD * limit:
                break
        return fewest, best


def _settings(written: type, network: Any) -> Settings:
    """Return the settings that a network was made with, and the defaults of all others."""
    settings = {}
    for name, parameter in inspect.signature(written.__init__).parameters.items():  # type: ignore[misc]
        if parameter.default is not inspect.Parameter.empty:
            settings[name] = parameter.default
    return settings | dict(network.init_kwargs)


def _trials(
    written: type, lengths: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[Values, ...]:
    """Return kinds of other values that a setting may have, the few ones first."""

    def words(name: str, value: Any) -> list[Any]:
        return [
            *_documented(written, name),
            *([not value] if isinstance(value, bool) else []),
        ]

    def near(_: str, value: Any) -> list[Any]:
        if type(value) is int:
            return [value - 1, value + 1, value // 2, value * 2]
        return _scaled(tuple(value)) if _is_series(value) else []

    def among(numbers: tuple[int, ...], value: Any) -> list[Any]:
        if _is_series(value):
            return _with_each(tuple(value), numbers)
        return list(numbers) if value is None or type(value) is int else []

    return (
        words,
        near,
        lambda _, value: among(lengths, value),
        lambda _, value: among(sizes, value),
    )


def _is_series(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(type(each) is int for each in value)


def _documented(written: type, name: str) -> list[Any]:
    """Return the values that the documentation of a setting names: words in quotes, and None.

    Example:
        >>> class Net:
        ...     '''A network.
        ...
        ...     Args:
        ...         norm: ``"batch"`` or None.
        ...         act: ``"relu"``.
        ...     '''
        >>> _documented(Net, "norm")
        ['batch', None]
    """
    text = inspect.cleandoc(written.__doc__ or "")
    entry = re.search(rf"^ +{name}: (.*(?:\n {{8}}.*)*)", text, re.MULTILINE)
    if entry is None:
        return []
    words: list[Any] = re.findall(r'``"(\w+)"``', entry[1])
    if re.search(r"\bNone\b", entry[1]):
        words.append(None)
    return words


def _scaled(value: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return tuples that are scaled, shorter or longer."""
    found = []
    for factor in (2, 4, 8):
        found.append(tuple(number * factor for number in value))
        found.append(tuple(number // factor for number in value))
    if len(value) > 1:
        found += [value[:-1], value[1:]]
    if value:
        found += [(*value, value[-1]), (*value, 2 * value[-1])]
    return found


def _with_each(value: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return tuples that differ in one number."""
    found = []
    for size in sizes:
        for index in range(len(value)):
            found.append((*value[:index], size, *value[index + 1 :]))
    return found


def _lengths(shapes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the lengths that numbered series in the names may have."""
    numbers = {int(number) for name in shapes for number in re.findall(r"\d+", name)}
    return tuple(sorted(number + 1 for number in numbers))[:_MOST_SIZES]


def _sizes(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return sizes of axes, the rarest first."""
    counts = Counter(size for shape in shapes.values() for size in set(shape))
    return tuple(sorted(counts, key=counts.__getitem__))[:_MOST_SIZES]
