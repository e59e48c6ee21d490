"""Which block, tap and array of a candidate is which of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from deliralike import nest
from deliralike.conformance.findings import Observed
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.aligning import Alignment, Orders, align, plain
from deliralike.conformance.seen import Layout
from deliralike.conformance.taps import (
    UNIT,
    Around,
    Call,
    Forced,
    Recording,
    Unit,
    force,
    function_of,
    listen,
    record,
)
from deliralike.network.base import AbstractNetwork


@dataclass(frozen=True)
class Tap:
    """A call that both sides make, and how the arrays of the one lie in those of the other.

    Attributes:
        name: The candidate's name of the tap.
        mine, theirs: The reference's call and the candidate's, which ran freely.
        inputs, output: Of the arguments ``(args, kwargs)`` and of the result.
    """

    name: str
    mine: Call
    theirs: Call
    inputs: Alignment
    output: Alignment

    @property
    def given(self) -> Call:
        """The candidate's call with the reference's arrays."""
        args, kwargs = self.inputs.there(
            (self.mine.args, self.mine.kwargs), (self.theirs.args, self.theirs.kwargs)
        )
        output = self.output.there(self.mine.output, self.theirs.output)
        return replace(self.theirs, args=args, kwargs=kwargs, output=output)

    def weights(self, around: Around) -> Around:
        """Cotangents of the reference's arrays as those of the candidate's."""
        into = nest.leaves((self.theirs.args, self.theirs.kwargs))
        output = nest.leaves(self.theirs.output)
        return Around(
            self.inputs.numbers_there(around.inputs, len(into)),
            self.output.numbers_there(around.output, len(output)),
        )


@dataclass(frozen=True)
class Counterpart:
    """What the candidate's unit does at the reference's inputs.

    Attributes:
        taps: The calls that both sides make, by the reference's names.
        free: What the whole unit gave, in the reference's names and layouts; None where it was not
            run.
        opened: Paths of the reference's blocks that the candidate has, but does not call: it calls
            those within them, as those of a list.
    """

    taps: Mapping[str, Tap]
    free: Observed | None = None
    opened: frozenset[str] = frozenset()


class Correspondence:
    """Two networks with equal names and layouts, as those written once have.

    Paths are within a unit.

    Attributes:
        counts_functions: Whether a function that one side alone calls is a difference: other code
            may write out what a function does.
    """

    counts_functions: ClassVar[bool] = True

    def tap(self, path: str) -> str | None:
        """Return the name of a block's tap; None where the block is looked into instead."""
        return path or None

    def tap_of(self, path: str) -> str | None:
        """The same for a block of the candidate."""
        return path or None

    def within(self, path: str, tap: Tap | None = None) -> Correspondence:
        """What corresponds to what within a block of the reference, which was called so."""
        return self

    def block(self, candidate: AbstractNetwork, path: str) -> Any:
        """The candidate's block for one of the reference; None where there is none."""
        return dict(candidate.named_blocks()).get(path)

    def loss(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """A loss that gives its network inputs, and takes outputs, in the candidate's layout."""
        return loss

    def counterpart(self, calls: Mapping[str, Call], other: Unit, cotangent: Any) -> Counterpart:
        """The calls of the reference's unit that the candidate's unit makes too.

        Raises:
            Exception: What the candidate raises.
        """
        return Counterpart({name: self.alone(name, call) for name, call in calls.items()})

    def more(
        self,
        calls: Mapping[str, Call],
        taps: Mapping[str, Tap],
        beyond: Mapping[str, Call],
        wrong: Callable[[str], bool],
    ) -> dict[str, Tap]:
        """More functions that both sides call, seen where what precedes them was forced.

        Args:
            calls: The reference's.
            taps: Those that were forced.
            beyond: What else the candidate called meanwhile.
            wrong: Whether what follows a call of the reference is given something else.
        """
        return {}

    def alone(self, name: str, call: Call) -> Tap:
        """A call of the reference's, taken for one that the candidate makes in the same way."""
        return Tap(name, call, call, plain((call.args, call.kwargs)), plain(call.output))

    def forced(
        self, unit: Unit, taps: Mapping[str, Tap], weights: Mapping[str, Around], cotangent: Any
    ) -> Forced:
        """`taps.force` on the candidate, in the names and layouts of the reference."""
        return force(unit, {name: tap.mine for name, tap in taps.items()}, weights, cotangent)

    def to_reference(self, recording: Recording, reference: Recording) -> Recording:
        """What the candidate did, in the names and layouts of the reference."""
        return recording

    def is_input(self, path: str) -> bool:
        """Whether an argument of the loss goes into the network; all others are targets."""
        return True

    def unmatched(
        self, reference: Mapping[str, Any], candidate: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Gradients of the parameters that one side alone has."""
        return {}


SAME = Correspondence()


# Functions that stand for no step of their own, so that namesakes need not be the same one.
_ELEMENTARY = frozenset(
    [
        "abs",
        "clip",
        "concatenate",
        "cos",
        "erf",
        "exp",
        "log",
        "matmul",
        "max",
        "mean",
        "min",
        "pad",
        "prod",
        "select",
        "sin",
        "sqrt",
        "stack",
        "sum",
        "tril",
        "triu",
        "var",
        "where",
    ]
)


@dataclass(frozen=True)
class Matched(Correspondence):
    """Networks whose names, layouts or signatures differ, such as a port and its original.

    Attributes:
        match: Of the tensors' and blocks' names.
        layout: How the network as a whole is seen by the loss.
        inside: The unit's path in the reference, and in the candidate; None for the loss.
        around: How the unit was called; None for the loss.
        orders: The candidate's layouts, as far as they were seen.
    """

    counts_functions: ClassVar[bool] = False

    match: Match
    layout: Layout = field(default_factory=Layout)
    inside: tuple[str, str] | None = None
    around: Tap | None = None
    orders: Orders = field(default_factory=Orders)

    def tap(self, path: str) -> str | None:
        """As in `Correspondence`."""
        return path if path and _join(self._inside[0], path) in self.match.blocks else None

    def tap_of(self, path: str) -> str | None:
        """As in `Correspondence`."""
        return self._names().get(path) if path else None

    def within(self, path: str, tap: Tap | None = None) -> Matched:
        """As in `Correspondence`."""
        inside = _join(self._inside[0], path)
        return replace(self, inside=(inside, self.match.blocks[inside]), around=tap)

    def block(self, candidate: AbstractNetwork, path: str) -> Any:
        """As in `Correspondence`."""
        partner = self.match.blocks.get(_join(self._inside[0], path))
        start = f"{self._inside[1]}." if self._inside[1] else ""
        if partner is None or not partner.startswith(start):
            return None
        return dict(candidate.named_blocks()).get(partner.removeprefix(start))

    def loss(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """As in `Correspondence`."""
        return self.layout.loss(loss)

    def counterpart(self, calls: Mapping[str, Call], other: Unit, cotangent: Any) -> Counterpart:
        """As in `Correspondence`: those whose arguments and results are found in the candidate's.

        Where it raises, what follows is taken to be called as the reference calls it.
        """
        try:
            free = record(other, self._cotangent(cotangent))
        except Exception:  # noqa: BLE001
            own = listen(other)
            return Counterpart(dict(self._guessed(calls, own)))
        taps = dict(self._shared(calls, free.calls))
        left = {call.path for name, call in calls.items() if name not in taps and call.path}
        opened = {path for path in left if any(name.startswith(f"{path}.") for name in free.calls)}
        return Counterpart(taps, self._free(free), frozenset(opened - set(free.calls)))

    def _shared(
        self, calls: Mapping[str, Call], own: Mapping[str, Call]
    ) -> Iterator[tuple[str, Tap]]:
        """The calls of which the candidate makes one with the same arrays."""
        free = [name for name, call in own.items() if call.path is None]
        for name, call in calls.items():
            if call.path is not None:
                tap = self._tap(name, call, own.get(name))
            else:
                tap = self._function(name, call, own, free)
            if tap is not None:
                yield name, tap

    def more(
        self,
        calls: Mapping[str, Call],
        taps: Mapping[str, Tap],
        beyond: Mapping[str, Call],
        wrong: Callable[[str], bool],
    ) -> dict[str, Tap]:
        """As in `Correspondence`: those with the same arrays.

        Where there are none, the first one that has a namesake is taken for it, if there are as
        many of that name on both sides, and what follows it is wrong.
        """
        left = {n: c for n, c in calls.items() if c.path is None and n not in taps}
        own = {name: call for name, call in beyond.items() if call.path is None}
        found = dict(self._shared(left, own))
        if found:
            return found
        for name, call in left.items():
            if function_of(name) in _ELEMENTARY or self._is_made(call, own):
                continue  # other code may put it together in another way, and rightly so
            namesakes = [other for other in own if function_of(other) == function_of(name)]
            count = sum(function_of(other) == function_of(name) for other in left)
            if len(namesakes) == count and wrong(name):
                tap = self._tap(namesakes[0], call, own[namesakes[0]])
                return {} if tap is None else {name: tap}
        return {}

    def _is_made(self, call: Call, own: Mapping[str, Call]) -> bool:
        """Whether some call of the candidate gives what a call of the reference gives."""
        found = (align(call.output, one.output, self.orders) for one in own.values())
        return any(one.leaves and one.by_value for one in found)

    def _guessed(
        self, calls: Mapping[str, Call], own: Mapping[str, Call]
    ) -> Iterator[tuple[str, Tap]]:
        """The same of a candidate that raises: the blocks that follow are called as usual."""
        shared = dict(self._shared(calls, own))
        for name, call in calls.items():
            if name in shared:
                yield name, shared[name]
            elif call.path is not None:
                yield name, self._turned(name, call, own.get(name))

    def _tap(
        self, name: str, call: Call, theirs: Call | None, of_any_size: bool = False
    ) -> Tap | None:
        """The candidate's call of a block, if it holds what the reference's does.

        Args:
            name: The candidate's.
            call, theirs: Of both sides.
            of_any_size: Whether the result may have another size.
        """
        if theirs is None:
            return None
        inputs = align((call.args, call.kwargs), (theirs.args, theirs.kwargs), self.orders)
        output = align(call.output, theirs.output, self.orders)
        if not inputs.complete or not (output.leaves or of_any_size):
            return None
        return Tap(name, call, theirs, inputs, output)

    def _function(
        self, name: str, call: Call, own: Mapping[str, Call], free: list[str]
    ) -> Tap | None:
        """The candidate's call of a function with the same arrays."""
        for other in free:
            if function_of(other) == function_of(name):
                tap = self._tap(other, call, own[other], function_of(name) in _WINDOWS)
                if tap is not None and tap.inputs.leaves and tap.inputs.by_value:
                    free.remove(other)
                    return tap
        return None

    def _turned(self, name: str, call: Call, raising: Call | None) -> Tap:
        """The candidate's call of a tap, guessed from the layouts that were seen.

        Where the candidate raises in that call, its arguments say whether they are flattened.
        """
        given = [] if raising is None else nest.leaves((raising.args, raising.kwargs))
        flat = any(isinstance(leaf, np.ndarray) and leaf.ndim == 2 for leaf in given)

        def turned(leaf: Any) -> Any:
            return self.orders.turned(leaf) if isinstance(leaf, np.ndarray) else leaf

        def into(leaf: Any) -> Any:
            array = turned(leaf)
            is_picture = isinstance(array, np.ndarray) and array.ndim > 2
            return array.reshape(len(array), -1) if flat and is_picture else array

        args, kwargs = nest.map(into, (call.args, call.kwargs))
        output = nest.map(turned, call.output)
        theirs = replace(call, args=args, kwargs=kwargs, output=output)
        inputs = align((call.args, call.kwargs), (args, kwargs), self.orders)
        return Tap(name, call, theirs, inputs, align(call.output, output, self.orders))

    def _free(self, recording: Recording) -> Observed | None:
        """What the unit did by itself, in the names and layouts of the reference."""
        if self.around is None:
            return None
        paths = _paths({"args": self.around.theirs.args})
        gradients = dict(zip(paths, nest.leaves(recording.inputs), strict=False))
        sources = [(self.around.inputs, _roots(self.around.mine), _roots(self.around.theirs))]
        return Observed(
            self.around.output.back(recording.output, self.around.mine.output),
            _named_as(gradients, sources),
            self._below(self._inside, recording.parameters, gradients=True),
            self._below(self._inside, recording.state),
        )

    def forced(
        self, unit: Unit, taps: Mapping[str, Tap], weights: Mapping[str, Around], cotangent: Any
    ) -> Forced:
        """As in `Correspondence`."""
        given = {tap.name: tap.given for tap in taps.values()}
        weighing = {tap.name: tap.weights(weights[name]) for name, tap in taps.items()}
        found = force(unit, given, weighing, self._cotangent(cotangent))
        names = {tap.name: name for name, tap in taps.items()} | {UNIT: UNIT}
        observed = {
            names[name]: self._observed(names[name], one, taps)
            for name, one in found.observed.items()
        }
        return replace(found, observed=observed)

    def to_reference(self, recording: Recording, reference: Recording) -> Recording:
        """As in `Correspondence`; of a recording of the whole network."""
        names = {b: a for a, b in self.match.blocks.items()}
        calls = {}
        for name, call in recording.calls.items():
            path, number, count = name.partition("#")
            own = f"{names.get(path, path)}{number}{count}"
            if path in names and own in reference.calls:
                calls[own] = replace(
                    call, output=self._like(call.output, reference.calls[own].output)
                )
        return Recording(
            recording.output,
            calls,
            self.match.to_reference(recording.parameters, gradients=True),
            recording.inputs,  # of the loss, which takes them in the reference's layout
            self.match.to_reference(recording.state),
        )

    def is_input(self, path: str) -> bool:
        """As in `Correspondence`."""
        return not self.layout.given or path in self.layout.given

    def unmatched(
        self, reference: Mapping[str, Any], candidate: Mapping[str, Any]
    ) -> dict[str, Any]:
        """As in `Correspondence`."""
        mine = {name: reference.get(name) for name in self.match.missing}
        theirs = {name: candidate.get(name) for name in self.match.unexpected}
        found = {**mine, **theirs}
        return {name: value for name, value in found.items() if value is not None}

    def _like(self, output: Any, reference: Any) -> Any:
        alignment = align(reference, output, self.orders)
        return alignment.back(output, reference) if alignment.leaves else output

    @property
    def _inside(self) -> tuple[str, str]:
        return self.inside or ("", "")

    def _cotangent(self, cotangent: Any) -> Any:
        """The cotangent of the unit's output in the candidate's layout."""
        if cotangent is None or self.around is None:
            return cotangent
        leaves, structure = nest.flatten(self.around.theirs.output)
        moved = self.around.output.numbers_there(nest.leaves(cotangent), len(leaves))
        return nest.unflatten(structure, moved)

    def _names(self) -> dict[str, str]:
        """The path in the reference by the path in the candidate, both within the unit."""
        mine, theirs = (f"{path}." if path else "" for path in self._inside)
        return {
            b.removeprefix(theirs): a.removeprefix(mine)
            for a, b in self.match.blocks.items()
            if a.startswith(mine) and b.startswith(theirs)
        }

    def _observed(self, name: str, one: Observed, taps: Mapping[str, Tap]) -> Observed:
        if name == UNIT:
            inside = self._inside
            outputs = self._between(one.outputs, taps)
            inputs = _named_as(one.inputs, self._sources(taps))
            if self.around is None:
                inputs = {
                    path: value
                    for path, value in inputs.items()
                    if not path.startswith("args") or self.is_input(path)
                }
        else:
            tap, path = taps[name], _join(self._inside[0], name.partition("#")[0])
            inside = (path, self.match.blocks[path]) if path in self.match.blocks else self._inside
            outputs = one.outputs
            if tap.output.leaves:
                outputs = tap.output.back(one.outputs, tap.mine.output)
            inputs = _named_as(one.inputs, [(tap.inputs, _roots(tap.mine), _roots(tap.theirs))])
        parameters = self._below(inside, one.parameters, gradients=True)
        return Observed(outputs, inputs, parameters, self._below(inside, one.state))

    def _between(self, outputs: Mapping[str, Any], taps: Mapping[str, Tap]) -> dict[str, Any]:
        """What a unit computes between its taps: the inputs of taps, and its own output."""
        found = {}
        start = "the input of "
        own = {f"{start}{tap.name}": name for name, tap in taps.items()}
        for what, value in outputs.items():
            if what in own:
                tap = taps[own[what]]
                what = f"{start}{own[what]}"
                like = (tap.mine.args, tap.mine.kwargs)
                found[what] = tap.inputs.back(
                    _shaped(value, (tap.theirs.args, tap.theirs.kwargs)), like
                )
            elif self.around is not None:
                found[what] = self.around.output.back(value, self.around.mine.output)
            else:
                found[what] = value
        return found

    def _sources(self, taps: Mapping[str, Tap]) -> list[_Source]:
        """The arrays from which a unit computes: its arguments, and the outputs of its taps."""
        found: list[_Source] = []
        if self.around is not None:
            found.append((self.around.inputs, _roots(self.around.mine), _roots(self.around.theirs)))
        for name, tap in taps.items():
            mine, theirs = (f"the output of {each}" for each in (name, tap.name))
            found.append((tap.output, {mine: tap.mine.output}, {theirs: tap.theirs.output}))
        return found

    def _below(
        self, around: tuple[str, str], named: Mapping[str, Any], gradients: bool = False
    ) -> dict[str, Any]:
        """Tensors by the candidate's names within a block, by those of the reference."""
        found = self.match.to_reference(
            {_join(around[1], n): value for n, value in named.items()}, gradients
        )
        start = f"{around[0]}." if around[0] else ""
        return {n.removeprefix(start): value for n, value in found.items() if n.startswith(start)}


_Source = tuple[Alignment, Mapping[str, Any], Mapping[str, Any]]


# Functions whose settings say how large the result is: they are the same with other settings.
_WINDOWS = frozenset({"avg_pool", "conv", "conv_transpose", "interpolate", "max_pool"})


def _roots(call: Call) -> dict[str, Any]:
    return {"args": call.args, "kwargs": dict(call.kwargs)}


def _named_as(
    gradients: Mapping[str, np.ndarray | None], sources: Sequence[_Source]
) -> dict[str, np.ndarray | None]:
    """Gradients by the candidate's paths of arrays, by those of the reference.

    Those of the loss's own arguments, which are of no source, keep their names.
    """
    known = {path for source in sources for path in _paths(source[2])}
    found = {path: value for path, value in gradients.items() if path not in known}
    for alignment, mine, theirs in sources:
        names, others = _paths(mine), _paths(theirs)
        for leaf in alignment.leaves:
            value = gradients.get(others[leaf.theirs])
            first = others[leaf.theirs] in gradients and not any(
                earlier.theirs == leaf.theirs and earlier.mine < leaf.mine
                for earlier in alignment.leaves
            )
            if first:
                found[names[leaf.mine]] = None if value is None else leaf.transform.invert(value)
    return found


def _paths(roots: Mapping[str, Any]) -> list[str]:
    return [
        path for root, nested in roots.items() for path, _ in nest.leaves_with_paths(nested, root)
    ]


def _shaped(values: Any, likes: Any) -> Any:
    """Return a nest whose arrays have the shapes of another nest's arrays.

    Only arrays with as many elements on other axes are reshaped.
    """
    leaves, structure = nest.flatten(values)
    wanted = nest.leaves(likes)
    if len(leaves) != len(wanted):
        return values

    def shaped(leaf: Any, like: Any) -> Any:
        fits = (
            isinstance(leaf, np.ndarray) and isinstance(like, np.ndarray) and leaf.size == like.size
        )
        return leaf.reshape(like.shape) if fits and leaf.ndim != like.ndim else leaf

    return nest.unflatten(structure, [shaped(*pair) for pair in zip(leaves, wanted, strict=True)])


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")
