"""The reference on shares of a batch, one after the other, and what they give together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import MATCH
from deliralike.conformance.kinds import Batch
from deliralike.conformance.listening import InPlace, handed
from deliralike.conformance.one_step import Step
from deliralike.conformance.replica_changes import of_share
from deliralike.conformance.subject import Subject
from deliralike.optim.loss import count_samples, value_of
from deliralike.parallel import partition

# A way of going wrong in words, and what it gives, of the kinds that it speaks of.
Variant = tuple[str, Step]
Rows = slice | np.ndarray
# From a network, and where something is kept, to what makes the calls of its blocks.
Around = Callable[[Any, dict[str, Any]], Callable[..., Any]]


class Shares:
    """The reference's network on parts of a batch, without any replica.

    Attributes:
        sizes: The samples of each share.
        rows: The samples of each share by number.
        weights: What each share's own mean counts in the loss of the whole batch: its part of the
            denominator.
    """

    def __init__(self, reference: Subject, batch: Batch, count: int, wanted: Step) -> None:
        """For one number of replicas, beside what the whole batch gives."""
        self.reference, self.batch, self.count, self.wanted = reference, batch, count, wanted
        self.samples = count_samples(batch)
        self.sizes = partition(self.samples, count)
        self.rows = np.split(np.arange(self.samples), np.cumsum(self.sizes)[:-1])

    # Runs
    # -------------------------------------------------------------------------

    def run(
        self,
        batch: Batch,
        rows: Rows | None = None,
        first_sample: int = 0,
        training: bool = True,
        around: Around | None = None,
    ) -> Step:
        """Loss, gradient, outputs and buffers of the reference on a batch.

        Args:
            batch: Arguments of the loss after the network.
            rows: The loss is that of these samples alone, though the network sees all.
            first_sample: Where the batch begins in the stream of masks.
            training: The mode.
            around: What makes the calls of blocks, and keeps what is handed on beside.
        """
        network = self.reference.network
        before = network.neutral_state()
        try:
            with network.training_mode(training), random.portable(first_sample=first_sample):
                answered = partial(_answered, self.reference.loss, rows, around)
                found = network.backend.gradients(answered, network, *batch)
            after = network.neutral_state()
        finally:
            network.load_neutral_state(before)
        gradients = {}
        for name in self.wanted["gradient"]:
            gradient = found.parameters.get(name)
            gradients[name] = np.zeros_like(before[name]) if gradient is None else gradient
        outputs, beside = found.beside
        return {
            "loss": {"loss": found.loss},
            "gradient": gradients,
            "output": dict(nest.leaves_with_paths(outputs, "output")),
            "buffer": {name: after[name] for name in self.wanted["buffer"]},
            "beside": beside,
        }

    def followed(self, around: Around) -> tuple[Step, dict[str, Any]]:
        """Return a step on the whole batch in which a function makes the calls, and what it kept."""
        step = self.run(self.batch, around=around)
        return step, step.pop("beside")

    def chosen(self, rows: Rows) -> tuple[Any, ...]:
        """Samples of the batch."""
        return taken(self.batch, rows, self.samples)

    @cached_property
    def together(self) -> list[Step]:
        """Each share's own mean, where the network sees the whole batch."""
        return [self.run(self.batch, slice(rows[0], rows[-1] + 1)) for rows in self.rows]

    @cached_property
    def alone(self) -> list[Step]:
        """Each share by itself."""
        return [self.run(self.chosen(rows), first_sample=int(rows[0])) for rows in self.rows]

    @cached_property
    def weights(self) -> np.ndarray:
        """Return the weights of the shares: see the class.

        Where the loss is not made of the shares' means, they follow from the sizes of the shares.
        """
        weights = fitted(self.together, self.wanted)
        given = {"gradient": combined(self.together, weights)["gradient"]}
        if not close(given["gradient"], self.wanted["gradient"]):
            return np.array(self.sizes) / self.samples
        return weights


def _answered(loss: Any, rows: Any, around: Around | None, network: Any, *batch: Any) -> Any:
    """The loss, the outputs, and what was kept of the calls."""
    whole = handed(of_share(loss), network, batch)
    kept: dict[str, Any] = {}
    answering = _Answering(network, whole or ((), {}), rows)
    share = batch if rows is None else taken(batch, rows, None)
    with ExitStack() as stack:
        if around is not None:
            stack.enter_context(network.backend.called_through(network, around(network, kept)))
        value = of_share(loss)(answering, *share)
    return value_of(value), answering.outputs, kept


class _Answering(InPlace):
    """A network that always sees the whole batch, and answers for some samples of it."""

    def __init__(self, network: Any, whole: tuple[Any, Any], rows: Any) -> None:
        super().__init__(network)
        self._whole, self._rows = whole, rows
        self.outputs: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.outputs = self._network(*self._whole[0], **self._whole[1])
        return self.outputs if self._rows is None else taken(self.outputs, self._rows, None)


def taken(values: Any, rows: Any, samples: int | None) -> Any:
    """Return some samples of every array of a nest.

    If `samples` is given, only arrays with that many samples are indexed.
    """

    def leaf(value: Any) -> Any:
        shape = getattr(value, "shape", ())
        return value[rows] if shape and samples in (None, shape[0]) else value

    return nest.map(leaf, values)


# Combinations
# -----------------------------------------------------------------------------


def combined(parts: Sequence[Step], weights: Sequence[float] | np.ndarray) -> Step:
    """Loss and gradient of several parts, weighted."""
    found: Step = {}
    for kind in ("loss", "gradient"):
        if kind not in parts[0]:
            continue
        found[kind] = {}
        for name in parts[0][kind]:
            each = zip(weights, parts, strict=True)
            found[kind][name] = sum(weight * part[kind][name] for weight, part in each)
    return found


def fitted(parts: Sequence[Step], to: Step) -> np.ndarray:
    """The weights with which the parts' gradients come nearest to a gradient."""
    return least_squares([part["gradient"] for part in parts], to["gradient"])


def least_squares(parts: Sequence[dict[str, Any]], to: dict[str, Any]) -> np.ndarray:
    """The weights with which tensors come nearest to others."""
    columns = np.stack([_vector(part) for part in parts], axis=1)
    return np.linalg.lstsq(columns, _vector(to), rcond=None)[0]


def _vector(tensors: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(np.ravel(tensors[name]) for name in sorted(tensors))])


def close(wanted: dict[str, Any], came: dict[str, Any]) -> bool:
    """Whether two sets of tensors are the same as a whole."""
    return relative_difference(_vector(wanted), _vector(came)) <= MATCH


def numbers(values: Sequence[float] | np.ndarray) -> str:
    """``"0.5, 0.25"``; what is left of zero by rounding is zero."""
    return ", ".join(f"{round(float(value), 12) + 0.0:.6g}" for value in values)


def joined(parts: Sequence[Step]) -> dict[str, Any]:
    """The outputs of several parts as one batch."""
    found = {}
    for name in parts[0]["output"]:
        found[name] = np.concatenate([np.atleast_1d(part["output"][name]) for part in parts])
    return found


def same_shapes(wanted: dict[str, Any], came: dict[str, Any]) -> bool:
    """Whether every tensor of one is in the other, as large."""
    return all(
        name in came and np.shape(came[name]) == np.shape(value) for name, value in wanted.items()
    )
