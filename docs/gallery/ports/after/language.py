"""Language, written once: a port of before.language."""

import math
from dataclasses import dataclass

import numpy as np

from deliralike import Network, start


@dataclass
class Settings:
    length: int = 16
    words: int = 50
    depth: int = 2
    heads: int = 2
    width: int = 12
    dropout: float = 0.0
    bias: bool = True  # of layers and norms


class Norm(Network):
    """A layer norm whose bias may be left out."""

    def __init__(self, width, bias):
        super().__init__()
        nn = self.nn
        self.weight = nn.Parameter((width,), start.ONES)
        self.bias = nn.Parameter((width,), start.ZEROS) if bias else None

    def forward(self, x):
        return self.nn.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-6)


class Causal(Network):
    def __init__(self, settings):
        super().__init__()
        nn = self.nn
        self.heads, self.width = settings.heads, settings.width
        self.qkv = nn.Linear(settings.width, 3 * settings.width, bias=settings.bias)
        self.out = nn.Linear(settings.width, settings.width, bias=settings.bias)
        self.dropout = nn.Dropout(settings.dropout)
        seen = np.tril(np.ones((settings.length, settings.length)))
        self.seen = nn.Buffer(seen.reshape(1, 1, settings.length, settings.length))

    def _heads(self, x):
        nn = self.nn
        b, t, _ = x.shape  # batch, time, width
        return nn.transpose(
            nn.reshape(x, (b, t, self.heads, self.width // self.heads)), 1, 2
        )

    def forward(self, x):
        nn = self.nn
        t = x.shape[1]
        q, k, v = map(self._heads, nn.split(self.qkv(x), self.width, dim=2))
        scores = (q @ nn.transpose(k, -2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
        scores = nn.masked_fill(scores, self.seen[:, :, :t, :t] == 0, float("-inf"))
        x = self.dropout(nn.softmax(scores, dim=-1)) @ v
        x = nn.reshape(nn.transpose(x, 1, 2), (-1, t, self.width))
        return self.dropout(self.out(x))


class Layer(Network):
    def __init__(self, settings):
        super().__init__()
        nn = self.nn
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

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlpf(self.norm2(x))

    def mlpf(self, x):
        return self.mlp.down(self.mlp.act(self.mlp.up(x)))


class Language(Network):
    def __init__(self, settings):
        super().__init__()
        nn = self.nn
        self.settings = settings
        self.words = nn.Embedding(settings.words, settings.width)
        self.places = nn.Embedding(settings.length, settings.width)
        self.layers = nn.ModuleList([Layer(settings) for _ in range(settings.depth)])
        self.norm = Norm(settings.width, settings.bias)
        self.head = nn.Linear(settings.width, settings.words, bias=False)
        self.words.weight = self.head.weight  # one matrix

    def forward(self, tokens, targets=None):
        nn = self.nn
        b, t = tokens.shape
        assert t <= self.settings.length, (
            f"{t} words are more than {self.settings.length}"
        )
        places = nn.arange(0, t, like=self.words.weight)
        x = self.words(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = nn.cross_entropy(
                nn.reshape(logits, (-1, logits.shape[-1])), nn.reshape(targets, (-1,))
            )
        return logits, loss
