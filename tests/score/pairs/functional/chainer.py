"""The classifier in Chainer: parameters in a link, and functions."""

import math

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F = chainer.functions

WEIGHTS = "judge"


def matmul(x, w):
    """Batches of sequences times one matrix."""
    return F.tensordot(x, w, axes=1)


def rms_norm(x, weight):
    ms = F.mean(x * x, axis=2, keepdims=True)
    y = x / F.broadcast_to(F.sqrt(ms + 1e-6), x.shape)
    return F.scale(y, weight, axis=2)


class Classifier(chainer.Link):
    def __init__(self, **arrays):
        super().__init__()
        with self.init_scope():
            for name, array in arrays.items():
                setattr(self, name, chainer.Parameter(array.copy()))

    def attention(self, x):
        q, k, v = matmul(x, self.wq), matmul(x, self.wk), matmul(x, self.wv)
        score = F.matmul(q, k, transb=True) / math.sqrt(6)
        t = x.shape[1]
        band = np.tril(np.ones((t, t))) - np.tril(np.ones((t, t)), -3)
        score = score + np.where(band, 0, -1e30).astype(x.dtype)[None].repeat(len(x), 0)
        return F.matmul(F.softmax(score, axis=2), v)

    def mlp(self, x):
        gate = matmul(x, self.w_gate)
        up = matmul(x, self.w_up)
        return matmul(gate * F.sigmoid(gate) * up, self.w_down)

    def forward(self, x):
        b, t, _ = x.shape
        h = F.bias(matmul(x, self.w_in), self.b_in, axis=2)
        h = h * F.ndtr(h)
        h = F.reshape(h, (b * t, -1))
        h = F.layer_normalization(h, self.norm_scale, self.norm_shift, eps=1e-5)
        h = F.reshape(h, (b, t, -1))
        h = h + self.attention(h)
        h = h + self.mlp(rms_norm(h, self.rms))
        h = F.convolution_1d(F.swapaxes(h, 1, 2), self.filters, pad=1)
        h = F.elu(h)
        h = F.average_pooling_1d(h, 3, stride=2)
        h = F.softplus(F.max(h, axis=2))
        h = F.normalize(h, eps=0)
        scores = F.linear(h, F.normalize(self.prototypes, eps=0))
        return scores * F.broadcast_to(self.temperature, scores.shape)


def network(reference):
    return Classifier(**{name: value.numpy() for name, value in reference.state_dict().items()})


def loss(network, x, t):
    scores = network(x)
    z = F.logsumexp(scores, axis=1)
    return F.softmax_cross_entropy(scores, t) + 1e-2 * F.mean(z**2)


class NesterovRule(chainer.optimizers.momentum_sgd.MomentumSGDRule):
    """The rate outside of the velocity, as in torch."""

    def update_core_cpu(self, param):
        lr, momentum, v = self.hyperparam.lr, self.hyperparam.momentum, self.state["v"]
        v *= momentum
        v += param.grad
        param.data -= lr * (param.grad + momentum * v)


class Nesterov(chainer.optimizers.MomentumSGD):
    def create_update_rule(self):
        return NesterovRule(self.hyperparam)


def _momentum(network):
    return Nesterov(lr=0.02, momentum=0.9).setup(network)


OPTIMIZERS = {"momentum": _momentum}
