"""Dropout of elements, channels and residual paths.

Active in training mode only; what is kept is scaled up.
"""

import math
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import Shape
from deliralike.random import drop_threshold


class _Dropout(Network):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.check_settings(p)
        self.p = p
        self.nn.prepare_rng(self)

    @classmethod
    def check_settings(cls, p: float = 0.5, inplace: bool = False) -> None:
        drop_threshold(p)  # refuses what is not a probability

    def check_input(self, x) -> None:
        pass

    def mask_shape(self, x) -> Shape:
        return tuple(x.shape)

    def dropped(self, x, mask, rate: float):
        """The elements that a mask keeps, scaled up."""
        return x * (mask * (1.0 / (1.0 - rate)))

    def forward(self, x, p: float | None = None):
        rate = self.p
        if p is not None:
            self.check_settings(p)
            rate = p
        self.check_input(x)
        if not self.training or rate == 0:
            return x
        if rate == 1:
            return x * 0.0
        mask = self.nn.keep_mask(self, self.mask_shape(x), rate, x)
        return self.dropped(x, mask, rate)


class Dropout(_Dropout):
    """Dropout of elements with probability `p`. Source: Srivastava et al. 2014.

    ``layer(x, p)`` drops with another probability, as where each block is told its own.
    `inplace` has no effect, as for `ReLU`.
    """


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance of what `SELU` gives. Source: arXiv 1706.02515.

    Dropped elements are ``-alpha * scale`` of `SELU` in the place of 0.
    """

    @staticmethod
    def dropped(x, mask, rate: float):
        low = -1.7580993408473766  # -alpha * scale
        factor = 1.0 / math.sqrt((1.0 - rate) * (1.0 + rate * low * low))
        return (x * mask + low * (1.0 - mask)) * factor - factor * low * rate


def _channels(_layer: Any, x: Any) -> Shape:
    """The shape of a mask of whole channels."""
    return (x.shape[0], x.shape[1], *(1,) * (x.ndim - 2))


class FeatureAlphaDropout(AlphaDropout):
    """`AlphaDropout` of whole channels, axis 1."""

    mask_shape = _channels


class _ChannelDropout(_Dropout):
    n: int
    mask_shape = _channels

    def check_input(self, x) -> None:
        checks.spatial_axes(self, x, self.n)


class Dropout1d(_ChannelDropout):
    """Dropout of whole channels of ``(batch, channels, length)``."""

    n = 1


class Dropout2d(_ChannelDropout):
    """Dropout of whole channels of ``(batch, channels, height, width)``."""

    n = 2


class Dropout3d(_ChannelDropout):
    """Dropout of whole channels of ``(batch, channels, depth, height, width)``."""

    n = 3


class DropPath(_Dropout):
    """Dropout of a residual branch for whole samples (stochastic depth).

    Source: Huang et al. 2016, arXiv 1603.09382.
    """

    def mask_shape(self, x) -> Shape:
        return (x.shape[0], *(1,) * (x.ndim - 1))
