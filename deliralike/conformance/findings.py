"""What a comparison finds: places, causes, levels, and the proof that they make together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from deliralike import nest
from deliralike.conformance.kinds import Arrays, Named
from deliralike.conformance.places import TENSOR, Quantity, Tap, inputs, named, outputs

LIMIT = 1e-10  # of relative differences in float64, where right backends agree to about 4e-15
MATCH = 1e-8  # up to here a convention explains a difference
OWN = "own "  # before the class of a user's own block, which is no layer of `nn`
RAISES = "raises "  # what a network does that gives nothing, before the error
_FAR = 0.3  # from here on the nearest convention says nothing


@dataclass(frozen=True)
class Explanation:
    """Why a place differs: the known convention whose result is nearest to the candidate's.

    Attributes:
        cause: For example ``"eps=2e-05 instead of 1e-05"``.
        match: How far the candidate is from that convention, relative; infinite where none was
            found, and then the cause is what there is to look at.
        next_best: How far it is from the second nearest one; None where there is no other.
        observed: Whether the candidate's own numbers show it, so that there was nothing to execute
            and the match says nothing.
    """

    cause: str
    match: float
    next_best: float | None = None
    observed: bool = False

    @classmethod
    def from_observation(cls, what: str) -> Explanation:
        """What the candidate's own numbers show."""
        return cls(what, 0.0, observed=True)

    @property
    def known(self) -> bool:
        """Whether the match is good enough to call it the cause."""
        return self.match <= MATCH

    def __str__(self) -> str:
        """The sentence of a report."""
        if self.observed:
            return short(f"Explained by {self.cause} (seen in its own numbers).")
        near = self.next_best is not None and np.isfinite(self.next_best)
        following = f"; next best {self.next_best:.0e}" if near else ""
        if self.known:
            match = f"match {self.match:.0e}" if self.match else "exact match"
            return short(f"Explained by {self.cause} ({match}{following}).")
        if np.isinf(self.match) and self.cause:
            return short(f"Cause unknown: {self.cause}.")
        if self.match > _FAR:
            return "Cause unknown."
        return short(
            f"Cause unknown; the nearest is {self.cause} (off by {self.match:.0e})."
        )


@dataclass(frozen=True)
class Finding:
    """One place where the candidate differs.

    Attributes:
        level: ``"L0"`` to ``"L7"``.
        place: A block's path, a parameter's name, ``"loss"``, ``"optimizer sgd"`` …
        kind: The class of the block or the name of the function, if it is one: ``"BatchNorm2d"``.
        what: ``"output"``, ``"running_var"``, ``"gradient of weight"``, ``"gradient of the
            input"``, ``"update"`` …
        mode: ``"train"``, ``"eval"`` or empty.
        difference: Relative, in float64.
        limit: What was allowed.
        explanation: None where nothing was found to explain it with.
        remarks: Sentences that follow, the first of them before the explanation: what comes before
            is exact …
        effect: The last sentence: what the difference does to outputs in evaluation.
        details: Sentences that are no part of the headline: what else was seen there.
    """

    level: str
    place: str
    what: str
    difference: float
    kind: str = ""
    mode: str = ""
    limit: float = LIMIT
    explanation: Explanation | None = None
    remarks: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    effect: str = ""

    def __str__(self) -> str:
        """The sentence of a report."""
        why = "" if self.explanation is None else str(self.explanation)
        remarks = list(map(short, self.remarks))
        sentences = [
            f"{self.where}{self.size}.",
            *remarks[:1],
            why,
            *remarks[1:],
            self.effect,
        ]
        return " ".join(filter(None, sentences))

    @property
    def explained(self) -> bool:
        """Whether its cause is known."""
        return self.explanation is not None and self.explanation.known

    @property
    def is_unknown(self) -> bool:
        """Whether its cause was looked for in vain."""
        return self.explanation is not None and not self.explained

    @property
    def is_error(self) -> bool:
        """Whether a network raised an error."""
        return self.what.startswith(RAISES)

    @property
    def where(self) -> str:
        """The place, tensor and mode of the difference: ``"bn1 (BatchNorm2d), forward, train"``."""
        place, what = self.place or "the network", self.what
        if self.kind:
            place += f" ({self.kind})"
            what = "forward" if what == "output" else what
        return ", ".join(filter(None, (place, what, self.mode)))

    @property
    def size(self) -> str:
        """Return how much it differs, as the end of a sentence.

        The text is empty for names and shapes, which differ or do not.
        """
        if self.level == "L0" or self.is_error:
            return ""
        if not np.isfinite(self.difference):
            return ": not comparable"
        return f": float64 {self.difference:.1e} (limit {self.limit:g})"


def like_float32(difference: float) -> tuple[str, ...]:
    """What there is to say where a difference is of the size of rounding to float32."""
    if not 1e-9 < difference < 2e-6:  # from one that is averaged to some that add up
        return ()
    size = "makes differences of this size"
    return (
        f"float32 rounds to 6e-8: a constant or a cast in float32 on the way {size}.",
    )


def short(sentence: str) -> str:
    """Exponents as people write them.

    Example:
        >>> short("eps=2e-05")
        'eps=2e-5'
    """
    return re.sub(r"(?<=\de[+-])0(?=\d)", "", sentence)


PASSED, FAILED = "passed", "failed"
NOT_NEEDED = "not needed"  # another level has decided already
NOT_REACHED = "not reached"  # it could not be compared


@dataclass(frozen=True)
class Level:
    """One rung of the ladder.

    Attributes:
        name: ``"L0"`` to ``"L7"``.
        title: What it is about: ``"semantics in float64"``.
        status: ``"passed"``, ``"failed"``, ``"not needed"`` where another level has decided
            already, or ``"not reached"`` where it could not be compared; for the last two the
            reason is the first note.
        worst: The largest difference seen; None where nothing was compared.
        findings: The places that differ, the deepest and first one first.
        notes: What a reader should know: null gradients by name, what was left out and why.
        figures: Numbers for tables, by name; nests of plain numbers, texts and lists.
    """

    name: str
    title: str
    status: str
    worst: float | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    figures: Named = field(default_factory=dict)

    @classmethod
    def judged(
        cls,
        name: str,
        title: str,
        worst: float | None,
        findings: Iterable[Finding],
        notes: Iterable[str] = (),
        **figures: Any,
    ) -> Level:
        """A level that was compared: it failed where there are findings."""
        found = tuple(findings)
        return cls(
            name,
            title,
            FAILED if found else PASSED,
            worst,
            found,
            tuple(notes),
            figures,
        )


@dataclass(frozen=True)
class Observed:
    """The results of one block judged alone, as NumPy arrays in neutral names and layouts.

    Attributes:
        outputs: A nest of arrays.
        inputs: The gradient with respect to each array among the inputs; None without one.
        parameters: The gradient of each parameter of the block, by name within the block
            (``"weight"``).
        state: Buffers after the call.
        handed: Of a unit the arguments ``(args, kwargs)`` that it gives to each of its taps.
    """

    outputs: Any = None
    inputs: Mapping[Quantity, np.ndarray | None] = field(default_factory=dict)
    parameters: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)
    handed: Mapping[Tap, tuple[Any, Any]] = field(default_factory=dict)

    def values(self) -> dict[Quantity, np.ndarray]:
        """Return the results of the forward pass: what is handed on, outputs, then the state."""
        found: dict[Quantity, Any] = {}
        for tap, given in self.handed.items():
            found |= named(inputs(tap, *given), given)
        found |= named(outputs(self.outputs), self.outputs)
        numbers = {name: leaf for name, leaf in found.items() if is_number(leaf)}
        return numbers | {
            Quantity(TENSOR, name): value for name, value in self.state.items()
        }

    def gradients(self) -> dict[Quantity, np.ndarray | None]:
        """Return the results of the backward pass."""
        found = {
            Quantity(TENSOR, name): value for name, value in self.parameters.items()
        }
        return {
            name.slope: value for name, value in (found | dict(self.inputs)).items()
        }

    def tensors(self) -> dict[str, np.ndarray | None]:
        """All of it by name, such as ``"output"``, ``"running_mean"``, ``"gradient of args[0]"``."""
        everything = self.values() | self.gradients()
        return {str(name): value for name, value in everything.items()}


def is_number(leaf: Any) -> bool:
    """Whether a leaf is an array or a plain number."""
    return isinstance(leaf, np.ndarray | np.generic | int | float) and not isinstance(
        leaf, bool
    )


def is_array(leaf: Any) -> TypeGuard[np.ndarray]:
    """Whether a leaf is a NumPy array."""
    return isinstance(leaf, np.ndarray)


def arrays_in(values: Any) -> list[np.ndarray]:
    """The NumPy arrays among the leaves of a nest."""
    return list(filter(is_array, nest.leaves(values)))


def is_floating(leaf: Any) -> bool:
    """Whether a leaf is a NumPy array of floating numbers."""
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"


def has_floats(leaf: Any) -> bool:
    """Whether a leaf is an array of floating numbers, of NumPy or of any framework."""
    return "float" in str(getattr(leaf, "dtype", ""))


def in_dtype(leaf: Any, dtype: Any) -> Any:
    """An array of floating numbers in another type; any other leaf as it is."""
    return leaf.astype(dtype) if is_floating(leaf) else leaf


@dataclass(frozen=True)
class FailingBlock:
    """A block, or a function of `nn`, that differs at equal inputs, with all data to explain it.

    Attributes:
        path: Where it is in the reference.
        kind: The class of the reference's block, ``"BatchNorm2d"``; of a function its name,
            ``"interpolate"``.
        settings: The reference's settings by name, as the layer or function of `nn` takes them.
        state: Parameters and buffers of the reference's block before the call, by name within the
            block.
        args, kwargs: The inputs, arrays as NumPy ones in float64; the same for both.
        cotangent: The gradient of the loss with respect to the outputs: a nest like them, None
            where there is none.
        training: The mode.
        reference, candidate: What each computed from that.
        noise: How far rounding alone may bring a tensor from the reference's, where that is more
            than usual.
    """

    path: str
    kind: str
    settings: Named
    state: Arrays
    args: tuple[Any, ...]
    kwargs: Named
    cotangent: Any
    training: bool
    reference: Observed
    candidate: Observed
    noise: Mapping[str, float] = field(default_factory=dict)
