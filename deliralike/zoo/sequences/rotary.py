"""Rotary positions: pairs of elements of queries and keys, turned by an angle for each position."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.zoo.blocks import at_least_single

LLAMA3 = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


def frequencies(
    width: int, theta: float, scaling: Mapping[str, Any] | None = None
) -> tuple[float, ...]:
    """Return the angle by which each pair of elements turns from one position to the next.

    Source: Su et al. 2021, arXiv 2104.09864; the scaling is that of Llama 3.1, arXiv 2407.21783.

    Args:
        width: The width of a head, which is even.
        theta: The base: wavelengths go from ``2 pi`` to nearly ``2 pi * theta``.
        scaling: Hugging Face's ``rope_scaling`` of the type ``"llama3"``: waves that are longer
            than ``original_max_position_embeddings / low_freq_factor`` become `factor` times as
            long, those shorter than ``original_max_position_embeddings / high_freq_factor`` stay,
            and those between become longer by degrees.

    Raises:
        SettingError: The width is odd, or the scaling is of another type or lacks a number.

    Example:
        >>> frequencies(4, 10000.0)
        (1.0, 0.01)
    """
    if width % 2:
        raise SettingError(
            f"rotary positions turn pairs: a head's width of {width} is odd"
        )
    plain = theta ** -(np.arange(0, width, 2) / width)
    if scaling is None:
        return tuple(plain.tolist())
    factor, low, high, longest = _llama3(scaling)
    turns = longest * plain / (2 * math.pi)  # within the texts of the first training
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    scaled = plain * (share + (1.0 - share) / factor)
    return tuple(scaled.tolist())


def _llama3(scaling: Mapping[str, Any]) -> list[float]:
    kind = scaling.get("rope_type", "llama3")
    missing = [name for name in LLAMA3 if name not in scaling]
    if kind != "llama3" or missing:
        raise SettingError(
            f"rope_scaling={dict(scaling)!r}: wanted None or the type 'llama3' with the numbers "
            f"{', '.join(LLAMA3)}"
        )
    return [float(scaling[name]) for name in LLAMA3]


def angles(
    nn: Any, positions: Any, turns: tuple[float, ...], like: Any
) -> tuple[Any, Any]:
    """Return the cosines and sines of each position's angles, in the type of `like`.

    They are computed in single precision at least: half of it cannot count positions.

    Shapes:
        Positions ``(batch, tokens)`` give ``(batch, 1, tokens, 2 * len(turns))``.
    """
    steps = nn.cast(positions, at_least_single(like))
    batch, tokens = positions.shape
    twice = nn.constant(np.asarray((*turns, *turns)), like=steps)
    turned = nn.reshape(steps, (batch, 1, tokens, 1)) * twice
    return nn.cast(nn.cos(turned), like), nn.cast(nn.sin(turned), like)


def rotated(nn: Any, x: Any, cosines: Any, sines: Any) -> Any:
    """Turn element i of each head together with element ``i + width / 2``.

    Shapes:
        ``(batch, heads, tokens, width)`` gives the same.
    """
    first, second = nn.split(x, x.shape[-1] // 2, dim=-1)
    return x * cosines + nn.concatenate([-second, first], dim=-1) * sines
