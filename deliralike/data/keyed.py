"""Random numbers of the data: a generator for each sample and batch, keyed by what it is for.

So an augmentation is the same whatever the batch size, the workers, and the place where a run was taken up again.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.nn import start

_GENERATOR_NAMES = ("generator", "rng")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Keyed:
    """A source of generators for one seed and purpose.

    Example:
        >>> flips = Keyed(seed=0, path="data/transform")
        >>> bool(flips.generator(1, 2).random() == flips.generator(1, 2).random())
        True
    """

    seed: int
    path: str

    def generator(self, epoch: int, number: int, repeat: int = 0) -> np.random.Generator:
        """The generator of the `number`-th sample or batch in `epoch`, on its `repeat`-th appearance there."""
        counter = [0, repeat, number, epoch]  # the first word counts the draws
        return np.random.Generator(np.random.Philox(key=start.key(self.seed, self.path), counter=counter))


@dataclass(frozen=True)
class Call:
    """A user's function of a value, and how it wants the generator: not at all, second, or by name."""

    function: Callable[..., Any]
    generator_as: str | None = None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Call":
        """Read it off the signature: a second argument without a default, or one named ``generator`` or ``rng``."""
        return cls(function, _generator_as(function))

    def __call__(self, value: Any, generator: Callable[[], np.random.Generator]) -> Any:
        """Call it; the generator is made only if it is wanted."""
        if self.generator_as is None:
            return self.function(value)
        if self.generator_as == "":
            return self.function(value, generator())
        return self.function(value, **{self.generator_as: generator()})


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether the function has an argument of that name."""
    return name in [each.name for each in _parameters(function)]


def must_be_told(function: Callable[..., Any]) -> bool:
    """Whether the function has an argument that has to be given."""
    return any(each.default is each.empty and each.kind in _POSITIONAL for each in _parameters(function))


def uniform(seed: int, path: str, draw: int, count: int) -> np.ndarray:
    """Numbers from 0 up to 1, from raw words of the Philox generator, which NumPy promises never to change."""
    words = np.random.Philox(key=start.key(seed, path), counter=[0, 0, 0, draw]).random_raw(count)
    return (words >> np.uint64(11)) * 2.0**-53


def _generator_as(function: Callable[..., Any]) -> str | None:
    parameters = _parameters(function)
    named = [each.name for each in parameters if each.name in _GENERATOR_NAMES]
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    if len(positional) > 1 and (positional[1].default is inspect.Parameter.empty or positional[1].name in named):
        return ""
    return named[0] if named else None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        return []
