"""The classifier as a chain."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class Classifier(chainer.Chain):
    """Two convolutions with norms and pooling, then two linear layers."""

    def __init__(self, n_out=5):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 6, ksize=3, pad=1)
            self.conv2 = L.Convolution2D(6, 8, ksize=3, stride=2, pad=1)
            self.norm1 = L.BatchNormalization(6, eps=1e-5)
            self.norm2 = L.BatchNormalization(8, eps=1e-5)
            self.l1 = L.Linear(48, 20)
            self.l2 = L.Linear(20, n_out)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        h = F.max_pooling_2d(h, 2, cover_all=False)
        h = F.leaky_relu(self.norm2(self.conv2(h)), slope=0.1)
        h = F.average_pooling_2d(h, 3, stride=1, pad=1)
        h = F.relu(self.l1(h))
        return self.l2(h)


def network(reference):
    """The port with weights of its own."""
    return Classifier()


def loss(network, x, t):
    """Cross-entropy with smoothed labels."""
    log_p = F.log_softmax(network(x))
    nll = -F.select_item(log_p, t)
    uniform = -F.mean(log_p, axis=1)
    return F.mean(0.9 * nll + 0.1 * uniform)


def _sgd(network):
    optimizer = chainer.optimizers.SGD(lr=0.05)
    optimizer.setup(network)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(0.01))
    return optimizer


OPTIMIZERS = {"sgd": _sgd}
