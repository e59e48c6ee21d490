"""Gradients of several micro-batches that make one update.

A window sums them in the weight of its latest micro-batch, and divides them at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deliralike.nest.arrays import Arrays
from deliralike.optim.loss import Loss, nonzero

Gradients = dict[str, Any]


@dataclass(frozen=True)
class Weight:
    """The weight of one micro-batch in a window.

    Attributes:
        samples: The number of its samples.
        factor: The number that its gradients are multiplied by.
        divisor: The number that it adds to the divisor of the window; it may be on the device.
    """

    samples: int
    factor: float
    divisor: Any


@dataclass
class AccumulationWindow:
    """The micro-batches since the last update.

    The sums of gradients are relative to the weight of the latest micro-batch, so that its
    gradients are added to them as they are.

    Attributes:
        micro_batches: The number of micro-batches.
        samples: The number of their samples.
        divisors: The numbers whose sum the weighted sum of their gradients is to be divided by;
            zeros for losses that are sums.
        unit: The weight that the sums are relative to; 0 before a micro-batch that counts.
        of_replicas: One dict of sums for each replica, the root's first. They stay on the
            replicas' own devices and are reduced once, at the update.
    """

    micro_batches: int = 0
    samples: int = 0
    divisors: list[Any] = field(default_factory=list)
    unit: float = 0.0
    of_replicas: list[Gradients] = field(default_factory=list)

    def rescale(self, backend: Arrays, unit: float) -> None:
        """Make the sums relative to another weight.

        A weight of zero changes nothing: the gradients of such a micro-batch are zeros.
        """
        if unit and unit != self.unit:
            self._multiply(backend, self.unit / unit)
            self.unit = unit

    def count(self, weight: Weight) -> None:
        """Count a micro-batch whose gradients have been added."""
        self.micro_batches += 1
        self.samples += weight.samples
        self.divisors.append(weight.divisor)

    def take_gradients(self, backend: Arrays) -> list[Gradients]:
        """Return each replica's gradients of the whole window, and hold them no longer."""
        divisor = sum(backend.numbers(self.divisors))
        self._multiply(backend, self.unit / nonzero(divisor))
        replicas = self.of_replicas
        self.of_replicas = []
        return replicas

    def _multiply(self, backend: Arrays, factor: float) -> None:
        if factor == 1.0:
            return
        for gradients in self.of_replicas:
            sums = present(gradients)
            products = backend.weighted(list(sums.values()), factor)
            gradients.update(zip(sums, products, strict=True))


def add_to_sums(
    backend: Arrays, sums: list[Gradients], gradients: Sequence[Gradients]
) -> None:
    """Add gradients to the sums of each replica, in place where the backend can.

    Args:
        backend: The backend of the gradients.
        sums: One dict for each replica, the root's first; those that are missing are appended.
        gradients: Those of each replica that had a share of the micro-batch, the root's first.
    """
    while len(sums) < len(gradients):
        sums.append({})
    for total, addition in zip(sums, gradients, strict=False):
        _add(backend, total, addition)


def _add(backend: Arrays, total: Gradients, addition: Gradients) -> None:
    """Add gradients to a replica's sums.

    A parameter with None in both has taken no part in the loss so far.
    """
    first = {}
    further = {}
    sums = []
    for name, gradient in addition.items():
        so_far = total.setdefault(name)
        if gradient is None:
            continue
        if so_far is None:
            first[name] = gradient
        else:
            further[name] = gradient
            sums.append(so_far)
    # products, as the window writes over its sums and the gradients belong to the network
    total.update(zip(first, backend.weighted(list(first.values()), 1.0), strict=True))
    total.update(
        zip(further, backend.weighted(list(further.values()), 1.0, sums), strict=True)
    )


def present(gradients: Gradients) -> Gradients:
    """Return the gradients of the parameters that took part in the loss."""
    present = {}
    for name, gradient in gradients.items():
        if gradient is not None:
            present[name] = gradient
    return present


def weight_before(loss: Loss, samples: int) -> Weight:
    """Return the weight of a micro-batch.

    What a loss with a denominator adds to the divisor is known after the forward pass.
    """
    if loss.reduction == "sum":
        return Weight(samples, factor=1.0, divisor=0.0)
    return Weight(samples, factor=samples, divisor=samples)
