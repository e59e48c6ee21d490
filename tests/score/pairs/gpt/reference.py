"""A small GPT in the manner of nanoGPT: tied embedding, mask in a buffer, GELU by tanh."""

import math

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

VOCABULARY, LENGTH, WIDTH, HEADS = 11, 8, 12, 2


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        mask = torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH)
        self.register_buffer("bias", mask)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)
        k = k.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        q = q.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        v = v.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 2 * WIDTH)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(2)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx):
        pos = torch.arange(idx.shape[1])
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def network():
    torch.manual_seed(1337)
    model = GPT()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p += 0.1 * torch.randn(p.shape)
        model.wte.weight *= 0.6
        model.wpe.weight *= 0.4
    return model


def batch():
    rng = np.random.default_rng(21)
    tokens = rng.integers(0, VOCABULARY, size=(3, LENGTH))
    return tokens[:, :-1], tokens[:, 1:]


def loss(network, idx, targets):
    logits = network(idx)
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


OPTIMIZERS = {
    "adamw": lambda network: torch.optim.AdamW(
        network.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1
    )
}
