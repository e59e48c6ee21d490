"""The places where a candidate differs: level L3, with each block judged alone.

Each block and function gets the reference's inputs.

A unit is looked into tap by tap: a block that differs is a unit in its turn, and where none of its
taps differ but the block does, it is accused itself. So the deepest accusation wins, and only the
taps of one block are held at a time.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.agreement import compare, differences, relative_difference
from deliralike.conformance.composing import composition
from deliralike.conformance.correspondence import SAME, Correspondence, Tap
from deliralike.conformance.explain import arguments
from deliralike.conformance.explain.losses import Composition
from deliralike.conformance.explain.search import LOSSES
from deliralike.conformance.explain.substitution import Substitute
from deliralike.conformance.explain.wiring import Differing, Made, Use, Wiring
from deliralike.conformance.findings import LIMIT, Accused, Observed, is_number
from deliralike.conformance.last_bit import EPS, MARGIN, SLIGHT, shaken
from deliralike.conformance.subject import Subject
from deliralike.conformance.taps import (
    UNIT,
    Around,
    Call,
    Forced,
    Held,
    Recording,
    Unit,
    bare,
    cotangents,
    force,
    function_of,
    handed_on,
    listen,
    record,
    stops,
)
from deliralike.network.base import AbstractNetwork
from deliralike.nn.layers import LAYERS

_AS_INFINITE = 1e9  # scores of this size mask
NETWORK = "the network"  # the name of the network's own call, seen from the loss

Allowed = Mapping[str, float]  # by tensor


@dataclass(frozen=True)
class Place:
    """A block, a function or what stands between them, that differs at equal inputs.

    Attributes:
        path: Of the block in the reference; ``"loss"`` for what the loss function does itself.
        kind: The block's class or the function's name; empty for the loss.
        what: The first tensor that differs: ``"output"``, ``"running_var"``, ``"gradient of
            weight"`` …
        difference: Its relative difference; infinite where the candidate raised an error.
        accused: What is known for explaining it, the deepest first.
        wiring: The same for what a block does between its layers.
        remarks: What else was seen: blocks that are not called, an error.
        loss: The same for the loss function as a whole.
        substitutes: Calls of the reference's that the candidate has no call for.
    """

    path: str
    kind: str
    what: str
    difference: float
    accused: tuple[Accused, ...] = ()
    remarks: tuple[str, ...] = ()
    wiring: Wiring | None = None
    loss: Composition | None = None
    substitutes: tuple[Substitute, ...] = ()


def localise(
    reference: Subject,
    candidate: Subject,
    batch: tuple[Any, ...],
    training: bool,
    correspondence: Correspondence = SAME,
    seed: int = 0,
) -> list[Place]:
    """The places that differ in one mode, in the order of their calls.

    Args:
        reference, candidate: Networks in float64 that hold the same weights; the candidate's loss
            sees it in the reference's layout (`Correspondence.loss`).
        batch: NumPy arrays: inputs and target.
        training: The mode.
        correspondence: Which block of the candidate is which of the reference.
        seed: Of the portable random stream.
    """

    def root(path: str) -> str | None:
        return NETWORK if path == "" else None

    unit = Unit(reference.network, reference.loss, batch, training, root, seed=seed)
    other = replace(unit, network=candidate.network, call=candidate.loss)
    places = list(_Search(correspondence).look_into(unit, other, None, "loss"))
    if not any(place.path == "loss" for place in places):
        return places
    whole = composition(unit, other, correspondence)
    return [replace(place, loss=whole) if place.path == "loss" else place for place in places]


@dataclass(frozen=True)
class _Suspect:
    """A tap that differs.

    Attributes:
        name: Of the tap.
        tap: The call on both sides.
        weights: The cotangents of its inputs and output.
        what: The first tensor that differs.
        difference: Of that tensor.
        pair: What both sides gave; None for a block of blocks, since that is a lot.
        noise: What rounding alone may do.
    """

    name: str
    tap: Tap
    weights: Around
    what: str
    difference: float
    pair: tuple[Observed, Observed] | None = None
    noise: Allowed = field(default_factory=dict)


class _Search:
    def __init__(self, correspondence: Correspondence) -> None:
        self.correspondence = correspondence

    def look_into(self, unit: Unit, other: Unit, cotangent: Any, path: str) -> Iterator[Place]:
        """Yield the places within a unit, and the unit itself where its own code differs."""
        recording = record(unit, cotangent)
        try:
            weights = cotangents(unit, recording.calls, cotangent)
        except Exception:  # noqa: BLE001  # a native function may forbid gradients of an argument
            unit, other = (replace(one, functions=False) for one in (unit, other))
            recording = record(unit, cotangent)
            weights = cotangents(unit, recording.calls, cotangent)
        calls = recording.calls
        try:
            counterpart = self.correspondence.counterpart(calls, other, cotangent)
            if _agrees(recording, counterpart.free):
                return
            taps, expected, found = self._following(
                unit, other, calls, counterpart.taps, weights, cotangent
            )
        except Exception as error:  # noqa: BLE001
            yield from self._raising(
                unit, other, calls, weights, path, f"raises {type(error).__name__}: {error}"
            )
            return
        apart = {
            name: _differences(mine, found.observed[name])
            for name, mine in expected.observed.items()
            if name in found.observed
        }
        alone = [name for name in apart if name == UNIT or not _has_blocks(unit, calls[name])]
        slight = any(
            LIMIT < difference <= SLIGHT for name in alone for difference in apart[name].values()
        )
        allowed = _rounding(unit, taps, weights, cotangent, expected) if slight else {}
        between = list(self._between(unit, calls, taps, weights, expected, found, path, allowed))
        if between and (
            side := self._stopped(unit, other, taps, weights, cotangent, expected, found)
        ):
            between = [
                replace(one, wiring=one.wiring and replace(one.wiring, stopped=side))
                for one in between
            ]
        several = [name for name in calls if between and f"{name}#2" in found.others]
        suspects = []
        for name in (name for name in calls if name in apart):
            noise = allowed.get(name, {})
            what, difference = _first(apart[name], noise)
            if not what or (
                calls[name].path is not None and name in several and not what.startswith("output")
            ):
                # several calls add up to gradients and running statistics: that they are made is
                # said below
                continue
            pair = (expected.observed[name], found.observed[name]) if name in alone else None
            suspects.append(
                _Suspect(name, taps[name], weights[name], what, difference, pair, noise)
            )
        del (
            calls,
            recording,
            counterpart,
            taps,
            weights,
            expected,
            found,
        )  # they hold as much as the network does, and blocks are looked into next
        while suspects:
            yield from self._judge(unit, other, cotangent, path, suspects.pop(0))
        yield from between

    def _following(
        self,
        unit: Unit,
        other: Unit,
        calls: Mapping[str, Call],
        taps: Mapping[str, Tap],
        weights: Mapping[str, Around],
        cotangent: Any,
    ) -> tuple[Mapping[str, Tap], Forced, Forced]:
        """Force both sides; functions that get the same arrays only then are forced as well.

        Raises:
            Exception: What the candidate raises.
        """
        offered: set[str] = set()
        while True:
            taps, expected, found = self._forced(unit, other, taps, weights, cotangent)
            wrong = partial(_leads_astray, calls, taps, _unit_differs(expected, found))
            more = self.correspondence.more(calls, taps, found.beyond, wrong)
            if not set(more) - offered:
                return taps, expected, found
            offered |= set(more)
            taps = {name: {**more, **taps}[name] for name in calls if name in more or name in taps}

    def _raising(
        self,
        unit: Unit,
        other: Unit,
        calls: Mapping[str, Call],
        weights: Mapping[str, Around],
        path: str,
        what: str,
    ) -> Iterator[Place]:
        """Yield the places within a unit in which the candidate raises an error.

        Each block is looked into by itself.
        """
        inner = [
            place
            for name, call in calls.items()
            if call.path is not None
            for place in self._inside(
                unit,
                other,
                self.correspondence.alone(name, call),
                nest_like(call.output, weights[name].output),
                joined(path, call.path),
            )
        ]
        yield from inner
        if not any(place.what.startswith("raises ") for place in inner):
            yield Place(path, _kind(unit.network), what, np.inf)

    def _forced(
        self,
        unit: Unit,
        other: Unit,
        taps: Mapping[str, Tap],
        weights: Mapping[str, Around],
        cotangent: Any,
    ) -> tuple[Mapping[str, Tap], Forced, Forced]:
        """Force both sides; by blocks alone where the candidate's functions cannot take the inputs.

        Raises:
            Exception: What the candidate raises.
        """
        expected = _forced(unit, taps, weights, cotangent)
        try:
            return taps, expected, self.correspondence.forced(other, taps, weights, cotangent)
        except Exception:  # noqa: BLE001
            taps = {name: tap for name, tap in taps.items() if tap.mine.path is not None}
            found = self.correspondence.forced(other, taps, weights, cotangent)
            return taps, _forced(unit, taps, weights, cotangent), found

    def _judge(
        self, unit: Unit, other: Unit, cotangent: Any, path: str, suspect: _Suspect
    ) -> Iterator[Place]:
        """A tap that differs: a function, a layer, or the places within a block."""
        call, what, difference = suspect.tap.mine, suspect.what, suspect.difference
        weight = nest_like(call.output, suspect.weights.output)
        if call.path is None:
            function = function_of(suspect.name)
            where = joined(path, call.within) if call.within else path
            accused = self._accused(unit, where, function, {}, suspect)
            yield Place(where, function, what, difference, (accused,))
            return
        where = joined(path, call.path)
        block = dict(unit.network.named_blocks())[call.path]
        kind = type(block).__name__
        layer = _layer(unit, block)
        inner = list(self._inside(unit, other, suspect.tap, weight, where))
        whole = layer[0] in LAYERS or not _has_blocks(unit, call)
        is_layer = whole and not any(place.path != where for place in inner)
        if inner and not is_layer:
            yield from inner
            return
        if suspect.pair is None:
            suspect = self._alone(unit, other, cotangent, suspect)
            what, difference = suspect.what, suspect.difference
        if not what:
            return
        accused = self._accused(unit, where, *layer, suspect)
        deeper = tuple(one for place in inner for one in place.accused if place.kind != kind)
        remarks, wiring = (inner[0].remarks, inner[0].wiring) if inner else ((), None)
        yield Place(where, kind, what, difference, (accused, *deeper), remarks, wiring)

    def _alone(self, unit: Unit, other: Unit, cotangent: Any, suspect: _Suspect) -> _Suspect:
        """A suspect once more, with what both sides gave, and what rounding may do to that."""
        name = suspect.name
        weights = {name: suspect.weights}
        taps, expected, found = self._forced(unit, other, {name: suspect.tap}, weights, cotangent)
        noise = _rounding(unit, taps, weights, cotangent, expected).get(name, {})
        pair = (expected.observed[name], found.observed[name])
        what, difference = _first(_differences(*pair), noise)
        return replace(suspect, what=what, difference=difference, pair=pair, noise=noise)

    def _inside(
        self, unit: Unit, other: Unit, tap: Tap, cotangent: Any, where: str
    ) -> Iterator[Place]:
        """The places within a block that differs."""
        call, path = tap.mine, tap.mine.path or ""
        partner = self.correspondence.block(other.network, path)
        if partner is None:
            return
        args, kwargs = _filled(unit.network, (call.args, call.kwargs))
        deeper = self.correspondence.within(path, tap)
        block = _as_network(unit.network, dict(unit.network.named_blocks())[path])
        mine = replace(
            unit,
            network=block,
            call=_call,
            args=args,
            kwargs=kwargs,
            tapped=deeper.tap,
            same=call.same,
        )
        mine = replace(mine, tapped=_tapping(deeper, mine))
        given = tap.given
        args, kwargs = _filled(other.network, (given.args, given.kwargs))
        theirs = _as_network(other.network, partner)
        inside = replace(
            mine,
            network=theirs,
            args=args,
            kwargs=kwargs,
            tapped=deeper.tap_of,
            same=tap.theirs.same,
        )
        yield from _Search(deeper).look_into(mine, inside, cotangent, where)

    def _between(
        self,
        unit: Unit,
        calls: Mapping[str, Call],
        taps: Mapping[str, Tap],
        weights: Mapping[str, Around],
        expected: Forced,
        found: Forced,
        path: str,
        allowed: Mapping[str, Allowed],
    ) -> Iterator[Place]:
        """The unit itself, where its own code differs."""
        mine, theirs = expected.observed[UNIT], found.observed[UNIT]
        if not self.correspondence.counts_functions:
            mine, theirs = _with_masks(mine), _with_masks(theirs)
        order = [name for name in found.observed if name != UNIT]
        differing = _differing(mine, theirs, order)
        what, difference = (
            differing[0] if differing else first_difference(mine, theirs, allowed.get(UNIT))
        )
        if not what:
            return
        kind = "" if path == "loss" else _kind(unit.network)
        told = calls if self.correspondence.counts_functions else _blocks_of(calls)
        remarks = tuple(_remarks(told, found, self.correspondence.counts_functions))
        wiring = Wiring(
            _at_hand(unit, calls),
            mine.values().get(what),
            theirs.values().get(what),
            {n: (g, theirs.inputs[n]) for n, g in mine.inputs.items() if n in theirs.inputs},
            tuple(
                Differing(name, mine.values()[name], theirs.values()[name]) for name, _ in differing
            ),
            {
                name: (call.args, call.kwargs)
                for name, call in told.items()
                if name in taps or self.correspondence.counts_functions
            },
            {name: _made(unit, call, name) for name, call in found.beyond.items()},
            tuple(name for name in order if name in told),
            tuple(_uses(calls, weights)),
        )
        substitutes: tuple[Substitute, ...] = ()
        if not what.startswith("gradient"):
            substitutes = tuple(self._substitutes(unit, calls, taps, path, mine, theirs))
        within = _within(calls, what)
        if within:
            path, kind = (
                joined(path, within),
                type(dict(unit.network.named_blocks())[within]).__name__,
            )
        instead = _instead_of(calls, what, mine, theirs, found)
        if instead is None:
            yield Place(
                path,
                kind,
                _in_words(what),
                difference,
                remarks=remarks,
                wiring=wiring,
                substitutes=substitutes,
            )
            return
        name, wrong = instead
        pair = _as_function(calls[name], weights[name], wrong, wiring, mine)
        tap = Correspondence().alone(name, calls[name])
        suspect = _Suspect(name, tap, weights[name], what, difference, pair)
        function = self._accused(unit, path, function_of(name), {}, suspect)
        yield Place(
            path,
            function.kind,
            _in_words(what),
            difference,
            (function,),
            remarks,
            wiring,
            substitutes=substitutes,
        )

    def _substitutes(
        self,
        unit: Unit,
        calls: Mapping[str, Call],
        taps: Mapping[str, Tap],
        path: str,
        mine: Observed,
        theirs: Observed,
    ) -> Iterator[Substitute]:
        """The reference's calls that the candidate has no call for."""
        forced = {name: tap.mine for name, tap in taps.items()}
        blocks = dict(unit.network.named_blocks())
        for name, call in calls.items():
            if name in taps or (call.path is None and not arguments.is_known(function_of(name))):
                continue
            where, kind = path, function_of(name)
            known: Mapping[str, Any] = {}
            if call.path is not None:
                block = blocks[call.path]
                where = joined(path, call.path)
                kind, known = _layer(unit, block)
            pair = Observed(call.output), Observed()
            suspect = _Suspect(
                name, self.correspondence.alone(name, call), Around([], []), "", 0.0, pair
            )

            def follow(output: Any, name: str = name) -> dict[str, Any]:
                return Observed(handed_on(unit, forced, {name: output})).values()

            yield Substitute(
                self._accused(unit, where, kind, known, suspect, weighted=False),
                follow,
                mine.values(),
                theirs.values(),
            )

    def _stopped(
        self,
        unit: Unit,
        other: Unit,
        taps: Mapping[str, Tap],
        weights: Mapping[str, Around],
        cotangent: Any,
        expected: Forced,
        found: Forced,
    ) -> str:
        """Return the side whose own `stop_gradient` makes the difference.

        Without it both have the same gradients.
        """
        mine, theirs = expected.observed[UNIT], found.observed[UNIT]
        if any(map(stops, found.others)):
            theirs = self.correspondence.forced(
                replace(other, opened=True), taps, weights, cotangent
            ).observed[UNIT]
            return "" if first_difference(mine, theirs)[0] else "candidate"
        own = [name for name in taps if name not in found.observed and stops(name)]
        if own:
            left = {name: tap for name, tap in taps.items() if name not in own}
            mine = _forced(replace(unit, opened=True), left, weights, cotangent).observed[UNIT]
            return "" if first_difference(mine, theirs)[0] else "reference"
        return ""

    def _accused(
        self,
        unit: Unit,
        path: str,
        kind: str,
        known: Mapping[str, Any],
        suspect: _Suspect,
        weighted: bool = True,
    ) -> Accused:
        call = suspect.tap.mine
        mine, theirs = suspect.pair or (Observed(), Observed())
        cotangent = nest_like(call.output, suspect.weights.output) if weighted else None
        args, kwargs = _filled(unit.network, (call.args, call.kwargs))
        prefix = f"{call.path}." if call.path else ""
        slots = {} if call.path is None else unit.network.neutral_slots()
        own = {
            n.removeprefix(prefix): slot.read() for n, slot in slots.items() if n.startswith(prefix)
        }
        return Accused(
            path,
            kind,
            known,
            own,
            args,
            kwargs,
            cotangent,
            unit.training,
            mine,
            theirs,
            suspect.noise,
        )


def _unit_differs(expected: Forced, found: Forced) -> set[str]:
    """Return which values differ that a unit computes between its taps."""
    apart = _differences(expected.observed[UNIT], found.observed[UNIT])
    return {what for what, difference in apart.items() if difference > LIMIT}


def _leads_astray(
    calls: Mapping[str, Call], taps: Mapping[str, Tap], differing: set[str], name: str
) -> bool:
    """Return whether the tap that follows a call, or else the output, is given something else."""
    order = list(calls)
    following = [one for one in order[order.index(name) + 1 :] if one in taps]
    start = f"output['the input of {following[0]}']" if following else "output['output']"
    return any(what.startswith(start) for what in differing)


def _tapping(within: Correspondence, unit: Unit) -> Callable[[str], str | None]:
    """The taps of a unit of the reference: what both sides have, and layers that `nn` has.

    A layer that calls blocks that both sides have is looked into instead.
    """
    network = unit.network
    layers = {
        path
        for path, inner in network.named_blocks()
        if path and (network.backend.neutral_layer(inner) or (type(inner).__name__,))[0] in LAYERS
    }
    shared = [path for path, _ in network.named_blocks() if within.tap(path)]
    divided = {path for path in layers if any(one.startswith(f"{path}.") for one in shared)}
    if divided:
        # a layer may hold blocks of which it takes the weights alone
        called = [call.path or "" for call in listen(unit).values()]
        divided = {path for path in divided if any(one.startswith(f"{path}.") for one in called)}
    layers -= divided

    def tap(path: str) -> str | None:
        return within.tap(path) or (path if path in layers else None)

    return tap


def _has_blocks(unit: Unit, call: Call) -> bool:
    """Whether a tap is a block with blocks in it."""
    if call.path is None:
        return False
    start = f"{call.path}." if call.path else ""
    return any(
        path.startswith(start)
        for path, _ in unit.network.named_blocks()
        if path and path != call.path
    )


def _filled(network: AbstractNetwork, values: Any) -> Any:
    """A nest with the network's own parameters and buffers in their places."""
    slots = network.neutral_slots()
    plain = bare(values)
    return nest.map(lambda leaf: slots[leaf].read() if isinstance(leaf, Held) else leaf, plain)


def _differing(mine: Observed, theirs: Observed, order: Sequence[str]) -> list[tuple[str, float]]:
    """Return the forward results of a unit that differ, with their distances.

    They have the order of the candidate's calls.
    """
    left, right = mine.values(), theirs.values()
    shared = [name for name in left if name in right]
    distances = differences({n: left[n] for n in shared}, {n: right[n] for n in shared})
    position = {f"output['the input of {name}']": place for place, name in enumerate(order)}

    def called(what: str) -> int:
        return next(
            (place for start, place in position.items() if what.startswith(start)), len(position)
        )

    return sorted(
        ((n, d) for n, d in distances.items() if d > LIMIT), key=lambda pair: called(pair[0])
    )


def _uses(calls: Mapping[str, Call], weights: Mapping[str, Around]) -> Iterator[Use]:
    """What each tap is given, with the gradient that comes back from there."""
    for name, call in calls.items():
        for leaf, gradient in zip(
            nest.leaves((call.args, call.kwargs)), weights[name].inputs, strict=True
        ):
            if isinstance(leaf, np.ndarray) and gradient is not None:
                yield Use(name, leaf, gradient)


def _made(unit: Unit, call: Call, name: str) -> Made:
    """A call that only the candidate makes, done again on the reference's side."""
    network, backend, blocks = unit.network, unit.network.backend, dict(unit.network.named_blocks())
    state = network.neutral_state()
    again: Any = blocks.get(name.partition("#")[0], getattr(backend.nn, function_of(name), None))
    try:
        args, kwargs = _filled(network, (call.args, call.kwargs))
        native_args, native_kwargs = backend.prepare((args, kwargs), network)
        with network.training_mode(unit.training), random.portable(unit.seed):
            output = backend.to_numpy(again(*native_args, **native_kwargs))
    except Exception:  # noqa: BLE001
        return Made(call.args, call.kwargs, call.output, np.inf)
    finally:
        if state:
            network.load_neutral_state(state)
    pairs = zip(nest.leaves(call.output), nest.leaves(output), strict=False)
    off = max(
        (relative_difference(y, x) for x, y in pairs if is_number(x) and is_number(y)), default=0.0
    )
    return Made(args, kwargs, call.output, off)


def first_difference(
    reference: Observed, candidate: Observed, allowed: Allowed | None = None
) -> tuple[str, float]:
    """Return the first tensor that differs, forward before backward, and its distance.

    What one side lacks is left out.

    Args:
        allowed: Tensors that may differ by more than the usual limit, and by how much.
    """
    return _first(_differences(reference, candidate), allowed or {})


def _first(differences_: Mapping[str, float], allowed: Allowed) -> tuple[str, float]:
    wrong = (
        pair for pair in differences_.items() if pair[1] > max(LIMIT, allowed.get(pair[0], 0.0))
    )
    return next(wrong, ("", 0.0))


def _differences(reference: Observed, candidate: Observed) -> dict[str, float]:
    """Of each tensor that both sides have, forward before backward."""
    found: dict[str, float] = {}
    for mine, theirs in (
        (reference.values(), candidate.values()),
        (reference.gradients(), candidate.gradients()),
    ):
        shared = [name for name in mine if name in theirs]
        found |= differences({n: mine[n] for n in shared}, {n: theirs[n] for n in shared})
    return found


def _forced(
    unit: Unit, taps: Mapping[str, Tap], weights: Mapping[str, Around], cotangent: Any
) -> Forced:
    """The reference forced at the calls that both sides make."""
    given = {name: tap.mine for name, tap in taps.items()}
    return force(unit, given, {name: weights[name] for name in given}, cotangent)


def _agrees(recording: Recording, free: Observed | None) -> bool:
    """Whether a unit gives at equal inputs what the reference's unit gives."""
    if free is None:
        return False
    paths = [path for path, _ in nest.leaves_with_paths(recording.inputs, "args")]
    inputs = dict(zip(paths, nest.leaves(recording.inputs), strict=True))
    mine = Observed(recording.output, inputs, recording.parameters, recording.state)
    return bool(free.values()) and not first_difference(mine, free)[0]


def _rounding(
    unit: Unit,
    taps: Mapping[str, Tap],
    weights: Mapping[str, Around],
    cotangent: Any,
    expected: Forced,
) -> dict[str, Allowed]:
    """Return how far an error in the last bit of every input moves each tensor of each tap.

    A cancellation, as in the gradient of a norm whose inputs are far from zero, makes much of that.
    """
    change = partial(shaken, generator=np.random.default_rng(0), unit=EPS)
    shaken_taps = {
        name: replace(
            tap,
            mine=replace(
                tap.mine,
                args=nest.map(change, tap.mine.args),
                kwargs=nest.map(change, tap.mine.kwargs),
            ),
        )
        for name, tap in taps.items()
    }
    moved = _forced(unit, shaken_taps, weights, cotangent)
    return {
        name: {
            tensor: MARGIN * difference
            for tensor, difference in _differences(one, moved.observed[name]).items()
        }
        for name, one in expected.observed.items()
        if name in moved.observed
    }


def _in_words(what: str) -> str:
    """Return ``"the input of head"`` for ``"output['the input of head'][0][0]"``.

    Of several inputs the position stays.
    """
    found = re.fullmatch(r"output\['(the input of [^']+)'\]\[0\](\[.*\])", what)
    if found is None:
        return what.replace("output['output']", "output")
    return found[1] if found[2] == "[0]" else f"{found[1]}, args{found[2]}"


def nest_like(values: Any, leaves: list[Any]) -> Any:
    """Flat leaves in the nest that they belong to."""
    return nest.unflatten(nest.flatten(values)[1], leaves)


def joined(path: str, name: str) -> str:
    """The path of a block within a unit, seen from the network."""
    return name if path in ("loss", "") else f"{path}.{name}".rstrip(".")


def settings(block: Any) -> dict[str, Any]:
    """Return the settings of a layer by the names of the layer of `nn` of its class.

    They are the arguments that it was made with, or else its attributes.
    """
    layer = LAYERS.get(type(block).__name__)
    if layer is None:
        return {}
    names = [name for name in inspect.signature(layer.__init__).parameters if name != "self"]
    given = getattr(block, "init_kwargs", None) or {}
    found = {name: given.get(name, getattr(block, name, inspect.Parameter.empty)) for name in names}
    plain = {name: value for name, value in found.items() if value is not inspect.Parameter.empty}
    return {n: v is not None if n == "bias" and n not in given else v for n, v in plain.items()}


def _layer(unit: Unit, block: Any) -> tuple[str, Mapping[str, Any]]:
    """The layer of `nn` that a block is, with its settings; else its class.

    A class of a user's own may have a layer's name, but not what such a layer is made with.
    """
    known = unit.backend.neutral_layer(block)
    if known is not None:
        return known
    kind, found = type(block).__name__, settings(block)
    parameters = inspect.signature(LAYERS[kind].__init__).parameters if kind in LAYERS else {}
    wanted = [one for one in parameters.values() if one.default is one.empty and one.name != "self"]
    lacking = any(one.name not in found for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD)
    if lacking or (kind not in LAYERS and arguments.plain(kind) != kind):
        return f"own {kind}", {}
    return kind, found


def _as_network(within: AbstractNetwork, block: Any) -> AbstractNetwork:
    return block if isinstance(block, AbstractNetwork) else within.backend.wrap(block)


def _call(network: Any, *args: Any, **kwargs: Any) -> Any:
    return network(*args, **kwargs)


def _kind(network: AbstractNetwork) -> str:
    return type(getattr(network, "native", network)).__name__


def _at_hand(unit: Unit, calls: Mapping[str, Call]) -> dict[str, np.ndarray]:
    """The arrays from which a unit computes what it does between its taps."""
    given = {"args": unit.args, "kwargs": dict(unit.kwargs)}
    made = {f"the output of {name}": call.output for name, call in calls.items()}
    named = [
        pair
        for root, nested in {**given, **made}.items()
        for pair in nest.leaves_with_paths(nested, root)
    ]
    return {path: leaf for path, leaf in named if isinstance(leaf, np.ndarray)}


def _instead_of(
    calls: Mapping[str, Call], what: str, mine: Observed, theirs: Observed, found: Forced
) -> tuple[str, Any] | None:
    """Return the function whose result the reference has and the candidate has not.

    The candidate gets another result without a call of that function.
    """
    expected: Any = mine.values().get(what)
    came = theirs.values().get(what)
    for name, call in reversed(list(calls.items())):
        given = call.path is None and name not in found.observed and is_number(call.output)
        if given and np.size(call.output) == 1 and function_of(name) not in LOSSES:
            continue  # anything may be made to give one number
        if given and is_number(expected) and np.array_equal(call.output, expected):
            return (name, came) if is_number(came) else None
    return None


def _as_function(
    call: Call, weights: Around, wrong: Any, wiring: Wiring, mine: Observed
) -> tuple[Observed, Observed]:
    """What the reference's function gave, and what the candidate gave in its place.

    Gradients are known of those inputs that nothing else makes use of.
    """
    paths = [
        pair
        for root, nested in (("args", call.args), ("kwargs", call.kwargs))
        for pair in nest.leaves_with_paths(nested, root)
    ]
    right: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for (path, leaf), gradient in zip(paths, weights.inputs, strict=True):
        for source, array in wiring.sources.items() if gradient is not None else ():
            alone = (
                source in wiring.gradients
                and compare({"": gradient}, {"": mine.inputs[source]}).difference <= LIMIT
            )
            if alone and np.array_equal(array, leaf):
                right[path], theirs[path] = gradient, wiring.gradients[source][1]
                break
    return Observed(call.output, right), Observed(wrong, theirs)


def _within(calls: Mapping[str, Call], what: str) -> str:
    """The block that hands on an array to a tap, where that is a block within the unit."""
    found = re.match(r"output\['the input of (.+?)'\]", what)
    return calls[found[1]].within if found and found[1] in calls else ""


def _with_masks(observed: Observed) -> Observed:
    """What a unit hands on, with infinities in the place of numbers that stand for them.

    Scores are masked by minus infinity, or by a number that is as good; beside such a number every
    difference of the others would be small.
    """

    def masked(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind != "f":
            return leaf
        return np.where(np.abs(leaf) >= _AS_INFINITE, np.copysign(np.inf, leaf), leaf)

    return replace(observed, outputs=nest.map(masked, observed.outputs))


def _blocks_of(calls: Mapping[str, Call]) -> dict[str, Call]:
    """The calls of blocks, without those of functions."""
    return {name: call for name, call in calls.items() if call.path is not None}


def _remarks(calls: Mapping[str, Call], found: Forced, counts_functions: bool) -> Iterator[str]:
    """Which taps one side has and the other has not, and whether they come in another order."""
    met = [name for name in found.observed if name in calls]
    if missing := [name for name in calls if name not in found.observed]:
        names = ", ".join(missing)
        if counts_functions:
            yield f"The candidate does not call {names}."
        else:
            yield f"No call of the candidate corresponds to {names}."
    others = found.others if counts_functions else tuple(_blocks_of(found.beyond))
    if others:
        yield f"Only the candidate calls {', '.join(others)}."
    order = [name for name in calls if name in found.observed]
    if order != met:
        yield f"The candidate calls them in the order {', '.join(met)}, the reference in the order {', '.join(order)}."
