"""Places: each layer is judged alone at the reference's inputs, the deepest accusation wins."""

import numpy as np
import pytest
import torch

from deliralike.conformance.findings import Observed
from deliralike.conformance.locate.accusing import settings
from deliralike.conformance.locate.differing import all_differences, first_difference
from deliralike.conformance.locate.search import localise
from deliralike.conformance.places import Quantity
from deliralike.conformance.subject import Subject
from deliralike.training import classification_loss
from tests.conformance import small
from tests.conformance.small import (
    Block,
    Deep,
    Network,
    Pair,
    Plain,
    Shared,
    argument,
    batch,
    get,
    made,
)

NAMES = ("torch", "chainer", "jax")


def found(reference, candidate, loss=classification_loss, training=True, given=None):
    """The places; networks on JAX run op by op."""
    sides = [
        one if isinstance(one, Subject) else Subject(one, loss)
        for one in (reference, candidate)
    ]
    with get("jax").op_by_op():
        return localise(*sides, batch() if given is None else given, training)


def where(places):
    return [(place.path, place.kind, str(place.what)) for place in places]


def wrong(kind, backend, changes):
    """A network with methods of some blocks replaced; ``changes[path](block, right)`` gives the
    method."""
    network = made(kind, backend)
    blocks = dict(network.named_blocks())
    for path, change in changes.items():
        block = blocks[path]
        vars(block)["forward"] = change(block.forward)
    return network


def times(factor):
    return lambda right: lambda *args: right(*args) * factor


def double_gradient(backend):
    """A function whose value is that of the identity and whose gradient is twice as large."""
    nn = get(backend).nn
    return lambda right: (
        lambda *args: 2.0 * right(*args) - nn.stop_gradient(right(*args))
    )


# Networks written once
# -----------------------------------------------------------------------------


class InTurn(Network):
    """Two blocks of the same shape, called in an order that is given."""

    def __init__(self, order):
        super().__init__()
        self.first, self.second = self.nn.Linear(4, 4), self.nn.Linear(4, 4)
        self.fc, self.order = self.nn.Linear(4, small.CLASSES), order

    def forward(self, x):
        for name in self.order:
            x = getattr(self, name)(x)
        return self.fc(x)


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_blocks_that_are_called_in_another_order_are_named(order):
    places = found(made(InTurn, "torch", order), made(InTurn, "torch", order[::-1]))
    words = f"The candidate calls {order[1]} where the reference calls {order[0]}."
    assert words in {remark for place in places for remark in place.details}


def test_right_networks_have_no_places(backend):
    for kind in (Deep, Shared):
        assert found(made(kind, "torch"), made(kind, backend)) == []


def test_two_mistakes_are_both_found_and_nothing_else_is_accused(backend):
    """The first one changes all that follows: what follows is right at the reference's inputs."""
    candidate = wrong(
        Deep, backend, {"first.fc": times(1.001), "inner.right.act": times(0.999)}
    )
    places = found(made(Deep, "torch"), candidate)
    assert where(places) == [
        ("first.fc", "Linear", "output"),
        ("inner.right.act", "Sigmoid", "output"),
    ]
    np.testing.assert_allclose(
        [place.difference for place in places], [1e-3, 1e-3], rtol=1e-9
    )


def test_a_mistake_of_the_gradient_alone_is_found_where_it_is(backend):
    candidate = wrong(Deep, backend, {"inner.left.act": double_gradient(backend.name)})
    (place,) = found(made(Deep, "torch"), candidate)
    assert (place.path, str(place.what)) == ("inner.left.act", "gradient of args[0]")
    assert place.difference == pytest.approx(1.0, rel=1e-9)


class Scaled(Block):
    """A block whose own code differs, its layers do not."""

    def forward(self, x):
        return self.act(self.fc(x)) * 1.6


def test_what_a_block_does_between_its_layers_is_the_block_itself(backend):
    class Odd(Pair):
        def __init__(self):
            super().__init__()
            self.right = Scaled()

    class OddDeep(Deep):
        def __init__(self):
            super().__init__()
            self.inner = Odd()

    (place,) = found(made(Deep, "torch"), made(OddDeep, backend))
    assert (place.path, place.kind, str(place.what)) == (
        "inner.right",
        "Block",
        "output",
    )
    assert place.difference == pytest.approx(0.1 / 1.5, rel=1e-9)
    assert place.glue is not None


@pytest.mark.parametrize(
    ("method", "what"), [("relu", "the input of two"), ("tanh", "the input of tanh()")]
)
def test_another_function_or_another_input_of_one_is_detected_by_what_follows(
    backend, method, what
):
    class Other(Plain):
        def forward(self, x):
            if method == "relu":
                return self.two(self.joined(x, self.nn.relu(self.one(x))))
            return self.two(self.joined(x, self.nn.tanh(self.one(x) * 1.1)))

    (place,) = found(made(Plain, "torch"), made(Other, backend))
    assert (place.path, place.kind) == ("", "Plain")
    assert str(place.what).startswith(what)


def test_a_block_that_raises_at_the_references_inputs_is_a_place():
    for name in NAMES:

        def raising(right):
            def forward(*args):
                raise ZeroDivisionError("planted")

            return forward

        places = found(
            made(Deep, "torch"), wrong(Deep, name, {"inner.left.act": raising})
        )
        assert where(places) == [("inner.left.act", "Sigmoid", "output")]
        assert places[0].difference == np.inf
        assert places[0].details[0].endswith("inputs: ZeroDivisionError: planted.")


# Native networks
# -----------------------------------------------------------------------------


def test_nothing_of_the_networks_changes():
    for name in NAMES:
        sides = [made(Deep, "torch"), wrong(Deep, name, {"first.fc": times(1.001)})]
        before = [(side.neutral_state(), side.training) for side in sides]
        methods = dict(vars(get(name).nn))
        found(*sides)
        for side, (state, training) in zip(sides, before, strict=True):
            assert side.training == training
            np.testing.assert_equal(side.neutral_state(), state)
        assert vars(get(name).nn) == methods


# Parts
# -----------------------------------------------------------------------------


def test_the_first_difference_is_that_of_values_before_gradients():
    mine = Observed(
        np.ones(3),
        {argument("args[0]"): np.ones(3)},
        {"weight": np.ones(3)},
        {"running_mean": np.ones(2)},
    )
    theirs = Observed(
        np.ones(3),
        {argument("args[0]"): np.zeros(3)},
        {"weight": np.ones(3)},
        {"running_mean": np.full(2, 3.0)},
    )
    assert first_difference(mine, theirs) == (Quantity("tensor", "running_mean"), 2.0)
    assert first_difference(mine, mine) == (None, 0.0)
    lacking = Observed(
        np.ones(3), {argument("args[0]"): np.zeros(3)}, {"weight": np.ones(3)}, {}
    )
    assert first_difference(mine, lacking) == (argument("args[0]").slope, 1.0)


def test_null_tensors_are_no_differences():
    mine = Observed(np.ones(3), {}, {"weight": np.ones(3), "bias": np.full(3, 1e-17)})
    theirs = Observed(
        np.ones(3), {}, {"weight": np.ones(3), "bias": np.full(3, -4e-17)}
    )
    assert first_difference(mine, theirs) == (None, 0.0)


def test_a_gradient_in_which_what_comes_back_cancels_out_is_rounding():
    """As of the constant that a mask puts in: softmax sends back numbers that add up to zero."""
    coming_back = np.array([0.25, -0.5, 0.25])
    mine = Observed(np.ones(3), {argument("args[0]"): np.array(-2.7e-16)})
    theirs = Observed(np.ones(3), {argument("args[0]"): np.array(-1e-16)})
    wrong = Observed(np.ones(3), {argument("args[0]"): np.array(-2.6e-15)})
    slope = argument("args[0]").slope
    assert all_differences(mine, theirs)[slope] > 0.1
    assert all_differences(mine, theirs, [None, coming_back])[slope] == 0.0
    assert all_differences(mine, wrong, [None, coming_back])[slope] > 1.0
    assert all_differences(mine, wrong, [np.array([np.inf])])[slope] > 1.0
    endless = Observed(np.ones(3), {argument("args[0]"): np.array(np.inf)})
    assert all_differences(mine, endless, [coming_back])[slope] == np.inf
    assert all_differences(endless, endless, [coming_back])[slope] == 0.0


def test_settings_are_those_that_a_layer_was_created_with():
    nn = get("torch").nn
    assert settings(nn.BatchNorm1d(4, momentum=0.2))["momentum"] == 0.2
    native_ones = settings(torch.nn.Conv2d(2, 3, 3, bias=False))
    assert (native_ones["bias"], native_ones["kernel_size"]) == (False, (3, 3))
    assert settings(torch.nn.Conv2d(2, 3, 3))["bias"] is True
    assert settings(object()) == {}
