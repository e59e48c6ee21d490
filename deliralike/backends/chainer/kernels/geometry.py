"""The settings of a convolution, and the sizes and indices that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from deliralike.backends.chainer.kernels.windows import Windows
from deliralike.nn.geometry import Pads, PerAxis


@dataclass(frozen=True)
class Geometry:
    """The positions of windows over an input: all settings of a convolution."""

    stride: PerAxis
    pads: Pads
    dilation: PerAxis
    groups: int
    kernel: PerAxis
    size: PerAxis
    count: PerAxis

    def windows(self) -> Windows:
        """Return the windows over the padded input."""
        return Windows(self.kernel, self.stride, self.dilation, self.count)

    def plain(self) -> bool:
        """Return whether each window is one element, in order, so that columns equal the input."""
        if self.size != self.count or self.is_padded():
            return False
        return set(self.kernel) == {1} == set(self.stride)

    def is_padded(self) -> bool:
        """Return whether there is any padding."""
        return any(map(any, self.pads))

    def inner(self) -> tuple:
        """Return the index of the input within the padded input."""
        axes = zip(self.pads, self.size, strict=True)
        return (..., *(slice(before, before + n) for (before, _), n in axes))

    def padded(self) -> PerAxis:
        """Return the size with padding."""
        return tuple(
            n + sum(pads) for n, pads in zip(self.size, self.pads, strict=True)
        )
