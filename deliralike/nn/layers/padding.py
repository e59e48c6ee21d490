"""Padding layers in 1 to 3 dimensions."""

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.function_layers import layers_of_each_rank
from deliralike.nn.start import Shape


class _Pad(Network):
    n: int
    mode: str

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self.padding = _flat(padding, self.n)

    def forward(self, x):
        checks.spatial_axes(self, x, self.n)
        return self.nn.pad(x, self.padding, self.mode)


class _ConstantPad(_Pad):
    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x):
        checks.spatial_axes(self, x, self.n)
        return self.nn.pad(x, self.padding, "constant", self.value)


def _flat(padding: Sizes, n: int) -> Shape:
    """Return the numbers before and after each axis, from the last one on."""
    if isinstance(padding, int):
        return (padding,) * (2 * n)
    return tuple(padding)


_KINDS = {
    "ReflectionPad": (_Pad, "reflect", "Padding by reflection, without the edge:"),
    "ReplicationPad": (_Pad, "replicate", "Padding with the outermost elements:"),
    "CircularPad": (_Pad, "circular", "Padding with elements of the other end:"),
    "ZeroPad": (_Pad, "constant", "Padding with zeros:"),
    "ConstantPad": (_ConstantPad, "constant", "Padding with a number:"),
}
_ORDER = "Numbers come from the last axis on: ``(left, right, top, bottom)``, or one for all."
for _kind, (_base, _mode, _what) in _KINDS.items():
    globals().update(
        layers_of_each_rank(_base, _kind, _what, __name__, _ORDER, mode=_mode)
    )
