"""A place that differs, with all that is known for explaining it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deliralike.conformance.explain.glue import Glue
from deliralike.conformance.explain.losses import Loss
from deliralike.conformance.explain.substitution import Substitute
from deliralike.conformance.findings import FailingBlock
from deliralike.conformance.places import Quantity

LOSS = "loss"  # the path of what the loss function does itself

Allowed = Mapping[Quantity, float]


@dataclass(frozen=True)
class Place:
    """A block, a function or what stands between them, that differs at equal inputs.

    Attributes:
        path: Of the block in the reference; `LOSS` for what the loss function does itself.
        kind: The block's class or the function's name; empty for the loss.
        what: The first that differs.
        difference: Its relative difference; infinite where it could not be computed.
        accused: What is known for explaining it, the deepest first.
        glue: The same for what a block does between its layers.
        details: What else was seen: blocks that are not called, another order of calls.
        loss: The same for the loss function as a whole.
        substitutes: Calls of the reference's that the candidate has no call for.
    """

    path: str
    kind: str
    what: Quantity
    difference: float
    accused: tuple[FailingBlock, ...] = ()
    details: tuple[str, ...] = ()
    glue: Glue | None = None
    loss: Loss | None = None
    substitutes: tuple[Substitute, ...] = ()


def joined(path: str, name: str) -> str:
    """The path of a block within a unit, seen from the network."""
    return name if path in (LOSS, "") else f"{path}.{name}".rstrip(".")
