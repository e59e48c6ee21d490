"""A language model: settings in a dataclass, tied weights, a causal mask as buffer, a loss if there are targets."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Settings:
    length: int = 16
    words: int = 50
    depth: int = 2
    heads: int = 2
    width: int = 12
    dropout: float = 0.0
    bias: bool = True  # of layers and norms


class Norm(nn.Module):
    """A layer norm whose bias may be left out."""

    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-6)


class Causal(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.heads, self.width = settings.heads, settings.width
        self.qkv = nn.Linear(settings.width, 3 * settings.width, bias=settings.bias)
        self.out = nn.Linear(settings.width, settings.width, bias=settings.bias)
        self.dropout = nn.Dropout(settings.dropout)
        seen = torch.tril(torch.ones(settings.length, settings.length))
        self.register_buffer("seen", seen.view(1, 1, settings.length, settings.length))

    def _heads(self, x):
        b, t, _ = x.size()  # batch, time, width
        return x.view(b, t, self.heads, self.width // self.heads).transpose(1, 2)

    def forward(self, x):
        t = x.size(1)
        q, k, v = map(self._heads, self.qkv(x).split(self.width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.seen[:, :, :t, :t] == 0, float("-inf"))
        x = self.dropout(F.softmax(scores, dim=-1)) @ v
        x = x.transpose(1, 2).contiguous().view(-1, t, self.width)
        return self.dropout(self.out(x))


class Layer(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.norm1, self.attention = (
            Norm(settings.width, settings.bias),
            Causal(settings),
        )
        self.norm2 = Norm(settings.width, bias=settings.bias)
        self.mlp = nn.ModuleDict(
            dict(
                up=nn.Linear(settings.width, 4 * settings.width, bias=settings.bias),
                act=nn.GELU(approximate="tanh"),
                down=nn.Linear(4 * settings.width, settings.width, bias=settings.bias),
            )
        )
        m = self.mlp
        self.mlpf = lambda x: m.down(m.act(m.up(x)))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlpf(self.norm2(x))


class Language(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.words = nn.Embedding(settings.words, settings.width)
        self.places = nn.Embedding(settings.length, settings.width)
        self.layers = nn.ModuleList([Layer(settings) for _ in range(settings.depth)])
        self.norm = Norm(settings.width, settings.bias)
        self.head = nn.Linear(settings.width, settings.words, bias=False)
        self.words.weight = self.head.weight  # one matrix
        self.apply(self._start)

    def _start(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def count(self):
        return sum(p.numel() for p in self.parameters())

    def forward(self, tokens, targets=None):
        b, t = tokens.size()
        assert t <= self.settings.length, (
            f"{t} words are more than {self.settings.length}"
        )
        places = torch.arange(0, t, dtype=torch.long, device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss
