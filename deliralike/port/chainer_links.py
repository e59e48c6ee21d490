"""Chainer's links and functions that `nn` lacks, written once, with Chainer's names of weights.

A port takes the source of those that it needs into its file.
"""

from __future__ import annotations

import numpy as np

from deliralike.network.base import Network
from deliralike.nn.layers.linear import Embedding, Linear

# Functions
# -------------------------------------------------------------------------------------------------


def lstm(nn, c_prev, x):
    """One step of an LSTM, whose four gates take turns along axis 1; fewer samples may go on."""
    gates = nn.reshape(x, (x.shape[0], -1, 4, *x.shape[2:]))
    a, i, f, o = nn.unbind(gates, 2)
    active, ended = c_prev[: x.shape[0]], c_prev[x.shape[0] :]
    c = nn.tanh(a) * nn.sigmoid(i) + active * nn.sigmoid(f)
    h = nn.sigmoid(o) * nn.tanh(c)
    if len(ended):
        c = nn.cat([c, ended], 0)
    return c, h


def aligned(nn, y, x, axis):
    """The array with axes of one element, so that its first axis is that axis of another."""
    behind = [1] * (len(x.shape) - axis - len(y.shape))
    return nn.reshape(y, (*[1] * axis, *y.shape, *behind))


def scale(nn, x, y, axis=1):
    """The product with an array whose first axis is that axis."""
    return x * aligned(nn, y, x, axis)


def bias(nn, x, y, axis=1):
    """The sum with an array whose first axis is that axis."""
    return x + aligned(nn, y, x, axis)


def normalize(nn, x, eps=1e-5, axis=1):
    """``x / (norm + eps)`` over an axis."""
    return x / (nn.norm(x, dim=axis, keepdim=True) + eps)


def embed_id(nn, x, W, ignore_label=None):
    """Rows of a matrix; zeros for one label."""
    if ignore_label is None:
        return nn.embedding(x, W)
    is_word = x != ignore_label
    rows = nn.embedding(nn.where(is_word, x, 0), W)
    return nn.where(nn.unsqueeze(is_word, -1), rows, 0.0)


def pad(nn, x, pad_width, mode, constant_values=0):
    """The array with more elements at the ends of all axes."""
    widths = np.broadcast_to(pad_width, (len(x.shape), 2)).tolist()
    modes = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}
    value = constant_values if mode == "constant" else None
    return nn.pad(x, widths, modes[mode], value)


def accuracy(nn, y, t):
    """How often the largest score is that of the label."""
    return nn.mean(nn.cast(nn.argmax(y, 1) == t, y))


def huber_loss(nn, x, t, delta, reduce="sum_along_second_axis"):
    """The square of small differences, the size of large ones."""
    losses = nn.huber_loss(x, t, reduction="none", delta=delta)
    return losses if reduce == "no" else nn.sum(losses, 1)


# Recurrent links of one step
# -------------------------------------------------------------------------------------------------


class LSTMWeights(Network):
    """An LSTM. Source: arXiv 1409.2329."""

    def __init__(self, in_size, out_size):
        super().__init__()
        nn = self.nn
        self.size = out_size
        self.upward = nn.Linear(in_size, 4 * out_size)
        self.lateral = nn.Linear(out_size, 4 * out_size, bias=False)

    def step(self, c, h, x):
        nn = self.nn
        gates = self.upward(x)
        if h is not None:
            gates = gates + self.lateral(h)
        if c is None:
            c = nn.zeros((x.shape[0], self.size), like=gates)
        return lstm(nn, c, gates)


class StatelessLSTM(LSTMWeights):
    """One step of an LSTM."""

    def forward(self, c, h, x):
        return self.step(c, h, x)


class StatefulLSTM(LSTMWeights):
    """An LSTM that remembers its state; fewer samples than before leave the rest as it was."""

    def __init__(self, in_size, out_size):
        super().__init__(in_size, out_size)
        nn = self.nn
        self.last_c = nn.State((0, out_size), like=self.upward.weight)
        self.last_h = nn.State((0, out_size), like=self.upward.weight)

    @property
    def c(self):
        return self.last_c[...] if len(self.last_c) else None

    @property
    def h(self):
        return self.last_h[...] if len(self.last_h) else None

    def set_state(self, c, h):
        self.last_c, self.last_h = c, h

    def reset_state(self):
        none = self.nn.zeros((0, self.size), like=self.upward.weight)
        self.set_state(none, none)

    def forward(self, x):
        h = self.h
        if h is None:
            c, y = self.step(self.c, None, x)
            self.set_state(c, y)
            return y
        count = x.shape[0]
        c, y = self.step(self.c, h[:count], x)
        self.set_state(c, self.nn.cat([y, h[count:]], 0))
        return y


# Others
# -------------------------------------------------------------------------------------------------


class FunctionOfOne(Network):
    """A function as a member of a sequence."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class FlatLinear(Linear):
    """A linear layer that makes one row of each sample."""

    def forward(self, x, n_batch_axes=1):
        return super().forward(self.nn.flatten(x, n_batch_axes))


class IgnoringEmbedding(Embedding):
    """An embedding that is zero for one word."""

    def __init__(self, words, width, ignored):
        super().__init__(words, width)
        self.ignored = ignored

    def forward(self, x):
        return embed_id(self.nn, x, self.weight, self.ignored)
