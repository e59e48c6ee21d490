"""Start values: drawn on the host, keyed by seed and parameter path, so the same on every backend.

A distribution is a small frozen value with ``draw(generator, shape)``. The defaults of the layers
are PyTorch's.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from deliralike.errors import SettingError

Shape = tuple[int, ...]


class Distribution(Protocol):
    """Anything that can draw an array of a shape."""

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        ...


@dataclass(frozen=True)
class Constant:
    """Every element is `value`."""

    value: float

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        return np.full(shape, self.value)


@dataclass(frozen=True)
class Uniform:
    """Uniform between ``-bound`` and ``bound``."""

    bound: float

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        return generator.uniform(-self.bound, self.bound, shape)


@dataclass(frozen=True)
class Normal:
    """Normal around `mean`.

    `zero_row` of the first axis, if given, is zero (the padding row of a table).
    """

    std: float = 1.0
    mean: float = 0.0
    zero_row: int | None = None

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        values = self.mean + self.std * generator.standard_normal(shape)
        if self.zero_row is not None:
            values[self.zero_row] = 0.0
        return values


@dataclass(frozen=True)
class TruncatedNormal:
    """Normal with every element redrawn until it lies within ``limit`` standard deviations."""

    std: float = 0.02
    limit: float = 2.0

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        values = generator.standard_normal(shape)
        outside = np.abs(values) > self.limit
        while outside.any():
            values[outside] = generator.standard_normal(int(outside.sum()))
            outside = np.abs(values) > self.limit
        return self.std * values


@dataclass(frozen=True)
class HeNormal:
    """Normal with variance ``2 / (1 + slope**2) / fan``.

    `fan` is ``"in"`` or ``"out"``, `slope` that of a leaky ReLU.

    Source: He et al. 2015, arXiv 1502.01852.
    """

    fan: str = "in"
    slope: float = 0.0

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        variance = 2.0 / (1.0 + self.slope**2) / _fan(shape, self.fan)
        return math.sqrt(variance) * generator.standard_normal(shape)


@dataclass(frozen=True)
class HeUniform:
    """Uniform with variance 2/fan; `fan` is ``"in"`` or ``"out"``.

    Source: He et al. 2015, arXiv 1502.01852.
    """

    fan: str = "in"

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        bound = math.sqrt(6.0 / _fan(shape, self.fan))
        return generator.uniform(-bound, bound, shape)


@dataclass(frozen=True)
class XavierUniform:
    """Uniform with variance 2/(fan in + fan out). Source: Glorot and Bengio 2010."""

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        bound = math.sqrt(6.0 / (_fan(shape, "in") + _fan(shape, "out")))
        return generator.uniform(-bound, bound, shape)


@dataclass(frozen=True)
class XavierNormal:
    """Normal with variance 2/(fan in + fan out). Source: Glorot and Bengio 2010."""

    def draw(self, generator: np.random.Generator, shape: Shape) -> np.ndarray:
        """Draw an array in float64."""
        std = math.sqrt(2.0 / (_fan(shape, "in") + _fan(shape, "out")))
        return std * generator.standard_normal(shape)


ZEROS = Constant(0.0)
ONES = Constant(1.0)


def fan_in_uniform(fan_in: int) -> Uniform:
    """Return PyTorch's default for linear and convolution layers: within ``1/sqrt(fan_in)``."""
    if fan_in <= 0:
        return Uniform(0.0)
    return Uniform(1.0 / math.sqrt(fan_in))


def draw(start: Distribution, shape: Sequence[int], seed: int, path: str) -> np.ndarray:
    """Draw the start value of the parameter at `path`.

    It is the same for the same seed and path, on every backend.

    Returns:
        A float64 array of `shape`; the caller casts it to the parameter's own type.

    Example:
        >>> once = draw(Normal(), (3,), 0, "fc.weight")
        >>> again = draw(Normal(), (3,), 0, "fc.weight")
        >>> bool((once == again).all())
        True
    """
    return start.draw(generator(seed, path), tuple(shape))


def generator(seed: int, path: str) -> np.random.Generator:
    """Return a counter-based generator keyed by `seed` and the text `path`."""
    return np.random.Generator(np.random.Philox(key=key(seed, path)))


def key(seed: int, path: str) -> np.ndarray:
    """Return the Philox key of a seed and a path: two words of 64 bits."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise SettingError(
            f"seed must be a whole number from 0 to 2**64 - 1, not {seed!r}"
        )
    digest = hashlib.blake2b(path.encode(), digest_size=8).digest()
    return np.array([seed, int.from_bytes(digest, "little")], dtype=np.uint64)


def _fan(shape: Shape, which: str) -> int:
    if which not in ("in", "out"):
        raise SettingError(f"fan must be 'in' or 'out', not {which!r}")
    if len(shape) < 2:
        raise SettingError(
            f"a parameter with a start value by its fan needs two axes, and one has the shape "
            f"{shape}: take Uniform, TruncatedNormal or Normal"
        )
    channels = shape[1] if which == "in" else shape[0]
    return max(1, channels * math.prod(shape[2:]))
