"""Explanations of attention and recurrence; the wrong conventions are written anew in PyTorch."""

from functools import partial

import numpy as np
import pytest
import torch

from tests.conformance.accusing import explained, known, numbers
from tests.conformance.test_explain_layers import F

# LSTM and GRU
# -----------------------------------------------------------------------------

H = 3
SERIES = numbers(4, 2, 2, seed=1)


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def gates(w, order, right):
    """The parameters of a layer whose gates lie in an order, in the right one."""
    places = [order.index(gate) for gate in right]
    for name in NAMES:
        parts = w[f"{name}_l0"].chunk(len(order))
        yield torch.cat([parts[place] for place in places])


def lstm(w, x, order="ifgo", forget=0.0):
    *weights, bias = gates(w, order, "ifgo")
    bias = bias + forget * torch.eye(4, dtype=bias.dtype)[1].repeat_interleave(H)
    start = torch.zeros(1, x.shape[1], H, dtype=x.dtype)
    how = (True, 1, 0.0, True, False, False)
    y, h, c = torch.lstm(x, (start, start), [*weights, bias], *how)
    return y, (h, c)


def gru(w, x, order="rzn"):
    wi, wh, bi, bh = (each.chunk(3) for each in gates(w, order, "rzn"))
    h = torch.zeros(x.shape[1], H, dtype=x.dtype)
    ys = []
    for step in x:
        r, z = (
            torch.sigmoid(F.linear(step, wi[k], bi[k]) + F.linear(h, wh[k], bh[k]))
            for k in (0, 1)
        )
        hidden = r * F.linear(h, wh[2], bh[2])
        n = torch.tanh(F.linear(step, wi[2], bi[2]) + hidden)
        h = (1 - z) * n + z * h
        ys.append(h)
    return torch.stack(ys), h[None]


RNN = {"input_size": 2, "hidden_size": H}


@pytest.mark.parametrize(
    ("kind", "candidate", "words"),
    [
        (
            "LSTM",
            partial(lstm, order="ifog"),
            ["gate order i, f, o, g instead of i, f, g, o"],
        ),
        ("LSTM", partial(lstm, order="gifo"), ["gate order g, i, f, o instead"]),
        ("LSTM", partial(lstm, order="ofgi"), ["gate order o, f, g, i instead"]),
        ("LSTM", partial(lstm, forget=1.0), ["forget bias plus 1"]),
        ("LSTM", partial(lstm, forget=0.37), ["forget bias plus 0.37"]),
        ("GRU", partial(gru, order="zrn"), ["gate order z, r, n instead of r, z, n"]),
    ],
)
def test_recurrence(kind, candidate, words):
    known(explained(kind, RNN, (SERIES,), candidate), *words)


def test_an_unknown_recurrence():
    found = explained(
        "GRU",
        RNN,
        (SERIES,),
        lambda w, x: tuple(y + 1e-4 * torch.cos(100 * y) for y in gru(w, x)),
    )
    assert found is None or not found.known


# Attention
# -----------------------------------------------------------------------------

WIDTH, HEADS = 6, 2
WORDS = numbers(2, 3, WIDTH, seed=2)
FORBIDDEN = np.triu(np.ones((3, 3), bool), 1)


def attention(w, q, k, v, scale=(WIDTH / HEADS) ** -0.5, axis=-1, mask=None):
    weights, biases = w["in_proj_weight"].chunk(3), w["in_proj_bias"].chunk(3)
    q, k, v = (
        F.linear(x, weight, bias).unflatten(2, (HEADS, -1)).transpose(1, 2)
        for x, weight, bias in zip((q, k, v), weights, biases, strict=True)
    )
    scores = q @ k.mT * scale
    if mask is not None:
        scores = scores.masked_fill(torch.from_numpy(mask), -torch.inf)
    share = scores.softmax(axis)
    y = (share @ v).transpose(1, 2).flatten(2)
    return F.linear(y, w["out_proj.weight"], w["out_proj.bias"]), share.mean(1)


MHA = {"embed_dim": WIDTH, "num_heads": HEADS, "batch_first": True}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"scale": 1.0}, ["no scale"]),
        ({"scale": WIDTH**-0.5}, ["scale 1/sqrt(6)"]),
        ({"scale": 0.777}, ["scale=0.777"]),
        ({"axis": -2}, ["softmax over the queries"]),
        ({"mask": FORBIDDEN}, ["causal mask"]),
    ],
)
def test_attention(how, words):
    known(
        explained(
            "MultiheadAttention",
            MHA,
            (WORDS, WORDS * 0.5, WORDS + 1),
            partial(attention, **how),
        ),
        *words,
    )


def test_a_mask_that_is_ignored():
    known(
        explained(
            "MultiheadAttention",
            MHA,
            (WORDS, WORDS * 0.5, WORDS + 1),
            attention,
            kwargs={"attn_mask": FORBIDDEN},
        ),
        "ignored",
    )


def test_self_attention_counts_the_gradient_of_its_tokens_once_for_each_use():
    def formula(w, x, *rest):
        return attention(w, x, *rest, scale=1.0)

    known(
        explained("MultiheadAttention", MHA, (WORDS, WORDS, WORDS), formula), "no scale"
    )


def test_attention_function():
    def formula(w, q, k, v):
        share = (q @ k.mT).softmax(-1)
        return share @ v, share

    known(
        explained("attention", {}, (WORDS, WORDS * 0.5, WORDS + 1), formula), "no scale"
    )


def test_attention_function_with_a_mask_of_its_weights():
    """What is dropped of the weights is dropped of nothing else."""
    mask = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]] * 2) / 0.7

    def formula(w, q, k, v, bias, mask):
        share = (q @ k.mT).softmax(-1)
        return (share * mask) @ v, share

    found = explained(
        "attention", {}, (WORDS, WORDS * 0.5, WORDS + 1, None, mask), formula
    )
    known(found, "no scale")
