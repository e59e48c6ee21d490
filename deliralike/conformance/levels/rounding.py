"""Level L2 (rounding): whether a candidate in float32 is as exact as rounding allows.

The measure is the reference in float64. How much rounding may do is found by experiment: the
reference's own error in float32 is the sigma of a tensor, and the candidate's error in sigmas is its
z, about 1 for right networks of any depth and conditioning. One run may be exact by luck, so where
it does not explain the candidate's error, the largest of a few runs counts, at inputs that differ by
one rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.by_name import only, owner, without
from deliralike.conformance.findings import Finding, Level, is_floating
from deliralike.conformance.kinds import Arrays, Batch, Tensors
from deliralike.conformance.last_bit import shaken
from deliralike.conformance.levels.semantics import MODES, Look, look
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.subject import Subject

TITLE = "quality in float32"
# sigmas; right networks were seen at 0.2 to 3, at 14 where inputs lie ten thousand deviations from
# zero
LIMIT = 32.0
EPS = float(np.finfo(np.float32).eps)
RUNS = 4
_RAISES = "raises "  # what a candidate does that gives nothing


@dataclass(frozen=True)
class Rounded:
    """What rounding is expected to do to a tensor, and what it did in the candidate: L2 norms.

    Attributes:
        size: Of the tensor in float64.
        sigma: Of the expected error.
        error: Of the candidate's.
    """

    size: float
    sigma: float
    error: float

    @property
    def z(self) -> float:
        """The candidate's error in units of the expected one."""
        # No result in float32 can be asked for more than this.
        floor = max(self.sigma, EPS / 4 * self.size)
        if self.error == 0.0:
            return 0.0
        return self.error / floor if floor and np.isfinite(self.error) else np.inf

    @property
    def is_null(self) -> bool:
        """Whether the tensor is nothing but rounding, or overflows float32 in the reference too."""
        return self.size <= 2 * self.sigma


def level(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    correspondence: Correspondence = SAME,
    exact: Mapping[str, Look] | None = None,
) -> Level:
    """Judge a candidate in float32.

    Args:
        reference: In float64.
        candidate: In float64; a copy in float32 is made.
        batch: NumPy arrays: inputs and target.
        correspondence: Names and layouts of the candidate.
        exact: What the reference does on this batch in each mode, where it was already seen, and
            batch and weights are numbers that float32 holds.
    """
    batch = nest.map(_rounded, batch)
    short, its = reference.in_dtype("float32"), candidate.in_dtype("float32")
    wide = short.in_dtype("float64")
    found: dict[str, dict[str, Rounded]] = {}
    for name, training in MODES.items():
        known = look(wide, batch, training, elements=1) if exact is None else exact[name]
        run = _Run(wide, short, its, batch, training, known)
        found[name] = run.judged(correspondence)
    findings, judged, null, z = [], [0.0], set(), {}
    for mode, tensors in found.items():
        z[mode] = {name: tensor.z for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if tensor.is_null:
                null.add(name)
                continue
            judged.append(tensor.z)
            if tensor.z > LIMIT:
                place = _place(name)
                findings.append(Finding("L2", place, name, tensor.z, mode=mode, limit=LIMIT))
    notes = []
    if null:
        some = f"{len(null)} tensors are nothing but rounding and were not judged"
        notes.append(f"{some}, such as {min(null)}.")
    return Level.judged("L2", TITLE, max(judged), findings, notes, z=z)


@dataclass(frozen=True)
class _Run:
    """Both sides in one mode.

    Attributes:
        reference, short, candidate: The reference in float64 and in float32; the candidate in
            float32.
        exact: What the reference does.
    """

    reference: Subject
    short: Subject
    candidate: Subject
    batch: Any
    training: bool
    exact: Look

    def judged(self, correspondence: Correspondence) -> dict[str, Rounded]:
        """What rounding did to each tensor of the candidate, and what it may do."""
        theirs = self._look(self.candidate, self.batch)
        if theirs.error:
            return {f"{_RAISES}{theirs.error}": Rounded(1.0, 0.0, np.inf)}
        seen = _tensors(Look(correspondence.to_reference(theirs.recording, self.exact.recording)))
        clean = _tensors(self.exact)
        errors = self._errors(clean, self.batch)
        found = {}
        for name, value in only(clean, seen).items():
            fits = np.shape(seen[name]) == np.shape(value)
            error = _norm(seen[name] - value) if fits else np.inf
            found[name] = Rounded(_norm(value), errors.get(name, 0.0), error)
        if all(one.z <= LIMIT or one.is_null for one in found.values()):
            return found
        for name, largest in only(self._largest_errors(), found).items():
            found[name] = replace(found[name], sigma=max(found[name].sigma, largest))
        return found

    def _errors(self, exact: Arrays, batch: Any) -> dict[str, float]:
        """The reference's own errors in float32 on a batch."""
        own = _tensors(self._look(self.short, batch))
        return {name: _norm(value - exact[name]) for name, value in own.items() if name in exact}

    def _largest_errors(self) -> dict[str, float]:
        """Those over a few batches, which differ by one rounding."""
        generator, largest = np.random.default_rng(0), dict[str, float]()
        for _ in range(RUNS):
            moved = nest.map(lambda leaf: _rounded(shaken(leaf, generator, EPS)), self.batch)
            errors = self._errors(_tensors(self._look(self.reference, moved)), moved)
            largest = {name: max(error, largest.get(name, 0.0)) for name, error in errors.items()}
        return largest

    def _look(self, subject: Subject, batch: Any) -> Look:
        return look(subject, batch, self.training, elements=1)


def _tensors(seen: Look) -> Tensors:
    """What is judged, by name."""
    recording = seen.recording
    named: dict[str, Any] = {"loss": recording.output}
    named |= nest.leaves_with_paths(seen.output, "output")
    for name, value in recording.parameters.items():
        named[f"gradient of {name}"] = value
    named |= without(recording.state, recording.parameters)  # buffers
    found = {}
    for name, value in named.items():
        if value is not None and np.asarray(value).dtype.kind == "f":
            found[name] = np.asarray(value, np.float64)
    return found


def _place(name: str) -> str:
    """The block that a tensor belongs to; the network for an error."""
    if name.startswith(_RAISES):
        return ""
    return owner(name.removeprefix("gradient of "))


def _rounded(value: Any) -> Any:
    """Numbers that float32 holds exactly, so that the input's own rounding is no difference."""
    if not is_floating(value):
        return value
    return value.astype(np.float32).astype(value.dtype)


def _norm(array: Any) -> float:
    """The L2 norm; infinite where a number is none."""
    if not np.isfinite(array).all():
        return np.inf
    return float(np.linalg.norm(np.asarray(array, np.float64).ravel()))
