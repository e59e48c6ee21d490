"""One awkward network of the gauntlet: how it is made, what it gets, and how it is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

RNG = np.random.default_rng(5)
X = RNG.normal(size=(8, 4))
Y = RNG.normal(size=(8, 2))
TEXTS = RNG.integers(1, 9, size=(8, 5))
TEXTS[::2, 3:] = 0  # padding


# what is refused or differs, in the words of the docs, and a pattern of the error
NOT_KEPT = ("differs: no checkpoint keeps attributes", "Not equal")
NO_FUNCTIONS = (
    "not by Python: a function of its own",
    "Can't (pickle|get local object)",
)
OWN_LOSS = {"two replicas": ("refused: `in_replicas` is wanted", "in_replicas")}


@dataclass(frozen=True)
class Case:
    """A network in the habits of real code.

    Attributes:
        make: Makes the network in float64, with the same start values at each call.
        loss: ``loss(network, *batch)``, for the network as it was written and for ours.
        batch: The inputs and the target of eight samples.
        refused: By step, in the words of the docs, what is refused or differs, and a pattern of
            the error that says so.
        close: The largest relative difference, where it computes in a shorter type by itself.
        call: How the inputs are given to the network as it was written.
    """

    make: Callable[[], Any]
    loss: Callable[..., Any]
    batch: tuple[Any, ...] = (X, Y)
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    close: float = 1e-9
    call: Callable[..., Any] = lambda network, x: network(x)
