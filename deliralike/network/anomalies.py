"""Records of the trainable parameters that a loss does not reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Anomalies:
    """Trainable parameters with something wrong, by neutral name, in creation order.

    Attributes:
        unused: The loss does not depend on them.
        zero: It does, but their whole gradient is zero, as behind a ReLU that is never active.
        not_finite: Their gradient holds a NaN or an infinity.
        of_processes: Of a network in several processes, the anomalies of each share by the number
            of its process; of those that have samples. The others are then those of the whole
            batch.
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
        each = list(of_processes.values())
        broken = tuple(dict.fromkeys(name for one in each for name in one.not_finite))
        unused = tuple(name for name in each[0].unused if all(name in one.unused for one in each))
        still = [{*one.unused, *one.zero} for one in each]
        zero = tuple(
            dict.fromkeys(
                name for one in each for name in one.zero if all(name in names for names in still)
            )
        )
        return cls(unused, zero, broken, of_processes)

    @property
    def unused_in(self) -> dict[str, tuple[int, ...]]:
        """Return the processes whose loss does not depend on a parameter.

        They are given by number, for the parameters that other processes do use.
        """
        numbers = _numbers(self.of_processes, "unused")
        return {name: found for name, found in numbers.items() if name not in self.unused}

    @property
    def not_finite_in(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the processes in which a parameter's gradient is not finite."""
        return _numbers(self.of_processes, "not_finite")

    def __bool__(self) -> bool:
        """Whether there is any, in any process."""
        return bool(self.unused or self.zero or self.not_finite or self.unused_in)

    def __str__(self) -> str:
        """One line for each kind that there is, and for the processes that it is found in."""
        kinds = {
            "took no part in the loss": self.unused,
            **_by_place("took no part in the loss", self.unused_in),
            "took part, but have a gradient of zero": self.zero,
            **(
                _by_place("have a gradient that is not finite", self.not_finite_in)
                or {"have a gradient that is not finite": self.not_finite}
            ),
        }
        lines = [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
        return "\n".join(lines) or "every trainable parameter has a gradient"


def _numbers(of_processes: Mapping[int, Anomalies], kind: str) -> dict[str, tuple[int, ...]]:
    """The numbers of the processes in which each parameter is of a kind."""
    found: dict[str, tuple[int, ...]] = {}
    for number, each in of_processes.items():
        for name in getattr(each, kind):
            found[name] = (*found.get(name, ()), number)
    return found


def _by_place(kind: str, numbers: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[str, ...]]:
    """Parameters by the kind with its place in words."""
    found: dict[str, tuple[str, ...]] = {}
    for name, places in numbers.items():
        where = f"process{'es' if len(places) > 1 else ''} {', '.join(map(str, places))}"
        found[f"{kind} in {where}"] = (*found.get(f"{kind} in {where}", ()), name)
    return found


def anomalies_of(gradients: Mapping[str, np.ndarray | None]) -> Anomalies:
    """What is wrong with gradients.

    Example:
        >>> anomalies_of({"weight": np.zeros(2), "bias": None})
        Anomalies(unused=('bias',), zero=('weight',), not_finite=(), of_processes={})
    """
    found = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    return Anomalies(
        unused=tuple(name for name in gradients if name not in found),
        zero=tuple(name for name, gradient in found.items() if not gradient.any()),
        not_finite=tuple(
            name for name, gradient in found.items() if not np.isfinite(gradient).all()
        ),
    )
