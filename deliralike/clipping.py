"""Pre-update hooks that bound gradients; added to an optimizer they see the whole gradient, accumulated, unscaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deliralike.errors import SettingError

if TYPE_CHECKING:
    from deliralike.optimizer import AbstractOptimizer


@dataclass(frozen=True)
class ClipNorm:
    """Scale all gradients together so that their joint Euclidean norm is at most `max_norm`.

    ``g * min(1, max_norm / norm)``, without an epsilon. A norm that is not finite leaves NaN among the gradients:
    nothing is hidden.

    Source: Pascanu et al. 2013, arXiv 1211.5063.

    Example:
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> optimizer = net.backend.optimizer(rules.rule("sgd", lr=0.1), net)
        >>> optimizer.pre_update_hooks.append(ClipNorm(1.0))
    """

    max_norm: float

    def __post_init__(self) -> None:
        """Refuse a bound that is none."""
        _refuse_no_bound("max_norm", self.max_norm)

    def __call__(self, optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        """The gradients, scaled."""
        present = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        if not present:
            return gradients
        norm = sum((gradient * gradient).sum() for gradient in present.values()) ** 0.5
        one = norm**0  # in the gradients' type, which NumPy's whole numbers and flags would not keep
        above = (norm > self.max_norm) * one
        factor = self.max_norm / (norm * above + self.max_norm * (one - above))  # 1 where the norm is within bounds
        return gradients | {name: gradient * factor for name, gradient in present.items()}


@dataclass(frozen=True)
class ClipValue:
    """Bring every element of every gradient into ``[-max_value, max_value]``."""

    max_value: float

    def __post_init__(self) -> None:
        """Refuse a bound that is none."""
        _refuse_no_bound("max_value", self.max_value)

    def __call__(self, optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        """The gradients, bounded."""
        bound = self.max_value
        return {
            name: None if gradient is None else gradient.clip(-bound, bound) for name, gradient in gradients.items()
        }


def _refuse_no_bound(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise SettingError(f"{name}={value!r} must be above 0 and finite")
