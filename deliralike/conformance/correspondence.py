"""Which block and tap of a candidate is which of the reference, and how its arrays are laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.native_calls import LAID_OUT
from deliralike.conformance.findings import Observed
from deliralike.conformance.listening import Listener
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.layouts import Layouts, Transform
from deliralike.conformance.taps import UNIT, Around, Call, Forced, Recording, Unit, force
from deliralike.network.base import AbstractNetwork


class Correspondence:
    """Two networks with equal names and layouts, as those written once have.

    Paths are within a unit.
    """

    def tap(self, path: str) -> str | None:
        """Return the name of a block's tap; None where the block is looked into instead."""
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

    def forced(
        self, unit: Unit, calls: Mapping[str, Call], weights: Mapping[str, Around], cotangent: Any
    ) -> Forced:
        """`taps.force` on the candidate, in the names and layouts of the reference."""
        return force(unit, calls, weights, cotangent)

    def to_reference(self, recording: Recording) -> Recording:
        """What the candidate did, in the names and layouts of the reference."""
        return recording


SAME = Correspondence()


@dataclass(frozen=True)
class Matched(Correspondence):
    """Networks whose names and layouts differ.

    Arguments and results of blocks and functions are in the candidate's layout. Those of functions
    that a backend turns into the layout of `nn` are not, and neither is what a loss gets, which
    sees the candidate as if it had the reference's layout.

    Attributes:
        match: Of the tensors' and blocks' names.
        layouts: The order of the candidate's axes for each number of axes, in what goes into it and
            comes out of it.
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
        seen = partial(_Seen, layouts=self.layouts)

        def of_seen(network: Any, *batch: Any) -> Any:
            return loss(
                network.through(seen) if isinstance(network, Listener) else seen(network), *batch
            )

        return of_seen

    def to_candidate(self, values: Any) -> Any:
        """As in `Correspondence`."""
        return _Way(self._around).there(values)

    def forced(
        self, unit: Unit, calls: Mapping[str, Call], weights: Mapping[str, Around], cotangent: Any
    ) -> Forced:
        """As in `Correspondence`."""
        given, weighing = {}, {}
        for name, call in calls.items():
            into, out = self._into(name), self._out_of(name)
            args, kwargs = into.there((call.args, call.kwargs))
            given[name] = replace(call, args=args, kwargs=kwargs, output=out.there(call.output))
            weighing[name] = Around(
                into.there(weights[name].inputs), out.there(weights[name].output)
            )
        found = force(unit, given, weighing, self.to_candidate(cotangent))
        observed = {name: self._observed(name, one, given) for name, one in found.observed.items()}
        return replace(found, observed=observed)

    def to_reference(self, recording: Recording) -> Recording:
        """As in `Correspondence`; of a recording of the whole network."""
        names = {b: a for a, b in self.match.blocks.items()}
        calls = {}
        for name, call in recording.calls.items():
            path, number, count = name.partition("#")
            if path in names:
                columns = _columns(self.match, names[path], of_inputs=False)
                way = _Way(self._inner, columns) if path else _Way(self.layouts)
                calls[f"{names[path]}{number}{count}"] = replace(call, output=way.back(call.output))
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
        function, is_function, _ = name.partition("()")
        if is_function and (self.inside is None or function in LAID_OUT):
            return _PLAIN
        return self.layouts if self.inside is None else self._inner

    def _names(self) -> dict[str, str]:
        """The path in the reference by the path in the candidate, both within the unit."""
        mine, theirs = (f"{path}." if path else "" for path in self._inside)
        pairs = (
            (a, b)
            for a, b in self.match.blocks.items()
            if a.startswith(mine) and b.startswith(theirs)
        )
        return {b.removeprefix(theirs): a.removeprefix(mine) for a, b in pairs}

    def _into(self, name: str) -> _Way:
        """How a tap's arguments are laid out."""
        path = _join(self._inside[0], name.partition("#")[0])
        return _Way(self._of_tap(name), _columns(self.match, path))

    def _out_of(self, name: str) -> _Way:
        """How a tap's output is laid out."""
        path = _join(self._inside[0], name.partition("#")[0])
        return _Way(self._of_tap(name), _columns(self.match, path, of_inputs=False))

    def _observed(self, name: str, one: Observed, given: Mapping[str, Call]) -> Observed:
        inside = _join(self._inside[0], name.partition("#")[0])
        around = (
            (inside, self.match.blocks[inside]) if inside in self.match.blocks else self._inside
        )
        if name == UNIT:
            outputs: Any = {
                what: self._between(what, value, given) for what, value in one.outputs.items()
            }
            inputs = {what: self._between(what, value, given) for what, value in one.inputs.items()}
        else:
            outputs, inputs = (
                self._out_of(name).back(one.outputs),
                self._into(name).back(dict(one.inputs)),
            )
        parameters = self._below(around, one.parameters, gradients=True)
        return Observed(outputs, inputs, parameters, self._below(around, one.state))

    def _between(self, what: str, value: Any, given: Mapping[str, Call]) -> Any:
        """Return a value that a unit computes between its taps, in the reference's layout.

        It is the input of a tap, the output of one, or the unit's own output.
        """
        if (name := what.removeprefix("the input of ")) != what:
            return self._into(name).back(_shaped(value, (given[name].args, given[name].kwargs)))
        tap = what.removeprefix("the output of ")
        return (_Way(self._around) if tap == what else self._out_of(tap)).back(value)

    def _below(
        self, around: tuple[str, str], named: Mapping[str, Any], gradients: bool = False
    ) -> dict[str, Any]:
        """Tensors by the candidate's names within a block, by those of the reference."""
        found = self.match.to_reference(
            {_join(around[1], n): value for n, value in named.items()}, gradients
        )
        start = f"{around[0]}." if around[0] else ""
        return {n.removeprefix(start): value for n, value in found.items() if n.startswith(start)}


_PLAIN = Layouts()


@dataclass(frozen=True)
class _Way:
    """From the reference's layout to the candidate's, and back.

    Attributes:
        layouts: The order of the axes.
        columns: By their number, the order of the columns of matrices that are flattened pictures.
    """

    layouts: Layouts
    columns: Mapping[int, Transform] = field(default_factory=dict)

    def there(self, values: Any) -> Any:
        """A nest in the candidate's layout."""
        return nest.map(
            lambda leaf: self._moved(leaf, back=False) if isinstance(leaf, np.ndarray) else leaf,
            values,
        )

    def back(self, values: Any) -> Any:
        """A nest in the reference's layout."""
        return nest.map(
            lambda leaf: self._moved(leaf, back=True) if isinstance(leaf, np.ndarray) else leaf,
            values,
        )

    def _moved(self, array: np.ndarray, back: bool) -> np.ndarray:
        if array.ndim == 2 and (columns := self.columns.get(array.shape[1])) is not None:
            shapes = (
                (len(array), *shape[1:]) for shape in (columns.start, columns.split, columns.end)
            )
            start, split, end = shapes
            order = Transform(start, split, columns.axes, end)
            return order.invert(array) if back else order.apply(array)
        axes = _order(self.layouts, array.ndim)
        if axes is None:
            return array
        return np.ascontiguousarray(np.transpose(array, axes if back else np.argsort(axes)))


def _columns(match: Match, path: str, of_inputs: bool = True) -> Mapping[int, Transform]:
    """Return how columns are reordered around a block where the sides flatten pictures differently.

    It shows in the weight of the layer that follows. A block without weights gives back what it
    got.
    """
    found = {}
    for pair in match.names:
        owner, _, name = pair.reference[0].source.rpartition(".")
        flat = len(pair.transform.start) == len(
            pair.transform.end
        ) == 2 and pair.transform.axes == (0, 2, 1)
        if pair.straight and name == "weight" and flat:
            found[owner] = pair.transform
    if any(unit.source.startswith(f"{path}.") for pair in match.names for unit in pair.reference):
        found = {owner: order for owner, order in found.items() if owner == path and of_inputs}
    return {order.start[1]: order for order in found.values()}


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
        return nest.map(self._permuted, self._network(*args, **kwargs))  # type: ignore[operator]

    def _permuted(self, leaf: Any, back: bool = False) -> Any:
        order = (
            _order(self._layouts, len(leaf.shape)) if self._network.backend.is_array(leaf) else None
        )
        if order is None:
            return leaf
        return self._network.backend.nn.permute(leaf, tuple(np.argsort(order)) if back else order)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")
