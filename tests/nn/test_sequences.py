"""Linear maps, embeddings, attention and recurrence."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.nn.agreement import (
    LayerCase,
    agree_all,
    hold,
    normal,
    numbers,
    property_test,
)


@st.composite
def attentions(draw):
    heads = draw(st.integers(1, 3))
    settings = {
        "embed_dim": heads * draw(st.integers(1, 3)),
        "num_heads": heads,
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
    }
    sizes = {
        "batch": draw(st.integers(1, 3)),
        "queries": draw(st.integers(1, 5)),
        "keys": draw(st.integers(2, 5)),
    }
    call = {
        "need_weights": draw(st.booleans()),
        "average_attn_weights": draw(st.booleans()),
    }
    mask = draw(st.sampled_from([None, "bool", "bool for each head", "numbers"]))
    return settings, sizes, call, mask, draw(st.sampled_from([None, "bool", "numbers"]))


def attention_mask(rng, kind, shape):
    """True, or minus infinity, where attention is forbidden; the first key is always allowed."""
    if kind is None:
        return None
    forbidden = rng.random(shape) < 0.3
    forbidden[..., 0] = False
    return (
        np.where(forbidden, -np.inf, rng.normal(size=shape))
        if kind == "numbers"
        else forbidden
    )


@property_test(10, case=attentions(), seed=numbers)
def test_attention_of_any_settings_and_masks_agrees(case, seed):
    settings, sizes, call, mask, padding = case
    rng, width, heads = (
        np.random.default_rng(seed),
        settings["embed_dim"],
        settings["num_heads"],
    )
    batch, queries, keys = sizes["batch"], sizes["queries"], sizes["keys"]
    tokens = [rng.normal(size=(batch, n, width)) for n in (queries, keys, keys)]
    tokens = (
        tokens
        if settings["batch_first"]
        else [np.ascontiguousarray(x.swapaxes(0, 1)) for x in tokens]
    )
    shape = (
        (batch * heads, queries, keys)
        if mask == "bool for each head"
        else (queries, keys)
    )
    masks = [
        attention_mask(rng, mask, shape),
        attention_mask(rng, padding, (batch, keys)),
    ]

    def attend(layer, query, key, value, attn_mask, key_padding_mask):
        return layer(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            **call,
        )

    return LayerCase(
        "MultiheadAttention", settings, [*tokens, *masks], call=attend, seed=seed
    )


def test_attention_to_no_keys_at_all_gives_zeros(network):
    backend = network.backend
    shapes = [(2, 3, 4), (2, 0, 4), (2, 0, 5), (3, 0)]
    arrays = backend.prepare(tuple(map(np.ones, shapes)), network)
    outputs, _ = network.nn.attention(*arrays, need_weights=False)
    assert_array_equal(backend.numpy(outputs), np.zeros((2, 3, 5)))


def test_attention_is_the_same_without_its_weights(name):
    """Kernels that keep no weights give the outputs and gradients of the primitives."""
    inputs = [
        [normal(0, 2, 3, 4, 5), normal(1, 2, 3, 6, 5), normal(2, 2, 3, 6, 2), *bias]
        for bias in ([], [normal(3, 4, 6)], [normal(3, 2, 1, 4, 6)])
    ]
    cases = [(arrays, scale) for arrays in inputs for scale in (None, 0.3)]
    network = hold(name, "Identity", {})
    backend, nn = network.backend, network.nn

    def gradients(need_weights):
        def loss(network, all_arrays):
            total = 0.0
            for arrays, (_, scale) in zip(all_arrays, cases, strict=True):
                y, weights = nn.attention(
                    *arrays, scale=scale, need_weights=need_weights
                )
                assert (weights is None) == (not need_weights)
                total = total + nn.mean(nn.sin(y))
            return total

        return backend.gradients(loss, network, [arrays for arrays, _ in cases])

    came, wanted = gradients(False), gradients(True)
    assert_allclose(float(came.loss), float(wanted.loss), rtol=1e-12)
    for (_, scale), mine, theirs in zip(
        cases, came.inputs[0], wanted.inputs[0], strict=True
    ):
        for at, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            what, largest = (
                f"{len(mine)} arrays, {scale=}: gradient of input {at}",
                np.abs(other).max(),
            )
            assert_allclose(one, other, rtol=1e-12, atol=1e-12 * largest, err_msg=what)


@st.composite
def recurrences(draw):
    settings = {
        "input_size": draw(st.integers(1, 3)),
        "hidden_size": draw(st.integers(1, 4)),
        "num_layers": draw(st.integers(1, 3)),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
    }
    return (
        settings,
        draw(st.integers(1, 11)),
        draw(st.integers(1, 3)),
        draw(st.booleans()),
    )


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
@property_test(8, case=recurrences(), seed=numbers)
def test_recurrences_of_any_settings_agree(layer, case, seed):
    settings, time, batch, with_state = case
    rng = np.random.default_rng(seed)
    shape = (batch, time) if settings["batch_first"] else (time, batch)
    x = rng.normal(size=(*shape, settings["input_size"]))
    states = (
        settings["num_layers"] * (1 + settings["bidirectional"]),
        batch,
        settings["hidden_size"],
    )
    state = (
        [rng.normal(size=states) for _ in range(2 if layer == "LSTM" else 1)]
        if with_state
        else []
    )
    join = (lambda given: given) if layer == "LSTM" else (lambda given: given[0])
    return LayerCase(
        layer,
        settings,
        [x, *state],
        seed=seed,
        call=lambda layer, x, *state: layer(x, join(state)) if state else layer(x),
    )


def several_lengths(layer, batch_first):
    settings = {
        "input_size": 3,
        "hidden_size": 4,
        "num_layers": 2,
        "bidirectional": True,
        "batch_first": batch_first,
    }
    lengths = np.array([2, 5, 1, 4])

    def outputs(layer, x):
        if not isinstance(layer, torch.nn.RNNBase) or hasattr(layer, "outputs"):
            return layer.outputs(x, layer.nn.constant(lengths, like=x))
        packed = pack_padded_sequence(
            x, torch.from_numpy(lengths), batch_first, enforce_sorted=False
        )
        return pad_packed_sequence(layer(packed)[0], batch_first)[0]

    return LayerCase(
        layer,
        settings,
        [normal(0, *((4, 5) if batch_first else (5, 4)), 3)],
        call=outputs,
    )


def test_outputs_of_sequences_of_several_lengths_are_those_of_packed_ones(name):
    agree_all(
        name,
        {
            f"{layer} {batch_first=}": several_lengths(layer, batch_first)
            for layer, batch_first in (("LSTM", True), ("GRU", False))
        },
    )


def test_on_torch_weights_for_cudnn_lie_one_after_the_other_and_take_their_gradients():
    import torch

    from deliralike.backends.torch.functional import _in_one_piece

    weights = [
        torch.randn(shape, requires_grad=True) for shape in ((8, 3), (8, 2), (8,), (8,))
    ]
    pieces = _in_one_piece(weights)
    starts = [(piece.data_ptr() - pieces[0].data_ptr()) // 4 for piece in pieces]
    assert starts == [0, 24, 40, 48]
    assert all(
        torch.equal(piece, weight)
        for piece, weight in zip(pieces, weights, strict=True)
    )
    sum((piece**2).sum() for piece in pieces).backward()
    assert all(torch.equal(weight.grad, 2 * weight) for weight in weights)


def test_on_torch_the_forward_pass_of_a_recurrent_layer_keeps_what_cudnns_backward_pass_needs(
    monkeypatch,
):
    import torch

    from deliralike import backends, build

    seen = []
    compute = torch.lstm
    monkeypatch.setattr(
        torch, "lstm", lambda *args: seen.append(args[6]) or compute(*args)
    )
    layer = build(backends.get("torch").nn.LSTM, 2, 3)
    layer(torch.zeros(4, 1, 2))
    with torch.no_grad():
        layer(torch.zeros(4, 1, 2))
    assert seen == [True, False]


def test_a_decoder_without_masks_is_pytorchs():
    from deliralike import backends, build

    nn = backends.get("torch").nn
    layer = build(nn.TransformerDecoderLayer, 6, 2, 7, 0.0, dtype="float64")
    ours = build(nn.TransformerDecoder, layer, 2, dtype="float64")
    theirs = torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(6, 2, 7, 0.0), 2
    ).double()
    theirs.load_state_dict(ours.state_dict())
    words, memory = torch.randn(5, 3, 6).double(), torch.randn(4, 3, 6).double()
    torch.testing.assert_close(
        ours(words, memory), theirs(words, memory), rtol=1e-12, atol=1e-12
    )
