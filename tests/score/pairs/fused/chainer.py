"""The network on Chainer as it is deployed."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "judge"


class Deployed(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.stem = L.Convolution2D(3, 6, 3, pad=1)
            self.merged = L.Convolution2D(6, 8, 3, stride=2, pad=1)
            self.qkv = L.Linear(8, 24)
            self.proj = L.Linear(8, 8)
            self.fc = L.Linear(8, 3)

    def attend(self, x):
        n, t, c = x.shape
        heads = self.qkv(x, n_batch_axes=2).reshape(n, t, 3, 2, 4)
        q, k, v = F.separate(F.transpose(heads, (2, 0, 3, 1, 4)), axis=0)
        w = F.softmax(F.matmul(q, k, transb=True) * 0.5, axis=-1)
        y = F.transpose(F.matmul(w, v), (0, 2, 1, 3)).reshape(n, t, c)
        return self.proj(y, n_batch_axes=2)

    def forward(self, x):
        h = F.relu(self.stem(x))
        h = F.relu(self.merged(h))
        h = F.transpose(h.reshape(*h.shape[:2], -1), (0, 2, 1))
        h = h + self.attend(h)
        return self.fc(F.mean(h, axis=1))


def fold(conv, bn):
    """Kernel and bias of a convolution with the norm after it."""
    scale = (bn.weight / bn.running_var.sqrt()).numpy()
    kernel = conv.weight.detach().numpy() * scale.reshape(-1, 1, 1, 1)
    return kernel, bn.bias.numpy() - bn.running_mean.numpy() * scale


def network(reference):
    net = Deployed()
    net.stem.W.array[...], net.stem.b.array[...] = fold(reference.conv, reference.bn)
    wide, narrow = reference.block.wide, reference.block.narrow
    net.merged.W.array[...] = wide.weight.detach().numpy()
    net.merged.W.array[:, :, 1, 1] += narrow.weight.detach().numpy()[:, :, 0, 0]
    net.merged.b.array[...] = (wide.bias + narrow.bias).detach().numpy()
    attention = reference.attention
    layers = (attention.query, attention.key, attention.value)
    net.qkv.W.array[...] = np.concatenate([layer.weight.detach().numpy() for layer in layers])
    net.qkv.b.array[...] = np.concatenate([layer.bias.detach().numpy() for layer in layers])
    for link, layer in ((net.proj, attention.proj), (net.fc, reference.head)):
        link.W.array[...] = layer.weight.detach().numpy()
        link.b.array[...] = layer.bias.detach().numpy()
    return net
