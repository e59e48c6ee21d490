"""Calls of the reference's that the candidate has no call for: what conventions may stand in for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import below, owner
from deliralike.conformance.explain import arguments, norms, shapes
from deliralike.conformance.explain.substitution import Substitute
from deliralike.conformance.findings import LIMIT, Observed, is_floating, is_number
from deliralike.conformance.kinds import Named, Tensors
from deliralike.conformance.locate.accusing import Suspect, accused, layer_of
from deliralike.conformance.locate.place import joined
from deliralike.conformance.locate.units import Forcing, Units
from deliralike.conformance.observe import Around, Call, Calls, Unit, handed_on
from deliralike.conformance.places import OUTPUT, TENSOR, UNIT, Quantity, Tap

Layer = tuple[str, Named]  # its class or function, and its settings
Follow = Callable[[Any], Tensors]  # from what a call gives to what its unit hands on

_ROOTS = {"sqrt": False, "rsqrt": True}  # and whether one is divided by the root
_MOMENTS = ("mean", "var")


def substitutes(
    units: Units, forcing: Forcing, mine: Observed, theirs: Observed
) -> Iterator[Substitute]:
    """The reference's calls that the candidate has no call for, and pieces that it may exchange.

    Args:
        units, forcing: The unit on both sides, and what both did at the reference's inputs.
        mine, theirs: What either side hands on.
    """
    lacking = _Lacking(units, forcing, _forward(mine), _forward(theirs))
    for name, call in forcing.calls.items():
        if name not in forcing.taps:
            yield from lacking.of_call(name, call)
    for tensor, value in _own_tensors(units.mine, forcing.calls):
        yield lacking.of_tensor(tensor, value)
    for names, together in _exchangeable(forcing.calls):
        yield lacking.of_pieces(names, together)


@dataclass(frozen=True)
class _Lacking:
    """What a unit's calls may be exchanged for.

    Attributes:
        mine, theirs: What either side's unit hands on, by words.
    """

    units: Units
    forcing: Forcing
    mine: Tensors
    theirs: Tensors

    def of_call(self, name: Tap, call: Call) -> Iterator[Substitute]:
        """A call by itself; a root also as that of a variance and an epsilon."""
        where = joined(self.units.path, call.within)

        def follow(output: Any) -> Tensors:
            return self._handed_on({name: output})

        if name.function in _ROOTS:
            variance = _variance(name, call, self.forcing)
            if variance is not None:
                eps, of = variance
                root = (norms.ROOT, {"eps": eps, "inverse": _ROOTS[name.function]})
                written = replace(call, args=(of,), kwargs={})
                yield self._standing(where, root, written, name, follow)
        layer: Layer = (name.function, {})
        if call.path is not None:
            where = joined(self.units.path, call.path)
            layer = layer_of(self.units.mine, self.units.blocks[call.path])
        elif not arguments.is_known(name.function):
            return
        yield self._standing(where, layer, call, name, follow)

    def of_tensor(self, name: str, value: np.ndarray) -> Substitute:
        """A tensor that the unit makes use of itself."""
        network = self.units.mine.network

        def follow(output: Any) -> Tensors:
            network.load_neutral_state({name: output}, strict=False)
            try:
                return self._handed_on({})
            finally:
                network.load_neutral_state({name: value}, strict=False)

        settings = {"words": name, "others": list(_in_its_place(value, self.forcing))}
        call = Call(None, (value,), {}, value)
        where = joined(self.units.path, owner(name))
        return self._standing(where, (TENSOR, settings), call, UNIT, follow)

    def of_pieces(self, names: Sequence[Tap], together: bool) -> Substitute:
        """The outputs of calls, which may be read in another order."""
        arrays = tuple(self.forcing.calls[name].output for name in names)
        shown = list(names) if together else [names[0].first]
        words = " and ".join(f"the output of {name}" for name in shown)
        layer = (shapes.PIECES, {"words": words, "together": together})
        call = Call(None, (arrays,), {}, arrays)

        def follow(outputs: Any) -> Tensors:
            return self._handed_on(dict(zip(names, outputs, strict=True)))

        return self._standing(self.units.path, layer, call, names[0], follow)

    def _handed_on(self, results: Mapping[Tap, Any]) -> Tensors:
        """What the reference hands on with other results of calls; nothing where it refuses them."""
        given = {name: tap.mine for name, tap in self.forcing.taps.items()}
        try:
            return _forward(handed_on(self.units.mine, given, results))
        except Exception:  # noqa: BLE001  # of a stranger's network, such as of sequences of no length
            return {}

    def _standing(
        self, path: str, layer: Layer, call: Call, name: Tap, follow: Follow
    ) -> Substitute:
        tap = self.units.correspondence.alone(name, call)
        parameters = _parameters(self.units.mine, call.path)
        pair = Observed(call.output, parameters=parameters), Observed()
        suspect = Suspect(name, tap, Around([], []), Quantity(OUTPUT), 0.0, pair)
        one = accused(self.units.mine, path, layer, suspect, weighted=False)
        which = _which(name, self.forcing.calls)
        return Substitute(one, follow, self.mine, self.theirs, which)


def _which(name: Tap, calls: Calls) -> str:
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
    order = list(forcing.calls)
    for one in reversed(order[: order.index(name)]):
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
    slots = below(path, unit.network.neutral_slots())
    return {name: None for name, slot in slots.items() if slot.is_parameter}


def _own_tensors(unit: Unit, calls: Calls) -> Iterator[tuple[str, np.ndarray]]:
    """The floating parameters and buffers of a unit that its calls do not hold."""
    called = tuple(f"{call.path}." for call in calls.values() if call.path)
    for name, slot in unit.network.neutral_slots().items():
        if slot.shape and not name.startswith(called):
            value = slot.read()
            if is_floating(value):
                yield name, value


def _in_its_place(value: np.ndarray, forcing: Forcing) -> Iterator[np.ndarray]:
    """Other arrays of a tensor's shape that the candidate makes or gives to its own calls."""
    for call in forcing.found.beyond.values():
        for leaf in nest.leaves((call.args, call.kwargs, call.output)):
            alike = is_number(leaf) and np.shape(leaf) == value.shape
            if alike and relative_difference(value, leaf) > LIMIT:
                yield np.asarray(leaf)


def _exchangeable(calls: Calls) -> Iterator[tuple[list[Tap], bool]]:
    """Calls whose features may be read in another order, and whether these are joined for that.

    Two or three calls of a kind that are given the same array and give the same shape may be one
    call to the candidate: a gate and a value, or queries, keys and values. Else all calls of a
    block are read alike.
    """
    products = [name for name, call in calls.items() if _is_product(name, call)]
    for count in (2, 3):
        for first, *others in itertools.combinations(products, count):
            if all(_are_twins(calls, first, other) for other in others):
                yield [first, *others], True
    blocks: dict[Tap, list[Tap]] = {}
    for name in reversed(products):  # halves are taken of what came last
        blocks.setdefault(name.first, []).insert(0, name)
    for names in blocks.values():
        yield names, False


def _are_twins(calls: Calls, first: Tap, second: Tap) -> bool:
    """Whether calls of one kind are given the same array and make the same shape of it."""
    one, other = calls[first], calls[second]
    if first.function != second.function or np.shape(one.output) != np.shape(other.output):
        return False
    return one.args[0] is other.args[0] or np.array_equal(one.args[0], other.args[0])


def _is_product(name: Tap, call: Call) -> bool:
    """Whether a call gives features that it makes of others."""
    is_followed = bool(call.path) or name.function in ("linear", "matmul", "conv")
    plain = is_number(call.output) and np.ndim(call.output) > 1
    return is_followed and plain and bool(call.args) and is_number(call.args[0])


def _forward(one: Observed) -> Tensors:
    """The results of the forward pass, by words."""
    return {str(name): value for name, value in one.values().items()}
