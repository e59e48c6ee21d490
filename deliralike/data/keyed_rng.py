"""Random numbers of the data: a generator for each sample and batch, keyed by its purpose.

So an augmentation does not depend on the batch size, the workers, or the place where a run was
resumed.
"""

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import ArgumentError
from deliralike.random import philox
from deliralike.terminal import warn

_GENERATOR_NAMES = ("generator", "rng")
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def keyed_generator(
    seed: int, path: str, epoch: int, number: int, repeat: int = 0
) -> np.random.Generator:
    """Return the generator of a sample or batch in an epoch, for one seed and purpose.

    Args:
        path: The purpose, as a path.
        number: The number of the sample or batch.
        repeat: The number of times that the sample came before in the epoch.

    Example:
        >>> first, same = (keyed_generator(0, "data/transform", 1, 2) for _ in range(2))
        >>> bool(first.random() == same.random())
        True
    """
    return np.random.Generator(philox(seed, path, epoch, number, repeat))


@dataclass(frozen=True)
class Call:
    """A user's function of a value, and the way in which it takes the generator.

    Attributes:
        generator_as: The name of the argument that takes the generator; empty if it is the second
            argument; None if the function takes none.
    """

    function: Callable[..., Any]
    generator_as: str | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], name: str = "transform") -> "Call":
        """Return a call of a function, whose signature tells how it takes the generator.

        It takes one if it has a second argument without a default, or an argument named
        ``generator`` or ``rng``.

        Raises:
            ArgumentError: It cannot be called.
        """
        if not callable(function):
            raise ArgumentError(
                f"{name} must be a function, not {nest.described(function)}"
            )
        return cls(function, _generator_as(function))

    def __call__(self, value: Any, generator: Callable[[], np.random.Generator]) -> Any:
        """Call the function; the generator is made only if the function takes one."""
        if self.generator_as is None:
            return self.function(value)
        if self.generator_as == "":
            return self.function(value, generator())
        return self.function(value, **{self.generator_as: generator()})


@dataclass(frozen=True)
class KeyedGlobals:
    """A function of jobs in a process of its own, whose global generators are keyed by the job."""

    make: Callable[[Any], Any]
    seed: int

    def __call__(self, job: Any) -> Any:
        """Return the result of a job; it depends on nothing that the process did before."""
        generator = keyed_generator(
            self.seed, "data/global", job.epoch, job.number, int(job.indices[0])
        )
        word = int(generator.integers(2**32))
        random.seed(word)
        np.random.seed(word)
        if torch := sys.modules.get("torch"):
            torch.manual_seed(word)
        return self.make(job)


def watched(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches that threads make; warn if global generators change while one waits for them.

    Their order of drawing is that of the threads, and ahead of the run.
    """
    before = _global_states()
    for batch in batches:
        after = _global_states()
        names = [
            name for name, state in after.items() if before.get(name, state) != state
        ]
        if names:
            warn(
                f"the data draw from the global random numbers of {' and '.join(names)} while "
                "batches are prepared ahead, so these depend on time, and a resumed run has other "
                "ones: draw from a transform's second argument (a generator), or take "
                "worker_kind='process', or leave out prefetch and workers",
                RuntimeWarning,
            )
        yield batch
        break
    yield from batches


def _global_states() -> dict[str, Any]:
    state: Any = np.random.get_state()
    states: dict[str, Any] = {
        "NumPy": (state[1].tobytes(), *state[2:]),
        "Python": random.getstate(),
    }
    if torch := sys.modules.get("torch"):
        states["PyTorch"] = torch.get_rng_state().numpy().tobytes()
    return states


def mixes_samples(call: Call | None) -> bool:
    """Return whether a transform wants all samples of a batch: its ``whole_batch`` is true."""
    return call is not None and bool(getattr(call.function, "whole_batch", False))


def has_required_argument(function: Callable[..., Any]) -> bool:
    """Return whether the function has a positional argument without a default."""
    for parameter in _parameters(function):
        if parameter.kind in _POSITIONAL and parameter.default is parameter.empty:
            return True
    return False


def random_words(seed: int, path: str, draw: int, count: int) -> np.ndarray:
    """Return raw words of the Philox generator, which NumPy promises never to change.

    They are keyed by `seed`, the text `path` and the number of the draw.
    """
    return philox(seed, path, draw).random_raw(count)


def _generator_as(function: Callable[..., Any]) -> str | None:
    """Return how a function takes the generator; see `Call.generator_as`."""
    parameters = _parameters(function)
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    if len(positional) > 1:
        second = positional[1]
        if second.default is second.empty or second.name in _GENERATOR_NAMES:
            return ""
    for parameter in parameters:
        if parameter.name in _GENERATOR_NAMES:
            return parameter.name
    return None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        return []
