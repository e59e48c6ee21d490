"""A language model in the manner of Llama, on PyTorch."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, KV_HEADS, HEAD_DIM = 16, 4, 2, 4


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def apply_rotary(x, base=10000.0):
    """Turn the two halves of each head; x is (batch, heads, time, dim)."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(WIDTH, HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.wv = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)

    def forward(self, x):
        n, t, _ = x.shape
        q = self.wq(x).view(n, t, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.wk(x).view(n, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.wv(x).view(n, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q, k = apply_rotary(q), apply_rotary(k)
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)
        scores = q @ k.transpose(2, 3) / math.sqrt(HEAD_DIM)
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
        out = F.softmax(scores, dim=-1) @ v
        return self.wo(out.transpose(1, 2).reshape(n, t, -1))


class FeedForward(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.w1 = nn.Linear(WIDTH, hidden, bias=False)
        self.w2 = nn.Linear(hidden, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.feed_forward = FeedForward()
        self.attention_norm = RMSNorm(WIDTH)
        self.ffn_norm = RMSNorm(WIDTH)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    """Two blocks; the head shares the embedding's weight."""

    def __init__(self, vocabulary=17):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        self.norm = RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, vocabulary, bias=False)
        self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def network():
    torch.manual_seed(21)
    model = Llama()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.3 if "norm" in name else 0.15))
    return model


def batch():
    rng = np.random.default_rng(4)
    text = rng.integers(0, 17, (3, 7))
    return text[:, :-1], text[:, 1:]


def loss(network, tokens, targets):
    logits = network(tokens)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
