"""A generator of Chainer: sizes that links find out, an activation that is an argument, old `super`."""

import chainer
import chainer.functions as F
import chainer.links as L


class Double(chainer.Chain):
    """Twice the size."""

    def __init__(self, channels, ksize=4, norm=True, activation=F.relu):
        super(Double, self).__init__()
        self.activation = activation
        self.norm = norm
        with self.init_scope():
            start = chainer.initializers.Normal(0.02)
            self.conv = L.Deconvolution2D(
                None, channels, ksize, 2, 1, nobias=norm, initialW=start
            )
            if norm:
                self.bn = L.BatchNormalization(channels)

    def __call__(self, x):
        h = self.conv(x)
        if self.norm:
            h = self.bn(h)
        return self.activation(h)


class Generator(chainer.Chain):
    def __init__(self, latent, side=3, channels=8):
        super(Generator, self).__init__()
        self.side, self.channels = side, channels
        with self.init_scope():
            self.project = L.Linear(latent, side * side * channels)
            self.bn = L.BatchNormalization(side * side * channels)
            self.doubled = chainer.Sequential(
                Double(channels // 2), Double(channels // 4)
            )
            self.last = Double(1, ksize=3, norm=False, activation=F.tanh)

    def __call__(self, z):
        h = F.leaky_relu(self.bn(self.project(z)))
        h = F.reshape(h, (len(z), self.channels, self.side, self.side))
        h = self.last(self.doubled(h))
        return F.max_pooling_2d(h, 3, stride=2)
