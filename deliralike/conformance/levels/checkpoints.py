"""The level "checkpoints": each side writes weights and optimizer states, the other reads them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import backends, random, weights
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.by_name import only, without
from deliralike.conformance.findings import LIMIT, Explanation, Finding, Level
from deliralike.conformance.kinds import Batch, Named, Tensors
from deliralike.conformance.one_step import null_gradients
from deliralike.conformance.subject import Make, Subject
from deliralike.errors import BackendUnavailable, DeliralikeError
from deliralike.network.base import AbstractNetwork
from deliralike.optim import rules
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.training import checkpoint

NAME, TITLE = "checkpoints", "weights and optimizer states through files, both ways"
_OWN_FILES = (".safetensors", ".npz")
# before the checkpoint, so that weights, statistics and optimizer states are those of nobody's
# start
_STEPS = 2
_DROP = 0.5  # of the learning rate before the checkpoint: one that is not restored is seen


def level(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    folder: str | Path,
    names: Mapping[str, str] | None = None,
) -> Level:
    """Let each side read the other's files: nothing may change, and training goes on as before.

    Weights go through safetensors, npz and the files of the frameworks' own, and must come out with
    the same bits. States of training go through a checkpoint; after it, states have the same bits
    and one more update is the uninterrupted one's up to 1e-10.

    Args:
        reference, candidate: Of one floating type. They stay as they are; copies of them are
            trained.
        batch: What the losses take.
        folder: Where files are written; made if there is none.
        names: The candidate's name of a tensor by the reference's, where they differ.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    both = only(reference.optimizers, candidate.optimizers)
    ours, theirs = _all_trained(reference, both, batch), _all_trained(candidate, both, batch)
    mine, null = dict(names or {}), set(null_gradients(reference, batch, step=_STEPS))
    its = {two: one for one, two in mine.items()}
    there = _Way("reference to candidate", ours, theirs, batch, folder, mine, null)
    its_null = {there.name(each) for each in null}
    back = _Way("candidate to reference", theirs, ours, batch, folder, its, its_null)
    findings = [*there.weights(), *there.training(), *back.weights(), *back.training()]
    own = {side.network.backend.name: _own_suffix(side) for side in (reference, candidate)}
    without_files = sorted(name for name, suffix in own.items() if not suffix)
    notes = [f"backend {name!r} has no weight files of its own" for name in without_files]
    if null:
        zero = ", ".join(sorted(null))
        notes.append(f"gradients that are zero up to rounding, not compared: {zero}")
    worst = max((finding.difference for finding in findings), default=0.0)
    files = {way.direction: way.suffixes for way in (there, back)}
    return Level.judged(NAME, TITLE, worst, findings, notes, files=files)


def _own_suffix(subject: Subject) -> str:
    """Return the usual suffix of the framework's own weight files; empty for one without."""
    entry = backends.known().get(subject.network.backend.name)
    return entry.weight_files.suffixes[0] if entry and entry.weight_files else ""


@dataclass(frozen=True)
class _Trained:
    """One side after some updates with an optimizer of its own.

    Attributes:
        subject, make: The side, and what makes the optimizer.
        network: A copy after those updates.
        state: What a checkpoint holds.
        update: How far one more update moves each parameter and buffer.
    """

    subject: Subject
    make: Make
    network: AbstractNetwork
    state: dict[str, Any]
    update: Tensors

    def resume(self, state: Named) -> tuple[AbstractNetwork, AbstractOptimizer]:
        """Return a copy of the network before training, and its optimizer, with a given state."""
        network = copy.deepcopy(self.subject.network)
        optimizer = self.make(network)
        network.train()
        network.load_neutral_state(state["network"], strict=False)
        optimizer.load_neutral_state(state["optimizer"])
        optimizer.lr = state["lr"]
        return network, optimizer


@dataclass(frozen=True)
class _Way:
    """From a sender to a receiver, each trained by name of the optimizer.

    Attributes:
        names: The receiver's by the sender's.
        null: The sender's parameters whose gradients are rounding errors.
    """

    direction: str
    senders: dict[str, _Trained]
    receivers: dict[str, _Trained]
    batch: Batch
    folder: Path
    names: dict[str, str]
    null: set[str]

    def name(self, name: str) -> str:
        """The receiver's name of a tensor, or of a slot of an optimizer's state for it."""
        owner, slash, slot = name.rpartition("/")
        return f"{self.names.get(owner, owner)}/{slot}" if slash else self.names.get(name, name)

    def _renamed(self, state: Named) -> Tensors:
        return {self.name(name): array for name, array in state.items()}

    @property
    def suffixes(self) -> list[str]:
        """The kinds of weight files that are tried."""
        sides = [next(iter(side.values())).subject for side in (self.senders, self.receivers)]
        return list(dict.fromkeys([*_OWN_FILES, *filter(None, map(_own_suffix, sides))]))

    def weights(self) -> Iterator[Finding]:
        """Compare weights through each kind of file: what is in it, and what is read of it."""
        sender = next(iter(self.senders.values())).network
        target = next(iter(self.receivers.values())).subject.network
        for suffix in self.suffixes:
            place, receiver = f"{suffix} file, {self.direction}", copy.deepcopy(target)
            path = self.folder / f"{self.direction.replace(' ', '_')}{suffix}"
            before = _held(target)
            try:
                weights.write(path, sender)
                read = weights.read(path)
                receiver.load_neutral_state(self._renamed(read), strict=False)
            except BackendUnavailable:
                raise
            except DeliralikeError as error:
                yield _refused(place, "reading", error)
                continue
            yield from _apart(place, "tensor as written", _held(sender), read)
            given, reached = self._renamed(read), _held(receiver)
            wanted, came = {}, {}
            for name, old in only(before, given).items():
                wanted[name] = given[name].astype(old.dtype)
                came[name] = reached[name]
            yield from _apart(place, "tensor as read", wanted, came)

    def training(self) -> Iterator[Finding]:
        """Compare each optimizer through a checkpoint: its state there, and one more update."""
        for name, sender in self.senders.items():
            place = f"checkpoint, {self.direction}, optimizer {name}"
            receiver = self.receivers[name]
            folder = self.folder / f"{self.direction} {name}".replace(" ", "_")
            checkpoint.write(folder, sender.state)
            read = checkpoint.read(folder)
            given = {part: self._renamed(read[part]) for part in ("network", "optimizer")}
            try:
                network, optimizer = receiver.resume({**given, "lr": read["lr"]})
            except DeliralikeError as error:
                yield _refused(place, "resuming", error)
                continue
            yield from _apart(place, "state as read", given["optimizer"], optimizer.neutral_state())
            came = _update(receiver.subject, network, optimizer, self.batch)
            null = {self.name(each) for each in self.null}
            wanted = without(self._renamed(sender.update), null)
            result = compare(wanted, without(came, null))
            if result.difference > LIMIT:
                where = f"{place}, {result.worst}"
                yield Finding(NAME, where, "update after resuming", result.difference)


# Training
# -----------------------------------------------------------------------------


def _default_optimizer(network: AbstractNetwork) -> AbstractOptimizer:
    return network.backend.optimizer(rules.rule("sgd", lr=0.05, momentum=0.9), network)


def _all_trained(subject: Subject, optimizers: Iterable[str], batch: Batch) -> dict[str, _Trained]:
    """A side by each of some optimizers of its own, or by the default one."""
    found = {name: _trained(subject, subject.optimizers[name], batch) for name in optimizers}
    return found or {"sgd with momentum": _trained(subject, _default_optimizer, batch)}


def _trained(subject: Subject, make: Make, batch: Batch) -> _Trained:
    """What a few updates make of a copy of the network."""
    network = copy.deepcopy(subject.network)
    optimizer = make(network)
    network.train()
    for _ in range(_STEPS):
        _update(subject, network, optimizer, batch)
        optimizer.lr = optimizer.lr * _DROP
    state = {
        "network": network.neutral_state(),
        "optimizer": optimizer.neutral_state(),
        "lr": optimizer.lr,
    }
    kept = copy.deepcopy(network)
    update = _update(subject, network, optimizer, batch)
    return _Trained(subject, make, kept, state, update)


def _update(
    subject: Subject, network: AbstractNetwork, optimizer: AbstractOptimizer, batch: Batch
) -> Tensors:
    """How far one more update moves each parameter and each buffer."""
    before = _held(network)
    with random.portable(0, _STEPS), np.errstate(all="ignore"):  # a wrong state may give no numbers
        optimizer.update(subject.loss, *batch)
    return {name: value - before[name] for name, value in _held(network).items()}


# Tensors
# -----------------------------------------------------------------------------


def _held(network: AbstractNetwork) -> Tensors:
    """What parameters and buffers hold, apart from how the network says it."""
    return {name: slot.read() for name, slot in network.neutral_slots().items()}


def _refused(place: str, what: str, error: DeliralikeError) -> Finding:
    return Finding(NAME, place, what, np.inf, explanation=Explanation.seen(f"an error: {error}"))


def _apart(place: str, what: str, wanted: Tensors, came: Tensors) -> Iterator[Finding]:
    """Findings for tensors that are missing, extra, or differ in type, shape or bits."""
    for name in dict.fromkeys([*wanted, *came]):
        one, two = wanted.get(name), came.get(name)
        if one is not None and two is not None and _same(one, two):
            continue
        why = None
        if one is None or two is None:
            why = Explanation.seen(f"{name} is missing" if two is None else f"{name} is new")
        elif one.dtype != two.dtype:
            why = Explanation.seen(f"dtype {two.dtype} instead of {one.dtype}")
        apart = relative_difference(one, two) or np.inf
        yield Finding(NAME, f"{place}, {name}", what, apart, limit=0.0, explanation=why)


def _same(wanted: np.ndarray, came: np.ndarray) -> bool:
    """Equal in bits; single and whole numbers may be of any type."""
    if wanted.ndim == came.ndim == 0:
        return bool(wanted == came)  # numbers of steps, in the type that the framework counts in
    if "f" in (wanted.dtype.kind, came.dtype.kind):
        same_kind = wanted.shape == came.shape and wanted.dtype == came.dtype
        return same_kind and wanted.tobytes() == came.tobytes()
    return np.array_equal(wanted, came)
