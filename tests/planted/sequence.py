"""Mistakes of embeddings and recurrent layers: gates, biases, states, directions and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.planted import Mistake
from tests.planted.fixtures import PADDING
from tests.planted.planting import Plant, with_methods

# Embedding
# -----------------------------------------------------------------------------


def _embedding_of(
    index: Callable[[Any, Any], Any] = lambda nn, index: index,
    table: Callable[[Any, Any], Any] = lambda nn, table: table,
    rows: Callable[[Any, Any], Any] = lambda nn, rows: rows,
    padding: Callable[[Any, Any], Any] = lambda nn, rows: nn.stop_gradient(rows),
) -> Plant:
    """Plant an embedding in which one part differs; `padding` treats the row of the padding."""

    def forward(self, tokens):
        nn = self.nn
        found = rows(nn, nn.embedding(index(nn, tokens), table(nn, self.weight * 1.0)))
        is_padding = nn.broadcast_to(nn.expand_dims(tokens == PADDING, -1), found.shape)
        return nn.where(is_padding, padding(nn, found), found)

    return with_methods("embedding", forward=forward)


def _one_further(nn: Any, index: Any) -> Any:
    return (index + 1) % 9


def _clamped(nn: Any, index: Any) -> Any:
    """Words beyond the first six are the sixth."""
    return nn.where(index > 5, index * 0 + 5, index)


def _short(nn: Any, rows: Any) -> Any:
    """Rows of length one at most (``max_norm=1``)."""
    length = nn.sqrt(nn.sum(rows * rows, -1, keepdim=True))
    return rows / nn.where(length > 1.0, length, 1.0)


def _half_gradient(nn: Any, rows: Any) -> Any:
    return rows * 0.5 + nn.stop_gradient(rows * 0.5)


# LSTM
# -----------------------------------------------------------------------------


def _cell(nn: Any, gates: Sequence[Any], cell: Any) -> tuple[Any, Any]:
    """The right one: gates i, f, g, o and the last cell give the new hidden state and cell."""
    i, f, g, o = gates
    cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * nn.tanh(g)
    return nn.sigmoid(o) * nn.tanh(cell), cell


def _blocks(nn: Any, x: Any, count: int) -> list[Any]:
    return nn.split(x, x.shape[-1] // count, dim=-1)


def _interleaved(nn: Any, x: Any, count: int) -> list[Any]:
    """Gates of one unit lie side by side."""
    split = nn.reshape(x, (*x.shape[:-1], -1, count))
    return [split[..., gate] for gate in range(count)]


def _lstm(
    cell: Callable[..., Any] = _cell,
    order: Sequence[int] = (0, 1, 2, 3),
    split: Callable[..., Any] = _blocks,
    bias: Callable[[Any, Any, Any], Any] = lambda nn, b_ih, b_hh: b_ih + b_hh,
    between: Callable[[Any, Any, Any], tuple[Any, Any]] = lambda nn, hidden, cell: (hidden, cell),
) -> Plant:
    """An LSTM with one part of another kind; see `_cell`.

    Args:
        cell: From gates and the last cell to the new states.
        order: Which block of the weights is the gate i, f, g, o.
        split: How the gates are cut apart.
        bias: What is added to both products.
        between: From the states of one step to those that the next one sees.
    """

    def run(self, x, hidden, state, w_ih, w_hh, b_ih, b_hh):
        nn, given, outputs = self.nn, bias(self.nn, b_ih, b_hh), []
        for t in range(x.shape[0]):
            hidden, state = between(nn, hidden, state)
            gates = split(nn, nn.linear(x[t], w_ih) + nn.linear(hidden, w_hh) + given, 4)
            hidden, state = cell(nn, [gates[place] for place in order], state)
            outputs.append(hidden)
        return nn.stack(outputs, dim=0), hidden, state

    return with_methods("lstm", layer=property(lambda self: lambda *args: run(self, *args)))


def _forget_plus_one(nn, gates, cell):
    i, f, g, o = gates
    return _cell(nn, (i, f + 1.0, g, o), cell)


def _no_output_tanh(nn, gates, cell):
    i, f, g, o = gates
    cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * nn.tanh(g)
    return nn.sigmoid(o) * cell, cell


def _candidate_sigmoid(nn, gates, cell):
    i, f, g, o = gates
    cell = nn.sigmoid(f) * cell + nn.sigmoid(i) * nn.sigmoid(g)
    return nn.sigmoid(o) * nn.tanh(cell), cell


def _hard_gates(nn, gates, cell):
    """Gates by ``clip(0.2 x + 0.5)``, Keras' of old."""
    i, f, g, o = gates
    i, f, o = (nn.clip(gate * 0.2 + 0.5, 0.0, 1.0) for gate in (i, f, o))
    cell = f * cell + i * nn.tanh(g)
    return o * nn.tanh(cell), cell


def _cut(nn, hidden, cell):
    return nn.stop_gradient(hidden), nn.stop_gradient(cell)


# GRU
# -----------------------------------------------------------------------------


def _unit(
    nn: Any, x: Sequence[Any], h: Sequence[Any], hidden: Any, again: Callable[[Any], Any]
) -> Any:
    """Return the right new hidden state from parts r, z, n of the input and the hidden state."""
    r, z = nn.sigmoid(x[0] + h[0]), nn.sigmoid(x[1] + h[1])
    return (1.0 - z) * nn.tanh(x[2] + r * h[2]) + z * hidden


def _gru(
    unit: Callable[..., Any] = _unit,
    order: Sequence[int] = (0, 1, 2),
    split: Callable[..., Any] = _blocks,
    biases: Sequence[float] = (1.0, 1.0),
    cut: bool = False,
) -> Plant:
    """A GRU with one part of another kind; see `_unit`.

    Args:
        unit: From the parts, the last hidden state, and a function that applies the candidate's
            weights, to the new state.
        order: Which block of the weights is the part r, z, n.
        split: How the parts are cut apart.
        biases: How often both biases count.
        cut: Whether the gradient ends at each step.
    """

    def run(self, x, hidden, w_ih, w_hh, b_ih, b_hh):
        nn, outputs, width = self.nn, [], hidden.shape[-1]
        rows, b_hh = slice(2 * width, None), b_hh * biases[1]
        for t in range(x.shape[0]):
            hidden = nn.stop_gradient(hidden) if cut else hidden
            given = split(nn, nn.linear(x[t], w_ih, b_ih * biases[0]), 3)
            fed = split(nn, nn.linear(hidden, w_hh, b_hh), 3)
            hidden = unit(
                nn,
                [given[p] for p in order],
                [fed[p] for p in order],
                hidden,
                lambda value: nn.linear(value, w_hh[rows], b_hh[rows]),
            )
            outputs.append(hidden)
        return nn.stack(outputs, dim=0), hidden

    return with_methods("gru", layer=property(lambda self: lambda *args: run(self, *args)))


def _reset_before(nn, x, h, hidden, again):
    r, z = nn.sigmoid(x[0] + h[0]), nn.sigmoid(x[1] + h[1])
    return (1.0 - z) * nn.tanh(x[2] + again(r * hidden)) + z * hidden


def _update_flipped(nn, x, h, hidden, again):
    r, z = nn.sigmoid(x[0] + h[0]), nn.sigmoid(x[1] + h[1])
    return z * nn.tanh(x[2] + r * h[2]) + (1.0 - z) * hidden


def _both_of_chainer(nn, x, h, hidden, again):
    r, z = nn.sigmoid(x[0] + h[0]), nn.sigmoid(x[1] + h[1])
    return z * nn.tanh(x[2] + again(r * hidden)) + (1.0 - z) * hidden


def _relu_candidate(nn, x, h, hidden, again):
    r, z = nn.sigmoid(x[0] + h[0]), nn.sigmoid(x[1] + h[1])
    return (1.0 - z) * nn.relu(x[2] + r * h[2]) + z * hidden


# Time and directions
# -----------------------------------------------------------------------------


def _first_step(self, y):
    return y[:, 0]


def _mean_over_time(self, y):
    return self.nn.mean(y, 1)


def _largest_over_time(self, y):
    return self.nn.max_along(y, 1)


def _directions(change: Callable[[Any, list[Any]], Any]) -> Plant:
    """The outputs of both directions joined in another way; the layer goes over time as it did."""

    def forward(self, x, state=None):
        nn = self.nn
        x, states = self._arrange(x, (None, None))
        y, states = self._run(x, states, self._flip)
        return self._restore(change(nn, nn.split(y, self.hidden_size, dim=-1))), states

    return with_methods("lstm", forward=forward)


def _time_and_batch(self, x, state=None):
    """The batch is taken for time."""
    x, states = self._arrange(self.nn.permute(x, (1, 0, 2)), (None,) * self.states)
    y, states = self._run(x, states, self._flip)
    return self.nn.permute(self._restore(y), (1, 0, 2)), states[0]


def _backwards(self, x, state=None):
    x, states = self._arrange(self.nn.flip(x, 1), (None,) * self.states)
    y, states = self._run(x, states, self._flip)
    return self.nn.flip(self._restore(y), 1), states[0]


def _embedding(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"embedding: {name}", "sequence", plant, ("embedding",), cause, "recurrent")


def _of_lstm(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"LSTM: {name}", "sequence", plant, ("lstm",), cause, "recurrent")


def _of_gru(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"GRU: {name}", "sequence", plant, ("gru",), cause, "recurrent")


def _over_time(name: str, last: Callable[..., Any], *cause: str) -> Mistake:
    place = ("Recurrent", "fc", "last")
    return Mistake(
        f"time: {name}",
        "sequence",
        with_methods("", last=last),
        place,
        (*cause, "input"),
        "recurrent",
    )


_ORDERS = {
    "gates i, f, o, g": (0, 1, 3, 2),
    "gates i, g, f, o": (0, 2, 1, 3),
    "gates f, i, g, o": (1, 0, 2, 3),
    "gates o, f, g, i": (3, 1, 2, 0),
    "gates g, i, f, o": (1, 2, 0, 3),
}

MISTAKES = [
    _embedding(
        "gradient of the padding row",
        _embedding_of(padding=lambda nn, rows: rows),
        "padding",
        "gradient",
    ),
    _embedding(
        "padding gives zeros",
        _embedding_of(padding=lambda nn, rows: nn.stop_gradient(rows) * 0.0),
        "padding",
        "zero",
    ),
    _embedding("one row further", _embedding_of(_one_further), "row", "off by one", "index"),
    _embedding("rare words are one", _embedding_of(_clamped), "clamp", "index", "range"),
    _embedding("rows of length one at most", _embedding_of(rows=_short), "norm", "length"),
    _embedding(
        "rows times the root of their width",
        _embedding_of(rows=lambda nn, rows: rows * 2.0),
        "scale",
        "width",
    ),
    _embedding("gradient halved", _embedding_of(rows=_half_gradient), "gradient"),
    _embedding(
        "table takes no gradient",
        _embedding_of(table=lambda nn, w: nn.stop_gradient(w)),
        "gradient",
    ),
    _embedding(
        "columns reversed",
        _embedding_of(rows=lambda nn, rows: nn.flip(rows, -1)),
        "order",
        "revers",
        "column",
    ),
    *(_of_lstm(name, _lstm(order=order), "gate", "order") for name, order in _ORDERS.items()),
    _of_lstm("gates interleaved", _lstm(split=_interleaved), "gate", "interleav", "order"),
    _of_lstm(
        "gates interleaved in the order g, i, f, o",
        _lstm(split=_interleaved, order=(1, 2, 0, 3)),
        "gate",
        "interleav",
        "order",
    ),
    _of_lstm("forget bias + 1", _lstm(_forget_plus_one), "forget", "bias"),
    _of_lstm("output without tanh", _lstm(_no_output_tanh), "tanh"),
    _of_lstm("sigmoid of the candidate", _lstm(_candidate_sigmoid), "sigmoid"),
    _of_lstm("hard gates", _lstm(_hard_gates), "hard", "sigmoid"),
    _of_lstm("one bias alone", _lstm(bias=lambda nn, b_ih, b_hh: b_ih), "bias"),
    _of_lstm("bias of the input left out", _lstm(bias=lambda nn, b_ih, b_hh: b_hh), "bias"),
    _of_lstm("bias of the input twice", _lstm(bias=lambda nn, b_ih, b_hh: b_ih + b_ih), "bias"),
    _of_lstm("no gradient between steps", _lstm(between=_cut), "gradient"),
    _of_lstm(
        "directions exchanged",
        _directions(lambda nn, y: nn.concatenate(y[::-1], dim=-1)),
        "direction",
        "order",
    ),
    _of_lstm(
        "backward outputs not turned round",
        _directions(lambda nn, y: nn.concatenate([y[0], nn.flip(y[1], 0)], dim=-1)),
        "direction",
        "revers",
        "flip",
    ),
    _of_lstm(
        "directions interleaved",
        _directions(lambda nn, y: nn.reshape(nn.stack(y, dim=3), (*y[0].shape[:2], -1))),
        "direction",
        "interleav",
        "order",
    ),
    _of_gru("reset before the product", _gru(_reset_before), "reset"),
    _of_gru("update gate of the new state", _gru(_update_flipped), "update", "z"),
    _of_gru("both, as Chainer's stateless one", _gru(_both_of_chainer), "reset", "update", "z"),
    _of_gru("gates z, r, n", _gru(order=(1, 0, 2)), "gate", "order"),
    _of_gru("gates n, z, r", _gru(order=(2, 1, 0)), "gate", "order"),
    _of_gru("gates interleaved", _gru(split=_interleaved), "gate", "interleav", "order"),
    _of_gru("ReLU of the candidate", _gru(_relu_candidate), "relu", "ReLU"),
    _of_gru("bias of the hidden state left out", _gru(biases=(1.0, 0.0)), "bias"),
    _of_gru("bias of the input left out", _gru(biases=(0.0, 1.0)), "bias"),
    _of_gru("no gradient between steps", _gru(cut=True), "gradient"),
    _of_gru(
        "time and batch exchanged", with_methods("gru", forward=_time_and_batch), "batch", "time"
    ),
    _of_gru("backwards", with_methods("gru", forward=_backwards), "revers", "backward", "time"),
    _over_time("first step for the last", _first_step, "step", "last", "first"),
    _over_time("mean for the last", _mean_over_time, "mean", "last"),
    _over_time("maximum for the last", _largest_over_time, "max", "last"),
    _over_time("last but one", lambda self, y: y[:, -2], "step", "last"),
]
