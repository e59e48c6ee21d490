"""Explanations of attention and recurrence; the wrong conventions are written anew in NumPy."""

from functools import partial

import numpy as np
import pytest

from tests.conformance.accusing import explained, numbers
from tests.conformance.test_explain_layers import known, sigmoid, softmax

# LSTM and GRU
# -----------------------------------------------------------------------------

H = 3
SERIES = numbers(4, 2, 2, seed=1)


def split(w, name, order):
    return dict(zip(order, np.split(w[name], len(order)), strict=True))


def lstm(
    w,
    x,
    order="ifgo",
    forget=0.0,
    inner=np.tanh,
    outer=np.tanh,
    biases=("ih", "hh"),
    reverse=False,
    suffix="",
    start=0.0,
):
    x = x[::-1] if reverse else x
    h = c = np.full((x.shape[1], H), start)
    wi, wh = (
        split(w, f"weight_ih_l0{suffix}", order),
        split(w, f"weight_hh_l0{suffix}", order),
    )
    bias = {
        gate: sum(split(w, f"bias_{b}_l0{suffix}", order)[gate] for b in biases)
        for gate in order
    }
    ys = []
    for step in x:
        i, f, g, o = (step @ wi[k].T + h @ wh[k].T + bias[k] for k in "ifgo")
        c = sigmoid(f + forget) * c + sigmoid(i) * inner(g)
        h = sigmoid(o) * outer(c)
        ys.append(h)
    ys = np.stack(ys)
    return ys[::-1] if reverse else ys, (h[None], c[None])


def gru(w, x, order="rzn", before=False):
    h = np.zeros((x.shape[1], H))
    wi, wh, bi, bh = (
        split(w, f"{name}_l0", order)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    ys = []
    for step in x:
        r, z = (sigmoid(step @ wi[k].T + bi[k] + h @ wh[k].T + bh[k]) for k in "rz")
        hidden = (
            (r * h) @ wh["n"].T + bh["n"] if before else r * (h @ wh["n"].T + bh["n"])
        )
        n = np.tanh(step @ wi["n"].T + bi["n"] + hidden)
        h = (1 - z) * n + z * h
        ys.append(h)
    return np.stack(ys), h[None]


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
        ("GRU", partial(gru, before=True), ["reset before"]),
        ("GRU", partial(gru, order="zrn"), ["gate order z, r, n instead of r, z, n"]),
    ],
)
def test_recurrence(kind, candidate, words):
    known(explained(kind, RNN, (SERIES,), candidate), *words)


def test_two_directions_are_known():
    def both(w, x):
        first, (h, c) = lstm(w, x)
        second, (h2, c2) = lstm(w, x, reverse=True, suffix="_reverse")
        return np.concatenate([first, second], 2), (
            np.concatenate([h, h2]),
            np.concatenate([c, c2]),
        )

    assert explained("LSTM", RNN | {"bidirectional": True}, (SERIES,), both) is None


def test_an_unknown_recurrence():
    found = explained(
        "GRU",
        RNN,
        (SERIES,),
        lambda w, x: tuple(y + 1e-4 * np.cos(100 * y) for y in gru(w, x)),
    )
    assert found is None or not found.known


# Attention
# -----------------------------------------------------------------------------

WIDTH, HEADS = 6, 2
WORDS = numbers(2, 3, WIDTH, seed=2)
FORBIDDEN = np.triu(np.ones((3, 3), bool), 1)


def attention(
    w,
    q,
    k,
    v,
    scale=(WIDTH / HEADS) ** -0.5,
    axis=-1,
    mask=None,
    merge="right",
    order=(0, 1, 2),
    projected=True,
):
    weights, biases = np.split(w["in_proj_weight"], 3), np.split(w["in_proj_bias"], 3)
    heads = [
        (x @ weights[i].T + biases[i])
        .reshape(*x.shape[:2], HEADS, -1)
        .transpose(0, 2, 1, 3)
        for i, x in zip(order, (q, k, v), strict=True)
    ]
    scores = heads[0] @ heads[1].transpose(0, 1, 3, 2) * scale
    scores = scores if mask is None else np.where(mask, -1e30, scores)
    share = softmax(scores - scores.real.max(axis, keepdims=True), axis)
    y = share @ heads[2]
    y = (y.transpose(0, 2, 1, 3) if merge == "right" else y).reshape(q.shape)
    return y @ w["out_proj.weight"].T + w[
        "out_proj.bias"
    ] if projected else y, share.mean(1)


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
    def made(w, x, *rest):
        return attention(w, x, *rest, scale=1.0)

    known(explained("MultiheadAttention", MHA, (WORDS, WORDS, WORDS), made), "no scale")


def test_attention_function():
    def made(w, q, k, v):
        share = softmax(q @ k.transpose(0, 2, 1), -1)
        return share @ v, share

    known(explained("attention", {}, (WORDS, WORDS * 0.5, WORDS + 1), made), "no scale")


def test_attention_function_with_a_mask_of_its_weights():
    """What is dropped of the weights is dropped of nothing else."""
    mask = np.array([[[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]] * 2) / 0.7

    def made(w, q, k, v, bias, mask):
        share = softmax(q @ k.transpose(0, 2, 1), -1)
        return (share * mask) @ v, share

    found = explained(
        "attention", {}, (WORDS, WORDS * 0.5, WORDS + 1, None, mask), made
    )
    known(found, "no scale")
