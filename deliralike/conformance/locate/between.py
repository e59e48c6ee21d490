"""What a unit does between its taps, where that differs: the place, and the data to explain it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.explain import arguments, norms, shapes
from deliralike.conformance.explain.search import LOSSES
from deliralike.conformance.explain.substitution import Substitute
from deliralike.conformance.explain.wiring import Differing, Made, Stopped, Use, Wiring
from deliralike.conformance.findings import LIMIT, Observed, is_number
from deliralike.conformance.locate.accusing import Suspect, accused, filled, layer_of
from deliralike.conformance.locate.differing import (
    all_differences,
    first_difference,
    forward_differences,
)
from deliralike.conformance.locate.place import LOSS, Allowed, Place, joined, listed
from deliralike.conformance.locate.units import (
    Forcing,
    Units,
    force_candidate,
    force_reference,
)
from deliralike.conformance.observe import Around, Call, Unit, handed_on
from deliralike.conformance.observe.corresponding import Correspondence, SharedCall
from deliralike.conformance.places import (
    INPUT,
    OUTPUT,
    UNIT,
    Quantity,
    Tap,
    outputs,
)
from deliralike.conformance.places import (
    arguments as own_arguments,
)
from deliralike.network.base import AbstractNetwork
from deliralike.nn.layers import LAYERS

Layer = tuple[str, Mapping[str, Any]]  # its class or function, and its settings

_AS_INFINITE = 1e9  # scores of this size mask
_ROOTS = {"sqrt": False, "rsqrt": True}  # and whether one is divided by the root
_MOMENTS = ("mean", "var")


def between(units: Units, forcing: Forcing, allowed: Mapping[Tap, Allowed]) -> Iterator[Place]:
    """The unit itself, where its own code differs."""
    mine, theirs = forcing.expected.observed[UNIT], forcing.found.observed[UNIT]
    if not units.correspondence.counts_functions:
        mine, theirs = _with_masks(mine), _with_masks(theirs)
    differing = _differing(mine, theirs, _order(forcing))
    first = differing[0] if differing else first_difference(mine, theirs, allowed.get(UNIT))
    what, difference = first
    if what is None:
        return
    told = _told(units, forcing.calls)
    wiring = _wiring(units, forcing, mine, theirs, [what, *(name for name, _ in differing[1:])])
    path, kind = units.path, "" if units.path == LOSS else kind_of(units.mine.network)
    substitutes: tuple[Substitute, ...] = ()
    if not what.gradient:
        substitutes = tuple(_substitutes(units, forcing, mine, theirs))
    within = forcing.calls[what.tap].within if what.tap in forcing.calls else ""
    if within and what.kind == INPUT:
        path, kind = joined(path, within), type(units.blocks[within]).__name__
    place = Place(path, kind, what, difference, (), tuple(_details(units, forcing, told)), wiring)
    place = replace(place, substitutes=substitutes)
    other = _made_otherwise(units, forcing, wiring, what, mine, theirs)
    if other is None:
        yield place
    elif other.name.path:
        block = layer_of(units.mine, units.blocks[other.name.path])
        one = accused(units.mine, joined(units.path, other.name.path), block, other)
        yield replace(place, accused=(one,))
    else:
        function = other.name.function
        one = accused(units.mine, path, (function, {}), other)
        yield replace(place, kind=function, accused=(one,))


def kind_of(network: AbstractNetwork) -> str:
    """The class of a unit."""
    return type(getattr(network, "native", network)).__name__


def _order(forcing: Forcing) -> list[Tap]:
    """The forced taps in the order of the candidate's calls."""
    return [name for name in forcing.found.observed if name != UNIT]


def _told(units: Units, calls: Mapping[Tap, Call]) -> dict[Tap, Call]:
    """The calls that both sides have to make: functions only where code is written once."""
    counts = units.correspondence.counts_functions
    return {name: call for name, call in calls.items() if counts or call.path is not None}


def _differing(
    mine: Observed, theirs: Observed, order: Sequence[Tap]
) -> list[tuple[Quantity, float]]:
    """Return the forward results of a unit that differ, with their distances.

    They have the order of the candidate's calls.
    """
    position = {name: place for place, name in enumerate(order)}
    distances = forward_differences(mine, theirs)
    wrong = [(what, distance) for what, distance in distances.items() if distance > LIMIT]
    return sorted(wrong, key=lambda pair: position.get(pair[0].tap, len(position)))


def _with_masks(observed: Observed) -> Observed:
    """What a unit hands on, with infinities in the place of numbers that stand for them.

    Scores are masked by minus infinity, or by a number that is as good; beside such a number every
    difference of the others would be small.
    """

    def masked(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind != "f":
            return leaf
        return np.where(np.abs(leaf) >= _AS_INFINITE, np.copysign(np.inf, leaf), leaf)

    given, handed = nest.map(masked, (observed.outputs, dict(observed.handed)))
    return replace(observed, outputs=given, handed=handed)


# The data to explain it
# -----------------------------------------------------------------------------


def _wiring(
    units: Units, forcing: Forcing, mine: Observed, theirs: Observed, names: Sequence[Quantity]
) -> Wiring:
    """What is at hand, what differs, and what either side calls."""
    right, wrong = mine.values(), theirs.values()
    gradients = {n: (g, theirs.inputs[n]) for n, g in mine.inputs.items() if n in theirs.inputs}
    differing = [Differing(n, right[n], wrong[n]) for n in names if n in right]
    told = _told(units, forcing.calls)
    counts = units.correspondence.counts_functions
    given = {n: (call.args, call.kwargs) for n, call in told.items() if counts or n in forcing.taps}
    return Wiring(
        _at_hand(units.mine, forcing.calls),
        right.get(names[0]),
        wrong.get(names[0]),
        gradients,
        tuple(differing),
        given,
        {
            name: _made(units.mine, call, name, forcing.taps.get(name.first))
            for name, call in forcing.found.beyond.items()
        },
        tuple(name for name in _order(forcing) if name in told),
        tuple(_uses(forcing)),
        _stopped(units, forcing),
        {name: (call.args, call.kwargs) for name, call in forcing.calls.items()},
        {name: type(units.blocks[name.path]).__name__ for name in forcing.calls if name.path},
    )


def _at_hand(unit: Unit, calls: Mapping[Tap, Call]) -> dict[Quantity, np.ndarray]:
    """The arrays from which a unit computes what it does between its taps."""
    names = own_arguments(unit.args, unit.kwargs)
    found = dict(zip(names, nest.leaves(unit.inputs), strict=True))
    for name, call in calls.items():
        found |= zip(outputs(call.output, name), nest.leaves(call.output), strict=True)
    return {name: leaf for name, leaf in found.items() if isinstance(leaf, np.ndarray)}


def _uses(forcing: Forcing) -> Iterator[Use]:
    """What each tap is given, with the gradient that comes back from there."""
    for name, call in forcing.calls.items():
        leaves = nest.leaves((call.args, call.kwargs))
        for leaf, gradient in zip(leaves, forcing.weights[name].inputs, strict=True):
            if isinstance(leaf, np.ndarray) and gradient is not None:
                yield Use(name, leaf, gradient)


def _made(unit: Unit, call: Call, name: Tap, first: SharedCall | None) -> Made:
    """A call that only the candidate makes, done again on the reference's side.

    Args:
        unit: The reference's.
        call: The candidate's call.
        name: Of the call.
        first: The first call of the same block, if both sides make it.
    """
    network, backend = unit.network, unit.network.backend
    again: Any = dict(network.named_blocks()).get(name.path)
    if name.function:
        again = getattr(backend.nn, name.function, None)
    given, result = (call.args, call.kwargs), call.output
    if first is not None:
        given = first.inputs.back(given, (first.mine.args, first.mine.kwargs))
        result = first.output.back(result, first.mine.output)
    state = network.neutral_state()
    try:
        args, kwargs = filled(network, given)
        native_args, native_kwargs = backend.prepare((args, kwargs), network)
        with network.training_mode(unit.training), random.portable(unit.seed):
            output = backend.to_numpy(again(*native_args, **native_kwargs))
    except Exception:  # noqa: BLE001
        return Made(call.args, call.kwargs, call.output, np.inf)
    finally:
        if state:
            network.load_neutral_state(state)
    pairs = zip(nest.leaves(result), nest.leaves(output), strict=False)
    far = [relative_difference(y, x) for x, y in pairs if is_number(x) and is_number(y)]
    return Made(args, kwargs, result, max(far, default=0.0))


def _stopped(units: Units, forcing: Forcing) -> Stopped | None:
    """The side whose own `stop_gradient` makes the difference: without it nothing differs."""
    mine, theirs = forcing.expected.observed[UNIT], forcing.found.observed[UNIT]
    if any(name.stops for name in forcing.found.others):
        without = replace(units, theirs=replace(units.theirs, opened=True))
        theirs = force_candidate(without, forcing.taps, forcing.weights).observed[UNIT]
        return _without("candidate", mine, theirs)
    own = [name for name in forcing.taps if name.stops and name not in forcing.found.observed]
    if own or any(name.stops for name in forcing.expected.others):
        without = replace(units, mine=replace(units.mine, opened=True))
        left = {name: tap for name, tap in forcing.taps.items() if name not in own}
        mine = force_reference(without, left, forcing.weights).observed[UNIT]
        return _without("reference", mine, theirs)
    return None


def _without(side: str, mine: Observed, theirs: Observed) -> Stopped | None:
    apart = max(all_differences(mine, theirs).values(), default=0.0)
    return Stopped(side, apart) if apart <= LIMIT else None


# Functions that the candidate does otherwise
# -----------------------------------------------------------------------------


def _substitutes(
    units: Units, forcing: Forcing, mine: Observed, theirs: Observed
) -> Iterator[Substitute]:
    """The reference's calls that the candidate has no call for, and pieces that it may exchange."""
    given = {name: tap.mine for name, tap in forcing.taps.items()}
    sides = _forward(mine), _forward(theirs)

    def made(path: str, layer: Layer, call: Call, names: Sequence[Tap]) -> Substitute:
        """What is to stand for a call; what it gives is that of all names, or of the one name."""

        def follow(output: Any) -> dict[str, Any]:
            several = output if layer[0] == shapes.PIECES else (output,)
            results = dict(zip(names, several, strict=True))
            return _forward(handed_on(units.mine, given, results))

        tap = units.correspondence.alone(names[0], call)
        pair = Observed(call.output), Observed()
        suspect = Suspect(names[0], tap, Around([], []), Quantity(OUTPUT), 0.0, pair)
        return Substitute(accused(units.mine, path, layer, suspect, weighted=False), follow, *sides)

    for name, call in forcing.calls.items():
        if name in given:
            continue
        if name.function in _ROOTS and (variance := _variance(name, call, forcing)) is not None:
            eps, of = variance
            settings = {"eps": eps, "inverse": _ROOTS[name.function]}
            written = replace(call, args=(of,), kwargs={})
            yield made(joined(units.path, call.within), (norms.ROOT, settings), written, [name])
        if name.function and not arguments.is_known(name.function):
            continue
        where = joined(units.path, call.within)
        layer: Layer = (name.function, {})
        if call.path is not None:
            where = joined(units.path, call.path)
            layer = layer_of(units.mine, units.blocks[call.path])
        yield made(where, layer, call, [name])
    for names in _exchangeable(forcing.calls):
        arrays = tuple(forcing.calls[name].output for name in names)
        words = " and ".join(f"the output of {name}" for name in names)
        pieces = Call(None, (arrays,), {}, arrays)
        yield made(units.path, (shapes.PIECES, {"words": words}), pieces, names)


def _variance(name: Tap, call: Call, forcing: Forcing) -> tuple[float, np.ndarray] | None:
    """The epsilon under a root, and the mean or variance that it is added to.

    The latter is what the last call before it gave of that shape; None where there is none.
    """
    under: Any = call.args[0] if call.args else None
    if not is_number(under) or np.size(under) < 2:
        return None
    before = list(itertools.takewhile(lambda one: one != name, forcing.calls))
    for one in reversed(before):
        output: Any = forcing.calls[one].output
        if one.function not in _MOMENTS or np.shape(output) != np.shape(under):
            continue
        eps = float(f"{np.median(under - output):.6g}")
        if eps > 0.0 and np.allclose(output + eps, under, rtol=1e-12, atol=0.0):
            return eps, output
    return None


def _exchangeable(calls: Mapping[Tap, Call]) -> Iterator[list[Tap]]:
    """Calls of a kind that are given the same array and give the same shape, and each by itself.

    A gate and a value are two such projections, or the halves of one.
    """
    products = [name for name, call in calls.items() if _is_product(name, call)]
    for one, other in itertools.combinations(products, 2):
        first, second = calls[one], calls[other]
        alike = np.shape(first.output) == np.shape(second.output)
        if alike and one.function == other.function and _same(first.args[0], second.args[0]):
            yield [one, other]
    yield from ([name] for name in reversed(products))  # halves are taken of what came last


def _is_product(name: Tap, call: Call) -> bool:
    """Whether a call gives features that it makes of others."""
    is_followed = bool(call.path) or name.function in ("linear", "matmul", "conv")
    plain = is_number(call.output) and np.ndim(call.output) > 1
    return is_followed and plain and bool(call.args) and is_number(call.args[0])


def _same(one: Any, other: Any) -> bool:
    return one is other or np.array_equal(one, other)


def _forward(one: Observed) -> dict[str, np.ndarray]:
    """The results of the forward pass, by words."""
    return {str(name): value for name, value in one.values().items()}


def _made_otherwise(
    units: Units,
    forcing: Forcing,
    wiring: Wiring,
    what: Quantity,
    mine: Observed,
    theirs: Observed,
) -> Suspect | None:
    """The function or layer whose result the reference has, and the candidate another one.

    None where the candidate calls it, or nothing else gives that result.
    """
    expected: Any = mine.values().get(what)
    came = theirs.values().get(what)
    if not is_number(expected):
        return None
    for name, call in reversed(list(forcing.calls.items())):
        if name in forcing.found.observed or not is_number(call.output):
            continue
        if name.path and layer_of(units.mine, units.blocks[name.path])[0] not in LAYERS:
            continue
        if np.size(call.output) == 1 and name.function not in LOSSES:
            continue  # anything may be made to give one number
        if np.array_equal(call.output, expected):
            if not is_number(came):
                return None
            weights = forcing.weights[name]
            pair = _as_function(call, weights, came, wiring, mine)
            tap = Correspondence().alone(name, call)
            return Suspect(name, tap, weights, what, np.inf, pair)
    return None


def _as_function(
    call: Call, weights: Around, wrong: Any, wiring: Wiring, mine: Observed
) -> tuple[Observed, Observed]:
    """What the reference's function gave, and what the candidate gave in its place.

    Gradients are known of those inputs that nothing else makes use of.
    """
    names, leaves = own_arguments(call.args, call.kwargs), nest.leaves((call.args, call.kwargs))
    right: dict[Quantity, Any] = {}
    theirs: dict[Quantity, Any] = {}
    for name, leaf, gradient in zip(names, leaves, weights.inputs, strict=True):
        if gradient is None:
            continue
        for source, (own, other) in wiring.gradients.items():
            is_same = source in wiring.sources and np.array_equal(wiring.sources[source], leaf)
            if is_same and compare({"": gradient}, {"": own}).difference <= LIMIT:
                right[name], theirs[name] = gradient, other
                break
    return Observed(call.output, right), Observed(wrong, theirs)


# What else was seen
# -----------------------------------------------------------------------------


def _details(units: Units, forcing: Forcing, told: Mapping[Tap, Call]) -> Iterator[str]:
    """Which taps one side has and the other has not, and whether they come in another order."""
    counts = units.correspondence.counts_functions
    missing = [name for name in told if name not in forcing.found.observed]
    if missing and counts:
        yield f"The candidate does not call {listed(missing)}."
    elif missing:
        yield f"No call of the candidate corresponds to {listed(missing)}."
    others = [name for name in forcing.found.others if counts or not name.function]
    if others:
        yield f"Only the candidate calls {listed(others)}."
    met = [name for name in _order(forcing) if name in told]
    order = [name for name in told if name in forcing.found.observed]
    for mine, theirs in zip(order, met, strict=True):
        if mine != theirs:
            yield f"The candidate calls {theirs} where the reference calls {mine}."
            return
