"""Taps: what is recorded equals NumPy and the frameworks' own hooks, and what is forced is judged
alone."""

import numpy as np
import pytest
import torch

from deliralike import nest
from deliralike.conformance.observe.arrays import SlotName
from deliralike.conformance.observe.forcing import force
from deliralike.conformance.observe.recording import cotangents, record, watch
from deliralike.conformance.observe.units import Unit
from deliralike.conformance.places import UNIT
from deliralike.training import classification_loss
from tests.conformance.small import (
    KINDS,
    Deep,
    Network,
    Plain,
    Shared,
    TorchNet,
    argument,
    batch,
    made,
    native,
    squares,
    tap,
)

WRITTEN_ONCE = [(name, Plain) for name in ("torch", "chainer", "jax")]


def unit(network, call=squares, args=None, training=True, **options):
    """A network's loss as a unit; its blocks are taps, the network itself is looked into."""
    args = (batch()[0],) if args is None else args
    return Unit(network, call, args, training, lambda path: path or None, **options)


def both(network):
    """Tests run on JAX op by op, so that nothing is compiled."""
    return network.backend.op_by_op()


def close(first, second, rtol=1e-12):
    np.testing.assert_allclose(first, second, rtol=rtol, atol=1e-13)


def get(name, kind):
    return made(kind, name) if kind is Plain else native(kind, name)


def by_hand(state, x):
    """`Plain` with the sum of squares as its loss: what goes in and comes out, and the gradient of
    each."""
    one = x @ state["one.weight"].T + state["one.bias"]
    hidden = np.tanh(one)
    joined = x + hidden
    two = joined @ state["two.weight"].T + state["two.bias"]
    of_two = 2 * two
    of_joined = of_two @ state["two.weight"]
    of_one = of_joined * (1 - hidden**2)
    return {
        "one": (x, one, of_one @ state["one.weight"], of_one),
        "tanh()": (one, hidden, of_one, of_joined),
        "two": (joined, two, of_joined, of_two),
        "x": of_joined + of_one @ state["one.weight"],
        "parameters": {
            "one.weight": of_one.T @ x,
            "one.bias": of_one.sum(0),
            "two.weight": of_two.T @ joined,
            "two.bias": of_two.sum(0),
        },
    }


# Recorded
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [*KINDS, *WRITTEN_ONCE])
def test_activations_and_cotangents_are_those_computed_by_hand(name, kind):
    network = get(name, kind)
    with both(network):
        seen = record(unit(network))
        around = cotangents(unit(network), seen.calls)
    wanted = by_hand(network.neutral_state(), batch()[0])
    names = ["one", "tanh()", "two"]
    assert [str(call) for call in seen.calls if call.function != "sum"] == names
    for call in names:
        into, out, of_into, of_out = wanted[call]
        close(seen.calls[tap(call)].args[0], into)
        close(seen.calls[tap(call)].output, out)
        close(around[tap(call)].inputs[0], of_into)
        close(around[tap(call)].output[0], of_out)
    close(seen.output, (wanted["two"][1] ** 2).sum())
    close(seen.inputs[0], wanted["x"])
    for parameter, gradient in wanted["parameters"].items():
        close(seen.parameters[parameter], gradient)


def test_a_block_called_twice_is_two_taps(backend):
    network = made(Shared, backend)
    with both(network):
        seen = record(unit(network))
        around = cotangents(unit(network), seen.calls)
    assert [str(name) for name in seen.calls if name.function != "sum"] == [
        "twice",
        "tanh()",
        "twice#2",
        "head",
    ]
    state, x = network.neutral_state(), batch()[0]
    once = np.tanh(x @ state["twice.weight"].T + state["twice.bias"])
    close(seen.calls[tap("twice#2")].args[0], once)
    output = (once @ state["twice.weight"].T + state["twice.bias"]) @ state[
        "head.weight"
    ].T + state["head.bias"]
    of_second = 2 * output @ state["head.weight"]
    close(around[tap("twice#2")].output[0], of_second)
    close(
        around[tap("twice")].output[0],
        of_second @ state["twice.weight"] * (1 - once**2),
    )


class Changing(torch.nn.Module):
    """Writes into the output of its layer, twice."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
        self.act = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        hidden = self.one(x)
        hidden.mul_(2.0)
        return self.two(self.act(hidden))


def test_what_is_written_in_place_was_recorded_before():
    network = native(TorchNet, "torch").backend.wrap(Changing().double())
    seen = record(unit(network))
    state, x = network.neutral_state(), batch()[0]
    one = x @ state["one.weight"].T + state["one.bias"]
    assert (one < 0).any()
    close(seen.calls[tap("one")].output, one)
    close(seen.calls[tap("act")].args[0], 2 * one)
    close(seen.calls[tap("act")].output, 2 * np.maximum(one, 0))
    close(seen.calls[tap("two")].args[0], 2 * np.maximum(one, 0))
    plain = network.backend.gradients(squares, network, x).parameters
    forced = force(unit(network), seen.calls, cotangents(unit(network), seen.calls))
    for name in plain:
        layer, _, parameter = name.partition(".")
        close(forced.observed[tap(layer)].parameters[parameter], plain[name])


class Attending(Network):
    """Attention to itself, which some layers ask for by the identity of their inputs."""

    def __init__(self):
        super().__init__()
        self.seen = ()
        self.block = Same()

    def forward(self, x):
        return self.block(x, x, x)


class Same(Network):
    """Gives another result when its inputs are not one object."""

    def forward(self, query, key, value):
        return query * (2.0 if query is key and key is value else 5.0)


def test_equal_inputs_stay_one_object(backend):
    network, x = made(Attending, backend), batch()[0]
    with both(network):
        seen = record(unit(network))
        around = cotangents(unit(network), seen.calls)
        found = force(unit(network), seen.calls, around)
    close(seen.calls[tap("block")].output, 2 * x)
    close(around[tap("block")].output[0], 4 * x)
    close(found.observed[tap("block")].outputs, 2 * x)
    close(sum(found.observed[tap("block")].inputs.values()), 8 * x)
    close(found.observed[tap("block")].inputs[argument("args[0]")], 8 * x)


class Bias(Network):
    """Gives a parameter of its own to a function of `nn`."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(4, 3)

    def forward(self, x):
        return self.nn.linear(x, self.fc.weight)


def test_a_parameter_among_the_arguments_is_named(backend):
    network = made(Bias, backend)
    with both(network):
        seen = record(unit(network))
        around = cotangents(unit(network), seen.calls)
        found = force(unit(network), seen.calls, around)
    call = seen.calls[tap("linear()")]
    assert isinstance(call.args[1], SlotName)
    assert call.args[1] == "fc.weight"
    state, x = network.neutral_state(), batch()[0]
    wanted = (2 * x @ state["fc.weight"].T).T @ x
    close(seen.parameters["fc.weight"], wanted)
    close(found.observed[UNIT].parameters["fc.weight"], wanted)


@pytest.mark.parametrize("elements", [None, 1, 7])
def test_watching_sees_every_block_and_keeps_some_elements(backend, elements):
    network = made(Deep, backend)
    options = {"call": classification_loss, "args": batch()}
    with both(network):
        seen = watch(unit(network, **options), elements)
        full = record(unit(network, **options))
    assert list(map(str, seen.calls)) == [
        "first.fc",
        "first.act",
        "first",
        "norm",
        "inner.left.fc",
        "inner.left.act",
        "inner.left",
        "inner.right.fc",
        "inner.right.act",
        "inner.right",
        "inner",
        "head",
        "the network",
    ]
    close(seen.calls[tap("")].output, full.calls[tap("head")].output)
    close(seen.output, full.output)
    kept, whole = seen.calls[tap("norm")].output, full.calls[tap("norm")].output
    step = 1 if elements is None else -(-whole.size // elements)
    close(kept.ravel(), whole.ravel()[::step])


# Left as they were
# -----------------------------------------------------------------------------


# Forced
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [*KINDS, *WRITTEN_ONCE])
def test_each_layer_computes_from_what_it_is_given(name, kind):
    """The weights of the forced network are others: each of its layers is still fed as in the first
    network."""
    reference, other = get(name, kind), get(name, kind)
    state = {key: value * 1.25 for key, value in reference.neutral_state().items()}
    other.load_neutral_state(state)
    with both(reference):
        seen = record(unit(reference))
        around = cotangents(unit(reference), seen.calls)
        found = force(unit(other), seen.calls, around)
    wanted = by_hand(reference.neutral_state(), batch()[0])
    for call in ("one", "two"):
        into, _, _, of_out = wanted[call]
        close(
            found.observed[tap(call)].outputs,
            into @ state[f"{call}.weight"].T + state[f"{call}.bias"],
        )
        close(
            found.observed[tap(call)].inputs[argument("args[0]")],
            of_out @ state[f"{call}.weight"],
        )
        close(found.observed[tap(call)].parameters["weight"], of_out.T @ into)
        close(found.observed[tap(call)].parameters["bias"], of_out.sum(0))
    between = found.observed[UNIT].handed
    close(nest.leaves(between[tap("one")])[0], batch()[0])
    close(nest.leaves(between[tap("two")])[0], wanted["two"][0])
    assert found.beyond == {}


def test_plain_values_that_are_one_object_are_not_tied():
    """Small numbers and None are always one object; a candidate that gives others must be heard."""

    class Numbers(Network):
        def __init__(self, second):
            super().__init__()
            self.second = second
            self.block = Powers()

        def forward(self, x):
            return self.block(x, 2, self.second)

    class Powers(Network):
        def forward(self, x, first, second):
            return x * first + second

    one, two = made(Numbers, "torch", 2), made(Numbers, "torch", 3)
    seen = record(unit(one))
    found = force(unit(two), seen.calls, cotangents(unit(one), seen.calls))
    close(found.observed[tap("block")].outputs, 2 * batch()[0] + 3)
