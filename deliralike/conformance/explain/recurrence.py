"""Conventions of LSTM and GRU: orders of gates, and the bias of the forget gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Known,
    changing,
)
from deliralike.conformance.explain.enumeration import other_orders
from deliralike.conformance.explain.stand_in import StandIn

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
GATES = {"LSTM": "ifgo", "GRU": "rzn"}


def _run(kind: str, nn: Any, given: Arguments) -> Any:
    """The layer of `nn`, with what is given."""
    suffixes = ("", "_reverse") if given["bidirectional"] else ("",)
    between = [None] * given["num_layers"]
    beside = {
        "suffixes": suffixes,
        "between": between,
        "_dropped": lambda x, dropout: x,
    }
    layer = StandIn(kind, nn, {**given, **beside})
    return layer.forward(given["x"], given.get("state"))


# What is done to it
# -----------------------------------------------------------------------------


def _weights(given: Arguments) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if name.startswith(NAMES) and value is not None:
            yield name, value


def _ordered(nn: Any, given: Arguments, order: Sequence[int]) -> Arguments:
    """The candidate reads block i as the gate of its own order."""
    found = {}
    for name, value in _weights(given):
        parts = nn.split(value, value.shape[0] // len(order), 0)
        found[name] = nn.concatenate([parts[i] for i in order], 0)
    return found


def _forgetting(nn: Any, given: Arguments, plus: float) -> Arguments:
    """A number added to the forget gates' bias."""
    found = {}
    for name, value in _weights(given):
        if name.startswith("bias_ih"):
            i, f, *others = nn.split(value, value.shape[0] // 4, 0)
            found[name] = nn.concatenate([i, f + plus, *others], 0)
    return found


# What is known
# -----------------------------------------------------------------------------


def recurrent(kind: str, given: Arguments) -> Known:
    """Everything that is known to go wrong in an LSTM or a GRU."""
    gates, blocks = GATES[kind], {}
    for order in other_orders(len(gates)):
        blocks[", ".join(gates[order.index(i)] for i in range(len(gates)))] = order
    found = [Convention("gate order", blocks, changing(_ordered), ", ".join(gates))]
    if kind == "LSTM":
        plus = changing(_forgetting)
        found.append(Convention("forget bias plus", (1.0, 0.5), plus, free=True))
    return partial(_run, kind), found
