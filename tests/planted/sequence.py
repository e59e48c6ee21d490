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


def _with_layer(path: str, run: Callable[..., Any]) -> Plant:
    return with_methods(
        path, layer=property(lambda self: lambda *args: run(self, *args))
    )


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
        "LSTM: forget bias + 1",
        "lstm",
        _with_layer("lstm", _forget_plus_one),
        "forget",
        "bias",
    ),
]
