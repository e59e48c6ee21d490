"""The network on Chainer; its replicas are shares of the batch, and batch norms see them all."""

import copy

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class MultiNorm(chainer.Link):
    """Batch normalization over all shares; arguments are (samples, channels)."""

    def __init__(self, size, decay=0.9, eps=1e-5):
        super().__init__()
        self.decay, self.eps, self.shares = decay, eps, 1
        with self.init_scope():
            self.gamma = chainer.Parameter(np.ones(size, np.float32))
            self.beta = chainer.Parameter(np.zeros(size, np.float32))
        self.add_persistent("avg_mean", np.zeros(size, np.float32))
        self.add_persistent("avg_var", np.ones(size, np.float32))

    def forward(self, x):
        if not chainer.config.train:
            return F.fixed_batch_normalization(
                x, self.gamma, self.beta, self.avg_mean, self.avg_var, eps=self.eps
            )
        axes = (0, *range(2, x.ndim))
        bounds = [len(part) for part in np.array_split(np.arange(len(x)), self.shares)]
        parts = F.split_axis(x, np.cumsum(bounds)[:-1], axis=0) if self.shares > 1 else [x]
        count = x.size // x.shape[1]
        mean = sum(F.sum(part, axis=axes) for part in parts) / count
        square = sum(F.sum(part**2, axis=axes) for part in parts) / count
        var = square - mean**2
        self.avg_mean = self.decay * self.avg_mean + (1 - self.decay) * mean.array
        unbiased = var.array * count / (count - 1)
        self.avg_var = self.decay * self.avg_var + (1 - self.decay) * unbiased
        shape = (1, -1) + (1,) * (x.ndim - 2)
        scale = (self.gamma / F.sqrt(var + self.eps)).reshape(shape)
        shift = self.beta.reshape(shape) - mean.reshape(shape) * scale
        return x * F.broadcast_to(scale, x.shape) + F.broadcast_to(shift, x.shape)


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        self.shares = 1
        with self.init_scope():
            self.c1 = L.Convolution2D(2, 6, 3, pad=1)
            self.n1 = MultiNorm(6)
            self.l1 = L.Linear(36, 7, nobias=True)
            self.n2 = MultiNorm(7)
            self.l2 = L.Linear(7, 3)

    def forward(self, x):
        h = F.average_pooling_2d(F.relu(self.n1(self.c1(x))), 2)
        return self.l2(F.relu(self.n2(self.l1(h))))


def loss(network, x, t):
    each = F.softmax_cross_entropy(network(x), t, reduce="no")
    shares = np.array_split(np.arange(len(t)), network.shares)
    total = sum(F.sum(each[share[0] : share[-1] + 1]) for share in shares)
    return total / len(t)


def replicate(network, count):
    """The network over that many shares of each batch."""
    native = copy.deepcopy(network.native)
    native.shares = native.n1.shares = native.n2.shares = count
    return network.backend.wrap(native)


def sgd(network):
    optimizer = chainer.optimizers.SGD(lr=0.1)
    optimizer.setup(network)
    return optimizer


OPTIMIZERS = {"sgd": sgd}


def network(reference):
    net = Net()
    w = {name: value.numpy() for name, value in reference.state_dict().items()}
    for link, name in ((net.c1, "conv"), (net.l1, "fc1"), (net.l2, "fc2")):
        link.W.array[...] = w[f"{name}.weight"]
        if f"{name}.bias" in w:
            link.b.array[...] = w[f"{name}.bias"]
    for norm, name in ((net.n1, "bn1"), (net.n2, "bn2")):
        norm.gamma.array[...] = w[f"{name}.weight"]
        norm.beta.array[...] = w[f"{name}.bias"]
        norm.avg_mean[...] = w[f"{name}.running_mean"]
        norm.avg_var[...] = w[f"{name}.running_var"]
    return net
