"""Chainer's links and functions that `nn` lacks, written once, with Chainer's names of weights.

A port takes the source of those that it needs into its file.
"""

from __future__ import annotations

import numpy as np

from deliralike.network.base import Network
from deliralike.nn import start
from deliralike.nn.layers.containers import ModuleList
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


def tree_lstm(nn, *inputs):
    """One node of a tree LSTM, from the cells of its children. Source: arXiv 1503.00075."""
    *cells, x = inputs
    a, i, o, *forget = nn.tensor_split(x, 3 + len(cells), 1)
    c = nn.tanh(a) * nn.sigmoid(i)
    for gate, cell in zip(forget, cells, strict=True):
        c = c + nn.sigmoid(gate) * cell
    return c, nn.sigmoid(o) * nn.tanh(c)


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


def swish(nn, x, beta):
    """Source: arXiv 1710.05941."""
    return x * nn.sigmoid(scale(nn, x, beta, 1))


def maxout(nn, x, pool_size, axis=1):
    """The largest of so many neighbours along an axis."""
    axes = (*x.shape[:axis], -1, pool_size, *x.shape[axis + 1 :])
    return nn.amax(nn.reshape(x, axes), axis + 1)


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


def pad_sequence(nn, xs, length=None, padding=0):
    """Sequences of several lengths as one array."""
    length = max(len(x) for x in xs) if length is None else length
    rows = []
    for x in xs:
        others = [(0, 0)] * (len(x.shape) - 1)
        widths = [(0, length - len(x)), *others]
        rows.append(nn.pad(x, widths, "constant", padding))
    return nn.stack(rows, 0)


def depth2space(nn, X, r):
    """Channels as pixels, r times r; the position comes before the channel."""
    n, _, height, width = X.shape
    X = nn.reshape(X, (n, r, r, -1, height, width))
    X = nn.permute(X, (0, 3, 4, 1, 5, 2))
    return nn.reshape(X, (n, -1, height * r, width * r))


def spatial_pyramid_pooling_2d(nn, x, pyramid_height, pooling="max"):
    """The maxima of 1, 4, 16 ... parts of an image, side by side. Source: arXiv 1406.4729."""
    assert pooling == "max", pooling
    found = []
    for level in range(pyramid_height):
        parts = 2**level
        size = [-(-length // parts) for length in x.shape[2:]]
        pads = []
        for window, length in zip(size, x.shape[2:], strict=True):
            pads.append((window * parts - length) // 2)
        y = nn.max_pool2d(x, size, size, pads, ceil_mode=True)
        found.append(nn.reshape(y, (x.shape[0], -1, 1, 1)))
    return nn.cat(found, 1)


def accuracy(nn, y, t):
    """How often the largest score is that of the label."""
    return nn.mean(nn.cast(nn.argmax(y, 1) == t, y))


def huber_loss(nn, x, t, delta, reduce="sum_along_second_axis"):
    """The square of small differences, the size of large ones."""
    losses = nn.huber_loss(x, t, reduction="none", delta=delta)
    return losses if reduce == "no" else nn.sum(losses, 1)


def sigmoid_cross_entropy(nn, x, t):
    """The mean loss of logits; labels of -1 do not count."""
    is_known = nn.cast(t != -1, x)
    losses = nn.softplus(x) - x * nn.cast(t, x)
    return nn.sum(losses * is_known) / nn.clip(nn.sum(is_known), 1.0, None)


def gaussian_kl_divergence(nn, mean, ln_var, reduce="sum"):
    """The divergence of normal distributions from that of variance 1. Source: arXiv 1312.6114."""
    losses = (nn.square(mean) + nn.exp(ln_var) - ln_var - 1) * 0.5
    return {"sum": nn.sum, "mean": nn.mean, "no": lambda x: x}[reduce](losses)


def bernoulli_nll(nn, x, y, reduce="sum"):
    """The negative logarithm of the likelihood of x, by logits y."""
    losses = nn.softplus(y) - x * y
    return {"sum": nn.sum, "mean": nn.mean, "no": lambda x: x}[reduce](losses)


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


class GRUWeights(Network):
    """A GRU with the reset applied before the product. Source: arXiv 1406.1078."""

    def __init__(self, in_size, out_size):
        super().__init__()
        nn = self.nn
        self.W_r, self.U_r = nn.Linear(in_size, out_size), nn.Linear(out_size, out_size)
        self.W_z, self.U_z = nn.Linear(in_size, out_size), nn.Linear(out_size, out_size)
        self.W, self.U = nn.Linear(in_size, out_size), nn.Linear(out_size, out_size)

    def step(self, h, x):
        nn = self.nn
        r = nn.sigmoid(self.W_r(x) + self.U_r(h))
        z = nn.sigmoid(self.W_z(x) + self.U_z(h))
        new = nn.tanh(self.W(x) + self.U(r * h))
        return z * new + (1 - z) * h


class StatelessGRU(GRUWeights):
    """One step of a GRU."""

    def forward(self, h, x):
        return self.step(h, x)


class StatefulGRU(GRUWeights):
    """A GRU that remembers its state."""

    def __init__(self, in_size, out_size):
        super().__init__(in_size, out_size)
        self.size = out_size
        self.last_h = self.nn.State((0, out_size), like=self.W.weight)

    @property
    def h(self):
        return self.last_h[...] if len(self.last_h) else None

    def set_state(self, h):
        self.last_h = h

    def reset_state(self):
        self.last_h = self.nn.zeros((0, self.size), like=self.W.weight)

    def forward(self, x):
        nn = self.nn
        if self.h is None:  # the hidden state's biases are not used then
            y = nn.sigmoid(self.W_z(x)) * nn.tanh(self.W(x))
        else:
            y = self.step(self.h, x)
        self.set_state(y)
        return y


# Recurrent links over lists of sequences
# -------------------------------------------------------------------------------------------------


class SequenceWeights(Network):
    """One layer: the first half of the weights is multiplied by inputs, the rest by the state."""

    def __init__(self, gates, in_size, out_size, dropout):
        super().__init__()
        nn = self.nn
        self.gates = gates
        for number in range(2 * gates):
            width = in_size if number < gates else out_size
            weight = nn.Parameter((out_size, width), start.Normal(width**-0.5))
            setattr(self, f"w{number}", weight)
            setattr(self, f"b{number}", nn.Parameter((out_size,), start.ZEROS))
        self.drop = nn.Dropout(dropout)

    def joined(self):
        """The weights and biases of all gates, of inputs and of the state."""
        found = []
        for letter in ("w", "b"):
            parts = [getattr(self, f"{letter}{n}") for n in range(2 * self.gates)]
            found.append(self.nn.cat(parts[: self.gates]))
            found.append(self.nn.cat(parts[self.gates :]))
        return found


class Sequences(ModuleList):
    """A recurrent network of several layers over a list of sequences, each of its own length."""

    def __init__(self, n_layers, in_size, out_size, dropout, directions=1):
        sizes = [in_size] * directions
        sizes += [out_size * directions] * (directions * (n_layers - 1))
        weights = []
        for size in sizes:
            weights.append(SequenceWeights(self.gates, size, out_size, dropout))
        super().__init__(weights)
        self.size, self.directions = out_size, directions

    def start_of(self, state, xs):
        """A state that was given, or zeros."""
        if state is not None:
            return state
        return self.nn.zeros((len(self), len(xs), self.size), like=xs[0])

    def run(self, xs, *states):
        """The outputs, and the last states of each layer and direction."""
        nn = self.nn
        last = []
        for first in range(0, len(self), self.directions):
            if first:
                xs = self.dropped(xs, self[first].drop)
            outputs = []
            for number in range(first, first + self.directions):
                begin = [state[number] for state in states]
                is_reverse = number > first
                ys, end = self.direction(self[number], xs, begin, is_reverse)
                outputs.append(ys)
                last.append(end)
            xs = [nn.cat(ys, 1) for ys in zip(*outputs, strict=True)]
        return xs, [nn.stack(ends, 0) for ends in zip(*last, strict=True)]

    def dropped(self, xs, drop):
        """The sequences, some elements of which are zero in training."""
        ends = np.cumsum([len(x) for x in xs])[:-1].tolist()
        return self.nn.tensor_split(drop(self.nn.cat(xs, 0)), ends, 0)

    def direction(self, layer, xs, states, is_reverse):
        """The outputs of one layer in one direction, and its last states."""
        nn = self.nn
        weights = layer.joined()
        outputs, last = [], []
        for number, x in enumerate(xs):
            begin = [state[number : number + 1] for state in states]
            x = nn.unsqueeze(nn.flip(x, 0) if is_reverse else x, 1)
            y, *end = self.step(x, *begin, *weights)
            y = nn.squeeze(y, 1)
            outputs.append(nn.flip(y, 0) if is_reverse else y)
            last.append(end)
        return outputs, [nn.cat(ends, 0) for ends in zip(*last, strict=True)]


class SequencesLSTM(Sequences):
    """LSTMs over a list of sequences."""

    gates = 4

    def step(self, *inputs):
        return self.nn.lstm(*inputs)

    def forward(self, hx, cx, xs):
        ys, (h, c) = self.run(xs, self.start_of(hx, xs), self.start_of(cx, xs))
        return h, c, ys


class SequencesGRU(Sequences):
    """GRUs over a list of sequences."""

    gates = 3

    def step(self, *inputs):
        return self.nn.gru(*inputs)

    def forward(self, hx, xs):
        ys, (h,) = self.run(xs, self.start_of(hx, xs))
        return h, ys


class SequencesTanh(SequencesGRU):
    """Plain recurrent networks with tanh over a list of sequences."""

    gates = 1

    def step(self, *inputs):
        return self.nn.rnn(*inputs)


class SequencesReLU(SequencesGRU):
    """Plain recurrent networks with ReLU over a list of sequences."""

    gates = 1

    def step(self, x, h, w_ih, w_hh, b_ih, b_hh):
        return self.nn.rnn(x, h, w_ih, w_hh, b_ih, b_hh, "relu")


# Others
# -------------------------------------------------------------------------------------------------


class DepthwiseConvolution2D(Network):
    """A convolution of each channel by itself."""

    def __init__(
        self, in_channels, channel_multiplier, ksize, stride=1, pad=0, nobias=False
    ):
        super().__init__()
        height, width = (ksize, ksize) if isinstance(ksize, int) else ksize
        shape = (channel_multiplier, in_channels, height, width)
        first = start.Normal((in_channels * height * width) ** -0.5)
        self.W = self.nn.Parameter(shape, first)
        self.b = None
        if not nobias:
            size = (channel_multiplier * in_channels,)
            self.b = self.nn.Parameter(size, start.ZEROS)
        self.stride, self.pad = stride, pad

    def forward(self, x):
        nn = self.nn
        kernels = nn.permute(self.W, (1, 0, 2, 3))
        weight = nn.reshape(kernels, (-1, 1, *kernels.shape[2:]))
        groups = kernels.shape[0]
        return nn.conv2d(x, weight, self.b, self.stride, self.pad, groups=groups)


class BilinearForm(Network):
    """A bilinear form of two inputs, with linear functions of each."""

    def __init__(self, left_size, right_size, out_size, nobias=False):
        super().__init__()
        nn = self.nn
        first = start.Normal((left_size * right_size) ** -0.5)
        self.W = nn.Parameter((left_size, right_size, out_size), first)
        if not nobias:
            of_left = start.Normal(left_size**-0.5)
            of_right = start.Normal(right_size**-0.5)
            self.V1 = nn.Parameter((left_size, out_size), of_left)
            self.V2 = nn.Parameter((right_size, out_size), of_right)
            self.b = nn.Parameter((out_size,), start.ZEROS)
        self.nobias = nobias

    def forward(self, e1, e2):
        nn = self.nn
        e1, e2 = nn.flatten(e1, 1), nn.flatten(e2, 1)
        y = nn.einsum("bi,bj,ijk->bk", e1, e2, self.W)
        if self.nobias:
            return y
        return y + nn.matmul(e1, self.V1) + nn.matmul(e2, self.V2) + self.b


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


class LinearMaxout(Network):
    """The largest of several linear functions. Source: Goodfellow et al. 2013."""

    def __init__(self, in_size, out_size, pool_size):
        super().__init__()
        self.linear = self.nn.Linear(in_size, out_size * pool_size)
        self.pool_size = pool_size

    def forward(self, x):
        nn = self.nn
        return maxout(nn, self.linear(nn.flatten(x, 1)), self.pool_size)
