"""Level L2 (rounding): whether a candidate in float32 is as exact as rounding allows.

The measure is the reference in float64.

The expected error is found by experiment: the reference runs in float64 with a random relative
error after every operation, ``eps / 2 * sqrt(k)`` for a reduction of length k, a few times. What
that does to a tensor is its sigma, and the candidate's error in sigmas is its z: about 1 for right
networks, of any depth and conditioning. Operations within a layer are out of reach of such noise,
so the reference's own error in float32 counts where it is the larger one. Where that alone explains
the candidate's, the runs with noise say no more, and are left out unless they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.findings import FAILED, PASSED, Finding, Level
from deliralike.conformance.last_bit import shaken
from deliralike.conformance.levels.semantics import MODES, Look, look
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.network.calls import functions_called_through
from deliralike.nn import start

TITLE = "quality in float32"
# sigmas; right networks were seen at 0.2 to 3, at 14 where inputs lie ten thousand deviations from
# zero
LIMIT = 32.0
EPS = float(np.finfo(np.float32).eps)
RUNS = 4
_RAISES = "raises "  # what a candidate does that gives nothing
_NORM = 4  # the reductions of a norm are summed in blocks, which rounds as a short one does


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
        floor = max(
            self.sigma, EPS / 4 * self.size
        )  # no result in float32 can be asked for more than this
        if np.isinf(self.error):
            return np.inf
        return 0.0 if self.error == 0.0 else self.error / floor if floor else np.inf

    @property
    def is_null(self) -> bool:
        """Whether the tensor is nothing but rounding, or overflows float32 in the reference too."""
        return self.size <= 2 * self.sigma


def level(
    reference: Subject,
    candidate: Subject,
    batch: tuple[Any, ...],
    correspondence: Correspondence = SAME,
    seed: int = 0,
    eps: float = EPS,
    exact: Mapping[str, Look] | None = None,
    always_with_noise: bool = True,
) -> Level:
    """Judge a candidate in float32.

    Args:
        reference: In float64.
        candidate: In float64; a copy in float32 is made.
        batch: NumPy arrays: inputs and target.
        correspondence: Names and layouts of the candidate.
        seed: Of the portable random stream, and of the noise.
        eps: The relative distance of two numbers next to each other in the candidate's products:
            that of float32, or of TF32 where it is on.
        exact: What the reference does on this batch in each mode, where it was already seen, and
            batch and weights are numbers that float32 holds.
        always_with_noise: Whether the runs with noise are made where the reference's own float32
            explains the candidate's, too.
    """
    batch = nest.map(_rounded, batch)
    backend = reference.network.backend
    rounded = reference.but(
        network=backend.in_dtype(backend.in_dtype(reference.network, "float32"), "float64")
    )
    short = candidate.but(network=_in_float32(candidate))
    found = {}
    for name, training in MODES.items():
        known = look(rounded, batch, training, seed, elements=1) if exact is None else exact[name]
        run = _Run(rounded, short, batch, training, seed, known)
        found[name] = run.judged(correspondence, eps, always_with_noise)
    findings = tuple(
        Finding("L2", _place(name), name, tensor.z, mode=mode, limit=LIMIT)
        for mode, tensors in found.items()
        for name, tensor in tensors.items()
        if tensor.z > LIMIT and not tensor.is_null
    )
    judged = [
        tensor.z for tensors in found.values() for tensor in tensors.values() if not tensor.is_null
    ]
    null = sorted(
        {name for tensors in found.values() for name, tensor in tensors.items() if tensor.is_null}
    )
    notes = (
        (f"{len(null)} tensors are nothing but rounding and were not judged, such as {null[0]}.",)
        if null
        else ()
    )
    figures = {
        "z": {mode: {n: t.z for n, t in tensors.items()} for mode, tensors in found.items()},
        "eps": eps,
    }
    return Level(
        "L2",
        TITLE,
        FAILED if findings else PASSED,
        max(judged, default=0.0),
        findings,
        notes,
        figures,
    )


@dataclass(frozen=True)
class _Run:
    """Both sides in one mode.

    Attributes:
        reference, candidate: In float64, and in float32.
        exact: What the reference does.
    """

    reference: Subject
    candidate: Subject
    batch: Any
    training: bool
    seed: int
    exact: Look

    def judged(
        self, correspondence: Correspondence, eps: float, always_with_noise: bool
    ) -> dict[str, Rounded]:
        """What rounding did to each tensor of the candidate, and what it may do."""
        theirs = self._look(self.candidate)
        if theirs.error:
            return {f"{_RAISES}{theirs.error}": Rounded(1.0, 0.0, np.inf)}
        seen = _tensors(Look(correspondence.to_reference(theirs.recording, self.exact.recording)))
        clean = {name: value for name, value in _tensors(self.exact).items() if name in seen}
        short = self.reference.but(network=_in_float32(self.reference))
        own = _tensors(self._look(short))
        found = {}
        for name, value in clean.items():
            fits = np.shape(seen[name]) == np.shape(value)
            error = _norm(seen[name] - value) if fits else np.inf
            found[name] = Rounded(_norm(value), _norm(own.get(name, value) - value), error)
        if _all_explained(found) and not always_with_noise:
            return found
        noise = self._noise(clean, eps)
        found = {n: replace(one, sigma=max(one.sigma, noise[n])) for n, one in found.items()}
        if _all_explained(found):
            return found
        errors = _own_errors(self.reference, self.batch, self.training, self.seed)
        return {
            name: replace(tensor, sigma=max(tensor.sigma, errors.get(name, 0.0)))
            for name, tensor in found.items()
        }

    def _noise(self, clean: Mapping[str, np.ndarray], eps: float) -> dict[str, float]:
        """How far a random error after every operation carries each tensor."""
        runs = [_tensors(self._look(with_noise(self.reference, run, eps))) for run in range(RUNS)]
        found = {}
        for name, value in clean.items():
            squares = [_norm(one[name] - value) ** 2 for one in runs]
            found[name] = math.sqrt(np.mean(squares))
        return found

    def _look(self, subject: Subject) -> Look:
        return look(subject, self.batch, self.training, self.seed, elements=1)


def _all_explained(found: Mapping[str, Rounded]) -> bool:
    return all(tensor.z <= LIMIT or tensor.is_null for tensor in found.values())


def _own_errors(reference: Subject, batch: Any, training: bool, seed: int) -> dict[str, float]:
    """Return the largest error of the reference's own float32 over a few batches.

    The batches differ by one rounding, since a single one may be exact by luck.
    """
    short, generator = reference.but(network=_in_float32(reference)), np.random.default_rng(seed)
    errors: dict[str, float] = {}
    for _ in range(RUNS):
        moved = nest.map(lambda leaf: _rounded(shaken(leaf, generator, EPS)), batch)
        exact, own = (
            _tensors(look(one, moved, training, seed, elements=1)) for one in (reference, short)
        )
        for name in (name for name in exact if name in own):
            errors[name] = max(errors.get(name, 0.0), _norm(own[name] - exact[name]))
    return errors


def _in_float32(subject: Subject) -> AbstractNetwork:
    return subject.network.backend.in_dtype(subject.network, "float32")


def with_noise(subject: Subject, run: int, eps: float = EPS) -> Subject:
    """A subject whose loss is computed with a random relative error after every operation.

    Args:
        run: Which of several runs; each step of the portable random stream has errors of its own,
            where it is known.
    """

    def loss(network: AbstractNetwork, *batch: Any) -> Any:
        stream = random.current()
        step = stream.step if stream is not None and isinstance(stream.step, int) else 0
        generator = np.random.Generator(
            np.random.Philox(key=start.key(run, f"rounding of step {step}"))
        )
        with _rounding(network, generator, eps):
            return subject.loss(network, *batch)

    return subject.but(loss=loss)


@contextmanager
def _rounding(
    network: AbstractNetwork, generator: np.random.Generator, eps: float
) -> Iterator[None]:
    """Give a relative error to the outputs of innermost blocks and of functions between blocks."""
    paths = [path for path, _ in network.named_blocks() if path]
    inner = {path for path in paths if any(other.startswith(f"{path}.") for other in paths)} | {""}
    inside = False

    def disturbed(length: int, output: Any) -> Any:
        nn = network.backend.nn

        def leaf(value: Any) -> Any:
            if not network.backend.is_array(value) or "float" not in str(value.dtype):
                return value
            noise = generator.standard_normal(tuple(value.shape), dtype=np.float32)
            return value * nn.constant(
                1.0 + eps / 2 * math.sqrt(length) * noise.astype(np.float64), value
            )

        return nest.map(leaf, output)

    def around(path: str, block: Any, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        nonlocal inside
        if inside or path in inner:
            return call(*args, **kwargs)
        inside = True
        try:
            is_function = block is network.backend.nn
            output = call(*args, **kwargs)
            return disturbed(_length(args) if is_function else _length_of(network, path), output)
        finally:
            inside = False

    backend = network.backend
    with backend.called_through(network, around), functions_called_through(backend.nn, around):
        yield


def _length_of(network: AbstractNetwork, path: str) -> int:
    """The length of a block's reductions, from the shape of its weight."""
    slot = network.neutral_slots().get(f"{path}.weight")
    if slot is None:
        return 1
    return math.prod(slot.shape[1:]) if len(slot.shape) > 1 else _NORM


def _length(args: tuple[Any, ...]) -> int:
    """Return the length of a function's reductions, from its second array: a weight or a factor."""
    shapes = [tuple(x.shape) for x in args if len(getattr(x, "shape", ())) > 1]
    return math.prod(shapes[1][1:]) if len(shapes) > 1 else _NORM


def _tensors(seen: Look) -> dict[str, np.ndarray]:
    """What is judged, by name."""
    recording = seen.recording
    outputs = dict(nest.leaves_with_paths(seen.output, "output"))
    gradients = {f"gradient of {name}": value for name, value in recording.parameters.items()}
    named: Mapping[str, Any] = {
        "loss": recording.output,
        **outputs,
        **gradients,
        **_buffers(recording),
    }
    return {
        n: np.asarray(v, np.float64)
        for n, v in named.items()
        if v is not None and np.asarray(v).dtype.kind == "f"
    }


def _buffers(recording: Any) -> dict[str, np.ndarray]:
    return {
        name: value for name, value in recording.state.items() if name not in recording.parameters
    }


def _place(name: str) -> str:
    """The block that a tensor belongs to; the network for an error."""
    if name.startswith(_RAISES):
        return ""
    return name.removeprefix("gradient of ").rpartition(".")[0]


def _rounded(value: Any) -> Any:
    """Numbers that float32 holds exactly, so that the input's own rounding is no difference."""
    floating = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float32).astype(value.dtype) if floating else value


def _norm(array: Any) -> float:
    """The L2 norm; infinite where a number is none."""
    return (
        np.inf
        if not np.isfinite(array).all()
        else float(np.linalg.norm(np.asarray(array, np.float64).ravel()))
    )
