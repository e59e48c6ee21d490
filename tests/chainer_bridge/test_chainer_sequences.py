"""Recurrent networks over sequences of different lengths against torch."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")

LENGTHS = (5, 3, 2)
# Both have the gates in the same order: (input, forget, cell, output) in an LSTM, (reset, update,
# new) in a GRU.
GATES = {"lstm": 4, "gru": 3}


def _copied_to_torch(link, kind, bidirectional):
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](
        3, 4, 2, bidirectional=bidirectional
    ).double()
    gates, directions = GATES[kind], 1 + bidirectional
    for i, layer in enumerate(link):
        suffix = f"_l{i // directions}" + ("_reverse" if i % directions else "")
        for target, names in {"ih": range(gates), "hh": range(gates, 2 * gates)}.items():
            weight = np.concatenate([getattr(layer, f"w{n}").array for n in names])
            bias = np.concatenate([getattr(layer, f"b{n}").array for n in names])
            getattr(module, f"weight_{target}{suffix}").data = torch.tensor(weight)
            getattr(module, f"bias_{target}{suffix}").data = torch.tensor(bias)
    return module


@pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "both ways"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_an_n_step_network_is_that_of_torch(kind, bidirectional, rng):
    classes = {
        ("lstm", False): L.NStepLSTM,
        ("lstm", True): L.NStepBiLSTM,
        ("gru", False): L.NStepGRU,
        ("gru", True): L.NStepBiGRU,
    }
    with chainer.using_config("dtype", np.dtype("float64")):
        link = classes[kind, bidirectional](2, 3, 4, 0.0)
    for parameter in link.params():
        parameter.array[...] = rng.normal(size=parameter.shape)
    module = _copied_to_torch(link, kind, bidirectional)
    sequences = [rng.normal(size=(length, 3)) for length in LENGTHS]
    variables = [chainer.Variable(x) for x in sequences]
    tensors = [torch.tensor(x, requires_grad=True) for x in sequences]

    *states, ys = link(*[None] * (2 if kind == "lstm" else 1), variables)
    packed, expected_states = module(torch.nn.utils.rnn.pack_sequence(tensors))
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    expected_states = expected_states if kind == "lstm" else [expected_states]

    for y, row, length in zip(ys, expected, LENGTHS, strict=True):
        np.testing.assert_allclose(y.array, row[:length].detach(), rtol=1e-9, atol=1e-12)
    for ours, theirs in zip(states, expected_states, strict=True):
        np.testing.assert_allclose(ours.array, theirs.detach(), rtol=1e-9, atol=1e-12)
    sum(F.sum(y**2) for y in ys).backward()
    (expected**2).sum().backward()
    for variable, tensor in zip(variables, tensors, strict=True):
        np.testing.assert_allclose(variable.grad, tensor.grad, rtol=1e-8, atol=1e-12)


def test_the_stateful_lstm_remembers_until_it_is_reset(rng):
    link = L.LSTM(3, 4)
    x = rng.normal(size=(2, 3)).astype("float32")
    first, second = link(x).array, link(x).array
    link.reset_state()
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(link(x).array, first)


def test_a_truncated_history_gets_no_gradient(rng):
    link = L.LSTM(3, 4)
    early = chainer.Variable(rng.normal(size=(2, 3)).astype("float32"))
    link(early)
    link.h.unchain_backward()
    link.c.unchain_backward()
    F.sum(link(rng.normal(size=(2, 3)).astype("float32"))).backward()
    assert early.grad is None


def test_dropout_between_layers_works_only_in_training(rng):
    link = L.NStepLSTM(2, 3, 4, 0.5)
    xs = [rng.normal(size=(5, 3)).astype("float32")]
    with chainer.using_config("train", False):
        np.testing.assert_array_equal(
            link(None, None, xs)[2][0].array, link(None, None, xs)[2][0].array
        )
    with chainer.using_config("train", True):
        assert not np.array_equal(
            link(None, None, xs)[2][0].array, link(None, None, xs)[2][0].array
        )
