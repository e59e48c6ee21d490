"""Padding layers in 1 to 3 dimensions."""

from collections.abc import Iterable
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.geometry import Sizes
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
    mode = "constant"

    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x):
        checks.spatial_axes(self, x, self.n)
        return self.nn.pad(x, self.padding, "constant", self.value)


def _flat(padding: Sizes, n: int) -> Shape:
    """Return the numbers before and after each axis, from the last one on."""
    if isinstance(padding, Iterable):
        return tuple(padding)
    return (padding,) * (2 * n)


_MODES = {
    "ReflectionPad": ("reflect", "Padding by reflection, without the edge"),
    "ReplicationPad": ("replicate", "Padding with the outermost elements"),
    "CircularPad": ("circular", "Padding with elements of the other end"),
    "ZeroPad": ("constant", "Padding with zeros"),
    "ConstantPad": ("constant", "Padding with a number"),
}
_AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}
_ORDER = (
    "from the last axis on, as ``(left, right, top, bottom)``, or one number for all"
)


def _layers() -> dict[str, type]:
    made = {}
    metaclass: Any = type(_Pad)
    for kind, (mode, what) in _MODES.items():
        for n, axes in _AXES.items():
            base = _ConstantPad if kind == "ConstantPad" else _Pad
            doc = f"{what}: ``(batch, channels, {axes})``.\n\nNumbers {_ORDER}."
            body = {"n": n, "mode": mode, "__doc__": doc, "__module__": __name__}
            made[f"{kind}{n}d"] = metaclass(f"{kind}{n}d", (base,), body)
    return made


globals().update(_layers())
