"""Run formulas on the inputs of a suspected block and measure their distance from the candidate."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.backends.base import Backend
from deliralike.conformance.agreement import NULL
from deliralike.conformance.by_name import only
from deliralike.conformance.explain.arguments import bound
from deliralike.conformance.explain.convention import Choice, Formula
from deliralike.conformance.explain.trials import Executor, Trial
from deliralike.conformance.findings import (
    LIMIT,
    MATCH,
    FailingBlock,
    has_floats,
    in_dtype,
    is_floating,
)
from deliralike.conformance.kinds import Named, Tensors
from deliralike.network.base import Network
from deliralike.weights.matching.distance import norm

_GRADIENT = "gradient of "


class _Nothing(Network):
    """A network without parameters.

    All arrays are inputs, so that the gradient of each is available.
    """

    def forward(self, x: Any) -> Any:
        return x


class Bench(Executor):
    """An accused block with the backend that its variants run on.

    Attributes:
        reference, wanted: What reference and candidate gave, by the names of `Observed.tensors`.
        outputs, buffers, gradients: Those names. Counters of batches are left out.
        reshaped: Whether an output has another shape, so that gradients cannot be compared.
    """

    digits = 17

    def __init__(self, accused: FailingBlock, backend: Backend) -> None:
        self.accused, self.backend = accused, backend
        self._twice = dict(_repeated(accused))
        self.reference = self._merged(_present(accused.reference.tensors()))
        self.wanted = self._merged(_present(accused.candidate.tensors()))
        self.outputs: tuple[str, ...] = ()
        self.gradients: tuple[str, ...] = ()
        self.buffers: tuple[str, ...] = ()
        for name in sorted({*self.reference, *self.wanted}):
            if name.endswith("num_batches_tracked"):
                continue
            if name.startswith("output"):
                self.outputs += (name,)
            elif name.startswith(_GRADIENT):
                self.gradients += (name,)
            elif (
                name in self.wanted
            ):  # buffers of the reference alone are said to be missing
                self.buffers += (name,)
        self.reshaped = False
        for name in self.outputs + self.buffers:
            if name in self.reference and name in self.wanted:
                same = self.reference[name].shape == self.wanted[name].shape
                self.reshaped |= not same
        inputs = (dict(accused.state), tuple(accused.args), dict(accused.kwargs))
        self._inputs = nest.map(lambda leaf: in_dtype(leaf, np.float64), inputs)
        self.given = self._named(*self._inputs)
        self._network = _Nothing.on(backend, dtype="float64")()
        self._native: Any = None

    def distances(self, tensors: Named) -> dict[str, float]:
        """Return how far the candidate is from some tensors, by name.

        Distances are relative to the larger of candidate and reference; those of gradients are left
        out where none are given.
        """
        names = self.outputs + self.buffers
        if any(name.startswith(_GRADIENT) for name in tensors):
            names += self.gradients
        return {name: self._distance(name, tensors) for name in names}

    def forward(self, formula: Formula) -> Tensors | None:
        """Outputs and buffers of a formula; None where it cannot be executed on these inputs."""
        if self._native is None:
            self._native = self.backend.prepare(self._inputs, self._network)
        try:
            with self.backend.evaluating(), _quiet(), random.portable():
                given = self._named(*self._native)
                outputs = formula(self.backend.nn, given)
                return self._host(outputs, given["after"])
        except Exception:  # noqa: BLE001  of a backend that refuses another shape or setting
            return None

    def everything(self, formula: Formula) -> Tensors | None:
        """Return the same with the gradients of inputs and parameters for the block's cotangent."""
        nn, cotangent = self.backend.nn, nest.leaves(self.accused.cotangent)

        def loss(network: Network, *inputs: Any) -> Any:
            outputs = nest.leaves(formula(nn, self._named(*inputs)))
            floating = filter(has_floats, nest.leaves(inputs))
            total = sum(nn.sum(leaf) * 0.0 for leaf in floating)  # each takes part
            for leaf, weight in zip(outputs, cotangent, strict=True):
                if leaf is not None and weight is not None:
                    total = total + nn.sum(leaf * nn.constant(weight, like=leaf))
            return total

        forward = Bench.forward(self, formula)
        if forward is None or all(weight is None for weight in cotangent):
            return forward
        try:
            with _quiet(), random.portable():
                found = self.backend.gradients(
                    loss, self._network, *self._inputs
                ).inputs
        except Exception:  # noqa: BLE001  as above
            return None
        weights, args, kwargs = found
        named = [*_paths(args, kwargs), *weights.items()]
        return forward | self._merged(
            _present({f"{_GRADIENT}{name}": g for name, g in named})
        )

    def tried(self, choice: Choice, formula: Formula) -> Trial | None:
        """Outputs and buffers, and gradients where the outputs are the candidate's."""
        changed = choice.formula(formula)
        tensors = self.forward(changed)
        if tensors is None:
            return None
        trial = self.trial(choice.cause, tensors)
        if trial.within(self.outputs) > MATCH or self.reshaped or not self.gradients:
            return trial
        tensors = self.everything(changed)
        return None if tensors is None else self.trial(choice.cause, tensors)

    @cached_property
    def itself(self) -> Trial:
        """What the reference gave."""
        return self.trial("", self.reference)

    def trial(self, cause: str, tensors: Tensors) -> Trial:
        """What a cause gave."""
        distances = self.distances(tensors)
        return Trial(cause, max(distances.values(), default=0.0), distances)

    def distance(self, formula: Formula) -> float:
        """How far the candidate's outputs and buffers are from those of a formula."""
        tensors = self.forward(formula)
        if tensors is None:
            return np.inf
        names = self.outputs + self.buffers
        return float(np.linalg.norm([self._distance(name, tensors) for name in names]))

    @cached_property
    def _sizes(self) -> dict[str, float]:
        """The norm of each tensor's finite numbers, on the side where it is larger."""
        found = {}
        for name in self.outputs + self.gradients + self.buffers:
            sides = (self.wanted.get(name), self.reference.get(name))
            found[name] = max(map(_finite_norm, sides))
        return found

    @cached_property
    def data(self) -> int:
        """How many numbers differ: in outputs and buffers, and of one number in its gradients."""
        names = self.outputs + self.buffers
        sizes = [np.size(self.wanted[name]) for name in names if name in self.wanted]
        if sizes == [1] and len(names) == 1:
            names += self.gradients
        count = 0
        for name in names:
            if name in self.wanted and self.itself.distances[name] > LIMIT:
                count += np.size(self.wanted[name])
        return count

    def _distance(self, name: str, tensors: Named) -> float:
        found, wanted = tensors.get(name), self.wanted.get(name)
        if found is wanted:
            return 0.0
        if name.startswith(_GRADIENT):  # no gradient is a gradient of zero
            if found is None:
                found = np.zeros_like(wanted)
            if wanted is None:
                wanted = np.zeros_like(found)
        if found is None or wanted is None or found.shape != wanted.shape:
            return np.inf
        if found.dtype.kind == "b":  # masks
            found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        # infinite scores and undefined numbers that both have are no difference
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        with np.errstate(all="ignore"):
            difference = norm(np.where(same, 0.0, found - wanted))
        size = max(_finite_norm(found), _finite_norm(wanted))
        if difference == 0.0 or size <= NULL * max(self._sizes.values()):
            return 0.0
        if not np.isfinite(difference):
            return np.inf
        distance = difference / size
        if LIMIT < distance <= self.accused.noise.get(name, 0.0):
            return 0.0
        return distance

    def _named(self, weights: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        """What a formula gets: the arguments, the mode, and where to put buffers after the call."""
        one = self.accused
        mode = {"training": one.training, "path": one.path, "after": {}}
        return bound(one.kind, one.settings, weights, args, kwargs) | mode

    def _host(self, outputs: Any, after: Named) -> Tensors:
        outputs, after = self.backend.to_numpy((outputs, dict(after)))
        named = dict(nest.leaves_with_paths(outputs, "output"))
        unchanged = only({**self.accused.state, **after}, self.reference)
        return _present(named) | _present(unchanged)

    def _merged(self, tensors: Tensors) -> Tensors:
        """Return the tensors with the gradients of a repeated array summed under its first name."""
        merged = dict(tensors)
        for name, first in self._twice.items():
            if name in merged:
                value = merged.pop(name)
                merged[first] = merged.get(first, 0.0) + value
        return merged


def _paths(args: Any, kwargs: Any) -> Sequence[tuple[str, Any]]:
    return [
        *nest.leaves_with_paths(args, "args"),
        *nest.leaves_with_paths(kwargs, "kwargs"),
    ]


def _repeated(accused: FailingBlock) -> Iterator[tuple[str, str]]:
    """The name of each array that was given before, and the name under which it was given first.

    Self-attention, for example, is given its tokens three times.
    """
    visited: Tensors = {}
    for path, leaf in _paths(accused.args, dict(accused.kwargs)):
        if not is_floating(leaf):
            continue
        for first, other in visited.items():
            if leaf.size > 1 and (leaf is other or np.array_equal(leaf, other)):
                yield f"{_GRADIENT}{path}", f"{_GRADIENT}{first}"
                break
        else:
            visited[path] = leaf


def _present(tensors: Named) -> Tensors:
    found = {}
    for name, value in tensors.items():
        if value is not None:
            array = np.asarray(value)
            if array.dtype.kind in "biu":
                array = array.astype(np.float64)
            found[name] = array
    return found


def _finite_norm(array: Any) -> float:
    """The norm of the finite numbers."""
    if array is None:
        return 0.0
    return norm(np.where(np.isfinite(array), array, 0.0))


@contextlib.contextmanager
def _quiet() -> Any:
    """A wrong convention may divide by zero or overflow, which is no news here."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
