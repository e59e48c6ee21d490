"""Conventions of LSTM and GRU: gate orders, biases, activations, directions and states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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


def _steps(nn: Any, given: Arguments, x: Any, weights: Sequence[Any], state: State) -> Any:
    """One layer in one direction: the outputs and the last states."""
    outputs = []
    from_input = nn.linear(x, weights[0], weights[2])
    for t in range(x.shape[0]):
        state = _STEPS[given["kind"]](nn, given, from_input[t], weights, state)
        outputs.append(state[0])
    return nn.stack(outputs, 0), state


def _recurrent(nn: Any, given: Arguments) -> Any:
    backwards = given.get("backwards", (False, True))
    directions = [("", backwards[0]), ("_reverse", backwards[1])]
    if not given["bidirectional"]:
        del directions[1]
    x = _time_first(nn, given, given["x"])
    states = _start(nn, given, x, given["num_layers"] * len(directions))
    last: list[State] = []
    for layer in range(given["num_layers"]):
        outputs = []
        for suffix, is_backwards in directions:
            weights = [given.get(f"{name}_l{layer}{suffix}") for name in NAMES]
            state = [part[len(last)] for part in states]
            own = nn.flip(x, 0) if is_backwards else x
            y, state = _steps(nn, given, own, weights, state)
            last.append(state)
            if is_backwards and not given.get("not turned"):
                y = nn.flip(y, 0)
            outputs.append(y)
        x = _together(nn, given, outputs)
    parts = list(zip(*last, strict=True))
    found = tuple(nn.stack(parts[i], 0) for i in given.get("handed on", range(len(parts))))
    return _time_first(nn, given, x), (found if given["kind"] == "LSTM" else found[0])


def _time_first(nn: Any, given: Arguments, x: Any) -> Any:
    """Sequences as ``(time, batch, width)``, or back in the order of the axes that is given."""
    return nn.permute(x, (1, 0, 2)) if given["batch_first"] else x


def _start(nn: Any, given: Arguments, x: Any, count: int) -> State:
    """The first states, each ``(layers * directions, batch, width)``."""
    state, is_lstm = given.get("state"), given["kind"] == "LSTM"
    if state is None or given.get("ignored"):
        zeros = nn.zeros((count, x.shape[1], given["hidden_size"]), like=x)
        return (zeros, zeros) if is_lstm else (zeros,)
    return tuple(state) if is_lstm else (state,)


def _together(nn: Any, given: Arguments, outputs: Sequence[Any]) -> Any:
    """The outputs of one or two directions."""
    picked = given.get("joined", range(len(outputs)))
    return nn.concatenate([outputs[i] for i in picked], -1)


# What is known
# -----------------------------------------------------------------------------

_RESET = {
    "before the product instead of after it": "before",
}
_FLIPPED = "z flipped: z weighs the new value and 1 - z the old state, not the other way round"
_GATES = ("hardsigmoid as clip(0.2 x + 0.5)", "hardsigmoid", "tanh", "relu")
_DIRECTIONS: dict[str, dict[str, Any]] = {
    "second direction not reversed": {"backwards": (False, False)},
    "outputs of the second direction not reversed back": {"not turned": True},
    "outputs of the directions exchanged": {"joined": (1, 0)},
}


_STATES: dict[str, dict[str, Any]] = {
    "last cell state in the place of the last hidden state": {"handed on": (1, 1)},
    "last hidden state in the place of the last cell state": {"handed on": (0, 0)},
    "last hidden state and last cell state exchanged": {"handed on": (1, 0)},
}


def recurrent(kind: str, given: Arguments) -> Known:
    """Everything that is known to go wrong in an LSTM or a GRU."""
    own = _of_lstm() if kind == "LSTM" else _of_gru()
    return told(_recurrent, {"kind": kind}), [
        *own,
        *_orders(kind),
        *_biases(given),
        *_sequence(kind, given),
    ]


def _of_lstm() -> list[Convention]:
    return [
        values("forget", (1.0, 0.5), "forget bias plus", free=True),
        _activations("activation of the cell before the output", "cell", "tanh"),
    ]


def _of_gru() -> list[Convention]:
    return [
        values("reset", _RESET, "reset", joins="gates"),
        values("flipped", {_FLIPPED: True}, "update gate", joins="gates"),
    ]


def _activations(words: str, name: str, usual: str) -> Convention:
    return setting(name, ("sigmoid", "relu", "identity"), words, usual=usual)


def _orders(kind: str) -> list[Convention]:
    """Gate blocks in other orders: the candidate reads block i as the gate of its own order."""
    gates = GATES[kind]

    def changed(nn: Any, given: Arguments, order: Sequence[int]) -> Arguments:
        found = {}
        for name, value in given.items():
            if name.startswith(NAMES) and value is not None:
                found[name] = _reordered(nn, value, order)
        return found

    blocks = {}
    for order in other_orders(len(gates)):
        own = ", ".join(gates[order.index(i)] for i in range(len(gates)))
        blocks[own] = order
    joins = "gates" if kind == "GRU" else ""
    return [Convention("gate order", blocks, changing(changed), ", ".join(gates), joins=joins)]


def _reordered(nn: Any, weight: Any, order: Sequence[int]) -> Any:
    parts = nn.split(weight, weight.shape[0] // len(order), 0)
    return nn.concatenate([parts[i] for i in order], 0)


def _biases(given: Arguments) -> list[Convention]:
    """The two biases of which other frameworks have one."""
    if given.get("bias_ih_l0") is None:
        return []
    ways = {
        "bias_hh missing (one bias instead of two)": (1.0, 0.0),
        "bias_ih missing (one bias instead of two)": (0.0, 1.0),
        "no biases": (0.0, 0.0),
    }

    def changed(nn: Any, given: Arguments, factors: Sequence[float]) -> Arguments:
        by = dict(zip(NAMES[2:], factors, strict=True))
        return {n: value * by[n[:7]] for n, value in given.items() if n[:7] in by}

    return [Convention("", ways, changing(changed))]


def _sequence(kind: str, given: Arguments) -> list[Convention]:
    """Directions, first states, and what happens between two steps."""
    ways: dict[str, dict[str, Any]] = {
        "all directions reversed in time": {"backwards": (True, True)},
    }
    if given["bidirectional"]:
        ways |= _DIRECTIONS
    if kind == "LSTM":
        ways |= _STATES
    if given.get("state") is not None:
        ways["initial state ignored (zeros)"] = {"ignored": True}
    return [
        setting("gates", _GATES, "activation of the gates", usual="sigmoid"),
        rules("", ways),
        setting("batch_first", (True, False)),
    ]
