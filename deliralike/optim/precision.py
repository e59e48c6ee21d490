"""Mixed precision: parameters stay as they are, the forward pass computes in a shorter type.

`LossScale` keeps float16 gradients from vanishing; bfloat16, with the range of float32, needs none.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from deliralike.errors import (
    CapabilityError,
    SettingError,
    refuse_unknown,
    refuse_unknown_settings,
)

if TYPE_CHECKING:
    from deliralike.network.core import NetworkCore

PRECISIONS = ("bfloat16", "float16")


@dataclass
class LossScale:
    """LossScale is the factor that the loss is multiplied by before backward.

    It is halved when gradients overflow and doubled after a long time without overflow.

    Attributes:
        value: The scale of the next step; with powers of two, scaling is exact.
        growth_factor: The scale is multiplied by it after `growth_interval` updates in a row
            without overflow.
        backoff_factor: The scale is multiplied by it after an overflow.
        growth_interval: The number of updates in a row without overflow after which the scale
            grows.
        good_steps: The number of updates without overflow since the scale last changed.
        dynamic: Whether the scale changes at all. Updates whose gradients overflow are left out in
            any case.

    Source: Micikevicius et al. 2018, arXiv 1710.03740.
    """

    value: float = 2.0**15
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    good_steps: int = 0
    dynamic: bool = True

    @classmethod
    def of(cls, value: Any = None) -> LossScale:
        """Return the scale for what a trainer takes as ``loss_scale``.

        Args:
            value: None or ``"dynamic"`` for the defaults; a number for a scale that stays; or a
                mapping with the names of PyTorch's ``GradScaler``: ``init_scale``,
                ``growth_factor``, ``backoff_factor``, ``growth_interval``.

        Raises:
            SettingError: A value makes no sense.
            ArgumentError: The mapping has other names.

        Example:
            >>> LossScale.of({"init_scale": 512.0, "growth_interval": 100}).value
            512.0
        """
        if value is None or value == "dynamic":
            return cls()
        if isinstance(value, Mapping):
            refuse_unknown_settings("loss_scale", value, _SCALER)
            for name, setting in value.items():
                _check_scaler(name, setting)
            settings = dict(value)
            initial = settings.pop("init_scale", cls.value)
            return cls(initial, **settings)
        _check_scaler("loss_scale", value)
        return cls(float(value), dynamic=False)

    def observe(self, finite: bool) -> None:
        """Change the scale after a step whose gradients were finite, or were not."""
        if not self.dynamic:
            return
        if not finite:
            self.value = max(self.value * self.backoff_factor, 1.0)
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps == self.growth_interval:
            grown = min(self.value * self.growth_factor, 2.0**24)
            self.value = max(self.value, grown)  # one that began above stays
            self.good_steps = 0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"value": self.value, "good_steps": self.good_steps}

    def load_state(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        self.value = float(state["value"])
        self.good_steps = int(state["good_steps"])


# The least value, the largest and the type of each setting of a loss scale.
_LARGEST = sys.float_info.max
_SCALER = {
    "loss_scale": (1.0, _LARGEST, Real),
    "init_scale": (1.0, _LARGEST, Real),
    "growth_factor": (1.0, _LARGEST, Real),
    "backoff_factor": (0.0, 1.0, Real),
    "growth_interval": (1.0, _LARGEST, Integral),
}


def _check_scaler(name: str, value: Any) -> None:
    least, largest, kind = _SCALER[name]
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not least <= float(value) <= largest:
        whole = "whole " if kind is Integral else ""
        most = f" and at most {largest:g}" if largest < _LARGEST else ""
        raise SettingError(
            f"{name}={value!r} must be a {whole}number of at least {least:g}{most}; loss_scale is "
            f"'dynamic', a number, or a mapping such as {{'init_scale': 512.0}}"
        )


def check_mixed(network: NetworkCore, precision: str) -> None:
    """Raise an error when a network cannot compute in a shorter type.

    Raises:
        CapabilityError: The backend cannot, or blocks of the framework's own would go on in their
            own type.
        SettingError: The network is not one of float32.
    """
    backend = network.backend
    backend.require(f"mixed {precision}")
    if network.dtype_name != "float32":
        raise SettingError(
            f"mixed precision is for networks of float32, and {type(network).__name__} is one "
            f"of {network.dtype_name}: build it in float32, or leave precision out"
        )
    if backend.native_layers_mix:
        return
    blocks = dict(network.named_blocks())
    for name, slot in network.neutral_slots().items():
        path = name.rpartition(".")[0]
        if not slot.is_parameter or path not in blocks:
            continue
        if not hasattr(blocks[path], "neutral_slots"):
            raise CapabilityError(
                f"the block {path!r} is a {type(blocks[path]).__name__} of the framework's "
                f"own, and on backend {backend.name!r} only the layers and functions of nn "
                f"compute in {precision}: give the block a type of its own, or leave precision out"
            )


def check_precision(precision: str | None) -> str | None:
    """Return the name of a type to compute in, as it is given; None is the network's own type.

    Raises:
        SettingError: There is no such precision.
    """
    if precision is not None:
        message = f"there is no mixed precision {precision!r}"
        refuse_unknown(precision, PRECISIONS, message, SettingError)
    return precision
