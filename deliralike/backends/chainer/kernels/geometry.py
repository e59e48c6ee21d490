"""The settings of a convolution, and the sizes and indices that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deliralike.backends.chainer.kernels.windows import Windows
from deliralike.nn.geometry import Pads


@dataclass(frozen=True)
class Geometry:
    """The positions of windows over an input: all settings of a convolution."""

    stride: tuple[int, ...]
    pads: Pads
    dilation: tuple[int, ...]
    groups: int
    kernel: tuple[int, ...]
    size: tuple[int, ...]
    count: tuple[int, ...]

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

    def turned(self) -> Geometry | None:
        """Return the windows of the transpose as a convolution; None with strides."""
        axes = zip(self.kernel, self.dilation, self.pads, strict=True)
        pads = tuple((d * (k - 1) - a, d * (k - 1) - b) for k, d, (a, b) in axes)
        if set(self.stride) != {1} or min(map(min, pads)) < 0:
            return None
        return replace(self, pads=pads, size=self.count, count=self.size)

    def padded(self) -> tuple[int, ...]:
        """Return the size with padding."""
        return tuple(
            n + sum(pads) for n, pads in zip(self.size, self.pads, strict=True)
        )
