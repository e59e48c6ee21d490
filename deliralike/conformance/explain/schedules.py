"""Why a schedule differs: the reference's learning rates under other counts, factors and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from deliralike.conformance.explain.conventions import EXACT, LINE, LOG, Trial, improved, plainest
from deliralike.conformance.findings import MATCH, Explanation

Rates = np.ndarray
_TAIL = 0.01  # of the steps: so few may lie beyond the reference's last one


def explain_schedule(reference: Rates, candidate: Rates) -> Explanation:
    """Return the cause of other learning rates: such as late, scaled or never applied.

    Both arrays hold one rate for each step. Each cause gives all rates that were compared.
    """
    size = float(np.linalg.norm(candidate)) or 1.0
    trials = []
    for cause, rates in _schedules(reference, candidate):
        known = np.isfinite(rates)
        if known.mean() >= 1.0 - _TAIL:
            away = float(np.linalg.norm((rates - candidate)[known])) / size
            trials.append(Trial(cause, {}, away))
    met = [trial for trial in trials if trial.distance <= MATCH]
    if not met:
        return Explanation(_side_by_side(reference, candidate), np.inf)
    best = min(met, key=lambda trial: max(trial.distance, EXACT))
    own = float(np.linalg.norm(reference - candidate)) / size
    others = [trial.distance for trial in trials if trial.distance > MATCH]
    return Explanation(best.cause, best.distance, min([*others, own]))


def _side_by_side(reference: Rates, candidate: Rates) -> str:
    """The learning rates of both at some steps."""
    first = int(np.flatnonzero(reference != candidate)[0])
    places = dict.fromkeys([first, first + 1, 2 * first + 10, 10 * first + 100])
    shown = [
        f"{candidate[place]:.6g} instead of {reference[place]:.6g} at update {place + 1}"
        for place in places
        if place < len(reference)
    ]
    return f"the learning rate is {', '.join(shown)}"


def _schedules(reference: Rates, candidate: Rates) -> Iterator[tuple[str, Rates]]:
    """Causes with the rates that they give; what the reference does not tell is not finite."""
    steps = np.arange(len(reference))
    mine, its = _first_change(reference), _first_change(candidate)
    moved = f"it first changes at update {its + 1} instead of {mine + 1}"
    for shift in dict.fromkeys((1, -1, its - mine)):
        direction = "late" if shift > 0 else "early"
        amount = "one step" if abs(shift) == 1 else f"{abs(shift)} steps"
        if shift and mine:
            yield f"schedule {amount} {direction}: {moved}", _at(reference, steps - shift)
    yield (
        f"schedule never applied: the learning rate stays {candidate[0]:.6g}",
        np.full(len(steps), reference[0]),
    )
    ratio = float(candidate[0] / reference[0]) if reference[0] else 1.0
    yield (
        f"learning rate times {ratio:.6g}: {candidate[0]:.6g} instead of {reference[0]:.6g}",
        ratio * reference,
    )
    units = f"as if counted in other units: {moved}"
    for stretch in dict.fromkeys((2, 10, 100, _ratio(its, mine))):
        yield f"schedule {stretch} times as slow, {units}", reference[steps // stretch]
    for stretch in dict.fromkeys((2, 10, 100, _ratio(mine, its))):
        ends = np.minimum(steps * stretch, len(reference) - 1)
        yield f"schedule {stretch} times as fast, {units}", reference[ends]
    yield from _other_factors(reference, candidate, mine, its)
    yield from _warm_ups(reference, candidate, steps)
    yield from _other_shapes(reference, candidate, steps)


def _at(rates: Rates, steps: np.ndarray) -> Rates:
    """Rates at other steps: the first one before the start, unknown beyond the end."""
    inside = np.minimum(np.maximum(steps, 0), len(rates) - 1)
    return np.where(steps < len(rates), rates[inside], np.nan)


def _first_change(rates: Rates) -> int:
    changes = np.flatnonzero(np.diff(rates))
    return int(changes[0]) + 1 if changes.size else 0


def _ratio(slow: int, fast: int) -> int:
    return max(2, round(slow / max(fast, 1)))


def _other_factors(
    reference: Rates, candidate: Rates, mine: int, its: int
) -> Iterator[tuple[str, Rates]]:
    """Changes at the same steps by another factor."""
    if not mine or mine != its or not (reference > 0).all() or not (candidate > 0).all():
        return
    usual, other = reference[mine] / reference[0], candidate[its] / candidate[0]
    if usual == 1.0 or other == 1.0:
        return
    power = float(np.log(other) / np.log(usual))
    words = f"schedule with factors of {other:.6g} instead of {usual:.6g}, each the power of {power:.6g}"
    yield words, candidate[0] * (reference / reference[0]) ** power


def _warm_ups(reference: Rates, candidate: Rates, steps: np.ndarray) -> Iterator[tuple[str, Rates]]:
    """A linear rise over the first steps, of the candidate alone or of the reference alone."""
    differing = np.flatnonzero(candidate != reference)
    last = int(differing[-1]) + 1 if differing.size else 0
    for length in dict.fromkeys((last, last + 1)):
        for offset in (0, 1):
            share = np.minimum((steps + offset) / max(length, 1), 1.0)
            begins = f"from {candidate[0]:.6g} at update 1"
            words = f"a warm-up over the first {length} steps, {begins}, that the reference lacks"
            yield words, reference * share
            with np.errstate(all="ignore"):
                without = np.where(share > 0, reference / share, candidate[0])
            yield f"no warm-up over the first {length} steps", without


_SHAPES: dict[str, Callable[[np.ndarray, float, float], Rates]] = {
    "cosine": lambda share, first, last: last + 0.5 * (first - last) * (1 + np.cos(np.pi * share)),
    "linear": lambda share, first, last: first + (last - first) * share,
}


def _other_shapes(
    reference: Rates, candidate: Rates, steps: np.ndarray
) -> Iterator[tuple[str, Rates]]:
    """The same shape over other numbers of steps, or to another last rate."""
    for name, shape in _SHAPES.items():
        mine, its = (_recognised(shape, rates, steps) for rates in (reference, candidate))
        if mine is None or its is None:
            continue
        lengths = f"over {its[0]:.8g} steps instead of {mine[0]:.8g}"
        ends = f", ending at {its[1]:.6g} instead of {mine[1]:.6g}" if mine[1] != its[1] else ""
        yield f"a {name} schedule {lengths}{ends}", _shaped(shape, candidate[0], its, steps)


def _shaped(
    shape: Callable[..., Rates], first: float, found: tuple[float, float], steps: np.ndarray
) -> Rates:
    return shape(np.minimum(steps / found[0], 1.0), first, found[1])


def _recognised(
    shape: Callable[..., Rates], rates: Rates, steps: np.ndarray
) -> tuple[float, float] | None:
    """The length and last rate of a shape that gives these rates; None where it does not."""
    last, flat = float(rates[-1]), np.flatnonzero(np.diff(rates))
    if rates[0] == last or not flat.size:
        return None
    scale = float(rates[0]) or 1.0

    def residual(values: Sequence[float]) -> Rates:
        return (_shaped(shape, rates[0], (values[0], values[1] * scale), steps) - rates) / scale

    values = improved(residual, [float(flat[-1] + 1), last / scale], [LOG, LINE], 40)
    values = plainest(values, lambda found: float(np.abs(residual(found)).max()))
    away = float(np.abs(residual(values)).max())
    return (values[0], values[1] * scale) if away <= MATCH else None
