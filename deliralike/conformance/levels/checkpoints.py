"""The level "checkpoints": each side writes weights and optimizer states, the other reads them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import backends, random, weights
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.explain import checkpoints as explaining
from deliralike.conformance.findings import FAILED, LIMIT, PASSED, Explanation, Finding, Level
from deliralike.conformance.listening import evaluated
from deliralike.conformance.subject import Subject
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

Arrays = dict[str, np.ndarray]
Make = Callable[[AbstractNetwork], AbstractOptimizer]


def level(
    reference: Subject,
    candidate: Subject,
    batch: tuple[Any, ...],
    folder: str | Path,
    names: Mapping[str, str] | None = None,
) -> Level:
    """Let each side read the other's files: nothing may change, and training goes on as before.

    Weights go through safetensors, npz and the files of the frameworks' own, and must come out with
    the same bits and give the same outputs. States of training go through a checkpoint; after it,
    states have the same bits and one more update is the uninterrupted one's up to 1e-10.

    Args:
        reference, candidate: Of one floating type. They stay as they are; copies of them are
            trained.
        batch: What the losses take.
        folder: Where files are written; made if there is none.
        names: The candidate's name of a tensor by the reference's, where they differ.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    both = [name for name in reference.optimizers if name in candidate.optimizers]
    ours, theirs = (
        {name: _trained(side, side.optimizers[name], batch) for name in both}
        or {"sgd with momentum": _trained(side, _default_optimizer, batch)}
        for side in (reference, candidate)
    )
    mine, null = dict(names or {}), set(_null(reference, batch))
    its = {two: one for one, two in mine.items()}
    there = _Way("reference to candidate", ours, theirs, batch, folder, mine, null)
    its_null = {there.name(each) for each in null}
    back = _Way("candidate to reference", theirs, ours, batch, folder, its, its_null)
    findings = [finding for way in (there, back) for finding in (*way.weights(), *way.training())]
    worst = max((finding.difference for finding in findings), default=0.0)
    files = {way.direction: list(way.suffixes()) for way in (there, back)}
    notes = [
        f"backend {name!r} has no weight files of its own"
        for name in _without_files(reference, candidate)
    ]
    if null:
        zero = ", ".join(sorted(null))
        notes.append(f"gradients that are zero up to rounding, not compared: {zero}")
    status = FAILED if findings else PASSED
    return Level(NAME, TITLE, status, worst, tuple(findings), tuple(notes), {"files": files})


def _without_files(*subjects: Subject) -> list[str]:
    return sorted({each.network.backend.name for each in subjects if not _own_suffix(each)})


def _own_suffix(subject: Subject) -> str:
    """Return the usual suffix of the framework's own weight files; empty for one without."""
    entry = backends.known().get(subject.network.backend.name)
    return entry.weight_files.suffixes[0] if entry and entry.weight_files else ""


@dataclass(frozen=True)
class _Difference:
    """A tensor that arrived as another one, and the files that did it."""

    tensor: str
    where: str
    difference: float
    explanation: Explanation


@dataclass(frozen=True)
class _Trained:
    """One side after some updates with an optimizer of its own.

    Attributes:
        subject, make: The side, and what makes the optimizer.
        network: A copy after those updates.
        state, optimizer_state, lr: What a checkpoint would hold.
        update: How far one more update moves each parameter and buffer.
    """

    subject: Subject
    make: Make
    network: AbstractNetwork
    state: Arrays
    optimizer_state: Arrays
    lr: float
    update: Arrays


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
    batch: tuple[Any, ...]
    folder: Path
    names: dict[str, str]
    null: set[str]

    def name(self, name: str) -> str:
        """The receiver's name."""
        return self.names.get(name, name)

    def suffixes(self) -> Iterator[str]:
        """The kinds of weight files that are tried."""
        yield from dict.fromkeys([*_OWN_FILES, *filter(None, map(_own_suffix, self.subjects))])

    @property
    def subjects(self) -> tuple[Subject, Subject]:
        """The sender and the receiver before training."""
        return next(iter(self.senders.values())).subject, next(
            iter(self.receivers.values())
        ).subject

    # Weights
    # -------------------------------------------------------------------------

    def weights(self) -> list[Finding]:
        """Compare weights through each kind of file.

        Compared are the file, the receiver's state after reading, and the outputs.
        """
        network = next(iter(self.senders.values())).network
        sender, target = self.subjects
        found: dict[tuple[str, str], list[tuple[str, _Difference]]] = {}
        receivers = {suffix: copy.deepcopy(target.network) for suffix in self.suffixes()}
        for suffix, receiver in receivers.items():
            for each in self._through(suffix, network, receiver):
                found.setdefault((each.tensor, each.where), []).append((suffix, each))
        given = evaluated(sender, network, self.batch)
        reached = evaluated(target, receivers[_OWN_FILES[0]], self.batch)
        outputs = compare(given, reached).difference
        if not found and outputs > LIMIT:
            place = f"{_OWN_FILES[0]} file, {self.direction}, outputs"
            return [Finding(NAME, place, "outputs after reading", outputs)]
        remarks = (f"Effect on evaluation outputs {outputs:.0e}.",)
        findings = []
        for kinds in found.values():
            one, files = kinds[0][1], " and ".join(kind for kind, _ in kinds)
            place, what = f"{files} file, {self.direction}, {one.tensor}", f"tensor as {one.where}"
            why = one.explanation
            findings.append(Finding(NAME, place, what, one.difference, "", "", 0.0, why, remarks))
        return findings

    def _through(
        self, suffix: str, network: AbstractNetwork, receiver: AbstractNetwork
    ) -> Iterator[_Difference]:
        path = self.folder / f"{self.direction.replace(' ', '_')}{suffix}"
        before, held = _held(receiver), _held(network)
        try:
            weights.write(path, network)
            read = weights.read(path)
            receiver.load_neutral_state(self._renamed(read), strict=False)
        except BackendUnavailable:
            raise
        except DeliralikeError as error:
            yield _Difference("all tensors", "read", np.inf, Explanation.seen(f"an error: {error}"))
            return
        yield from _differences(held, read, {}, "written")
        there, reached = self._renamed(read), _held(receiver)
        common = [name for name in there if name in before]
        wanted = {name: there[name].astype(before[name].dtype) for name in common}
        yield from _differences(wanted, {name: reached[name] for name in wanted}, before, "read")

    def _renamed(self, state: Arrays) -> Arrays:
        return {self.name(name): array for name, array in state.items()}

    # Training
    # -------------------------------------------------------------------------

    def training(self) -> Iterator[Finding]:
        """Compare each optimizer through a checkpoint of training.

        Compared are its state in the file, the restored state, and one more update.
        """
        for name, sender in self.senders.items():
            place = f"checkpoint, {self.direction}, optimizer {name}"
            read = self._through_checkpoint(name, sender)
            state, receiver = self._of_receiver(read["optimizer"]), self.receivers[name]
            null = {self.name(each) for each in self.null}
            try:
                resumed = _resume(receiver, self._renamed(read["network"]), state, read["lr"])
            except DeliralikeError as error:
                refused = Explanation.seen(f"an error: {error}")
                yield Finding(NAME, place, "resuming", np.inf, explanation=refused)
                continue
            found = list(_differences(state, resumed[1].neutral_state(), {}, "read"))
            for each in found:
                where, what = f"{place}, {each.tensor}", f"state as {each.where}"
                yield Finding(NAME, where, what, each.difference, explanation=each.explanation)
            wanted = _without(null, self._renamed(sender.update))
            came = _without(null, _update(receiver.subject, *resumed, self.batch))
            result = compare(wanted, came)
            if result.difference > LIMIT:
                why = None if found else self._explained(came, sender)
                where, what = f"{place}, {result.worst}", "update after resuming"
                yield Finding(NAME, where, what, result.difference, explanation=why)

    def _through_checkpoint(self, name: str, sender: _Trained) -> dict[str, Any]:
        folder = self.folder / f"{self.direction} {name}".replace(" ", "_")
        state = {"network": sender.state, "optimizer": sender.optimizer_state, "lr": sender.lr}
        checkpoint.write(folder, state)
        return checkpoint.read(folder)

    def _explained(self, came: Arrays, sender: _Trained) -> Explanation:
        """What the sender would have to lose of its own state to make the receiver's update."""
        tried = []
        for cause, state, lr in _losses(sender.optimizer_state, sender.lr):
            resumed = _resume(sender, sender.state, state, lr)
            update = self._renamed(_update(sender.subject, *resumed, self.batch))
            tried.append((compare({name: update[name] for name in came}, came).difference, cause))
        found = next((one for one in tried if one[0] <= LIMIT), min(tried))
        others = [match for match, cause in tried if cause != found[1]]
        return Explanation(found[1], found[0], min(others, default=None))

    def _of_receiver(self, state: Arrays) -> Arrays:
        """An optimizer's state under the receiver's names of the parameters."""
        renamed = {}
        for key, value in state.items():
            owner, slash, slot = key.rpartition("/")
            renamed[f"{self.name(owner)}{slash}{slot}"] = value
        return renamed


# Training, and what may be lost of it
# -----------------------------------------------------------------------------


def _default_optimizer(network: AbstractNetwork) -> AbstractOptimizer:
    return network.backend.optimizer(rules.rule("sgd", lr=0.05, momentum=0.9), network)


def _trained(subject: Subject, make: Make, batch: tuple[Any, ...]) -> _Trained:
    """What a few updates make of a copy of the network."""
    network = copy.deepcopy(subject.network)
    optimizer = make(network)
    network.train()
    for _ in range(_STEPS):
        _make_update(subject, optimizer, batch)
        optimizer.lr = optimizer.lr * _DROP
    state, optimizer_state, lr = network.neutral_state(), optimizer.neutral_state(), optimizer.lr
    kept = copy.deepcopy(network)
    update = _update(subject, network, optimizer, batch)
    return _Trained(subject, make, kept, state, optimizer_state, lr, update)


def _resume(
    side: _Trained, network_state: Arrays, state: Arrays, lr: float
) -> tuple[AbstractNetwork, AbstractOptimizer]:
    """Return a copy of the network before training, and its optimizer, with given states."""
    network = copy.deepcopy(side.subject.network)
    optimizer = side.make(network)
    network.train()
    network.load_neutral_state(network_state, strict=False)
    optimizer.load_neutral_state(state)
    optimizer.lr = lr
    return network, optimizer


def _make_update(subject: Subject, optimizer: AbstractOptimizer, batch: tuple[Any, ...]) -> None:
    wrong = np.errstate(all="ignore")  # a wrong state may well give no numbers
    with random.portable(0, _STEPS), wrong:
        optimizer.update(subject.loss, *batch)


def _update(
    subject: Subject, network: AbstractNetwork, optimizer: AbstractOptimizer, batch: tuple[Any, ...]
) -> Arrays:
    """How far one more update moves each parameter and each buffer."""
    before = _held(network)
    _make_update(subject, optimizer, batch)
    return {name: value - before[name] for name, value in _held(network).items()}


def _losses(state: Arrays, lr: float) -> Iterator[tuple[str, Arrays, float]]:
    """States that are not what they were, in words."""
    yield "nothing lost", state, lr
    yield "learning rate not restored", state, lr / _DROP**_STEPS
    yield "optimizer state not restored", {"steps": np.array(0)}, lr
    slots = sorted({key.rpartition("/")[2] for key in state})
    counters = [slot for slot in slots if slot in ("steps", "step")]
    for by in (-1, 1, -int(state["steps"])):
        words = "step count lost" if by < -1 else f"step count {by:+d}"
        yield words, _changed(state, counters, partial(_counted, by=by)), lr
    for slot in slots:
        if slot not in counters:
            yield f"{slot} not restored", _changed(state, [slot], np.zeros_like), lr


def _counted(value: np.ndarray, by: int) -> Any:
    return np.maximum(value + by, 0)


def _changed(state: Arrays, slots: list[str], change: Callable[[np.ndarray], Any]) -> Arrays:
    """A state of which some slots are changed."""
    found = dict(state)
    for key, value in state.items():
        if key.rpartition("/")[2] in slots:
            found[key] = change(value)
    return found


def _null(subject: Subject, batch: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the parameters whose gradients are zero up to rounding.

    Optimizers make steps of noise of them.
    """
    network = copy.deepcopy(subject.network)
    network.train()
    with random.portable(0, _STEPS):
        gradients = network.backend.gradients(
            subject.loss, network, *network.backend.prepare(batch, network)
        )
    return compare(gradients.parameters, gradients.parameters).null


def _without(names: set[str], tensors: Arrays) -> Arrays:
    return {
        key: value
        for key, value in tensors.items()
        if key not in names and key.rpartition("/")[0] not in names
    }


# Tensors
# -----------------------------------------------------------------------------


def _held(network: AbstractNetwork) -> Arrays:
    """What parameters and buffers hold, apart from how the network says it."""
    return {name: slot.read() for name, slot in network.neutral_slots().items()}


def _differences(
    wanted: Arrays, came: Arrays, before: Arrays, where: str, limit: float = 0.0
) -> Iterator[_Difference]:
    """Yield tensors that are missing, extra, or differ in type, shape or values beyond a limit."""
    for name in dict.fromkeys([*wanted, *came]):
        if name in wanted and name in came and _same(wanted[name], came[name], limit):
            continue
        difference = relative_difference(wanted.get(name), came.get(name))
        explanation = explaining.tensor(name, wanted, came, before, limit)
        yield _Difference(name, where, difference or np.inf, explanation)


def _same(wanted: np.ndarray, came: np.ndarray, limit: float) -> bool:
    """Equal in bits, or up to a limit; numbers and whole numbers may be of any type."""
    if wanted.ndim == came.ndim == 0:
        return bool(wanted == came)  # numbers of steps, in the type that the framework counts in
    if wanted.shape != came.shape or (
        wanted.dtype != came.dtype and "f" in (wanted.dtype.kind, came.dtype.kind)
    ):
        return False
    if wanted.dtype.kind == "f" and not limit:
        return wanted.tobytes() == came.tobytes()
    return np.array_equal(wanted, came) or relative_difference(wanted, came) <= limit
