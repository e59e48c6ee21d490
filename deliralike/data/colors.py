"""Random transforms of a picture's colours, by torchvision's formulas, in NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data.transforms import on_picture
from deliralike.errors import BatchError, SettingError

_GREY = np.array([0.2989, 0.587, 0.114])  # of ITU-R BT.601, rounded as in torchvision
_SLACK = 1e-3  # by which a picture may leave 0 to 1, as after an interpolation


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast, saturation and hue of the picture by random amounts.

    A factor f is drawn from ``[max(0, 1 - v), 1 + v]`` for each of the first three, where v is the
    setting: brightness gives ``f x``, contrast ``f x + (1 - f) mean(grey)``, saturation ``f x + (1
    - f) grey``, with ``grey = 0.2989 R + 0.587 G + 0.114 B``. The hue turns by a part of its circle
    from ``[-hue, hue]``. The four come in a random order, each result is cut to 0 and 1.

    Pictures hold numbers from 0 to 1 with 3 channels, or 1, of which saturation and hue leave
    nothing to change. `Normalise` comes after it.

    Raises:
        BatchError: The picture has other channels or numbers.

    Source: torchvision's ``ColorJitter``.

    Example:
        >>> ColorJitter(brightness=0.5)(np.full((1, 1, 2), 0.5), np.random.default_rng(0)).round(3)
        array([[[0.568, 0.568]]])
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            if not getattr(self, name) >= 0:
                raise SettingError(f"{name}={getattr(self, name)!r} must not be below 0")
        if not 0 <= self.hue <= 0.5:
            raise SettingError(f"hue={self.hue!r} must lie between 0 and 0.5")

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the sample with a picture of other colours."""
        changes: list[tuple[Callable[..., np.ndarray], float]] = []
        for function, amount in (
            (adjust_brightness, self.brightness),
            (adjust_contrast, self.contrast),
            (adjust_saturation, self.saturation),
        ):
            factor = generator.uniform(max(0.0, 1.0 - amount), 1.0 + amount)
            if amount:
                changes.append((function, factor))
        turn = generator.uniform(-self.hue, self.hue)
        if self.hue:
            changes.append((adjust_hue, turn))
        order = generator.permutation(len(changes))

        def changed(picture: np.ndarray) -> np.ndarray:
            _check_colors(picture)
            for place in order:
                function, amount = changes[place]
                picture = function(picture, amount)
            return picture

        return on_picture(sample, changed)


@dataclass(frozen=True)
class Grayscale:
    """Make the picture grey with a probability; all channels are then the same.

    Raises:
        BatchError: The picture has other channels than 3 or 1.

    Example:
        >>> Grayscale(1.0)(np.ones((3, 1, 1)), np.random.default_rng(0)).ravel().round(4).tolist()
        [0.9999, 0.9999, 0.9999]
    """

    probability: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise SettingError(f"probability must lie between 0 and 1, not {self.probability!r}")

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the sample, grey or not."""
        if generator.random() >= self.probability:
            return sample
        return on_picture(sample, lambda picture: np.broadcast_to(grey(picture), picture.shape))


def grey(picture: np.ndarray) -> np.ndarray:
    """Return the brightness of a picture: ``(3, ...)`` or ``(1, ...)`` gives ``(1, ...)``."""
    if len(picture) == 1:
        return picture
    if len(picture) != 3:
        raise BatchError(f"colours need a picture of 3 channels or 1, not of {len(picture)}")
    return np.tensordot(_GREY, picture, 1)[np.newaxis]


def adjust_brightness(picture: np.ndarray, factor: float) -> np.ndarray:
    """Return a picture times a factor."""
    return _blended(picture, np.zeros_like(picture), factor)


def adjust_contrast(picture: np.ndarray, factor: float) -> np.ndarray:
    """Return a picture whose distances from its mean brightness are times a factor."""
    return _blended(picture, grey(picture).mean(), factor)


def adjust_saturation(picture: np.ndarray, factor: float) -> np.ndarray:
    """Return a picture whose distances from grey are times a factor."""
    return _blended(picture, grey(picture), factor)


def adjust_hue(picture: np.ndarray, turn: float) -> np.ndarray:
    """Return a picture whose hues are turned by a part of the circle."""
    if len(picture) == 1:
        return picture
    hue, saturation, value = _hsv(picture)
    return _rgb((hue + turn) % 1.0, saturation, value)


def _blended(picture: np.ndarray, other: Any, factor: float) -> np.ndarray:
    return np.clip(factor * picture + (1.0 - factor) * other, 0.0, 1.0)


def _hsv(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hue (a part of the circle), saturation and value. Source: Smith 1978."""
    red, green, blue = picture
    value, least = picture.max(0), picture.min(0)
    chroma = value - least
    divisor = np.where(chroma > 0, chroma, 1.0)
    sixths = np.where(
        value == red,
        (green - blue) / divisor,
        np.where(value == green, 2.0 + (blue - red) / divisor, 4.0 + (red - green) / divisor),
    )
    saturation = chroma / np.where(value > 0, value, 1.0)
    return sixths / 6.0 % 1.0, saturation, value


def _rgb(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the picture of hue, saturation and value."""
    channels = []
    for offset in (5.0, 3.0, 1.0):
        k = (offset + 6.0 * hue) % 6.0
        channels.append(value - value * saturation * np.clip(np.minimum(k, 4.0 - k), 0.0, 1.0))
    return np.stack(channels)


def _check_colors(picture: np.ndarray) -> None:
    if len(picture) not in (1, 3):
        raise BatchError(f"colours need a picture of 3 channels or 1, not of {len(picture)}")
    if picture.size and not -_SLACK <= picture.min() <= picture.max() <= 1.0 + _SLACK:
        raise BatchError(
            f"colours need a picture of numbers from 0 to 1, and this one has {picture.min():.4g} "
            f"to {picture.max():.4g}: put Normalise after ColorJitter, divide bytes by 255"
        )
