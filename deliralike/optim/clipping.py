"""Pre-update hooks that bound gradients.

Added to an optimizer they see the whole gradient, accumulated and unscaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from deliralike.errors import (
    DtypeError,
    SettingError,
    is_number,
    refuse_unknown_settings,
)

if TYPE_CHECKING:
    from deliralike.nest.arrays import Arrays
    from deliralike.optim.optimizer import AbstractOptimizer


@dataclass(frozen=True)
class ClipNorm:
    """Scale all gradients together so that their joint norm is at most `max_norm`.

    ``g * min(1, max_norm / norm)``, without an epsilon. A norm that is not finite makes all
    gradients NaN: nothing is hidden.

    Attributes:
        max_norm: The bound.
        norm_type: The order of the norm: 2 for the Euclidean one, ``inf`` for the largest element.

    Source: Pascanu et al. 2013, arXiv 1211.5063.

    Example:
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> optimizer = net.backend.optimizer(rules.rule("sgd", lr=0.1), net)
        >>> optimizer.pre_update_hooks.append(ClipNorm(1.0))
    """

    max_norm: float
    norm_type: float = 2.0

    def __post_init__(self) -> None:
        """Refuse a bound or an order that makes no sense.

        Raises:
            SettingError: `max_norm` or `norm_type` is not above 0.
        """
        _refuse_no_bound("max_norm", self.max_norm)
        if not is_number(self.norm_type) or not self.norm_type > 0:
            raise SettingError(
                f"norm_type={self.norm_type!r} must be a number above 0, such as 2 or float('inf')"
            )

    @classmethod
    def of(cls, value: Any) -> ClipNorm:
        """Return the hook for what a trainer takes as ``clip_norm``.

        That is a bound, a mapping of both settings, or a hook.

        Raises:
            SettingError: The value is something else.
            ArgumentError: The mapping has other settings.

        Example:
            >>> ClipNorm.of({"max_norm": 35, "norm_type": 1})
            ClipNorm(max_norm=35, norm_type=1)
        """
        if isinstance(value, ClipNorm):
            return value
        if isinstance(value, Mapping):
            refuse_unknown_settings("clip_norm", value, ("max_norm", "norm_type"))
            if "max_norm" in value:
                return cls(**value)
        if is_number(value) and 0 < value < math.inf:
            return cls(value)
        raise SettingError(
            f"clip_norm={value!r} must be a number above 0, or both settings: "
            f"{{'max_norm': 1.0, 'norm_type': 2.0}}"
        )

    def __call__(
        self, optimizer: AbstractOptimizer, gradients: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the gradients, scaled."""
        present = [gradient for gradient in gradients.values() if gradient is not None]
        if not present:
            return gradients
        norm = _joint_norm(optimizer.network.backend, present, self.norm_type)
        # One in the gradients' type, which NumPy's whole numbers and flags would not keep.
        one = norm**0
        # A compiled program cannot branch: the larger of norm and bound is a sum of products.
        above = (norm > self.max_norm) * one
        larger = norm * above + self.max_norm * (one - above)
        # `norm - norm` is 0 or NaN: XLA turns products with flags into choices, which drop NaN.
        factor = self.max_norm / larger + (norm - norm)
        scaled = {}
        for name, gradient in gradients.items():
            scaled[name] = None if gradient is None else gradient * factor
        return scaled


@dataclass(frozen=True)
class ClipValue:
    """Bring every element of every gradient into ``[-max_value, max_value]``."""

    max_value: float

    def __post_init__(self) -> None:
        """Refuse a bound that is not above 0 and finite."""
        _refuse_no_bound("max_value", self.max_value)

    def __call__(
        self, optimizer: AbstractOptimizer, gradients: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the gradients, bounded.

        Raises:
            DtypeError: A gradient is complex: its elements have no order.
        """
        backend = optimizer.network.backend
        clipped = {}
        for name, gradient in gradients.items():
            if gradient is not None:
                if _is_complex(gradient):
                    raise DtypeError(
                        f"ClipValue bounds real numbers, and the gradient of {name!r} is of type "
                        f"{gradient.dtype}: use ClipNorm"
                    )
                gradient = backend.clipped(gradient, self.max_value)
            clipped[name] = gradient
        return clipped


def _joint_norm(backend: Arrays, gradients: Sequence[Any], norm_type: float) -> Any:
    """Return the norm of all elements of all gradients, as a native scalar."""
    if norm_type == 2:
        return sum(_square(gradient).sum() for gradient in gradients) ** 0.5
    if norm_type == math.inf:
        maxima = []
        for gradient in gradients:
            if 0 not in gradient.shape:
                maxima.append(backend.largest(abs(gradient)))
        return reduce(_larger, maxima)
    total = sum((abs(gradient) ** norm_type).sum() for gradient in gradients)
    return total ** (1.0 / norm_type)


def _square(gradient: Any) -> Any:
    """Return the squares of the absolute values of all elements."""
    if _is_complex(gradient):
        return (gradient * gradient.conj()).real
    return gradient * gradient


def _is_complex(gradient: Any) -> bool:
    return "complex" in str(gradient.dtype)


def _larger(one: Any, other: Any) -> Any:
    """Return the larger of two scalars without a branch; NaN where one is NaN.

    A compiled program could not take a branch.
    """
    return one * (one >= other) + other * (other > one) + (one - one) + (other - other)


def _refuse_no_bound(name: str, value: Any) -> None:
    if not is_number(value) or not 0 < value < math.inf:
        raise SettingError(f"{name}={value!r} must be above 0 and finite")
