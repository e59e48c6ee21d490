"""Mistakes of losses: denominators, weights, ignored labels, smoothing, overlaps and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.fixtures import CLASS_WEIGHTS, IGNORED
from tests.planted.planting import with_loss

Loss = Callable[..., Any]

# Cross-entropy with class weights and ignored labels
# -----------------------------------------------------------------------------


def _weighted(reduce: Callable[..., Any]) -> Loss:
    """Cross-entropy with another mean: from `nn`, losses, weights and whether they count."""

    def loss(network: Any, x: Any, target: Any) -> Any:
        nn, logits = network.nn, network(x)
        label = nn.where(target != IGNORED, target, target * 0)
        kept = nn.cast(target != IGNORED, logits)
        weights = nn.select(nn.constant(CLASS_WEIGHTS, like=logits), label, 0)
        found = nn.select_along(nn.log_softmax(logits, 1), nn.expand_dims(label, 1), 1)[
            :, 0
        ]
        return reduce(nn, -found, weights, kept)

    return loss


def _by_batch(nn: Any, losses: Any, weights: Any, kept: Any) -> Any:
    """Ignored labels count in the denominator."""
    return nn.mean(losses * weights * kept)


def _options(**options: Any) -> Loss:
    """The loss of `nn` with other settings."""

    def loss(network: Any, x: Any, target: Any) -> Any:
        logits = network(x)
        weight = network.nn.constant(options.get("weight", CLASS_WEIGHTS), like=logits)
        return network.nn.cross_entropy(
            logits, target, **{"ignore_index": IGNORED, **options, "weight": weight}
        )

    return loss


def _entropy(name: str, loss: Loss, *cause: str) -> Mistake:
    place = ("loss", "cross_entropy")
    return Mistake(
        f"cross-entropy: {name}", "loss", with_loss(loss), place, cause, "pooling"
    )


MISTAKES = [
    _entropy(
        "ignored labels in the denominator",
        _weighted(_by_batch),
        "ignored",
        "batch",
        "denominator",
    ),
    _entropy("smoothing 0.1", _options(label_smoothing=0.1), "smoothing"),
]
