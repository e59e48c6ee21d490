"""Run formulas on the inputs of a suspected block and measure their distance from the candidate."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.backends.base import Backend
from deliralike.conformance.agreement import NULL
from deliralike.conformance.explain.fitting import EXACT, fit
from deliralike.conformance.explain.variant import Call, Formula, Variant
from deliralike.conformance.findings import LIMIT, Accused
from deliralike.network.base import Network
from deliralike.nn.layers import LAYERS

Tensors = dict[str, np.ndarray]


class _Nothing(Network):
    """A network without parameters.

    All arrays are inputs, so that the gradient of each is available.
    """

    def forward(self, x: Any) -> Any:
        return x


class Bench:
    """An accused block with the backend that its variants run on.

    Attributes:
        settings: The reference's, with the defaults of the layer or function where none was given.
        reference, wanted: What reference and candidate gave, by the names of `Observed.tensors`.
        outputs, buffers, gradients: Those names; `forward_names` are the first two. Counters of
            batches are left out.
        reshaped: Whether an output has another shape, so that gradients cannot be compared.
    """

    def __init__(self, accused: Accused, backend: Backend, seed: int = 0) -> None:
        self.accused, self.backend, self.seed = accused, backend, seed
        self._twice = _repeated(accused)
        self.settings = {**_defaults(accused.kind), **accused.settings}
        self.reference = self._merged(_present(accused.reference.tensors()))
        self.wanted = self._merged(_present(accused.candidate.tensors()))
        names = {*self.reference, *self.wanted}
        self.names = tuple(
            sorted(name for name in names if not name.endswith("num_batches_tracked"))
        )
        self.outputs = tuple(name for name in self.names if name.startswith("output"))
        self.gradients = tuple(name for name in self.names if name.startswith("gradient of "))
        self.buffers = tuple(
            name for name in self.names if name not in (*self.outputs, *self.gradients)
        )
        self.forward_names = self.outputs + self.buffers
        self.reshaped = any(
            self.wanted[name].shape != self.reference[name].shape
            for name in self.forward_names
            if name in self.wanted and name in self.reference
        )
        self._sizes = {
            name: max(_norm(self.wanted.get(name)), _norm(self.reference.get(name)))
            for name in self.names
        }
        self._inputs = nest.map(
            _float64, (dict(accused.state), tuple(accused.args), dict(accused.kwargs))
        )
        self._network = _Nothing.on(backend, dtype="float64")()
        self._native: Any = None

    def distances(self, tensors: Mapping[str, Any], names: Any = None) -> dict[str, float]:
        """Return how far the candidate is from some tensors, by name.

        Distances are relative to the larger of candidate and reference.
        """
        return {
            name: self._distance(name, tensors) for name in (self.names if names is None else names)
        }

    def forward(self, formula: Formula) -> Tensors | None:
        """Outputs and buffers of a formula; None where it cannot be executed on these inputs."""
        try:
            with self.backend.evaluating(), _quiet(), random.portable(self.seed):
                call = self._call(*self._arrays())
                return self._host(formula(call), call.after)
        except Exception:  # noqa: BLE001
            return None

    def everything(self, formula: Formula) -> Tensors | None:
        """Return the same with the gradients of inputs and parameters for the block's cotangent."""
        cotangent = nest.leaves(self.accused.cotangent)

        def loss(network: Network, weights: Any, args: Any, kwargs: Any) -> Any:
            call = self._call(weights, args, kwargs)
            outputs = formula(call)
            floating = [
                leaf for leaf in nest.leaves((weights, args, kwargs)) if self._is_floating(leaf)
            ]
            total = sum(call.nn.sum(leaf) * 0.0 for leaf in floating)
            for leaf, weight in zip(nest.leaves(outputs), cotangent, strict=True):
                if leaf is not None and weight is not None:
                    total = total + call.nn.sum(leaf * call.nn.constant(weight, like=leaf))
            return total

        forward = self.forward(formula)
        if forward is None or all(weight is None for weight in cotangent):
            return forward
        try:
            with _quiet(), random.portable(self.seed):
                found = self.backend.gradients(loss, self._network, *self._inputs).inputs
        except Exception:  # noqa: BLE001
            return None
        return forward | self._gradients(*found)

    def fitted(self, variant: Variant) -> Variant | None:
        """Return a variant whose free number is fitted to the candidate's outputs and buffers."""
        target = self._vector(self.wanted)

        def predict(value: float) -> np.ndarray:
            found = self.forward(lambda call: variant.formula(call, value))
            vector = None if found is None else self._vector(found)
            return (
                np.full(target.shape, np.inf)
                if vector is None or vector.shape != target.shape
                else vector
            )

        value, left = fit(predict, target, variant.starts, variant.least, variant.most)
        usual = self._vector(self.reference)
        if not np.isfinite(left) or (
            usual.shape == target.shape and np.abs(predict(value) - usual).max(initial=0.0) <= EXACT
        ):
            return None  # the search has come back to the reference
        return variant.at(value)

    def _vector(self, tensors: Mapping[str, Any]) -> np.ndarray:
        """Outputs and buffers that differ, each in units of its own size, as one vector."""
        parts = [
            np.ravel(tensors[name]) / (self._sizes[name] or 1.0)
            for name in self.forward_names
            if name in tensors
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _distance(self, name: str, tensors: Mapping[str, Any]) -> float:
        found, wanted = tensors.get(name), self.wanted.get(name)
        if name.startswith("gradient of "):  # no gradient is a gradient of zero
            found = np.zeros_like(wanted) if found is None and wanted is not None else found
            wanted = np.zeros_like(found) if wanted is None and found is not None else wanted
        if found is None or wanted is None or found.shape != wanted.shape:
            return 0.0 if found is wanted else np.inf
        both = np.isnan(found) & np.isnan(wanted)
        if both.any():  # what neither has is no difference
            found, wanted = np.where(both, 0.0, found), np.where(both, 0.0, wanted)
        difference = _norm(found - wanted)
        size = max(_norm(found), _norm(wanted))
        if difference == 0.0 or size <= NULL * max(self._sizes.values()):
            return 0.0
        distance = difference / size if np.isfinite(difference) else np.inf
        return 0.0 if LIMIT < distance <= self.accused.noise.get(name, 0.0) else distance

    def _arrays(self) -> Any:
        if self._native is None:
            self._native = self.backend.prepare(self._inputs, self._network)
        return self._native

    def _call(self, weights: Any, args: Any, kwargs: Any) -> Call:
        one = self.accused
        return Call(
            self.backend.nn, weights, tuple(args), kwargs, self.settings, one.training, one.path
        )

    def _host(self, outputs: Any, after: Mapping[str, Any]) -> Tensors:
        outputs = self.backend.to_numpy(outputs)
        named = {
            path: np.asarray(leaf)
            for path, leaf in nest.leaves_with_paths(outputs, "output")
            if leaf is not None
        }
        state = {**self.accused.state, **self.backend.to_numpy(dict(after))}
        return named | {
            name: np.asarray(value) for name, value in state.items() if name in self.reference
        }

    def _gradients(self, weights: Any, args: Any, kwargs: Any) -> Tensors:
        by_path = [
            *nest.leaves_with_paths(args, "args"),
            *nest.leaves_with_paths(kwargs, "kwargs"),
            *weights.items(),
        ]
        return self._merged(
            {f"gradient of {path}": value for path, value in by_path if value is not None}
        )

    def _merged(self, tensors: Tensors) -> Tensors:
        """Return the tensors with the gradients of a repeated array summed under its first name."""
        merged = dict(tensors)
        for name, first in self._twice.items():
            if (value := merged.pop(name, None)) is not None:
                merged[first] = merged[first] + value if first in merged else value
        return merged

    def _is_floating(self, leaf: Any) -> bool:
        return self.backend.is_array(leaf) and "float" in str(leaf.dtype)


def _defaults(kind: str) -> dict[str, Any]:
    """The settings that a layer has when nothing is said."""
    if kind not in LAYERS:
        return {}
    parameters = inspect.signature(LAYERS[kind].__init__).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _float64(leaf: Any) -> Any:
    return (
        leaf.astype(np.float64) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" else leaf
    )


def _present(tensors: Mapping[str, Any]) -> Tensors:
    arrays = {name: np.asarray(value) for name, value in tensors.items() if value is not None}
    return {
        name: value.astype(np.float64) if value.dtype.kind in "biu" else value
        for name, value in arrays.items()
    }


def _repeated(accused: Accused) -> dict[str, str]:
    """Return the first name of each array that is given again, by the later name.

    Self-attention, for example, is given its tokens three times.
    """
    given = [
        *nest.leaves_with_paths(tuple(accused.args), "args"),
        *nest.leaves_with_paths(dict(accused.kwargs), "kwargs"),
    ]
    floating = [
        (path, leaf)
        for path, leaf in given
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
    ]
    found: dict[str, str] = {}
    for index, (path, leaf) in enumerate(floating):
        for first, other in floating[:index]:
            if leaf is other or (
                leaf.shape == other.shape and leaf.size > 1 and np.array_equal(leaf, other)
            ):
                found[f"gradient of {path}"] = f"gradient of {first}"
                break
    return found


def _norm(array: Any) -> float:
    if array is None or not np.size(array):
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.square(np.asarray(array, np.float64)).sum()))


@contextlib.contextmanager
def _quiet() -> Any:
    """A wrong convention may divide by zero or overflow, which is no news here."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
