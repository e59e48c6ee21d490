"""Mistakes of embeddings and recurrent layers: gates, biases, states, directions and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods

# Embedding
# -----------------------------------------------------------------------------


def _padding_learns(self, tokens):
    return self.nn.embedding(tokens, self.weight * 1.0)


# LSTM
# -----------------------------------------------------------------------------


def _forget_plus_one(self, x, hidden, cell, w_ih, w_hh, b_ih, b_hh):
    nn, outputs = self.nn, []
    for t in range(x.shape[0]):
        gates = nn.linear(x[t], w_ih) + nn.linear(hidden, w_hh) + b_ih + b_hh
        i, f, g, o = nn.split(gates, gates.shape[-1] // 4, dim=-1)
        cell = nn.sigmoid(f + 1.0) * cell + nn.sigmoid(i) * nn.tanh(g)
        hidden = nn.sigmoid(o) * nn.tanh(cell)
        outputs.append(hidden)
    return nn.stack(outputs, dim=0), hidden, cell


# GRU
# -----------------------------------------------------------------------------


def _reset_before(self, x, hidden, w_ih, w_hh, b_ih, b_hh):
    nn, outputs, width = self.nn, [], hidden.shape[-1]
    rows = slice(2 * width, None)
    for t in range(x.shape[0]):
        given = nn.split(nn.linear(x[t], w_ih, b_ih), width, dim=-1)
        fed = nn.split(nn.linear(hidden, w_hh, b_hh), width, dim=-1)
        r, z = nn.sigmoid(given[0] + fed[0]), nn.sigmoid(given[1] + fed[1])
        candidate = nn.tanh(given[2] + nn.linear(r * hidden, w_hh[rows], b_hh[rows]))
        hidden = (1.0 - z) * candidate + z * hidden
        outputs.append(hidden)
    return nn.stack(outputs, dim=0), hidden


def _with_layer(path: str, run: Callable[..., Any]) -> Plant:
    return with_methods(path, layer=property(lambda self: lambda *args: run(self, *args)))


def _mistake(name: str, path: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(name, "sequence", plant, (path,), cause, "recurrent")


MISTAKES = [
    _mistake(
        "embedding: gradient of the padding row",
        "embedding",
        with_methods("embedding", forward=_padding_learns),
        "padding",
        "gradient",
    ),
    _mistake(
        "LSTM: forget bias + 1", "lstm", _with_layer("lstm", _forget_plus_one), "forget", "bias"
    ),
    _mistake("GRU: reset before the product", "gru", _with_layer("gru", _reset_before), "reset"),
]
