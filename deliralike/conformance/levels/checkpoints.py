"""The level "checkpoints": each side writes weights and optimizer states, the other reads them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
    back_names = {two: one for one, two in (names or {}).items()}
    null = set(_null(reference, batch))
    there = _Way("reference to candidate", ours, theirs, batch, folder, dict(names or {}), null)
    back = _Way(
        "candidate to reference",
        theirs,
        ours,
        batch,
        folder,
        back_names,
        {there.name(each) for each in null},
    )
    findings = [finding for way in (there, back) for finding in (*way.weights(), *way.training())]
    worst = max((finding.difference for finding in findings), default=0.0)
    files = {way.direction: list(way.suffixes()) for way in (there, back)}
    notes = [
        f"backend {name!r} has no weight files of its own"
        for name in _without_files(reference, candidate)
    ]
    notes += (
        [f"gradients that are zero up to rounding, not compared: {', '.join(sorted(null))}"]
        if null
        else []
    )
    return Level(
        NAME,
        TITLE,
        FAILED if findings else PASSED,
        worst,
        tuple(findings),
        tuple(notes),
        {"files": files},
    )


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
    from_candidate: bool = False

    def name(self, name: str) -> str:
        """The receiver's name."""
        return self.names.get(name, name)

    def suffixes(self) -> Iterator[str]:
        """The kinds of weight files that are tried."""
        sides = (next(iter(side.values())).subject for side in (self.senders, self.receivers))
        yield from dict.fromkeys([*_OWN_FILES, *filter(None, map(_own_suffix, sides))])

    # Weights
    # -------------------------------------------------------------------------

    def weights(self) -> list[Finding]:
        """Compare weights through each kind of file.

        Compared are the file, the receiver's state after reading, and the outputs.
        """
        network = next(iter(self.senders.values())).network
        fresh = next(iter(self.receivers.values())).subject.network
        found: dict[tuple[str, str], list[tuple[str, _Difference]]] = {}
        receivers = {suffix: copy.deepcopy(fresh) for suffix in self.suffixes()}
        for suffix, receiver in receivers.items():
            for each in self._through(suffix, network, receiver):
                found.setdefault((each.tensor, each.where), []).append((suffix, each))
        outputs = compare(
            evaluated(next(iter(self.senders.values())).subject, network, self.batch),
            evaluated(
                next(iter(self.receivers.values())).subject, receivers[_OWN_FILES[0]], self.batch
            ),
        ).difference
        if not found and outputs > LIMIT:
            place = f"{_OWN_FILES[0]} file, {self.direction}, outputs"
            return [Finding(NAME, place, "outputs after reading", outputs)]
        return [
            self._finding(" and ".join(kind for kind, _ in kinds), kinds[0][1], outputs)
            for kinds in found.values()
        ]

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
        there = {name: value for name, value in self._renamed(read).items() if name in before}
        wanted = {name: value.astype(before[name].dtype) for name, value in there.items()}
        yield from _differences(
            wanted, {name: _held(receiver)[name] for name in wanted}, before, "read"
        )

    def _renamed(self, state: Arrays) -> Arrays:
        return {self.name(name): array for name, array in state.items()}

    def _finding(self, files: str, found: _Difference, outputs: float) -> Finding:
        place, remark = (
            f"{files} file, {self.direction}, {found.tensor}",
            f"Effect on evaluation outputs {outputs:.0e}.",
        )
        return Finding(
            NAME,
            place,
            f"tensor as {found.where}",
            found.difference,
            limit=0.0,
            explanation=found.explanation,
            remarks=(remark,),
        )

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
            # What the candidate's state should be is what the reference's is after the same
            # updates, rounding aside.
            null = {self.name(each) for each in self.null}
            peer, telling = _without(null, receiver.optimizer_state), _without(null, state)
            found = (
                list(_differences(peer, telling, {}, "written", LIMIT))
                if self.from_candidate
                else []
            )
            try:
                resumed = _resume(receiver, self._renamed(read["network"]), state, read["lr"])
            except DeliralikeError as error:
                refused = Explanation.seen(f"an error: {error}")
                yield Finding(NAME, place, "resuming", np.inf, explanation=refused)
                continue
            found += [] if found else _differences(state, resumed[1].neutral_state(), {}, "read")
            for each in found:
                where, what = f"{place}, {each.tensor}", f"state as {each.where}"
                yield Finding(NAME, where, what, each.difference, explanation=each.explanation)
            wanted = _without(null, self._renamed(sender.update))
            came = _without(null, _update(receiver.subject, *resumed, self.batch))
            result = compare(wanted, came)
            if result.difference > LIMIT:
                explanation = None if found else self._explained(came, sender)
                where = f"{place}, {result.worst}"
                yield Finding(
                    NAME, where, "update after resuming", result.difference, explanation=explanation
                )

    def _through_checkpoint(self, name: str, sender: _Trained) -> dict[str, Any]:
        folder = self.folder / f"{self.direction} {name}".replace(" ", "_")
        checkpoint.write(
            folder, {"network": sender.state, "optimizer": sender.optimizer_state, "lr": sender.lr}
        )
        return checkpoint.read(folder)

    def _explained(self, came: Arrays, sender: _Trained) -> Explanation:
        """What the sender would have to lose of its own state to make the receiver's update."""
        tried = []
        for cause, state, lr in _losses(sender.optimizer_state, sender.lr):
            resumed = _resume(sender, sender.state, state, lr)
            update = self._renamed(_update(sender.subject, *resumed, self.batch))
            tried.append((compare({name: update[name] for name in came}, came).difference, cause))
        (match, cause), *others = sorted(tried)
        return Explanation(
            cause, 0.0 if match <= LIMIT else match, others[0][0] if others else None
        )

    def _of_receiver(self, state: Arrays) -> Arrays:
        """An optimizer's state under the receiver's names of the parameters."""
        parts = {key: key.rpartition("/") for key in state}
        return {
            f"{self.name(owner)}{slash}{slot}": state[key]
            for key, (owner, slash, slot) in parts.items()
        }


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
    return _Trained(
        subject, make, kept, state, optimizer_state, lr, _update(subject, network, optimizer, batch)
    )


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
    with (
        random.portable(0, _STEPS),
        np.errstate(all="ignore"),
    ):  # a wrong state may well give no numbers
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
    counts = [key for key in state if key == "steps" or key.endswith("/step")]
    for by in (-1, 1, -int(state["steps"])):
        counted = {
            key: np.maximum(value + by, 0) if key in counts else value
            for key, value in state.items()
        }
        yield ("step count lost" if by < -1 else f"step count {by:+d}"), counted, lr
    for slot in sorted({key.rpartition("/")[2] for key in state} - {"steps", "step"}):
        zeros = {
            key: np.zeros_like(value) if key.endswith(f"/{slot}") else value
            for key, value in state.items()
        }
        yield f"{slot} not restored", zeros, lr


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
