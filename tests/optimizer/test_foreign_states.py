"""A state of an optimizer that is not one of its parameters is refused before anything changes."""

import importlib

import numpy as np
import pytest

from deliralike import rules
from deliralike.errors import StateError
from tests.training.small_runs import network

_NAME = "first.weight"  # (5, 3)


def _zeros(*shape, dtype=np.float64):
    return np.zeros(shape, dtype)


def _state(**changed):
    """Adam's state of one parameter after three updates, by its formula's arrays."""
    slots = {
        "exp_avg": _zeros(5, 3),
        "exp_avg_sq": _zeros(5, 3),
        "step": np.array(3.0),
        **changed,
    }
    state = {
        f"{_NAME}/{slot}": value for slot, value in slots.items() if value is not None
    }
    return {"steps": np.array(3), **state}


_BROKEN = {
    "a number": (
        {"exp_avg": _zeros()},
        r"exp_avg' of shape \(\) .* wanted floats of shape \(5, 3",
    ),
    "one element": ({"exp_avg": _zeros(1)}, r"of shape \(1,\)"),
    "no elements": ({"exp_avg_sq": _zeros(0)}, r"exp_avg_sq' of shape \(0,\)"),
    "transposed": ({"exp_avg": _zeros(3, 5)}, r"of shape \(3, 5\)"),
    "whole numbers": ({"exp_avg": _zeros(5, 3, dtype=np.int64)}, "type int64"),
    "truth values": ({"exp_avg": _zeros(5, 3, dtype=bool)}, "type bool"),
    "a missing slot": ({"exp_avg_sq": None}, f"lacks {_NAME}/exp_avg_sq"),
    "a missing count": ({"step": None}, f"lacks {_NAME}/step"),
    "another slot": ({"momentum": _zeros(5, 3)}, "which this optimizer does not have"),
    "an array for a count": ({"step": _zeros(5, 3)}, "wanted a number of updates"),
    "a negative count": ({"step": np.array(-1.0)}, "wanted a number of updates"),
    "no count": ({"step": np.array(np.nan)}, "wanted a number of updates"),
}


@pytest.mark.parametrize(("changed", "message"), _BROKEN.values(), ids=_BROKEN.keys())
def test_a_state_of_another_shape_or_type_changes_nothing(backend, changed, message):
    net = network(backend.name)
    optimizer = net.backend.optimizer(rules.rule("adam", lr=0.1), net)
    optimizer.load_neutral_state(_state(exp_avg=np.ones((5, 3))))
    with pytest.raises(StateError, match=message):
        optimizer.load_neutral_state(_state(**changed))
    after = optimizer.neutral_state()
    np.testing.assert_array_equal(after[f"{_NAME}/exp_avg"], np.ones((5, 3)))
    assert after["steps"] == 3


def _native(net):
    """A framework's own optimizer with momentum over a network, and the name of its array."""
    name = net.backend.name
    if name == "torch":
        torch = importlib.import_module("torch")
        return torch.optim.SGD(
            net.parameters(), lr=0.1, momentum=0.9
        ), "momentum_buffer"
    if name == "chainer":
        chainer = importlib.import_module("chainer")
        return chainer.optimizers.MomentumSGD(lr=0.1).setup(net), "v"
    optax = importlib.import_module("optax")
    return optax.sgd(0.1, momentum=0.9), "0.trace"


@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
def test_the_state_of_a_frameworks_own_optimizer_is_compared_with_its_own_arrays(
    backend, shape
):
    net = network(backend.name)
    native, slot = _native(net)
    optimizer = net.backend.wrap_optimizer(native, net)
    state = {
        **optimizer.neutral_state(),
        "steps": np.array(3),
        f"{_NAME}/{slot}": np.ones((5, 3)),
    }
    optimizer.load_neutral_state(state)
    with pytest.raises(StateError, match=r"wanted floats of shape \(5, 3\)"):
        optimizer.load_neutral_state({**state, f"{_NAME}/{slot}": np.zeros(shape)})
    np.testing.assert_array_equal(
        optimizer.neutral_state()[f"{_NAME}/{slot}"], np.ones((5, 3))
    )
