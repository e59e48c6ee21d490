"""The autoencoder on Chainer."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class Autoencoder(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1, self.l2, self.l3 = L.Linear(9, 6), L.Linear(6, 4), L.Linear(4, 4)
            self.again = L.Linear(4, 4)
            self.b2 = chainer.Parameter(np.zeros(6, np.float32))
            self.b1 = chainer.Parameter(np.zeros(9, np.float32))

    def forward(self, x):
        h = F.leaky_relu(self.l1(x))
        h = F.leaky_relu(self.l2(h))
        z = self.l3(h)
        z = z + F.tanh(self.again(z))
        z = z + F.tanh(self.again(z))
        h = F.matmul(z, self.l3.W)
        h = F.leaky_relu(F.linear(h, self.l2.W.T, self.b2))
        return F.linear(h, self.l1.W.T, self.b1)


def loss(network, x, t):
    return F.mean_squared_error(network(x), t)


def network(reference):
    port = Autoencoder()
    for link, source in (
        (port.l1, reference.enc1),
        (port.l2, reference.enc2),
        (port.l3, reference.mix),
        (port.again, reference.refine),
    ):
        link.W.array[...] = source.weight.detach().numpy()
        link.b.array[...] = source.bias.detach().numpy()
    port.b2.array[...] = reference.dec_bias2.detach().numpy()
    port.b1.array[...] = reference.dec_bias1.detach().numpy()
    return port
