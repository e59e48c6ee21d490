"""Chains as people have written them, with their habits."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import Sequential


class Perceptron(chainer.Chain):
    """Members by their names, as before Chainer 2, and sizes that are found out."""

    def __init__(self, n_units, n_out):
        super().__init__(
            l1=L.Linear(None, n_units),
            l2=L.Linear(None, n_units),
            l3=L.Linear(None, n_out, nobias=True),
        )

    def __call__(self, x):
        h1 = F.relu(self.l1(x))
        h2 = F.relu(self.l2(h1))
        return self.l3(h2)


class Block(chainer.Chain):
    def __init__(self, out_channels, ksize, pad=1):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(None, out_channels, ksize, pad=pad, nobias=True)
            self.bn = L.BatchNormalization(out_channels)

    def forward(self, x):
        h = self.conv(x)
        h = self.bn(h)
        return F.relu(h)


class Blocks(chainer.Chain):
    """A class whose instances have other sizes, and pooling that covers all."""

    def __init__(self, class_labels=10):
        super().__init__()
        with self.init_scope():
            self.block1_1 = Block(6, 3)
            self.block1_2 = Block(6, 3)
            self.block2 = Block(8, 3)
            self.fc1 = L.Linear(None, 16, nobias=True)
            self.bn_fc1 = L.BatchNormalization(16, decay=0.8)
            self.fc2 = L.Linear(None, class_labels, nobias=True)

    def forward(self, x):
        h = self.block1_1(x)
        h = F.dropout(h, ratio=0.3)
        h = self.block1_2(h)
        h = F.max_pooling_2d(h, ksize=2, stride=2)
        h = F.dropout(self.block2(h), ratio=0.4)
        h = F.average_pooling_2d(h, 2)
        h = self.fc1(h)
        h = F.relu(self.bn_fc1(h))
        return self.fc2(F.dropout(h))


class Generator(chainer.Chain):
    def __init__(self, n_hidden, bottom_width=4, ch=8, wscale=0.02):
        super().__init__()
        self.n_hidden = n_hidden
        self.ch = ch
        self.bottom_width = bottom_width

        with self.init_scope():
            w = chainer.initializers.Normal(wscale)
            self.l0 = L.Linear(
                self.n_hidden, bottom_width * bottom_width * ch, initialW=w
            )
            self.dc1 = L.Deconvolution2D(ch, ch // 2, 4, 2, 1, initialW=w)
            self.dc2 = L.Deconvolution2D(ch // 2, 3, 3, 1, 1, initialW=w)
            self.bn0 = L.BatchNormalization(bottom_width * bottom_width * ch)
            self.bn1 = L.BatchNormalization(ch // 2)

    def forward(self, z):
        h = F.reshape(
            F.relu(self.bn0(self.l0(z))),
            (len(z), self.ch, self.bottom_width, self.bottom_width),
        )
        h = F.relu(self.bn1(self.dc1(h)))
        return F.sigmoid(self.dc2(h))


class Residuals(chainer.ChainList):
    def __init__(self, n, width):
        super().__init__()
        for _ in range(n):
            self.add_link(Sequential(L.Convolution2D(None, width, 3, pad=1), F.relu))
        self.add_link(L.GroupNormalization(2))

    def __call__(self, x):
        *blocks, norm = self.children()
        for f in blocks:
            x = x + f(x)
        return norm(x)


class Mixed(chainer.Chain):
    def __init__(self, width=6):
        super().__init__()
        self.width = width
        with self.init_scope():
            self.stem = L.DilatedConvolution2D(3, width, 3, pad=2, dilate=2)
            self.rest = Residuals(2, width)
            self.scale = chainer.Parameter(
                chainer.initializers.Constant(0.5), (width, 1, 1)
            )
            self.norm = L.LayerNormalization(2 * width)
            self.out = L.Linear(2 * width, 5)
        self.add_persistent("mean", np.arange(3, dtype=np.float32).reshape(3, 1, 1))

    def __call__(self, x):
        x = x - F.broadcast_to(self.mean, x.shape)
        h = F.local_response_normalization(self.stem(x), n=3)
        h = self.rest(h) * F.broadcast_to(self.scale, h.shape)
        b, c = h.shape[0], h.shape[1]
        pooled = F.concat((F.mean(h, axis=(2, 3)), F.max(h.reshape(b, c, -1), axis=2)))
        if chainer.config.train:
            pooled = 1.0 * pooled
        attention = F.softmax(F.matmul(pooled, pooled, transb=True))
        h = F.transpose(F.matmul(attention, pooled), (0, 1))
        return F.log_softmax(self.out(F.leaky_relu(self.norm(h))))


class Words(chainer.Chain):
    def __init__(self, n_vocab, n_units):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, n_units)
            self.conv = L.Convolution1D(n_units, n_units, 3, pad=1)
            self.out = L.Linear(n_units, n_vocab)

    def __call__(self, x):
        e = self.embed(x)
        h = F.tanh(self.conv(F.swapaxes(e, 1, 2)))
        h = F.stack([F.max(h, axis=2), F.sum(h, axis=2)], axis=1)
        a, b = F.split_axis(h, 2, axis=1)
        return self.out(F.squeeze(a, axis=1) + F.reshape(b, (len(x), -1)))


class ByHand(chainer.Chain):
    """What has no counterpart."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.lstm = L.LSTM(4, 3)
            self.out = L.Linear(3, 2)

    def __call__(self, x):
        noise = self.xp.random.normal(size=x.shape).astype(x.dtype)
        return F.depth2space(self.out(self.lstm(x + noise)).reshape(1, 4, 1, -1), 2)


class Normed(chainer.Chain):
    def __init__(self, in_channels, out_channels, bn_kwargs={}):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(
                in_channels, out_channels, 3, pad=1, nobias=True
            )
            self.bn = L.BatchNormalization(out_channels, **bn_kwargs)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Stages(chainer.Chain):
    """Members by names that are put together, what is reported, enlarging in three ways."""

    def __init__(self, count=2, channels=3):
        super().__init__()
        self.count = count
        for at in range(count):
            options = {"eps": 1e-3, "decay": 0.7} if at else {"decay": 0.95}
            self.add_link(f"stage{at}", Normed(channels, 4, options))
            channels = 4
        with self.init_scope():
            self.out = L.Convolution2D(4, 2, 1)

    def __call__(self, x, t=None):
        size = x.shape[2:]
        for at in range(self.count):
            x = self[f"stage{at}"](x)
        small = F.clip(F.average_pooling_2d(x, 2), x_max=1.5, x_min=0.25)
        x = F.unpooling_2d(small, 2, cover_all=False) + F.unpooling_2d(
            small, 2, outsize=size
        )
        x = self.out(x)[:, :, 1:, 1:] + F.unpooling_2d(self.out(small), 2)
        if t is None:
            return F.softmax(x)
        loss = F.softmax_cross_entropy(x, t)
        chainer.report({"loss": loss, "accuracy": F.accuracy(x, t)}, self)
        return loss


class Ignoring(chainer.Chain):
    """A word that stands for none."""

    def __init__(self, n_vocab):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(n_vocab, 5, ignore_label=-1)
            self.out = L.Linear(5, 3)

    def forward(self, xs):
        return self.out(F.sum(self.embed(xs), axis=1))


class FoundOut(chainer.Chain):
    """A number of channels that is found out, handed on by the block around it."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first = Normed(None, 4)

    def forward(self, x):
        return self.first(x)


class Made(chainer.Chain):
    """Links that are made of other links, and a setting with the name of a method."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.inception = L.Inception(3, 4, 3, 5, 2, 4, 3)
            self.bn = L.InceptionBN(16, 0, 3, 4, 3, 4, "max", stride=2)
            self.fc = L.Linear(None, 6)
            self.highway = L.Highway(6)
            self.maxout = L.Maxout(6, 4, 3)
        self.train = True

    def __call__(self, x):
        h = self.bn(self.inception(x))
        return self.maxout(self.highway(self.fc(h))), self.train


class Listed(chainer.ChainList):
    """Members that are handed to the list one by one."""

    def __init__(self):
        links = [L.Linear(5, 5) for _ in range(2)]
        super().__init__(L.Linear(4, 5), *links)
        self.scale = 0.5

    def forward(self, x):
        for link in self.children():
            x = F.tanh(link(x)) * self.scale
        return x


class Discriminator(chainer.Chain):
    """Batch normalisation without a factor, or without a shift."""

    def __init__(self, ch=8):
        super().__init__()
        w = chainer.initializers.Normal(0.02)
        with self.init_scope():
            self.c0 = L.Convolution2D(3, ch, 4, 2, 1, initialW=w)
            self.bn0 = L.BatchNormalization(ch, use_gamma=False)
            self.l1 = L.Linear(None, 5, initialW=w)
            self.bn1 = L.BatchNormalization(5, decay=0.8, use_beta=False)

    def forward(self, x):
        h = F.leaky_relu(self.bn0(self.c0(x)))
        return self.bn1(self.l1(h))


class Encoder(chainer.Chain):
    """Sequences of several lengths, as Chainer's example of translation has them."""

    def __init__(self, n_layers=2, n_source_vocab=11, n_units=5):
        super().__init__()
        with self.init_scope():
            self.embed_x = L.EmbedID(n_source_vocab, n_units)
            self.encoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.decoder = L.NStepLSTM(n_layers, n_units, n_units, 0.1)
            self.W = L.Linear(n_units, 3)

    def forward(self, xs):
        section = np.cumsum([len(x) for x in xs[:-1]])
        exs = F.split_axis(self.embed_x(F.concat(xs, axis=0)), section, 0)
        hx, cx, ys = self.encoder(None, None, exs)
        _, _, os = self.decoder(hx, cx, ys)
        return self.W(F.concat(os, axis=0)), hx
