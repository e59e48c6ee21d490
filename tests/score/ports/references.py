"""Networks of PyTorch that others port, with their batches and losses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WORDS = 13


class LanguageModel(nn.Module):
    """One causal block; the output layer is tied to the embedding."""

    def __init__(self, width=8):
        super().__init__()
        self.tok = nn.Embedding(WORDS, width)
        self.pos = nn.Parameter(0.1 * torch.randn(6, width))
        self.ln1, self.ln2, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        count = ids.shape[1]
        x = self.tok(ids) + self.pos[:count]
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        y = self.ln1(x)
        x = x + self.attn(y, y, y, attn_mask=later, need_weights=False)[0]
        y = functional.gelu(self.up(self.ln2(x)), approximate="tanh")
        return self.head(self.norm(x + self.down(y))).flatten(0, 1)


class UNet(nn.Module):
    """Two sizes and one way across."""

    def __init__(self, width=4):
        super().__init__()
        self.down1 = self._step(2, width, 1)
        self.down2 = self._step(width, 2 * width, 2)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge = nn.Conv2d(2 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 3, 1)

    def _step(self, inputs, outputs, stride):
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1)
        return nn.Sequential(conv, nn.GroupNorm(2, outputs), nn.SiLU())

    def forward(self, x):
        skip = self.down1(x)
        up = self.up(self.down2(skip))
        return self.out(functional.silu(self.merge(torch.cat([skip, up], 1))))


class Pair(nn.Module):
    """Similarities of pictures and texts."""

    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(5, 7), nn.Linear(4, 7)
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, image, text):
        image = functional.normalize(self.image(image), dim=-1)
        text = functional.normalize(torch.tanh(self.text(text)), dim=-1)
        return self.scale.exp() * image @ text.T


class Recurrent(nn.Module):
    """Words with a padding, a GRU, a mean over time."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(WORDS, 6, padding_idx=0)
        self.gru = nn.GRU(6, 5, batch_first=True)
        self.out = nn.Linear(5, 4)

    def forward(self, ids):
        return self.out(self.gru(self.emb(ids))[0].mean(1))


class Residual(nn.Module):
    """A stem as that of ResNet, one block, and a head on the flattened pixels."""

    def __init__(self):
        super().__init__()
        self.c0 = nn.Conv2d(3, 5, 5, 2, 2, bias=False)
        self.c1 = nn.Conv2d(5, 5, 3, 1, 1, bias=False)
        self.b0, self.b1 = nn.BatchNorm2d(5), nn.BatchNorm2d(5)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.fc = nn.Linear(5 * 3 * 4, 4)

    def forward(self, x):
        x = self.pool(functional.relu(self.b0(self.c0(x))))
        x = functional.relu(x + self.b1(self.c1(x)))
        return self.fc(x.flatten(1))


class Sentences(nn.Module):
    """Convolutions over words, and the maximum over time."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(WORDS, 6)
        self.convs = nn.ModuleList(nn.Conv1d(6, 4, width) for width in (2, 3))
        self.d, self.o = nn.Dropout(0.4), nn.Linear(8, 4)

    def forward(self, ids):
        x = self.e(ids).transpose(1, 2)
        found = [conv(x).relu().amax(2) for conv in self.convs]
        return self.o(self.d(torch.cat(found, 1)))


def _values(*shape):
    return np.random.RandomState(5).randn(*shape).astype("float32")


def _labels(*shape, count=4):
    return np.random.RandomState(6).randint(0, count, size=shape)


def _tokens():
    tokens = _labels(4, 5, count=WORDS)
    tokens[0, :2] = 0
    return tokens


def cross_entropy(network, *batch, order=None):
    """The loss of all but the U-Net, of networks that take inputs in another order, too."""
    inputs = [batch[at] for at in order or range(len(batch) - 1)]
    return network.nn.cross_entropy(network(*inputs), batch[-1])


def mean_square(network, x, y):
    return network.nn.mse_loss(network(x), y)


@dataclass(frozen=True)
class Reference:
    """A class, what it is called with, and the loss."""

    build: Callable[[], nn.Module]
    batch: tuple[Any, ...]
    loss: Any = cross_entropy


REFERENCES = {
    "language model": Reference(LanguageModel, (_tokens(), _labels(20, count=WORDS))),
    "u-net": Reference(UNet, (_values(3, 2, 8, 6), _values(3, 3, 8, 6)), mean_square),
    "pair": Reference(Pair, (_values(6, 5), _values(6, 4), np.arange(6))),
    "recurrent": Reference(Recurrent, (_tokens(), _labels(4))),
    "residual": Reference(Residual, (_values(4, 3, 11, 15), _labels(4))),
    "sentences": Reference(Sentences, (_tokens(), _labels(4))),
}
