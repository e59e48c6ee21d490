"""Conventions of LSTM and GRU: gate orders, biases, activations, directions and states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from deliralike.conformance.explain.activations import ACTIVATIONS
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Known,
    changing,
    rules,
    setting,
    told,
    values,
)
from deliralike.conformance.explain.enumeration import other_orders
from deliralike.nn.layers import LAYERS

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
GATES = {"LSTM": "ifgo", "GRU": "rzn"}
State = Sequence[Any]


# One step; what is not told is done as `deliralike.nn.layers.recurrent` does it
# -----------------------------------------------------------------------------


def _lstm(nn: Any, given: Arguments, x: Any, weights: Sequence[Any], state: State) -> State:
    """``(hidden, cell)`` after a step."""
    _, weight, _, bias = weights
    hidden, cell = state
    gate, outer = (_activation(nn, given, *one) for one in (("gates", "sigmoid"), ("cell", "tanh")))
    i, f, g, o = nn.split(x + nn.linear(hidden, weight, bias), cell.shape[-1], -1)
    cell = gate(f + given.get("forget", 0.0)) * cell + gate(i) * nn.tanh(g)
    return gate(o) * outer(cell), cell


def _gru(nn: Any, given: Arguments, x: Any, weights: Sequence[Any], state: State) -> State:
    """``(hidden,)`` after a step."""
    _, weight, _, bias = weights
    (hidden,) = state
    width = hidden.shape[-1]
    gate = _activation(nn, given, "gates", "sigmoid")
    mine = nn.split(x, width, -1)
    other = nn.split(nn.linear(hidden, weight, bias), width, -1)
    r, z = (gate(mine[i] + other[i]) for i in (0, 1))
    last = 0.0 if bias is None else bias[2 * width :]
    weight = weight[2 * width :]
    if given.get("reset") == "before":
        product = nn.linear(r * hidden, weight) + last
    else:
        product = r * other[2]
    n = nn.tanh(mine[2] + product)
    z = 1.0 - z if given.get("flipped") else z
    return ((1.0 - z) * n + z * hidden,)


def _activation(nn: Any, given: Arguments, name: str, usual: str) -> Callable[[Any], Any]:
    return partial(ACTIVATIONS[given.get(name, usual)], nn)


_STEPS = {"LSTM": _lstm, "GRU": _gru}


# All steps, layers and directions
# -----------------------------------------------------------------------------


def _direction(nn: Any, given: Arguments, x: Any, state: State, suffix: str) -> tuple[Any, State]:
    """One layer in one direction: the outputs and the last states."""
    weights = [given.get(f"{name}{suffix}") for name in NAMES]
    from_input, outputs = nn.linear(x, weights[0], weights[2]), []
    for t in range(x.shape[0]):
        state = _STEPS[given["kind"]](nn, given, from_input[t], weights, state)
        outputs.append(state[0])
    return nn.stack(outputs, 0), state


def _recurrent(nn: Any, given: Arguments) -> Any:
    """As the layer runs its directions, each by rules of its own."""
    is_lstm, both = given["kind"] == "LSTM", given["bidirectional"]
    layer = SimpleNamespace(
        nn=nn,
        num_layers=given["num_layers"],
        bidirectional=both,
        suffixes=("", "_reverse") if both else ("",),
        between=[None] * given["num_layers"],
        _dropped=lambda x, dropout: x,
        _direction=partial(_direction, nn, given),
    )
    turns = given.get("turned", True)

    def reverse(x: Any) -> Any:
        return nn.flip(x, 0) if turns else x

    x, state = _time_first(nn, given, given["x"]), given.get("state")
    if state is None or given.get("ignored"):
        count = given["num_layers"] * len(layer.suffixes)
        zeros = nn.zeros((count, x.shape[1], given["hidden_size"]), like=x)
        state = (zeros, zeros) if is_lstm else zeros
    x = nn.flip(x, 0) if given.get("backwards") else x
    y, last = LAYERS["LSTM"]._run(layer, x, state if is_lstm else (state,), reverse)
    y = nn.flip(y, 0) if given.get("backwards") else y
    if given.get("exchanged"):
        y = nn.concatenate(nn.split(y, given["hidden_size"], -1)[::-1], -1)
    found = tuple(last[i] for i in given.get("handed on", range(len(last))))
    return _time_first(nn, given, y), found if is_lstm else found[0]


def _time_first(nn: Any, given: Arguments, x: Any) -> Any:
    """Sequences as ``(time, batch, width)``, or back in the order of the axes that is given."""
    return nn.permute(x, (1, 0, 2)) if given["batch_first"] else x


# What is known
# -----------------------------------------------------------------------------

_DIRECTIONS: dict[str, dict[str, Any]] = {
    "second direction not reversed": {"turned": False},
    "outputs of the directions exchanged": {"exchanged": True},
}
_STATES: dict[str, dict[str, Any]] = {
    "last cell state in the place of the last hidden state": {"handed on": (1, 1)},
    "last hidden state in the place of the last cell state": {"handed on": (0, 0)},
    "last hidden state and last cell state exchanged": {"handed on": (1, 0)},
}
_BIASES = {
    "bias_hh missing (one bias instead of two)": ("bias_hh",),
    "bias_ih missing (one bias instead of two)": ("bias_ih",),
    "no biases": ("bias_ih", "bias_hh"),
}
_FLIPPED = "z flipped: z weighs the new value and 1 - z the old state, not the other way round"


def recurrent(kind: str, given: Arguments) -> Known:
    """Everything that is known to go wrong in an LSTM or a GRU."""
    ways: dict[str, dict[str, Any]] = {"all directions reversed in time": {"backwards": True}}
    if given["bidirectional"]:
        ways |= _DIRECTIONS
    if given.get("state") is not None:
        ways["initial state ignored (zeros)"] = {"ignored": True}
    if kind == "LSTM":
        ways |= _STATES
        others = ("sigmoid", "relu", "identity")
        words = "activation of the cell before the output"
        own = [
            values("forget", (1.0, 0.5), "forget bias plus", free=True),
            setting("cell", others, words, usual="tanh"),
        ]
    else:
        before = {"before the product instead of after it": "before"}
        own = [
            values("reset", before, "reset", joins="gates"),
            values("flipped", {_FLIPPED: True}, "update gate", joins="gates"),
        ]
    if given.get("bias_ih_l0") is not None:
        own.append(Convention("", _BIASES, changing(_without)))
    gates = ("hardsigmoid as clip(0.2 x + 0.5)", "hardsigmoid", "tanh", "relu")
    return told(_recurrent, {"kind": kind}), [
        *own,
        _orders(kind),
        setting("gates", gates, "activation of the gates", usual="sigmoid"),
        rules("", ways),
        setting("batch_first", (True, False)),
    ]


def _without(nn: Any, given: Arguments, left_out: tuple[str, ...]) -> Arguments:
    return {name: one * 0.0 for name, one in given.items() if name.startswith(left_out)}


def _orders(kind: str) -> Convention:
    """Gate blocks in other orders: the candidate reads block i as the gate of its own order."""
    gates = GATES[kind]

    def changed(nn: Any, given: Arguments, order: Sequence[int]) -> Arguments:
        found = {}
        for name, value in given.items():
            if name.startswith(NAMES) and value is not None:
                parts = nn.split(value, value.shape[0] // len(order), 0)
                found[name] = nn.concatenate([parts[i] for i in order], 0)
        return found

    blocks = {}
    for order in other_orders(len(gates)):
        blocks[", ".join(gates[order.index(i)] for i in range(len(gates)))] = order
    joins = "gates" if kind == "GRU" else ""
    return Convention("gate order", blocks, changing(changed), ", ".join(gates), joins=joins)
