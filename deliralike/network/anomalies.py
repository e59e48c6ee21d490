"""Records of the trainable parameters that a loss does not reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Anomalies:
    """Trainable parameters with something wrong, by neutral name, in creation order.

    Attributes:
        unused: The parameters that the loss does not depend on.
        zero: The parameters that the loss depends on, with a gradient that is zero throughout, as
            behind a ReLU that is never active.
        not_finite: The parameters whose gradient holds a NaN or an infinity.
        of_processes: Where a network trains in several processes, the anomalies of each process
            that has samples, by its number. The other attributes are then those of the whole batch.
    """

    unused: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    not_finite: tuple[str, ...] = ()
    of_processes: Mapping[int, Anomalies] = field(default_factory=dict, hash=False)

    @classmethod
    def of_shares(cls, of_processes: Mapping[int, Anomalies]) -> Anomalies:
        """Combine the anomalies of all shares into those of the whole batch.

        A parameter is unused if no share uses it, and broken if any share breaks it.
        """
        shares = list(of_processes.values())
        unused = set(shares[0].unused).intersection(*(share.unused for share in shares))
        without_update = [{*share.unused, *share.zero} for share in shares]
        idle = set.intersection(*without_update)
        zero: dict[str, None] = {}  # a set with the order of insertion
        not_finite: dict[str, None] = {}
        for share in shares:
            zero.update(dict.fromkeys(name for name in share.zero if name in idle))
            not_finite.update(dict.fromkeys(share.not_finite))
        return cls(
            unused=tuple(name for name in shares[0].unused if name in unused),
            zero=tuple(zero),
            not_finite=tuple(not_finite),
            of_processes=of_processes,
        )

    def __bool__(self) -> bool:
        """Return whether there is an anomaly in any process."""
        of_whole = bool(self.unused or self.zero or self.not_finite)
        return of_whole or any(share.unused for share in self.of_processes.values())

    def __str__(self) -> str:
        """Return a line for each kind of anomaly, of the whole batch and of each process."""
        kinds = {
            "took no part in the loss": self.unused,
            "took part, but have a gradient of zero": self.zero,
            "have a gradient that is not finite": self.not_finite,
        }
        lines = [
            f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names
        ]
        for number, share in self.of_processes.items():
            if share:
                lines += [
                    f"process {number}: {line}" for line in str(share).split("\n")
                ]
        return "\n".join(lines) or "every trainable parameter has a gradient"


def anomalies_of(gradients: Mapping[str, np.ndarray | None]) -> Anomalies:
    """Return the anomalies of gradients, which come by the names of their parameters.

    Example:
        >>> anomalies_of({"weight": np.zeros(2), "bias": None})
        Anomalies(unused=('bias',), zero=('weight',), not_finite=(), of_processes={})
    """
    unused = []
    zero = []
    not_finite = []
    for name, gradient in gradients.items():
        if gradient is None:
            unused.append(name)
        elif not gradient.any():
            zero.append(name)
        elif not np.isfinite(gradient).all():
            not_finite.append(name)
    return Anomalies(tuple(unused), tuple(zero), tuple(not_finite))
