"""Why two data pipelines differ: in the order of samples, in their values, or in their pairing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from deliralike.conformance.explain import sample_order, sample_values
from deliralike.conformance.explain.arrays import Array
from deliralike.conformance.findings import Explanation
from deliralike.conformance.streams import Stream

_ENOUGH = 64  # samples, from the first that differs on


def field(
    reference: Stream, candidate: Stream, name: str, first: int, limit: float
) -> Explanation | None:
    """Why one field differs while others are equal, or have an explanation of their own.

    Args:
        first: The number of the first sample that differs.
    """
    wanted, came = _alike(reference.samples(name), candidate.samples(name), first)
    of_values = sample_values.explain(wanted, came, limit)
    if of_values is not None and of_values.known and "label" in of_values.cause:
        return of_values  # few labels have few orders: what names them otherwise is simpler
    others = " and ".join(other for other in reference.fields if other != name)
    if not others or reference.shapes(name) != candidate.shapes(name):
        return of_values
    of_order = sample_order.explain(reference, candidate, (name,), limit)
    if of_order is None:
        return of_values
    return replace(of_order, cause=f"{name} shuffled against {others}: {of_order.cause}")


def _alike(
    reference: Iterable[Array], candidate: Iterable[Array], first: int
) -> tuple[Array, Array]:
    """Samples of one shape, as stacked arrays, from the first that differs on."""
    pairs = list(zip(reference, candidate, strict=False))[first:]
    shapes = tuple(map(np.shape, pairs[0]))
    alike = [pair for pair in pairs if tuple(map(np.shape, pair)) == shapes]
    wanted, came = zip(*alike[:_ENOUGH], strict=True)
    return np.stack(wanted), np.stack(came)
