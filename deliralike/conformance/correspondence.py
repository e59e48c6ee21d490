"""Which block and tap of a candidate is which of the reference, and how its arrays are laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.findings import Observed
from deliralike.conformance.layouts import Layouts
from deliralike.conformance.matching import Match
from deliralike.conformance.taps import UNIT, Around, Call, Forced, Recording, Unit, force
from deliralike.network import AbstractNetwork


class Correspondence:
    """Two networks with the same names and layouts, as those written once are. Paths are those within a unit."""

    def tap(self, path: str) -> str | None:
        """The name of the tap that a call of a block of the reference is; None where the block is looked into."""
        return path or None

    def tap_of(self, path: str) -> str | None:
        """The same for a block of the candidate."""
        return path or None

    def within(self, path: str) -> Correspondence:
        """What corresponds to what within a block of the reference."""
        return self

    def block(self, candidate: AbstractNetwork, path: str) -> Any:
        """The candidate's block for one of the reference; None where there is none."""
        return dict(candidate.named_blocks()).get(path)

    def loss(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """A loss that gives its network inputs, and takes outputs, in the candidate's layout."""
        return loss

    def to_candidate(self, values: Any) -> Any:
        """A nest of arrays in the candidate's layouts."""
        return values

    def forced(self, unit: Unit, calls: Mapping[str, Call], weights: Mapping[str, Around], cotangent: Any) -> Forced:
        """`taps.force` on the candidate, in the names and layouts of the reference."""
        return force(unit, calls, weights, cotangent)

    def to_reference(self, recording: Recording) -> Recording:
        """What the candidate did, in the names and layouts of the reference."""
        return recording


SAME = Correspondence()


@dataclass(frozen=True)
class Matched(Correspondence):
    """Networks whose names and layouts differ.

    Arguments and results of blocks are in the candidate's layout. Those of functions of `nn` are not, which want
    PyTorch's everywhere, and neither is what a loss gets, which sees the candidate as if it had the reference's layout.

    Attributes:
        match: Of the tensors' and blocks' names.
        layouts: The order of the candidate's axes for each number of axes, in what goes into it and comes out of it.
        inner: The same for the blocks within it; `layouts` when None.
        inside: The unit's path in the reference, and in the candidate; None for the loss.
    """

    match: Match
    layouts: Layouts = field(default_factory=Layouts)
    inner: Layouts | None = None
    inside: tuple[str, str] | None = None

    def tap(self, path: str) -> str | None:
        """As in `Correspondence`."""
        return path if path and _join(self._inside[0], path) in self.match.blocks else None

    def tap_of(self, path: str) -> str | None:
        """As in `Correspondence`."""
        return self._names().get(path) if path else None

    def within(self, path: str) -> Matched:
        """As in `Correspondence`."""
        inside = _join(self._inside[0], path)
        return replace(self, inside=(inside, self.match.blocks[inside]))

    def block(self, candidate: AbstractNetwork, path: str) -> Any:
        """As in `Correspondence`."""
        partner = self.match.blocks.get(_join(self._inside[0], path))
        start = f"{self._inside[1]}." if self._inside[1] else ""
        if partner is None or not partner.startswith(start):
            return None
        return dict(candidate.named_blocks()).get(partner.removeprefix(start))

    def loss(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """As in `Correspondence`."""
        return lambda network, *batch: loss(_Seen(network, self.layouts), *batch)

    def to_candidate(self, values: Any) -> Any:
        """As in `Correspondence`."""
        return _all_turned(values, self._around, back=True)

    def forced(self, unit: Unit, calls: Mapping[str, Call], weights: Mapping[str, Around], cotangent: Any) -> Forced:
        """As in `Correspondence`."""
        given, weighing = {}, {}
        for name, call in calls.items():
            there = partial(_all_turned, layouts=self._of_tap(name), back=True)
            given[name] = Call(call.path, *there((call.args, call.kwargs, call.output)), call.same)
            weighing[name] = Around(*there((weights[name].inputs, weights[name].output)))
        found = force(unit, given, weighing, self.to_candidate(cotangent))
        return replace(found, observed={name: self._observed(name, one) for name, one in found.observed.items()})

    def to_reference(self, recording: Recording) -> Recording:
        """As in `Correspondence`; of a recording of the whole network."""
        names = {b: a for a, b in self.match.blocks.items()}
        calls = {}
        for name, call in recording.calls.items():
            path, number, count = name.partition("#")
            if path in names:
                layouts = self._inner if path else self.layouts
                calls[f"{names[path]}{number}{count}"] = replace(call, output=_all_turned(call.output, layouts))
        return Recording(
            recording.output,
            calls,
            self.match.to_reference(recording.parameters, gradients=True),
            recording.inputs,  # of the loss, which takes them in the reference's layout
            self.match.to_reference(recording.state),
        )

    @property
    def _inside(self) -> tuple[str, str]:
        return self.inside or ("", "")

    @property
    def _inner(self) -> Layouts:
        return self.layouts if self.inner is None else self.inner

    @property
    def _around(self) -> Layouts:
        """The layouts of what goes into the unit and comes out of it."""
        if self.inside is None:
            return _PLAIN
        return self.layouts if self.inside == ("", "") else self._inner

    def _of_tap(self, name: str) -> Layouts:
        """The layouts of a tap's arguments and output."""
        if name.partition("#")[0].endswith("()"):
            return _PLAIN
        return self.layouts if self.inside is None else self._inner

    def _names(self) -> dict[str, str]:
        """The path in the reference by the path in the candidate, both within the unit."""
        mine, theirs = (f"{path}." if path else "" for path in self._inside)
        pairs = ((a, b) for a, b in self.match.blocks.items() if a.startswith(mine) and b.startswith(theirs))
        return {b.removeprefix(theirs): a.removeprefix(mine) for a, b in pairs}

    def _observed(self, name: str, one: Observed) -> Observed:
        inside = _join(self._inside[0], name.partition("#")[0])
        around = (inside, self.match.blocks[inside]) if inside in self.match.blocks else self._inside
        return replace(
            one,
            outputs=self._between(one.outputs) if name == UNIT else _all_turned(one.outputs, self._of_tap(name)),
            inputs=self._between(one.inputs) if name == UNIT else _all_turned(dict(one.inputs), self._of_tap(name)),
            parameters=self._below(around, one.parameters, gradients=True),
            state=self._below(around, one.state),
        )

    def _between(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What a unit computes between its taps, of which each array is laid out as that of the tap beside it."""
        return {what: _all_turned(value, self._beside(what)) for what, value in values.items()}

    def _beside(self, what: str) -> Layouts:
        _, of, tap = what.partition("put of ")  # "the input of", "the output of"
        return self._of_tap(tap) if of else self._around

    def _below(self, around: tuple[str, str], named: Mapping[str, Any], gradients: bool = False) -> dict[str, Any]:
        """Tensors by the candidate's names within a block, by those of the reference."""
        found = self.match.to_reference({_join(around[1], n): value for n, value in named.items()}, gradients)
        start = f"{around[0]}." if around[0] else ""
        return {n.removeprefix(start): value for n, value in found.items() if n.startswith(start)}


_PLAIN = Layouts()


def _all_turned(values: Any, layouts: Layouts, back: bool = False) -> Any:
    """A nest in the reference's layout; back, in the candidate's."""
    return nest.map(lambda leaf: _turned(leaf, layouts, back), values)


def _turned(leaf: Any, layouts: Layouts, back: bool) -> Any:
    order = _order(layouts, np.ndim(leaf)) if isinstance(leaf, np.ndarray) else None
    return leaf if order is None else np.ascontiguousarray(np.transpose(leaf, np.argsort(order) if back else order))


def _order(layouts: Layouts, axes: int) -> tuple[int, ...] | None:
    return next(iter(layouts.seen.get(axes, ())), None)


class _Seen:
    """A network in another layout, as a loss sees it."""

    def __init__(self, network: AbstractNetwork, layouts: Layouts) -> None:
        self._network, self._layouts = network, layouts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = nest.map(lambda leaf: self._permuted(leaf, back=True), (args, kwargs))
        return nest.map(self._permuted, self._network(*args, **kwargs))

    def _permuted(self, leaf: Any, back: bool = False) -> Any:
        order = _order(self._layouts, len(leaf.shape)) if self._network.backend.is_array(leaf) else None
        if order is None:
            return leaf
        return self._network.backend.nn.permute(leaf, tuple(np.argsort(order)) if back else order)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")
