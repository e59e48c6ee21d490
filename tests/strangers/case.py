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


@dataclass(frozen=True)
class Case:
    """A network in the habits of real code.

    Attributes:
        make: Makes the network in float64, with the same start values at each call.
        loss: ``loss(network, *batch)``, for the network as it was written and for ours.
        batch: The inputs and the target of eight samples.
        refused: What a step of the gauntlet is refused for, as a pattern of the error's text.
        close: The largest relative difference, where it computes in a shorter type by itself.
    """

    make: Callable[[], Any]
    loss: Callable[..., Any]
    batch: tuple[Any, ...] = (X, Y)
    refused: Mapping[str, str] = field(default_factory=dict)
    close: float = 1e-9
    call: Callable[..., Any] = lambda network, x: network(x)
