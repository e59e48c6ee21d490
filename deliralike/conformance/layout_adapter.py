"""A candidate as a loss sees it: with the inputs and outputs of the reference's layout."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import LIMIT, arrays_in, is_array
from deliralike.conformance.kinds import Axes, Batch, Function
from deliralike.conformance.loss_tracing import InPlace, Stopping
from deliralike.conformance.matching.aligning import Alignment, Orders, align
from deliralike.conformance.subject import Subject, with_changed_function
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import value_of
from deliralike.weights.matching.distance import order_free
from deliralike.weights.matching.layouts import Transform, channels_first


@dataclass
class Layout:
    """How a candidate wants its inputs, and how its outputs lie.

    Attributes:
        inputs: The order of the reference's axes in the candidate, by the number of axes.
        outputs: Of each call that the loss makes of the network, in order.
        likes: The reference's output of each call.
        has_own_loss: Whether the candidate's loss takes its outputs as they are.
        given: The paths of the loss's arguments that go into the network.
    """

    inputs: dict[int, Axes] = field(default_factory=dict)
    outputs: list[Alignment] = field(default_factory=list)
    likes: list[Any] = field(default_factory=list)
    has_own_loss: bool = False
    given: frozenset[str] = frozenset()

    def loss(self, loss: Function) -> Function:
        """A loss that sees its network, or each replica, in the reference's layout."""
        return with_changed_function(loss, self._adapted)

    def _adapted(self, loss: Function) -> Function:
        def of_adapted(network: Any, *batch: Any) -> Any:
            if isinstance(network, Stopping):
                return loss(
                    network.through(lambda own: AdaptedNetwork(own, self)), *batch
                )
            return loss(AdaptedNetwork(network, self), *batch)

        return of_adapted


class AdaptedNetwork(InPlace):
    """A network in another layout, as a loss sees it."""

    def __init__(self, network: AbstractNetwork, layout: Layout) -> None:
        """See a network in this layout."""
        super().__init__(network)
        self._layout, self._calls = layout, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the network in its own layout."""
        backend, inputs = self._network.backend, self._layout.inputs

        def turned(leaf: Any) -> Any:
            axes = inputs.get(len(leaf.shape)) if backend.is_array(leaf) else None
            return leaf if axes is None else backend.nn.permute(leaf, axes)

        args, kwargs = nest.map(turned, (args, kwargs))
        outputs = self._network(*args, **kwargs)
        self._calls += 1
        return self._back(outputs, self._calls - 1)

    def _back(self, outputs: Any, call: int) -> Any:
        """The outputs of a call in the reference's layout and structure."""
        layout = self._layout
        known = call < len(layout.outputs) and bool(layout.outputs[call].leaves)
        if layout.has_own_loss or not known:
            return outputs
        leaves, own_structure = nest.flatten(outputs)
        expected, structure = nest.flatten(layout.likes[call])
        found = dict.fromkeys(range(len(expected)))
        for leaf in layout.outputs[call].leaves:
            if leaf.candidate < len(leaves):
                found[leaf.reference] = self._inverted(
                    leaf.transform, leaves[leaf.candidate]
                )
        if own_structure == structure:
            for place, own in enumerate(leaves):
                if found[place] is None:
                    found[place] = own
        return nest.unflatten(structure, list(found.values()))

    def _inverted(self, transform: Transform, array: Any) -> Any:
        """The array in the reference's layout; batches may be of another size than the seen one."""
        if transform.plain and transform.start == transform.end:
            return array
        nn, back = self._network.backend.nn, transform.inverse
        start, is_whole = transform.start, transform.start == transform.split
        if is_whole and len(start) == len(transform.end):  # of whatever size
            return nn.permute(array, back.axes)
        split, end = back.split, back.end
        if transform.axes[:1] == (0,) and start[:1] == transform.split[:1]:
            count = tuple(array.shape)[:1]
            split, end = (*count, *split[1:]), (*count, *end[1:])
        return nn.reshape(nn.permute(nn.reshape(array, split), back.axes), end)


@dataclass(frozen=True)
class Fit:
    """A layout of the candidate, and how near its outputs are to the reference's.

    Attributes:
        layout: The layout.
        agrees: Whether the loss is the same, or all outputs are.
        merit: Larger for a better one: whether it runs, how many of the reference's activations it
            has, and how near its loss and outputs are.
    """

    layout: Layout
    agrees: bool
    merit: tuple[bool, int, float]


def fit(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    expected: Evaluation | None = None,
) -> Fit:
    """Find the layout in which the candidate's loss and outputs are those of the reference.

    Tried are the inputs as they are, with the channels last, with those that were last first, and
    with the first two axes exchanged.
    Where none agrees, the one in which most blocks give what blocks of the reference give; where
    the candidate runs in none, the one in which most of its blocks ran.

    Args:
        expected: What `evaluate_in_own_layout` gave of the reference, where it is known.
    """
    expected = expected or _run(reference, batch, Layout())
    given = frozenset(_reaching(batch, expected.given))
    has_own_loss = candidate.keeps_layout or candidate.loss is not reference.loss
    found: list[Fit] = []
    for inputs in islice(_inputs(batch), 1 if candidate.keeps_layout else None):
        layout = Layout(
            inputs, likes=expected.outputs, has_own_loss=has_own_loss, given=given
        )
        actual = _run(candidate, batch, layout)
        if actual.loss is None:
            found.append(Fit(layout, False, (False, len(actual.blocks), -np.inf)))
            continue
        distance = relative_difference(expected.loss, actual.loss)
        farthest = max(distance, *_apart(expected.outputs, actual.outputs, layout))
        merit = (True, _shared(expected.blocks, actual.blocks), -farthest)
        same = all(one.by_value and one.leaves for one in layout.outputs)
        known = len(layout.outputs) == len(expected.outputs) > 0
        found.append(Fit(layout, distance <= LIMIT or (same and known), merit))
        best = _best(found)
        if best.agrees:
            return best
    return _best(found)


def _apart(
    expected: Sequence[Any], actual: Sequence[Any], layout: Layout
) -> list[float]:
    """How far outputs are; a loss of one number is near by chance once in a while."""
    found = [0.0]
    for one, other, alignment in zip(expected, actual, layout.outputs, strict=False):
        wanted, came = nest.leaves(one), nest.leaves(alignment.back(other, one))
        for leaf in alignment.leaves:
            found.append(
                relative_difference(wanted[leaf.reference], came[leaf.reference])
            )
    return found


def _best(found: list[Fit]) -> Fit:
    """Return the best fit; of equal ones the first, unless it is far off and another far nearer.

    A deep network may give much the same whatever it is given: a layout that gives fewer of the
    blocks' activations is none, however near its outputs are.
    """
    best = found[0]
    for one in found[1:]:
        *known, near = one.merit
        *before, least = best.merit
        is_nearer = least < -_ALIKE and near > _LEAD * least
        if known > before or (known == before and is_nearer):
            best = one
    return best


_ALIKE = (
    1e-4  # relative: a wrong pair of layers is farther, a wrong eps or a cast is not
)
_LEAD = 0.1  # of the distance of the layout before it; with a mistake, none is so near


def called(subject: Subject, batch: Batch) -> list[str]:
    """The paths of a side's blocks in the order of their first calls, as far as it runs."""
    runs = []
    for inputs in _inputs(batch):
        runs.append(_run(subject, batch, Layout(inputs)))
        if runs[-1].loss is not None:
            return runs[-1].order
    return max(runs, key=lambda run: len(run.paths)).order


@dataclass
class Evaluation:
    """One evaluation: the loss (None after an error), outputs of the network and of its blocks.

    Paths of blocks stand in the order in which their calls began.
    """

    loss: Any = None
    outputs: list[Any] = field(default_factory=list)
    blocks: list[np.ndarray] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    given: list[np.ndarray] = field(default_factory=list)

    @property
    def order(self) -> list[str]:
        """The paths of the blocks in the order of their first calls."""
        return list(dict.fromkeys(self.paths))


def evaluate_in_own_layout(subject: Subject, batch: Batch) -> tuple[Batch, Evaluation]:
    """Run a side in evaluation, with the inputs as they are or in the first layout that it takes.

    Returns:
        The batch in that layout (as it is where the side runs in none), and the run.
    """
    first = _run(subject, batch, Layout())
    if first.loss is None:
        for inputs in islice(_inputs(batch), 1, None):
            run = _run(subject, batch, Layout(inputs))
            if run.loss is not None:
                return _turned(batch, inputs, set(_reaching(batch, first.given))), run
    return batch, first


def _turned(batch: Batch, inputs: Mapping[int, Axes], given: Container[str]) -> Batch:
    """The batch with the axes of its arrays at these paths in another order."""
    leaves = []
    for path, leaf in nest.leaves_with_paths(batch, "args"):
        axes = inputs.get(leaf.ndim) if path in given else None
        leaves.append(np.ascontiguousarray(leaf.transpose(axes)) if axes else leaf)
    return nest.unflatten(nest.flatten(batch)[1], leaves)


def _run(subject: Subject, batch: Batch, layout: Layout) -> Evaluation:
    """Run a side in evaluation; the layout learns how its outputs lie."""
    network, backend = subject.network, subject.network.backend
    run, orders = Evaluation(), Orders(list(layout.inputs.values()))

    def interceptor(
        path: str, block: Any, call: Function, args: tuple, kwargs: dict
    ) -> Any:
        run.paths.append(path)
        if not path:
            run.given += arrays_in(backend.to_numpy((args, kwargs)))
        output = call(*args, **kwargs)
        values = backend.to_numpy(output)
        if path:
            run.blocks += arrays_in(values)
            return output
        run.outputs.append(values)
        if len(run.outputs) <= len(layout.likes):
            layout.outputs.append(
                align(layout.likes[len(run.outputs) - 1], values, orders)
            )
        return output

    loss_function = (
        layout.loss(subject.loss) if layout.inputs or layout.likes else subject.loss
    )
    try:
        with (
            network.training_mode(False),
            backend.evaluating(),
            random.portable(),
            backend.intercept_calls(network, backend.same_trace_only(interceptor)),
        ):
            loss = loss_function(network, *backend.prepare(batch, network))
        run.loss = np.asarray(backend.number(value_of(loss)))
    except Exception:  # noqa: BLE001  # what a stranger's network raises is for level L1 to say
        run.loss = None
    return run


def _reaching(batch: Batch, given: Sequence[np.ndarray]) -> Iterator[str]:
    """The paths of the arrays of a batch that a network is given."""
    for path, leaf in nest.leaves_with_paths(batch, "args"):
        if is_array(leaf) and any(np.array_equal(leaf, one) for one in given):
            yield path


def _inputs(batch: Batch) -> Iterator[dict[int, Axes]]:
    """The layouts to try, by the number of axes: nothing turned first."""
    several = sorted({leaf.ndim for leaf in arrays_in(batch) if leaf.ndim > 1})
    ranks = [rank for rank in several if rank > 2]
    for orders in product(*map(_channel_orders, ranks)):
        yield {rank: axes for rank, axes in zip(ranks, orders, strict=True) if axes}
    if several:
        yield {rank: (1, 0, *range(2, rank)) for rank in several}


def _channel_orders(rank: int) -> list[Axes]:
    """No change, channels that were first at the end, and channels that were last before the size."""
    first = channels_first(rank)
    last = tuple(int(axis) for axis in np.argsort(first))
    return [(), *dict.fromkeys((last, first))]


def _shared(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> int:
    """How many arrays of the reference's blocks the candidate's hold, in any order of elements."""
    known: dict[int, list[np.ndarray]] = {}
    for array in actual:
        known.setdefault(array.size, []).append(order_free(array))
    count = 0
    for array in expected:
        near = np.isclose(
            known.get(array.size, [np.full(2, np.inf)]), order_free(array), _ALIKE, 0.0
        )
        count += bool(near.all(axis=1).any())
    return count
