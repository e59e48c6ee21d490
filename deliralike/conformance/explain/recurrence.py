"""Conventions of LSTM and GRU: gate orders, biases, activations, directions and states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any

from deliralike.conformance.explain.variant import Call, Variant

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
GATES = {"LSTM": "ifgo", "GRU": "rzn"}


class Layer:
    """One layer in one direction, step by step, each function of a gate replaceable.

    Attributes:
        weights: The four arrays, None for biases that are absent.
    """

    def __init__(self, nn: Any, weights: Sequence[Any], rule: Mapping[str, Any]) -> None:
        self.nn, self.weights, self.rule = nn, weights, rule

    def run(self, x: Any, *state: Any) -> tuple[Any, ...]:
        """The outputs and the last states."""
        nn, outputs, step = self.nn, [], self.lstm if len(state) == 2 else self.gru
        from_input = nn.linear(x, self.weights[0], self.weights[2])
        for t in range(x.shape[0]):
            state = (
                tuple(_between(nn, self.rule, i, one) for i, one in enumerate(state))
                if t
                else state
            )
            y, *state = step(from_input[t], *state)  # type: ignore[assignment]
            outputs.append(y)
        return nn.stack(outputs, 0), *state

    def lstm(self, given: Any, hidden: Any, cell: Any) -> tuple[Any, Any, Any]:
        """One step of an LSTM."""
        nn, rule, width = self.nn, self.rule, cell.shape[-1]
        gate, inner, outer = (
            rule.get(name, usual)
            for name, usual in (("gate", nn.sigmoid), ("inner", nn.tanh), ("outer", nn.tanh))
        )
        order = rule.get("order", "ifgo")
        parts = nn.split(given + nn.linear(hidden, self.weights[1], self.weights[3]), width, -1)
        if rule.get("interleaved"):
            joined = nn.reshape(
                given + nn.linear(hidden, self.weights[1], self.weights[3]),
                (*hidden.shape[:1], width, 4),
            )
            parts = [joined[..., i] for i in range(4)]
        by_name = dict(zip(order, parts, strict=True))
        i, f, g, o = (by_name[name] for name in "ifgo")
        kept, new = gate(f + rule.get("forget", 0.0)), gate(i)
        kept = {"f": 1.0 - new, "none": 1.0, "all": 0.0}.get(rule.get("kept", ""), kept)
        new = 1.0 - kept if rule.get("new") == "i" else new
        cell = kept * cell + new * inner(g)
        if "clip" in rule and not rule.get("later"):
            cell = nn.clip(cell, -rule["clip"], rule["clip"])
        hidden = gate(o) * outer(cell)
        if rule.get("later"):
            cell = nn.clip(cell, -rule["clip"], rule["clip"])
        return (cell if rule.get("cell") else hidden), hidden, cell

    def gru(self, given: Any, hidden: Any) -> tuple[Any, Any]:
        """One step of a GRU."""
        nn, rule, width = self.nn, self.rule, hidden.shape[-1]
        gate, inner = rule.get("gate", nn.sigmoid), rule.get("inner", nn.tanh)
        order = rule.get("order", "rzn")
        mine = dict(zip(order, nn.split(given, width, -1), strict=True))
        other = dict(
            zip(
                order,
                nn.split(nn.linear(hidden, self.weights[1], self.weights[3]), width, -1),
                strict=True,
            )
        )
        z, r = gate(mine["z"] + other["z"]), gate(mine["r"] + other["r"])
        if rule.get("before"):
            at = order.index("n") * width
            rows, bias = self.weights[1][at : at + width], self.weights[3]
            n = inner(
                mine["n"]
                + nn.linear(r * hidden, rows, None if bias is None else bias[at : at + width])
            )
        elif rule.get("no reset"):
            n = inner(mine["n"] + other["n"])
        elif rule.get("bias outside"):  # the reset gate scales the product, not its bias
            at, bias = order.index("n") * width, self.weights[3]
            b = 0.0 if bias is None else bias[at : at + width]
            n = inner(mine["n"] + r * (other["n"] - b) + b)
        elif rule.get("reset all"):
            n = inner(r * (mine["n"] + other["n"]))
        else:
            n = inner(mine["n"] + r * other["n"])
        hidden = z * n + (1.0 - z) * hidden if rule.get("flipped") else (1.0 - z) * n + z * hidden
        return hidden, hidden


def _between(nn: Any, rule: Mapping[str, Any], number: int, state: Any) -> Any:
    """What is done to the hidden state (0) or the cell (1) between two steps."""
    cut, zero = rule.get("cut", ()), rule.get("zero", ())
    state = nn.stop_gradient(state) if number in cut else state
    return state * 0.0 if number in zero else state


def run(
    call: Call,
    layer: Callable[..., Any] | None = None,
    rule: Mapping[str, Any] | None = None,
    **how: Any,
) -> Any:
    """Run all layers and directions of a recurrent layer by rules that may differ from its own.

    The standard ones are those of `deliralike.nn.layers.recurrent`.

    Args:
        call: The call of an LSTM or GRU.
        layer: ``layer(x, *states, *weights)``, that of `nn` with changed weights; the steps of
            `Layer` when None.
        rule: For those steps.
        how: ``state`` ("zero", "exchanged"), ``direction`` ("not reversed", "all reversed", "output
            not reversed", "exchanged", "summed"), ``batch_first`` (another one), ``first`` (the
            first state is given back).
    """
    nn, s = call.nn, call.settings
    batch_first = how.get("batch_first", s["batch_first"])
    x = nn.permute(call.args[0], (1, 0, 2)) if batch_first else call.args[0]
    lstm = (
        "weight_ih_l0" in call.weights
        and call.weights["weight_ih_l0"].shape[0] == 4 * s["hidden_size"]
    )
    suffixes = ("", "_reverse") if s["bidirectional"] else ("",)
    given = call.args[1] if len(call.args) > 1 else call.kwargs.get("state")
    zeros = nn.zeros((s["num_layers"] * len(suffixes), x.shape[1], s["hidden_size"]), like=x)
    states = (zeros,) * (2 if lstm else 1) if given is None or how.get("state") == "zero" else given
    states = tuple(states) if lstm else (states[0] if isinstance(states, tuple) else states,)
    states = states[::-1] if how.get("state") == "exchanged" else states
    if how.get("state") == "ones":
        states = tuple(state + 1.0 for state in states)
    last, direction = [], how.get("direction", "")
    for number in range(s["num_layers"]):
        outputs = []
        for back, suffix in enumerate(suffixes):
            weights = [call.weights.get(f"{name}_l{number}{suffix}") for name in NAMES]
            state: Sequence[Any] = [part[number * len(suffixes) + back] for part in states]
            backwards = direction == "all reversed" or (back and direction != "not reversed")
            seen = nn.flip(x, 0) if backwards else x
            one = (
                Layer(nn, weights, rule or {}).run
                if layer is None
                else partial(_with_weights, layer, weights)
            )
            y, *state = one(seen, *state)
            outputs.append(nn.flip(y, 0) if backwards and direction != "output not reversed" else y)
            last.append(state)
        outputs = outputs[::-1] if direction == "exchanged" else outputs
        if direction in ("first twice", "second twice"):
            outputs = [outputs[direction == "second twice"]] * 2
        x = (
            sum(outputs[1:], outputs[0])
            if direction == "summed"
            else nn.concatenate(outputs, dim=-1)
        )
    if how.get("late"):
        x = nn.concatenate([x[:1] * 0.0, x[:-1]], dim=0)
    y = nn.permute(x, (1, 0, 2)) if batch_first else x
    found = tuple(nn.stack(parts, dim=0) for parts in zip(*last, strict=True))
    return y, (found if lstm else found[0])


def _with_weights(layer: Callable[..., Any], weights: Sequence[Any], x: Any, *state: Any) -> Any:
    return layer(x, *state, *weights)


def reordered(
    call: Call,
    order: Sequence[int],
    blocks: int,
    names: Sequence[str] = NAMES,
    interleaved: bool = False,
) -> Call:
    """The same call with the gate blocks of its weights taken in another order."""
    nn, weights = call.nn, dict(call.weights)
    for name in call.weights:
        if name.startswith(tuple(names)):
            rows = weights[name].shape[0] // blocks
            if interleaved:
                split = nn.reshape(weights[name], (rows, blocks, -1))
                parts = [split[:, i] for i in order]
                weights[name] = nn.reshape(nn.concatenate(parts, 0), tuple(weights[name].shape))
            else:
                parts = [weights[name][i * rows : (i + 1) * rows] for i in order]
                weights[name] = nn.concatenate(parts, 0)
    return call.but(weights=weights)


def recurrent(kind: str, settings: Mapping[str, Any]) -> Iterator[Variant]:
    """Everything that is known to go wrong in an LSTM or a GRU."""
    gates = GATES[kind]
    blocks, function = len(gates), kind.lower()

    def native(call: Call, **how: Any) -> Any:
        return run(call, getattr(call.nn, function), **how)

    def step(call: Call, **rule: Any) -> Any:
        return run(call, rule=rule)

    yield from _LISTED[kind](native, step)
    for order in permutations(range(blocks)):
        # The candidate reads block i as the gate that stands at i in its own order.
        own = "".join(gates[order.index(i)] for i in range(blocks))
        if order != tuple(range(blocks)):
            yield Variant(
                f"gate order {', '.join(own)} instead of {', '.join(gates)}",
                lambda call, order=order: native(reordered(call, order, blocks)),
            )
    yield Variant("all directions reversed in time", partial(native, direction="all reversed"))
    if settings["bidirectional"]:
        yield Variant("second direction not reversed", partial(native, direction="not reversed"))
        yield Variant(
            "outputs of the second direction not reversed back",
            partial(native, direction="output not reversed"),
        )
        yield Variant("outputs of the directions exchanged", partial(native, direction="exchanged"))
        for word in ("first", "second"):
            cause = f"outputs of the {word} direction twice"
            yield Variant(cause, partial(native, direction=f"{word} twice"))
        yield Variant("outputs of the directions interleaved", _interleaved_directions(native))
        yield Variant("outputs of the directions added up", partial(native, direction="summed"))
        yield Variant(
            "weights of the directions exchanged",
            lambda call: native(call.but(weights=_directions(call))),
        )
    yield Variant("outputs one step late", partial(native, late=True))
    for states, word in (((0, 1), "states"), ((0,), "hidden state"), ((1,), "cell")):
        if kind == "LSTM" or states == (0, 1):
            yield Variant(f"no gradient of the {word} between steps", partial(step, cut=states))
            yield Variant(f"{word} forgotten between steps", partial(step, zero=states))
    yield Variant("initial state ignored (zeros)", partial(native, state="zero"))
    yield Variant("initial state of ones", partial(native, state="ones"))
    yield Variant(
        f"batch_first={not settings['batch_first']} instead of {settings['batch_first']}",
        partial(native, batch_first=not settings["batch_first"]),
    )
    for name in ("bias_ih", "bias_hh"):
        yield Variant(
            f"{name} missing (one bias instead of two)",
            partial(_scaled, native, names=(name,), by=0.0),
        )
        yield Variant(f"{name} added twice", partial(_scaled, native, names=(name,), by=2.0))
        yield Variant(f"{name} twice, the other bias not at all", partial(_one_bias, native, name))
    yield Variant("no biases", partial(_scaled, native, names=("bias",), by=0.0))
    yield Variant(
        "bias_ih and bias_hh exchanged", lambda call: native(call.but(weights=_renamed(call)))
    )
    for activation in ("tanh", "relu"):
        yield Variant(
            f"gates with {activation} instead of sigmoid",
            lambda call, a=activation: step(call, gate=getattr(call.nn, a)),
        )
    for cause, gate in _HARD.items():
        yield Variant(
            f"gates with {cause}", lambda call, gate=gate: step(call, gate=partial(gate, call.nn))
        )
    for cause, names in (("weight_hh", ("weight_hh",)), ("weight_ih", ("weight_ih",))):
        yield Variant(f"{cause} has no effect", partial(_scaled, native, names=names, by=0.0))
    for order in permutations(range(blocks)):
        own = "".join(gates[order.index(i)] for i in range(blocks))
        yield Variant(
            f"gate order {', '.join(own)}, interleaved (hidden, {blocks}) instead of blocks",
            lambda call, order=order: native(reordered(call, order, blocks, interleaved=True)),
        )
    yield Variant("no dropout between the layers", native)


_HARD: dict[str, Any] = {
    "hard sigmoid clip(0.2 x + 0.5)": lambda nn, x: nn.clip(x * 0.2 + 0.5, 0.0, 1.0),
    "hard sigmoid relu6(x + 3) / 6": lambda nn, x: nn.hardsigmoid(x),
}


def _lstm(native: Any, step: Any) -> Iterator[Variant]:
    yield Variant(
        "forget bias plus {}", lambda call, value: native(_forget(call, value)), (1.0, 0.5)
    )
    yield Variant(
        "tanh and sigmoid exchanged in the cell candidate (sigmoid for g)",
        lambda call: step(call, inner=call.nn.sigmoid),
    )
    yield Variant(
        "no tanh on the cell before the output", lambda call: step(call, outer=lambda cell: cell)
    )
    yield Variant(
        "sigmoid instead of tanh on the cell before the output",
        lambda call: step(call, outer=call.nn.sigmoid),
    )
    yield Variant(
        "relu instead of tanh", lambda call: step(call, inner=call.nn.relu, outer=call.nn.relu)
    )
    yield Variant(
        "relu instead of tanh in the cell candidate", lambda call: step(call, inner=call.nn.relu)
    )
    yield Variant(
        "identity instead of tanh in the cell candidate", lambda call: step(call, inner=lambda g: g)
    )
    yield Variant("input and forget gates coupled (f = 1 - i)", lambda call: step(call, kept="f"))
    yield Variant("input and forget gates coupled (i = 1 - f)", lambda call: step(call, new="i"))
    yield Variant("nothing forgotten (forget gate of one)", lambda call: step(call, kept="none"))
    yield Variant("forget gate of zero", lambda call: step(call, kept="all"))
    yield Variant("cell given out instead of the hidden state", lambda call: step(call, cell=True))
    yield Variant(
        "hidden state and cell exchanged at the start", lambda call: native(call, state="exchanged")
    )
    yield Variant("last hidden state and cell exchanged", lambda call: _exchanged(native(call)))
    yield Variant(
        "cell clipped to {} after the output",
        lambda call, value: step(call, clip=value, later=True),
        (0.1, 0.3, 1.0, 3.0),
        0.0,
    )
    yield Variant(
        "cell clipped to {}", lambda call, value: step(call, clip=value), (0.1, 0.3, 1.0, 3.0), 0.0
    )


def _gru(native: Any, step: Any) -> Iterator[Variant]:
    yield Variant(
        "reset before the product instead of after it", lambda call: step(call, before=True)
    )
    yield Variant("z flipped: z weighs the new value", lambda call: step(call, flipped=True))
    yield Variant(
        "reset before the product, z flipped", lambda call: step(call, before=True, flipped=True)
    )
    yield Variant(
        "reset gate on the input's part too", lambda call: step(call, **{"reset all": True})
    )
    yield Variant("no reset gate", lambda call: _no_reset(step, call))
    yield Variant(
        "bias_hh of n not scaled by the reset gate",
        lambda call: step(call, **{"bias outside": True}),
    )
    yield Variant("sigmoid instead of tanh for n", lambda call: step(call, inner=call.nn.sigmoid))
    yield Variant("relu instead of tanh for n", lambda call: step(call, inner=call.nn.relu))
    yield Variant("identity instead of tanh for n", lambda call: step(call, inner=lambda n: n))
    for order in permutations("rzn"):
        own = "".join(order)
        if own != "rzn":
            for rule, word in (
                ({"before": True}, "reset before"),
                ({"flipped": True}, "z flipped"),
                ({"before": True, "flipped": True}, "reset before, z flipped"),
            ):
                yield Variant(
                    f"gate order {', '.join(own)} instead of r, z, n; {word}",
                    lambda call, own=own, rule=rule: step(call, order=own, **rule),
                )


_LISTED = {"LSTM": _lstm, "GRU": _gru}


def _no_reset(step: Any, call: Call) -> Any:
    return step(call, **{"no reset": True})


def _forget(call: Call, by: float) -> Call:
    """A number added to the second block of each bias_hh."""
    weights = dict(call.weights)
    for name in weights:
        if name.startswith("bias_hh"):
            rows = weights[name].shape[0] // 4
            parts = call.nn.split(weights[name], rows, 0)
            weights[name] = call.nn.concatenate([parts[0], parts[1] + by, *parts[2:]], 0)
    return call.but(weights=weights)


def _scaled(native: Any, call: Call, names: Sequence[str], by: float) -> Any:
    weights = {
        name: w * by if name.startswith(tuple(names)) else w for name, w in call.weights.items()
    }
    return native(call.but(weights=weights))


def _one_bias(native: Any, name: str, call: Call) -> Any:
    weights = {
        n: w * (2.0 if n.startswith(name) else 0.0) if n.startswith("bias") else w
        for n, w in call.weights.items()
    }
    return native(call.but(weights=weights))


def _interleaved_directions(native: Any) -> Any:
    def formula(call: Call) -> Any:
        y, state = native(call)
        first, second = call.nn.split(y, call.settings["hidden_size"], -1)
        return call.nn.reshape(call.nn.stack([first, second], -1), tuple(y.shape)), state

    return formula


def _renamed(call: Call) -> dict[str, Any]:
    swap = {"bias_ih": "bias_hh", "bias_hh": "bias_ih"}
    return {swap.get(name[:7], name[:7]) + name[7:]: w for name, w in call.weights.items()}


def _directions(call: Call) -> dict[str, Any]:
    return {
        name.removesuffix("_reverse") if name.endswith("_reverse") else f"{name}_reverse": w
        for name, w in call.weights.items()
    }


def _exchanged(outputs: Any) -> Any:
    y, (hidden, cell) = outputs
    return y, (cell, hidden)
