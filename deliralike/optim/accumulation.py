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
    """The weight of one micro-batch in a window.

    Attributes:
        samples: The number of its samples.
        factor: The number that its gradients are multiplied by.
        divisor: The number that it adds to the divisor of the window.
    """

    samples: int
    factor: float
    divisor: float


@dataclass
class AccumulationWindow:
    """The micro-batches since the last update.

    Attributes:
        micro_batches: The number of micro-batches.
        samples: The number of their samples.
        divisor: The number that the sum of their gradients is to be divided by; 0 for losses that
            are sums.
        of_replicas: One dict of gradients for each replica, the root's first. They stay on the
            replicas' own devices and are reduced once, at the update.
    """

    micro_batches: int = 0
    samples: int = 0
    divisor: float = 0.0
    of_replicas: list[Gradients] = field(default_factory=list)

    def add(
        self, backend: Arrays, gradients: Sequence[Gradients], weight: Weight, scale: float = 1.0
    ) -> None:
        """Add the gradients of one micro-batch, times its weight.

        Args:
            backend: The backend of the gradients.
            gradients: Those of each replica that had a share of the micro-batch, the root's first.
            weight: The weight of the micro-batch.
            scale: The scale of the loss, by which the gradients are divided.
        """
        self.micro_batches += 1
        self.samples += weight.samples
        self.divisor += weight.divisor
        while len(self.of_replicas) < len(gradients):
            self.of_replicas.append({})
        for total, addition in zip(self.of_replicas, gradients, strict=False):
            _add(backend, total, addition, weight.factor / scale)

    def take_gradients(self, backend: Arrays) -> list[Gradients]:
        """Return each replica's gradients of the whole window, and hold them no longer."""
        replicas, self.of_replicas = self.of_replicas, []
        factor = 1.0 / or_one(self.divisor)
        for gradients in replicas:
            sums = _present(gradients)
            quotients = backend.scaled(list(sums.values()), factor)
            gradients.update(zip(sums, quotients, strict=True))
        return replicas


Window = AccumulationWindow  # deprecated alias


def _add(backend: Arrays, total: Gradients, addition: Gradients, factor: float) -> None:
    """Add gradients times a factor to a replica's gradients, in place.

    A parameter with None in both has taken no part in the loss so far.
    """
    first, further, sums = {}, {}, []
    for name, gradient in addition.items():
        so_far = total.setdefault(name)
        if gradient is None:
            continue
        if so_far is None:
            first[name] = gradient
        else:
            further[name] = gradient
            sums.append(so_far)
    total.update(zip(first, backend.weighted(list(first.values()), factor), strict=True))
    total.update(zip(further, backend.weighted(list(further.values()), factor, sums), strict=True))


def _present(gradients: Gradients) -> Gradients:
    """Return the gradients of the parameters that took part in the loss."""
    return {name: gradient for name, gradient in gradients.items() if gradient is not None}


def weight_of(
    loss: Loss, result: Any, samples: int, number: Callable[[Any], float]
) -> tuple[LossResult, Weight]:
    """Return the parts of a micro-batch's loss, and the weight of the micro-batch in a window.

    Args:
        loss: The loss before `Loss.with_denominator`.
        result: What the loss has returned with it.
        samples: The number of samples in the micro-batch.
        number: Turns a native scalar into a number.
    """
    if loss.reduction == "sum":
        return LossResult.of(result), Weight(samples, factor=1.0, divisor=0.0)
    if loss.reduction != "denominator":
        return LossResult.of(result), Weight(samples, factor=samples, divisor=samples)
    parts = loss.parts(result)
    divisor = number(parts.denominator)
    return parts, Weight(samples, factor=divisor, divisor=divisor)


def count_samples(batch: Any, dim: int = 0) -> int:
    """Return the number of samples in a batch: the size of its first array along `dim`.

    Raises:
        BatchError: There is no array with such an axis.
    """
    first = batch[0] if isinstance(batch, (tuple, list)) and batch else None
    leaves = [first] if hasattr(first, "shape") else nest.leaves(batch)
    for leaf in leaves:
        shape = getattr(leaf, "shape", ())
        if -len(shape) <= dim < len(shape):
            return int(shape[dim])
    raise BatchError(
        f"a batch needs an array whose axis {dim} counts the samples, and this one has none"
    )
