"""What a unit does between its taps, where that differs: the place, and the data to explain it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
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

    def standing(
        path: str, layer: Layer, call: Call, name: Tap, follow: Callable[[Any], dict[str, Any]]
    ) -> Substitute:
        tap = units.correspondence.alone(name, call)
        parameters = _parameters(units.mine, call.path)
        pair = Observed(call.output, parameters=parameters), Observed()
        suspect = Suspect(name, tap, Around([], []), Quantity(OUTPUT), 0.0, pair)
        one = accused(units.mine, path, layer, suspect, weighted=False)
        return Substitute(one, follow, *sides, _which(name, forcing.calls))

    def made(path: str, layer: Layer, call: Call, names: Sequence[Tap]) -> Substitute:
        """What is to stand for a call; what it gives is that of all names, or of the one name."""

        def follow(output: Any) -> dict[str, Any]:
            several = output if layer[0] == shapes.PIECES else (output,)
            results = dict(zip(names, several, strict=True))
            return _forward(handed_on(units.mine, given, results))

        return standing(path, layer, call, names[0], follow)

    def held(name: str, value: np.ndarray) -> Substitute:
        """What is to stand for a tensor that the unit makes use of itself."""
        network = units.mine.network

        def follow(output: Any) -> dict[str, Any]:
            network.load_neutral_state({name: output}, strict=False)
            try:
                return _forward(handed_on(units.mine, given, {}))
            finally:
                network.load_neutral_state({name: value}, strict=False)

        settings = {"words": name, "others": list(_in_its_place(value, forcing))}
        call = Call(None, (value,), {}, value)
        where = joined(units.path, name.rpartition(".")[0])
        return standing(where, (shapes.TENSOR, settings), call, UNIT, follow)

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
    for tensor, value in _own_tensors(units.mine, forcing.calls):
        yield held(tensor, value)
    for names, together in _exchangeable(forcing.calls):
        arrays = tuple(forcing.calls[name].output for name in names)
        shown = list(names) if together else [names[0].first]
        words = " and ".join(f"the output of {name}" for name in shown)
        pieces = Call(None, (arrays,), {}, arrays)
        told = {"words": words, "together": together}
        yield made(units.path, (shapes.PIECES, told), pieces, names)


def _which(name: Tap, calls: Mapping[Tap, Call]) -> str:
    """Which one of several calls it is, in words; empty for the only one."""
    count = sum(one.first == name.first for one in calls)
    return f"call {name.call} of {count}" if count > 1 else ""


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


def _parameters(unit: Unit, path: str | None) -> dict[str, None]:
    """The names of the parameters of a block, without gradients; of a function there are none."""
    if not path:
        return {}
    slots = unit.network.neutral_slots().items()
    named = [name for name, slot in slots if slot.is_parameter and name.startswith(f"{path}.")]
    return dict.fromkeys(name.removeprefix(f"{path}.") for name in named)


def _own_tensors(unit: Unit, calls: Mapping[Tap, Call]) -> Iterator[tuple[str, np.ndarray]]:
    """The floating parameters and buffers of a unit that its calls do not hold."""
    called = tuple(f"{call.path}." for call in calls.values() if call.path)
    for name, slot in unit.network.neutral_slots().items():
        if name.startswith(called) or not slot.shape:
            continue
        value = slot.read()
        if value.dtype.kind == "f":
            yield name, value


def _in_its_place(value: np.ndarray, forcing: Forcing) -> Iterator[np.ndarray]:
    """Other arrays of a tensor's shape that the candidate makes or gives to its own calls."""
    for call in forcing.found.beyond.values():
        for leaf in nest.leaves((call.args, call.kwargs, call.output)):
            alike = is_number(leaf) and np.shape(leaf) == value.shape
            if alike and relative_difference(value, leaf) > LIMIT:
                yield np.asarray(leaf)


def _exchangeable(calls: Mapping[Tap, Call]) -> Iterator[tuple[list[Tap], bool]]:
    """Calls whose features may be read in another order, and whether these are joined for that.

    Two or three calls of a kind that are given the same array and give the same shape may be one
    call to the candidate: a gate and a value, or queries, keys and values. Else all calls of a
    block are read alike.
    """
    products = [name for name, call in calls.items() if _is_product(name, call)]
    for count in (2, 3):
        for some in itertools.combinations(products, count):
            one, *others = (calls[name] for name in some)
            of_one_kind = len({name.function for name in some}) == 1
            if of_one_kind and all(_is_twin(one, other) for other in others):
                yield list(some), True
    blocks: dict[Tap, list[Tap]] = {}
    for name in reversed(products):  # halves are taken of what came last
        blocks.setdefault(name.first, []).insert(0, name)
    yield from ((names, False) for names in blocks.values())


def _is_twin(one: Call, other: Call) -> bool:
    """Whether two calls are given the same array and make the same shape of it."""
    return np.shape(one.output) == np.shape(other.output) and _same(one.args[0], other.args[0])


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
