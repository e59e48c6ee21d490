"""How far a candidate is from a reference: relative L2 differences.

They are taken of outputs, gradients and loss curves.

Meant for float64, where right backends agree to about 1e-15 and the subtlest mistakes show at 1e-6
and above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from deliralike import data, nest
from deliralike.conformance.kinds import Arrays, Named
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import LossFunction
from deliralike.training import History, classification_loss
from deliralike.training.evaluation import concatenate, predict
from deliralike.weights.matching.distance import norm, wide
from deliralike.weights.matching.distance import (
    relative_difference as relative_difference,
)

K = TypeVar("K")  # names of tensors

# Below this fraction of the largest tensor's root mean square, a tensor holds rounding errors only.
NULL = 1e-12
# And gradients that differ by less than this fraction of it differ by the rounding of the large
# ones.
ROUNDING = 1e-15


@dataclass(frozen=True)
class Comparison:
    """One set of tensors against another.

    Attributes:
        difference: The largest relative difference of any tensor; infinite when a tensor is
            missing, of another shape or not finite on one side only.
        worst: The name of the tensor that has it; empty when nothing differs.
        null: Tensors that are zero up to rounding on both sides; their noise is not compared.
    """

    difference: float = 0.0
    worst: str = ""
    null: tuple[str, ...] = ()


@dataclass(frozen=True)
class Probe:
    """What a network computes for a few samples.

    Attributes:
        outputs: In evaluation mode, by path.
        gradients: Of the loss in training mode, by parameter; None where the loss does not depend
            on it.
    """

    outputs: Arrays
    gradients: Mapping[str, np.ndarray | None]


@dataclass(frozen=True)
class Agreement:
    """A candidate against the reference.

    Attributes:
        losses: Step by step.
        outputs: In evaluation mode, over all moments.
        gradients: In training mode, tensor by tensor, over all moments.
    """

    losses: Comparison
    outputs: Comparison
    gradients: Comparison


def probe(
    network: AbstractNetwork,
    samples: data.Samples,
    loss_function: LossFunction = classification_loss,
) -> Probe:
    """Outputs in evaluation mode and gradients in training mode; the network is left as it was."""
    outputs = concatenate(list(predict(network, samples.inputs)))
    before = network.neutral_state()
    with network.training_mode(True):
        gradients = network.backend.gradients(
            loss_function, network, *samples
        ).parameters
    network.load_neutral_state(before)  # running statistics have moved
    return Probe(dict(nest.leaves_with_paths(outputs, "outputs")), gradients)


def agreement(
    reference: tuple[History, Mapping[str, Probe]],
    candidate: tuple[History, Mapping[str, Probe]],
) -> Agreement:
    """Compare two runs: their loss curves, and what their networks computed at each named moment.

    Args:
        reference, candidate: A history, and probes by moment, for example ``{"at the start": ...,
            "at the end": ...}``.
    """
    (history, probes), (other_history, other_probes) = reference, candidate
    outputs, gradients = {}, {}
    for moment, one in probes.items():
        two = other_probes[moment]
        outputs[moment] = compare(one.outputs, two.outputs)
        gradients[moment] = compare(one.gradients, two.gradients)
    losses = compare(_by_step(history), _by_step(other_history))
    return Agreement(losses, _largest(outputs), _largest(gradients))


def compare(reference: Named, candidate: Named, rounding: float = 0.0) -> Comparison:
    """Compare arrays by name, and find the one that differs most.

    A bias in front of a batch norm has a gradient of exactly zero, which shows as rounding noise
    that no two backends share. Tensors like it are listed as null; one that is null on one side
    only is compared as any other.

    Args:
        rounding: Differences below this fraction of the largest tensor's root mean square are none.

    Example:
        >>> compare({"a": np.array([3.0, 4.0]), "b": np.ones(2)}, {"a": np.array([3.0, 4.5]), "b": np.ones(2)})
        Comparison(difference=0.1, worst='a', null=())
    """
    found = differences(reference, candidate, rounding)
    null = tuple(
        sorted(name for name in {**reference, **candidate} if name not in found)
    )
    worst = max(found, key=found.__getitem__, default="")
    return Comparison(found.get(worst, 0.0), worst if found.get(worst) else "", null)


def differences(
    reference: Mapping[K, Any], candidate: Mapping[K, Any], rounding: float = 0.0
) -> dict[K, float]:
    """Return the relative difference of each tensor that is not null on both sides: see `compare`."""
    sizes = _sizes(reference)
    null = _null(sizes) & _null(_sizes(candidate))
    names = [name for name in {**reference, **candidate} if name not in null]
    found = {
        name: relative_difference(reference.get(name), candidate.get(name))
        for name in names
    }
    floor = rounding * max(sizes.values(), default=0.0)
    return {
        name: 0.0 if d * sizes.get(name, np.inf) <= floor else d
        for name, d in found.items()
    }


def largest_difference(reference: Any, candidate: Any) -> float:
    """The largest relative difference of the arrays of two nests; infinite for two structures."""
    mine, theirs = nest.leaves(reference), nest.leaves(candidate)
    if len(mine) != len(theirs):
        return np.inf
    pairs = zip(mine, theirs, strict=True)
    found = [relative_difference(x, y) for x, y in pairs if isinstance(x, np.ndarray)]
    return max(found, default=0.0)


def _by_step(history: History) -> dict[str, float]:
    """Return the loss of each step under a name of its own.

    In one tensor, the large losses at the start would hide all the others.
    """
    return {f"step {step.step}": step.loss for step in history.steps}


def _sizes(tensors: Mapping[Any, Any]) -> dict[Any, float]:
    """The root mean square of each tensor whose numbers are all finite."""
    found = {}
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        value = wide(tensor)
        if np.isfinite(value).all():
            found[name] = norm(value) / max(1, value.size) ** 0.5
    return found


def _null(sizes: Mapping[Any, float]) -> set[Any]:
    """The names of tensors that are zero up to rounding, beside the largest of all."""
    largest = max(sizes.values(), default=0.0)
    return {name for name, size in sizes.items() if size <= NULL * largest}


def _largest(comparisons: Mapping[str, Comparison]) -> Comparison:
    """The comparison with the largest difference, its worst tensor named with the moment."""
    difference, worst, null = 0.0, "", set[str]()
    for moment, one in comparisons.items():
        null.update(one.null)
        if one.worst and one.difference > difference:
            difference, worst = one.difference, f"{one.worst} {moment}"
    return Comparison(difference, worst, tuple(sorted(null)))
