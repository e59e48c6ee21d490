"""The same in Chainer, channels first throughout; perceptrons are convolutions of one pixel."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class ChannelNorm(chainer.Link):
    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.eps = eps
        with self.init_scope():
            self.gamma = chainer.Parameter(1.0, (channels,))
            self.beta = chainer.Parameter(0.0, (channels,))

    def forward(self, x):
        shape = x.shape
        mean = F.broadcast_to(F.mean(x, axis=1, keepdims=True), shape)
        var = F.broadcast_to(F.mean((x - mean) ** 2, axis=1, keepdims=True), shape)
        y = (x - mean) / F.sqrt(var + self.eps)
        return F.bias(F.scale(y, self.gamma, axis=1), self.beta, axis=1)


class ConvNeXtBlock(chainer.Chain):
    def __init__(self, dim):
        super().__init__()
        with self.init_scope():
            self.conv = L.DepthwiseConvolution2D(dim, 1, 5, pad=2)
            self.norm = ChannelNorm(dim)
            self.fc1 = L.Linear(dim, 4 * dim)
            self.fc2 = L.Linear(4 * dim, dim)
            self.scale = L.Scale(W_shape=(dim,))

    def forward(self, x):
        n, c, h, w = x.shape
        y = self.norm(self.conv(x))
        y = F.reshape(F.transpose(y, (0, 2, 3, 1)), (n * h * w, c))
        y = self.fc1(y)
        y = y * F.ndtr(y)
        y = self.fc2(y)
        y = F.transpose(F.reshape(y, (n, h, w, c)), (0, 3, 1, 2))
        return x + self.scale(y)


class ConvNeXt(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv0 = L.Convolution2D(3, 6, 2, stride=2)
            self.norm0 = ChannelNorm(6)
            self.block1 = ConvNeXtBlock(6)
            self.norm1 = ChannelNorm(6)
            self.conv1 = L.Convolution2D(6, 10, 2, stride=2)
            self.block2 = ConvNeXtBlock(10)
            self.norm2 = L.LayerNormalization(10)
            self.fc = L.Linear(10, 5)

    def forward(self, x):
        h = self.norm0(self.conv0(x))
        h = self.block1(h)
        h = self.conv1(self.norm1(h))
        h = self.block2(h)
        h = F.mean(h, axis=(2, 3))
        return self.fc(self.norm2(h))


def network(reference):
    return ConvNeXt()


def loss(network, x, t):
    scores = network(x)
    weight = np.array([0.5, 1.0, 2.0, 1.0, 1.5], scores.dtype)
    each = F.softmax_cross_entropy(scores, t, class_weight=weight, reduce="no")
    return F.sum(each) / weight[t].sum()
