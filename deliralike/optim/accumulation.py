"""Gradients of several micro-batches that make one update.

A window sums them by weight and divides them at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deliralike import nest
from deliralike.errors import BatchError
from deliralike.nest.arrays import Arrays
from deliralike.optim.loss import Loss, LossResult, or_one

Gradients = dict[str, Any]


@dataclass(frozen=True)
class Weight:
    """What one micro-batch counts for.

    Attributes:
        samples: Its samples.
        factor: What its gradients are multiplied by.
        divisor: What it adds to the divisor of the window.
    """

    samples: int
    factor: float
    divisor: float


@dataclass
class Window:
    """The micro-batches since the last update.

    Attributes:
        micro_batches: How many there are.
        samples: How many samples they have.
        divisor: What their sum is to be divided by; 0 for losses that are sums.
        of_replicas: One dict of gradients for each replica, the root's first, on the replicas' own
            devices: they are brought together once, at the update.
    """

    micro_batches: int = 0
    samples: int = 0
    divisor: float = 0.0
    of_replicas: list[Gradients] = field(default_factory=list)

    def add(
        self, backend: Arrays, gradients: Sequence[Gradients], weight: Weight, scale: float = 1.0
    ) -> None:
        """Add the gradients of one micro-batch, each replica's, times its weight.

        They are divided by the scale of the loss.

        A replica that had no share of it is not among them.
        """
        self.micro_batches += 1
        self.samples, self.divisor = self.samples + weight.samples, self.divisor + weight.divisor
        self.of_replicas += [{} for _ in gradients[len(self.of_replicas) :]]
        for total, addition in zip(self.of_replicas, gradients, strict=False):
            _add(backend, total, addition, weight.factor / scale)

    def divided(self, backend: Arrays) -> list[Gradients]:
        """Each replica's gradients of the whole window, which holds them no longer."""
        sums, self.of_replicas = self.of_replicas, []
        for gradients in sums:
            names = _present(gradients)
            quotients = backend.weighted(
                [gradients[name] for name in names], 1.0 / or_one(self.divisor)
            )
            gradients.update(zip(names, quotients, strict=True))
        return sums


def _add(backend: Arrays, total: Gradients, addition: Gradients, factor: float) -> None:
    """Add gradients times a factor to a replica's gradients.

    Where both are None the parameter has taken no part so far.
    """
    present = _present(addition)
    known = [name for name in present if total.get(name) is not None]
    fresh = [name for name in present if total.get(name) is None]
    total.update({name: None for name in addition if name not in total})
    total.update(
        zip(fresh, backend.weighted([addition[name] for name in fresh], factor), strict=True)
    )
    sums = backend.weighted(
        [addition[name] for name in known], factor, [total[name] for name in known]
    )
    total.update(zip(known, sums, strict=True))


def _present(gradients: Gradients) -> list[str]:
    return [name for name, gradient in gradients.items() if gradient is not None]


def weight_of(
    loss: Loss, result: Any, samples: int, number: Callable[[Any], float]
) -> tuple[LossResult, Weight]:
    """The parts of a micro-batch's loss, and what it counts for in a window.

    Args:
        loss: The loss before `Loss.with_denominator`.
        result: What the loss has returned with it.
        samples: The samples of the micro-batch.
        number: Turns a native scalar into a number.
    """
    if loss.reduction == "sum":
        return LossResult.of(result), Weight(samples, 1.0, 0.0)
    if loss.reduction != "denominator":
        return LossResult.of(result), Weight(samples, samples, samples)
    parts = loss.parts(result)
    divisor = number(parts.denominator)
    return parts, Weight(samples, divisor, divisor)


def count_samples(batch: Any, dim: int = 0) -> int:
    """The number of samples in a batch: the size of its first array along `dim`.

    Raises:
        BatchError: There is no array with such an axis.
    """
    first = batch[0] if isinstance(batch, tuple | list) and batch else None
    leaves = [first] if hasattr(first, "shape") else nest.leaves(batch)
    for leaf in leaves:
        shape = getattr(leaf, "shape", ())
        if -len(shape) <= dim < len(shape):
            return int(shape[dim])
    raise BatchError(
        f"a batch needs an array whose axis {dim} counts the samples, and this one has none"
    )
