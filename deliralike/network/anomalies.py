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

    @property
    def unused_in(self) -> dict[str, tuple[int, ...]]:
        """Return the processes whose loss does not depend on a parameter.

        They are given by number, for the parameters that other processes do use.
        """
        processes = _processes(self.of_processes, "unused")
        return {
            name: numbers
            for name, numbers in processes.items()
            if name not in self.unused
        }

    @property
    def not_finite_in(self) -> dict[str, tuple[int, ...]]:
        """Return the numbers of the processes in which a parameter's gradient is not finite."""
        return _processes(self.of_processes, "not_finite")

    def __bool__(self) -> bool:
        """Return whether there is an anomaly in any process."""
        return bool(self.unused or self.zero or self.not_finite or self.unused_in)

    def __str__(self) -> str:
        """Return one line for each kind of anomaly, and for each set of processes that has it."""
        unused = "took no part in the loss"
        not_finite = "have a gradient that is not finite"
        kinds = {
            unused: self.unused,
            **_by_processes(unused, self.unused_in),
            "took part, but have a gradient of zero": self.zero,
            **(
                _by_processes(not_finite, self.not_finite_in)
                or {not_finite: self.not_finite}
            ),
        }
        lines = [
            f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names
        ]
        return "\n".join(lines) or "every trainable parameter has a gradient"


def _processes(
    of_processes: Mapping[int, Anomalies], kind: str
) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the processes in which each parameter has a kind of anomaly."""
    processes: dict[str, tuple[int, ...]] = {}
    for number, anomalies in of_processes.items():
        for name in getattr(anomalies, kind):
            processes[name] = (*processes.get(name, ()), number)
    return processes


def _by_processes(
    kind: str, processes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return the parameters by a text that names the kind of anomaly and its processes."""
    parameters: dict[str, tuple[str, ...]] = {}
    for name, numbers in processes.items():
        noun = "process" if len(numbers) == 1 else "processes"
        text = f"{kind} in {noun} {', '.join(map(str, numbers))}"
        parameters[text] = (*parameters.get(text, ()), name)
    return parameters


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
