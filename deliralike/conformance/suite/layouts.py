"""Memory layouts: what a row computes does not depend on how its arrays lie in memory.

In most frameworks an array may be a view with strides of its own. Arithmetic that was written for
one layout can then be wrong in silence: it adds to a reshape that is a copy, or reads elements in
the order of memory. Here the arrays that go in, and the gradients that come back, are views that
the backend's own `permute`, `flip` and `broadcast_to` give, and nothing may write into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.kinds import Shape
from deliralike.conformance.suite.comparing import LIMITS, agree, dtype_of, native


@dataclass(frozen=True)
class Layout:
    """How the elements of an array lie in memory.

    Attributes:
        name: How errors call it.
        store: The elements in the order of memory, of an array on the host; fewer where several of
            its elements are one.
        view: ``view(nn, stored, shape)`` gives the array, as a view of what is stored.
        transposed: The transpose of the view: its gradient comes in this layout.
    """

    name: str
    store: Callable[[np.ndarray], np.ndarray]
    view: Callable[[Any, Any, Shape], Any]
    transposed: Callable[[Any, Any], Any]

    def of(self, x: np.ndarray) -> np.ndarray:
        """An array on the host in this layout, with the values that it can have."""
        return self.view(_ON_HOST, np.ascontiguousarray(self.store(x)), x.shape)


_ON_HOST = SimpleNamespace(
    permute=np.transpose,
    flip=np.flip,
    broadcast_to=np.broadcast_to,
    sum=lambda x, dim, keepdim: x.sum(dim, keepdims=keepdim),
)


def _permuted(name: str, order: Callable[[int], Sequence[int]]) -> Layout:
    """The axes in another order."""

    def inverse(shape: Shape) -> Shape:
        return tuple(map(int, np.argsort(order(len(shape)))))

    return Layout(
        name,
        lambda x: x.transpose(order(x.ndim)),
        lambda nn, stored, shape: nn.permute(stored, inverse(shape)),
        lambda nn, y: nn.permute(y, order(len(y.shape))),
    )


def _repeated(name: str, axis: int) -> Layout:
    """One element for all along an axis: its stride is 0, and NumPy lets nobody write."""
    return Layout(
        name,
        lambda x: x.take([0], axis),
        lambda nn, stored, shape: nn.broadcast_to(stored, shape),
        lambda nn, y: nn.sum(y, axis, True),
    )


def _all(x: Any) -> Shape:
    return tuple(range(len(x.shape)))


_OF_INPUT, _INPUT_AFTERWARDS = "gradient of input ", "input afterwards "
_SHARED = "gradient that another array gets "
IN_ORDER = Layout(
    "in C order", np.asarray, lambda nn, stored, shape: stored, lambda nn, y: y
)
LAYOUTS = (
    _permuted("channels last", lambda n: (0, *range(2, n), 1)[:n]),
    _permuted("all axes reversed", lambda n: tuple(reversed(range(n)))),
    _permuted(
        "the first two axes swapped", lambda n: (1, 0, *range(2, n))[2 - min(n, 2) :]
    ),
    _permuted("the first two axes last", lambda n: (*range(2, n), *range(min(n, 2)))),
    Layout(
        "negative strides",
        np.flip,
        lambda nn, stored, shape: nn.flip(stored, _all(stored)),
        lambda nn, y: nn.flip(y, _all(y)),
    ),
    _repeated("one for all along the first axis", 0),
    _repeated("one for all along the last axis", -1),
)


@dataclass(frozen=True)
class Placed:
    """The values of an array, and the layout that the backend's array of them has."""

    values: np.ndarray
    layout: Layout

    @classmethod
    def of(cls, x: np.ndarray, layout: Layout) -> Placed:
        """An array in a layout, with the values that it can have there."""
        return cls(layout.of(x), layout) if x.ndim else cls(x, IN_ORDER)

    def stored(self) -> np.ndarray:
        """What the backend's array is a view of."""
        return self.layout.store(self.values)

    def view(self, nn: Any, stored: Any) -> Any:
        """The backend's array."""
        return self.layout.view(nn, stored, self.values.shape)


def agree_in_every_layout(row: Any, backend: Backend, network: Any) -> None:
    """An error where the results of a row depend on how inputs and gradients lie in memory.

    Compared are outputs, gradients and buffers, and what nobody may write to: the inputs, the
    parameters, and the gradient of an output, which another array gets as well.

    Raises:
        Disagreement: Names the layout and the first array that differs from that in C order.
    """
    if not backend.strided:
        return
    limit = LIMITS[dtype_of(backend)]
    state = network.neutral_state()
    answers: dict[tuple[bytes, ...], dict[str, Any]] = {}
    for inputs, cotangents in _layouts_of(row):
        values = tuple(each.values.tobytes() for each in (*inputs, *cotangents))
        if values not in answers:
            plain = (
                [Placed(each.values, IN_ORDER) for each in some]
                for some in (inputs, cotangents)
            )
            answers[values] = _results(row, backend, network, state, *plain)
            answers[values] |= _numbered(
                _INPUT_AFTERWARDS, [each.values for each in inputs]
            )
            answers[values] |= _numbered(_SHARED, [each.values for each in cotangents])
        found = _results(row, backend, network, state, inputs, cotangents)
        where = f"{row.name}, {_described(inputs, cotangents)}"
        for name, wanted in answers[values].items():
            number = name.removeprefix(_OF_INPUT)
            if wanted is not None and number != name:  # it is that of what is stored
                wanted = inputs[int(number)].layout.transposed(_ON_HOST, wanted)
            if not _are_near(found[name], wanted, limit):
                agree(f"{where}: {name}", found[name], wanted, limit)


def _layouts_of(row: Any) -> Iterator[tuple[list[Placed], list[Placed]]]:
    """Inputs and gradients of outputs in each layout, and gradients alone; each case once."""
    cotangents = row.cotangents if row.differentiable else []
    listed: list[list[tuple[int, ...]]] = []
    for layout in (IN_ORDER, *LAYOUTS):
        for input_layout in (layout, IN_ORDER):
            inputs = [Placed.of(x, input_layout) for x in row.inputs]
            gradients = [Placed.of(y, layout) for y in cotangents]
            strides = [each.values.strides for each in (*inputs, *gradients)]
            if strides not in listed and listed:
                yield inputs, gradients
            listed.append(strides)


def _results(
    row: Any,
    backend: Backend,
    network: Any,
    state: dict[str, np.ndarray],
    inputs: Sequence[Placed],
    cotangents: Sequence[Placed],
) -> dict[str, Any]:
    """All results by name, and all that is to be as it was before."""
    network.load_neutral_state(state)

    def compute(here: Any, stored: Sequence[Any]) -> tuple[Any, Any]:
        views = [each.view(here.nn, x) for each, x in zip(inputs, stored, strict=True)]
        return row.outputs(here, *views), views

    def scalar(
        here: Any, stored: Sequence[Any], others: Sequence[Any]
    ) -> tuple[Any, Any, Any]:
        nn = here.nn
        outputs, views = compute(here, stored)
        total: Any = 0.0
        for y, other, cotangent in zip(outputs, others, cotangents, strict=True):
            weights = nn.constant(cotangent.stored(), like=y)
            total = nn.sum(cotangent.layout.transposed(nn, y + other) * weights) + total
        return total, outputs, views

    stored = [each.stored() for each in inputs]
    gradients: dict[str, Any] = {}
    if row.differentiable:
        others = [np.zeros(each.values.shape) for each in cotangents]
        found = backend.gradients(scalar, network, stored, others)
        outputs, views = found.beside
        of_inputs, shared = found.inputs
        gradients = _numbered(_OF_INPUT, of_inputs) | _numbered(_SHARED, shared)
        gradients |= {
            f"gradient of {name}": value for name, value in found.parameters.items()
        }
    else:
        outputs, views = backend.to_numpy(
            compute(network, [native(backend, x) for x in stored])
        )
    state = {
        f"{name} afterwards": value for name, value in network.neutral_state().items()
    }
    first = _numbered("output ", outputs) | _numbered(_INPUT_AFTERWARDS, views)
    return first | state | gradients


def _numbered(name: str, arrays: Sequence[Any]) -> dict[str, Any]:
    return {f"{name}{number}": array for number, array in enumerate(arrays)}


def _described(inputs: Sequence[Placed], cotangents: Sequence[Placed]) -> str:
    """The layout, and whether gradients alone have it."""
    names = [
        {each.layout.name for each in some} - {IN_ORDER.name}
        for some in (inputs, cotangents)
    ]
    return f"inputs {''.join(names[0]) or IN_ORDER.name}, gradients {''.join(names[1]) or IN_ORDER.name}"


def _are_near(got: Any, wanted: Any, limit: float) -> bool:
    """Return whether arrays differ by less than the numbers that cancelled in a zero may leave."""
    if got is None or wanted is None or got.shape != wanted.shape:
        return False
    return np.allclose(got, wanted, 0.0, limit, equal_nan=True)
