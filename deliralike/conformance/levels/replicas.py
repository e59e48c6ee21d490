"""Level L6 (replicas): a network over several replicas equals one that takes the whole batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.backends.base import Backend
from deliralike.conformance.agreement import compare
from deliralike.conformance.explain.replicas import Explanations
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_REACHED,
    PASSED,
    Finding,
    Level,
    is_array,
)
from deliralike.conformance.kinds import Batch
from deliralike.conformance.last_bit import allowed, shake_parameters
from deliralike.conformance.one_step import Step, kind_differences, take_step, take_updates
from deliralike.conformance.subject import Subject
from deliralike.errors import CapabilityError, DeviceError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import count_samples
from deliralike.parallel import ProcessGroup

NAME, TITLE = "L6", "replicas"
COUNTS = (1, 2, 3, 4)
InProcesses = Callable[[AbstractNetwork, ProcessGroup], AbstractNetwork]


def level(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    counts: Sequence[int] = COUNTS,
    processes: ProcessGroup | None = None,
    distribute: InProcesses | None = None,
) -> Level:
    """Compare one network on the whole batch with a candidate over several replicas, in float64.

    Loss, outputs, every parameter's gradient, running statistics after the step and two updates by
    each optimizer are compared, in training mode and with portable masks. Shares are unequal: where
    a batch divides evenly, its last sample is left out, on both sides. Where something differs by
    more than the limit, the reference takes the step once more with an error in the last bit of its
    parameters: what that magnifies, as Adam does with gradients near zero, is no finding.

    Args:
        reference: Its `replicate` is used for explanations only.
        candidate: Without a `replicate`, it is replicated with synchronised batch normalisation;
            see `replicated`.
        batch: NumPy arguments of the loss after the network.
        counts: How many replicas.
        processes: They all make this call, and are compared over as well.
        distribute: What makes the candidate's network over the processes; `in_processes` when None.
    """
    seen = [_seen(reference, candidate, batch, count) for count in counts]
    if processes is not None and processes.count > 1:
        own = distribute or in_processes
        over = candidate.but(replicate=lambda network, count: own(network, processes))
        found = _seen(reference, over, batch, processes.count)
        seen.append(replace(found, title=f"{processes.count} processes ({processes.engine})"))
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    reached: dict[str, float] = {}
    for each in seen:
        findings += each.findings
        notes += each.notes
        if each.worst is not None:
            reached[each.title] = each.worst
    status = FAILED if findings else PASSED
    if not findings and len(reached) < max(len(seen), 1):
        status = NOT_REACHED
    worst, figures = max(reached.values(), default=None), {"differences": reached}
    return Level(NAME, TITLE, status, worst, findings, notes, figures)


def replicated(network: AbstractNetwork, count: int) -> AbstractNetwork:
    """Return a network over that many replicas, with synchronised batch normalisation.

    Replicas that run in threads may share a device where there are too few; others get devices of
    their own.

    Raises:
        CapabilityError: The backend has no replicated networks.
        DeviceError: There are too few devices; the message says how to get more.
    """
    return backends.DataParallel(
        network, _devices(backends.of(network), network.device_name, count), buffers="sync"
    )


def in_processes(network: AbstractNetwork, processes: ProcessGroup) -> AbstractNetwork:
    """Return a network with a replica in each process, called with the whole batch.

    Batch normalisation is synchronised.
    """
    return backends.DistributedDataParallel(network, processes, takes_whole=True)


def _devices(backend: Backend, first: str, count: int) -> list[str]:
    kind, present = first.partition(":")[0], [first]
    for device in backend.devices():
        if device.partition(":")[0] == kind and device != first:
            present.append(device)
    if len(present) < count and "threads" not in backend.capabilities:
        backend.check_device(f"{kind}:{len(present)}")
    return [present[index % len(present)] for index in range(count)]


def _seen(reference: Subject, candidate: Subject, batch: Batch, count: int) -> Level:
    """The level over one number of replicas, which is its title."""
    title, samples = str(count), count_samples(batch)
    notes: list[str] = []
    if count > 1 and samples % count == 0:
        batch = tuple(nest.map(partial(_without_last, samples), part) for part in batch)
        notes.append(
            f"{count} replicas: the last of {samples} samples is left out, so that shares are "
            "unequal."
        )
    if count_samples(batch) < count:
        why = f"{count} replicas: not reached: {samples} samples are too few."
        return Level(NAME, title, NOT_REACHED, notes=(why,))
    try:
        network = (candidate.replicate or replicated)(candidate.network, count)
        judged = _judged(take_step, reference, candidate, network, batch)
        if not judged.is_wrong("gradient"):  # else all updates differ as well
            judged |= _judged(take_updates, reference, candidate, network, batch, judged.null)
    except (CapabilityError, DeviceError) as error:
        why = f"{count} replicas: not reached: {error}"
        return Level(NAME, title, NOT_REACHED, notes=(why,))
    except Exception as error:  # noqa: BLE001
        remark = f"The candidate raised {type(error).__name__}: {error}"
        broken = Finding(NAME, f"replicas {count}", "step", np.inf, mode="train", remarks=(remark,))
        return Level.judged(NAME, title, np.inf, [broken], notes)
    if judged.null:
        notes.append(
            f"{count} replicas: gradients of zero up to rounding, not compared: "
            f"{', '.join(judged.null)}."
        )
    if large := judged.magnified():
        notes.append(
            f"{count} replicas: rounding is magnified here, and as far as by an error in the last "
            f"bit of the reference's parameters: {', '.join(large)}."
        )
    why_different = Explanations(reference, batch, count, judged.wanted, judged.came, replicated)
    findings = [
        _finding(count, kind, judged.differences[kind], why_different) for kind in judged.to_tell()
    ]
    worst = max(map(_worst, judged.differences.values()))
    return Level.judged(NAME, title, worst, findings, notes)


@dataclass(frozen=True)
class _Judged:
    """What both sides gave, and how far it differs.

    Attributes:
        wanted, came: Of the reference and the candidate.
        null: Parameters whose gradient is zero up to rounding.
        differences: By kind of tensor, then by name.
        limits: How far each kind may differ.
    """

    wanted: Step
    came: Step
    null: tuple[str, ...]
    differences: Mapping[str, Mapping[str, float]]
    limits: Mapping[str, float]

    def __or__(self, other: _Judged) -> _Judged:
        return _Judged(
            self.wanted | other.wanted,
            self.came | other.came,
            self.null,
            {**self.differences, **other.differences},
            {**self.limits, **other.limits},
        )

    def is_wrong(self, kind: str) -> bool:
        """Whether a kind differs by more than it may."""
        return _worst(self.differences[kind]) > self.limits[kind]

    def to_tell(self) -> list[str]:
        """The kinds that differ; a second update only where the first one does not."""
        wrong = [kind for kind in self.differences if self.is_wrong(kind)]
        again = [f"second {kind}" for kind in wrong]
        return [kind for kind in wrong if kind not in again]

    def magnified(self) -> list[str]:
        """The kinds that differ by more than the limit, though only by rounding."""
        found = []
        for kind, differences in self.differences.items():
            worst = _worst(differences)
            if worst > LIMIT and not self.is_wrong(kind):
                found.append(f"{kind} ({worst:.0e})")
        return found


def _judged(
    take: Callable[[Subject, AbstractNetwork, Batch], Step],
    reference: Subject,
    candidate: Subject,
    network: AbstractNetwork,
    batch: Batch,
    null: tuple[str, ...] | None = None,
) -> _Judged:
    """Return steps of the reference and of the replicated candidate, and their differences."""
    came, wanted = take(candidate, network, batch), take(reference, reference.network, batch)
    null = compare(wanted["gradient"], came["gradient"]).null if null is None else null
    found = {kind: kind_differences(kind, wanted, came, null) for kind in wanted}
    limits = dict.fromkeys(wanted, LIMIT)
    if max(map(_worst, found.values())) > LIMIT:
        moved = reference.but(network=copy.deepcopy(reference.network))
        shake_parameters(moved.network)
        again = take(moved, moved.network, batch)
        for kind in wanted:
            far = _worst(kind_differences(kind, wanted, again, null))
            limits[kind] = max(LIMIT, allowed(far))
    return _Judged(wanted, came, null, found, limits)


def _worst(differences: Mapping[str, float]) -> float:
    return max(differences.values(), default=0.0)


def _without_last(samples: int, value: Any) -> Any:
    if is_array(value) and value.ndim and len(value) == samples:
        return value[:-1]
    return value


def _finding(count: int, kind: str, differences: Mapping[str, float], why: Explanations) -> Finding:
    worst = max(differences, key=differences.__getitem__)
    others = sum(difference > LIMIT for difference in differences.values()) - 1
    remarks = (f"{others} more of {len(differences)} differ as well.",) if others else ()
    return Finding(
        NAME,
        f"replicas {count}",
        _what(kind, worst),
        differences[worst],
        mode="train",
        explanation=why.of(kind),
        remarks=remarks,
    )


def _what(kind: str, name: str) -> str:
    if kind in ("loss", "output"):
        return name
    if kind == "buffer":
        block, _, own = name.rpartition(".")
        return f"{own} of {block}" if block else own
    return f"{kind} of {name}"
